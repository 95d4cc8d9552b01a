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
| sorted map | Kryo 2: the comparator (with class tag and mark, `00` none), then as a map; Kryo 5: behind the count |
| emptyMap, emptyList | nothing; singletonMap: key and value; singletonList: the element |
| Tuple | its fields, each with class tag, mark, object |
| set | as a list; sorted set, priority queue: as a list, the comparator where a sorted map has it |
| enum | varint number of the constant + 1; in Kryo 5 it has no mark. Flink's: i32 number |
| array of objects | varint n + 1, for each class tag, mark, object; of a final class, mark (`00` null) and object |
| other classes | parts, one after another, as the table of classes says. Flink's POJO: 02, then for each field \
bool isNull and the value |

Only what the Kryo of the version could have written is read: no longer varints than needed, no Kryo 5 map with count 0.
So a value that was read to its end by one Kryo can hardly be read by the other; if it can, both results are compared.

What has no form of Flink's own stays a value of Kryo: at such a node an object is copied, and made whole. Its bytes are
the same but for class tags (the new serializer has other ids, and names are counted anew), and references (counted
anew; an object that stands elsewhere in the map is said again, where the value refers to it first).

Classes are rows of a table, and places in the map (the map, its keys, its values, elements of its values) are nodes. A
reading either holds each class against those that are allowed at a node, or counts which classes occur there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# How a class is read. The first eight are boxed: their objects have no reference mark.
FOREIGN = 0
INTEGER = 1
LONG = 2
SHORT = 3
BYTE = 4
BOOLEAN = 5
CHARACTER = 6
FLOAT = 7
DOUBLE = 8
STRING = 9
BIG_INTEGER = 10
BIG_DECIMAL = 11
MILLIS = 12
TIMESTAMP = 13
LOCAL_DATE = 14
LOCAL_TIME = 15
LOCAL_DATE_TIME = 16
INSTANT = 17
PRIMITIVE_ARRAY = 18  # with the kind of its elements
OBJECT_ARRAY = 19  # with the class of its elements
EMPTY_LIST = 20
SINGLETON_LIST = 21
LIST = 22
FILLED_LIST = 23
AS_LIST = 24
EMPTY_MAP = 25
SINGLETON_MAP = 26
MAP = 27
SORTED_MAP = 28
TUPLE = 29  # with the number of its fields
COMPARATOR = 30
ENUM_COMPARATOR = 31
# What only stays a value of Kryo.
PARTS = 32
ENUM = 33
SET = 34
FILLED_SET = 35
SORTED_SET = 36
ANY_ARRAY = 37

# Parts without tag and mark: of the kinds above up to LOCAL_DATE_TIME, and these.
POSITIVE_INT = 40
POSITIVE_LONG = 41
EIGHT_BYTES = 42
LONGS = 43
ZONE_OFFSET = 44
# Parts that are objects: with a class tag, or of a class that is known.
TAGGED_PART = 50
KNOWN_PART = 51

# Columns of a part: its kind, its class, its context. A context has for each of two type arguments the class, if it is
# final, and the context inside it.
PART_KIND = 0
PART_CLASS = 1
PART_CONTEXT = 2

# What a class of maps can't have.
NO_NULL_KEY = 1
NO_NULL_VALUE = 2

# Columns of a node's children.
ELEMENT = 0
KEY = 1
VALUE = 2
FIELDS = 3
CHILDREN = 13

# Which row of the class table stands for null.
NULL = 0

# Places in `state`, where a reading says what it found.
OUT_END = 0
COUNTED = 1  # whether the map has a count, which the two Kryos write differently
NESTED = 2  # whether anything else in it has other extents by the other Kryo
ENTRIES = 3
NODES = 4
TOUCHED = 5
POSITION = 6  # where a helper has read to
OBJECTS = 7
NAMES = 8
IS_NULL = 9
SERIAL = 10  # of the last copied value, never the same twice
COPIED = 11  # whether anything was copied
COMPARATOR_AT = 12  # where the mark of a comparator is, -1 without one
COMPARATOR_OBJECT = 13  # the object to which it refers, -1 if it is new
NEW_NAMES = 14  # in the copied value
STATES = 15

# What a reading does with the classes that it meets: holds them against those allowed, counts them, or neither.
HOLDING = 0
COUNTING = 1
LOOKING = 2

# A cell says of a class whether it is allowed at a node: 0 no, 1 yes, -k as a number of the wider kind k.

# Columns of an object that may be referred to.
OF_CLASS = 0
OF_NODE = 1
BEGIN = 2
END = 3
SOURCE = 4  # where its content is
OF_VALUE = 5  # the copied value in which it was last, 0 none; its node is -1 then
NEW_NUMBER = 6
OF_CONTEXT = 7
SOURCE_END = 8
NEXT_OBJECT = 9  # how many objects there are behind it
OBJECT_PARTS = 10

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
FRAME_PARTS = 11
DEEPEST = 64

# Kinds of frames.
_MAP_FRAME = 0
_TAGGED_FRAME = 1
_TYPED_FRAME = 2
_TUPLE_FRAME = 3
_PARTS_FRAME = 4

# The class of the first element that isn't null, if all elements must not have the same one; else one of these.
_NONE_YET = -1
_ANY = -2

# The flag of a POJO in Flink's form, that is of the class itself.
POJO_ITSELF = 2

MOST_NAMES = 64
MOST_NODES = 1024

# Why a reading failed.
TRUNCATED = 1
BAD_VARINT = 2
BAD_STRING = 3
BAD_COUNT = 4
BAD_MARK = 5
BAD_REFERENCE = 6
CYCLE = 7
TOO_DEEP = 8
LEFTOVER = 9
BAD_CONTENT = 10
FOREIGN_CLASS = 11
WRONG_CLASS = 12
TOO_MANY_NAMES = 13
TOO_MANY_NODES = 14
TOO_LARGE = 15
AMBIGUOUS = 16
BAD_TAG = 17
NO_ROOM = 18
NO_OBJECTS = 19
NULL_PART = 20
BAD_COMPARATOR = 21
NO_MARKS = 22
TWO_CONTEXTS = 23

# What is said of a value.
KRYO_2 = 1
KRYO_5 = 2
NULL_MAP = 4
EMPTY_MAP_FLAG = 8
STOPPED = 16

# Of Java's Instant.MIN and MAX.
_FIRST_SECOND = -31557014167219200
_LAST_SECOND = 31556889864403199

_MOST_GROWTH = 64
_FREE_GROWTH = 1 << 20
_HIGH = np.uint64(0x8080808080808080)
_SPARE = 64

_njit: Any = njit
_kernel: Any = _njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
_intrinsic: Any = intrinsic
_inlined: Any = _njit(inline="always", error_model="numpy", _nrt=False)


@_intrinsic  # type: ignore[untyped-decorator]
def _load64(_context: Any, data: Any, position: Any) -> Any:
    """Loads eight bytes at once, in the machine's (little-endian) order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())
        loaded = builder.load(pointer)
        loaded.align = 1
        return loaded

    return types.uint64(data, position), generate


@_intrinsic  # type: ignore[untyped-decorator]
def _store64(_context: Any, data: Any, position: Any, word: Any) -> Any:
    """Stores eight bytes at once, in the machine's (little-endian) order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())
        stored = builder.store(arguments[2], pointer)
        stored.align = 1
        return context.get_dummy_value()

    return types.void(data, position, types.uint64), generate


@_intrinsic  # type: ignore[untyped-decorator]
def _swapped(_context: Any, word: Any) -> Any:
    """Returns the eight bytes in the other order."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bswap(arguments[0])

    return types.uint64(types.uint64), generate


@_intrinsic  # type: ignore[untyped-decorator]
def _zeros_below(_context: Any, word: Any) -> Any:
    """Returns the number of zero bits below the lowest one bit of a word that isn't 0."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@_inlined
