"""An operator whose keys are by the serializers of flink-scala: for Flink 2 they become others, with other hashes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flinkstate.basics.array_types import Positions
from flinkstate.errors import PlanError, RefusedError, RejectedError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.header import KeyedHeader
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.types import Scalar, TupleType
from flinkstate.values.hash_codes import key_group_of
from flinkstate.writing.max_parallelism_change import Destination
from flinkstate.writing.writer import SavepointWriter
from stateferry.cli import main
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Outcome
from stateferry.verdict.versions import Line
from tests.steps.test_for_another_flink import ALONE, GOLDEN
from tests.steps.test_native_source import run

SOURCE = GOLDEN / "scala-keys-1.20-rocksdb"
TOLD = {"kinds/(key)": "Tuple3<Integer, String, Tuple2<Long, String>>"}
_TUPLE = "org.apache.flink.api.java.tuple.Tuple"
PAIR = TupleType((Scalar.LONG, Scalar.STRING), f"{_TUPLE}2")
MADE = TupleType((Scalar.INTEGER, Scalar.STRING, PAIR), f"{_TUPLE}3")


def plan(**options: Any) -> dict[str, Any]:
    return {"to": "flink-2", "declared": TOLD, **ALONE, **options}


def shown(key: Any) -> list[Any]:
    """A key as the new job has it."""
    number, text, pair = key
    return [number, text.get("some"), pair]


def dumped(savepoint: Path, state: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["dump", str(savepoint), "--operator", "kinds", "--state", state]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def in_text(lines: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps({k: v for k, v in one.items() if k != "key_group"}, sort_keys=True) for one in lines)


@pytest.mark.parametrize(
    "options",
    [{}, {"parallelism": 5, "max_parallelism": 300}, {"output_format": "native", "max_parallelism": 7}],
    ids=["alone", "another layout", "native"],
)
def test_keys_are_hashed_as_the_new_job_does(
    options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, made = run(SOURCE, tmp_path, **plan(**options))
    assert report.is_green, report
    names = [check.name.rpartition("/")[2] for check in report.checks]
    assert "map-state: carried over, written by Flink's own serializers" in names
    capsys.readouterr()
    expected = [json.loads(line) for line in (SOURCE / "expected.jsonl").read_text().splitlines()]
    target, most = Path(made.plan.target), options.get("max_parallelism", 128)
    for state in {line["state"] for line in expected}:
        lines = dumped(target, state, capsys)
        of_state = [{**line, "key": shown(line["key"])} for line in expected if line["state"] == state]
        for line in of_state:
            del line["operator"], line["state"]
        assert in_text(lines) == in_text(of_state)
        for line in lines:
            number, text, pair = line["key"]
            assert line["key_group"] == key_group_of(MADE, (number, text, tuple(pair)), most)


def test_the_verdict_before_and_after(tmp_path: Path) -> None:
    before = list(verdicts(Savepoint.open(str(SOURCE)), Asked(Line.TWO)))
    assert {one.finding.outcome for one in before} == {Outcome.REFUSED}
    for one in before:
        assert "--declared 'operator/(key)=...'" in one.finding.advice
        assert "Tuple3<Integer, String, Tuple2<Long,String>>" in one.finding.advice
    _, made = run(SOURCE, tmp_path, **plan())
    after = verdicts(Savepoint.open(made.plan.target), Asked(Line.TWO, everything=True))
    assert {one.finding.outcome for one in after} == {Outcome.RESTORES}


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({}, r"--declared '.*/\(key\)=Tuple3<Integer, String, Tuple2<Long,String>>'$"),
        ({"kinds/(key)": "Tuple2"}, "expected Tuple3"),
        ({"kinds/(key)": "Pojo<com.acme.Id>(a, b, c)"}, "com.acme.Id is that class's own code"),
    ],
)
def test_keys_whose_hash_is_not_known_are_refused(declared: dict[str, str], why: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=why):
        run(SOURCE, tmp_path, **plan(declared=declared))
    assert not (tmp_path / "target").exists()


def misplaced(hashed: Callable[..., Positions]) -> Callable[[Destination, Section, KeyedState], Positions]:
    def key_groups(self: Destination, section: Section, state: KeyedState) -> Positions:
        groups = hashed(self, section, state)
        groups[0] = (groups[0] + 1) % self.new_max
        return groups

    return key_groups


@pytest.mark.parametrize("what", ["the writers alone", "all compiled code"])
def test_a_key_in_a_wrong_key_group_is_red(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "the writers alone":
        monkeypatch.setattr(Destination, "key_groups", misplaced(Destination.key_groups))
        red = "map-state: carried over, .*keys in the key groups of their hashes"
    else:
        for module in ("flinkstate.writing.max_parallelism_change", "stateferry.proof.expected.content"):
            monkeypatch.setattr(f"{module}.assign_to_key_groups", lambda codes, most: np.abs(codes) % most)
        red = "map-state: sample read plainly"
    with pytest.raises(RejectedError, match=red):
        run(SOURCE, tmp_path, **plan())


def savepoint(target: Path, *keys: tuple[int, bytes]) -> Path:
    """A savepoint of the golden one's reducing state alone, with these keys in these key groups."""
    source = Savepoint.open(str(SOURCE))
    header = source.keyed_header(source.keyed_operators()[0])
    assert header is not None
    metas = tuple(meta for meta in header.states if meta.name == "reducing-state")
    writer, id_ = SavepointWriter(str(target)), operator_id("kinds")
    of_file = KeyedHeader(False, header.key_serializer, metas), KeyGroupRange(0, 127)
    with writer.keyed_file(id_.hex(), 0, *of_file) as file:
        for group, key in sorted(keys):
            together = [one for of, one in keys if of == group]
            if key == together[0]:
                rows = [_sized(bytes([group]) + one + b"\0") + _sized(struct.pack(">q", 7)) for one in together]
                data = np.frombuffer(b"".join(rows), np.uint8).copy()
                file.entries(group, 0, data, len(data) - len(rows[-1]))
        subtask = Subtask(0, managed_keyed=file.close())
    operator = Operator(id_, 1, 128, "kinds", "kinds", subtasks=(subtask,))
    writer.commit(Metadata(4, 1, (operator,), properties=source.metadata.properties))
    return target


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def key_of(text: bytes) -> bytes:
    """The key (1, text, (2, "a")), as it is stored."""
    return struct.pack(">i", 1) + text + struct.pack(">q", 2) + b"\2a"


NONE, SOME_NULL, SOME_TEXT = key_of(b"\0"), key_of(b"\1\0"), key_of(b"\1\2b")


def test_keys_that_become_one_are_refused(tmp_path: Path) -> None:
    options = plan(parallelism=1)
    report, _ = run(savepoint(tmp_path / "two", (5, NONE), (5, SOME_TEXT)), tmp_path / "green", **options)
    assert report.is_green
    with pytest.raises(RefusedError, match=r"reducing-state.*key group 5, 1 keys become the same bytes"):
        run(savepoint(tmp_path / "together", (5, NONE), (5, SOME_NULL)), tmp_path / "refused", **options)
    assert not (tmp_path / "refused" / "target").exists()
    # In two key groups, only the validation meets both.
    apart = savepoint(tmp_path / "apart", (5, NONE), (6, SOME_NULL))
    with pytest.raises(RejectedError, match="each key once in a state"):
        run(apart, tmp_path / "red", **options)
    # RocksDB's files have no room for both.
    with pytest.raises(RefusedError, match=r"operator .*: two of its keys become the same, as Scala's None"):
        run(apart, tmp_path / "native", output_format="native", **options)
    assert not (tmp_path / "native" / "target" / "_metadata").exists()
