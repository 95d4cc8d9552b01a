"""Compiled: what kernels do with the bytes of arrays. numba itself reads and writes them only one by one.

A word is eight bytes, the first one lowest, and nothing here checks whether a position is in the array.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from flinkstate.basics.compiling import inlined, intrinsic

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_TWO_WORDS = ir.VectorType(_I64, 2)


def _place(context: Any, builder: Any, type_: Any, array: Any, position: Any, item: Any) -> Any:
    data = context.make_array(type_)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [position]), item.as_pointer())


def _load(context: Any, builder: Any, signature: Any, arguments: Any, item: Any) -> Any:
    array, position = arguments
    loaded = builder.load(_place(context, builder, signature.args[0], array, position, item))
    loaded.align = 1
    return loaded


def _store(context: Any, builder: Any, signature: Any, arguments: Any, stored: Any) -> Any:
    place = _place(context, builder, signature.args[0], arguments[0], arguments[1], stored.type)
    builder.store(stored, place).align = 1
    return context.get_dummy_value()


@intrinsic
def byte_at(_context: Any, data: Any, _position: Any) -> Any:
    """Loads a byte; unlike `data[position]` it knows no positions from the end."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(_load(context, builder, signature, arguments, ir.IntType(8)), _I64)

    return types.int64(data, types.int64), generate


@intrinsic
def load64(_context: Any, data: Any, _position: Any) -> Any:
    """Loads a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(context, builder, signature, arguments, _I64)

    return types.uint64(data, types.int64), generate


@intrinsic
def load32(_context: Any, data: Any, _position: Any) -> Any:
    """Loads four bytes, the first one lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(_load(context, builder, signature, arguments, _I32), _I64)

    return types.uint64(data, types.int64), generate


@intrinsic
def big64(_context: Any, data: Any, _position: Any) -> Any:
    """Loads eight bytes, the first one highest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(_load(context, builder, signature, arguments, _I64))

    return types.uint64(data, types.int64), generate


@intrinsic
def i32(_context: Any, data: Any, _position: Any) -> Any:
    """Loads a number of four bytes with a sign, the first one highest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sext(builder.bswap(_load(context, builder, signature, arguments, _I32)), _I64)

    return types.int64(data, types.int64), generate


@intrinsic
def i64(_context: Any, data: Any, _position: Any) -> Any:
    """Loads a number of eight bytes with a sign, the first one highest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(_load(context, builder, signature, arguments, _I64))

    return types.int64(data, types.int64), generate


@inlined
def u16(data, position):
    return np.int64(data[position]) << 8 | np.int64(data[position + 1])


@intrinsic
def store64(_context: Any, data: Any, _position: Any, _word: Any) -> Any:
    """Stores a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _store(context, builder, signature, arguments, arguments[2])

    return types.void(data, types.int64, types.uint64), generate


@intrinsic
def store32(_context: Any, data: Any, _position: Any, _word: Any) -> Any:
    """Stores the low half of a word, the lowest byte first."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _store(context, builder, signature, arguments, builder.trunc(arguments[2], _I32))

    return types.void(data, types.int64, types.uint64), generate


@intrinsic
def put32(_context: Any, out: Any, _at: Any, _number: Any) -> Any:
    """Stores the low four bytes of a number, the highest first."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _store(context, builder, signature, arguments, builder.bswap(builder.trunc(arguments[2], _I32)))

    return types.void(out, types.int64, types.int64), generate


@intrinsic
def put64(_context: Any, out: Any, _at: Any, _number: Any) -> Any:
    """Stores the eight bytes of a number, the highest first."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _store(context, builder, signature, arguments, builder.bswap(arguments[2]))

    return types.void(out, types.int64, types.int64), generate


@intrinsic
def copy16(_context: Any, data: Any, _start: Any, out: Any, _at: Any) -> Any:
    """Copies sixteen bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = _load(context, builder, signature, arguments[:2], _TWO_WORDS)
        place = _place(context, builder, signature.args[2], arguments[2], arguments[3], _TWO_WORDS)
        builder.store(loaded, place).align = 1
        return context.get_dummy_value()

    return types.void(data, types.int64, out, types.int64), generate


@intrinsic
def swapped(_context: Any, _word: Any) -> Any:
    """Returns the eight bytes in the other order."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bswap(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def zeros_below(_context: Any, _word: Any) -> Any:
    """Returns the number of zero bits below the lowest one bit of a word that isn't 0."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@intrinsic
def fail(_context: Any, failure: Any, _code: Any, _position: Any, _detail: Any) -> Any:
    """Says why and where a reading failed; returns -1. It is called so often that as plain code it compiles slowly."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        for index, said in enumerate(arguments[1:]):
            builder.store(said, builder.gep(array.data, [ir.Constant(_I64, index)]))
        return ir.Constant(_I64, -1)

    return types.int64(failure, types.int64, types.int64, types.int64), generate


@inlined
def put_varint(out, at, number):
    """Writes a number that isn't negative, seven bits a byte, and returns the position behind it."""
    while number >= 0x80:
        out[at] = np.uint8(number & 0x7F | 0x80)
        number >>= 7
        at += 1
    out[at] = np.uint8(number)
    return at + 1


@inlined
def same_bytes(data, one, other, size):
    """Whether two ranges of one array have the same bytes."""
    while size >= 8 and load64(data, one) == load64(data, other):
        one += 8
        other += 8
        size -= 8
    while size > 0 and byte_at(data, one) == byte_at(data, other):
        one += 1
        other += 1
        size -= 1
    return size == 0