def _fail(failure, code, position, detail):  # type: ignore[no-untyped-def]
    failure[0] = code
    failure[1] = position
    failure[2] = detail
    return np.int64(-1)


@_inlined
def _put32(out, at, number):  # type: ignore[no-untyped-def]
    word = np.uint64(number)
    out[at] = np.uint8(word >> np.uint64(24) & np.uint64(0xFF))
    out[at + 1] = np.uint8(word >> np.uint64(16) & np.uint64(0xFF))
    out[at + 2] = np.uint8(word >> np.uint64(8) & np.uint64(0xFF))
    out[at + 3] = np.uint8(word & np.uint64(0xFF))


@_inlined
def _put64(out, at, number):  # type: ignore[no-untyped-def]
    _store64(out, at, _swapped(np.uint64(number)))


@_inlined
def _copy(data, start, out, at, size):  # type: ignore[no-untyped-def]
    while size >= 8:
        _store64(out, at, _load64(data, start))
        start += 8
        at += 8
        size -= 8
    for offset in range(size):
        out[at + offset] = data[start + offset]


@_kernel
def _read_varint(data, position, limit, failure):  # type: ignore[no-untyped-def]
    """Reads 32 bits without a sign. Returns the number and the position behind it, which is negative on failure."""
    start = position
    number = np.int64(0)
    for shift in range(0, 35, 7):
        if position >= limit:
            return number, _fail(failure, TRUNCATED, start, 1)
        byte = np.int64(data[position])
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if (byte == 0 and shift > 0) or number > 0xFFFFFFFF:
                return number, _fail(failure, BAD_VARINT, start, 0)
            return number, position
    return number, _fail(failure, BAD_VARINT, start, 0)


@_kernel
def _read_long(data, position, limit, failure):  # type: ignore[no-untyped-def]
    """Reads 64 bits. Returns them and the position behind them, which is negative on failure."""
    start = position
    number = np.uint64(0)
    for index in range(9):
        if position >= limit:
            return number, _fail(failure, TRUNCATED, start, 1)
        byte = np.uint64(data[position])
        position += 1
        last = index == 8 or byte < 0x80
        number |= (byte if index == 8 else byte & np.uint64(0x7F)) << np.uint64(7 * index)
        if last:
            if byte == 0 and index > 0:
                return number, _fail(failure, BAD_VARINT, start, 0)
            return number, position
    return number, position


@_inlined
def _varint(data, position, limit, failure):  # type: ignore[no-untyped-def]
    if position < limit and data[position] < 0x80:
        number = np.int64(data[position])
        position += 1
    else:
        number, position = _read_varint(data, position, limit, failure)
    return number, position


@_inlined
def _long(data, position, limit, failure):  # type: ignore[no-untyped-def]
    if position + 1 < limit and data[position] >= 0x80 and 0 < data[position + 1] < 0x80:
        number = np.uint64(data[position] & 0x7F) | np.uint64(data[position + 1]) << np.uint64(7)
        position += 2
    elif position < limit and data[position] < 0x80:
        number = np.uint64(data[position])
        position += 1
    else:
        number, position = _read_long(data, position, limit, failure)
    return number, position


@_inlined
def _unzigzag(number):  # type: ignore[no-untyped-def]
    return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))


@_kernel
def _read_flagged(data, position, limit, failure):  # type: ignore[no-untyped-def]
    """Reads a varint whose first byte has a flag in bit 7 and 6 bits; the caller looks at the flag."""
    start = position
    if position >= limit:
        return np.int64(0), _fail(failure, TRUNCATED, start, 1)
    byte = np.int64(data[position])
    number = byte & 0x3F
    position += 1
    if not byte & 0x40:
        return number, position
    for shift in range(6, 34, 7):
        if position >= limit:
            return number, _fail(failure, TRUNCATED, start, 1)
        byte = np.int64(data[position])
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 or number > 0x7FFFFFFF:
                return number, _fail(failure, BAD_VARINT, start, 0)
            return number, position
    return number, _fail(failure, BAD_VARINT, start, 0)


@_kernel
def _wide_string(data, position, limit, five, out, at, room, state, failure):  # type: ignore[no-untyped-def]
    """Writes a String that is stored with its length. Returns where it ends in `out`."""
    start = position
    units, position = _read_flagged(data, position, limit, failure)
    if position < 0:
        return position
    if units == 0:
        return _fail(failure, BAD_STRING, start, 0)
    count = units - 1
    if count > limit - position:
        return _fail(failure, TRUNCATED, start, count)
    if at + 3 * count + 16 > room:
        return _fail(failure, NO_ROOM, start, 3 * count)
    while units >= 0x80:
        out[at] = np.uint8(units & 0x7F | 0x80)
        units >>= 7
        at += 1
    out[at] = np.uint8(units)
    at += 1
    left = count
    while left >= 8 and position + 8 <= limit and _load64(data, position) & _HIGH == 0:
        _store64(out, at, _load64(data, position))
        position += 8
        at += 8
        left -= 8
    ascii_only = True
    for _ in range(left):
        if position >= limit:
            return _fail(failure, TRUNCATED, start, count)
        byte = np.int64(data[position])
        if byte < 0x80:
            out[at] = np.uint8(byte)
            position += 1
            at += 1
            continue
        ascii_only = False
        if byte >> 5 == 0b110:
            more = 1
            unit = byte & 0x1F
        elif byte >> 4 == 0b1110:
            more = 2
            unit = byte & 0x0F
        else:
            return _fail(failure, BAD_STRING, position, byte)
        if limit - position <= more:
            return _fail(failure, TRUNCATED, start, count)
        for _more in range(more):
            position += 1
            byte = np.int64(data[position])
            if byte >> 6 != 0b10:
                return _fail(failure, BAD_STRING, position, byte)
            unit = unit << 6 | byte & 0x3F
        position += 1
        if unit < (0x80 if more == 1 else 0x800):
            return _fail(failure, BAD_STRING, position, unit)
        while unit >= 0x80:
            out[at] = np.uint8(unit & 0x7F | 0x80)
            unit >>= 7
            at += 1
        out[at] = np.uint8(unit)
        at += 1
    if ascii_only and 1 < count <= (32 if five else 63):
        return _fail(failure, BAD_STRING, start, count)
    state[POSITION] = position
    return at


@_kernel
def _string(data, position, limit, five, out, at, room, state, failure):  # type: ignore[no-untyped-def]
    """Writes a String as Flink does: varint length + 1, each unit as varint. Returns where it ends in `out`."""
    if position >= limit:
        return _fail(failure, TRUNCATED, position, 1)
    if data[position] >= 0x80:
        return _wide_string(data, position, limit, five, out, at, room, state, failure)
    if at + 80 > room:
        return _fail(failure, NO_ROOM, position, 80)
    most = 32 if five else 63
    start = position
    begin = at
    at += 1
    size = np.int64(0)
    while size <= most:
        if position + 8 <= len(data):
            word = _load64(data, position)
            high = word & _HIGH
            _store64(out, at + size, word & ~_HIGH)
            if high == 0:
                size += 8
                position += 8
                continue
            step = np.int64(_zeros_below(high) >> np.uint64(3)) + 1
            size += step
            position += step
        else:
            ended = False
            while not ended:
                if position >= limit or size > most:
                    return _fail(failure, TRUNCATED, start, 1)
                byte = data[position]
                out[at + size] = byte & 0x7F
                ended = byte >= 0x80
                size += 1
                position += 1
        if position > limit:
            return _fail(failure, TRUNCATED, start, 1)
        if size < 2 or size > most:
            return _fail(failure, BAD_STRING, start, size)
        out[begin] = np.uint8(size + 1)
        state[POSITION] = position
        return at + size
    return _fail(failure, TRUNCATED if position > limit else BAD_STRING, start, size)


