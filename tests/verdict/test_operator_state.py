"""What can't be read of operator state, or in front of a user key, is never said to restore."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flinkstate.keyed.header import BackendKind, StateMeta
from flinkstate.keyed.state import StateKind
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import Metadata, Operator, OperatorHandle, PartitionedState, RelativeFile, Subtask
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.metadata.savepoint_properties import CANONICAL_SAVEPOINT
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.binary import ByteWriter
from flinkstate.serializers.built_snapshots import kryo_snapshot, snapshot_of
from flinkstate.serializers.types import PojoField, PojoType, Scalar
from flinkstate.writing.operator_file import OperatorHeader, build_operator_header
from stateferry.verdict.journey import Journey
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Outcome, StateVerdict
from stateferry.verdict.sample import samples_of
from stateferry.verdict.versions import Line
from tests.support.expected_columns import SAVEPOINTS
from tests.support.kryo_writing import kryo_map

PERSON = PojoType("com.acme.Person", (PojoField("age", Scalar.LONG, declared_in="com.acme.Person"),))
BY_KRYO = kryo_snapshot("java.util.HashMap")
NULL, SUBCLASS = b"\x01", b"\x04" + ByteWriter().utf("com.acme.Manager").bytes() + bytes(9)
TOTALS = kryo_map({"a": 1}, five=False)


def broadcast(*entries: bytes) -> bytes:
    return len(entries).to_bytes(4, "big") + b"".join(entries)


def judged(folder: Path, listed: str, element: bytes) -> list[StateVerdict]:
    """The verdicts on the broadcast state `rules`, which `_metadata` lists by another name perhaps."""
    serializers = (("KEY_SERIALIZER", snapshot_of(PERSON)), ("VALUE_SERIALIZER", BY_KRYO))
    options = (("OPERATOR_STATE_DISTRIBUTION_MODE", "BROADCAST"),)
    header = OperatorHeader(False, (), (StateMeta("rules", BackendKind.BROADCAST, options, serializers),))
    content = build_operator_header(header)
    state = PartitionedState(listed, DistributionMode.BROADCAST, (len(content),))
    (folder / "file").write_bytes(content + element)
    handle = OperatorHandle((state,), RelativeFile("file", len(content + element)))
    subtask = Subtask(0, managed_operator=handle)
    operator = Operator(operator_id("rules"), 1, 128, None, None, None, False, (subtask,))
    metadata = Metadata(4, 1, (operator,), (), CANONICAL_SAVEPOINT)
    (folder / "_metadata").write_bytes(build_metadata(metadata))
    return list(verdicts(Savepoint.open(str(folder)), Asked(Line.TWO, everything=True)))


def test_values_behind_a_key_that_cant_be_read(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, "rules", broadcast(NULL + TOTALS))
    assert found.finding.outcome is Outcome.WRONG
    (found,) = judged(tmp_path, "rules", broadcast(SUBCLASS + TOTALS, NULL + TOTALS))
    assert (found.state, found.finding.outcome) == ("rules", Outcome.UNKNOWN)
    assert "Person can't be read to its end" in found.finding.reason


def test_a_state_that_its_file_doesnt_describe(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, "others", broadcast(NULL + TOTALS))
    assert (found.state, found.finding.outcome) == ("others", Outcome.UNKNOWN)
    assert "doesn't describe" in found.finding.reason


def test_user_keys_behind_a_key_that_cant_be_read() -> None:
    savepoint = Savepoint.open(str(SAVEPOINTS / "hint-hash-map-1.20-rocksdb"))
    operators = [(one, state) for one in savepoint.keyed_operators() for state in savepoint.keyed_states(one)]
    operator, state = next((one, state) for one, state in operators if state.kind is StateKind.MAP)
    by_kryo = (replace(state, key=PERSON, user_key=BY_KRYO.type),)
    found = samples_of(savepoint, operator, by_kryo, Journey(Line.ONE, Line.TWO), None)
    whys = {sampled.why_not for kryos in found.values() for _, sampled in kryos if not sampled.whole}
    assert whys == {"a key in front of one can't be read to its end"}
