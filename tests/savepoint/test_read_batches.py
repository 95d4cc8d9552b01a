"""Whole states read into Arrow batches: what Flink put into golden savepoints, portions, places of damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import pytest

from flinkstate.errors import DamagedError, RefusedError, StateferryError, UsageError
from flinkstate.hashing.key_groups import KeyGroupRange, assign_to_key_group, ranges
from flinkstate.keyed.compression import STREAM_START, Compression
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.keyed.key_group_file import KeyGroupFile
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.chunks import plan_chunks
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.reading import batches
from flinkstate.reading.batches import read_batches, read_chunk, schema
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.built_snapshots import map_snapshot, simple_snapshot
from flinkstate.serializers.type_parts import opaque_parts
from flinkstate.serializers.types import OpaqueType, Scalar
from flinkstate.values import codecs
from flinkstate.writing.writer import SavepointWriter
from tests.columns.test_columns import NotRepresentableError, expected
from tests.support.expected_columns import SAVEPOINTS, expected_lines, expected_rows, rows_of, unordered
from tests.support.samples import java_hash

CASES = sorted(folder.parent.name for folder in SAVEPOINTS.glob("*/expected.jsonl"))
# The HashMap backend's own layout, and a checkpoint whose files aren't where they were.
UNREADABLE = ["native-2.3-hashmap", "checkpoint-2.3-rocksdb"]
READABLE = [case for case in CASES if case not in UNREADABLE]
KRYO = OpaqueType("com.acme.Reading", "written by Kryo")


# What Flink wrote.


def states_of(case: str) -> Iterator[tuple[Savepoint, str, KeyedState]]:
    savepoint = Savepoint.open(str(SAVEPOINTS / case))
    for uid in dict.fromkeys(line["operator"] for line in expected_lines(case)):
        for state in savepoint.keyed_states(savepoint.operator(uid)):
            yield savepoint, uid, state


@pytest.mark.matrix(most=25)
@pytest.mark.part
@pytest.mark.parametrize("case", READABLE)
def test_golden_savepoints_hold_what_flink_put_into_them(case: str) -> None:
    seen = 0
    for savepoint, uid, state in states_of(case):
        if opaque_parts(state.value or Scalar.VOID):
            with pytest.raises(RefusedError, match=f"state {state.name}: its (value|user key) .* Kryo.*raw=true"):
                next(read_batches(savepoint, uid, state.name))
            seen += 1
            continue
        try:
            wanted = expected_rows(case, uid, state)
        except NotRepresentableError:
            with pytest.raises(RefusedError, match="raw=true"):
                list(read_batches(savepoint, uid, state.name))
            continue
        found = list(read_batches(savepoint, uid, state.name))
        assert unordered(row for batch in found for row in rows_of(batch)) == unordered(wanted), state.name
        assert all(batch.schema == schema(state) for batch in found)
        seen += len(wanted)
    assert seen > 0


@pytest.mark.parametrize("case", UNREADABLE)
def test_other_formats_are_refused(case: str) -> None:
    def read_all() -> list[pa.RecordBatch]:
        return [
            batch for savepoint, uid, state in states_of(case) for batch in read_batches(savepoint, uid, state.name)
        ]

    with pytest.raises(StateferryError):
        read_all()


@pytest.mark.matrix(most=25)
@pytest.mark.part
@pytest.mark.parametrize("case", READABLE)
def test_raw_columns_hold_the_bytes_that_decode_to_the_others(case: str) -> None:
    for savepoint, uid, state in states_of(case):
        raw = [row for batch in read_batches(savepoint, uid, state.name, raw=True) for row in rows_of(batch)]
        try:
            decoded = [row for batch in read_batches(savepoint, uid, state.name) for row in rows_of(batch)]
        except RefusedError:
            continue
        assert len(raw) == len(decoded)
        for bytes_, row in zip(raw, decoded, strict=True):
            assert bytes_["key_group"] == row["key_group"]
            assert expected(state.key, codecs.decode_whole(state.key, bytes_["key"])) == row["key"]
            if state.kind is StateKind.VALUE:
                stored = codecs.decode_whole(state.stored_value or KRYO, bytes_["value"])
                timestamp, value = (stored.timestamp, stored.value) if state.ttl else (None, stored)
                assert expected(state.value or KRYO, value) == row["value"]
                assert bytes_.get("timestamp") == row.get("timestamp") == timestamp


# What the tests themselves wrote.

UID = "00" * 16


def write(
    folder: Path,
    per_group: int,
    max_parallelism: int,
    *,
    compression: Compression = Compression.NONE,
    gap: int = 1,
) -> Savepoint:
    """A MapState<String, Long> with `per_group` entries in every `gap`-th key group, and a flag in each beside it."""
    string, long, boolean = (simple_snapshot(part) for part in (Scalar.STRING, Scalar.LONG, Scalar.BOOLEAN))
    void = (NAMESPACE_SERIALIZER, simple_snapshot(Scalar.VOID_NAMESPACE))
    metas = (
        StateMeta("flag", BackendKind.KEY_VALUE, ((KEYED_STATE_TYPE, "VALUE"),), ((VALUE_SERIALIZER, boolean), void)),
        StateMeta(
            "counts",
            BackendKind.KEY_VALUE,
            ((KEYED_STATE_TYPE, "MAP"),),
            ((VALUE_SERIALIZER, map_snapshot(string, long)), void),
        ),
    )
    writer, subtasks = SavepointWriter(str(folder)), []
    for subtask, groups in enumerate(ranges(max_parallelism, 3)):
        with writer.keyed_file(UID, subtask, KeyedHeader(False, string, metas), groups, compression) as file:
            for group in groups:
                if group % gap == 0:
                    file.entries(group, 0, *together([row_bytes(group, b"", b"\x01", max_parallelism)]))
                    file.entries(
                        group, 1, *together([map_row(group, number, max_parallelism) for number in range(per_group)])
                    )
            subtasks.append(Subtask(subtask, managed_keyed=file.close()))
    writer.commit(Metadata(6, 1, (Operator(bytes(16), 3, max_parallelism, subtasks=tuple(subtasks)),), (), PROPERTIES))
    return Savepoint.open(str(folder))


PROPERTIES = b"\xac\xed\x00\x05\x70"


def name_of(group: int, max_parallelism: int) -> str:
    """A key that belongs there: a reader takes no other."""
    return names(max_parallelism)[group]


@cache
def names(max_parallelism: int) -> dict[int, str]:
    found: dict[int, str] = {}
    candidates = (f"k{number}" for number in count())
    while len(found) < max_parallelism:
        name = next(candidates)
        found.setdefault(assign_to_key_group(java_hash(name), max_parallelism), name)
    return found


def map_row(group: int, number: int, max_parallelism: int) -> bytes:
    user_key = codecs.encode(Scalar.STRING, f"u{number}")
    value = b"\x00" + codecs.encode(Scalar.LONG, group * 1000 + number)
    return row_bytes(group, user_key, value, max_parallelism)


def row_bytes(group: int, user_key: bytes, value: bytes, max_parallelism: int) -> bytes:
    prefix = group.to_bytes(1 if max_parallelism <= 128 else 2, "big")
    key = prefix + codecs.encode(Scalar.STRING, name_of(group, max_parallelism)) + b"\x00" + user_key
    return len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value


def together(rows: list[bytes]) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], int]:
    return np.frombuffer(b"".join(rows), np.uint8), sum(map(len, rows[:-1]))


def content(groups: range, per_group: int, max_parallelism: int) -> list[tuple[int, str, str, int]]:
    return [(g, name_of(g, max_parallelism), f"u{n}", g * 1000 + n) for g in groups for n in range(per_group)]


def found(savepoint: Savepoint, **options: Any) -> list[tuple[Any, ...]]:
    # All batches first: none may lie in a buffer that the next one takes.
    kept = list(read_batches(savepoint, UID, "counts", **options))
    return [tuple(row.values()) for batch in kept for row in batch.to_pylist()]


@pytest.mark.matrix(most=3)
@pytest.mark.slow
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.STORED, Compression.SNAPPY])
@pytest.mark.parametrize(("per_group", "max_parallelism"), [(100, 7), (3, 128), (2, 300)])
def test_portions_of_any_size_hold_the_same(
    tmp_path: Path, per_group: int, max_parallelism: int, compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    savepoint = write(tmp_path / "s", per_group, max_parallelism, compression=compression)
    wanted = content(range(max_parallelism), per_group, max_parallelism)
    for rows_per_batch in (1 << 16, 500, 100, 7, 1):
        assert found(savepoint, rows_per_batch=rows_per_batch) == wanted
        sizes = [len(batch) for batch in read_batches(savepoint, UID, "counts", rows_per_batch=rows_per_batch)]
        assert max(sizes) <= rows_per_batch
    for size in (20_000, 900, 10):
        monkeypatch.setattr(batches, "BYTES_PER_BATCH", size)
        assert found(savepoint) == wanted


def test_small_key_groups_share_their_batches(tmp_path: Path) -> None:
    savepoint = write(tmp_path / "s", 2, 1000)
    (batch,) = read_batches(savepoint, UID, "counts")
    assert len(batch) == 2000


def test_some_key_groups_are_read_alone(tmp_path: Path) -> None:
    savepoint = write(tmp_path / "s", 5, 30, gap=2)
    assert found(savepoint, key_groups=KeyGroupRange(9, 22)) == content(range(10, 23, 2), 5, 30)
    assert found(savepoint, key_groups=KeyGroupRange.EMPTY) == []
    others = [file for file in (tmp_path / "s").iterdir() if not file.name.endswith(("00001", "_metadata"))]
    assert len(others) == 2
    for file in others:
        file.write_bytes(b"")
    with pytest.raises(DamagedError):
        found(savepoint)


def test_damage_is_told_by_its_place_in_the_file(tmp_path: Path) -> None:
    savepoint = write(tmp_path / "s", 3, 40)
    needle = map_row(17, 1, 40)
    (path,) = [file for file in (tmp_path / "s").iterdir() if file.name.endswith("00001")]
    data = bytearray(path.read_bytes())
    at = data.index(needle)
    data[at + len(needle) - 9] = 2  # the flag that says null
    path.write_bytes(data)
    with pytest.raises(DamagedError) as caught:
        found(savepoint)
    error = caught.value
    assert (error.file, error.key_group, error.offset) == (str(path), 17, at + len(needle) - 9)


# The larger ones have three chunks.
@pytest.mark.parametrize(("per_group", "max_parallelism"), [(3, 40), (6000, 3)])
def test_stored_key_groups_are_read_together(
    tmp_path: Path, per_group: int, max_parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    savepoint = write(tmp_path / "s", per_group, max_parallelism, compression=Compression.STORED)
    monkeypatch.setattr(KeyGroupFile, "sections_of", None)
    assert found(savepoint) == content(range(max_parallelism), per_group, max_parallelism)


def test_every_flip_in_stored_key_groups_is_found_with_its_key_group(tmp_path: Path) -> None:
    savepoint = write(tmp_path / "s", 3, 7, compression=Compression.STORED)
    (path,) = [file for file in (tmp_path / "s").iterdir() if file.name.endswith("00001")]
    whole = path.read_bytes()
    extents = [extent for file in savepoint.open_files(savepoint.operator(UID)) for extent in file.extents.values()]
    of_file = [extent for extent in extents if extent.key_group in ranges(7, 3)[1]]
    for extent in of_file:
        for at in range(extent.start, extent.end):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            with pytest.raises(DamagedError) as caught:
                found(savepoint)
            assert (caught.value.file, caught.value.key_group) == (str(path), extent.key_group)


def test_a_wrong_value_in_a_stored_key_group_is_told_by_its_place_in_the_content(tmp_path: Path) -> None:
    """The chunk's checksum is right: the value was wrong before the chunk was written."""
    savepoint = write(tmp_path / "s", 3, 40, compression=Compression.STORED)
    needle = map_row(17, 1, 40)
    (path,) = [file for file in (tmp_path / "s").iterdir() if file.name.endswith("00001")]
    data = bytearray(path.read_bytes())
    at = data.index(needle) + len(needle) - 9
    data[at] = 2  # the flag that says null
    start = data.rindex(STREAM_START, 0, at)
    chunk = start + len(STREAM_START)
    size = int.from_bytes(data[chunk + 1 : chunk + 4], "little") - 4
    framed = cramjam.snappy.compress(bytes(data[chunk + 8 : chunk + 8 + size]))
    data[chunk + 4 : chunk + 8] = bytes(framed)[len(STREAM_START) + 4 :][:4]
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=rf"byte {at - chunk - 8} of the uncompressed key group") as caught:
        found(savepoint)
    assert (caught.value.file, caught.value.key_group, caught.value.offset) == (str(path), 17, start)


