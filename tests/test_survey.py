"""What a savepoint holds, in figures: counted against contents that the tests wrote themselves."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import cramjam
import numpy as np
import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.hashing.key_groups import KeyGroupRange, assign_to_key_group
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    USER_KEY_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import (
    InlineBytes,
    Metadata,
    Operator,
    OperatorHandle,
    PartitionedState,
    RelativeFile,
    Subtask,
)
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.binary import ByteWriter
from flinkstate.serializers.built_snapshots import simple_snapshot, ttl_snapshot
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import Scalar
from flinkstate.writing.writer import SavepointWriter
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.look.survey import bytes_to_read, survey

PROPERTIES = b"\xac\xed\x00\x05\x70"
UID = bytes(range(16))


def demo(folder: Path, *, compressed: bool = False) -> Savepoint:
    state = DemoState(
        keys=50,
        entries=3,
        migrated=0.4,
        ttl=None,
        now=0,
        parallelism=3,
        max_parallelism=128,
        seed=7,
        compressed=compressed,
    )
    write_demo_savepoint(str(folder), state)
    return Savepoint.open(str(folder))


@pytest.mark.parametrize("compressed", [False, True])
def test_entries_and_uncompressed_bytes_of_every_state_are_counted(tmp_path: Path, compressed: bool) -> None:
    (operator,) = survey(demo(tmp_path / "demo", compressed=compressed))
    assert operator.keyed is not None
    assert operator.keyed.key is Scalar.STRING
    rows = {state.state.name: (state.entries, state.bytes) for state in operator.keyed.states}
    # Lengths 4 + 4; key: group 1, length 1, 15 characters, namespace 1; a map's entry: 1 + 8 characters, flag, long.
    row = 8 + 1 + 1 + 15 + 1
    assert rows == {
        "mainState": (30, 30 * (row + 4 + 3 * 18)),
        "newMainState": (60, 60 * (row + 18)),
        "isMigratedState": (20, 20 * (row + 1)),
    }
    for state in operator.keyed.states:
        used = int((state.entries_of_group > 0).sum())
        assert 0 < state.empty_key_groups == 128 - used
        assert state.largest_key_group is not None
        assert state.largest_key_group.bytes == state.bytes_of_group.max()
        assert state.largest_key_group.entries == state.entries_of_group[state.largest_key_group.key_group]


@pytest.mark.parametrize("compressed", [False, True])
def test_progress_is_told_every_byte_once(tmp_path: Path, compressed: bool) -> None:
    savepoint = demo(tmp_path / "demo", compressed=compressed)
    steps: list[int] = []
    survey(savepoint, steps.append)
    assert sum(steps) == bytes_to_read(savepoint) == sum(file.stat().st_size for file in state_files(tmp_path / "demo"))
    assert min(steps) >= 0


def state_files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.name != "_metadata"]


def test_a_state_without_entries_has_no_largest_key_group(tmp_path: Path) -> None:
    savepoint = keyed_savepoint(tmp_path, {0: KeyGroupRange(0, 7)}, {})
    (operator,) = survey(savepoint)
    assert operator.keyed is not None
    (state,) = operator.keyed.states
    assert (state.entries, state.empty_key_groups, state.largest_key_group) == (0, 8, None)


def test_a_key_group_in_two_subtasks_is_damage(tmp_path: Path) -> None:
    savepoint = keyed_savepoint(tmp_path, {0: KeyGroupRange(0, 4), 1: KeyGroupRange(4, 7)}, {0: [4], 1: [4]})
    with pytest.raises(DamagedError, match=r"key group 4.*subtasks 0 and 1"):
        survey(savepoint)


def keyed_savepoint(folder: Path, ranges: dict[int, KeyGroupRange], filled: dict[int, list[int]]) -> Savepoint:
    """One ValueState<Long> by Long, with one entry in each of the filled key groups."""
    long, void = simple_snapshot(Scalar.LONG), simple_snapshot(Scalar.VOID_NAMESPACE)
    serializers = ((VALUE_SERIALIZER, long), (NAMESPACE_SERIALIZER, void))
    meta = StateMeta("count", BackendKind.KEY_VALUE, ((KEYED_STATE_TYPE, "VALUE"),), serializers)
    writer = SavepointWriter(str(folder / "keyed"))
    subtasks = []
    for index, key_groups in ranges.items():
        with writer.keyed_file(UID.hex(), index, KeyedHeader(False, long, (meta,)), key_groups) as file:
            for key_group in filled.get(index, []):
                number = next(n for n in count() if assign_to_key_group(n, 8) == key_group)
                key = bytes([key_group]) + number.to_bytes(8, "big") + b"\0"
                row = ByteWriter().i32(len(key)).raw(key).i32(8).i64(6).bytes()
                file.entries(key_group, 0, np.frombuffer(row, np.uint8), 0)
            subtasks.append(Subtask(index, managed_keyed=file.close()))
    operator = Operator(UID, len(ranges), 8, subtasks=tuple(subtasks))
    return Savepoint(writer.folder, Metadata(6, 1, (operator,), properties=PROPERTIES))


def test_asynchronous_state_is_described_and_refused_by_name(tmp_path: Path) -> None:
    long, text, void = (simple_snapshot(type_) for type_ in (Scalar.LONG, Scalar.STRING, Scalar.VOID_NAMESPACE))

    def meta(kind: str, *more: tuple[str, SerializerSnapshot]) -> StateMeta:
        serializers = ((VALUE_SERIALIZER, ttl_snapshot(long)), (NAMESPACE_SERIALIZER, void), *more)
        return StateMeta(kind.lower(), BackendKind.KEY_VALUE_V2, ((KEYED_STATE_TYPE, kind),), serializers)

    metas = (meta("VALUE"), meta("LIST"), meta("MAP", (USER_KEY_SERIALIZER, text)))
    writer = SavepointWriter(str(tmp_path / "keyed"))
    with writer.keyed_file(UID.hex(), 0, KeyedHeader(False, long, metas), KeyGroupRange(0, 7)) as file:
        subtask = Subtask(0, managed_keyed=file.close())
    writer.commit(Metadata(6, 1, (Operator(UID, 1, 8, subtasks=(subtask,)),), properties=PROPERTIES))
    savepoint = Savepoint.open(str(tmp_path / "keyed"))
    (operator,) = survey(savepoint)
    assert operator.keyed is not None
    states = [found.state for found in operator.keyed.states]
    assert [(state.type_name, state.ttl) for state in states] == [
        ("Long", True),
        ("List<Long>", True),
        ("Map<String,Long>", True),
    ]
    for state in states:
        assert state.why_not_migratable == "asynchronous (V2) state"
        with pytest.raises(RefusedError, match=r"asynchronous \(V2\)"):
            list(read_entries(savepoint, operator.operator, state))


def operator_file(compressed: bool, maps: list[bytes], version: int = 6) -> tuple[bytes, tuple[int, ...]]:
    """A file whose header says nothing of its states, and where its maps begin."""
    writer = ByteWriter().i32(version)
    if version == 6:
        writer.boolean(compressed)
    data = bytearray(writer.i16(0).i16(0).bytes())
    framed = [bytes(cramjam.snappy.compress(content)) for content in maps]
    start = framed[0][:10]
    if compressed:
        data += start
    offsets = []
    for content, chunks in zip(maps, framed, strict=True):
        offsets.append(len(data))
        data += chunks[len(start) :] if compressed else content
    return bytes(data), tuple(offsets)


def with_operator_state(folder: Path, subtasks: list[tuple[bytes, tuple[PartitionedState, ...]]]) -> Savepoint:
    tasks = tuple(
        Subtask(index, managed_operator=OperatorHandle(states, InlineBytes("inlined", data)))
        for index, (data, states) in enumerate(subtasks)
    )
    operator = Operator(UID, len(tasks), 128, subtasks=tasks)
    (folder / "_metadata").write_bytes(build_metadata(Metadata(6, 1, (operator,), properties=PROPERTIES)))
    return Savepoint.open(str(folder))


def map_of(count: int) -> bytes:
    return ByteWriter().i32(count).raw(b"\2a\2b" * count).bytes()


@pytest.mark.parametrize(("compressed", "version"), [(False, 6), (True, 6), (False, 5)])
def test_elements_of_operator_state_are_counted(tmp_path: Path, compressed: bool, version: int) -> None:
    data, (first, second) = operator_file(compressed, [map_of(3), map_of(70_000)], version)
    states = (
        PartitionedState("split", DistributionMode.SPLIT_DISTRIBUTE, (6, 7, 8)),
        PartitionedState("union", DistributionMode.UNION, (9,)),
        PartitionedState("small", DistributionMode.BROADCAST, (first,)),
        PartitionedState("large", DistributionMode.BROADCAST, (second,)),
    )
    (found,) = survey(with_operator_state(tmp_path, [(data, states), (data, states)]))
    assert {state.name: (state.mode.label, state.elements) for state in found.operator_states} == {
        "split": ("SPLIT", 6),
        "union": ("UNION", 2),
        "small": ("BROADCAST", 3),
        "large": ("BROADCAST", 70_000),
    }
    assert found.keyed is None


# How much follows in a compressed file isn't known without reading all of it.
@pytest.mark.parametrize(("compressed", "count"), [(False, -1), (True, -1), (False, 2**31 - 1)])
def test_a_broadcast_size_that_lies_is_damage(tmp_path: Path, compressed: bool, count: int) -> None:
    lie = ByteWriter().i32(count).raw(b"\2a\2b").bytes()
    data, (offset,) = operator_file(compressed, [lie])
    states = (PartitionedState("map", DistributionMode.BROADCAST, (offset,)),)
    with pytest.raises(DamagedError, match="size of a broadcast state"):
        survey(with_operator_state(tmp_path, [(data, states)]))


@pytest.mark.parametrize("compressed", [False, True])
def test_a_broadcast_offset_outside_its_place_is_damage(tmp_path: Path, compressed: bool) -> None:
    data, (offset,) = operator_file(compressed, [map_of(1)])
    for wrong in (-1, 0, len(data), 2**62, *([offset + 1] if compressed else [])):
        states = (PartitionedState("map", DistributionMode.BROADCAST, (wrong,)),)
        with pytest.raises(DamagedError):
            survey(with_operator_state(tmp_path, [(data, states)]))


def test_finished_subtasks_and_raw_state_are_told(tmp_path: Path) -> None:
    raw = OperatorHandle((), InlineBytes("raw", b"12345"))
    tasks = (Subtask(0, finished=True), Subtask(1, raw_operator=raw))
    operators = (Operator(UID, 2, 128, subtasks=tasks), Operator(UID[::-1], 3, 128, fully_finished=True))
    (tmp_path / "_metadata").write_bytes(build_metadata(Metadata(6, 1, operators, properties=PROPERTIES)))
    partly, fully = survey(Savepoint.open(str(tmp_path)))
    assert (partly.finished_subtasks, partly.raw_bytes) == (1, 5)
    assert (fully.finished_subtasks, fully.raw_bytes) == (3, 0)


def test_a_damaged_key_group_is_found(tmp_path: Path) -> None:
    savepoint = demo(tmp_path / "demo")
    handle = savepoint.metadata.operators[0].subtasks[0].managed_keyed
    assert handle is not None
    assert isinstance(handle.stream, RelativeFile)
    file = tmp_path / "demo" / handle.stream.path
    data = bytearray(file.read_bytes())
    first = min(offset for offset in handle.offsets if offset)
    data[first + 6] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedError, match="the key group's own number"):
        survey(savepoint)
