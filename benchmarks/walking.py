"""Measures the walk over blobs that finds map entries, on which everything else depends."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.measuring import Rate, Scale, Subject, Timing, expect, timed
from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.serializers.types import FlinkType, MapType, RowType, Scalar, TupleType
from flinkstate.serializers.walker import walk_entries
from flinkstate.values.codecs import encode
from flinkstate.values.java_values import RowValue
from tests.support import naive

ENTRIES_PER_BLOB = 100
GOAL = 20e6
_DISTINCT_BLOBS = 250
# As many bytes as a section of a state file.
_AT_ONCE = 4 << 20

_PAIR = TupleType((Scalar.LONG, Scalar.STRING), "org.apache.flink.api.java.tuple.Tuple2")
_ROW = RowType((Scalar.LONG, Scalar.STRING, Scalar.DOUBLE), True)
TYPES = (
    ("Map<String,Long>", MapType(Scalar.STRING, Scalar.LONG)),
    ("Map<Long,Long>", MapType(Scalar.LONG, Scalar.LONG)),
    ("Map<String,Tuple2<Long,String>>", MapType(Scalar.STRING, _PAIR)),
    ("Map<String,Row<Long,String,Double>>", MapType(Scalar.STRING, _ROW)),
)


def blobs_of(type_: MapType, count: int) -> list[bytes]:
    """Maps of 100 entries with keys and texts of 6 to 10 characters; one value in 50 is null."""
    random = np.random.default_rng(1)
    distinct = []
    for _ in range(min(count, _DISTINCT_BLOBS)):
        numbers = random.integers(0, 10**9, (2, ENTRIES_PER_BLOB)).tolist()
        sizes = random.integers(6, 11, ENTRIES_PER_BLOB).tolist()
        entries = [
            (_part(type_.key, key, size), _part(type_.value, value, size) if value % 50 else None)
            for key, value, size in zip(*numbers, sizes, strict=True)
        ]
        distinct.append(encode(type_, entries))
    return [distinct[number % len(distinct)] for number in range(count)]


def _part(type_: FlinkType, number: int, size: int) -> object:
    text = f"{number:010d}"[-size:]
    match type_:
        case Scalar.STRING:
            return text
        case TupleType():
            return number, text
        case RowType():
            return RowValue((number, text if number % 3 else None, number / 8))
        case _:
            return number


def walk(type_: MapType, sections: list[tuple[Bytes, Positions, Positions]]) -> int:
    """Walks the sections and returns the number of entries."""
    return sum(len(walk_entries(type_, *section).starts) for section in sections)


def sections_of(blobs: list[bytes]) -> list[tuple[Bytes, Positions, Positions]]:
    """Sections of consecutive blobs: their bytes, starts and ends."""
    at_once = max(_AT_ONCE // len(blobs[0]), 1)
    sections = []
    for first in range(0, len(blobs), at_once):
        some = blobs[first : first + at_once]
        ends = np.cumsum([len(blob) for blob in some], dtype=np.int64)
        sections.append((np.frombuffer(b"".join(some), np.uint8).copy(), np.append(0, ends[:-1]), ends))
    return sections


def plain_walk(type_: MapType, blobs: list[bytes]) -> int:
    """Walks the blobs in plain Python and returns the number of entries."""
    return sum(len(naive.map_entries(type_, blob)) for blob in blobs)


def measure(scale: Scale) -> Iterator[Rate]:
    """One rate for each type of map."""
    for name, type_ in TYPES:
        blobs = blobs_of(type_, max(scale.entries // ENTRIES_PER_BLOB, 1))
        few = blobs[: max(scale.twin_entries // ENTRIES_PER_BLOB, 1)]
        _check(type_, few)
        what = f"{name}, {ENTRIES_PER_BLOB} entries each"
        yield Rate(what, "entries", _fast(type_, blobs, scale), GOAL, _plain(type_, few))


def _fast(type_: MapType, blobs: list[bytes], scale: Scale) -> Timing:
    sections = sections_of(blobs)
    return timed(len(blobs) * ENTRIES_PER_BLOB, lambda: walk(type_, sections), scale.rounds)


def _plain(type_: MapType, blobs: list[bytes]) -> Timing:
    return timed(len(blobs) * ENTRIES_PER_BLOB, lambda: plain_walk(type_, blobs), 3, first=False)


def _check(type_: MapType, blobs: list[bytes]) -> None:
    """Checks that both walks find the same entries."""
    for data, starts, limits in sections_of(blobs):
        found = walk_entries(type_, data, starts, limits)
        raw = data.tobytes()
        entries = [
            (raw[start:key_end], None if raw[key_end] else raw[key_end + 1 : end])
            for start, key_end, end in zip(
                found.starts.tolist(), found.key_ends.tolist(), found.ends.tolist(), strict=True
            )
        ]
        plain = [
            entry
            for start, limit in zip(starts.tolist(), limits.tolist(), strict=True)
            for entry in naive.map_entries(type_, raw[start:limit])
        ]
        expect(entries == plain, True, "(the same entries as plain Python)")


SUBJECT = Subject("Walking blobs into map entries", measure)
