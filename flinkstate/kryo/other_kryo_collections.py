"""Compiled: collections by Kryo 2 become those that Flink 2's own serializers write, and the other way round.

| part | bytes of Flink 2 |
|---|---|
| null | `01` |
| map, list, set | `00`, i32 count; each element, or each key and each value, behind a bool `isNull` |
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import fail, i32, put32, put_varint
from flinkstate.kryo.compiling import kernel
from flinkstate.kryo.copying import put_class
from flinkstate.kryo.kernel_codes import (
    AS_LIST,
    BAD_CONTENT,
    BAD_COUNT,
    BAD_MARK,
    DOUBLE,
    EMPTY_LIST,
    EMPTY_MAP,
    END,
    FOREIGN,
    LIST,
    MAP,
    NAMES,
    NEW_NAMES,
    NO_NULL_KEY,
    NO_NULL_VALUE,
    NO_OBJECTS,
    NO_ROOM,
    NOT_DECLARED,
    NOT_WRITTEN,
    NULL,
    OBJECTS,
    OF_CLASS,
    POSITION,
    SERIAL,
    SET,
    SINGLETON_LIST,
    SINGLETON_MAP,
    SORTED_MAP,
    SORTED_SET,
    SPARE,
    STRING,
    TRUNCATED,
    TUPLE,
)
from flinkstate.kryo.kryo_2_leaves import ROW_LIST, ROW_MAP, ROW_SET, content_for_2, end_of_form
from flinkstate.kryo.objects import put_scalar, read_class, read_comparator
from flinkstate.kryo.other_kryo_leaves import SPARE_OBJECTS, enter, read_again
from flinkstate.kryo.primitives import varint
from flinkstate.kryo.scalars import put_object

# As what a part by Kryo is written.
BY_KRYO = 0
AS_MAP = 1
AS_LIST_OF_FLINK = 2
AS_SET = 3


@kernel
def _is_declared(kind, form):  # type: ignore[no-untyped-def]
    if form == AS_MAP:
        return EMPTY_MAP <= kind < TUPLE
    if form == AS_LIST_OF_FLINK:
        return kind in (LIST, AS_LIST, EMPTY_LIST, SINGLETON_LIST)
    return kind in (SET, SORTED_SET, EMPTY_LIST, SINGLETON_LIST)


@kernel
def collection_for_5(  # type: ignore[no-untyped-def]
    data, position, limit, form, tables, objects, out, begin, state, failure
):
    """Writes the collection of Kryo 2 at `position` as Flink 2's own serializer of it does.

    Returns as `_walk_value`.

    bool `isNull`; i32 count; each element, or each key and each value, behind a bool `isNull`. `form` says whether it
    is a map, a list or a set, and the classes of what is in it, which have no parts of their own.
    """
    table, params, rows, names, known = tables[:5]
    kinds = table[0]
    room = len(out) - SPARE
    state[OBJECTS] = 0
    state[NAMES] = 0
    at = begin
    if at + SPARE > room:
        return fail(failure, NO_ROOM, position, SPARE)
    start = position
    row = read_class(data, position, limit, np.bool_(False), table, names, known, np.bool_(False), state, failure)
    if row < 0:
        return row
    position = state[POSITION]
    if row == NULL:
        out[at] = 1
        return at + 1
    kind = np.int64(kinds[0, row])
    if not _is_declared(kind, form[0]):
        return fail(failure, NOT_DECLARED, start, row)
    mark, position = varint(data, position, limit, failure)
    if position < 0:
        return position
    if mark != 1:
        return fail(failure, BAD_MARK, start, mark)
    objects[0, OF_CLASS] = row
    objects[0, END] = -1
    state[OBJECTS] = 1
    count = np.int64(1 if kind in (SINGLETON_LIST, SINGLETON_MAP) else 0)
    if kind in (SORTED_SET, SORTED_MAP):
        position = read_comparator(
            data, position, limit, np.bool_(False), table, names, known, np.int64(0), objects, state, failure
        )
        if position < 0:
            return position
    if kind in (LIST, AS_LIST, SET, SORTED_SET, MAP, SORTED_MAP):
        count, position = varint(data, position, limit, failure)
        if position < 0:
            return position
    if count > limit - position:
        return fail(failure, BAD_COUNT, start, count)
    if kind == AS_LIST:
        listed = read_class(data, position, limit, np.bool_(False), table, names, known, np.bool_(True), state, failure)
        if listed < 0:
            return listed
        position = state[POSITION]
    out[at] = 0
    put32(out, at + 1, count)
    at += 5
    never = params[row] if form[0] == AS_MAP else np.int64(0)
    each = 2 if form[0] == AS_MAP else 1
    for number in range(each * count):
        if at + SPARE > room:
            return fail(failure, NO_ROOM, position, SPARE)
        if state[OBJECTS] + SPARE_OBJECTS > len(objects):
            return fail(failure, NO_OBJECTS, position, 0)
        start = position
        part = number % each
        found = read_class(data, position, limit, np.bool_(False), table, names, known, np.bool_(False), state, failure)
        if found < 0:
            return found
        position = state[POSITION]
        out[at] = 1 if found == NULL else 0
        at += 1
        if found == NULL:
            if never & (NO_NULL_KEY if part == 0 else NO_NULL_VALUE):
                return fail(failure, BAD_CONTENT, start, 0)
            continue
        if found != form[1 + part]:
            return fail(failure, NOT_DECLARED, start, found)
        content, behind = position, np.int64(0)
        if kinds[0, found] > DOUBLE:
            content, behind = enter(found, data, position, limit, objects, state, failure)
            if content < 0:
                return content
        before = state[OBJECTS]
        if behind > 0:
            read_again(objects, state)
        at = put_scalar(
            kinds[0, found], params[found], rows, data, content, limit, np.bool_(False), np.int64(0), out, at, room,
            objects, state, failure,
        )  # fmt: skip
        if at < 0:
            return at
        position = state[POSITION]
        if behind > 0:
            state[OBJECTS] = before
            position = behind
    state[POSITION] = position
    return at


@kernel
def collection_for_2(data, position, limit, form, tables, out, begin, state, failure):  # type: ignore[no-untyped-def]
    """Writes the collection of Flink 2 at `position` as Kryo 2 writes a HashMap, an ArrayList or a HashSet.

    These are what Flink 2 makes of it. Each object is a new one: Flink 2 reads none twice. Returns as `_walk_value`.
    """
    table, params, rows, names, _, _, _, _, _, ids, said, _ = tables
    kinds = table[0]
    room = len(out) - SPARE
    state[SERIAL] += 1
    state[NEW_NAMES] = 0
    at = begin
    start = position
    if at + SPARE > room:
        return fail(failure, NO_ROOM, position, SPARE)
    if position >= limit or (data[position] == 0 and limit - position < 5):
        return fail(failure, TRUNCATED, position, 5)
    if data[position] != 0:
        out[at] = 0
        state[POSITION] = position + 1
        return at + 1 if data[position] == 1 else fail(failure, BAD_CONTENT, start, 0)
    count = i32(data, position + 1)
    position += 5
    if not 0 <= count <= limit - position:
        return fail(failure, BAD_COUNT, start, count)
    row = rows[ROW_MAP if form[0] == AS_MAP else ROW_LIST if form[0] == AS_LIST_OF_FLINK else ROW_SET]
    if kinds[0, row] == FOREIGN:
        return fail(failure, NOT_WRITTEN, start, row)
    at = put_class(row, ids, said, names, table[3], np.bool_(False), out, at, room, state, failure)
    if at < 0:
        return at
    out[at] = 1
    at = put_varint(out, at + 1, count)
    each = 2 if form[0] == AS_MAP else 1
    for number in range(each * count):
        if at + SPARE > room:
            return fail(failure, NO_ROOM, position, SPARE)
        if position >= limit or data[position] > 1:
            return fail(failure, BAD_CONTENT, position, 0)
        position += 1
        if data[position - 1] == 1:
            out[at] = 0
            at += 1
            continue
        found = form[1 + number % each]
        kind = kinds[0, found]
        if kind == FOREIGN:
            return fail(failure, NOT_WRITTEN, position, found)
        end = end_of_form(kind, params[found], data, position, limit)
        if end < 0:
            return fail(failure, TRUNCATED, position, 1)
        if at + 2 * (end - position) + SPARE > room:
            return fail(failure, NO_ROOM, position, 2 * (end - position))
        if kind <= STRING:
            at = put_object(kind, data, position, end, np.bool_(False), out, at)
            if at < 0:
                return fail(failure, BAD_CONTENT, position, kind)
        else:
            at = put_class(found, ids, said, names, table[3], np.bool_(False), out, at, room, state, failure)
            if at >= 0:
                out[at] = 1
                at = content_for_2(kind, params[found], data, position, end, out, at + 1, room, failure)
            if at < 0:
                return at
        position = end
    state[POSITION] = position
    return at
