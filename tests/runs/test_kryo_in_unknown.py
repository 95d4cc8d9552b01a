"""A run for another Flink refuses what Kryo wrote inside of values that are not read, such as RAW columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkstate.keyed.header import KEY_SERIALIZER, VALUE_SERIALIZER, BackendKind, StateMeta
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import Metadata, Operator, OperatorHandle, PartitionedState, RelativeFile, Subtask
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.metadata.savepoint_properties import CANONICAL_SAVEPOINT
from flinkstate.reading.reader import operator_id
from flinkstate.serializers.built_snapshots import simple_snapshot
from flinkstate.serializers.snapshot_merge import parse_snapshot
from flinkstate.serializers.types import Scalar
from flinkstate.writing.operator_file import OperatorHeader, build_operator_header
from stateferry.cli import main
from stateferry.runs.guards import other_flink
from stateferry.runs.guards.other_flink import unknown_around_kryo
from tests.serializers.test_snapshots import BASE, RUNTIME, STRING, composite, i32, snapshot, utf

SAVEPOINTS = Path(__file__).parents[1] / "table_savepoints"
EMPTY = (0x4F2C69A3D70).to_bytes(8, "big") + i32(0)
KRYO = snapshot(RUNTIME + "kryo.KryoSerializerSnapshot", 2, utf("com.acme.Event") + 3 * EMPTY)
NODE = "org.apache.flink.cep.nfa.sharedbuffer.NodeId$NodeIdSerializer$NodeIdSerializerSnapshot"


def test_kryo_is_found_inside() -> None:
    inside = composite(NODE, 1, b"", composite(BASE + "ListSerializerSnapshot", 1, b"", KRYO))
    for raw in (inside, composite(BASE + "MapSerializerSnapshot", 1, b"", STRING, inside)):
        assert unknown_around_kryo(parse_snapshot(raw)) == NODE
    without = composite(NODE, 1, b"", STRING)
    for raw in (KRYO, composite(BASE + "MapSerializerSnapshot", 1, b"", KRYO, without)):
        assert unknown_around_kryo(parse_snapshot(raw)) is None


def test_the_run_is_refused(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("run", "--savepoint", str(SAVEPOINTS / "cep-1.20-hashmap"), "--job", "orders", "--to", "flink-2")
    assert main([*options, "--target", str(tmp_path / "one")]) == 0
    # As if Kryo had written what is inside.
    monkeypatch.setattr(other_flink, "_has_kryo", lambda one: one.class_name == NODE)
    assert main([*options, "--target", str(tmp_path / "other")]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"Kryo has written what is inside of {NODE}" in said
    assert "start the old job from this savepoint without this operator, with --allowNonRestoredState" in said


@pytest.mark.parametrize("mode", [DistributionMode.SPLIT_DISTRIBUTE, DistributionMode.BROADCAST])
def test_operator_state_is_looked_at_too(
    mode: DistributionMode, tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = parse_snapshot(composite(NODE, 1, b"", KRYO))
    options = (("OPERATOR_STATE_DISTRIBUTION_MODE", mode.name),)
    if mode is DistributionMode.BROADCAST:
        serializers = ((KEY_SERIALIZER, simple_snapshot(Scalar.LONG)), (VALUE_SERIALIZER, events))
        header = OperatorHeader(False, (), (StateMeta("events", BackendKind.BROADCAST, options, serializers),))
    else:
        meta = StateMeta("events", BackendKind.OPERATOR, options, ((VALUE_SERIALIZER, events),))
        header = OperatorHeader(False, (meta,), ())
    raw = build_operator_header(header)
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(raw + i32(0))
    handle = OperatorHandle((PartitionedState("events", mode, (len(raw),)),), RelativeFile("file", len(raw) + 4))
    subtask = Subtask(0, managed_operator=handle)
    operator = Operator(operator_id("rules"), 1, 128, None, None, None, False, (subtask,))
    (source / "_metadata").write_bytes(build_metadata(Metadata(4, 1, (operator,), (), CANONICAL_SAVEPOINT)))
    target = str(tmp_path / "target")
    assert main(["run", "--savepoint", str(source), "--job", "orders", "--to", "flink-2", "--target", target]) != 0
    assert f"events: Kryo has written what is inside of {NODE}" in " ".join(capsys.readouterr().err.split())
