"""Compiled: values by the serializers of flink-scala are written by Flink's own; `programs.py` says how."""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import fail, i32, put32
from flinkstate.kryo.compiling import kernel
from flinkstate.kryo.primitives import copy_bytes
from flinkstate.serializers.kernels import BAD_COUNT, BAD_DELIMITER, BAD_ENUM_ID, BAD_FLAG, TRUNCATED, walk

# Opcodes; operands follow them.
END = 0
COPY = 1  # place in the walk program: that value is copied
PUT = 2  # byte
FLAG = 3  # what is written for a flag 0, and for 1; the flag at which the program jumps; where to
LOOP = 4  # register for the i32 count, target if it is 0
NEXT = 5  # register, target while elements are left
NUMBER = 6  # how many, then each i32 number and the one that is written for it
JUMP = 7  # target
HERE = 8  # register that gets the position in the output
ORDER = 9  # number of fields, first of the registers with their positions, the fields in the order wanted
COPY_OR_NULL = 11  # place in the walk program, how many bytes null has, these: a flag for null, the value unless it is
ELEMENTS = 10  # target behind the last element; a delimiter is before every other one
COPY_UNLESS_NULL = 12  # as COPY_OR_NULL, without a flag: null is refused

# What FLAG writes, if no byte.
NOTHING = -1
REFUSED = -2

# Failures beside those of `walk`.
NO_ROOM = 100
NULL_ELEMENT = 101
LEFTOVER = 102

_DELIMITER = 0x2C
_SPARE = 16


@kernel
def _in_order(code, pc, registers, out, at, scratch):  # type: ignore[no-untyped-def]
    """Puts the fields that were written last into another order."""
    count, first = code[pc + 1], code[pc + 2]
    begin = registers[first]
    copy_bytes(out, begin, scratch, np.int64(0), at - begin)
    for number in range(count):
        field = code[pc + 3 + number]
        start = registers[first + field]
        end = registers[first + field + 1] if field + 1 < count else at
        copy_bytes(scratch, start - registers[first], out, begin, end - start)
        begin += end - start


@kernel
def write_values(  # type: ignore[no-untyped-def]
    data, starts, limits, heads, kept, first, code, walked, pool, of_walk, registers, place, scratch, out, at,
    new_ends, failure,
):  # fmt: skip
    """Writes values, each with the `heads[i]` bytes before it; those that are `kept` are copied; from `first` on.

    Value i is `data[starts[i]:limits[i]]`; `out` is filled up to `at`. Returns how many values are done.
    """
    for index in range(first, len(starts)):
        limit = limits[index]
        size = limit - starts[index] if kept[index] else np.int64(0)
        if at + heads[index] + size + _SPARE > len(out):
            fail(failure, NO_ROOM, starts[index], heads[index] + size)
            return np.int64(index)
        copy_bytes(data, starts[index] - heads[index], out, at, heads[index] + size)
        at += heads[index] + size
        position = starts[index]
        begin = position
        pc = np.int64(0)
        while not kept[index]:
            if at + _SPARE > len(out):
                fail(failure, NO_ROOM, position, np.int64(0))
                return np.int64(index)
            op = code[pc]
            if op in (COPY, COPY_OR_NULL, COPY_UNLESS_NULL):
                place[0] = position
                if walk(
                    walked, pool, of_walk, data, place[:1], limits[index : index + 1], place[1:2], place[3:],
                    place[2:3], failure, code[pc + 1],
                ) < 1:  # fmt: skip
                    return np.int64(index)
                size = place[1] - position
                if at + size + _SPARE > len(out):
                    fail(failure, NO_ROOM, position, size)
                    return np.int64(index)
                if op != COPY:
                    is_null = size == code[pc + 2]
                    for offset in range(size if is_null else 0):
                        is_null = is_null and data[position + offset] == code[pc + 3 + offset]
                    if op == COPY_OR_NULL:
                        out[at] = 1 if is_null else 0
                        at += 1
                        position += size if is_null else 0
                        size = np.int64(0) if is_null else size
                    elif is_null:
                        fail(failure, NULL_ELEMENT, position, np.int64(0))
                        return np.int64(index)
                    pc += 1 + code[pc + 2]
                copy_bytes(data, position, out, at, size)
                at += size
                position += size
                pc += 2
            elif op == PUT:
                out[at] = code[pc + 1]
                at += 1
                pc += 2
            elif op == FLAG:
                if position >= limit:
                    fail(failure, TRUNCATED, position, np.int64(1))
                    return np.int64(index)
                flag = np.int64(data[position])
                if flag > 1:
                    fail(failure, BAD_FLAG, position, flag)
                    return np.int64(index)
                written = code[pc + 1 + flag]
                if written == REFUSED:
                    fail(failure, NULL_ELEMENT, position, np.int64(0))
                    return np.int64(index)
                if written != NOTHING:
                    out[at] = written
                    at += 1
                position += 1
                pc = code[pc + 4] if flag == code[pc + 3] else pc + 5
            elif op in (LOOP, NUMBER):
                if limit - position < 4:
                    fail(failure, TRUNCATED, position, np.int64(4))
                    return np.int64(index)
                number = i32(data, position)
                if op == LOOP:
                    # Each element has a byte at least.
                    if number < 0 or number > limit - position - 4:
                        fail(failure, BAD_COUNT, position, number)
                        return np.int64(index)
                    registers[code[pc + 1]] = number
                    put32(out, at, number)
                    pc = code[pc + 2] if number == 0 else pc + 3
                else:
                    known = np.int64(0)
                    while known < code[pc + 1] and code[pc + 2 + 2 * known] != number:
                        known += 1
                    if known == code[pc + 1]:
                        fail(failure, BAD_ENUM_ID, position, number)
                        return np.int64(index)
                    put32(out, at, code[pc + 3 + 2 * known])
                    pc += 2 + 2 * code[pc + 1]
                position += 4
                at += 4
            elif op == NEXT:
                registers[code[pc + 1]] -= 1
                pc = code[pc + 2] if registers[code[pc + 1]] > 0 else pc + 3
            elif op == JUMP:
                pc = code[pc + 1]
            elif op == HERE:
                registers[code[pc + 1]] = at
                pc += 2
            elif op == ORDER:
                _in_order(code, pc, registers, out, at, scratch)
                pc += 3 + code[pc + 1]
            elif op == ELEMENTS:
                if position >= limit:
                    pc = code[pc + 1]
                elif position == begin:
                    pc += 2
                elif data[position] != _DELIMITER:
                    fail(failure, BAD_DELIMITER, position, np.int64(data[position]))
                    return np.int64(index)
                else:
                    out[at] = data[position]
                    at += 1
                    position += 1
                    pc += 2
            elif position != limit:
                fail(failure, LEFTOVER, position, limit - position)
                return np.int64(index)
            else:
                break
        new_ends[index] = at
    return np.int64(len(starts))
