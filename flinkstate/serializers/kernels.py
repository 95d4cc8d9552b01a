"""Compiled walks over serialized bytes: they find where values of any type, and the entries of blobs, begin and end.

Every kernel checks its bounds. On damage it fills `failure` with (code, position, detail), and returns a negative
number or how many values it did before; `walker.py` makes the message. Kernels write to arrays that the caller owns and
allocate nothing.
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.compiling import inlined, kernel_of
from flinkstate.basics.words import fail, i32, load64, same_bytes, u16

# Opcodes of a type's program; `walker.py` compiles types to them. Operands follow the opcode in the same array.
HALT = 0
FIXED = 1  # size
STRING = 2  # the difference between the written length and the number of units
BLOCK = 3  # size of a unit: i32 count, that many units
BIG_INTEGER = 4
BIG_DECIMAL = 5
VARIANT = 6
LOOP = 7  # register, least size of an element, target if there are no elements or they have no bytes
NEXT = 8  # register, target while elements are left: the start of the body
NULL_FLAG = 9  # padding of a null, target if it is null
BRANCH = 10  # other tag, target if the byte is that; if it is 1 the program goes on
ENTRIES = 11  # register with the count, size of keys, size of values (0: String); a whole map of plain types, the usual
JUMP = 12  # target
MASK = 13  # register, bytes
FIELD = 14  # register, bit, target if it is null
# Target behind it, tagged subclasses, named subclasses, a target for each tagged, (pool start, length, target) for each
# named one.
POJO = 15
OPAQUE = 16
ENUM = 17  # number of constants
BOOLEAN = 18
MARK = 19
REMEMBER = 20  # register that gets the position
SUFFIX = 21  # register with the position from which the length suffix counts
UNLESS_END = 22  # target if the value has no more bytes
DELIMITER = 23
ENUM_IDS = 24  # number of constants, then their ids in ascending order
AVRO_BLOCK = 25  # register, least size of an item, target behind the last block
AVRO_UNION = 26  # number of branches, then a target for each
NO_VALUES = 27

# The codes of damage.
TRUNCATED = 1
BAD_FLAG = 2
BAD_COUNT = 3
BAD_STRING = 4
BAD_LENGTH = 5
BAD_POJO_FLAG = 6
UNKNOWN_SUBCLASS = 7
UNKNOWN_TAG = 8
BAD_ENUM = 9
OPAQUE_VALUE = 10
WRONG_KEY_GROUP = 11
SHORT_KEY = 12
BAD_SUFFIX = 14
BAD_DELIMITER = 15
TOO_MANY_MARKS = 16
BAD_ENUM_ID = 17
BAD_BRANCH = 18
HAS_NO_VALUES = 19

_FAILED = -1
HIGH_BITS = np.uint64(0x8080808080808080)

_kernel = kernel_of(__file__)


@inlined
def _is_ascii(data, position, count):  # type: ignore[no-untyped-def]
    """Whether `count` bytes are all below 0x80."""
    ascii_only = True
    while count >= 8 and ascii_only:
        ascii_only = load64(data, position) & HIGH_BITS == 0
        position += 8
        count -= 8
    if count > 0 and ascii_only:
        if position + 8 <= len(data):
            ascii_only = load64(data, position) << np.uint64(64 - 8 * count) & HIGH_BITS == 0
        else:
            for index in range(position, position + count):
                if data[index] >= 0x80:
                    ascii_only = False
    return ascii_only


@inlined
def _read_varint(data, position, limit):  # type: ignore[no-untyped-def]
    """Reads at most five bytes of seven bits each, the lowest first.

    Returns the number, the position behind it, whether the number ended before the limit, and how many bits were read.
    """
    number = np.int64(0)
    shift = np.int64(0)
    byte = np.int64(0x80)
    while byte >= 0x80 and shift <= 28 and position < limit:
        byte = np.int64(data[position])
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    return number, position, byte < 0x80, shift


@inlined
def _skip_string(data, position, limit, null_lengths, failure):  # type: ignore[no-untyped-def]
    """Skips a String: a varint of units + 1 (0 is null), then each UTF-16 unit as a varint of one to three bytes."""
    start = position
    units, position, ended, shift = _read_varint(data, position, limit)
    if not ended:
        code = BAD_STRING if shift > 28 else TRUNCATED
        position = fail(failure, code, start, np.int64(1))
    elif units > null_lengths:
        units -= null_lengths
        if units > limit - position:
            position = fail(failure, TRUNCATED, start, units)
        elif _is_ascii(data, position, units):
            position += units
        else:
            position = _skip_wide_string(data, position, limit, units, failure)
    return position


@_kernel
def _skip_wide_string(data, position, limit, units, failure):  # type: ignore[no-untyped-def]
    start = position
    for _ in range(units):
        if position < limit and data[position] < 0x80:
            position += 1
        elif position + 1 < limit and data[position + 1] < 0x80:
            position += 2
        elif position + 2 < limit and data[position + 2] < 4:
            position += 3
        elif position + 2 >= limit:
            return fail(failure, TRUNCATED, start, units)
        else:
            return fail(failure, BAD_STRING, position, 0)
    return position


@_kernel
def _skip_big_integer(data, position, limit, failure):  # type: ignore[no-untyped-def]
    """Skips a BigInteger: i32 (0 null, 1 zero, 2 one, 3 ten, otherwise 4 + the number of bytes), then its bytes."""
    if limit - position < 4:
        return fail(failure, TRUNCATED, position, 4)
    length = i32(data, position)
    if length < 0 or length == 4:
        return fail(failure, BAD_LENGTH, position, length)
    if length < 4:
        return position + 4
    if length > limit - position:
        return fail(failure, TRUNCATED, position, length)
    return position + length


@_kernel
def _enter_pojo(code, pool, pc, registers, data, position, limit, failure):  # type: ignore[no-untyped-def]
    """Reads a POJO's flag byte. Returns where the program goes on, and puts the position into register 0."""
    if position >= limit:
        return fail(failure, TRUNCATED, position, 1)
    flag = data[position]
    tagged = code[pc + 2]
    named = code[pc + 3]
    table = pc + 4
    if flag == 1:
        registers[0] = position + 1
        return code[pc + 1]
    if flag == 2:
        registers[0] = position + 1
        return table + tagged + 3 * named
    if flag == 8:
        if position + 2 > limit:
            return fail(failure, TRUNCATED, position, 2)
        tag = np.int64(data[position + 1])
        if tag >= tagged:
            return fail(failure, UNKNOWN_TAG, position + 1, tag)
        registers[0] = position + 2
        return code[table + tag]
    if flag != 4:
        return fail(failure, BAD_POJO_FLAG, position, np.int64(flag))
    if position + 3 > limit:
        return fail(failure, TRUNCATED, position, 3)
    length = u16(data, position + 1)
    if length > limit - position - 3:
        return fail(failure, TRUNCATED, position, 3 + length)
    for index in range(named):
        entry = table + tagged + 3 * index
        if code[entry + 1] == length:
            same = True
            for offset in range(length):
                if pool[code[entry] + offset] != data[position + 3 + offset]:
                    same = False
                    break
            if same:
                registers[0] = position + 3 + length
                return code[entry + 2]
    return fail(failure, UNKNOWN_SUBCLASS, position + 1, length)