@_kernel
def _row_of(data, at, size, code, slots, extents, names):  # type: ignore[no-untyped-def]
    """Returns the row of the class with this name and its hash, -1 if there is none."""
    slot = np.int64((code ^ code >> np.uint64(32)) & np.uint64(len(slots) - 1))
    while slots[slot] >= 0:
        found = np.int64(slots[slot])
        if extents[found, 1] == size:
            same = True
            for index in range(size):
                same = same and names[extents[found, 0] + index] == data[at + index] & 0x7F
            if same:
                return found
        slot = (slot + 1) & (len(slots) - 1)
    return np.int64(-1)


@_kernel
def _read_class(data, position, limit, five, table, names, known, foreign_too, state, failure):  # type: ignore[no-untyped-def]
    """Reads a class tag. Returns the row of the class (0 null), or a negative number on failure.

    `known` has for each name id of this value the row, where the name is and where it ends. `state` gets the position
    behind the tag.
    A class that can't be read is its row, or 0 without one, if it may occur here, else a failure.
    """
    start = position
    kinds, ids, slots, extents = table
    tag, position = _varint(data, position, limit, failure)
    if position < 0:
        return position
    if tag == 0:
        state[POSITION] = position
        return np.int64(NULL)
    if tag > 1:
        version = 1 if five else 0
        row = np.int64(ids[version, tag - 2]) if tag - 2 < ids.shape[1] else np.int64(-1)
        if row < 0:
            return _fail(failure, BAD_TAG, start, tag - 2)
        if kinds[version, row] == FOREIGN and not foreign_too:
            return _fail(failure, FOREIGN_CLASS, start, -1 - row)
        state[POSITION] = position
        return row
    name, position = _varint(data, position, limit, failure)
    if position < 0:
        return position
    if name > state[NAMES]:
        return _fail(failure, BAD_TAG, start, name)
    if name == state[NAMES]:
        if name == MOST_NAMES:
            return _fail(failure, TOO_MANY_NAMES, start, name)
        at = position
        row = np.int64(-1)
        if position < limit and data[position] >= 0x80:
            count, position = _read_flagged(data, position, limit, failure)
            if position < 0:
                return position
            if count < 2 or count - 1 > limit - position:
                return _fail(failure, TRUNCATED, at, count)
            code = np.uint64(14695981039346656037)
            for index in range(count - 1):
                code = (code ^ np.uint64(data[position + index] & 0x7F)) * np.uint64(1099511628211)
            row = _row_of(data, position, count - 1, code, slots, extents, names)
            position += count - 1
        else:
            code = np.uint64(14695981039346656037)
            byte = np.uint8(0)
            while byte < 0x80:
                if position >= limit:
                    return _fail(failure, TRUNCATED, at, 1)
                byte = data[position]
                position += 1
                code = (code ^ np.uint64(byte & 0x7F)) * np.uint64(1099511628211)
            row = _row_of(data, at, position - at, code, slots, extents, names)
        known[name, 0] = row
        known[name, 1] = at
        known[name, 2] = position
        state[NAMES] += 1
    elif known[name, 1] == position:
        # An object is read again.
        position = known[name, 2]
    row = known[name, 0]
    state[POSITION] = position
    if (row < 0 or kinds[1 if five else 0, row] == FOREIGN) and not foreign_too:
        return _fail(failure, FOREIGN_CLASS, start, known[name, 1])
    return max(row, np.int64(NULL))


@_kernel
def _number(kind, data, position, limit, five, out, at, state, failure):  # type: ignore[no-untyped-def]
    """Writes a boxed primitive, or an element of a primitive array. Returns where it ends in `out`."""
    if kind == INTEGER:
        number, end = _varint(data, position, limit, failure)
        if end < 0:
            return end
        _put32(out, at, _unzigzag(np.uint64(number)))
        state[POSITION] = end
        return at + 4
    if kind == LONG:
        word, end = _long(data, position, limit, failure)
        if end < 0:
            return end
        _put64(out, at, _unzigzag(word))
        state[POSITION] = end
        return at + 8
    size = 1 if kind in (BYTE, BOOLEAN) else 2 if kind in (SHORT, CHARACTER) else 4 if kind == FLOAT else 8
    if size > limit - position:
        return _fail(failure, TRUNCATED, position, size)
    if kind == BOOLEAN and data[position] > 1:
        return _fail(failure, BAD_CONTENT, position, np.int64(data[position]))
    for index in range(size):
        out[at + index] = data[position + (size - 1 - index if five else index)]
    if kind >= FLOAT and out[at] & 0x7F == 0x7F and out[at + 1] >= (0x80 if kind == FLOAT else 0xF0):
        # Java writes only one NaN.
        rest = np.int64(0)
        for index in range(2, size):
            rest |= np.int64(out[at + index])
        infinite = out[at + 1] == (0x80 if kind == FLOAT else 0xF0)
        nan = out[at] == 0x7F and out[at + 1] == (0xC0 if kind == FLOAT else 0xF8)
        if rest != 0 or not (infinite or nan):
            return _fail(failure, BAD_CONTENT, position, rest)
    state[POSITION] = position + size
    return at + size


@_kernel
def _big_number(kind, data, position, limit, out, at, room, state, failure):  # type: ignore[no-untyped-def]
    """Writes a BigInteger or BigDecimal: i32 1, 2, 3 for 0, 1, 10, else 4 + size and the bytes; then an i32 scale."""
    start = position
    size, position = _varint(data, position, limit, failure)
    if position < 0:
        return position
    size -= 1
    if size <= 0:
        return _fail(failure, BAD_CONTENT, start, size)
    if size > limit - position:
        return _fail(failure, TRUNCATED, start, size)
    if size > 1:
        first = data[position]
        if (first == 0 and data[position + 1] < 0x80) or (first == 0xFF and data[position + 1] >= 0x80):
            return _fail(failure, BAD_CONTENT, start, size)
    if at + size + _SPARE > room:
        return _fail(failure, NO_ROOM, start, size)
    only = np.int64(data[position]) if size == 1 else np.int64(-1)
    if only == 0 or only == 1 or only == 10:
        _put32(out, at, 3 if only == 10 else only + 1)
        at += 4
    else:
        _put32(out, at, size + 4)
        _copy(data, position, out, at + 4, size)
        at += 4 + size
    position += size
    if kind == BIG_DECIMAL:
        scale, position = _varint(data, position, limit, failure)
        if position < 0:
            return position
        _put32(out, at, _unzigzag(np.uint64(scale)))
        at += 4
    state[POSITION] = position
    return at


@_kernel
def _put_date(year, month, day, start, out, at, failure):  # type: ignore[no-untyped-def]
    if not (1 <= month <= 12 and 1 <= day <= 31 and -999999999 <= year <= 999999999):
        return _fail(failure, BAD_CONTENT, start, month)
    if month == 2:
        last = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    else:
        last = 30 if month in (4, 6, 9, 11) else 31
    if day > last:
        return _fail(failure, BAD_CONTENT, start, day)
    _put32(out, at, year)
    out[at + 4] = np.uint8(month)
    out[at + 5] = np.uint8(day)
    return at + 6


@_kernel
def _put_time(hour, minute, second, nano, start, out, at, failure):  # type: ignore[no-untyped-def]
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= nano < 1000000000):
        return _fail(failure, BAD_CONTENT, start, hour)
    out[at] = np.uint8(hour)
    out[at + 1] = np.uint8(minute)
    out[at + 2] = np.uint8(second)
    _put32(out, at + 3, nano)
    return at + 7


