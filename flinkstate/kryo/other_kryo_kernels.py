"""The compiled way of a value from the bytes of one Kryo to those that the other writes of the same objects.

`five` says that Kryo 5 wrote the value, and Kryo 2 is to. The tables of both are in `kernels.py`. A value is walked
twice. The first time nothing is written: it finds out of each collection whether all its elements have one class, which
Kryo 5 says before them. The second time each object is written: with the class's tag and a mark where the other Kryo
has them, what is in it, and references to objects by the numbers that they have then. Dates inside of other dates, and
enums, have numbers in Kryo 2 alone: Kryo 5 has them once more, and for Kryo 2 a constant is found again by its number.
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import fail, i32, put_varint
from flinkstate.kryo.compiling import inlined, kernel
from flinkstate.kryo.copying import pass_constants, put_class
from flinkstate.kryo.kernel_codes import (
    ANY_ARRAY,
    AS_LIST,
    BAD_COMPARATOR,
    BAD_CONTENT,
    BAD_COUNT,
    BAD_MARK,
    BAD_REFERENCE,
    BEGIN,
    COMPARATOR,
    COMPARATOR_AT,
    COMPARATOR_OBJECT,
    CONSTANTS,
    CYCLE,
    DOUBLE,
    ELSEWHERE,
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
    IN_FIELD,
    KEPT_BITS,
    KNOWN_PART,
    LEFTOVER,
    LIST,
    LOCAL_DATE_TIME,
    MAP,
    MOST_KEPT,
    NAMES,
    NEW_NAMES,
    NEW_NUMBER,
    NEW_OBJECTS,
    NO_MARKS,
    NO_MARKS_BY_5,
    NO_NULL_KEY,
    NO_NULL_VALUE,
    NO_OBJECTS,
    NO_ROOM,
    NOT_WRITTEN,
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
    STRING,
    TAGGED_PART,
    TOO_DEEP,
    TRUNCATED,
    TUPLE,
    TWO_CONTEXTS,
    TYPE_ARGUMENTS,
    TYPED,
    WRITTEN_UNTAGGED,
)
from flinkstate.kryo.kryo_2_leaves import ZONE_REGION, end_of_form
from flinkstate.kryo.objects import first_part, kept_with, read_class, read_comparator, takes_null_key
from flinkstate.kryo.other_kryo_collections import (
    ARRAY_FORM,
    BY_KRYO,
    CHILD,
    CONTEXT,
    COUNT,
    ENUM_FORM,
    FLAGS,
    FORM,
    HOW,
    KRYO_FORM,
    LEAF_FORM,
    MAP_FORM,
    NULL_FLAG,
    NULL_POJO,
    OTHER_SUBCLASS,
    PARAM,
    POJO_FORM,
    POJO_ITSELF,
    PRIMITIVE_PART,
    REGISTERED_SUBCLASS,
    ROW,
    collection_for_5,
    leaf_for_2,
    subclass_of,
)
from flinkstate.kryo.other_kryo_flat_maps import recode_flat
from flinkstate.kryo.other_kryo_leaves import (
    READ_AT_ONCE,
    SPARE_OBJECTS,
    read_again,
    recode_leaf,
    recode_part,
    recode_special,
)
from flinkstate.kryo.primitives import copy_bytes, knows_no_arguments, read_flagged, varint
from flinkstate.serializers.kernels import OPAQUE_VALUE, walk

# Columns of a frame of the stack.
_KIND = 0
_LEFT = 1
_OBJECT = 2
_NEXT = 3  # of a map whether the value is next, of parts the number of the next one
_CONTEXT = 4
_NEW_CONTEXT = 5
_CLASS = 6  # which all elements have, without tags; -1 without one
_NEW_CLASS = 7  # the same in what is written
_MARKED = 8  # whether the value says of each element whether it is null
_NEW_MARKED = 9  # the same of what is written
_OF_CLASS = 10
_PARTS_AT = 11  # the first of its parts
_NEW_PARTS_AT = 12
_KEPT = 13  # what the Kryo that wrote it keeps of type variables in it
_NEW_KEPT = 14  # the same of what is written
_NULL_KEY = 15  # of a map: whether its comparator may take a null key
FRAME_PARTS = 16
DEEPEST = 64
# Columns of the frames of what Flink 2 has written, beside `_LEFT` and `_NEXT`.
_FORM_NODE = 0

# Kinds of frames.
_MAP_FRAME = 0
_LIST_FRAME = 1
_PARTS_FRAME = 2

# The class of all elements of a collection, kept where its object is described: none of them is there, or several.
_NONE_YET = -1
_SEVERAL = -2

_MOST_GROWTH = 64
_FREE_GROWTH = 1 << 20


@inlined
def _is_in_context(kind):  # type: ignore[no-untyped-def]
    """Whether collections of this kind take type arguments of the field in which they are."""
    return kind != PARTS and (LIST <= kind <= FILLED_LIST or MAP <= kind <= SORTED_MAP or kind >= SET)


@inlined
def _is_shared(five, kind):  # type: ignore[no-untyped-def]
    """Whether this Kryo refers to objects of this kind."""
    return kind > DOUBLE and not (five and kind == ENUM)


@kernel
def _said_constant(row, constant, objects, new_objects, state):  # type: ignore[no-untyped-def]
    """The number that a constant of an enum has in the value of Kryo 2, -1 if it is new: then it gets the next one.

    Constants are at the end of `objects`, from the last one on. Of each class there are as many as it has at most.
    """
    end = len(objects) - SPARE_OBJECTS - 1
    for place in range(state[CONSTANTS]):
        if objects[end - place, OF_CLASS] == row and objects[end - place, SOURCE] == constant:
            return objects[end - place, NEW_NUMBER]
    place = end - state[CONSTANTS]
    objects[place, OF_CLASS] = row
    objects[place, SOURCE] = constant
    objects[place, NEW_NUMBER] = new_objects
    state[CONSTANTS] += 1
    return np.int64(-1)


@kernel
def _put_comparator(  # type: ignore[no-untyped-def]
    data, start, five, table, names, known, ids, said, objects, new_objects, out, at, room, state, failure
):
    """Writes the comparator that was read at `start`. Returns the end in `out`, and the number of objects."""
    mark, number = state[COMPARATOR_AT], state[COMPARATOR_OBJECT]
    behind = state[POSITION]
    row = read_class(data, start, len(data), five, table, names, known, np.bool_(False), state, failure)
    state[POSITION] = behind
    if row == NULL:
        out[at] = 0
        return at + 1, new_objects
    at = put_class(row, ids, said, names, table[3], not five, out, at, room, state, failure)
    if at < 0:
        return at, new_objects
    if table[0][0, row] == ENUM_COMPARATOR:
        if five:
            number = _said_constant(row, np.int64(1), objects, new_objects, state)
            if number >= 0:
                return put_varint(out, at, number + 2), new_objects
            out[at] = 1
            at += 1
            new_objects += 1
        out[at] = 1
        return at + 1, new_objects
    if number < 0 and mark >= 0:
        number = state[OBJECTS] - 1
    if objects[number, NEW_NUMBER] >= 0:
        return put_varint(out, at, objects[number, NEW_NUMBER] + 2), new_objects
    out[at] = 1
    objects[number, NEW_NUMBER] = new_objects
    return at + 1, new_objects + 1


@inlined
def _begin_writing(state):  # type: ignore[no-untyped-def]
    """Forgets the classes and objects of what was written before."""
    state[SERIAL] += 1
    state[NEW_NAMES] = 0
    state[NEW_OBJECTS] = 0


@kernel
def _walk_value(  # type: ignore[no-untyped-def]
    data, position, limit, five, writing, tables, stack, objects, scratch, out, begin, new_fixed, new_context, state,
    failure,
):  # fmt: skip
    """Walks the value of one Kryo at `position`; with `writing` it writes that of the other to `out` from `begin`.

    Returns where the value ends in `out`, negative on failure; `state` gets the position behind it. `objects` has for
    collections what the walk without `writing` found. `tables` are those of the serializer, see `to_other_kryo.py`.
    What is written may stand in a field of another object: `new_fixed` is the field's class if that is final, else -1,
    and `new_context` has its type arguments.
    """
    table, params, rows, names, known, spans, parts, contexts, special, ids, said, _ = tables
    kinds = table[0]
    version = 1 if five else 0
    other = 1 - version
    room = len(out) - SPARE
    most = begin + _MOST_GROWTH * (limit - position) + _FREE_GROWTH
    state[OBJECTS] = 0
    state[NAMES] = 0
    state[CONSTANTS] = 0
    state[TYPED] = 0
    at = begin
    depth = 0
    new_objects = state[NEW_OBJECTS]
    nulls_left = most - begin
    # How the next object is stored and written: the class, unless its tag says it; whether it says that it isn't null.
    fixed = np.int64(-1)
    marked = False
    new_marked = new_fixed >= 0
    context = np.int64(0)
    while True:
        if at + 2 * SPARE > room or len(scratch) < 4 * SPARE:
            return fail(failure, NO_ROOM, position, SPARE)
        if at > most:
            # Only what refers to objects can grow like this.
            return fail(failure, BAD_COUNT, position, 0)
        if state[OBJECTS] + state[CONSTANTS] + 2 * SPARE_OBJECTS > len(objects):
            return fail(failure, NO_OBJECTS, position, 0)
        start = position
        row = fixed
        if fixed < 0:
            row = read_class(data, position, limit, five, table, names, known, np.bool_(False), state, failure)
            if row < 0:
                return row
            position = state[POSITION]
        kind = np.int64(kinds[version, row])
        new_kind = np.int64(kinds[other, row])
        shared = _is_shared(five, kind)
        mark = np.int64(1)
        if row != NULL and kind == FOREIGN:
            return fail(failure, FOREIGN_CLASS, start, -1 - row)
        if row != NULL and new_kind == FOREIGN:
            return fail(failure, NOT_WRITTEN, start, row)
        if new_fixed >= 0 and row != NULL and row != new_fixed:
            # Only type arguments say that it has another class.
            return fail(failure, BAD_CONTENT if depth == 0 else NOT_WRITTEN, start, row)
        if row != NULL and (shared or marked):
            mark, position = varint(data, position, limit, failure)
            if position < 0:
                return position
            if mark == 0:
                if not marked:
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
                if around[_NULL_KEY] != 0:
                    never &= ~NO_NULL_KEY
                if never & (NO_NULL_KEY if around[_NEXT] == 1 else NO_NULL_VALUE):
                    return fail(failure, BAD_CONTENT, start, 0)
            if around[_KIND] == _LIST_FRAME and not (writing or five):
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
            by_2 = contexts[new_context if five else context]
            is_kept = kind > OBJECT_ARRAY and kind not in (PARTS, TUPLE)
            is_kept = is_kept and not knows_no_arguments(new_kind if five else kind)
            if is_kept and (by_2[0] >= 0 or by_2[2] >= 0):
                # Kryo 2 keeps the type arguments for the next collection then.
                return fail(failure, TWO_CONTEXTS, start, number)
        said_before = again and objects[number, NEW_NUMBER] >= 0
        is_constant = five and kind == ENUM and row != NULL
        if writing:
            if new_fixed < 0 and row != NULL:
                at = put_class(row, ids, said, names, table[3], not five, out, at, room, state, failure)
                if at < 0:
                    return at
            elif row == NULL and new_fixed != NULL:
                # If all elements of a collection are null, nothing is stored of them.
                out[at] = 0
                at += 1
            if is_constant:
                constant, behind_it = varint(data, position, limit, failure)
                if behind_it < 0:
                    return behind_it
                number = _said_constant(row, constant, objects, new_objects, state)
                said_before = number >= 0
                at = put_varint(out, at, number + 2 if said_before else 1)
                if said_before:
                    position = behind_it
                else:
                    new_objects += 1
            elif row != NULL and _is_shared(not five, new_kind):
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
            if _is_shared(not five, new_kind):
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
            elif _is_shared(not five, new_kind):
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
                    special[row], rows, data, position, limit, five, table, names, known, out, at, room, scratch,
                    objects, state, failure,
                )  # fmt: skip
                if end < 0:
                    return end
                at = end
                position = state[POSITION]
            else:
                end = recode_leaf(
                    kind, params[row], rows, data, position, limit, five, out, at, room, scratch, objects, state,
                    failure,
                )  # fmt: skip
                if end < 0:
                    return end
                at = end
                position = state[POSITION]
            if five:
                # What Kryo 2 has inside as objects.
                new_objects += 2 if kind == LOCAL_DATE_TIME else 1 if special[row] == ZONE_REGION else 0
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
            frame[_MARKED] = 0 if five else 1
            frame[_NEW_MARKED] = 1 if five else 0
            frame[_OF_CLASS] = row
            frame[_NULL_KEY] = 0
            frame[_KEPT] = 0 if depth == 1 else stack[depth - 2, _KEPT]
            frame[_NEW_KEPT] = 0 if depth == 1 else stack[depth - 2, _NEW_KEPT]
            count = np.int64(0)
            if kind in (PARTS, TUPLE):
                frame[_KIND] = _PARTS_FRAME
                count = spans[version, row, 1]
                if count != spans[other, row, 1]:
                    return fail(failure, FOREIGN_CLASS, start, -1 - row)
                in_field = depth > 1 and stack[depth - 2, _KIND] == _PARTS_FRAME
                place = np.int64(IN_FIELD if in_field else ELSEWHERE)
                frame[_PARTS_AT] = first_part(spans, parts, contexts, version, row, context, frame[_KEPT], place, state)
                frame[_KEPT] = kept_with(frame[_KEPT], state)
                if not in_field and new_fixed >= 0:
                    place = np.int64(WRITTEN_UNTAGGED)
                frame[_NEW_PARTS_AT] = first_part(
                    spans, parts, contexts, other, row, new_context, frame[_NEW_KEPT], place, state
                )
                frame[_NEW_KEPT] = kept_with(frame[_NEW_KEPT], state)
                is_known = frame[_PARTS_AT] >= 0 and frame[_NEW_PARTS_AT] >= 0
                if not is_known or (not five and frame[_NEW_KEPT] >> KEPT_BITS > MOST_KEPT):
                    return fail(failure, TYPE_ARGUMENTS, start, row)
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
                    frame[_MARKED] = 1
                    frame[_NEW_MARKED] = 1
            elif kind != EMPTY_LIST and kind != EMPTY_MAP:
                compared = np.int64(-1)
                is_list = kind <= AS_LIST or kind >= SET
                is_sorted = kind in (SORTED_SET, SORTED_MAP)
                if is_sorted and not five:
                    compared = position
                    position = read_comparator(
                        data, position, limit, five, table, names, known, np.int64(0), objects, state, failure
                    )
                    if position < 0:
                        return position
                # Kryo 5 says of a list in a flag whether one class is said for all, or that some of that are null.
                typed = contexts[frame[_CONTEXT], 0] if is_list else np.int64(-1)
                is_filled_5 = five and kind in (FILLED_LIST, FILLED_SET)
                said_once = False
                if five and is_list and not (is_filled_5 and typed >= 0):
                    flags = position
                    count, position = read_flagged(data, position, limit, failure)
                    if position >= 0 and data[flags] >= 0x80:
                        frame[_MARKED] = 1
                        if typed < 0:
                            said_once = True
                else:
                    count, position = varint(data, position, limit, failure)
                if position < 0:
                    return position
                if five:
                    count -= 1
                if is_sorted and five:
                    compared = position
                    position = read_comparator(
                        data, position, limit, five, table, names, known, np.int64(0), objects, state, failure
                    )
                    if position < 0:
                        return position
                # A ConcurrentSkipListMap has none, whatever compares its keys.
                if compared >= 0 and kind == SORTED_MAP and params[row] == NO_NULL_KEY:
                    frame[_NULL_KEY] = takes_null_key(table, objects, state)
                if not writing and compared >= 0 and state[COMPARATOR_AT] >= 0 and state[COMPARATOR_OBJECT] < 0:
                    objects[state[OBJECTS] - 1, NEW_NUMBER] = -1
                if kind == AS_LIST:
                    # The class of the array, which Kryo 5 doesn't say.
                    listed = read_class(
                        data, position, limit, five, table, names, known, np.bool_(True), state, failure
                    )
                    if listed < 0:
                        return listed
                    position = state[POSITION]
                if five or kind in (LIST, SET) or (kind == SORTED_SET and params[row] == 0):
                    frame[_CLASS] = typed
                if said_once:
                    frame[_MARKED] = 0
                    listed = position
                    frame[_CLASS] = read_class(
                        data, position, limit, five, table, names, known, np.bool_(False), state, failure
                    )
                    if frame[_CLASS] < 0:
                        return frame[_CLASS]
                    position = state[POSITION]
                    if frame[_CLASS] == NULL:
                        # All elements are null, and nothing is stored of them.
                        if is_filled_5 or not 0 <= count <= nulls_left:
                            return fail(failure, BAD_COUNT, listed, count)
                        nulls_left -= count
                    elif not is_filled_5:
                        if position >= limit or data[position] > 1:
                            return fail(failure, BAD_CONTENT, position, 0)
                        frame[_MARKED] = data[position]
                        position += 1
                if writing and five:
                    # Only what Kryo 5 sorts may have a comparator that Kryo 2 has no place for.
                    if is_sorted and new_kind not in (SORTED_SET, SORTED_MAP):
                        if data[compared] != 0:
                            return fail(failure, BAD_COMPARATOR, compared, row)
                    elif is_sorted:
                        at, new_objects = _put_comparator(
                            data, compared, five, table, names, known, ids, said, objects, new_objects, out, at, room,
                            state, failure,
                        )  # fmt: skip
                        if at < 0:
                            return at
                    at = put_varint(out, at, count)
                    if new_kind in (LIST, SET) or (new_kind == SORTED_SET and params[row] == 0):
                        frame[_NEW_CLASS] = contexts[frame[_NEW_CONTEXT], 0]
                elif writing:
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
                                data, compared, five, table, names, known, ids, said, objects, new_objects, out, at,
                                room, state, failure,
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
            # Of nulls alone nothing is stored.
            if count < 0 or (count > limit - position and kind != PARTS and frame[_CLASS] != NULL):
                return fail(failure, BAD_COUNT, start, count)
            frame[_LEFT] = count
        # What comes next: a part of what was entered, or of what is around it.
        while depth > 0:
            frame = stack[depth - 1]
            if frame[_KIND] == _PARTS_FRAME:
                while frame[_LEFT] > 0 and parts[frame[_PARTS_AT] + frame[_NEXT], PART_KIND] < TAGGED_PART:
                    end = recode_part(
                        parts[frame[_PARTS_AT] + frame[_NEXT], PART_KIND], rows, data, position, limit, five, out,
                        at, room, scratch, objects, state, failure,
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
            unmarked_by_5 = params[frame[_OF_CLASS]] & NO_MARKS_BY_5 != 0
            marked, new_marked = fixed >= 0, new_fixed >= 0
            if unmarked_by_5 and five:
                marked = False
            elif unmarked_by_5:
                new_marked = False
        elif frame[_KIND] == _PARTS_FRAME:
            old, new = frame[_PARTS_AT] + frame[_NEXT], frame[_NEW_PARTS_AT] + frame[_NEXT]
            frame[_NEXT] += 1
            frame[_LEFT] -= 1
            fixed = parts[old, PART_CLASS] if parts[old, PART_KIND] == KNOWN_PART else np.int64(-1)
            new_fixed = parts[new, PART_CLASS] if parts[new, PART_KIND] == KNOWN_PART else np.int64(-1)
            marked, new_marked = parts[old, PART_KIND] == KNOWN_PART, True
            context, new_context = parts[old, PART_CONTEXT], parts[new, PART_CONTEXT]
        else:
            frame[_LEFT] -= 1
            fixed, new_fixed = frame[_CLASS], frame[_NEW_CLASS]
            marked, new_marked = frame[_MARKED] != 0, frame[_NEW_MARKED] != 0
            if fixed < 0:
                marked = False
            context, new_context = old_line[1], new_line[1]
    if writing:
        state[NEW_OBJECTS] = new_objects
    state[POSITION] = position
    return at


@kernel
def _recode_value(data, position, limit, five, tables, stack, objects, scratch, out, at, state, failure):  # type: ignore[no-untyped-def]
    """Writes the value of one Kryo at `position` as the other does. Returns as `_walk_value`."""
    if tables[11][0]:
        found = recode_flat(
            data, position, limit, five, tables[0], tables[1], tables[3], tables[4], out, at, state, failure
        )
        if found >= 0:
            return found
    _begin_writing(state)
    return _recode_object(
        data, position, limit, five, tables, stack, objects, scratch, out, at, np.int64(-1), np.int64(0), state, failure
    )


@kernel
def _recode_object(  # type: ignore[no-untyped-def]
    data, position, limit, five, tables, stack, objects, scratch, out, at, new_fixed, new_context, state, failure
):
    """Writes an object of one Kryo at `position` as the other does. Returns as `_walk_value`."""
    found = at
    for writing in (False, True):
        found = _walk_value(
            data, position, limit, five, writing, tables, stack, objects, scratch, out, at, new_fixed, new_context,
            state, failure,
        )  # fmt: skip
        if found < 0:
            break
    return found


@kernel
def _collection_for_2(  # type: ignore[no-untyped-def]
    data, position, limit, node, forms, tables, stack, objects, scratch, out, at, state, failure
):
    """Writes the collection of Flink 2's own at `position` as Kryo 2 writes the same objects.

    These are a HashMap, an ArrayList or a HashSet, which Flink 2 makes of it, and objects in it by their fields. Each
    object is a new one: Flink 2 reads none twice. `forms` are the nodes of what Flink 2 has written, the collection's
    at `node`, see `forms_of_flink_2.py`. Returns as `_walk_value`.
    """
    nodes, orders, ids_of_parts, frames = forms
    table, params, rows, names, known, spans, parts, contexts, special, ids, said, flat = tables
    kinds = table[0]
    room = len(out) - SPARE
    depth = 0
    _begin_writing(state)
    while True:
        if at + 2 * SPARE > room:
            return fail(failure, NO_ROOM, position, SPARE)
        line = nodes[node]
        form, how, row = line[FORM], line[HOW], line[ROW]
        is_null = False
        for _ in range(line[FLAGS]):
            if position >= limit or data[position] > 1:
                return fail(failure, BAD_CONTENT, position, 0)
            position += 1
            if data[position - 1] == line[NULL_FLAG]:
                is_null = True
                break
        if not is_null and form == POJO_FORM:
            if position >= limit:
                return fail(failure, TRUNCATED, position, 1)
            flag = np.int64(data[position])
            if flag in (OTHER_SUBCLASS, REGISTERED_SUBCLASS):
                node = subclass_of(nodes, line, data, position, limit, names, table[3], state, failure)
                if node < 0:
                    return node
                position = state[POSITION]
                continue
            is_null = flag == NULL_POJO
            if not (is_null or (flag == POJO_ITSELF and row != NULL)):
                return fail(failure, BAD_CONTENT, position, flag)
            position += 1
        kind = np.int64(kinds[0, row])
        if not is_null and form == LEAF_FORM and kind == STRING and position < limit and data[position] == 0:
            is_null = True
            position += 1
        if is_null:
            if how == PRIMITIVE_PART:
                return fail(failure, BAD_CONTENT, position, 0)
            out[at] = 0
            at += 1
        elif form == KRYO_FORM:
            of_part = (
                (kinds, ids_of_parts[line[PARAM]], table[2], table[3]), params, rows, names, known, spans, parts,
                contexts, special, ids, said, flat,
            )  # fmt: skip
            at = _recode_object(
                data, position, limit, np.bool_(True), of_part, stack, objects, scratch, out, at,
                row if how == KNOWN_PART else np.int64(-1), line[CONTEXT], state, failure,
            )  # fmt: skip
            if at < 0:
                return at
            position = state[POSITION]
        else:
            if kind == FOREIGN:
                return fail(failure, NOT_WRITTEN, position, row)
            if form != LEAF_FORM or kind > STRING:
                if how == TAGGED_PART:
                    at = put_class(row, ids, said, names, table[3], np.bool_(False), out, at, room, state, failure)
                    if at < 0:
                        return at
                out[at] = 1
                at += 1
            if kind > DOUBLE:
                # A LocalDateTime has two objects inside.
                state[NEW_OBJECTS] += 3 if kind == LOCAL_DATE_TIME else 1
            if form == LEAF_FORM:
                end = end_of_form(kind, params[row], data, position, limit)
                if end < 0:
                    return fail(failure, TRUNCATED, position, 1)
                if at + 2 * (end - position) + SPARE > room:
                    return fail(failure, NO_ROOM, position, 2 * (end - position))
                at = leaf_for_2(line, kind, params[row], data, position, end, out, at, room, failure)
                if at < 0:
                    return at
                position = end
            else:
                count = line[COUNT]
                if form != POJO_FORM:
                    if limit - position < 4:
                        return fail(failure, TRUNCATED, position, 4)
                    count = i32(data, position)
                if form == ENUM_FORM:
                    if not 0 <= count < line[COUNT]:
                        return fail(failure, BAD_CONTENT, position, count)
                    at = put_varint(out, at, orders[line[PARAM] + count])
                    position += 4
                else:
                    if form != POJO_FORM:
                        position += 4
                        if not 0 <= count <= limit - position:
                            return fail(failure, BAD_COUNT, position, count)
                        at = put_varint(out, at, count + 1 if form == ARRAY_FORM else count)
                    if depth == DEEPEST:
                        return fail(failure, TOO_DEEP, position, depth)
                    frames[depth, _FORM_NODE] = node
                    frames[depth, _LEFT] = 2 * count if form == MAP_FORM else count
                    frames[depth, _NEXT] = 0
                    depth += 1
        while depth > 0 and frames[depth - 1, _LEFT] == 0:
            depth -= 1
        if depth == 0:
            break
        frame = frames[depth - 1]
        around = nodes[frame[_FORM_NODE]]
        node = around[CHILD]
        if around[FORM] == POJO_FORM:
            node += frame[_NEXT]
        elif around[FORM] == MAP_FORM:
            node += frame[_NEXT] & 1
        frame[_NEXT] += 1
        frame[_LEFT] -= 1
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
def find_parts(  # type: ignore[no-untyped-def]
    data, starts, limits, first, five, program, of_parts, tables, stack, objects, scratch, out, parts, part_ends, state,
    failure,
):  # fmt: skip
    """Finds the parts by one Kryo in values, see `recode_parts`, and writes nothing; from number `first` on.

    `parts` gets the instruction of each, and where it begins and ends; `part_ends` says how many there are up to the
    end of each value. Returns how many values are done.
    """
    code, pool, registers, place, end = program
    for index in range(first, len(starts)):
        limit = limits[index]
        count = part_ends[index - 1] if index > 0 else np.int64(0)
        pc = np.int64(0)
        place[0] = starts[index]
        while True:
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
            if count == len(parts):
                fail(failure, NO_MARKS, position, count)
                return np.int64(index)
            found = _walk_value(
                data, position, limit, five, np.bool_(False), _tables_of(tables, of_parts[pc, 0]), stack, objects,
                scratch, out, np.int64(0), np.int64(-1), np.int64(0), state, failure,
            )  # fmt: skip
            if found < 0:
                return np.int64(index)
            parts[count, 0] = pc
            parts[count, 1] = position
            parts[count, 2] = state[POSITION]
            place[0] = state[POSITION]
            count += 1
            pc += 1
        part_ends[index] = count
    return np.int64(len(starts))


@inlined
def _tables_of(tables, number):  # type: ignore[no-untyped-def]
    """The tables of one serializer; its number is a place in each array, which compiles faster than in a tuple."""
    table, params, rows, names, known, spans, parts, contexts, special, ids, said, flat = tables
    kinds, by_id, slots, extents = table
    return (
        (kinds[number], by_id[number], slots[number], extents[number]), params[number], rows[number], names[number],
        known[number], spans[number], parts[number], contexts[number], special[number], ids[number], said[number],
        flat[number],
    )  # fmt: skip


@kernel
def recode_parts(  # type: ignore[no-untyped-def]
    data, starts, limits, heads, first, kept, followed, five, program, of_parts, forms, tables, stack, objects,
    scratch, out, at, new_ends, state, failure,
):  # fmt: skip
    """Copies values, and writes what is by one Kryo in them for the other's Flink; from number `first` on.

    Value i is `data[starts[i]:limits[i]]`; `heads[i]` bytes before it are copied too. `program` finds the parts by
    Kryo; `of_parts` says for an instruction at which it stops which of `tables` the part there needs, and as what it is
    written: by Kryo, or see `other_kryo_collections.py`. What Flink 2 itself has written is a node of `forms`. `out` is
    filled up to `at`, `new_ends` gets where each value ends in it. Values that are `kept` are copied as they are.
    `followed` says that Flink reads more from the stream behind each value. Returns how many values are done.
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
            chosen = _tables_of(tables, of_part[0])
            state[SMALL_ARRAY] = -READ_AT_ONCE
            if of_part[1] == BY_KRYO:
                at = _recode_value(
                    data, position, limit, five, chosen, stack, objects, scratch, out, at + size, state,
                    failure,
                )  # fmt: skip
            elif five:
                at = _collection_for_2(
                    data, position, limit, of_part[2], forms, chosen, stack, objects, scratch, out, at + size, state,
                    failure,
                )  # fmt: skip
            else:
                at = collection_for_5(
                    data, position, limit, of_part[1:], chosen, objects, out, at + size, state, failure
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
