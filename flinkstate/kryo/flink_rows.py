"""Compiled: a Row of Flink as Kryo writes it becomes one as Flink's own serializer does.

| part of a Row by Kryo | bytes |
|---|---|
| fieldByName | `00`: the Row has no names of fields |
| fieldByPosition | an array of objects: class tag, mark, varint n + 1, each field with class tag, mark, object |
| kind | mark, number of the constant + 1; Kryo 2 refers to a constant that was there before |
| positionByName | `00` |

Flink writes a mask of 2 + n bits: the kind, the lower bit first, then for each field whether it is null. Behind the
mask are the fields that are not null.
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import fail
from flinkstate.kryo.compiling import kernel
from flinkstate.kryo.kernel_codes import (
    BAD_CONTENT,
    BAD_COUNT,
    BAD_MARK,
    BAD_REFERENCE,
    BEGIN,
    END,
    FIELDS,
    FIELDS_OF_TUPLES,
    NAMED_FIELDS,
    NO_OBJECTS,
    OBJECTS,
    OF_CLASS,
    OF_CONTEXT,
    OF_NODE,
    OF_VALUE,
    OTHER_ROW,
    POSITION,
    SOURCE,
    TRUNCATED,
)
from flinkstate.kryo.objects import read_class
from flinkstate.kryo.primitives import varint

_KINDS = 4


@kernel
def _enter(row, position, objects, state):  # type: ignore[no-untyped-def]
    """Gives an object a number. It is in no form of Flink's own, so where it is meant again it is read again."""
    number = state[OBJECTS]
    objects[number, OF_CLASS] = row
    objects[number, OF_NODE] = -1
    objects[number, BEGIN] = 0
    objects[number, END] = 0
    objects[number, SOURCE] = position
    objects[number, OF_VALUE] = 0
    objects[number, OF_CONTEXT] = 0
    state[OBJECTS] += 1


@kernel
def begin_row(  # type: ignore[no-untyped-def]
    array_row, data, position, limit, five, table, names, known, children, node, objects, state, failure
):
    """Reads what is before the fields of a Row. Returns their number; `state` gets the position behind it."""
    start = position
    if position >= limit:
        return fail(failure, TRUNCATED, position, 1)
    if data[position] != 0:
        return fail(failure, NAMED_FIELDS, position, 0)
    row = read_class(data, position + 1, limit, five, table, names, known, np.bool_(False), state, failure)
    if row < 0:
        return row
    if row != array_row:
        return fail(failure, BAD_CONTENT, start, row)
    mark, position = varint(data, state[POSITION], limit, failure)
    if position < 0:
        return position
    if mark != 1:
        return fail(failure, BAD_MARK, start, mark)
    _enter(row, position, objects, state)
    count, position = varint(data, position, limit, failure)
    if position < 0:
        return position
    count -= 1
    if count < 0 or count > limit - position:
        return fail(failure, BAD_COUNT, start, count)
    fields = np.int64(0)
    while fields < FIELDS_OF_TUPLES and children[node, FIELDS + fields] >= 0:
        fields += 1
    if count != fields:
        return fail(failure, OTHER_ROW, start, node << 32 | count)
    state[POSITION] = position
    return count


@kernel
def end_row(kind_row, data, position, limit, five, out, mask, objects, state, failure):  # type: ignore[no-untyped-def]
    """Reads what is behind the fields of a Row, and writes its kind. Returns the position behind it."""
    start = position
    if state[OBJECTS] + 4 > len(objects):
        return fail(failure, NO_OBJECTS, position, 0)
    mark, position = varint(data, position, limit, failure)
    if position < 0:
        return position
    content = position
    if mark == 0 or (five and mark != 1):
        return fail(failure, BAD_MARK, start, mark)
    if mark > 1:
        if mark - 2 >= state[OBJECTS] or objects[mark - 2, OF_CLASS] != kind_row:
            return fail(failure, BAD_REFERENCE, start, mark - 2)
        content = objects[mark - 2, SOURCE]
    elif not five:
        _enter(kind_row, position, objects, state)
    number, end = varint(data, content, limit, failure)
    if end < 0:
        return end
    if number == 0 or number > _KINDS:
        return fail(failure, BAD_CONTENT, start, number)
    if mark == 1:
        position = end
    out[mask] |= np.uint8((number - 1 & 1) << 7 | (number - 1 & 2) << 5)
    if position >= limit:
        return fail(failure, TRUNCATED, position, 1)
    if data[position] != 0:
        return fail(failure, NAMED_FIELDS, position, 0)
    return position + 1
