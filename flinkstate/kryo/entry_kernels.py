"""The compiled walk over the entries of maps by Flink's MapSerializer whose keys or values are by Kryo.

Of each map it has read the count; an entry is the key, bool `isNull`, and the value unless null. A part (the key or the
value) is a program of `flinkstate/serializers/kernels.py`, or by Kryo, then perhaps behind a bool `isNull` of its own.
"""

from __future__ import annotations

import numpy as np

from flinkstate.kryo.compiling import kernel
from flinkstate.kryo.kernel_codes import LEFTOVER, LOOKING, NO_OBJECTS, NO_ROOM
from flinkstate.kryo.kernels import _read_map
from flinkstate.serializers.kernels import walk

# How a part is stored.
PLAIN = 0
KRYO = 1
NULLABLE_KRYO = 2

# Where a part ends of which this isn't known.
UNREADABLE = -1
_NO_ROOM = -2


@kernel
def _end_of_value(data, position, limit, five, part, out, marks, failure):  # type: ignore[no-untyped-def]
    """Returns where a value by Kryo ends, behind which there may be more."""
    reading = part[5]
    table, params, rows, names, known, children, kinships, nulls, cells, copying, scratch, touched, stack = reading[:13]
    result = _read_map(
        data, position, limit, five, table, params, rows, names, known, np.int64(LOOKING), children, kinships, nulls,
        cells, copying, scratch, touched, stack, reading[13], out, np.int64(0), marks, np.int64(-1), reading[14],
        failure,
    )  # fmt: skip
    if result == 0:
        return limit
    if failure[0] == LEFTOVER:
        return failure[1]
    if failure[0] == NO_ROOM or failure[0] == NO_OBJECTS:
        return np.int64(_NO_ROOM)
    return np.int64(UNREADABLE)


@kernel
def _end_of_part(data, place, limits, five, part, out, marks, failure):  # type: ignore[no-untyped-def]
    """Returns where a part ends; `place` and `limits` have one number each."""
    how, padding, code, pool, registers = part[:5]
    if how == PLAIN:
        end = part[6]
        begin = np.int64(0)
        walked = walk(code, pool, registers, data, place, limits, end, end[1:1], end[1:], failure, begin)
        return end[0] if walked == 1 else np.int64(UNREADABLE)
    position, limit = place[0], limits[0]
    if how == NULLABLE_KRYO:
        if position >= limit or data[position] > 1:
            return np.int64(UNREADABLE)
        position += 1
        if data[position - 1] == 1:
            return position + padding
    return _end_of_value(data, position, limit, five, part, out, marks, failure)


@kernel
def walk_parts(  # type: ignore[no-untyped-def]
    data, starts, limits, counts, five, key, value, begins, key_ends, ends, stops, out, marks, progress, failure,
):  # fmt: skip
    """Finds where entries begin, where their keys end and where they end, as one Kryo would have written them.

    `stops` gets where each map ends, or -1 if an entry can't be read; behind what can't be read all is at -1.
    `key` and `value` have how they are stored, the padding of a null, their program, what `_read_map` needs, and room
    for two numbers. `progress` has the numbers of the map, of the entry in it and of the entry among all, from which
    this goes on. Returns whether it is done; if not, `progress` also says for which part there was no room.
    """
    index, number, entry = progress[0], progress[1], progress[2]
    place = progress[3:4]
    while index < len(starts):
        at = starts[index] + 4 if number == 0 else ends[entry - 1]
        limit = limits[index]
        while number < counts[index] and at >= 0:
            begins[entry] = at
            place[0] = at
            key_end = at
            for part in range(2):
                if part == 0:
                    at = _end_of_part(data, place, limits[index : index + 1], five, key, out, marks, failure)
                    key_end = at
                elif at >= 0:
                    if at >= limit or data[at] > 1:
                        at = np.int64(UNREADABLE)
                    elif data[at] == 1:
                        at += 1
                    else:
                        place[0] = at + 1
                        at = _end_of_part(data, place, limits[index : index + 1], five, value, out, marks, failure)
                if at == _NO_ROOM:
                    progress[0], progress[1], progress[2], progress[4] = index, number, entry, part
                    return np.bool_(False)
            key_ends[entry] = key_end
            ends[entry] = at
            number += 1
            entry += 1
        stops[index] = at
        while number < counts[index]:
            begins[entry] = UNREADABLE
            key_ends[entry] = UNREADABLE
            ends[entry] = UNREADABLE
            number += 1
            entry += 1
        number = np.int64(0)
        index += 1
    return np.bool_(True)
