"""The compiled walk over the entries of maps by Flink's MapSerializer whose keys or values have parts by Kryo.

Of each map it has read the count; an entry is the key, bool `isNull`, and the value unless null. The program of
`flinkstate/serializers/kernels.py` for the key or the value stops at what is by Kryo, and goes on where that ends.
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.compiling import inlined
from flinkstate.kryo.compiling import kernel
from flinkstate.kryo.kernel_codes import LEFTOVER, LOOKING, NO_OBJECTS, NO_ROOM
from flinkstate.kryo.kernels import _read_map
from flinkstate.serializers.kernels import OPAQUE_VALUE, walk

# Where a part ends of which this isn't known.
UNREADABLE = -1
_NO_ROOM = -2


@inlined
def _reading_of(readings, number):  # type: ignore[no-untyped-def]
    """The tables of one serializer, as `_read_map` takes them: what they are, the names, and the parts of copies."""
    table, params, names, new_ids, said, copied_kinds, spans, parts, differs, contexts = readings
    kinds, by_id, slots, extents = table
    return (
        (kinds[number], by_id[number], slots[number], extents[number]), params[number], names[number],
        new_ids[number], said[number], copied_kinds[number], spans[number], parts[number], differs[number],
        contexts[number],
    )  # fmt: skip


@kernel
def _end_of_value(data, position, limit, five, number, readings, work, out, marks, failure):  # type: ignore[no-untyped-def]
    """Returns where a value by Kryo ends, behind which there may be more; `number` is that of its serializer."""
    table, params, names, new_ids, said, copied_kinds, spans, parts, differs, contexts = _reading_of(readings, number)
    rows, known, children, kinships, nulls, cells, copies, with_map, scratch, touched, stack, objects, state = work
    copying = (copies, new_ids, said, copied_kinds, spans, parts, differs, contexts, with_map)
    result = _read_map(
        data, position, limit, five, table, params, rows, names, known, np.int64(LOOKING), children, kinships, nulls,
        cells, copying, scratch, touched, stack, objects, out, np.int64(0), marks, np.int64(-1), state, failure,
    )  # fmt: skip
    if result == 0:
        return limit
    if failure[0] == LEFTOVER:
        return failure[1]
    if failure[0] == NO_ROOM or failure[0] == NO_OBJECTS:
        return np.int64(_NO_ROOM)
    return np.int64(UNREADABLE)


@kernel
def _end_of_part(data, place, limits, five, begin, program, readings, work, out, marks, failure):  # type: ignore[no-untyped-def]
    """Returns where a key or a value ends, whose program begins at `begin`; `place` and `limits` have one number."""
    code, pool, registers, end, serializers = program
    pc = begin
    while True:
        walked = walk(code, pool, registers, data, place, limits, end, end[1:1], end[1:], failure, pc)
        if walked == 1:
            return end[0]
        if failure[0] != OPAQUE_VALUE:
            return np.int64(UNREADABLE)
        pc = failure[2]
        position = failure[1]
        behind = _end_of_value(data, position, limits[0], five, serializers[pc], readings, work, out, marks, failure)
        if behind < 0:
            return behind
        place[0] = behind
        pc += 1


@kernel
def find_ends_of_parts(  # type: ignore[no-untyped-def]
    data, starts, limits, first, five, begin, program, readings, work, out, marks, place, ends, failure
):
    """Finds where values end that one Kryo would have written, from number `first` on; see `walk_parts`.

    Behind each there may be more; it ends at -1 if it can't be read. Returns how many are done: all, unless there was
    no room for one.
    """
    for index in range(first, len(starts)):
        place[0] = starts[index]
        ends[index] = _end_of_part(
            data, place, limits[index : index + 1], five, begin, program, readings, work, out, marks, failure
        )
        if ends[index] == _NO_ROOM:
            return np.int64(index)
    return np.int64(len(starts))


@kernel
def walk_parts(  # type: ignore[no-untyped-def]
    data, starts, limits, counts, five, of_key, of_value, program, readings, work, begins, key_ends, ends, stops, out,
    marks, progress, failure,
):  # fmt: skip
    """Finds where entries begin, where their keys end and where they end, as one Kryo would have written them.

    `stops` gets where each map ends, or -1 if an entry can't be read; behind what can't be read all is at -1.
    `program` has at `of_key` and `of_value` what walks over a key and a value: its code and texts, its registers, room
    for two numbers, and for each instruction at which it stops the number of the serializer in `readings`. `work` is
    what all readings work with. `progress` has the numbers of the map, of the entry in it and of the entry among all,
    from which this goes on. Returns whether it is done; if not, there was no room for a part.
    """
    index, number, entry = progress[0], progress[1], progress[2]
    place = progress[3:4]
    while index < len(starts):
        at = starts[index] + 4 if number == 0 else ends[entry - 1]
        limit = limits[index]
        own_limit = limits[index : index + 1]
        while number < counts[index] and at >= 0:
            begins[entry] = at
            place[0] = at
            at = _end_of_part(data, place, own_limit, five, of_key, program, readings, work, out, marks, failure)
            key_end = at
            if at >= 0:
                if at >= limit or data[at] > 1:
                    at = np.int64(UNREADABLE)
                elif data[at] == 1:
                    at += 1
                else:
                    place[0] = at + 1
                    at = _end_of_part(
                        data, place, own_limit, five, of_value, program, readings, work, out, marks, failure
                    )
            if at == _NO_ROOM:
                progress[0], progress[1], progress[2] = index, number, entry
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
