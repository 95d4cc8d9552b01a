"""Compiled: collections by Kryo 2 become those that Flink 2's own serializers write, and parts of the other way round.

| part | bytes of Flink 2 |
|---|---|
| null | `01` |
| map, list, set | `00`, i32 count; each element, or each key and each value, behind a bool `isNull` |
| POJO | `01` null; `02`, each field behind a bool `isNull`; `04` utf name or `08` u8 number of a subclass, its value |
| enum | i32 number of the constant |
| array of objects | i32 count, each behind a bool `isPresent` |

The way to Flink 2 is here for numbers, texts and dates alone (`to_flink_maps.py` has the others). The way back is in
`other_kryo_kernels.py`, by nodes that are explained here.
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import fail, put32, u16
from flinkstate.kryo.compiling import kernel
from flinkstate.kryo.kernel_codes import (
    AS_LIST,
    BAD_CONTENT,
    BAD_COUNT,
    BAD_MARK,
    DOUBLE,
    EMPTY_LIST,
    EMPTY_MAP,
    END,
    KNOWN_PART,
    LIST,
    MAP,
    NAMES,
    NO_NULL_KEY,
    NO_NULL_VALUE,
    NO_OBJECTS,
    NO_ROOM,
    NOT_DECLARED,
    NULL,
    OBJECTS,
    OF_CLASS,
    POSITION,
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
from flinkstate.kryo.kryo_2_leaves import content_for_2
from flinkstate.kryo.objects import put_scalar, read_class, read_comparator
from flinkstate.kryo.other_kryo_leaves import SPARE_OBJECTS, enter, read_again
from flinkstate.kryo.primitives import varint
from flinkstate.kryo.scalars import put_object
from flinkstate.serializers.kernels import UNKNOWN_SUBCLASS

# As what a part by Kryo is written.
BY_KRYO = 0
AS_MAP = 1
AS_LIST_OF_FLINK = 2
AS_SET = 3
OF_FLINK_2 = 4  # for Kryo 2

# What Flink 2's own serializers have written is described by nodes: a line for each part of a value. These are its
# columns: what it is, how Kryo 2 writes its class (see below), the class, the flags before it and their value for
# null, the first node in it, a count, and what its form says.
FORM = 0
HOW = 1
ROW = 2
FLAGS = 3
NULL_FLAG = 4
CHILD = 5
COUNT = 6  # of a POJO its fields, of an enum its constants
PARAM = 7  # of an enum where its numbers in Kryo are in `orders`, of a part by Kryo its line of class ids
CONTEXT = 8  # of a part by Kryo the type arguments of its field
SUBCLASSES = 9  # of a POJO the first of the nodes of its subclasses, and how many are registered and named
TAGGED = 10
NAMED = 11
NODE_PARTS = 12

LEAF_FORM = 0
ENUM_FORM = 1
KRYO_FORM = 2
POJO_FORM = 3
MAP_FORM = 4
LIST_FORM = 5
ARRAY_FORM = 6

# Beside TAGGED_PART and KNOWN_PART: neither class tag nor mark.
PRIMITIVE_PART = 0

# The flags of a POJO.
NULL_POJO = 1
POJO_ITSELF = 2
OTHER_SUBCLASS = 4
REGISTERED_SUBCLASS = 8


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
def subclass_of(nodes, line, data, position, limit, names, extents, state, failure):  # type: ignore[no-untyped-def]
    """Returns the node of the subclass whose flag of Flink's stands at `position`; `state` gets the position behind."""
    first, tagged = line[SUBCLASSES], line[TAGGED]
    named = data[position] == OTHER_SUBCLASS
    size = np.int64(2 if named else 1)
    if position + 1 + size > limit:
        return fail(failure, TRUNCATED, position, 1 + size)
    if not named:
        state[POSITION] = position + 2
        number = np.int64(data[position + 1])
        return first + number if number < tagged else fail(failure, BAD_CONTENT, position, number)
    size = u16(data, position + 1)
    begin = position + 3
    if size > limit - begin:
        return fail(failure, TRUNCATED, position, size)
    state[POSITION] = begin + size
    for node in range(first + tagged, first + tagged + line[NAMED]):
        at_name = extents[nodes[node, ROW], 0]
        equal = extents[nodes[node, ROW], 1] == size
        for index in range(size if equal else 0):
            equal = equal and data[begin + index] == names[at_name + index]
        if equal:
            return np.int64(node)
    return fail(failure, -UNKNOWN_SUBCLASS, position + 1, size)


@kernel
def leaf_for_2(line, kind, param, data, position, end, out, at, room, failure):  # type: ignore[no-untyped-def]
    """Writes a number, a text or a date that stands in Flink's form from `position` to `end`, behind its class tag.

    A part of an object without class tag begins with its mark, unless it is a primitive.
    """
    how = line[HOW]
    if kind > STRING:
        return content_for_2(kind, param, data, position, end, out, at, room, failure)
    # Of a String the tag has a mark behind it.
    behind_tag = how == PRIMITIVE_PART or (how == KNOWN_PART and kind == STRING)
    place = at - 1 if behind_tag else at
    before = out[place]
    written = put_object(kind, data, position, end, np.bool_(False), out, place)
    if written < 0:
        return fail(failure, BAD_CONTENT, position, kind)
    if behind_tag:
        out[place] = before
    elif how == KNOWN_PART:
        out[place] = 1
    return written