@_kernel
def _is_constant(code, pc, number):  # type: ignore[no-untyped-def]
    """Whether the number is one of the ids of an ENUM_IDS."""
    low = pc + 2
    high = low + code[pc + 1]
    while low < high:
        middle = (low + high) >> 1
        if code[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low < pc + 2 + code[pc + 1] and code[low] == number


@_kernel
def _read_block_count(registers, data, position, limit, least, failure):  # type: ignore[no-untyped-def]
    """Reads a varint of 31 bits into register 0; it must not claim more items than the bytes behind it can hold."""
    start = position
    count, position, ended, shift = _read_varint(data, position, limit)
    if not ended and shift <= 28:
        return fail(failure, TRUNCATED, start, position - start + 1)
    if not ended or count > 0x7FFFFFFF or count * least > limit - position:
        return fail(failure, BAD_COUNT, start, count)
    registers[0] = count
    return position


@_kernel
def _check_suffix(data, position, limit, length, failure):  # type: ignore[no-untyped-def]
    """Checks the length behind a key or namespace: little-endian, in as few bytes as it needs."""
    rest = length
    while True:
        if position >= limit:
            return fail(failure, TRUNCATED, position, 1)
        if np.int64(data[position]) != rest & 0xFF:
            return fail(failure, BAD_SUFFIX, position, length)
        position += 1
        rest >>= 8
        if rest == 0:
            return position


@inlined
def _skip_plain(data, position, limit, size, failure):  # type: ignore[no-untyped-def]
    """Skips a value of a fixed size, or a String if `size` is 0; a short ASCII String is skipped at once."""
    if size > 0:
        if size > limit - position:
            return fail(failure, TRUNCATED, position, size)
        return position + size
    if position < limit:
        length = np.int64(data[position])
        end = position + length
        if 0 < length < 0x80 and end <= limit and _is_ascii(data, position + 1, length - 1):
            return end
    return _skip_string(data, position, limit, 1, failure)


@_kernel
def _skip_entries(data, position, limit, count, key_size, value_size, marks, failure):  # type: ignore[no-untyped-def]
    """Walks the entries of a map and marks where each begins and where its key ends."""
    for entry in range(count):
        marks[2 * entry] = position
        position = _skip_plain(data, position, limit, key_size, failure)
        if position < 0:
            return position
        marks[2 * entry + 1] = position
        if position >= limit:
            return fail(failure, TRUNCATED, position, 1)
        flag = data[position]
        if flag > 1:
            return fail(failure, BAD_FLAG, position, np.int64(flag))
        position += 1
        if flag == 0:
            position = _skip_plain(data, position, limit, value_size, failure)
            if position < 0:
                return position
    return position


@_kernel
def walk(code, pool, registers, data, starts, limits, ends, marks, mark_ends, failure, begin):  # type: ignore[no-untyped-def]
    """Runs a program over many values. Finds where each ends, and the positions that the program marks.

    `mark_ends[i]` is the number of marks up to the end of value i. Returns how many values were walked. If these are
    fewer than were given, the next value is damaged, or holds a value that can't be walked: then the detail of the
    failure is the place in the program, and whoever knows where that value ends may go on behind the place (`begin`).
    """
    marked = np.int64(0)
    for index in range(len(starts)):
        position = starts[index]
        limit = limits[index]
        pc = begin
        while True:
            op = code[pc]
            if op == FIXED:
                size = code[pc + 1]
                if size > limit - position:
                    fail(failure, TRUNCATED, position, size)
                    return np.int64(index)
                position += size
                pc += 2
            elif op == STRING:
                position = _skip_string(data, position, limit, code[pc + 1], failure)
                if position < 0:
                    return np.int64(index)
                pc += 2
            elif op == MARK:
                if marked == len(marks):
                    fail(failure, TOO_MANY_MARKS, position, marked)
                    return np.int64(index)
                marks[marked] = position
                marked += 1
                pc += 1
            elif op == NULL_FLAG:
                if position >= limit:
                    fail(failure, TRUNCATED, position, 1)
                    return np.int64(index)
                flag = data[position]
                if flag == 0:
                    position += 1
                    pc += 3
                elif flag == 1:
                    if code[pc + 1] > limit - position - 1:
                        fail(failure, TRUNCATED, position, code[pc + 1] + 1)
                        return np.int64(index)
                    position += 1 + code[pc + 1]
                    pc = code[pc + 2]
                else:
                    fail(failure, BAD_FLAG, position, np.int64(flag))
                    return np.int64(index)
            elif op == ENTRIES:
                count = registers[code[pc + 1]]
                if 2 * count > len(marks) - marked:
                    fail(failure, TOO_MANY_MARKS, position, marked)
                    return np.int64(index)
                of_map = marks[marked:]
                position = _skip_entries(data, position, limit, count, code[pc + 2], code[pc + 3], of_map, failure)
                if position < 0:
                    return np.int64(index)
                marked += 2 * count
                pc += 4
            elif op == NEXT:
                registers[code[pc + 1]] -= 1
                if registers[code[pc + 1]] > 0:
                    pc = code[pc + 2]
                else:
                    pc += 3
            elif op == LOOP:
                if limit - position < 4:
                    fail(failure, TRUNCATED, position, 4)
                    return np.int64(index)
                count = i32(data, position)
                if count < 0 or count * code[pc + 2] > limit - position - 4:
                    fail(failure, BAD_COUNT, position, count)
                    return np.int64(index)
                position += 4
                if count == 0 or code[pc + 2] == 0:
                    pc = code[pc + 3]
                else:
                    registers[code[pc + 1]] = count
                    pc += 4
            elif op == HALT:
                break
            elif op == BLOCK:
                if limit - position < 4:
                    fail(failure, TRUNCATED, position, 4)
                    return np.int64(index)
                count = i32(data, position)
                if count < 0 or count * code[pc + 1] > limit - position - 4:
                    fail(failure, BAD_COUNT, position, count)
                    return np.int64(index)
                position += 4 + count * code[pc + 1]
                pc += 2
            elif op == BOOLEAN:
                if position >= limit:
                    fail(failure, TRUNCATED, position, 1)
                    return np.int64(index)
                if data[position] > 1:
                    fail(failure, BAD_FLAG, position, np.int64(data[position]))
                    return np.int64(index)
                position += 1
                pc += 1
            elif op == POJO:
                pc = _enter_pojo(code, pool, pc, registers, data, position, limit, failure)
                if pc < 0:
                    return np.int64(index)
                position = registers[0]
            elif op == MASK:
                if code[pc + 2] > limit - position:
                    fail(failure, TRUNCATED, position, code[pc + 2])
                    return np.int64(index)
                registers[code[pc + 1]] = position
                position += code[pc + 2]
                pc += 3
            elif op == FIELD:
                bit = code[pc + 2]
                byte = np.int64(data[registers[code[pc + 1]] + (bit >> 3)])
                if byte >> (7 - (bit & 7)) & 1:
                    pc = code[pc + 3]
                else:
                    pc += 4
            elif op == ENUM:
                if limit - position < 4:
                    fail(failure, TRUNCATED, position, 4)
                    return np.int64(index)
                ordinal = i32(data, position)
                if ordinal < 0 or ordinal >= code[pc + 1]:
                    fail(failure, BAD_ENUM, position, ordinal)
                    return np.int64(index)
                position += 4
                pc += 2
            elif op == JUMP:
                pc = code[pc + 1]
            elif op == BRANCH:
                if position >= limit:
                    fail(failure, TRUNCATED, position, 1)
                    return np.int64(index)
                tag = np.int64(data[position])
                if tag != 1 and tag != code[pc + 1]:
                    fail(failure, BAD_FLAG if code[pc + 1] == 0 else BAD_BRANCH, position, tag)
                    return np.int64(index)
                position += 1
                pc = pc + 3 if tag == 1 else code[pc + 2]
            elif op == BIG_INTEGER:
                position = _skip_big_integer(data, position, limit, failure)
                if position < 0:
                    return np.int64(index)
                pc += 1
            elif op == BIG_DECIMAL:
                start = position
                position = _skip_big_integer(data, position, limit, failure)
                if position < 0:
                    return np.int64(index)
                if i32(data, start) != 0:
                    if limit - position < 4:
                        fail(failure, TRUNCATED, position, 4)
                        return np.int64(index)
                    position += 4
                pc += 1
            elif op == VARIANT:
                if limit - position < 8:
                    fail(failure, TRUNCATED, position, 8)
                    return np.int64(index)
                value_length = i32(data, position)
                metadata_length = i32(data, position + 4)
                if value_length < 0 or metadata_length < 0 or value_length + metadata_length > limit - position - 8:
                    fail(failure, BAD_LENGTH, position, value_length)
                    return np.int64(index)
                position += 8 + value_length + metadata_length
                pc += 1
            elif op == REMEMBER:
                registers[code[pc + 1]] = position
                pc += 2
            elif op == SUFFIX:
                position = _check_suffix(data, position, limit, position - registers[code[pc + 1]], failure)
                if position < 0:
                    return np.int64(index)
                pc += 2
            elif op == UNLESS_END:
                pc = code[pc + 1] if position >= limit else pc + 2
            elif op == DELIMITER:
                if data[position] != 0x2C:
                    fail(failure, BAD_DELIMITER, position, np.int64(data[position]))
                    return np.int64(index)
                position += 1
                pc += 1
            elif op == AVRO_UNION:
                if limit - position < 4:
                    fail(failure, TRUNCATED, position, 4)
                    return np.int64(index)
                branch = i32(data, position)
                if branch < 0 or branch >= code[pc + 1]:
                    fail(failure, BAD_BRANCH, position, branch)
                    return np.int64(index)
                position += 4
                pc = code[pc + 2 + branch]
            elif op == AVRO_BLOCK:
                position = _read_block_count(registers, data, position, limit, code[pc + 2], failure)
                if position < 0:
                    return np.int64(index)
                if registers[0] == 0:
                    pc = code[pc + 3]
                elif code[pc + 2] > 0:
                    registers[code[pc + 1]] = registers[0]
                    pc += 4
            elif op == ENUM_IDS:
                if limit - position < 4:
                    fail(failure, TRUNCATED, position, 4)
                    return np.int64(index)
                if not _is_constant(code, pc, i32(data, position)):
                    fail(failure, BAD_ENUM_ID, position, i32(data, position))
                    return np.int64(index)
                position += 4
                pc += 2 + code[pc + 1]
            elif op == NO_VALUES:
                fail(failure, HAS_NO_VALUES, position, 0)
                return np.int64(index)
            else:
                fail(failure, OPAQUE_VALUE, position, pc)
                return np.int64(index)
        ends[index] = position
        mark_ends[index] = marked
    return np.int64(len(starts))


@_kernel
def walk_runs(code, pool, registers, data, starts, limits, firsts, ends, marks, mark_ends, failure):  # type: ignore[no-untyped-def]
    """Walks only the first of neighbouring values that have the same bytes; finds where each of these begins and ends.

    Returns how many there are, or a negative number on failure.
    """
    count = np.int64(0)
    for index in range(len(starts)):
        start = starts[index]
        if count > 0:
            size = ends[count - 1] - firsts[count - 1]
            if size <= limits[index] - start and same_bytes(data, firsts[count - 1], start, size):
                continue
        one = slice(index, index + 1)
        end = ends[count : count + 1]
        begin = np.int64(0)
        if walk(code, pool, registers, data, starts[one], limits[one], end, marks, mark_ends, failure, begin) < 1:
            return np.int64(_FAILED)
        firsts[count] = start
        count += 1
    return count


@_kernel
def read_counts(data, starts, limits, least_size, counts, failure):  # type: ignore[no-untyped-def]
    """Reads the i32 count at each start; it must not claim more than the bytes behind it can hold.

    Returns how many counts were read.
    """
    for index in range(len(starts)):
        position = starts[index]
        if limits[index] - position < 4:
            fail(failure, TRUNCATED, position, 4)
            return np.int64(index)
        count = i32(data, position)
        if count < 0 or count * least_size > limits[index] - position - 4:
            fail(failure, BAD_COUNT, position, count)
            return np.int64(index)
        counts[index] = count
    return np.int64(len(starts))
