"""The compiled reading of maps that Kryo wrote: each becomes the bytes that Flink's MapSerializer writes for it.

A value of Kryo 2 (Flink 1.x) or Kryo 5 (Flink 2.x) is a class tag, a reference mark, the object. All varints have 7
bits a byte, the lowest first; zigzag puts the sign into bit 0.

| part | bytes |
|---|---|
| class tag | `00` null; varint id + 2; or `01`, varint name id, and for the next new name id the name as a string |
| reference mark | not for boxed primitives: `01` a new object, which gets the next number; varint n + 2: object n \
once more |
| String | ASCII of 2 to 63 (Kryo 5: 32) characters: the bytes, the last with bit 7 set; else varint length + 1 with \
bit 7 of its first byte set and 6 bits in it, then each UTF-16 unit as UTF-8 |
| Integer, Long | zigzag varint; the ninth byte of a long has 8 bits |
| Short, Character, Float, Double | big endian; Kryo 5 little endian |
| BigInteger | varint n + 1, n bytes; BigDecimal: the same and the scale as zigzag varint |
| Date, java.sql.Date, Time | milliseconds as varint; java.sql.Timestamp: and nanoseconds (Kryo 5: without the part of \
a second) |
| LocalDate | Kryo 2: i16 day, i16 month, zigzag year; Kryo 5: varint year, month, day |
| LocalTime | Kryo 2: hour, minute, zigzag nanoseconds, second; Kryo 5: hour, minute, second, varint nanoseconds, cut \
behind the last that is not 0, which is inverted |
| LocalDateTime | Kryo 2: mark, date, mark, time; Kryo 5: date, time |
| Instant | Kryo 2: zigzag nanoseconds, zigzag seconds; Kryo 5: varint seconds, varint nanoseconds |
| array of primitives | varint n + 1, the elements as above (float and double 4 and 8 bytes) |
| array of Strings, Longs... | varint n + 1, for each a mark (`00` null; boxed ones too) and the object |
| list | Kryo 2: varint n, each with class tag, mark, object. Kryo 5: varint n + 1 with a flag in bit 7. Without: each \
as in Kryo 2. With it: the class of all, `01` if some are null, each with a mark, if boxed only then; `00` if all are \
null |
| List.of | the same; in Kryo 5 without what says of nulls |
| Arrays.asList | Kryo 2: varint n, a class tag, each as in a list |
| map | Kryo 2: varint n, Kryo 5: varint n + 1; then key and value, each with class tag, mark, object |
| Map.of | the same; in a field with type arguments, Kryo 5 has no marks of null |
| sorted map | Kryo 2: the comparator (with class tag and mark, `00` none), then as a map; Kryo 5: behind the count |
| emptyMap, emptyList | nothing; singletonMap: key and value; singletonList: the element |
| Tuple | its fields in the order of their names (f10 before f2), each with class tag, mark, object |
| Either | `00`, then the value with class tag, mark, object; Row: see `flink_rows.py` |
| set | as a list; sorted set, priority queue: as a list, the comparator where a sorted map has it |
| enum | varint number of the constant + 1; in Kryo 5 it has no mark. Flink's: i32 number |
| EnumSet | the class tag of its constants, varint n, of each the varint as of an enum |
| array of objects | varint n + 1, for each class tag, mark, object; of a final class, mark (`00` null) and object |
| other classes | parts, one after another, as the table of classes says. Flink's POJO: 02, then for each field \
bool isNull and the value; of a subclass 04, utf class, then the same |

Only what the Kryo of the version could have written is read: no longer varints than needed, no Kryo 5 map with count 0.
So a value that was read to its end by one Kryo can hardly be read by the other; if it can, both results are compared.

What has no form of Flink's own stays a value of Kryo: at such a node an object is copied, and made whole. Its bytes are
the same but for class tags (the new serializer has other ids, and names are counted anew), and references (counted
anew; an object that stands elsewhere in the map is said again, where the value refers to it first). A collection that
stood in a field with type arguments has none by itself: its elements get tags.

An object with a map in a field (`state[FIELD]`) is copied like any value that stays Kryo's. If the map is taken, only
the map stays in `out`. If it is left out, null is written for it, and what was said and numbered in it counts as not
said yet: what the object refers to in it later is written where it is referred to.

Classes are rows of a table, and places in the map (the map, its keys, its values, elements of its values) are nodes. A
reading either holds each class against those that are allowed at a node, or counts which classes occur there. What is
in a copy has no node: its classes are counted behind those of all nodes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flinkstate.basics.words import fail, put32, put_varint
from flinkstate.kryo.compiling import inlined, kernel
from flinkstate.kryo.copying import copy_comparator, flush, pass_constants, pass_part, put_class
from flinkstate.kryo.flat_maps import read_flat_map
from flinkstate.kryo.flink_rows import begin_row, end_row
from flinkstate.kryo.kernel_codes import (
    AMBIGUOUS,
    ANY_ARRAY,
    AS_LIST,
    BAD_COMPARATOR,
    BAD_CONTENT,
    BAD_COUNT,
    BAD_MARK,
    BAD_REFERENCE,
    BEGIN,
    BOTH_SIDES,
    COMPARATOR,
    COPIED,
    COUNTED,
    COUNTING,
    CYCLE,
    DOUBLE,
    EITHER,
    ELEMENT,
    ELSEWHERE,
    EMPTY_LIST,
    EMPTY_MAP,
    EMPTY_MAP_FLAG,
    END,
    ENTRIES,
    ENUM,
    ENUM_COMPARATOR,
    ENUM_SET,
    FIELD,
    FIELD_NODE,
    FIELDS,
    FIELDS_OF_TUPLES,
    FILLED_LIST,
    FILLED_SET,
    FLAT_BY_5,
    FLAT_ROW,
    FLAT_TAGS,
    FOREIGN,
    FOREIGN_CLASS,
    HOLDING,
    IN_FIELD,
    IS_NULL,
    KEPT,
    KEY,
    KNOWN_PART,
    KRYO_2,
    KRYO_5,
    LEFTOVER,
    LIST,
    LOOKING,
    MAP,
    NAMES,
    NESTED,
    NEW_NAMES,
    NEW_NUMBER,
    NEXT_OBJECT,
    NO_FIELD,
    NO_MARKS,
    NO_MARKS_BY_5,
    NO_NULL_KEY,
    NO_NULL_VALUE,
    NO_OBJECTS,
    NO_ROOM,
    NODES,
    NULL,
    NULL_MAP,
    NULL_PART,
    OBJECT_ARRAY,
    OBJECTS,
    OF_CLASS,
    OF_CONTEXT,
    OF_NODE,
    OF_VALUE,
    OUT_END,
    PART_CLASS,
    PART_CONTEXT,
    PART_KIND,
    PARTS,
    POSITION,
    ROW,
    SERIAL,
    SET,
    SIDES,
    SINGLETON_LIST,
    SINGLETON_MAP,
    SORTED_MAP,
    SORTED_SET,
    SOURCE,
    SOURCE_END,
    SPARE,
    STOPPED,
    STRING,
    SUBCLASS,
    TAGGED_PART,
    TAKEN,
    TOO_DEEP,
    TOO_LARGE,
    TOO_MANY_NODES,
    TOUCHED,
    TRUNCATED,
    TUPLE,
    TWO_CONTEXTS,
    TYPE_ARGUMENTS,
    TYPED,
    VALUE,
    WITHOUT_FIELD,
    WRONG_CLASS,
)
from flinkstate.kryo.objects import (
    first_part,
    kept_with,
    put_number,
    put_scalar,
    read_class,
    read_comparator,
    takes_null_key,
    widen,
)
from flinkstate.kryo.primitives import are_equal, copy_bytes, knows_no_arguments, read_flagged, varint
from flinkstate.kryo.tuples import FIELD_ORDER, IN_ORDER, put_in_order

# Columns of a frame of the stack.
_KIND = 0
_NODE = 1
_LEFT = 2
_OBJECT = 3
_NEXT = 4
_CLASS = 5
_MARKED = 6
_FIRST = 7
_BACK = 8  # where to go on behind it if it is read again, else -1
_BACK_OBJECTS = 9
_CONTEXT = 10
_OUTSIDE = 11  # whether its context comes from outside of the copied value, in which it has none
_AROUND = 12  # what `ordered` was outside of it
_PLACES = 13  # where the fields of a tuple begin in `out`; where the mask of a row is
_NULL_KEY = _PLACES  # of a map: whether its comparator may take a null key
_SHIFTS = _PLACES + FIELDS_OF_TUPLES
_PARTS_AT = _SHIFTS + FIELDS_OF_TUPLES  # the first of its parts
_KEPT = _PARTS_AT + 1  # what Kryo keeps of type variables in it
FRAME_PARTS = _KEPT + 1
DEEPEST = 64

# Kinds of frames.
_MAP_FRAME = 0
_TAGGED_FRAME = 1
_TYPED_FRAME = 2
_TUPLE_FRAME = 3
_PARTS_FRAME = 4
_ROW_FRAME = 5
_SIDE_FRAME = 6

# The class of the first element that isn't null, if all elements must not have the same one; else one of these.
_NONE_YET = -1
_ANY = -2

# Of a field of a row, a bit in the row's mask says whether it is null.
_IN_MASK = 3

# The flags of a POJO in Flink's form: of the class itself, and of a subclass that isn't registered, whose name follows.
_POJO_ITSELF = 2
_POJO_OF_SUBCLASS = 4

_MOST_GROWTH = 64
_FREE_GROWTH = 1 << 20
# More than any position.
_FARTHEST = 1 << 48


@inlined
def _child(children, state, node, column, finding, failure, position):  # type: ignore[no-untyped-def]
    child = children[node, column]
    if child < 0:
        if finding == HOLDING or state[NODES] >= len(children):
            child = fail(failure, TOO_MANY_NODES, position, 0)
        else:
            child = state[NODES]
            children[node, column] = child
            state[NODES] += 1
    return child


@inlined
def _note(cells, scratch, touched, state, finding, node, row):  # type: ignore[no-untyped-def]
    """Counts the class at the node, or says whether it is allowed there."""
    allowed = True
    if finding == COUNTING:
        if scratch[node, row] == 0:
            touched[state[TOUCHED], 0] = node
            touched[state[TOUCHED], 1] = row
            state[TOUCHED] += 1
        scratch[node, row] += 1
    elif finding == HOLDING:
        allowed = cells[node, row] != 0
    return allowed


@inlined
def _put_flagged(out, at, number):  # type: ignore[no-untyped-def]
    """Writes a number with the flag that a list says the class of all elements. Returns where it ends."""
    out[at] = np.uint8(number & 0x3F | (0xC0 if number > 0x3F else 0x80))
    at += 1
    if number > 0x3F:
        at = put_varint(out, at, number >> 6)
    return at


@inlined
def _put_subclass(pool, extents, row, out, at, room, failure):  # type: ignore[no-untyped-def]
    """Writes what Flink has before an object of a subclass of a POJO. Returns where it ends."""
    first, size = extents[row, 0], extents[row, 1]
    if at + size + SPARE > room:
        return fail(failure, NO_ROOM, at, size)
    out[at] = _POJO_OF_SUBCLASS
    out[at + 1] = np.uint8(size >> 8)
    out[at + 2] = np.uint8(size & 0xFF)
    copy_bytes(pool, first, out, at + 3, size)
    return at + 3 + size


@kernel
def _read_map(  # type: ignore[no-untyped-def]
    data, position, limit, five, table, params, rows, names, known, finding, children, kinships, nulls, cells, copying,
    scratch, touched, stack, objects, out, begin, marks, marked, state, failure,
):  # fmt: skip
    """Reads one value by one Kryo, and writes it to `out` from `begin`. Returns 0, or a negative number on failure.

    `kinships` says which nodes have the same type, `nulls` how many zero bytes a null is at a node that has no flag.
    `copying` has: for each node whether it is a copy and by which serializer, the class ids of these serializers, the
    classes that were named, the kinds of classes in copies, the parts of a class and all parts, which classes have
    other extents by the other Kryo, the contexts: type arguments of fields, by which Kryo drops tags of elements, and
    which part of an object of each class has the map, -1 if none has.
    """
    kinds = table[0]
    copies, new_ids, said, copied_kinds, spans, parts, differs, contexts, with_map = copying
    version = 1 if five else 0
    room = len(out) - SPARE
    most = begin + _MOST_GROWTH * (limit - position) + _FREE_GROWTH
    state[COUNTED] = 0
    state[NESTED] = 0
    state[ENTRIES] = 0
    state[OBJECTS] = 0
    state[NAMES] = 0
    state[IS_NULL] = 0
    state[COPIED] = 0
    state[TYPED] = 0
    at = begin
    depth = 0
    node = np.int64(0)
    # How the next object is stored: its class if it has no tag, whether it may be null nevertheless; 1: a flag says in
    # Flink's bytes whether it is null, 2: whether it is not, or see `_IN_MASK`.
    fixed = np.int64(-1)
    marked_too = False
    context = np.int64(0)
    flag = 0
    # Whether the context comes from outside of the copied value, and whether an object without a tag gets one there.
    outside = False
    retagged = False
    # The copied value: the depth at which it began (-1: none), its serializer, its objects, how far it is written.
    base = -1
    copier = np.int64(0)
    new_objects = np.int64(0)
    flushed = np.int64(0)
    # The first object in the innermost tuple whose fields are put in order. Objects before it that are read again in
    # the tuple don't move with its fields, so they are not copied from there.
    ordered = np.int64(0)
    # The map in a field: whether it is being read, the depth inside it, where it ends (-1: it wasn't read yet), whether
    # there are copies in it, and what was said before it.
    field = state[FIELD]
    in_field = False
    map_depth = 1
    taken = np.int64(-1)
    copied = np.int64(0)
    kept = at
    kept_names = kept_new_names = kept_objects = kept_new_objects = np.int64(0)
    while True:
        if at + SPARE > room:
            return fail(failure, NO_ROOM, position, 0)
        if at > most:
            return fail(failure, TOO_LARGE, position, 0)
        if state[OBJECTS] + 4 > len(objects):
            return fail(failure, NO_OBJECTS, position, 0)
        start = position
        row = fixed
        if fixed < 0:
            if position < limit and 1 < data[position] < 0x80 and np.int64(data[position]) - 2 < table[1].shape[1]:
                row = np.int64(table[1][version, data[position] - 2])
                if row >= 0 and kinds[version, row] != FOREIGN:
                    position += 1
                else:
                    row = np.int64(-1)
            if row < 0:
                row = read_class(data, position, limit, five, table, names, known, np.bool_(False), state, failure)
                if row < 0:
                    return row
                position = state[POSITION]
        kind = np.int64(kinds[version, row])
        # Whether it can be referred to.
        shared = kind == FOREIGN or (kind > DOUBLE and not (five and kind == ENUM))
        behind_tag = position
        mark = np.int64(1)
        if row != NULL and (shared or marked_too):
            mark, position = varint(data, position, limit, failure)
            if position < 0:
                return position
            if mark == 0:
                if not marked_too:
                    return fail(failure, BAD_MARK, start, 0)
                row = np.int64(NULL)
            elif not shared and mark != 1:
                return fail(failure, BAD_MARK, start, mark)
        if row == NULL and depth > 0 and stack[depth - 1, _KIND] == _MAP_FRAME:
            never = params[objects[stack[depth - 1, _OBJECT], OF_CLASS]]
            if stack[depth - 1, _NULL_KEY] != 0:
                never &= ~NO_NULL_KEY
            if never & (NO_NULL_KEY if stack[depth - 1, _NEXT] == VALUE else NO_NULL_VALUE):
                return fail(failure, BAD_CONTENT, start, 0)
        if row != NULL and kind == FOREIGN:
            return fail(failure, FOREIGN_CLASS, start, -1 - row)
        if field != NO_FIELD and depth == 0:
            state[NESTED] = 1
            if row != NULL and with_map[version, row] < 0:
                return fail(failure, WITHOUT_FIELD, start, row)
        if depth > 0 and stack[depth - 1, _KIND] == _TAGGED_FRAME and row != NULL:
            first = stack[depth - 1, _FIRST]
            if first == _NONE_YET:
                stack[depth - 1, _FIRST] = row
            elif first >= 0 and (first != row or kind == ENUM):
                stack[depth - 1, _FIRST] = _ANY
        if base >= 0 and finding == COUNTING:
            _note(cells, scratch, touched, state, finding, len(children), row)
        if base < 0:
            if not _note(cells, scratch, touched, state, finding, node, row):
                if row == NULL:
                    return fail(failure, NULL_PART, start, node)
                return fail(failure, WRONG_CLASS, start, node << 32 | row)
            if flag == _IN_MASK:
                if row == NULL:
                    bit = stack[depth - 1, _NEXT] + 1
                    out[stack[depth - 1, _PLACES] + (bit >> 3)] |= np.uint8(0x80 >> (bit & 7))
            elif flag > 0:
                out[at] = np.uint8(flag - 1 if row != NULL else 2 - flag)
                at += 1
            if nulls[node] < 0 and (row != NULL or flag == 0):
                out[at] = 0 if row != NULL else 1
                at += 1
            # What has a form of Flink's own is held against that.
            only_copied = kind > ENUM_COMPARATOR and finding != HOLDING
            if row != NULL and (only_copied or copies[node] >= 0):
                base = depth
                copier = max(copies[node], np.int64(0))
                new_objects = np.int64(0)
                state[SERIAL] += 1
                state[NEW_NAMES] = 0
                state[COPIED] = 1
                at = put_class(row, new_ids[copier], said, names, table[3], five, out, at, room, state, failure)
                if at < 0:
                    return at
                flushed = behind_tag if shared else position
        elif retagged:
            at = flush(data, flushed, start, out, at, room, failure)
            if at >= 0 and row != NULL:
                at = put_class(row, new_ids[copier], said, names, table[3], five, out, at, room, state, failure)
            elif at >= 0:
                out[at] = 0
                at += 1
            if at < 0:
                return at
            flushed = start if row != NULL and shared else position
        elif fixed < 0 and row != NULL:
            at = flush(data, flushed, start, out, at, room, failure)
            if at >= 0:
                at = put_class(row, new_ids[copier], said, names, table[3], five, out, at, room, state, failure)
            if at < 0:
                return at
            flushed = behind_tag
        if base >= 0:
            kind = np.int64(copied_kinds[version, row])
        back = np.int64(-1)
        back_objects = np.int64(0)
        there = row == NULL
        if there and base < 0:
            if depth == 0 or (in_field and depth == 1):
                state[IS_NULL] = 1
                if nulls[node] >= 0:
                    put32(out, at, 0)
                    at += 4
            elif flag == 0:
                for _ in range(nulls[node]):
                    out[at] = 0
                    at += 1
        elif mark > 1:
            number = mark - 2
            if number >= state[OBJECTS] or objects[number, OF_CLASS] != row:
                return fail(failure, BAD_REFERENCE, start, number)
            first, end = objects[number, BEGIN], objects[number, END]
            again = True
            if base >= 0:
                at = flush(data, flushed, behind_tag, out, at, room, failure)
                if at < 0:
                    return at
                flushed = position
                again = objects[number, OF_VALUE] != state[SERIAL]
                if taken >= 0:
                    # Behind a map that is taken the copy is of no use any more.
                    again = False
                at = put_varint(out, at, 1 if again else objects[number, NEW_NUMBER] + 2)
            if again and end < 0:
                return fail(failure, CYCLE, start, number)
            if again and base < 0 and objects[number, OF_NODE] >= 0:
                again = False
                if kind >= OBJECT_ARRAY and finding == HOLDING and kinships[objects[number, OF_NODE]] != kinships[node]:
                    return fail(failure, WRONG_CLASS, start, node << 32 | row)
                if at + end - first > most:
                    return fail(failure, TOO_LARGE, start, end - first)
                if at + end - first + SPARE > room:
                    return fail(failure, NO_ROOM, start, end - first)
                copy_bytes(out, first, out, at, end - first)
                at += end - first
            there = not again
            untyped = knows_no_arguments(kind)
            may_differ = kind > OBJECT_ARRAY and not untyped and (kind != PARTS or spans[version, row, 2] > 0)
            if again and may_differ and objects[number, OF_CONTEXT] != context:
                return fail(failure, TWO_CONTEXTS, start, number)
            is_kept = kind > OBJECT_ARRAY and kind not in (PARTS, TUPLE, EITHER) and not untyped
            if is_kept and not five and (contexts[context, 0] >= 0 or contexts[context, 2] >= 0):
                # Kryo 2 keeps the type arguments for the next collection then.
                return fail(failure, TWO_CONTEXTS, start, number)
            if again:
                # It was written in another form, or in another value: it is read where it stands.
                back = position
                back_objects = state[OBJECTS]
                state[OBJECTS] = number
                position = objects[number, SOURCE]
                flushed = position
        elif not there and base >= 0 and shared and objects[state[OBJECTS], OF_VALUE] == state[SERIAL]:
            # An object around it is read again, and this one was said before.
            number = state[OBJECTS]
            at = flush(data, flushed, behind_tag, out, at, room, failure)
            if at < 0:
                return at
            at = put_varint(out, at, objects[number, NEW_NUMBER] + 2)
            position = objects[number, SOURCE_END]
            state[OBJECTS] = objects[number, NEXT_OBJECT]
            flushed = position
            there = True
        if not there:
            number = state[OBJECTS]
            of_node = node if base < 0 and number >= ordered else np.int64(-1)
            if shared:
                objects[number, OF_CLASS] = row
                objects[number, OF_NODE] = of_node
                objects[number, BEGIN] = at
                objects[number, END] = -1
                objects[number, SOURCE] = position
                objects[number, OF_VALUE] = state[SERIAL] if base >= 0 else 0
                objects[number, NEW_NUMBER] = new_objects
                objects[number, OF_CONTEXT] = context
                new_objects += 1
                state[OBJECTS] = number + 1
            if kind < OBJECT_ARRAY or kind == ENUM:
                param = params[row]
                if kind == ENUM:
                    number_of, end = varint(data, position, limit, failure)
                    if end >= 0 and (number_of == 0 or number_of > param > 0):
                        return fail(failure, BAD_CONTENT, position, number_of)
                    state[POSITION] = end
                    state[NESTED] = 1
                    if base < 0:
                        put32(out, at, number_of - 1)
                        end = at + 4 if end >= 0 else end
                else:
                    end = put_scalar(
                        kind, param, rows, data, position, limit, five, of_node, out, at, room, objects, state, failure
                    )
                if end < 0:
                    return end
                position = state[POSITION]
                if base < 0:
                    at = end
                    if finding == HOLDING and cells[node, row] < 0:
                        at = widen(out, at, kind, -cells[node, row])
                if shared:
                    objects[number, END] = at
                    objects[number, SOURCE_END] = position
                    objects[number, NEXT_OBJECT] = state[OBJECTS]
                there = True
            elif kind in (COMPARATOR, ENUM_COMPARATOR):
                return fail(failure, FOREIGN_CLASS, start, -1 - row)
            elif kind == ENUM_SET:
                # Only copied: the class of its constants, their number, the number of each.
                listed = position
                row = read_class(data, position, limit, five, table, names, known, np.bool_(False), state, failure)
                if row < 0:
                    return row
                if kinds[version, row] != ENUM:
                    return fail(failure, BAD_CONTENT, listed, row)
                at = flush(data, flushed, listed, out, at, room, failure)
                flushed = state[POSITION]
                if at >= 0:
                    at = put_class(row, new_ids[copier], said, names, table[3], five, out, at, room, state, failure)
                if at < 0:
                    return at
                position = pass_constants(params[row], data, flushed, limit, failure)
                if position < 0:
                    return position
                objects[number, END] = at
                objects[number, SOURCE_END] = position
                objects[number, NEXT_OBJECT] = state[OBJECTS]
                there = True
            else:
                if depth == DEEPEST:
                    return fail(failure, TOO_DEEP, start, depth)
                frame = stack[depth]
                depth += 1
                frame[_KIND] = _TAGGED_FRAME
                frame[_NODE] = node
                frame[_OBJECT] = number
                frame[_NEXT] = 0
                frame[_CLASS] = -1
                frame[_MARKED] = 0
                frame[_FIRST] = _ANY
                frame[_KEPT] = 0 if depth == 1 else stack[depth - 2, _KEPT]
                if kind in (PARTS, TUPLE, EITHER):
                    place = np.int64(ELSEWHERE)
                    if depth > 1 and stack[depth - 2, _KIND] in (_PARTS_FRAME, _TUPLE_FRAME, _SIDE_FRAME):
                        place = np.int64(IN_FIELD)
                    frame[_PARTS_AT] = first_part(
                        spans, parts, contexts, version, row, context, frame[_KEPT], place, state
                    )
                    if frame[_PARTS_AT] < 0:
                        return fail(failure, TYPE_ARGUMENTS, start, row)
                    frame[_KEPT] = kept_with(frame[_KEPT], state)
                    if state[KEPT] > 0:
                        state[NESTED] = 1
                    else:
                        context = np.int64(0)
                elif not (LIST <= kind <= FILLED_LIST or MAP <= kind <= SORTED_MAP or kind >= SET):
                    context = np.int64(0)
                frame[_CONTEXT] = context
                frame[_OUTSIDE] = 1 if base >= 0 and context > 0 and (base == depth - 1 or outside) else 0
                frame[_BACK] = back
                frame[_BACK_OBJECTS] = back_objects
                sorted_too = kind == SORTED_SET
                if kind in (SET, SORTED_SET):
                    kind = np.int64(LIST)
                elif kind == FILLED_SET:
                    kind = np.int64(FILLED_LIST)
                count = np.int64(0)
                if kind in (SINGLETON_LIST, SINGLETON_MAP):
                    count = np.int64(1)
                elif kind == TUPLE:
                    frame[_KIND] = _TUPLE_FRAME
                    count = params[row]
                    frame[_AROUND] = ordered
                    if base < 0 and count > IN_ORDER:
                        ordered = max(ordered, number + 1)
                elif kind == EITHER:
                    # Its first part is an object of the other side, which Flink keeps to use it again.
                    if position >= limit or data[position] != 0:
                        return fail(failure, BOTH_SIDES, start, 0)
                    position += 1
                    frame[_KIND] = _SIDE_FRAME
                    count = np.int64(1)
                    out[at] = np.uint8(1 - params[row])
                    at += 1
                elif kind == ROW:
                    frame[_KIND] = _ROW_FRAME
                    frame[_PLACES] = at
                    state[NESTED] = 1
                    count = begin_row(
                        rows[2], data, position, limit, five, table, names, known, children, node, objects, state,
                        failure,
                    )  # fmt: skip
                    if count < 0:
                        return count
                    position = state[POSITION]
                    for _ in range((count + 9) // 8):
                        out[at] = 0
                        at += 1
                elif kind == PARTS:
                    frame[_KIND] = _PARTS_FRAME
                    frame[_NEXT] = frame[_PARTS_AT]
                    count = spans[version, row, 1]
                    if differs[row]:
                        state[NESTED] = 1
                    if base < 0:
                        if finding == HOLDING and cells[node, row] >= SUBCLASS:
                            frame[_NODE] = cells[node, row] - SUBCLASS
                            at = _put_subclass(names, table[3], row, out, at, room, failure)
                            if at < 0:
                                return at
                        out[at] = _POJO_ITSELF
                        at += 1
                elif kind != EMPTY_LIST and kind != EMPTY_MAP:
                    compared = np.int64(-1)
                    said_of_all = False
                    if kind in (OBJECT_ARRAY, ANY_ARRAY):
                        count, position = varint(data, position, limit, failure)
                        count -= 1
                        if kind == OBJECT_ARRAY:
                            frame[_KIND] = _TYPED_FRAME
                            frame[_CLASS] = params[row]
                            frame[_MARKED] = 1
                    elif kind <= FILLED_LIST and five:
                        listed = position
                        if kind == FILLED_LIST and contexts[context, 0] >= 0:
                            count, position = varint(data, position, limit, failure)
                        else:
                            count, position = read_flagged(data, position, limit, failure)
                        count -= 1
                        if contexts[context, 0] >= 0:
                            frame[_KIND] = _TYPED_FRAME
                            frame[_CLASS] = contexts[context, 0]
                            if kind == LIST and position >= 0 and data[listed] >= 0x80:
                                frame[_MARKED] = 1
                            if frame[_OUTSIDE] != 0 and 0 < count <= limit - position:
                                at = flush(data, flushed, listed, out, at, room, failure)
                                if at < 0:
                                    return at
                                at = _put_flagged(out, at, count + 1)
                                flushed = position
                                said_of_all = True
                        elif position >= 0 and data[listed] >= 0x80:
                            frame[_KIND] = _TYPED_FRAME
                        elif count > 0:
                            frame[_FIRST] = _NONE_YET
                        state[NESTED] = 1
                        if sorted_too:
                            compared = position
                    elif kind <= AS_LIST:
                        state[NESTED] = 1
                        if sorted_too:
                            compared = position
                            position = read_comparator(
                                data, position, limit, five, table, names, known, node, objects, state, failure
                            )
                            if position < 0:
                                return position
                        count, position = varint(data, position, limit, failure)
                        if kind == LIST and contexts[context, 0] >= 0 and params[row] == 0:
                            frame[_KIND] = _TYPED_FRAME
                            frame[_CLASS] = contexts[context, 0]
                            frame[_MARKED] = 1
                        if kind == AS_LIST and position >= 0:
                            listed = position
                            # The class of the array may be one that no element has.
                            row = read_class(
                                data, position, limit, five, table, names, known, np.bool_(True), state, failure
                            )
                            position = state[POSITION] if row >= 0 else row
                            if base >= 0 and row == NULL:
                                return fail(failure, BAD_CONTENT, listed, 0)
                            if base >= 0 and row > NULL:
                                at = flush(data, flushed, listed, out, at, room, failure)
                                if at >= 0:
                                    at = put_class(
                                        row, new_ids[copier], said, names, table[3], five, out, at, room, state, failure
                                    )  # fmt: skip
                                if at < 0:
                                    return at
                                flushed = position
                    else:
                        if depth == map_depth:
                            state[COUNTED] = 1
                        else:
                            state[NESTED] = 1
                        frame[_NULL_KEY] = 0
                        if kind == SORTED_MAP:
                            state[NESTED] = 1
                        if kind == SORTED_MAP and not five:
                            compared = position
                            position = read_comparator(
                                data, position, limit, five, table, names, known, node, objects, state, failure
                            )
                            if position < 0:
                                return position
                            frame[_NULL_KEY] = takes_null_key(table, objects, state)
                        count, position = varint(data, position, limit, failure)
                        if five:
                            count -= 1
                        if kind == SORTED_MAP and five:
                            compared = position
                    if compared >= 0:
                        if five:
                            position = read_comparator(
                                data, position, limit, five, table, names, known, node, objects, state, failure
                            )
                            # A ConcurrentSkipListMap has none, whatever compares its keys.
                            if kind == SORTED_MAP and params[row] == NO_NULL_KEY and position >= 0:
                                frame[_NULL_KEY] = takes_null_key(table, objects, state)
                        if base >= 0 and position >= 0 and data[compared] != 0:
                            at, flushed, new_objects = copy_comparator(
                                data, compared, flushed, five, table, names, known, new_ids[copier], said, objects,
                                new_objects, out, at, room, state, failure,
                            )  # fmt: skip
                            if at < 0:
                                return at
                    if position < 0:
                        return position
                    if said_of_all:
                        at = flush(data, flushed, position, out, at, room, failure)
                        if at < 0:
                            return at
                        flushed = position
                        all_null = frame[_MARKED] != 0 and count <= limit - position
                        for index in range(count if all_null else 0):
                            all_null = all_null and data[position + index] == 0
                        if all_null:
                            # Nothing more is stored of them.
                            out[at] = 0
                            at += 1
                            position += count
                            flushed = position
                            count = np.int64(0)
                        else:
                            at = put_class(
                                frame[_CLASS], new_ids[copier], said, names, table[3], five, out, at, room, state,
                                failure,
                            )  # fmt: skip
                            if at < 0:
                                return at
                            if kind == LIST:
                                out[at] = np.uint8(frame[_MARKED])
                                at += 1
                    of_one_class = frame[_KIND] == _TYPED_FRAME and frame[_CLASS] < 0
                    if count < 0 or (count > limit - position and not of_one_class):
                        return fail(failure, BAD_COUNT, start, count)
                if frame[_KIND] == _TYPED_FRAME and frame[_CLASS] < 0:
                    if count == 0:
                        return fail(failure, BAD_COUNT, start, count)
                    listed = position
                    row = read_class(data, position, limit, five, table, names, known, np.bool_(False), state, failure)
                    if row < 0:
                        return row
                    position = state[POSITION]
                    if base >= 0 and row != NULL:
                        at = flush(data, flushed, listed, out, at, room, failure)
                        if at >= 0:
                            at = put_class(
                                row, new_ids[copier], said, names, table[3], five, out, at, room, state, failure
                            )
                        if at < 0:
                            return at
                        flushed = position
                    if row == NULL:
                        # All elements are null, and nothing more is stored of them.
                        if kind != LIST:
                            return fail(failure, BAD_CONTENT, start, 0)
                        if count > most - at:
                            return fail(failure, TOO_LARGE, start, count)
                        most -= count
                        frame[_CLASS] = NULL
                    elif count > limit - position:
                        return fail(failure, BAD_COUNT, start, count)
                    elif kind == LIST:
                        if position >= limit or data[position] > 1:
                            return fail(failure, BAD_CONTENT, position, 0)
                        frame[_CLASS] = row
                        frame[_MARKED] = data[position]
                        position += 1
                    else:
                        frame[_CLASS] = row
                if EMPTY_MAP <= kind < TUPLE:
                    frame[_KIND] = _MAP_FRAME
                    if depth == map_depth:
                        state[ENTRIES] = count
                        if marked >= 0 and marked + 2 * count > len(marks):
                            return fail(failure, NO_MARKS, start, marked + 2 * count)
                if kind not in (TUPLE, EITHER, ROW, PARTS) and base < 0:
                    put32(out, at, count)
                    at += 4
                frame[_LEFT] = count
        # What comes next: a part of what was entered, or of what is around it.
        while True:
            if there:
                # An object is complete.
                if back >= 0:
                    if base >= 0:
                        at = flush(data, flushed, position, out, at, room, failure)
                        if at < 0:
                            return at
                        flushed = back
                    position = back
                    state[OBJECTS] = back_objects
                if base == depth:
                    at = flush(data, flushed, position, out, at, room, failure)
                    if at < 0:
                        return at
                    base = -1
                if in_field and depth == 1:
                    in_field = False
                    flushed = position
                    if field == TAKEN:
                        taken = at
                        copied = state[COPIED]
                        map_depth = 1
                        base = 0
                    else:
                        at = kept
                        for name in range(kept_names, state[NAMES]):
                            if known[name, 0] >= 0:
                                said[known[name, 0], 0] = 0
                        for left_out in range(kept_objects, state[OBJECTS]):
                            objects[left_out, OF_VALUE] = 0
                        state[NEW_NAMES] = kept_new_names
                        new_objects = kept_new_objects
                there = False
            if depth == 0:
                break
            frame = stack[depth - 1]
            if frame[_KIND] == _PARTS_FRAME:
                # Parts without tag and mark are passed; in a POJO they are numbers, each behind a flag for null.
                while frame[_LEFT] > 0 and parts[frame[_NEXT], PART_KIND] < TAGGED_PART:
                    part = parts[frame[_NEXT], PART_KIND]
                    if base >= 0:
                        position = pass_part(
                            part, rows, data, position, limit, five, out, at, room, objects, state, failure
                        )
                    else:
                        if at + SPARE > room:
                            return fail(failure, NO_ROOM, position, 0)
                        out[at] = 0
                        at = put_number(part, data, position, limit, five, out, at + 1, state, failure)
                        position = state[POSITION] if at >= 0 else at
                    if position < 0:
                        return position
                    frame[_NEXT] += 1
                    frame[_LEFT] -= 1
            if frame[_LEFT] > 0 or (frame[_NEXT] == VALUE and frame[_KIND] == _MAP_FRAME):
                break
            if frame[_KIND] == _TUPLE_FRAME and base < 0 and frame[_NEXT] > IN_ORDER:
                end = put_in_order(
                    frame[_PLACES:], frame[_SHIFTS:], frame[_NEXT], out, at, room, ordered, objects, state, failure
                )
                if end < 0:
                    return end
                ordered = frame[_AROUND]
            if frame[_KIND] == _ROW_FRAME:
                position = end_row(rows[3], data, position, limit, five, out, frame[_PLACES], objects, state, failure)
                if position < 0:
                    return position
            # A list of Kryo 5 without a flag has elements of several classes, if it has any.
            if frame[_FIRST] >= _NONE_YET:
                return fail(failure, BAD_CONTENT, start, 0)
            objects[frame[_OBJECT], END] = at
            objects[frame[_OBJECT], SOURCE_END] = position
            objects[frame[_OBJECT], NEXT_OBJECT] = state[OBJECTS]
            depth -= 1
            there = True
            back = frame[_BACK]
            back_objects = frame[_BACK_OBJECTS]
        if depth == 0:
            break
        frame = stack[depth - 1]
        marked_too = False
        fixed = np.int64(-1)
        context = np.int64(0)
        flag = 0
        outside = frame[_OUTSIDE] != 0
        retagged = False
        around = contexts[frame[_CONTEXT]]
        if frame[_KIND] == _MAP_FRAME:
            if frame[_NEXT] == VALUE:
                column = VALUE
                frame[_NEXT] = KEY
                flag = 1
                fixed = around[2]
                context = around[3]
            else:
                column = KEY
                frame[_NEXT] = VALUE
                frame[_LEFT] -= 1
                fixed = around[0]
                context = around[1]
            retagged = fixed >= 0 and outside
            unmarked = five and params[objects[frame[_OBJECT], OF_CLASS]] & NO_MARKS_BY_5 != 0
            marked_too = fixed >= 0 and not unmarked
            if depth == map_depth and marked >= 0:
                marks[marked] = at
                marked += 1
        else:
            frame[_LEFT] -= 1
            column = ELEMENT
            context = around[1]
            part = np.int64(-1)
            if frame[_KIND] == _TUPLE_FRAME:
                frame[_PLACES + frame[_NEXT]] = at
                column = FIELDS + FIELD_ORDER[params[objects[frame[_OBJECT], OF_CLASS]], frame[_NEXT]]
                part = frame[_PARTS_AT] + frame[_NEXT]
                frame[_NEXT] += 1
            elif frame[_KIND] == _ROW_FRAME:
                column = FIELDS + frame[_NEXT]
                frame[_NEXT] += 1
                flag = _IN_MASK
            elif frame[_KIND] == _SIDE_FRAME:
                column = SIDES + params[objects[frame[_OBJECT], OF_CLASS]]
                part = frame[_PARTS_AT] + 1
            elif frame[_KIND] == _PARTS_FRAME:
                part = frame[_NEXT]
                frame[_NEXT] += 1
            if part >= 0:
                context = parts[part, PART_CONTEXT]
                if parts[part, PART_KIND] == KNOWN_PART:
                    fixed = parts[part, PART_CLASS]
                    marked_too = True
                if outside:
                    # In the copied value there are no type arguments.
                    owner = objects[frame[_OBJECT], OF_CLASS]
                    plain = part - frame[_PARTS_AT] + spans[version, owner, 0]
                    if fixed >= 0 and parts[plain, PART_KIND] == TAGGED_PART:
                        retagged = True
                    if context == parts[plain, PART_CONTEXT]:
                        outside = False
                    elif parts[plain, PART_CONTEXT] > 0:
                        return fail(failure, TWO_CONTEXTS, position, 0)
            if frame[_KIND] == _PARTS_FRAME:
                if field != NO_FIELD and depth == 1 and part == with_map[version, objects[frame[_OBJECT], OF_CLASS]]:
                    in_field = True
                    if field == TAKEN:
                        # What was copied of the object before the map is not needed.
                        at = begin
                        base = -1
                        map_depth = 2
                        state[COPIED] = 0
                    else:
                        at = flush(data, flushed, position, out, at, room, failure)
                        if at < 0:
                            return at
                        out[at] = 0
                        at += 1
                        flushed = position
                        kept = at
                        kept_names = state[NAMES]
                        kept_new_names = state[NEW_NAMES]
                        kept_objects = state[OBJECTS]
                        kept_new_objects = new_objects
            elif frame[_KIND] == _TYPED_FRAME:
                fixed = frame[_CLASS]
                marked_too = frame[_MARKED] != 0
                retagged = outside and not five
                owner = objects[frame[_OBJECT], OF_CLASS]
                if kinds[version, owner] == OBJECT_ARRAY and kinds[version, fixed] != STRING:
                    flag = 2
            if frame[_KIND] in (_TAGGED_FRAME, _TYPED_FRAME):
                kind_of_all = kinds[version, objects[frame[_OBJECT], OF_CLASS]]
                if kind_of_all == ANY_ARRAY:
                    flag = 2
                elif kind_of_all >= SET:
                    flag = 1
        if base >= 0:
            node = np.int64(-1)
            flag = 0
        elif in_field and depth == 1:
            node = np.int64(FIELD_NODE)
        elif frame[_KIND] == _PARTS_FRAME:
            node = children[frame[_NODE], FIELDS] + frame[_NEXT] - 1 - frame[_PARTS_AT]
            flag = 1
        else:
            node = _child(children, state, frame[_NODE], column, finding, failure, position)
            if node < 0:
                return node
    if position != limit:
        return fail(failure, LEFTOVER, position, limit - position)
    if taken >= 0:
        at = taken
        state[COPIED] = copied
    state[OUT_END] = at
    return np.int64(0)


@kernel
def _count_flat(entries, row, tally, table, cells, children, state, failure):  # type: ignore[no-untyped-def]
    """Adds the tags of a flat map to the counts of classes. Returns -1 if there are too many nodes for that."""
    if entries > 0:
        key = _child(children, state, 0, KEY, COUNTING, failure, 0)
        value = _child(children, state, 0, VALUE, COUNTING, failure, 0)
        if key < 0 or value < 0:
            return np.int64(-1)
        cells[key, NULL] += tally[0, 0]
        cells[value, NULL] += tally[1, 0]
        for tag in range(2, FLAT_TAGS):
            of_class = table[1][0, tag - 2]
            cells[key, of_class] += tally[0, tag]
            cells[value, of_class] += tally[1, tag]
    cells[0, row] += 1
    return entries


@kernel
def _forget(scratch, touched, state, cells, keep):  # type: ignore[no-untyped-def]
    """Ends the counting of a reading: adds its counts to the others if they are to be kept."""
    for index in range(state[TOUCHED]):
        node, row = touched[index, 0], touched[index, 1]
        if keep:
            cells[node, row] += scratch[node, row]
        scratch[node, row] = 0
    state[TOUCHED] = 0


@inlined
def _reached(failure, position, state):  # type: ignore[no-untyped-def]
    """How far a failed reading of the value at a position has come: of both Kryos' failures the farther one counts.

    One that has read the name of a class it doesn't know, or that is no comparator, has come behind it. A null or empty
    map in front of other bytes is no reading at all. One that only doesn't know what Kryo made of type arguments is no
    reading of damaged bytes, however far the other Kryo's failure is.
    """
    if failure[0] == TYPE_ARGUMENTS or failure[0] == TWO_CONTEXTS:
        return failure[1] + _FARTHEST
    if failure[0] == FOREIGN_CLASS and failure[2] >= 0:
        return max(failure[1], failure[2] + 1)
    if failure[0] == BAD_COMPARATOR:
        return failure[1] + 1
    if failure[0] == LEFTOVER and (state[IS_NULL] == 1 or state[ENTRIES] == 0):
        return position
    return failure[1]


@kernel
def read_maps(  # type: ignore[no-untyped-def]
    data, starts, heads, skipped, limits, first, hint, table, params, rows, names, known, finding, children, kinships,
    nulls, cells, copying, flat, scratch, touched, stack, objects, out, at, ends, head_ends, found, counts, stops,
    marks, state, failure,
):  # fmt: skip
    """Reads values from the one with the number `first` on. Returns how many are done: all, unless one failed.

    Entry i is `data[starts[i]:limits[i]]`, its head ends at `heads[i]`, behind that are four bytes, `skipped` bytes and
    the map. Unless the classes are being found, `out` gets the head, an i32 length, the skipped bytes and the map; it
    is filled up to `at`, and from entry to entry `ends` says how far. `found` gets what is said of each value, `counts`
    its entries. What stops a value when classes are found goes into `stops`: node, position and detail of a foreign
    class. `hint` is the Kryo to try first; `failure` also says it for the next call. `copying` is what a copy needs,
    see `_read_map`, `flat` what flat maps need, see `read_flat_map`. `marks` gets where each entry of a map begins in
    `out` and where its key ends. A map of which a flag says whether it is null is read by Kryo 2 alone.
    """
    only_kryo_2 = nulls[0] < 0
    version = hint
    flat[2][:] = 0
    marked = np.int64(0)
    for index in range(first):
        marked += 2 * counts[index]
    for index in range(first, len(starts)):
        begin = np.int64(0) if finding == COUNTING else at
        position = heads[index] + 4 + skipped
        if position > limits[index]:
            fail(failure, TRUNCATED, heads[index], 4 + skipped)
            return np.int64(index)
        if finding == HOLDING:
            size = heads[index] - starts[index]
            if begin + size + skipped + 2 * SPARE > len(out):
                fail(failure, NO_ROOM, starts[index], size + skipped)
                return np.int64(index)
            copy_bytes(data, starts[index], out, begin, size)
            head_ends[index] = begin + size
            begin += size + 4
            for offset in range(skipped):
                out[begin + offset] = data[heads[index] + 4 + offset]
            begin += skipped
        code = np.int64(-1)
        farthest = stopped = np.int64(-1)
        why = detail = np.int64(0)
        said = np.int64(0)
        end = np.int64(0)
        copied = False
        entries = np.int64(-1)
        if state[FIELD] == NO_FIELD and not only_kryo_2:
            entries = read_flat_map(
                data, position, limits[index], version, table, params, names, known, finding, cells, flat, out, begin,
                marks, marked, state, failure,
            )  # fmt: skip
        if entries >= 0 and finding == COUNTING:
            entries = _count_flat(entries, state[FLAT_ROW], flat[1], table, cells, children, state, failure)
        if entries >= 0:
            code = np.int64(0)
            end = state[OUT_END]
            said = np.int64(KRYO_5 if state[FLAT_BY_5] == 1 else KRYO_2)
            state[ENTRIES] = entries
            state[IS_NULL] = 0
        for attempt in range(2 if entries < 0 else 0):
            five = (version == 1) if attempt == 0 else (version != 1)
            if attempt == 1 and only_kryo_2:
                break
            if attempt == 1 and code == 0 and state[COUNTED] == 1 and state[NESTED] == 0:
                break
            place = begin if code < 0 else end
            entries, null = state[ENTRIES], state[IS_NULL]
            mode = LOOKING if finding == COUNTING and code == 0 else finding
            result = _read_map(
                data, position, limits[index], five, table, params, rows, names, known, mode, children, kinships,
                nulls, cells, copying, scratch, touched, stack, objects, out, place, marks,
                marked if code < 0 and finding == HOLDING else np.int64(-1), state, failure,
            )  # fmt: skip
            if result < 0 and code < 0:
                _forget(scratch, touched, state, cells, np.bool_(False))
            if result == 0:
                if code < 0:
                    code = np.int64(0)
                    end = state[OUT_END]
                    copied = state[COPIED] != 0
                    said = np.int64(KRYO_5 if five else KRYO_2)
                    continue
                # The bytes of a copy mean something else by the other Kryo.
                same = state[OUT_END] - end == end - begin and not copied and state[COPIED] == 0
                if not same or not are_equal(out, begin, end, end - begin):
                    fail(failure, AMBIGUOUS, position, 0)
                    return np.int64(index)
                said = np.int64(KRYO_2 | KRYO_5)
            elif failure[0] == NO_ROOM or failure[0] == NO_OBJECTS or failure[0] == NO_MARKS:
                _forget(scratch, touched, state, cells, np.bool_(False))
                return np.int64(index)
            elif _reached(failure, position, state) > farthest:
                farthest, stopped = _reached(failure, position, state), failure[1]
                why, detail = failure[0], failure[2]
            if code == 0:
                state[ENTRIES], state[IS_NULL] = entries, null
        if code < 0:
            failure[0], failure[1], failure[2] = why, stopped, detail
            if finding == HOLDING or why != FOREIGN_CLASS:
                return np.int64(index)
            found[index] = STOPPED
            counts[index] = 0
            stops[index, 0] = stopped
            stops[index, 1] = detail
            continue
        _forget(scratch, touched, state, cells, np.bool_(True))
        if said < 3:
            version = np.int64(1 if said == KRYO_5 else 0)
        failure[4] = version
        if state[IS_NULL] == 1:
            said |= NULL_MAP
        elif state[ENTRIES] == 0:
            said |= EMPTY_MAP_FLAG
        found[index] = said
        counts[index] = state[ENTRIES]
        marked += 2 * state[ENTRIES]
        if finding == HOLDING:
            at = end
            ends[index] = at
            put32(out, head_ends[index], at - head_ends[index] - 4)
    return np.int64(len(starts))


@kernel
def find_ends(  # type: ignore[no-untyped-def]
    data, starts, limits, first, five, finding, table, params, rows, names, known, children, kinships, nulls, cells,
    copying, scratch, touched, stack, objects, out, ends, marks, state, failure,
):  # fmt: skip
    """Reads values by one Kryo, behind which there may be more bytes; from the one with the number `first` on.

    `ends` gets where each ends, or -1 if this Kryo didn't write it: `failure` says why of the last such one. `marks`
    gets the entries of a map, unless it is empty. Returns how many are done: all, unless there was no room for one.
    """
    marked = np.int64(0 if len(marks) > 0 else -1)
    for index in range(first, len(starts)):
        result = _read_map(
            data, starts[index], limits[index], five, table, params, rows, names, known, finding, children, kinships,
            nulls, cells, copying, scratch, touched, stack, objects, out, np.int64(0), marks, marked, state,
            failure,
        )  # fmt: skip
        if result == 0:
            ends[index] = limits[index]
        elif failure[0] == LEFTOVER:
            ends[index] = failure[1]
        elif failure[0] == NO_ROOM or failure[0] == NO_OBJECTS:
            return np.int64(index)
        else:
            ends[index] = -1
    return np.int64(len(starts))


@kernel
def leave_maps_out(  # type: ignore[no-untyped-def]
    data, starts, limits, by_5, first, finding, table, params, rows, names, known, children, kinships, nulls, cells,
    copying, scratch, touched, stack, objects, out, at, ends, marks, state, failure,
):  # fmt: skip
    """Writes objects with null in the field of the map, from the one with the number `first` on.

    `by_5` says which of them Kryo 5 wrote. `out` is filled up to `at`, and from object to object `ends` says how far.
    Returns how many are done: all, unless one failed.
    """
    for index in range(first, len(starts)):
        if limits[index] - starts[index] == 1 and data[starts[index]] == 0:
            if at + SPARE > len(out):
                fail(failure, NO_ROOM, starts[index], 1)
                return np.int64(index)
            out[at] = 0
            state[OUT_END] = at + 1
        else:
            result = _read_map(
                data, starts[index], limits[index], by_5[index], table, params, rows, names, known, finding, children,
                kinships, nulls, cells, copying, scratch, touched, stack, objects, out, at, marks, np.int64(-1), state,
                failure,
            )  # fmt: skip
            if result < 0:
                return np.int64(index)
        at = state[OUT_END]
        ends[index] = at
    return np.int64(len(starts))


def begin_reading(stack: npt.NDArray[np.int64]) -> None:
    """Forgets the reading of the value before, for `entries_read`."""
    stack[:2, _KIND] = -1


def entries_read(stack: npt.NDArray[np.int64], state: npt.NDArray[np.int64]) -> int | None:
    """Returns how many entries of a map `find_ends` has read as a whole before it failed in a value behind its key.

    None if the key of the next entry isn't there.
    """
    in_field = state[FIELD] == TAKEN
    of_map = stack[1 if in_field else 0]
    if of_map[_KIND] != _MAP_FRAME or of_map[_NEXT] != KEY or of_map[_NODE] != (FIELD_NODE if in_field else 0):
        return None
    return int(state[ENTRIES] - of_map[_LEFT] - 1)
