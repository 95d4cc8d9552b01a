"""Walks over many values at once by the programs of their types, and makes errors of what the kernels report."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flinkstate.basics.array_types import Bytes as Bytes
from flinkstate.basics.array_types import Flags as Flags
from flinkstate.basics.array_types import Positions as Positions
from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.serializers import kernels
from flinkstate.serializers.programs import (
    WalkProgram,
    compile_blocks,
    compile_elements,
    compile_entries,
    compile_key,
    compile_list_state,
    compile_type,
    least_item_size,
    least_size,
)
from flinkstate.serializers.type_parts import opaque_parts
from flinkstate.serializers.types import AvroArrayType, AvroMapType, CountedType, FlinkType, MapType, SetType, type_name


def _walk(
    program: WalkProgram, data: Bytes, starts: Positions, limits: Positions, marks: int
) -> tuple[Positions, Positions, Positions]:
    """Returns where the values end, the marks, and the number of marks up to the end of each value."""
    ends, mark_ends, failure = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64), new_failure()
    marked = np.empty(marks, np.int64)
    registers = np.zeros(program.registers, np.int64)
    walked = kernels.walk(
        program.code, program.pool, registers, data, starts, limits, ends, marked, mark_ends, failure, 0
    )
    if walked < len(starts):
        raise failed(failure, data, program.type)
    return ends, marked, mark_ends


def alternating(marks: Positions, kinds: int) -> tuple[Positions, ...]:
    """Returns an array for each of several kinds of marks, which take turns.

    Each is a copy: for every mixture of arrays with and without gaps numba would compile a kernel anew.
    """
    return tuple(np.ascontiguousarray(marks[kind::kinds]) for kind in range(kinds))


def skip_each(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> Positions:
    """Returns where each value ends."""
    return _walk(compile_type(type_), data, starts, limits, 0)[0]


def skip_possible(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> Positions:
    """Returns where each value ends, or -1 if there is none of this type."""
    program = compile_type(type_)
    ends, mark_ends, failure = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64), new_failure()
    marks, registers = np.empty(0, np.int64), np.zeros(program.registers, np.int64)
    first = 0
    while first < len(starts):
        rest = slice(first, None)
        first += kernels.walk(
            program.code, program.pool, registers, data, starts[rest], limits[rest], ends[rest], marks,
            mark_ends[rest], failure, 0,
        )  # fmt: skip
        if first < len(starts):
            ends[first] = -1
            first += 1
    return ends


def skip_runs(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> tuple[Positions, Positions]:
    """Returns where values begin and end, without values that have the same bytes as the one before them."""
    program = compile_type(type_)
    firsts, ends, failure = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64), new_failure()
    marks, mark_ends, registers = np.empty(0, np.int64), np.empty(1, np.int64), np.zeros(program.registers, np.int64)
    count = kernels.walk_runs(
        program.code, program.pool, registers, data, starts, limits, firsts, ends, marks, mark_ends, failure
    )
    if count < 0:
        raise failed(failure, data, type_)
    return firsts[:count], ends[:count]


def read_counts(data: Bytes, starts: Positions, limits: Positions, least: int) -> Positions:
    """Reads the i32 count at each start, and checks it against the bytes that follow if each item takes `least`."""
    counts, failure = np.empty(len(starts), np.int64), new_failure()
    if kernels.read_counts(data, starts, limits, least, counts, failure) < len(starts):
        raise failed(failure, data)
    return counts


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of many lists, one after another: list i has the next `counts[i]` of them and stops at `stops[i]`.

    `present` is None if the serializer has no null elements. A null element has no bytes.
    """

    counts: Positions
    starts: Positions
    present: Flags | None
    stops: Positions


def walk_elements(
    type_: CountedType,
    data: Bytes,
    starts: Positions,
    limits: Positions,
) -> Elements:
    """Finds the elements of many lists, sets or arrays."""
    flagged = type_.flag is not None
    least = 1 if flagged else least_size(type_.element)
    counts = read_counts(data, starts, limits, least)
    if least == 0:
        return Elements(counts, np.zeros(int(counts.sum()), np.int64), None, starts + 4)
    stops, marks, _ = _walk(compile_elements(type_), data, starts, limits, int(counts.sum()))
    if not flagged:
        return Elements(counts, marks, None, stops)
    return Elements(counts, marks + 1, data[marks] == (0 if isinstance(type_, SetType) else 1), stops)


@dataclass(frozen=True, slots=True)
class MapEntries:
    """Entries of many maps, one after another: map i has the next `counts[i]` and stops at `stops[i]`.

    The key of entry j is at `starts[j]` to `key_ends[j]`. Its null flag is at `key_ends[j]`; behind it is the
    value, unless it is null, to `ends[j]`.
    """

    counts: Positions
    starts: Positions
    key_ends: Positions
    ends: Positions
    stops: Positions


