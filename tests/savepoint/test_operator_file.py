"""Operator state that Flink wrote, dealt out to other numbers of subtasks: the elements are those the job had."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flinkstate.keyed.header import VALUE_SERIALIZER, StateMeta
from flinkstate.metadata.metadata import OperatorHandle
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.metadata.streams import open_stream
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.binary import ByteReader
from flinkstate.serializers.type_parts import opaque_parts
from flinkstate.serializers.types import FlinkType, MapType
from flinkstate.values.codecs import decode
from flinkstate.values.value_json import json_text
from flinkstate.writing.operator_file import parse_operator_header
from flinkstate.writing.operator_rewrite import Layout
from tests.support.expected_columns import SAVEPOINTS, expected_lines
from tests.support.rewriting import rewrite

CASES = [
    "operator-state-1.20-hashmap",
    "operator-state-2.3-rocksdb",
    "metadata-3-1.20-rocksdb",
    "metadata-5-2.3-rocksdb",
]
PARALLELISM_OF_THE_JOB = 3
KEY_SERIALIZER = "KEY_SERIALIZER"
# By state: its mode, and of each subtask its elements as JSON, or None where they can't be read.
Held = dict[str, tuple[DistributionMode, dict[int, list[str | None]]]]


def type_of(meta: StateMeta) -> FlinkType:
    """Of an element; a broadcast state is one, a map."""
    value, key = meta.serializer(VALUE_SERIALIZER), meta.serializer(KEY_SERIALIZER)
    assert value is not None
    return value.type if key is None else MapType(key.type, value.type)


def elements(savepoint: Savepoint, handle: OperatorHandle) -> Iterator[tuple[str, DistributionMode, list[str | None]]]:
    file, name, size = open_stream(savepoint.folder, handle.stream)
    with file:
        data = bytes(file.read(size))
    first = min((offset for state in handle.states for offset in state.offsets), default=size)
    header = parse_operator_header(data[:first], name)
    metas = {meta.name: meta for meta in (*header.lists, *header.broadcasts)}
    for state in handle.states:
        read = broadcast_entries if state.mode is DistributionMode.BROADCAST else one_element
        type_ = type_of(metas[state.name])
        yield state.name, state.mode, [text for offset in state.offsets for text in read(type_, data, offset)]


def one_element(type_: FlinkType, data: bytes, offset: int) -> list[str | None]:
    return [None] if opaque_parts(type_) else [json_text(type_)(decode(type_, data, offset)[0])]


def broadcast_entries(type_: FlinkType, data: bytes, offset: int) -> list[str | None]:
    """Unlike those of a map inside a value, its entries have no flag that says null."""
    assert isinstance(type_, MapType)
    reader, found = ByteReader(data[offset:], "broadcast state"), []
    position = offset + 4
    for _ in range(reader.i32("its size")):
        key, position = decode(type_.key, data, position)
        value, position = decode(type_.value, data, position)
        found.append(f"[{json_text(type_.key)(key)},{json_text(type_.value)(value)}]")
    return list(found)


def held(savepoint: Savepoint, uid: str) -> Held:
    out: Held = {}
    for subtask in savepoint.operator(uid).subtasks:
        if subtask.managed_operator is not None:
            for name, mode, found in elements(savepoint, subtask.managed_operator):
                known, by_subtask = out.setdefault(name, (mode, {}))
                assert mode is known
                by_subtask[subtask.index] = found
    return out


def expected(case: str, uid: str) -> dict[str, Counter[str]]:
    out: dict[str, Counter[str]] = {}
    for line in expected_lines(case):
        if line["operator"] == uid and "key" not in line:
            content: Any = [line["user_key"], line["value"]] if "user_key" in line else line["value"]
            out.setdefault(line["state"], Counter())[normal(json.dumps(content))] += 1
    return out


def normal(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


@pytest.mark.part
@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
@pytest.mark.parametrize("uid", ["plain", "keyed"])
@pytest.mark.parametrize("case", CASES)
def test_elements_are_those_that_the_job_had(case: str, uid: str, parallelism: int, tmp_path: Path) -> None:
    source = Savepoint.open(str(SAVEPOINTS / case))
    assert source.operator(uid).parallelism == PARALLELISM_OF_THE_JOB
    rewrite(source, str(tmp_path / "rewritten"), Layout({operator_id(uid): parallelism}))
    states = held(Savepoint.open(str(tmp_path / "rewritten")), uid)
    wanted = expected(case, uid)
    assert set(wanted) <= set(states)
    assert {mode for mode, _ in states.values()} == set(DistributionMode)
    for name, (mode, by_subtask) in states.items():
        assert set(by_subtask) <= set(range(parallelism))
        if mode is DistributionMode.BROADCAST:
            # One copy for each subtask, each whole.
            assert set(by_subtask) == set(range(parallelism))
            copies = list(by_subtask.values())
        else:
            # A restore gathers the union from all files: in all of them together an element is there once.
            copies = [[text for found in by_subtask.values() for text in found]]
        for copy in copies:
            if None in copy:
                assert (case[-12:], name, len(copy)) in {("1.20-hashmap", "people", 4), ("1.20-rocksdb", "people", 4)}
            else:
                assert Counter(normal(text or "") for text in copy) == wanted.get(name, Counter())


@pytest.mark.parametrize("case", CASES)
def test_lists_are_dealt_out_evenly(case: str, tmp_path: Path) -> None:
    rewrite(Savepoint.open(str(SAVEPOINTS / case)), str(tmp_path / "rewritten"), Layout({operator_id("plain"): 2}))
    states = held(Savepoint.open(str(tmp_path / "rewritten")), "plain")
    mode, offsets = states["offsets"]
    assert mode is DistributionMode.SPLIT_DISTRIBUTE
    assert sorted(map(len, offsets.values())) == [5, 6]
