"""The compiled way of a value from the bytes of Kryo 2 to those that Kryo 5 writes of the same objects.

The tables of both are in `kernels.py`. A value is walked twice. The first time nothing is written: it finds out of each
collection whether all its elements have one class, which Kryo 5 says before them. The second time each object is
written: with the class's tag and a mark where Kryo 5 has them, what is in it, and references to objects by the numbers
that they have then. Dates inside of other dates, and enums, have numbers in Kryo 2 alone: they are written once more.
"""

from __future__ import annotations

import numpy as np

from flinkstate.kryo.codes import (
    ANY_ARRAY,
    AS_LIST,
    BAD_CONTENT,
    BAD_COUNT,
    BAD_MARK,
    BAD_REFERENCE,
    BEGIN,
    COMPARATOR,
    COMPARATOR_AT,
    COMPARATOR_OBJECT,
    CYCLE,
    DOUBLE,
    EMPTY_LIST,
    EMPTY_MAP,
    END,
    ENUM,
    ENUM_COMPARATOR,
    ENUM_SET,
    FILLED_LIST,
    FILLED_SET,
    FOREIGN,
    FOREIGN_CLASS,
    KNOWN_PART,
    LEFTOVER,
    LIST,
    MAP,
    NAMES,
    NEW_NAMES,
    NEW_NUMBER,
    NO_NULL_KEY,
    NO_NULL_VALUE,
    NO_OBJECTS,
    NO_ROOM,
    NOT_DECLARED,
    NULL,
    OBJECT_ARRAY,
    OBJECTS,
    OF_CLASS,
    OF_NODE,
    PART_CLASS,
    PART_CONTEXT,
    PART_KIND,
    PARTS,
    POSITION,
    READ_BEYOND,
    SERIAL,
    SET,
    SINGLETON_LIST,
    SINGLETON_MAP,
    SMALL_ARRAY,
    SORTED_MAP,
    SORTED_SET,
    SOURCE,
    SPARE,
    TAGGED_PART,
    TOO_DEEP,
    TUPLE,
    TWO_CONTEXTS,
)
from flinkstate.kryo.compiling import inlined, kernel
from flinkstate.kryo.objects import put_scalar, read_class, read_comparator
from flinkstate.kryo.primitives import copy_bytes, fail, put32, put_varint, varint
from flinkstate.kryo.recode_flat import recode_flat
from flinkstate.kryo.recode_leaves import (
    READ_AT_ONCE,
    SPARE_OBJECTS,
    enter,
    read_again,
    recode_leaf,
    recode_part,
    recode_special,
)
from flinkstate.kryo.whole import pass_constants, put_class
from flinkstate.serializers.kernels import OPAQUE_VALUE, walk

# Columns of a frame of the stack.
_KIND = 0
_LEFT = 1
_OBJECT = 2
_NEXT = 3  # of a map whether the value is next, of parts the number of the next one
_CONTEXT = 4
_NEW_CONTEXT = 5
_CLASS = 6  # which all elements have in Kryo 2, without tags; -1 without one
_NEW_CLASS = 7  # the same in Kryo 5
_NEW_MARKED = 8  # whether Kryo 5 says of each element whether it is null
_OF_CLASS = 9
FRAME_PARTS = 10
DEEPEST = 64

# As what a part by Kryo is written.
BY_KRYO = 0
AS_MAP = 1
AS_LIST_OF_FLINK = 2
AS_SET = 3

# Kinds of frames.
_MAP_FRAME = 0
_LIST_FRAME = 1
_PARTS_FRAME = 2
_TUPLE_FRAME = 3

# The class of all elements of a collection, kept where its object is described: none of them is there, or several.
_NONE_YET = -1
_SEVERAL = -2

_MOST_GROWTH = 64
_FREE_GROWTH = 1 << 20


@inlined
def _is_in_context(kind):  # type: ignore[no-untyped-def]
    """Whether objects of this kind take type arguments of the field in which they are."""
    return kind != PARTS and (LIST <= kind <= FILLED_LIST or MAP <= kind <= SORTED_MAP or kind >= SET)


@inlined
def _is_shared_by_5(kind):  # type: ignore[no-untyped-def]
    """Whether Kryo 5 refers to objects of this kind."""
    return kind > DOUBLE and kind != ENUM


