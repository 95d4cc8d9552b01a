"""Finds the entries of maps by Flink's MapSerializer whose keys or values are by Kryo, or have parts that are.

| part | bytes |
|---|---|
| map | i32 count, then the entries |
| entry | key, bool `isNull`, value unless null |
| key | behind a bool `isNull` of its own if it may be null |

What is by Kryo doesn't say where it ends, and Kryo 2 and 5 may find other ends. All of a map is by the Kryo of the
Flink that wrote it: the right one is that by which the last entry ends where the map does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from flinkstate.errors import DamagedError
from flinkstate.kryo import entry_kernels
from flinkstate.kryo.reading import MapReading, kryo_reading
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.kryo.stacked_tables import stacked
from flinkstate.kryo.to_other_kryo import ends_of_values, kryo_of
from flinkstate.serializers.programs import compile_each, compile_type
from flinkstate.serializers.types import FlinkType, MapType, OpaqueType
from flinkstate.serializers.walker import (
    Bytes,
    Flags,
    MapEntries,
    Positions,
    read_counts,
    skip_each,
    skip_possible,
)

# The flag that says whether the value is null; a key by Kryo has at least one byte more.
_LEAST_ENTRY = 1
_LEAST_ROOM = 1 << 12


def behind_flags(what: str, data: Bytes, at: Positions, limits: Positions, *, strict: bool) -> tuple[Positions, Flags]:
    """Reads bools `isNull`. Returns what is behind them, and which say that there is a value.

    Where there is no bool, it is -1 that is behind it, or `strict` raises why.
    """
    there = (at >= 0) & (at < limits)
    flags = np.full(len(at), 2, np.uint8)
    flags[there] = data[at[there]]
    wrong = flags > 1
    for place in np.flatnonzero(wrong)[: int(strict)]:
        found = f"{flags[place]}" if there[place] else "its end"
        raise DamagedError(f"a flag 0 or 1 {what}", found, offset=int(at[place]))
    return np.where(wrong, entry_kernels.UNREADABLE, at + 1), flags == 0


def ends_of_parts(
    type_: FlinkType, data: Bytes, starts: Positions, limits: Positions, *, five: bool, strict: bool
) -> Positions:
    """Returns where parts end, behind which there may be more; -1 if there is none, or `strict` raises why.

    `five` says which Kryo has written what is by Kryo. `strict` is for a single part.
    """
    program = compile_type(type_)
    if not program.opaque:
        return (skip_each if strict else skip_possible)(type_, data, starts, limits)
    if not strict:
        return _possible_ends(_parts_of((type_,)), data, starts, limits, five=five)

    def ends_of_kryo(part: OpaqueType, starts: Positions, limits: Positions) -> Positions:
        return kryo_reading(kryo_of(part)).find_ends(data, starts, limits, five=five, strict=True)

    return ends_of_values(program, data, starts, limits, ends_of_kryo, strict=True)


@dataclass(frozen=True, slots=True)
class _Walk:
    """Where the entries are by one Kryo, as in `MapEntries`; behind one that can't be read they are all at -1."""

    starts: Positions
    key_ends: Positions
    ends: Positions
    stops: Positions

    def entries(self) -> tuple[Positions, ...]:
        return self.starts, self.key_ends, self.ends


def walk_kryo_entries(type_: MapType, data: Bytes, starts: Positions, limits: Positions) -> MapEntries:
    """Finds the entries of maps that take up all bytes from each start to each limit."""
    counts = read_counts(data, starts, limits, _LEAST_ENTRY)
    two, five = (_walked(type_, counts, data, starts, limits, five=five) for five in (False, True))
    by_2, by_5 = two.stops == limits, five.stops == limits
    for neither in np.flatnonzero(~by_2 & ~by_5)[:1]:
        first, of_map = int(counts[:neither].sum()), limits[neither : neither + 1]
        entries = slice(first, first + int(counts[neither]))
        raise max(
            (
                _why_not(type_, walk, data, entries, int(walk.stops[neither]), of_map, walk is five)
                for walk in (two, five)
            ),
            key=lambda error: error.offset or 0,
        )
    maps = np.repeat(np.arange(len(starts)), counts)
    other = np.zeros(len(maps), np.bool_)
    for one, another in zip(two.entries(), five.entries(), strict=True):
        other |= one != another
    differing = np.bincount(maps[other], minlength=len(starts)) > 0
    for either in np.flatnonzero(by_2 & by_5 & differing)[:1]:
        why = "Kryo 2 and Kryo 5 could both have written the entries of this map, and mean different ones"
        raise RefusedValueError(why, int(starts[either]))
    of_2 = by_2[maps]
    keys, key_ends, ends = (np.where(of_2, *both) for both in zip(two.entries(), five.entries(), strict=True))
    return MapEntries(counts, keys, key_ends, ends, limits)


