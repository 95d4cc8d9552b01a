"""A run for another Flink refuses what Kryo wrote inside of values that are not read, such as events of CEP."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkstate.serializers.snapshot_merge import parse_snapshot
from stateferry.cli import main
from stateferry.runs.guards import other_flink
from stateferry.runs.guards.other_flink import unknown_around_kryo
from tests.serializers.test_snapshots import BASE, RUNTIME, STRING, composite, i32, snapshot, utf
from tests.support.in_process import without_spark

SAVEPOINTS = Path(__file__).parents[1] / "table_savepoints"
EMPTY = (0x4F2C69A3D70).to_bytes(8, "big") + i32(0)
KRYO = snapshot(RUNTIME + "kryo.KryoSerializerSnapshot", 2, utf("com.acme.Event") + 3 * EMPTY)
LOCKABLE = "org.apache.flink.cep.nfa.sharedbuffer.LockableTypeSerializerSnapshot"


def test_kryo_is_found_inside() -> None:
    inside = composite(LOCKABLE, 1, b"", composite(BASE + "ListSerializerSnapshot", 1, b"", KRYO))
    for raw in (inside, composite(BASE + "MapSerializerSnapshot", 1, b"", STRING, inside)):
        assert unknown_around_kryo(parse_snapshot(raw)) == LOCKABLE
    without = composite(LOCKABLE, 1, b"", STRING)
    for raw in (KRYO, composite(BASE + "MapSerializerSnapshot", 1, b"", KRYO, without)):
        assert unknown_around_kryo(parse_snapshot(raw)) is None


def test_the_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    without_spark(monkeypatch)
    options = ("run", "--savepoint", str(SAVEPOINTS / "cep-1.20-hashmap"), "--job", "orders", "--to", "flink-2")
    assert main([*options, "--target", str(tmp_path / "one")]) == 0
    # As if Kryo had written the events.
    monkeypatch.setattr(other_flink, "_has_kryo", lambda one: one.class_name == LOCKABLE)
    assert main([*options, "--target", str(tmp_path / "other")]) != 0
    assert f"Kryo has written what is inside of {LOCKABLE}" in " ".join(capsys.readouterr().err.split())