def walk_entries(type_: MapType, data: Bytes, starts: Positions, limits: Positions) -> MapEntries:
    """Finds the entries of many maps."""
    counts = read_counts(data, starts, limits, least_size(type_.key) + 1)
    total = int(counts.sum())
    stops, marks, _ = _walk(compile_entries(type_), data, starts, limits, 2 * total)
    entries, key_ends = alternating(marks, 2)
    ends = np.empty(total, np.int64)
    ends[:-1] = entries[1:]
    filled = counts > 0
    ends[np.cumsum(counts[filled]) - 1] = stops[filled]
    return MapEntries(counts, entries, key_ends, ends, stops)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Elements of many Avro arrays, or entries of many Avro maps, one after another.

    Array i has the next `counts[i]` of them and stops at `stops[i]`. The value of an entry is at `values`.
    """

    counts: Positions
    starts: Positions
    values: Positions
    stops: Positions


def walk_blocks(type_: AvroArrayType | AvroMapType, data: Bytes, starts: Positions, limits: Positions) -> Blocks:
    """Finds the items of many Avro arrays or maps. Items without bytes are not counted."""
    stops = skip_each(type_, data, starts, limits)
    each = 2 if isinstance(type_, AvroMapType) else 1
    most = each * (int((stops - starts).sum()) // max(least_item_size(type_), 1))
    _, marks, mark_ends = _walk(compile_blocks(type_), data, starts, stops, most)
    marks = marks[: mark_ends[-1] if len(mark_ends) else 0]
    kinds = alternating(marks, each)
    return Blocks(np.diff(mark_ends, prepend=0) // each, kinds[0], kinds[-1], stops)


def walk_list_state(element: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> Elements:
    """Finds the elements of ListState values. They have no count but delimiters, up to the limit of each value."""
    most = int((limits - starts).sum()) // (least_size(element) + 1) + len(starts)
    stops, marks, mark_ends = _walk(compile_list_state(element), data, starts, limits, most)
    return Elements(np.diff(mark_ends, prepend=0), marks[: mark_ends[-1] if len(mark_ends) else 0], None, stops)


@dataclass(frozen=True, slots=True)
class SplitKeys:
    """Where each entry's key ends, its namespace begins and ends, and what follows both begins."""

    key_ends: Positions
    namespace_starts: Positions
    namespace_ends: Positions
    rests: Positions


def split_keys(
    key: FlinkType, namespace: FlinkType, suffixes: bool, data: Bytes, starts: Positions, limits: Positions
) -> SplitKeys:
    """Finds the key and the namespace of each entry."""
    _, marks, _ = _walk(compile_key(key, namespace, suffixes), data, starts, limits, 4 * len(starts))
    return SplitKeys(*alternating(marks, 4))


def new_failure() -> Positions:
    """Returns an array that a kernel fills on failure."""
    return np.zeros(3, np.int64)


def failed(failure: Positions, data: Bytes, type_: FlinkType | None = None) -> StateferryError:
    """Makes an error of what a kernel reported; its offset is a position in `data`."""
    code, position, detail = (int(number) for number in failure)
    what = type_name(type_) if type_ is not None else "a value"
    if code == kernels.OPAQUE_VALUE:
        return RefusedError(f"a value of {what} can't be split: {_opaque_reason(type_)}")
    if code == kernels.UNKNOWN_SUBCLASS:
        name = bytes(data[position + 2 : position + 2 + detail]).decode("utf-8", "replace")
        return RefusedError(f"a value of {what} is of the subclass {name}, which the savepoint doesn't describe")
    expected, found = {
        kernels.TRUNCATED: (f"{detail} bytes of {what}", "its end"),
        kernels.BAD_FLAG: (f"a flag 0 or 1 in {what}", f"{detail}"),
        kernels.BAD_COUNT: (f"a number of elements that fits into the rest of {what}", f"{detail}"),
        kernels.BAD_STRING: ("a character of at most 16 bits", "more"),
        kernels.BAD_LENGTH: ("a length that fits", f"{detail}"),
        kernels.BAD_POJO_FLAG: (f"a POJO flag 1, 2, 4 or 8 in {what}", f"{detail}"),
        kernels.UNKNOWN_TAG: (f"the tag of a registered subclass in {what}", f"{detail}"),
        kernels.BAD_ENUM: (f"an ordinal of an enum constant in {what}", f"{detail}"),
        kernels.WRONG_KEY_GROUP: ("the key group's own number before a key", f"{detail}"),
        kernels.SHORT_KEY: ("a key behind the key group", f"a key length of {detail}"),
        kernels.BAD_SUFFIX: (f"the length {detail} behind a key or namespace", "another"),
        kernels.BAD_DELIMITER: ("the delimiter 44 between list elements", f"{detail}"),
        kernels.BAD_ENUM_ID: (f"the number of an enumeration's constant in {what}", f"{detail}"),
        kernels.BAD_BRANCH: (f"the number of a union's branch in {what}", f"{detail}"),
        kernels.HAS_NO_VALUES: (f"no value, because {what} has the type Nothing, which has no values", "one"),
    }[code]
    return DamagedError(expected, found, offset=position)


def _opaque_reason(type_: FlinkType | None) -> str:
    return (
        "; ".join(dict.fromkeys(f"{part.class_name} is {part.reason}" for part in opaque_parts(type_))) if type_ else ""
    )
