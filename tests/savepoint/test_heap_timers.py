"""Timers that a job keeps on the heap: raw keyed state of checkpoints, read as the states that savepoints have."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed import heap_timers
from flinkstate.keyed.header import KeyedHeader
from flinkstate.keyed.heap_timers import HeapTimers, are_timers, laid_out
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import AbsoluteFile, InlineBytes, KeyedHandle, Metadata
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.binary import ByteWriter
from flinkstate.serializers.built_snapshots import simple_snapshot
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import Scalar
from flinkstate.writing.heap_timers_writer import HeapTimersWriter
from tests.rocksdb.goldens import SAVEPOINTS, metadata_of, opened, roots_of

GOLDEN = SAVEPOINTS / "rounds-heap-timers-2.3-rocksdb"
HERE = Location.of("/nowhere")
LONG, STRING, VOID = (simple_snapshot(type_) for type_ in (Scalar.LONG, Scalar.STRING, Scalar.VOID_NAMESPACE))

Timer = tuple[bytes, int]


def group(*services: tuple[str, list[Timer], list[Timer]], key: SerializerSnapshot = LONG) -> bytes:
    """A key group as Flink writes it; a timer is its key with the namespace, and its timestamp."""
    writer = ByteWriter().raw(b"\xf1\xcd\x85\x9f").i32(2).i32(len(services))
    for name, *sorts in services:
        writer.utf(name).raw(key.raw).raw(VOID.raw)
        for timers in sorts:
            writer.i32(len(timers))
            for where, stamp in timers:
                writer.raw(where).i64(stamp)
    return writer.bytes()


def handle(*groups: bytes | None, first: int = 0) -> KeyedHandle:
    """Raw keyed state with these key groups, of which some have no content."""
    data, offsets = b"", []
    for content in groups:
        offsets.append(-1 if content is None else len(data))
        data += content or b""
    key_groups = KeyGroupRange(first, first + len(groups) - 1)
    return KeyedHandle(key_groups, tuple(offsets), InlineBytes("raw", data), 12, "id")


def keyed(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True) + b"\0"


def test_rows_are_those_of_a_canonical_savepoint_in_order() -> None:
    timers = handle(
        None,
        group(("a", [(keyed(5), 7), (keyed(-5), 7), (keyed(6), -1)], []), ("b", [], [(keyed(1), 1)])),
        group(("a", [], []), ("b", [], [])),
        first=255,
    )
    assert are_timers(HERE, timers)
    with HeapTimers(HERE, timers, 2) as file:
        assert [state.name for state in file.states] == [
            *("_timer_state/event_a", "_timer_state/processing_a"),
            *("_timer_state/event_b", "_timer_state/processing_b"),
        ]
        stamps = {-1: b"\x7f" + b"\xff" * 7, 1: b"\x80" + bytes(6) + b"\1", 7: b"\x80" + bytes(6) + b"\7"}
        expected = [b"\1\0" + stamps[stamp] + keyed(number) for stamp, number in ((-1, 6), (7, 5), (7, -5))]
        assert list(file.rows(256, 0)) == [expected]
        assert [*file.rows(256, 1), *file.rows(256, 2)] == []
        assert list(file.rows(256, 3)) == [[b"\1\0" + stamps[1] + keyed(1)]]
        assert [*file.rows(255, 0), *file.rows(257, 0)] == []
        # Whoever wants one state alone finds it behind the others.
        assert list(file.rows(256, 2)) == []
        assert list(file.rows(256, 0)) == [expected]
        data, starts, key_ends, ends = laid_out(expected)
        assert [data[start + 4 : end].tobytes() for start, end in zip(starts, key_ends, strict=True)] == expected
        assert (ends - key_ends).tolist() == [4] * 3
        assert not data[key_ends[0] : ends[0]].any()


def test_an_operator_without_timer_services_has_no_timers() -> None:
    timers = handle(group(), None, group())
    assert are_timers(HERE, timers)
    with HeapTimers(HERE, timers, 1) as file:
        assert file.states == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\7some text",
        b"\xf1\xcd\x85\x9f\0\0\0\1" + bytes(4),
        group(("a", [], [])) + b"\0",
        group(("a", [], []))[:-1],
        group(("a", [(b"\2a\0", 1)], []), key=replace(STRING, raw=b"\0\3own\0\0\0\1")),
    ],
    ids=["nothing", "own state", "an old version", "more", "less", "unknown keys"],
)
def test_other_raw_state_is_no_timers(content: bytes) -> None:
    assert not are_timers(HERE, handle(content or None, b"" if not content else None))


def test_a_key_group_is_read_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Portions of a few timers, of less than one timer, and of less than what describes them."""
    events = [(keyed(number), number * 7919 % 1000) for number in range(1000)]
    timers = handle(group(("a", events, [(keyed(1), 5)]), ("b", [], events[:10])))
    with HeapTimers(HERE, timers, 1) as file:
        expected = [[row for rows in file.rows(0, state) for row in rows] for state in range(4)]
    assert [len(rows) for rows in expected] == [1000, 1, 0, 10]
    for portion in (640, 70, 11):
        monkeypatch.setattr(heap_timers, "_PORTION", portion)
        with HeapTimers(HERE, timers, 1) as file:
            assert max(len(rows) for rows in file.rows(0, 0)) <= max(portion // 17, 1)
            assert [sorted(row for rows in file.rows(0, state) for row in rows) for state in range(4)] == expected


def test_timers_whose_file_has_vanished_are_told_as_that(tmp_path: Path) -> None:
    timers = replace(handle(group()), stream=AbsoluteFile(f"file://{tmp_path}/gone", 10))
    with pytest.raises(DamagedError, match="a running job has removed it since"):
        are_timers(HERE, timers)


def test_what_differs_is_damage() -> None:
    good = group(("a", [(keyed(5), 7)], []))
    others = {
        "the timers _timer_state/event_a": group(("b", [(keyed(6), 7), (keyed(6), 8)], [])),
        "the magic number of timers": b"own state",
        "bytes": good[:-3],
        "more bytes": good + b"\0",
    }
    for expected, other in others.items():
        with pytest.raises(DamagedError, match=expected) as caught:
            rows_of(handle(good, other))
        assert caught.value.key_group == 1
    with HeapTimers(HERE, handle(good), 1) as file, pytest.raises(DamagedError, match="timers of keys of type String"):
        file.described_in(KeyedHeader(False, STRING, ()))
    for offsets in ((0, 10**6), (5, 5)):
        with pytest.raises(DamagedError, match="offset"):
            HeapTimers(HERE, replace(handle(good, good), offsets=offsets), 1)


def rows_of(timers: KeyedHandle) -> list[bytes]:
    with HeapTimers(HERE, timers, 1) as file:
        return [row for group in timers.range for state in range(2) for rows in file.rows(group, state) for row in rows]


@pytest.mark.parametrize("prefix", [1, 2])
def test_timers_are_written_as_they_were_read(prefix: int) -> None:
    several = group(("a", [(keyed(5), 7), (keyed(-5), 7), (keyed(6), -1)], []), ("b_c", [], [(keyed(1), 1)]))
    nothing = group(("a", [], []), ("b_c", [], []))
    timers = handle(nothing, several, None, several, nothing, first=7)
    written = b""

    def write(data: bytes) -> None:
        nonlocal written
        written += data

    with HeapTimers(HERE, timers, prefix) as file:
        # The states of the job are before those of the timers.
        states = dict(enumerate(file.states, 3))
        out = HeapTimersWriter(write, states, timers.range, prefix)
        for key_group in timers.range:
            for number in states:
                for rows in file.rows(key_group, number - 3):
                    data, starts, _, ends = laid_out(rows)
                    out.add(number, data[starts[0] : ends[-1]])
        out.close()
    again = replace(timers, offsets=tuple(out.offsets), stream=InlineBytes("raw", written))
    # Each key group has the timers of one sort in the order of time, and says which there are.
    ordered = group(("a", [(keyed(6), -1), (keyed(5), 7), (keyed(-5), 7)], []), ("b_c", [], [(keyed(1), 1)]))
    assert written == nothing + ordered + nothing + ordered + nothing
    with HeapTimers(HERE, again, prefix) as file, HeapTimers(HERE, timers, prefix) as before:
        assert file.states == before.states
        for key_group, state in ((key_group, state) for key_group in timers.range for state in range(4)):
            assert list(file.rows(key_group, state)) == list(before.rows(key_group, state))


def written(folder: Path, metadata: Metadata) -> Savepoint:
    metadata_of(folder).write_bytes(build_metadata(metadata))
    return opened(folder)


def timers_of(raw: KeyedHandle) -> Iterator[tuple[str, bytes]]:
    with HeapTimers(HERE, raw, 1) as file:
        for key_group in raw.range:
            for number, state in enumerate(file.states):
                yield from ((state.name, key) for keys in file.rows(key_group, number) for key in keys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN, tmp_path / "golden")
    assert roots_of(tmp_path / "golden")
    return tmp_path / "golden"


def test_metadata_is_written_as_it_was_read(folder: Path) -> None:
    file = metadata_of(folder)
    before = file.read_bytes()
    savepoint = Savepoint.open(str(file))
    (operator,) = savepoint.keyed_operators()
    assert all(task.native_keyed and task.native_keyed.timers and not task.raw_keyed for task in operator.subtasks)
    assert build_metadata(savepoint.metadata) == before


@pytest.mark.slow
@pytest.mark.parametrize("count", [60, pytest.param(1500, marks=pytest.mark.full)], ids=["some", "many"])
def test_damage_is_named_or_changes_single_timers(count: int) -> None:
    """These bytes have no checksum, so another timestamp is another timer. Of keys, others check the hash."""
    metadata = parse_metadata(metadata_of(GOLDEN).read_bytes(), "_metadata")
    raw = next(task.raw_keyed for operator in metadata.operators for task in operator.subtasks if task.raw_keyed)
    whole = (metadata_of(GOLDEN).parent / raw.stream.name).read_bytes()
    chosen, named = random.Random(5), 0
    truth = Counter(timers_of(replace(raw, stream=InlineBytes("raw", whole))))
    assert truth.total() > 50
    for _ in range(count):
        position = chosen.randrange(len(whole))
        data = bytearray(whole)
        data[position] ^= 1 << chosen.randrange(8)
        try:
            found = Counter(timers_of(replace(raw, stream=InlineBytes("raw", bytes(data)))))
        except (DamagedError, RefusedError):
            named += 1
            continue
        assert (truth - found).total() <= 1, position
        assert (found - truth).total() <= 1, position
    # Most bytes describe serializers.
    assert named > count // 2


def test_a_subtask_without_a_database_leaves_raw_state_as_it_is(folder: Path) -> None:
    metadata = parse_metadata(metadata_of(folder).read_bytes(), "_metadata")
    operators = []
    for operator in metadata.operators:
        subtasks = (replace(task, native_keyed=task.native_keyed if task.index else None) for task in operator.subtasks)
        operators.append(replace(operator, subtasks=tuple(subtasks)))
    savepoint = written(folder, replace(metadata, operators=tuple(operators)))
    (operator,) = savepoint.keyed_operators()
    assert all(task.raw_keyed for task in operator.subtasks)