def _why_not(
    type_: MapType, walk: _Walk, data: Bytes, entries: slice, stop: int, limits: Positions, five: bool
) -> DamagedError | RefusedValueError:
    """Why this Kryo didn't write a map that has these entries: what is wrong with the first that can't be read."""
    if stop >= 0:
        return DamagedError("the end of the map", f"{limits[0] - stop} more bytes", offset=stop)
    place = walk.starts[entries][walk.starts[entries] >= 0][-1:]
    try:
        behind = ends_of_parts(type_.key, data, place, limits, five=five, strict=True)
        behind, present = behind_flags("before a value of a map", data, behind, limits, strict=True)
        ends_of_parts(type_.value, data, behind[present], limits[present], five=five, strict=True)
    except (DamagedError, RefusedValueError) as error:
        return error
    raise AssertionError("the entry can be read")


@dataclass(slots=True, eq=False)
class _Parts:
    """What the kernels take for values of some types; what all readings work with is that of `reading`."""

    begins: tuple[int, ...]
    program: tuple[Any, ...]
    readings: tuple[Any, ...]
    reading: MapReading

    @classmethod
    def of(cls, types: tuple[FlinkType, ...]) -> _Parts:
        program, begins = compile_each(types)
        kryos = tuple(dict.fromkeys(kryo_of(part) for _, part in program.opaque))
        of_kryos = [kryo_reading(kryo) for kryo in kryos]
        serializers = np.zeros(len(program.code), np.int64)
        for place, part in program.opaque:
            serializers[place] = kryos.index(kryo_of(part))
        registers = np.zeros(program.registers, np.int64)
        of_program = program.code, program.pool, registers, np.empty(2, np.int64), serializers
        return cls(begins, of_program, stacked([one.looking for one in of_kryos]), of_kryos[0])


@lru_cache(maxsize=64)
def _parts_of(types: tuple[FlinkType, ...]) -> _Parts:
    return _Parts.of(types)


def _possible_ends(parts: _Parts, data: Bytes, starts: Positions, limits: Positions, *, five: bool) -> Positions:
    """Returns where each value ends, or -1 if this Kryo can't have written one."""
    ends, place, failure = np.empty(len(starts), np.int64), np.zeros(1, np.int64), np.zeros(5, np.int64)
    out, marks, done = np.empty(_LEAST_ROOM, np.uint8), np.empty(0, np.int64), 0
    while True:
        done = entry_kernels.find_ends_of_parts(
            data, starts, limits, done, five, *parts.begins, parts.program, parts.readings, parts.reading.work, out,
            marks, place, ends, failure,
        )  # fmt: skip
        if done == len(starts):
            return ends
        out = parts.reading.more_room(data, out, failure)


def _walked(
    type_: MapType, counts: Positions, data: Bytes, starts: Positions, limits: Positions, *, five: bool
) -> _Walk:
    begins, key_ends, ends = (np.empty(int(counts.sum()), np.int64) for _ in range(3))
    stops, progress, failure = np.empty(len(starts), np.int64), np.zeros(4, np.int64), np.zeros(5, np.int64)
    out, marks = np.empty(_LEAST_ROOM, np.uint8), np.empty(0, np.int64)
    parts = _parts_of((type_.key, type_.value))
    while True:
        if entry_kernels.walk_parts(
            data, starts, limits, counts, five, *parts.begins, parts.program, parts.readings, parts.reading.work,
            begins, key_ends, ends, stops, out, marks, progress, failure,
        ):  # fmt: skip
            return _Walk(begins, key_ends, ends, stops)
        out = parts.reading.more_room(data, out, failure)
