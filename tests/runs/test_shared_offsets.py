"""Compressed operator state of Flink 1.18, in which elements aren't told apart."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import cramjam
import pytest

from flinkstate.errors import RefusedError
from flinkstate.keyed.compression import STREAM_START
from flinkstate.keyed.header import BackendKind, StateMeta
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import Operator, OperatorHandle, PartitionedState, RelativeFile, Subtask
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.built_snapshots import simple_snapshot
from flinkstate.serializers.types import Scalar
from flinkstate.writing.operator_file import ElementFile, OperatorHeader, build_operator_header
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.runs.checks.plan_check import resolve
from stateferry.runs.plan.plan_json import plan_of
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Finding, Outcome
from stateferry.verdict.versions import Line

_BLOCK = 1 << 16
NUMBERS = [bytes([number]) * 8 for number in range(4)]
# Of letters that snappy makes smaller, and of one letter, which it makes very small.
TEXTS = [bytes(random.Random(seed).choices(b"abcdef", k=100_000)) for seed in range(3)]
ONE_LETTER = [b"a" * 200_000] * 3
# Snappy can't make these smaller, so their chunks are stored.
NOISE = [random.Random(seed).randbytes(100_000) for seed in range(3)]


def _chunks(content: bytes) -> bytes:
    return bytes(cramjam.snappy.compress(content))[len(STREAM_START) :] if content else b""


def _as_flink_1_18(elements: list[bytes]) -> tuple[bytes, list[int]]:
    """The stream, and offsets that don't count what still waits for a block to be full."""
    content, full, offsets, before = b"".join(elements), b"", [], 0
    for element in elements:
        offsets.append(len(full))
        before += len(element)
        full = _chunks(content[: before - before % _BLOCK])
    return _chunks(content), offsets


def _as_later_versions(elements: list[bytes]) -> tuple[bytes, list[int]]:
    """The stream, and offsets each of which begins a chunk."""
    chunks = [_chunks(element) for element in elements]
    return b"".join(chunks), [sum(map(len, chunks[:number])) for number in range(len(chunks))]


def _write(folder: Path, stream: bytes, offsets: list[int]) -> Path:
    """Writes a savepoint with such a list; what its elements are doesn't matter here."""
    write_demo_savepoint(str(folder), DemoState(40, 3, 0.4, None, 10**12, 3, 128, 7))
    options = (("OPERATOR_STATE_DISTRIBUTION_MODE", "SPLIT_DISTRIBUTE"),)
    splits = StateMeta("splits", BackendKind.OPERATOR, options, (("VALUE_SERIALIZER", simple_snapshot(Scalar.LONG)),))
    header = build_operator_header(OperatorHeader(True, (splits,), ()))
    content = header + stream
    (folder / "splits").write_bytes(content)
    state = PartitionedState("splits", DistributionMode.SPLIT_DISTRIBUTE, tuple(len(header) + one for one in offsets))
    subtask = Subtask(0, managed_operator=OperatorHandle((state,), RelativeFile("splits", len(content))))
    reader = Operator(operator_id("reader"), 1, 128, "reader", None, None, False, (subtask,))
    metadata = parse_metadata((folder / "_metadata").read_bytes(), "")
    (folder / "_metadata").write_bytes(
        build_metadata(replace(metadata, version=4, operators=(*metadata.operators, reader)))
    )
    return folder


def _resolve(source: Path) -> None:
    states = [{"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState"}]
    values = {"source": str(source), "target": f"{source}-new", "job": "orders"}
    plan = plan_of({**values, "operators": [{"operator": "main", "states": states}]})
    resolve(plan, Savepoint.open(plan.source))


def _verdict(source: Path) -> Finding:
    found = verdicts(Savepoint.open(str(source)), Asked(Line.TWO))
    (of_splits,) = [one.finding for one in found if one.state == "splits"]
    return of_splits


@pytest.mark.parametrize(
    "elements", [NUMBERS, TEXTS, ONE_LETTER, NOISE], ids=["small", "large", "tiny chunks", "noise"]
)
def test_elements_that_are_not_told_apart_are_refused(tmp_path: Path, elements: list[bytes]) -> None:
    """Flink would restore other elements, also from a file that is only copied."""
    source = _write(tmp_path / "source", *_as_flink_1_18(elements))
    refusal = "the offsets of compressed operator state don't tell its elements apart, as Flink 1.18 writes them"
    with pytest.raises(RefusedError, match=re.escape(refusal)):
        _resolve(source)
    found = _verdict(source)
    assert found.outcome is Outcome.UNKNOWN
    assert "FLINK-34063" in found.reason


@pytest.mark.parametrize(
    "elements", [NUMBERS, TEXTS, ONE_LETTER, NOISE], ids=["small", "large", "tiny chunks", "noise"]
)
def test_those_of_later_versions_are_read(tmp_path: Path, elements: list[bytes]) -> None:
    source = _write(tmp_path / "source", *_as_later_versions(elements))
    _resolve(source)
    assert _verdict(source).outcome is Outcome.RESTORES
    savepoint = Savepoint.open(str(source))
    handle = savepoint.operator("reader").subtasks[0].managed_operator
    assert handle is not None
    with ElementFile(savepoint.folder, handle) as file:
        assert [file.whole_element(offset) for offset in handle.states[0].offsets] == elements


def test_one_that_ends_with_a_block_says_nothing_of_the_others(tmp_path: Path) -> None:
    source = _write(tmp_path / "source", *_as_later_versions([b"a" * _BLOCK, *TEXTS]))
    assert _verdict(source).outcome is Outcome.RESTORES