def test_damage_behind_the_state_is_found(tmp_path: Path) -> None:
    savepoint = write(tmp_path / "s", 3, 40)
    (path,) = [file for file in (tmp_path / "s").iterdir() if file.name.endswith("00002")]
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")  # the end of the last key group
    with pytest.raises(DamagedError):
        list(read_batches(savepoint, UID, "flag"))


def test_a_state_that_a_file_describes_otherwise_is_refused(tmp_path: Path) -> None:
    savepoint = write(tmp_path / "s", 3, 40)
    operator = savepoint.operator(UID)
    (chunk,) = plan_chunks(operator, savepoint.placed(operator))
    other = replace(savepoint.state(operator, "counts"), ttl=True)
    with pytest.raises(RefusedError, match="state counts is MAP"):
        list(read_chunk(savepoint.folder, chunk, other))


def test_unknown_names_list_those_there_are(tmp_path: Path) -> None:
    savepoint = write(tmp_path / "s", 1, 4)
    with pytest.raises(UsageError, match=r"no keyed state 'nope'. There are: flag, counts"):
        list(read_batches(savepoint, UID, "nope"))
    with pytest.raises(UsageError, match="no operator"):
        list(read_batches(savepoint, "nope", "counts"))
    with pytest.raises(UsageError, match="at least one row"):
        found(savepoint, rows_per_batch=0)


def test_batches_come_in_the_order_of_the_key_groups(tmp_path: Path) -> None:
    groups = [row[0] for row in found(write(tmp_path / "s", 2, 50))]
    assert all(one <= other for one, other in pairwise(groups))