@kernel
def _put_comparator(  # type: ignore[no-untyped-def]
    data, start, table, names, known, ids, said, objects, new_objects, out, at, room, state, failure
):
    """Writes the comparator that was read at `start`. Returns the end in `out`, and the number of objects."""
    mark, number = state[COMPARATOR_AT], state[COMPARATOR_OBJECT]
    behind = state[POSITION]
    row = read_class(data, start, len(data), np.bool_(False), table, names, known, np.bool_(False), state, failure)
    state[POSITION] = behind
    if row == NULL:
        out[at] = 0
        return at + 1, new_objects
    at = put_class(row, ids, said, names, table[3], np.bool_(True), out, at, room, state, failure)
    if at < 0:
        return at, new_objects
    if table[0][1, row] == ENUM_COMPARATOR:
        out[at] = 1
        return at + 1, new_objects
    if number < 0 and mark >= 0:
        number = state[OBJECTS] - 1
    if objects[number, NEW_NUMBER] >= 0:
        return put_varint(out, at, objects[number, NEW_NUMBER] + 2), new_objects
    out[at] = 1
    objects[number, NEW_NUMBER] = new_objects
    return at + 1, new_objects + 1


@kernel
def _walk_value(  # type: ignore[no-untyped-def]
    data, position, limit, writing, tables, stack, objects, scratch, out, begin, state, failure
):
    """Walks the value of Kryo 2 at `position`; with `writing` it writes that of Kryo 5 to `out` from `begin`.

    Returns where the value ends in `out`, negative on failure; `state` gets the position behind it. `objects` has for
    collections what the walk without `writing` found. `tables` are those of the serializer, see `recoding.py`.
    """
    table, params, rows, names, known, spans, parts, contexts, special, ids, said, _ = tables
    kinds = table[0]
    room = len(out) - SPARE
    most = begin + _MOST_GROWTH * (limit - position) + _FREE_GROWTH
    state[OBJECTS] = 0
    state[NAMES] = 0
    state[SERIAL] += 1
    state[NEW_NAMES] = 0
    at = begin
    depth = 0
    new_objects = np.int64(0)
    # How the next object is stored: the class, unless its tag says it; whether Kryo 5 says whether it is null.
    fixed = np.int64(-1)
    new_fixed = np.int64(-1)
    new_marked = False
    context = np.int64(0)
    new_context = np.int64(0)
    while True:
        if at + 2 * SPARE > room or len(scratch) < 4 * SPARE:
            return fail(failure, NO_ROOM, position, SPARE)
        if at > most:
            # Only what refers to objects can grow like this.
            return fail(failure, BAD_COUNT, position, 0)
        if state[OBJECTS] + 2 * SPARE_OBJECTS > len(objects):
            return fail(failure, NO_OBJECTS, position, 0)
        start = position
        row = fixed
        if fixed < 0:
            row = read_class(
                data, position, limit, np.bool_(False), table, names, known, np.bool_(False), state, failure
            )
            if row < 0:
                return row
            position = state[POSITION]
        kind = np.int64(kinds[0, row])
        new_kind = np.int64(kinds[1, row])
        shared = kind > DOUBLE
        mark = np.int64(1)
        if row != NULL and kind == FOREIGN:
            return fail(failure, FOREIGN_CLASS, start, -1 - row)
        if row != NULL and (shared or fixed >= 0):
            mark, position = varint(data, position, limit, failure)
            if position < 0:
                return position
            if mark == 0:
                if fixed < 0:
                    return fail(failure, BAD_MARK, start, 0)
                row = np.int64(NULL)
            elif not shared and mark != 1:
                return fail(failure, BAD_MARK, start, mark)
        # What it is to what is around it.
        if depth > 0:
            around = stack[depth - 1]
            holder = around[_OBJECT]
            if around[_KIND] == _MAP_FRAME and row == NULL:
                never = params[around[_OF_CLASS]]
                if never & (NO_NULL_KEY if around[_NEXT] == 1 else NO_NULL_VALUE):
                    return fail(failure, BAD_CONTENT, start, 0)
            if around[_KIND] == _LIST_FRAME and not writing:
                if row == NULL:
                    objects[holder, BEGIN] = 1
                elif objects[holder, OF_NODE] == _NONE_YET:
                    objects[holder, OF_NODE] = row
                elif objects[holder, OF_NODE] != row:
                    objects[holder, OF_NODE] = _SEVERAL
        number = np.int64(-1)
        again = mark > 1
        if again:
            number = mark - 2
            if number >= state[OBJECTS] or objects[number, OF_CLASS] != row:
                return fail(failure, BAD_REFERENCE, start, number)
            if objects[number, END] < 0 and not writing:
                return fail(failure, CYCLE, start, number)
            if context > 0:
                # Kryo 2 keeps the type arguments for the next collection then.
                return fail(failure, TWO_CONTEXTS, start, number)
        said_before = again and objects[number, NEW_NUMBER] >= 0
        if writing:
            if new_fixed < 0 and row != NULL:
                at = put_class(row, ids, said, names, table[3], np.bool_(True), out, at, room, state, failure)
                if at < 0:
                    return at
            elif row == NULL and new_fixed != NULL:
                # If all elements of a collection are null, nothing is stored of them.
                out[at] = 0
                at += 1
            if row != NULL and _is_shared_by_5(new_kind):
                at = put_varint(out, at, objects[number, NEW_NUMBER] + 2 if said_before else 1)
            elif row != NULL and new_fixed >= 0 and new_marked:
                out[at] = 1
                at += 1
        there = row == NULL or said_before or (again and not writing)
        behind = position
        if again and not there:
            # Kryo 5 has no number for it yet: it is written here, from where it stands.
            if kind >= OBJECT_ARRAY and not (kind == ENUM or special[row] > 0):
                return fail(failure, BAD_REFERENCE, start, number)
            position = objects[number, SOURCE]
            if _is_shared_by_5(new_kind):
                objects[number, NEW_NUMBER] = new_objects
                new_objects += 1
        elif not there and shared:
            number = state[OBJECTS]
            objects[number, OF_CLASS] = row
            objects[number, SOURCE] = position
            objects[number, END] = -1
            if not writing:
                objects[number, NEW_NUMBER] = -1
                objects[number, OF_NODE] = _NONE_YET
                objects[number, BEGIN] = 0
            elif _is_shared_by_5(new_kind):
                objects[number, NEW_NUMBER] = new_objects
                new_objects += 1
            state[OBJECTS] = number + 1
        if not there and (kind < OBJECT_ARRAY or kind == ENUM or special[row] > 0):
            before = state[OBJECTS]
            if again:
                read_again(objects, state)
            if kind == ENUM:
                constant, end = varint(data, position, limit, failure)
                if end < 0:
                    return end
                if constant == 0 or constant > params[row] > 0:
                    return fail(failure, BAD_CONTENT, position, constant)
                at = put_varint(out, at, constant)
                position = end
            elif special[row] > 0:
                end = recode_special(
                    special[row], rows, data, position, limit, table, names, known, out, at, room, scratch, objects,
                    state, failure,
                )  # fmt: skip
                if end < 0:
                    return end
                at = end
                position = state[POSITION]
            else:
                end = recode_leaf(
                    kind, params[row], rows, data, position, limit, out, at, room, scratch, objects, state, failure
                )
                if end < 0:
                    return end
                at = end
                position = state[POSITION]
            if not writing:
                for inside in range(before, state[OBJECTS]):
                    objects[inside, NEW_NUMBER] = -1
                    objects[inside, END] = 0
                at = begin
            if again:
                state[OBJECTS] = before
                position = behind
            elif shared:
                objects[number, END] = 0
            there = True
        elif not there and kind == ENUM_SET:
            row = read_class(
                data, position, limit, np.bool_(False), table, names, known, np.bool_(False), state, failure
            )
            if row < 0:
                return row
            if kinds[0, row] != ENUM:
                return fail(failure, BAD_CONTENT, position, row)
            content = state[POSITION]
            position = pass_constants(params[row], data, content, limit, failure)
            if position < 0:
                return position
            if writing:
                at = put_class(row, ids, said, names, table[3], np.bool_(True), out, at, room, state, failure)
                if at < 0:
                    return at
                if at + position - content + SPARE > room:
                    return fail(failure, NO_ROOM, content, position - content)
                copy_bytes(data, content, out, at, position - content)
                at += position - content
            objects[number, END] = 0
            there = True
        elif not there:
            if kind in (COMPARATOR, ENUM_COMPARATOR):
                return fail(failure, FOREIGN_CLASS, start, -1 - row)
            if depth == DEEPEST:
                return fail(failure, TOO_DEEP, start, depth)
            frame = stack[depth]
            depth += 1
            frame[_KIND] = _LIST_FRAME
            frame[_OBJECT] = number
            frame[_NEXT] = 0
            frame[_CONTEXT] = context if _is_in_context(kind) else 0
            frame[_NEW_CONTEXT] = new_context if _is_in_context(new_kind) else 0
            frame[_CLASS] = -1
            frame[_NEW_CLASS] = -1
            frame[_NEW_MARKED] = 0
            frame[_OF_CLASS] = row
            count = np.int64(0)
            if kind == PARTS:
                frame[_KIND] = _PARTS_FRAME
                count = spans[0, row, 1]
                if count != spans[1, row, 1]:
                    return fail(failure, FOREIGN_CLASS, start, -1 - row)
            elif kind == TUPLE:
                frame[_KIND] = _TUPLE_FRAME
                count = params[row]
            elif kind in (SINGLETON_LIST, SINGLETON_MAP):
                count = np.int64(1)
            elif kind in (OBJECT_ARRAY, ANY_ARRAY):
                count, position = varint(data, position, limit, failure)
                if position < 0:
                    return position
                if writing:
                    at = put_varint(out, at, count)
                count -= 1
                if kind == OBJECT_ARRAY:
                    frame[_CLASS] = params[row]
                    frame[_NEW_CLASS] = params[row]
                    frame[_NEW_MARKED] = 1
            elif kind != EMPTY_LIST and kind != EMPTY_MAP:
                compared = np.int64(-1)
                if kind in (SORTED_SET, SORTED_MAP):
                    compared = position
                    position = read_comparator(
                        data, position, limit, np.bool_(False), table, names, known, np.int64(0), objects, state,
                        failure,
                    )  # fmt: skip
                    if position < 0:
                        return position
                    if not writing and state[COMPARATOR_AT] >= 0 and state[COMPARATOR_OBJECT] < 0:
                        objects[state[OBJECTS] - 1, NEW_NUMBER] = -1
                count, position = varint(data, position, limit, failure)
                if position < 0:
                    return position
                is_list = kind <= AS_LIST or kind >= SET
                if kind == AS_LIST:
                    # The class of the array, which Kryo 5 doesn't say.
                    listed = read_class(
                        data, position, limit, np.bool_(False), table, names, known, np.bool_(True), state, failure
                    )
                    if listed < 0:
                        return listed
                    position = state[POSITION]
                if (is_list and kind in (LIST, SET)) or (kind == SORTED_SET and params[row] == 0):
                    frame[_CLASS] = contexts[frame[_CONTEXT], 0]
                if writing:
                    new_typed = contexts[frame[_NEW_CONTEXT], 0] if is_list else np.int64(-1)
                    one_class = objects[number, OF_NODE]
                    has_null = objects[number, BEGIN]
                    is_filled = new_kind in (FILLED_LIST, FILLED_SET)
                    flagged = False
                    if is_list and count > 0:
                        flagged = has_null == 1 if new_typed >= 0 else one_class != _SEVERAL
                        if is_filled and new_typed >= 0:
                            flagged = False
                    if is_list and not (is_filled and new_typed >= 0 and count > 0):
                        # The flag is in bit 7 of the first byte, which has 6 bits of the number.
                        first = count + 1
                        out[at] = np.uint8((0x80 if flagged else 0) | first & 0x3F | (0x40 if first > 0x3F else 0))
                        at += 1
                        if first > 0x3F:
                            at = put_varint(out, at, first >> 6)
                    else:
                        at = put_varint(out, at, count + 1)
                    if new_kind in (SORTED_SET, SORTED_MAP):
                        if compared >= 0:
                            before_names = state[POSITION]
                            at, new_objects = _put_comparator(
                                data, compared, table, names, known, ids, said, objects, new_objects, out, at, room,
                                state, failure,
                            )  # fmt: skip
                            if at < 0:
                                return at
                            state[POSITION] = before_names
                        else:
                            out[at] = 0
                            at += 1
                    if is_list and count > 0:
                        if new_typed >= 0:
                            frame[_NEW_CLASS] = new_typed
                            frame[_NEW_MARKED] = has_null
                        elif flagged:
                            if one_class == _NONE_YET:
                                out[at] = 0
                                at += 1
                                one_class = np.int64(NULL)
                            else:
                                at = put_class(
                                    one_class, ids, said, names, table[3], np.bool_(True), out, at, room, state, failure
                                )
                                if at < 0:
                                    return at
                                if not is_filled:
                                    out[at] = np.uint8(has_null)
                                    at += 1
                            frame[_NEW_CLASS] = one_class
                            frame[_NEW_MARKED] = has_null
            if EMPTY_MAP <= kind < TUPLE:
                frame[_KIND] = _MAP_FRAME
            if count < 0 or (count > limit - position and kind != PARTS):
                return fail(failure, BAD_COUNT, start, count)
            frame[_LEFT] = count
        # What comes next: a part of what was entered, or of what is around it.
        while depth > 0:
            frame = stack[depth - 1]
            if frame[_KIND] == _PARTS_FRAME:
                row = frame[_OF_CLASS]
                while frame[_LEFT] > 0 and parts[spans[0, row, 0] + frame[_NEXT], PART_KIND] < TAGGED_PART:
                    end = recode_part(
                        parts[spans[0, row, 0] + frame[_NEXT], PART_KIND], rows, data, position, limit, out, at, room,
                        scratch, objects, state, failure,
                    )  # fmt: skip
                    if end < 0:
                        return end
                    if writing:
                        at = end
                    position = state[POSITION]
                    frame[_NEXT] += 1
                    frame[_LEFT] -= 1
                    if at + 2 * SPARE > room:
                        return fail(failure, NO_ROOM, position, SPARE)
            if frame[_LEFT] > 0 or (frame[_KIND] == _MAP_FRAME and frame[_NEXT] == 1):
                break
            objects[frame[_OBJECT], END] = 0
            depth -= 1
        if depth == 0:
            break
        frame = stack[depth - 1]
        old_line, new_line = contexts[frame[_CONTEXT]], contexts[frame[_NEW_CONTEXT]]
        if frame[_KIND] == _MAP_FRAME:
            column = 2 if frame[_NEXT] == 1 else 0
            frame[_NEXT] = 1 - frame[_NEXT]
            if column == 0:
                frame[_LEFT] -= 1
            fixed, context = old_line[column], old_line[column + 1]
            new_fixed, new_context = new_line[column], new_line[column + 1]
            new_marked = new_fixed >= 0
        elif frame[_KIND] == _PARTS_FRAME:
            row = frame[_OF_CLASS]
            old, new = spans[0, row, 0] + frame[_NEXT], spans[1, row, 0] + frame[_NEXT]
            frame[_NEXT] += 1
            frame[_LEFT] -= 1
            fixed = parts[old, PART_CLASS] if parts[old, PART_KIND] == KNOWN_PART else np.int64(-1)
            new_fixed = fixed
            new_marked = True
            context, new_context = parts[old, PART_CONTEXT], parts[new, PART_CONTEXT]
        else:
            frame[_LEFT] -= 1
            fixed, new_fixed = frame[_CLASS], frame[_NEW_CLASS]
            new_marked = frame[_NEW_MARKED] != 0
            context, new_context = old_line[1], new_line[1]
            if frame[_KIND] == _TUPLE_FRAME:
                context, new_context = np.int64(0), np.int64(0)
    state[POSITION] = position
    return at