@_kernel
def _date(data, position, limit, five, out, at, state, failure):  # type: ignore[no-untyped-def]
    start = position
    if five:
        year, position = _varint(data, position, limit, failure)
        if position < 0:
            return position
        if limit - position < 2:
            return _fail(failure, TRUNCATED, start, 2)
        state[POSITION] = position + 2
        year = np.int64(np.int32(np.uint32(year)))
        return _put_date(year, np.int64(data[position]), np.int64(data[position + 1]), start, out, at, failure)
    if limit - position < 5:
        return _fail(failure, TRUNCATED, start, 5)
    if data[position] != 0 or data[position + 2] != 0:
        return _fail(failure, BAD_CONTENT, start, 0)
    zigzag, end = _varint(data, position + 4, limit, failure)
    if end < 0:
        return end
    state[POSITION] = end
    year = _unzigzag(np.uint64(zigzag))
    return _put_date(year, np.int64(data[position + 3]), np.int64(data[position + 1]), start, out, at, failure)


@_kernel
def _time(data, position, limit, five, out, at, state, failure):  # type: ignore[no-untyped-def]
    start = position
    hour = minute = second = nano = np.int64(0)
    if five:
        # Each part that is inverted is the last one; only the first may be 0 then.
        for index in range(3):
            if position >= limit:
                return _fail(failure, TRUNCATED, start, 1)
            part = np.int64(np.int8(data[position]))
            position += 1
            last = part < 0
            part = ~part if last else part
            if last and part == 0 and index > 0:
                return _fail(failure, BAD_CONTENT, start, 0)
            if index == 0:
                hour = part
            elif index == 1:
                minute = part
            else:
                second = part
            if last:
                state[POSITION] = position
                return _put_time(hour, minute, second, nano, start, out, at, failure)
        nano, position = _varint(data, position, limit, failure)
        if position < 0:
            return position
        if nano == 0:
            return _fail(failure, BAD_CONTENT, start, 0)
        state[POSITION] = position
        return _put_time(hour, minute, second, nano, start, out, at, failure)
    if limit - position < 4:
        return _fail(failure, TRUNCATED, start, 4)
    hour = np.int64(data[position])
    minute = np.int64(data[position + 1])
    zigzag, position = _varint(data, position + 2, limit, failure)
    if position < 0:
        return position
    if position >= limit:
        return _fail(failure, TRUNCATED, start, 1)
    state[POSITION] = position + 1
    nano = _unzigzag(np.uint64(zigzag))
    return _put_time(hour, minute, np.int64(data[position]), nano, start, out, at, failure)


@_kernel
def _shared_part(kind, row, data, position, limit, node, out, at, objects, state, failure):  # type: ignore[no-untyped-def]
    """Writes the date or the time of a LocalDateTime of Kryo 2, an object with a mark. Returns as `_string`."""
    start = position
    mark, position = _varint(data, position, limit, failure)
    if position < 0:
        return position
    if mark == 0:
        return _fail(failure, BAD_MARK, start, 0)
    number = state[OBJECTS]
    if mark > 1:
        if mark - 2 >= number or objects[mark - 2, OF_CLASS] != row:
            return _fail(failure, BAD_REFERENCE, start, mark - 2)
        begin = objects[mark - 2, SOURCE]
        if kind == LOCAL_DATE:
            end = _date(data, begin, limit, False, out, at, state, failure)
        else:
            end = _time(data, begin, limit, False, out, at, state, failure)
        state[POSITION] = position
        return end
    state[OBJECTS] += 1
    objects[number, SOURCE] = position
    objects[number, OF_VALUE] = 0
    if kind == LOCAL_DATE:
        end = _date(data, position, limit, False, out, at, state, failure)
    else:
        end = _time(data, position, limit, False, out, at, state, failure)
    objects[number, OF_CLASS] = row
    objects[number, OF_NODE] = node
    objects[number, BEGIN] = at
    objects[number, END] = end
    return end


