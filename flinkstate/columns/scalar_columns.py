"""Decodes many values without parts into one Arrow array: numbers, strings and blocks of bytes (dates: `dates.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flinkstate.basics.array_types import Bytes, Positions, read_only
from flinkstate.columns import kernels
from flinkstate.columns.arrays import (
    MOST_OFFSET,
    Column,
    allocate,
    narrow,
    struct_array,
    validity,
)
from flinkstate.columns.arrow_types import TIME_WINDOW, VARIANT, arrow_type
from flinkstate.columns.dates import date_column
from flinkstate.columns.reads import damaged_where, raise_if_damaged, read_flags, read_numbers, read_offsets
from flinkstate.errors import DamagedError
from flinkstate.serializers.types import FlinkType, Scalar, type_name
from flinkstate.values.java_text import big_decimal_text, integer_text

_MOST_VARIANT = 1 << 24

_NUMBERS: dict[Scalar, type[np.number[Any]]] = {
    scalar: arrow_type(scalar).to_pandas_dtype()
    for scalar in Scalar
    if pa.types.is_integer(arrow_type(scalar)) or pa.types.is_floating(arrow_type(scalar))
}
_DATES = {
    Scalar.DATE,
    Scalar.SQL_DATE,
    Scalar.SQL_TIME,
    Scalar.SQL_TIMESTAMP,
    Scalar.INSTANT,
    Scalar.LOCAL_DATE,
    Scalar.LOCAL_TIME,
    Scalar.LOCAL_DATE_TIME,
}
_VARYING = pa.binary()
_CONSTANTS = {Scalar.VOID: 0, Scalar.VOID_NAMESPACE: 0, Scalar.GLOBAL_WINDOW: 0, Scalar.TUPLE0: 42, Scalar.UNIT: 0}


def scalar_column(type_: Scalar, data: Bytes, starts: Positions, limits: Positions) -> Column:
    """Decodes values without parts."""
    if type_ in _NUMBERS:
        numbers = read_numbers(type_, data, starts, limits, _NUMBERS[type_])
        return pa.array(numbers), starts + numbers.itemsize
    if type_ in _DATES:
        return date_column(type_, data, starts, limits)
    match type_:
        case Scalar.BOOLEAN | Scalar.BOOLEAN_VALUE:
            bits = pa.py_buffer(np.packbits(read_flags(type_, data, starts, limits), bitorder="little"))
            return pa.Array.from_buffers(pa.bool_(), len(starts), [None, bits]), starts + 1
        case Scalar.STRING:
            return _strings(type_, data, starts, limits, null_lengths=1)
        case Scalar.STRING_VALUE:
            return _strings(type_, data, starts, limits, null_lengths=0)
        case Scalar.CHARACTER | Scalar.CHAR_VALUE:
            return _characters(read_numbers(type_, data, starts, limits, np.uint16)), starts + 2
        case Scalar.BIG_INTEGER | Scalar.BIG_DECIMAL:
            return _big_numbers(type_, data, starts, limits)
        case Scalar.VARIANT:
            return _variants(type_, data, starts, limits)
        case Scalar.BITMAP:
            return block_column(type_, data, starts, limits)
        case Scalar.TIME_WINDOW:
            bounds = [pa.array(read_numbers(type_, data, starts + at, limits, np.int64)) for at in (0, 8)]
            return struct_array(TIME_WINDOW, bounds, len(starts)), starts + 16
        case Scalar.NULL_VALUE | Scalar.AVRO_NULL:
            return pa.nulls(len(starts), pa.bool_()), starts
        case Scalar.AVRO_STRING:
            return _utf8_texts(type_, data, starts, limits)
        case Scalar.NOTHING:
            damaged_where(
                starts >= 0, starts, f"no value, because the type is {type_.label}, which has no values", starts
            )
            return pa.nulls(0, pa.bool_()), starts
        case _:
            found = read_numbers(type_, data, starts, limits, np.uint8)
            damaged_where(found != _CONSTANTS[type_], starts, f"the byte {_CONSTANTS[type_]} of a {type_.label}", found)
            return pa.nulls(len(starts), pa.bool_()), starts + 1


def block_column(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> Column:
    """Decodes an i32 length and that many bytes each, as binary."""
    offsets = read_offsets(type_, data, starts, limits, 1)
    ends = starts + 4 + np.diff(offsets)
    return blocks_array(data, starts + 4, ends), ends


def fixed_column(type_: FlinkType, size: int, data: Bytes, starts: Positions, limits: Positions) -> Column:
    """Decodes `size` bytes each, as binary."""
    ends = starts + size
    damaged_where(ends > limits, starts, f"{size} bytes of {type_name(type_)}", limits - starts)
    return blocks_array(data, starts, ends), ends


def _utf8_texts(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> Column:
    blocks, ends = block_column(type_, data, starts, limits)
    try:
        return blocks.cast(pa.string()), ends
    except pa.ArrowInvalid:
        for row, block in enumerate(blocks):
            try:
                block.as_py().decode("utf-8")
            except UnicodeDecodeError as error:
                place = int(starts[row]) + 4 + error.start
                found = block.as_py()[error.start :][:4].hex()
                raise DamagedError(f"a {type_name(type_)} in UTF-8", found, offset=place) from None
        raise


def blocks_array(data: Bytes, starts: Positions, ends: Positions, type_: pa.DataType = _VARYING) -> pa.Array:
    """Returns the bytes from each start to its end, which must be as many as the type says if its width is fixed."""
    # numba would compile again for arrays that can be written to, and for positions that aren't contiguous.
    data, starts, ends = read_only(data), np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    if type_ != _VARYING:
        lengths = ends - starts
        damaged_where(lengths != type_.byte_width, starts, f"{type_.byte_width} bytes", lengths)
    size = int(ends.sum() - starts.sum())
    narrow(np.array([size]))
    offsets, out = np.empty(len(starts) + 1, np.int32), allocate(size)
    kernels.copy_blocks(data, starts, ends, offsets, np.frombuffer(out, np.uint8))
    bounds = [pa.py_buffer(offsets)] if type_ == _VARYING else []
    return pa.Array.from_buffers(type_, len(starts), [None, *bounds, out])


def _strings(type_: Scalar, data: Bytes, starts: Positions, limits: Positions, null_lengths: int) -> Column:
    count = len(starts)
    offsets, stops, present = np.zeros(count + 1, np.int32), np.empty(count, np.int64), np.empty(count, np.uint8)
    # Enough for ASCII: never more than the bytes between the starts and the limits.
    span = int(limits.max() - starts.min()) if count else 0
    out = allocate(min(span, int(limits.sum()) - int(starts.sum())) + 64)
    first = 0
    while True:
        outcome = kernels.read_strings(
            data, starts, limits, null_lengths, first, offsets, np.frombuffer(out, np.uint8), present, stops
        )
        code, row, needed = outcome
        if code != kernels.FULL:
            break
        narrow(np.array([needed]))
        larger, written = allocate(max(min(2 * out.size, MOST_OFFSET), needed)), int(offsets[row])
        np.frombuffer(larger, np.uint8)[:written] = np.frombuffer(out, np.uint8)[:written]
        out, first = larger, row
    raise_if_damaged(outcome, type_, data, limits)
    buffers = [validity(present.view(np.bool_)), pa.py_buffer(offsets), out.slice(0, int(offsets[-1]))]
    return pa.Array.from_buffers(pa.string(), count, buffers), stops


def _characters(units: npt.NDArray[np.uint16]) -> pa.Array:
    offsets, out = np.empty(len(units) + 1, np.int32), allocate(3 * len(units))
    written = kernels.characters_to_utf8(units, offsets, np.frombuffer(out, np.uint8))
    return pa.Array.from_buffers(pa.string(), len(units), [None, pa.py_buffer(offsets), out.slice(0, written)])


def _big_numbers(type_: Scalar, data: Bytes, starts: Positions, limits: Positions) -> Column:
    lengths, values, stops = (np.empty(len(starts), np.int64) for _ in range(3))
    raise_if_damaged(kernels.read_big_integers(data, starts, limits, lengths, values, stops), type_, data, limits)
    present = lengths >= 0
    long = np.flatnonzero(lengths > 8)
    integers: list[int] = values.tolist() if type_ is Scalar.BIG_DECIMAL else values[long].tolist()
    places = long.tolist() if type_ is Scalar.BIG_DECIMAL else range(len(long))
    for place, row in zip(places, long.tolist(), strict=True):
        integers[place] = int.from_bytes(data[stops[row] - lengths[row] : stops[row]].tobytes(), "big", signed=True)
    if type_ is Scalar.BIG_INTEGER:
        texts = pc.cast(pa.array(values, mask=~present), pa.string())
        if len(long):
            is_long = pa.array(lengths > 8)
            texts = pc.replace_with_mask(texts, is_long, pa.array(map(integer_text, integers), pa.string()))
        return texts, stops
    scales = np.zeros(len(starts), np.int32)
    scales[present] = read_numbers(type_, data, stops[present], limits[present], np.int32)
    triples = zip(integers, scales.tolist(), present.tolist(), strict=True)
    texts = pa.array(
        (big_decimal_text(unscaled, scale) if there else None for unscaled, scale, there in triples), pa.string()
    )
    return texts, np.where(present, stops + 4, stops)


def _variants(type_: Scalar, data: Bytes, starts: Positions, limits: Positions) -> Column:
    lengths = [read_numbers(type_, data, starts + at, limits, np.int32).astype(np.int64) for at in (0, 4)]
    firsts = [starts + 8, starts + 8 + lengths[0]]
    stops = firsts[1] + lengths[1]
    for length in lengths:
        damaged_where((length < 0) | (length > _MOST_VARIANT) | (stops > limits), starts, "a Variant's length", length)
    versions = read_numbers(type_, data, firsts[1], stops, np.uint8) & 0x0F
    damaged_where(versions != 1, firsts[1], "version 1 of a Variant", versions)
    parts = [blocks_array(data, first, first + length) for first, length in zip(firsts, lengths, strict=True)]
    return struct_array(VARIANT, parts, len(starts)), stops