@kernel
def _recode_value(data, position, limit, tables, stack, objects, scratch, out, at, state, failure):  # type: ignore[no-untyped-def]
    """Writes the value of Kryo 2 at `position` as Kryo 5 does. Returns as `_walk_value`."""
    if tables[11][0]:
        found = recode_flat(data, position, limit, tables[0], tables[1], tables[3], tables[4], out, at, state, failure)
        if found >= 0:
            return found
    found = _walk_value(
        data, position, limit, np.bool_(False), tables, stack, objects, scratch, out, at, state, failure
    )
    if found < 0:
        return found
    return _walk_value(data, position, limit, np.bool_(True), tables, stack, objects, scratch, out, at, state, failure)


@kernel
def _is_declared(kind, form):  # type: ignore[no-untyped-def]
    if form == AS_MAP:
        return EMPTY_MAP <= kind < TUPLE
    if form == AS_LIST_OF_FLINK:
        return kind in (LIST, AS_LIST, EMPTY_LIST, SINGLETON_LIST)
    return kind in (SET, SORTED_SET)


@kernel
def _put_collection(  # type: ignore[no-untyped-def]
    data, position, limit, form, tables, objects, out, begin, state, failure
):
    """Writes the collection of Kryo 2 at `position` as Flink 2's own serializer of it does. Returns as `_recode_value`.

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
def walk_to_kryo(data, places, limits, pcs, program, registers, ends, failure):  # type: ignore[no-untyped-def]
    """Walks each value from its place in the program `pcs` to the next part by Kryo, or to its end.

    `places` gets where the part is; `ends` gets where a value ends, and -1 if it can't be walked: then it has the place
    -1 in the program.
    """
    code, pool, _, place, end = program
    for index in range(len(places)):
        if pcs[index] < 0:
            continue
        place[0] = places[index]
        walked = walk(
            code, pool, registers[index], data, place, limits[index : index + 1], end, end[1:1], end[1:], failure,
            pcs[index],
        )  # fmt: skip
        if walked != 1 and failure[0] == OPAQUE_VALUE:
            places[index] = failure[1]
            pcs[index] = failure[2]
        else:
            ends[index] = end[0] if walked == 1 else np.int64(-1)
            pcs[index] = -1


@kernel
def recode_parts(  # type: ignore[no-untyped-def]
    data, starts, limits, heads, first, kept, followed, program, of_parts, tables, stack, objects, scratch, out, at,
    new_ends, state, failure,
):  # fmt: skip
    """Copies values, and writes what is by Kryo 2 in them for Flink 2; from the value with the number `first` on.

    Value i is `data[starts[i]:limits[i]]`; `heads[i]` bytes before it are copied too. `program` finds the parts by
    Kryo; `of_parts` says for an instruction at which it stops which of `tables` the part there needs, and as what it is
    written: by Kryo 5, or see `_put_collection`. `out` is filled
    up to `at`, `new_ends` gets where each value ends in it. Values that are `kept` are copied as
    they are. `followed` says that Flink reads more from the stream behind each value. Returns how many values are done.
    """
    code, pool, registers, place, end = program
    room = len(out) - SPARE
    for index in range(first, len(starts)):
        limit = limits[index]
        copied = starts[index] - heads[index]
        pc = np.int64(0)
        place[0] = starts[index]
        while not kept[index]:
            walked = walk(
                code, pool, registers, data, place, limits[index : index + 1], end, end[1:1], end[1:], failure, pc
            )
            if walked == 1:
                if end[0] != limit:
                    fail(failure, LEFTOVER, end[0], limit - end[0])
                    return np.int64(index)
                break
            if failure[0] != OPAQUE_VALUE:
                failure[0] = -failure[0]
                return np.int64(index)
            pc, position = failure[2], failure[1]
            size = position - copied
            if at + size + SPARE > room:
                fail(failure, NO_ROOM, position, size)
                return np.int64(index)
            copy_bytes(data, copied, out, at, size)
            of_part = of_parts[pc]
            state[SMALL_ARRAY] = -READ_AT_ONCE
            if of_part[1] == BY_KRYO:
                at = _recode_value(
                    data, position, limit, tables[of_part[0]], stack, objects, scratch, out, at + size, state, failure
                )
            else:
                at = _put_collection(
                    data, position, limit, of_part[1:], tables[of_part[0]], objects, out, at + size, state, failure
                )
            if at >= 0 and (followed or state[POSITION] < limit) and at - state[SMALL_ARRAY] < READ_AT_ONCE:
                at = fail(failure, READ_BEYOND, position, 0)
            if at < 0:
                return np.int64(index)
            place[0] = state[POSITION]
            copied = place[0]
            pc += 1
        if limit - copied + at + SPARE > room:
            fail(failure, NO_ROOM, copied, limit - copied)
            return np.int64(index)
        copy_bytes(data, copied, out, at, limit - copied)
        at += limit - copied
        new_ends[index] = at
    return np.int64(len(starts))