@_kernel
def _moment(kind, rows, data, position, limit, five, node, out, at, objects, state, failure):  # type: ignore[no-untyped-def]
    """Writes a date, a time or a moment. `rows` are those of LocalDate and LocalTime. Returns as `_string`."""
    start = position
    if kind == LOCAL_DATE:
        return _date(data, position, limit, five, out, at, state, failure)
    if kind == LOCAL_TIME:
        return _time(data, position, limit, five, out, at, state, failure)
    if kind == LOCAL_DATE_TIME and five:
        at = _date(data, position, limit, five, out, at, state, failure)
        return at if at < 0 else _time(data, state[POSITION], limit, five, out, at, state, failure)
    if kind == LOCAL_DATE_TIME:
        at = _shared_part(LOCAL_DATE, rows[0], data, position, limit, node, out, at, objects, state, failure)
        if at < 0:
            return at
        return _shared_part(LOCAL_TIME, rows[1], data, state[POSITION], limit, node, out, at, objects, state, failure)
    if kind == INSTANT and not five:
        zigzag, position = _varint(data, position, limit, failure)
        if position < 0:
            return position
        nano = _unzigzag(np.uint64(zigzag))
        word, position = _long(data, position, limit, failure)
        if position < 0:
            return position
        first = _unzigzag(word)
    else:
        word, position = _long(data, position, limit, failure)
        if position < 0:
            return position
        first = np.int64(word)
        nano = np.int64(0)
        if kind != MILLIS:
            nano, position = _varint(data, position, limit, failure)
            if position < 0:
                return position
    if nano < 0 or nano > 999999999:
        return _fail(failure, BAD_CONTENT, start, nano)
    if kind == INSTANT and not _FIRST_SECOND <= first <= _LAST_SECOND:
        return _fail(failure, BAD_CONTENT, start, first)
    if kind == TIMESTAMP:
        if first % 1000 != (0 if five else nano // 1000000):
            return _fail(failure, BAD_CONTENT, start, nano)
        if five:
            first += nano // 1000000
    _put64(out, at, first)
    at += 8
    if kind != MILLIS:
        _put32(out, at, nano)
        at += 4
    state[POSITION] = position
    return at


@_kernel
def _primitive_array(kind, data, position, limit, five, out, at, room, state, failure):  # type: ignore[no-untyped-def]
    """Writes an array of primitives: i32 size, the elements. Returns as `_string`."""
    start = position
    size, position = _varint(data, position, limit, failure)
    if position < 0:
        return position
    size -= 1
    if size < 0 or size > limit - position:
        return _fail(failure, BAD_COUNT, start, size)
    if at + 8 * size + _SPARE > room:
        return _fail(failure, NO_ROOM, start, 8 * size)
    _put32(out, at, size)
    at += 4
    for _ in range(size):
        at = _number(kind, data, position, limit, five, out, at, state, failure)
        if at < 0:
            return at
        position = state[POSITION]
    state[POSITION] = position
    return at


@_kernel
def _scalar(kind, param, rows, data, position, limit, five, node, out, at, room, objects, state, failure):  # type: ignore[no-untyped-def]
    """Writes an object that has no parts of its own. Returns where it ends in `out`."""
    if kind == STRING:
        return _string(data, position, limit, five, out, at, room, state, failure)
    if kind <= DOUBLE:
        return _number(kind, data, position, limit, five, out, at, state, failure)
    if kind in (BIG_INTEGER, BIG_DECIMAL):
        return _big_number(kind, data, position, limit, out, at, room, state, failure)
    if kind == PRIMITIVE_ARRAY:
        return _primitive_array(param, data, position, limit, five, out, at, room, state, failure)
    if kind != MILLIS and kind != TIMESTAMP:
        state[NESTED] = 1
    return _moment(kind, rows, data, position, limit, five, node, out, at, objects, state, failure)


@_kernel
def _widened(out, end, kind, wide):  # type: ignore[no-untyped-def]
    """Makes a wider number of the one before `end`, a float of which becomes the double with the same value."""
    size = 1 if kind == BYTE else 2 if kind == SHORT else 4
    begin = end - size
    number = np.int64(0)
    for index in range(begin, end):
        number = number << 8 | np.int64(out[index])
    if kind != FLOAT:
        number -= (number >> (8 * size - 1)) << (8 * size)
    else:
        sign, exponent, fraction = number >> 31, number >> 23 & 0xFF, number & 0x7FFFFF
        if exponent == 255 and fraction != 0:
            # Java has one bit pattern for all that is not a number.
            sign, exponent, fraction = np.int64(0), np.int64(255), np.int64(0x400000)
        if exponent == 0 and fraction != 0:
            exponent = np.int64(1)
            while not fraction & 0x800000:
                fraction <<= 1
                exponent -= 1
            fraction &= 0x7FFFFF
            exponent += 896
        elif exponent != 0:
            exponent = np.int64(2047) if exponent == 255 else exponent + 896
        number = sign << 63 | exponent << 52 | fraction << 29
    if wide == INTEGER:
        _put32(out, begin, number)
        return begin + 4
    _put64(out, begin, number)
    return begin + 8


@_kernel
def _comparator(data, position, limit, five, table, names, known, node, objects, state, failure):  # type: ignore[no-untyped-def]
    """Reads a comparator of the JDK. Returns the position behind it; `state` says what a copy must know."""
    start = position
    state[COMPARATOR_AT] = -1
    state[COMPARATOR_OBJECT] = -1
    row = _read_class(data, position, limit, five, table, names, known, False, state, failure)
    if row < 0:
        return row
    position = state[POSITION]
    if row == NULL:
        return position
    kind = table[0][1 if five else 0, row]
    if kind != COMPARATOR and kind != ENUM_COMPARATOR:
        return _fail(failure, BAD_COMPARATOR, start, row)
    if kind == COMPARATOR or not five:
        state[COMPARATOR_AT] = position
        mark, position = _varint(data, position, limit, failure)
        if position < 0:
            return position
        number = state[OBJECTS]
        if mark == 0 or mark - 2 >= number or (mark > 1 and objects[mark - 2, OF_CLASS] != row):
            return _fail(failure, BAD_REFERENCE, start, mark - 2)
        if mark > 1:
            state[COMPARATOR_OBJECT] = mark - 2
            return position
        objects[number, SOURCE] = position
        objects[number, OF_VALUE] = 0
        objects[number, OF_CLASS] = row
        objects[number, OF_NODE] = node
        objects[number, BEGIN] = 0
        objects[number, END] = 0
        state[OBJECTS] += 1
    if kind == ENUM_COMPARATOR:
        if position >= limit or data[position] != 1:
            return _fail(failure, BAD_COMPARATOR, start, row)
        position += 1
    return position


@_inlined
def _child(children, state, node, column, finding, failure, position):  # type: ignore[no-untyped-def]
    child = children[node, column]
    if child < 0:
        if finding == HOLDING or state[NODES] >= len(children):
            child = _fail(failure, TOO_MANY_NODES, position, 0)
        else:
            child = state[NODES]
            children[node, column] = child
            state[NODES] += 1
    return child


@_inlined
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


@_inlined
def _put_varint(out, at, number):  # type: ignore[no-untyped-def]
    while number >= 0x80:
        out[at] = np.uint8(number & 0x7F | 0x80)
        number >>= 7
        at += 1
    out[at] = np.uint8(number)
    return at + 1


@_kernel
def _flush(data, start, end, out, at, room, failure):  # type: ignore[no-untyped-def]
    """Copies what was passed since the last time. Returns where it ends in `out`."""
    if at + end - start + _SPARE > room:
        return _fail(failure, NO_ROOM, start, end - start)
    _copy(data, start, out, at, end - start)
    return at + end - start


@_kernel
def _put_class(row, ids, said, pool, extents, five, out, at, room, state, failure):  # type: ignore[no-untyped-def]
    """Writes a class tag of a copied value. `said` has for each class in which value it was named last, and its id."""
    if ids[row] >= 0:
        return _put_varint(out, at, ids[row] + 2)
    out[at] = 1
    at += 1
    if said[row, 0] == state[SERIAL]:
        return _put_varint(out, at, said[row, 1])
    said[row, 0] = state[SERIAL]
    said[row, 1] = state[NEW_NAMES]
    state[NEW_NAMES] += 1
    first, size = extents[row, 0], extents[row, 1]
    if at + size + _SPARE > room:
        return _fail(failure, NO_ROOM, at, size)
    at = _put_varint(out, at, said[row, 1])
    short = size > 1 and (five or size <= 63)
    if not short:
        length = size + 1
        out[at] = np.uint8(length & 0x3F | (0xC0 if length > 0x3F else 0x80))
        at += 1
        if length > 0x3F:
            at = _put_varint(out, at, length >> 6)
    for index in range(size):
        out[at + index] = pool[first + index]
    at += size
    if short:
        out[at - 1] |= 0x80
    return at


@_kernel
def _part(kind, rows, data, position, limit, five, out, at, room, objects, state, failure):  # type: ignore[no-untyped-def]
    """Passes a part that has no tag and no mark. Returns the position behind it."""
    start = position
    if kind == POSITIVE_INT:
        _, position = _varint(data, position, limit, failure)
        return position
    if kind == POSITIVE_LONG:
        _, position = _long(data, position, limit, failure)
        return position
    if kind < POSITIVE_INT:
        end = _scalar(kind, 0, rows, data, position, limit, five, -1, out, at, room, objects, state, failure)
        return end if end < 0 else state[POSITION]
    size = np.int64(8)
    if kind == LONGS:
        size, position = _varint(data, position, limit, failure)
        if position < 0:
            return position
        size *= 8
    elif kind == ZONE_OFFSET:
        size = 5 if position < limit and data[position] == 127 else 1  # type: ignore[assignment]
    if size > limit - position:
        return _fail(failure, TRUNCATED, start, size)
    return position + size


@_kernel
def _copied_comparator(  # type: ignore[no-untyped-def]
    data, start, flushed, five, table, names, known, ids, said, objects, new_objects, out, at, room, state, failure,
):  # fmt: skip
    """Copies the comparator at `start`, which was passed. Returns the ends in `out` and `data`, and a count."""
    mark, number = state[COMPARATOR_AT], state[COMPARATOR_OBJECT]
    at = _flush(data, flushed, start, out, at, room, failure)
    if at < 0:
        return at, flushed, new_objects
    row = _read_class(data, start, len(data), five, table, names, known, False, state, failure)
    flushed = state[POSITION]
    at = _put_class(row, ids, said, names, table[3], five, out, at, room, state, failure)
    if at < 0 or mark < 0:
        return at, flushed, new_objects
    if number >= 0:
        _, flushed = _varint(data, mark, len(data), failure)
        if objects[number, OF_VALUE] == state[SERIAL]:
            at = _put_varint(out, at, objects[number, NEW_NUMBER] + 2)
            return at, flushed, new_objects
        at = _put_varint(out, at, 1)
        if table[0][1 if five else 0, row] == ENUM_COMPARATOR:
            out[at] = 1
            at += 1
    else:
        number = state[OBJECTS] - 1
    objects[number, OF_NODE] = -1
    objects[number, OF_VALUE] = state[SERIAL]
    objects[number, NEW_NUMBER] = new_objects
    return at, flushed, new_objects + 1


@_kernel
def _read_map(  # type: ignore[no-untyped-def]
    data, position, limit, five, table, params, rows, names, known, finding, children, kinships, nulls, cells, copying,
    scratch, touched, stack, objects, out, begin, marks, marked, state, failure,
):  # fmt: skip
    """Reads one value by one Kryo, and writes it to `out` from `begin`. Returns 0, or a negative number on failure.

    `kinships` says which nodes have the same type, `nulls` how many zero bytes a null is at a node that has no flag.
    `copying` has: for each node whether it is a copy and by which serializer, the class ids of these serializers, the
    classes that were named, the kinds of classes in copies, the parts of a class and all parts, which classes have
    other extents by the other Kryo, and the contexts: type arguments of fields, by which Kryo drops tags of elements.
    """
    kinds = table[0]
    copies, new_ids, said, copied_kinds, spans, parts, differs, contexts = copying
    version = 1 if five else 0
    room = len(out) - _SPARE
    most = begin + _MOST_GROWTH * (limit - position) + _FREE_GROWTH
    state[COUNTED] = 0
    state[NESTED] = 0
    state[ENTRIES] = 0
    state[OBJECTS] = 0
    state[NAMES] = 0
    state[IS_NULL] = 0
    state[COPIED] = 0
    at = begin
    depth = 0
    node = np.int64(0)
    # How the next object is stored: its class if it has no tag, whether it may be null nevertheless; 1: a flag says in
    # Flink's bytes whether it is null, 2: whether it is not.
    fixed = np.int64(-1)
    marked_too = False
    context = np.int64(0)
    flag = 0
    # The copied value: the depth at which it began (-1: none), its serializer, its objects, how far it is written.
    base = -1
    copier = np.int64(0)
    new_objects = np.int64(0)
    flushed = np.int64(0)
    while True:
        if at + _SPARE > room:
            return _fail(failure, NO_ROOM, position, 0)
        if at > most:
            return _fail(failure, TOO_LARGE, position, 0)
        if state[OBJECTS] + 4 > len(objects):
            return _fail(failure, NO_OBJECTS, position, 0)
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
                row = _read_class(data, position, limit, five, table, names, known, False, state, failure)
                if row < 0:
                    return row
                position = state[POSITION]
        kind = np.int64(kinds[version, row])
        # Whether it can be referred to.
        shared = kind == FOREIGN or (kind > DOUBLE and not (five and kind == ENUM))
        behind_tag = position
        mark = np.int64(1)
        if row != NULL and (shared or marked_too):
            mark, position = _varint(data, position, limit, failure)
            if position < 0:
                return position
            if mark == 0:
                if not marked_too:
                    return _fail(failure, BAD_MARK, start, 0)
                row = np.int64(NULL)
            elif not shared and mark != 1:
                return _fail(failure, BAD_MARK, start, mark)
        if row == NULL and depth > 0 and stack[depth - 1, _KIND] == _MAP_FRAME:
            never = params[objects[stack[depth - 1, _OBJECT], OF_CLASS]]
            if never & (NO_NULL_KEY if stack[depth - 1, _NEXT] == VALUE else NO_NULL_VALUE):
                return _fail(failure, BAD_CONTENT, start, 0)
        if row != NULL and kind == FOREIGN:
            return _fail(failure, FOREIGN_CLASS, start, -1 - row)
        if depth > 0 and stack[depth - 1, _KIND] == _TAGGED_FRAME and row != NULL:
            first = stack[depth - 1, _FIRST]
            if first == _NONE_YET:
                stack[depth - 1, _FIRST] = row
            elif first >= 0 and (first != row or kind == ENUM):
                stack[depth - 1, _FIRST] = _ANY
        if base < 0:
            if not _note(cells, scratch, touched, state, finding, node, row):
                if row == NULL:
                    return _fail(failure, NULL_PART, start, node)
                return _fail(failure, WRONG_CLASS, start, node << 32 | row)
            if flag > 0:
                out[at] = np.uint8(flag - 1 if row != NULL else 2 - flag)
                at += 1
            # Where an enum or a class of the job has a form of Flink's own, it is held against that.
            only_copied = kind > ENUM_COMPARATOR and not (finding == HOLDING and kind in (PARTS, ENUM))
            if row != NULL and (only_copied or copies[node] >= 0):
                base = depth
                copier = max(copies[node], np.int64(0))
                new_objects = np.int64(0)
                state[SERIAL] += 1
                state[NEW_NAMES] = 0
                state[COPIED] = 1
                at = _put_class(row, new_ids[copier], said, names, table[3], five, out, at, room, state, failure)
                if at < 0:
                    return at
                flushed = behind_tag if shared else position
        elif fixed < 0 and row != NULL:
            at = _flush(data, flushed, start, out, at, room, failure)
            if at >= 0:
                at = _put_class(row, new_ids[copier], said, names, table[3], five, out, at, room, state, failure)
            if at < 0:
                return at
            flushed = behind_tag
        if base >= 0:
            kind = np.int64(copied_kinds[version, row])
        back = np.int64(-1)
        back_objects = np.int64(0)
        there = row == NULL
        if there and base < 0:
            if depth == 0:
                state[IS_NULL] = 1
                _put32(out, at, 0)
                at += 4
            elif flag == 0:
                for _ in range(nulls[node]):
                    out[at] = 0
                    at += 1
        elif mark > 1:
            number = mark - 2
            if number >= state[OBJECTS] or objects[number, OF_CLASS] != row:
                return _fail(failure, BAD_REFERENCE, start, number)
            first, end = objects[number, BEGIN], objects[number, END]
            again = True
            if base >= 0:
                at = _flush(data, flushed, behind_tag, out, at, room, failure)
                if at < 0:
                    return at
                flushed = position
                again = objects[number, OF_VALUE] != state[SERIAL]
                at = _put_varint(out, at, 1 if again else objects[number, NEW_NUMBER] + 2)
            if again and end < 0:
                return _fail(failure, CYCLE, start, number)
            if again and base < 0 and objects[number, OF_NODE] >= 0:
                again = False
                if kind >= OBJECT_ARRAY and finding == HOLDING and kinships[objects[number, OF_NODE]] != kinships[node]:
                    return _fail(failure, WRONG_CLASS, start, node << 32 | row)
                if at + end - first > most:
                    return _fail(failure, TOO_LARGE, start, end - first)
                if at + end - first + _SPARE > room:
                    return _fail(failure, NO_ROOM, start, end - first)
                _copy(out, first, out, at, end - first)
                at += end - first
            there = not again
            if again and objects[number, OF_CONTEXT] != context and kind != PARTS and kind > OBJECT_ARRAY:
                return _fail(failure, TWO_CONTEXTS, start, number)
            if context > 0 and not five:
                # Kryo 2 keeps the type arguments for the next collection then.
                return _fail(failure, TWO_CONTEXTS, start, number)
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
            at = _flush(data, flushed, behind_tag, out, at, room, failure)
            if at < 0:
                return at
            at = _put_varint(out, at, objects[number, NEW_NUMBER] + 2)
            position = objects[number, SOURCE_END]
            state[OBJECTS] = objects[number, NEXT_OBJECT]
            flushed = position
            there = True
        if not there:
            number = state[OBJECTS]
            if shared:
                objects[number, OF_CLASS] = row
                objects[number, OF_NODE] = node if base < 0 else -1
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
                    number_of, end = _varint(data, position, limit, failure)
                    if end >= 0 and (number_of == 0 or number_of > param > 0):
                        return _fail(failure, BAD_CONTENT, position, number_of)
                    state[POSITION] = end
                    state[NESTED] = 1
                    if base < 0:
                        _put32(out, at, number_of - 1)
                        end = at + 4 if end >= 0 else end
                else:
                    end = _scalar(
                        kind, param, rows, data, position, limit, five, node, out, at, room, objects, state, failure
                    )
                if end < 0:
                    return end
                position = state[POSITION]
                if base < 0:
                    at = end
                    if finding == HOLDING and cells[node, row] < 0:
                        at = _widened(out, at, kind, -cells[node, row])
                if shared:
                    objects[number, END] = at
                    objects[number, SOURCE_END] = position
                    objects[number, NEXT_OBJECT] = state[OBJECTS]
                there = True
            elif kind in (COMPARATOR, ENUM_COMPARATOR):
                return _fail(failure, FOREIGN_CLASS, start, -1 - row)
            else:
                if depth == DEEPEST:
                    return _fail(failure, TOO_DEEP, start, depth)
                frame = stack[depth]
                depth += 1
                frame[_KIND] = _TAGGED_FRAME
                frame[_NODE] = node
                frame[_OBJECT] = number
                frame[_NEXT] = 0
                frame[_CLASS] = -1
                frame[_MARKED] = 0
                frame[_FIRST] = _ANY
                if kind == PARTS or not (LIST <= kind <= FILLED_LIST or MAP <= kind <= SORTED_MAP or kind >= SET):
                    context = np.int64(0)
                frame[_CONTEXT] = context
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
                elif kind == PARTS:
                    frame[_KIND] = _PARTS_FRAME
                    frame[_NEXT] = spans[version, row, 0]
                    count = spans[version, row, 1]
                    if differs[row]:
                        state[NESTED] = 1
                    if base < 0:
                        out[at] = POJO_ITSELF
                        at += 1
                elif kind != EMPTY_LIST and kind != EMPTY_MAP:
                    compared = np.int64(-1)
                    if kind in (OBJECT_ARRAY, ANY_ARRAY):
                        count, position = _varint(data, position, limit, failure)
                        count -= 1
                        if kind == OBJECT_ARRAY:
                            frame[_KIND] = _TYPED_FRAME
                            frame[_CLASS] = params[row]
                            frame[_MARKED] = 1
                    elif kind <= FILLED_LIST and five:
                        listed = position
                        if kind == FILLED_LIST and contexts[context, 0] >= 0:
                            count, position = _varint(data, position, limit, failure)
                        else:
                            count, position = _read_flagged(data, position, limit, failure)
                        count -= 1
                        if contexts[context, 0] >= 0:
                            frame[_KIND] = _TYPED_FRAME
                            frame[_CLASS] = contexts[context, 0]
                            if kind == LIST and position >= 0 and data[listed] >= 0x80:
                                frame[_MARKED] = 1
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
                            position = _comparator(
                                data, position, limit, five, table, names, known, node, objects, state, failure
                            )
                            if position < 0:
                                return position
                        count, position = _varint(data, position, limit, failure)
                        if kind == LIST and contexts[context, 0] >= 0 and params[row] == 0:
                            frame[_KIND] = _TYPED_FRAME
                            frame[_CLASS] = contexts[context, 0]
                            frame[_MARKED] = 1
                        if kind == AS_LIST and position >= 0:
                            listed = position
                            # The class of the array may be one that no element has.
                            row = _read_class(data, position, limit, five, table, names, known, True, state, failure)
                            position = state[POSITION] if row >= 0 else row
                            if base >= 0 and row == NULL:
                                return _fail(failure, BAD_CONTENT, listed, 0)
                            if base >= 0 and row > NULL:
                                at = _flush(data, flushed, listed, out, at, room, failure)
                                if at >= 0:
                                    at = _put_class(
                                        row, new_ids[copier], said, names, table[3], five, out, at, room, state, failure
                                    )  # fmt: skip
                                if at < 0:
                                    return at
                                flushed = position
                    else:
                        if depth == 1:
                            state[COUNTED] = 1
                        else:
                            state[NESTED] = 1
                        if kind == SORTED_MAP:
                            state[NESTED] = 1
                        if kind == SORTED_MAP and not five:
                            compared = position
                            position = _comparator(
                                data, position, limit, five, table, names, known, node, objects, state, failure
                            )
                            if position < 0:
                                return position
                        count, position = _varint(data, position, limit, failure)
                        if five:
                            count -= 1
                        if kind == SORTED_MAP and five:
                            compared = position
                    if compared >= 0:
                        if five:
                            position = _comparator(
                                data, position, limit, five, table, names, known, node, objects, state, failure
                            )
                        if base >= 0 and position >= 0 and data[compared] != 0:
                            at, flushed, new_objects = _copied_comparator(
                                data, compared, flushed, five, table, names, known, new_ids[copier], said, objects,
                                new_objects, out, at, room, state, failure,
                            )  # fmt: skip
                            if at < 0:
                                return at
                    if position < 0:
                        return position
                    of_one_class = frame[_KIND] == _TYPED_FRAME and frame[_CLASS] < 0
                    if count < 0 or (count > limit - position and not of_one_class):
                        return _fail(failure, BAD_COUNT, start, count)
                if frame[_KIND] == _TYPED_FRAME and frame[_CLASS] < 0:
                    if count == 0:
                        return _fail(failure, BAD_COUNT, start, count)
                    listed = position
                    row = _read_class(data, position, limit, five, table, names, known, False, state, failure)
                    if row < 0:
                        return row
                    position = state[POSITION]
                    if base >= 0 and row != NULL:
                        at = _flush(data, flushed, listed, out, at, room, failure)
                        if at >= 0:
                            at = _put_class(
                                row, new_ids[copier], said, names, table[3], five, out, at, room, state, failure
                            )
                        if at < 0:
                            return at
                        flushed = position
                    if row == NULL:
                        # All elements are null, and nothing more is stored of them.
                        if kind != LIST:
                            return _fail(failure, BAD_CONTENT, start, 0)
                        if count > most - at:
                            return _fail(failure, TOO_LARGE, start, count)
                        most -= count
                        frame[_CLASS] = NULL
                    elif count > limit - position:
                        return _fail(failure, BAD_COUNT, start, count)
                    elif kind == LIST:
                        if position >= limit or data[position] > 1:
                            return _fail(failure, BAD_CONTENT, position, 0)
                        frame[_CLASS] = row
                        frame[_MARKED] = data[position]
                        position += 1
                    else:
                        frame[_CLASS] = row
                if EMPTY_MAP <= kind < TUPLE:
                    frame[_KIND] = _MAP_FRAME
                    if depth == 1:
                        state[ENTRIES] = count
                        if marked >= 0 and marked + 2 * count > len(marks):
                            return _fail(failure, NO_MARKS, start, marked + 2 * count)
                if kind not in (TUPLE, PARTS) and base < 0:
                    _put32(out, at, count)
                    at += 4
                frame[_LEFT] = count
        # What comes next: a part of what was entered, or of what is around it.
        while True:
            if there:
                # An object is complete.
                if back >= 0:
                    if base >= 0:
                        at = _flush(data, flushed, position, out, at, room, failure)
                        if at < 0:
                            return at
                        flushed = back
                    position = back
                    state[OBJECTS] = back_objects
                if base == depth:
                    at = _flush(data, flushed, position, out, at, room, failure)
                    if at < 0:
                        return at
                    base = -1
                there = False
            if depth == 0:
                break
            frame = stack[depth - 1]
            if frame[_KIND] == _PARTS_FRAME:
                # Parts without tag and mark are passed; in a POJO they are numbers, each behind a flag for null.
                while frame[_LEFT] > 0 and parts[frame[_NEXT], PART_KIND] < TAGGED_PART:
                    part = parts[frame[_NEXT], PART_KIND]
                    if base >= 0:
                        position = _part(
                            part, rows, data, position, limit, five, out, at, room, objects, state, failure
                        )
                    else:
                        if at + _SPARE > room:
                            return _fail(failure, NO_ROOM, position, 0)
                        out[at] = 0
                        at = _number(part, data, position, limit, five, out, at + 1, state, failure)
                        position = state[POSITION] if at >= 0 else at
                    if position < 0:
                        return position
                    frame[_NEXT] += 1
                    frame[_LEFT] -= 1
            if frame[_LEFT] > 0 or (frame[_NEXT] == VALUE and frame[_KIND] == _MAP_FRAME):
                break
            # A list of Kryo 5 without a flag has elements of several classes, if it has any.
            if frame[_FIRST] >= _NONE_YET:
                return _fail(failure, BAD_CONTENT, start, 0)
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
            marked_too = fixed >= 0
            if depth == 1 and marked >= 0:
                marks[marked] = at
                marked += 1
        else:
            frame[_LEFT] -= 1
            column = ELEMENT
            context = around[1]
            if frame[_KIND] == _TUPLE_FRAME:
                column = FIELDS + frame[_NEXT]
                frame[_NEXT] += 1
            elif frame[_KIND] == _PARTS_FRAME:
                part = frame[_NEXT]
                frame[_NEXT] += 1
                context = parts[part, PART_CONTEXT]
                if parts[part, PART_KIND] == KNOWN_PART:
                    fixed = parts[part, PART_CLASS]
                    marked_too = True
            elif frame[_KIND] == _TYPED_FRAME:
                fixed = frame[_CLASS]
                marked_too = frame[_MARKED] != 0
                owner = objects[frame[_OBJECT], OF_CLASS]
                if kinds[version, owner] == OBJECT_ARRAY and kinds[version, fixed] != STRING:
                    flag = 2
        if base >= 0:
            node = np.int64(-1)
            flag = 0
        elif frame[_KIND] == _PARTS_FRAME:
            owner = objects[frame[_OBJECT], OF_CLASS]
            node = children[frame[_NODE], FIELDS] + frame[_NEXT] - 1 - spans[version, owner, 0]
            flag = 1
        else:
            node = _child(children, state, frame[_NODE], column, finding, failure, position)
            if node < 0:
                return node
    if position != limit:
        return _fail(failure, LEFTOVER, position, limit - position)
    state[OUT_END] = at
    return np.int64(0)


@_kernel
def _forget(scratch, touched, state, cells, keep):  # type: ignore[no-untyped-def]
    """Ends the counting of a reading: adds its counts to the others if they are to be kept."""
    for index in range(state[TOUCHED]):
        node, row = touched[index, 0], touched[index, 1]
        if keep:
            cells[node, row] += scratch[node, row]
        scratch[node, row] = 0
    state[TOUCHED] = 0


@_kernel
def _same(out, one, other, size):  # type: ignore[no-untyped-def]
    different = 0
    for index in range(size):
        different |= out[one + index] ^ out[other + index]
    return different == 0


@_kernel
def read_maps(  # type: ignore[no-untyped-def]
    data, starts, heads, skipped, limits, first, hint, table, params, rows, names, known, finding, children, kinships,
    nulls, cells, copying, scratch, touched, stack, objects, out, at, ends, head_ends, found, counts, stops, marks,
    state, failure,
):  # fmt: skip
    """Reads values from the one with the number `first` on. Returns how many are done: all, unless one failed.

    Entry i is `data[starts[i]:limits[i]]`, its head ends at `heads[i]`, behind that are four bytes, `skipped` bytes and
    the map. Unless the classes are being found, `out` gets the head, an i32 length, the skipped bytes and the map; it
    is filled up to `at`, and from entry to entry `ends` says how far. `found` gets what is said of each value, `counts`
    its entries. What stops a value when classes are found goes into `stops`: node, position and detail of a foreign
    class. `hint` is the Kryo to try first; `failure` also says it for the next call. `copying` is what a copy needs,
    see `_read_map`. `marks` gets where each entry of a map begins in `out` and where its key ends.
    """
    version = hint
    marked = np.int64(0)
    for index in range(first):
        marked += 2 * counts[index]
    for index in range(first, len(starts)):
        begin = np.int64(0) if finding == COUNTING else at
        position = heads[index] + 4 + skipped
        if position > limits[index]:
            _fail(failure, TRUNCATED, heads[index], 4 + skipped)
            return np.int64(index)
        if finding == HOLDING:
            size = heads[index] - starts[index]
            if begin + size + skipped + 2 * _SPARE > len(out):
                _fail(failure, NO_ROOM, starts[index], size + skipped)
                return np.int64(index)
            _copy(data, starts[index], out, begin, size)
            head_ends[index] = begin + size
            begin += size + 4
            for offset in range(skipped):
                out[begin + offset] = data[heads[index] + 4 + offset]
            begin += skipped
        code = np.int64(-1)
        farthest = np.int64(-1)
        why = detail = np.int64(0)
        said = np.int64(0)
        end = np.int64(0)
        copied = False
        for attempt in range(2):
            five = (version == 1) if attempt == 0 else (version != 1)
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
                _forget(scratch, touched, state, cells, False)
            if result == 0:
                if code < 0:
                    code = np.int64(0)
                    end = state[OUT_END]
                    copied = state[COPIED] != 0
                    said = np.int64(KRYO_5 if five else KRYO_2)
                    continue
                # The bytes of a copy mean something else by the other Kryo.
                same = state[OUT_END] - end == end - begin and not copied and state[COPIED] == 0
                if not same or not _same(out, begin, end, end - begin):
                    _fail(failure, AMBIGUOUS, position, 0)
                    return np.int64(index)
                said = np.int64(KRYO_2 | KRYO_5)
            elif failure[0] == NO_ROOM or failure[0] == NO_OBJECTS or failure[0] == NO_MARKS:
                _forget(scratch, touched, state, cells, False)
                return np.int64(index)
            elif failure[1] > farthest:
                farthest, why, detail = failure[1], failure[0], failure[2]
            if code == 0:
                state[ENTRIES], state[IS_NULL] = entries, null
        if code < 0:
            failure[0], failure[1], failure[2] = why, farthest, detail
            if finding == HOLDING or why != FOREIGN_CLASS:
                return np.int64(index)
            found[index] = STOPPED
            counts[index] = 0
            stops[index, 0] = farthest
            stops[index, 1] = detail
            continue
        _forget(scratch, touched, state, cells, True)
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
            _put32(out, head_ends[index], at - head_ends[index] - 4)
    return np.int64(len(starts))


@_kernel
def find_ends(  # type: ignore[no-untyped-def]
    data, starts, limits, first, five, finding, table, params, rows, names, known, children, kinships, nulls, cells,
    copying, scratch, touched, stack, objects, out, ends, marks, state, failure,
):  # fmt: skip
    """Reads values by one Kryo, behind which there may be more bytes; from the one with the number `first` on.

    `ends` gets where each ends, or -1 if this Kryo didn't write it: `failure` says why of the last such one. Returns
    how many are done: all, unless there was no room for one.
    """
    for index in range(first, len(starts)):
        result = _read_map(
            data, starts[index], limits[index], five, table, params, rows, names, known, finding, children, kinships,
            nulls, cells, copying, scratch, touched, stack, objects, out, np.int64(0), marks, np.int64(0), state,
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


def begin_reading(stack: npt.NDArray[np.int64]) -> None:
    """Forgets the reading of the value before, for `entries_read`."""
    stack[0, _KIND] = -1


def entries_read(stack: npt.NDArray[np.int64], state: npt.NDArray[np.int64]) -> int | None:
    """Returns how many entries of a map `find_ends` has read as a whole before it failed in a value behind its key.

    None if the key of the next entry isn't there.
    """
    if stack[0, _KIND] != _MAP_FRAME or stack[0, _NEXT] != KEY:
        return None
    return int(state[ENTRIES] - stack[0, _LEFT] - 1)
