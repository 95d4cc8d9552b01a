"""Compiled loops that copy one part of many serialized values into the buffers of an Arrow array.

Every loop gets the position of each value and the limit that it may not cross, and checks both before it reads. It
returns (code, row, detail). The code is OK, or says why the loop stopped at this row; `detail` is the position of the
damage, or for FULL the size that the output needs. The bytes are a read-only array, the outputs belong to the caller.
"""

# In compiled code Python's int and numpy's integers are the same type.
# mypy: disable-error-code="arg-type,assignment,no-any-return,operator,return-value"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flinkstate.basics.array_types import ByteFlags, Bytes, Positions
from flinkstate.basics.compiling import inlined, kernel_of
from flinkstate.basics.words import load64, store64

Offsets = NDArray[np.int32]
Outcome = tuple[int, int, int]

OK = 0
TRUNCATED = 1
BAD_FLAG = 2
BAD_COUNT = 3
BAD_LENGTH = 4
BAD_UNIT = 5
FULL = 6

_WORD = 8
_HIGH_BITS = np.uint64(0x8080808080808080)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
_REPLACEMENT = 0xFFFD

_kernel = kernel_of(__file__)


@_kernel
def gather(data: Bytes, starts: Positions, limits: Positions, out: NDArray[np.generic]) -> Outcome:
    """Reads big-endian numbers as wide as the unsigned items of `out`."""
    for row in range(len(starts)):
        start = starts[row]
        if limits[row] - start < out.itemsize:
            return TRUNCATED, row, start
        value = np.uint64(0)
        for offset in range(out.itemsize):
            value = value << np.uint64(8) | np.uint64(data[np.uint64(start + offset)])
        out[row] = value
    return OK, 0, 0


@_kernel
def read_flags(data: Bytes, starts: Positions, limits: Positions, flags: ByteFlags) -> Outcome:
    """Reads a byte of 0 or 1 at each start."""
    for row in range(len(starts)):
        start = starts[row]
        if start >= limits[row]:
            return TRUNCATED, row, start
        flag = data[np.uint64(start)]
        if flag > 1:
            return BAD_FLAG, row, start
        flags[row] = flag
    return OK, 0, 0


@_kernel
def read_counts(data: Bytes, starts: Positions, limits: Positions, least: int, offsets: Positions) -> Outcome:
    """Reads an i32 count at each start, of items of at least `least` bytes each; `offsets` is their running sum."""
    total = np.int64(0)
    offsets[0] = 0
    for row in range(len(starts)):
        start = starts[row]
        if limits[row] - start < 4:
            return TRUNCATED, row, start
        count = np.int32(0)
        for offset in range(4):
            count = np.int32(count << np.int32(8) | np.int32(data[np.uint64(start + offset)]))
        if count < 0 or np.int64(count) * least > limits[row] - start - 4:
            return BAD_COUNT, row, start
        total += np.int64(count)
        offsets[row + 1] = total
    return OK, 0, 0


@_kernel
def copy_blocks(data: Bytes, starts: Positions, ends: Positions, offsets: Offsets, out: Bytes) -> None:
    """Copies the bytes from each start to its end, one run behind the other.

    `offsets` becomes where each of these runs begins, with the end of the last. The caller has checked the positions.
    """
    target = np.int64(0)
    for row in range(len(starts)):
        source, end = starts[row], ends[row]
        offsets[row] = target
        after = target + end - source
        # Whole words as long as they fit. Bytes that are written behind a run's end are overwritten by the next run.
        while source < end and source + _WORD <= len(data) and target + _WORD <= len(out):
            store64(out, target, load64(data, source))
            source += _WORD
            target += _WORD
        while source < end:
            out[np.uint64(target)] = data[np.uint64(source)]
            source += 1
            target += 1
        target = after
    offsets[len(starts)] = target


@inlined
def _rest_of_word(data: Bytes, position: int, size: int) -> np.uint64:
    """Returns the rest of a run that is shorter than a word: up to 7 bytes, the first one lowest."""
    if position + _WORD <= len(data):
        return load64(data, position) & (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
    word = np.uint64(0)
    for offset in range(size):
        word |= np.uint64(data[np.uint64(position + offset)]) << np.uint64(8 * offset)
    return word


@inlined
def _hash_run(data: Bytes, start: int, end: int) -> np.uint64:
    state = np.uint64(end - start)
    while end - start >= _WORD:
        state = (state ^ load64(data, start)) * _FACTOR
        state ^= state >> np.uint64(32)
        start += _WORD
    state = (state ^ _rest_of_word(data, start, end - start)) * _FACTOR
    return state ^ state >> np.uint64(32)


@inlined
def _same_run(data: Bytes, one: int, other: int, size: int) -> bool:
    while size >= _WORD:
        if load64(data, one) != load64(data, other):
            return False
        one += _WORD
        other += _WORD
        size -= _WORD
    return bool(_rest_of_word(data, one, size) == _rest_of_word(data, other, size))


@_kernel
def number_runs(
    data: Bytes, starts: Positions, ends: Positions, slots: Offsets, firsts: Positions, numbers: Offsets
) -> int:
    """Numbers the different runs of bytes, each from a start to its end, in the order in which they first occur.

    `slots` has -1 in every place. Their number is a power of two, and larger than that of `firsts`. `firsts[n]` becomes
    the row where run n first occurs. Returns how many different runs there are, or -1 if `firsts` has no room for them.
    """
    mask = np.uint64(len(slots) - 1)
    count = 0
    number = np.int32(-1)
    for row in range(len(starts)):
        start, end = starts[row], ends[row]
        # Try first the run that followed at the first occurrence of the previous one: it mostly follows again.
        if number + 1 < count:
            first = firsts[number + 1]
            if ends[first] - starts[first] == end - start and _same_run(data, starts[first], start, end - start):
                number += np.int32(1)
                numbers[row] = number
                continue
        slot = _hash_run(data, start, end) & mask
        while True:
            number = slots[slot]
            if number < 0:
                if count == len(firsts):
                    return -1
                number = np.int32(count)
                slots[slot] = number
                firsts[count] = row
                count += 1
                break
            first = firsts[number]
            if ends[first] - starts[first] == end - start and _same_run(data, starts[first], start, end - start):
                break
            slot = slot + np.uint64(1) & mask
        numbers[row] = number
    return count


@_kernel
def _write_utf8(out: Bytes, target: int, code: int) -> int:
    """Writes one code point and returns the position behind it."""
    if code < 0x80:
        out[target] = code
        return target + 1
    if code < 0x800:
        out[target] = 0xC0 | code >> 6
        out[target + 1] = 0x80 | code & 0x3F
        return target + 2
    if code < 0x10000:
        out[target] = 0xE0 | code >> 12
        out[target + 1] = 0x80 | code >> 6 & 0x3F
        out[target + 2] = 0x80 | code & 0x3F
        return target + 3
    out[target] = 0xF0 | code >> 18
    out[target + 1] = 0x80 | code >> 12 & 0x3F
    out[target + 2] = 0x80 | code >> 6 & 0x3F
    out[target + 3] = 0x80 | code & 0x3F
    return target + 4


@_kernel
def _copy_units(data: Bytes, position: int, limit: int, units: int, out: Bytes, target: int) -> tuple[int, int, int]:
    """Converts UTF-16 units (varints) to UTF-8; returns (code, position behind them or of the damage, next target)."""
    high = np.int64(0)
    for _ in range(units):
        start = position
        if position >= limit:
            return TRUNCATED, start, target
        unit = np.int64(data[position])
        position += 1
        if unit >= 0x80:
            if position >= limit:
                return TRUNCATED, start, target
            more = np.int64(data[position])
            position += 1
            unit = unit & 0x7F | (more & 0x7F) << 7
            least = 0x80
            if more >= 0x80:
                if position >= limit:
                    return TRUNCATED, start, target
                unit |= np.int64(data[position]) << 14
                position += 1
                least = 0x4000
            if unit < least or unit > 0xFFFF:
                return BAD_UNIT, start, target
        if high != 0:
            if 0xDC00 <= unit < 0xE000:
                target = _write_utf8(out, target, 0x10000 + (high - 0xD800 << 10) + unit - 0xDC00)
                high = np.int64(0)
                continue
            target = _write_utf8(out, target, _REPLACEMENT)
            high = np.int64(0)
        if 0xD800 <= unit < 0xDC00:
            high = unit
        elif 0xDC00 <= unit < 0xE000:
            target = _write_utf8(out, target, _REPLACEMENT)
        else:
            target = _write_utf8(out, target, unit)
    if high != 0:
        target = _write_utf8(out, target, _REPLACEMENT)
    return OK, position, target


@_kernel
def read_strings(
    data: Bytes,
    starts: Positions,
    limits: Positions,
    null_lengths: int,
    first: int,
    offsets: Offsets,
    out: Bytes,
    present: ByteFlags,
    stops: Positions,
) -> Outcome:
    """Reads strings from row `first` on as UTF-8; a lone surrogate becomes U+FFFD.

    With `null_lengths` = 1 the written length is one more than the string's, and 0 is null; with 0 it is the length.
    Stops with FULL at the first row for which `out` has no room.
    """
    target = np.int64(offsets[first])
    for row in range(first, len(starts)):
        start, limit = starts[row], limits[row]
        position = start
        if position >= limit:
            return TRUNCATED, row, start
        length = np.int64(data[np.uint64(position)])
        position += 1
        if length >= 0x80:
            length &= 0x7F
            shift = 7
            while True:
                if position >= limit:
                    return TRUNCATED, row, start
                byte = np.int64(data[position])
                position += 1
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
                if shift > 28:
                    return BAD_LENGTH, row, start
            if byte == 0 or length > 0x7FFFFFFF:
                return BAD_LENGTH, row, start
        present[row] = length >= null_lengths
        units = max(length - null_lengths, 0)
        if units > limit - position:
            return TRUNCATED, row, start
        if target + units + _WORD > len(out):
            return FULL, row, target + units + _WORD
        end = position + units
        if units <= 2 * _WORD and position + 2 * _WORD <= len(data) and target + 2 * _WORD <= len(out):
            # Most strings are short. Two words are copied at once, because a branch on which are needed costs more.
            first_word, second_word = load64(data, position), load64(data, position + _WORD)
            rest = (np.uint64(1) << np.uint64(8 * (units % _WORD))) - np.uint64(1)
            first_mask = rest if units < _WORD else _ALL_BITS
            second_mask = rest if units >= _WORD else np.uint64(0)
            if units == 2 * _WORD:
                second_mask = _ALL_BITS
            if (first_word & first_mask | second_word & second_mask) & _HIGH_BITS == 0:
                # This may write behind the string's end; the next string overwrites it.
                store64(out, target, first_word)
                store64(out, target + _WORD, second_word)
                position = end
                target += units
        if position < end and end + _WORD <= len(data):
            while position < end:
                word = load64(data, position)
                size = end - position
                checked = word
                if size < _WORD:
                    checked &= (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
                else:
                    size = np.int64(_WORD)
                if checked & _HIGH_BITS:
                    break
                # This may write behind the string's end; the next string overwrites it.
                store64(out, target, word)
                position += size
                target += size
        if position < end:
            if target + 3 * (end - position) + _WORD > len(out):
                return FULL, row, target + 3 * (end - position) + _WORD
            code, position, target = _copy_units(data, position, limit, end - position, out, target)
            if code != OK:
                return code, row, position
        offsets[row + 1] = target
        stops[row] = position
    return OK, 0, 0


@_kernel
def characters_to_utf8(units: NDArray[np.uint16], offsets: Offsets, out: Bytes) -> int:
    """Writes strings of one UTF-16 unit each, a surrogate as U+FFFD; returns the number of bytes, at most 3 each."""
    target = np.int64(0)
    offsets[0] = 0
    for row in range(len(units)):
        unit = np.int64(units[row])
        target = _write_utf8(out, target, _REPLACEMENT if 0xD800 <= unit < 0xE000 else unit)
        offsets[row + 1] = target
    return target


@_kernel
def read_big_integers(
    data: Bytes, starts: Positions, limits: Positions, lengths: Positions, values: Positions, stops: Positions
) -> Outcome:
    """Reads BigIntegers: i32 (0 null, 1 zero, 2 one, 3 ten, otherwise 4 + a length), then two's complement.

    `lengths` is the number of bytes, 0 for the constants, -1 for null. `values` is the number if it has up to 8 bytes.
    """
    for row in range(len(starts)):
        start = starts[row]
        if limits[row] - start < 4:
            return TRUNCATED, row, start
        written = np.int32(0)
        for offset in range(4):
            written = np.int32(written << np.int32(8) | np.int32(data[np.uint64(start + offset)]))
        stops[row] = start + 4
        if written < 0 or written == 4:
            return BAD_LENGTH, row, start
        if written < 4:
            lengths[row] = -1 if written == 0 else 0
            values[row] = 10 if written == 3 else max(np.int64(written) - 1, 0)
            continue
        length = np.int64(written) - 4
        if length > limits[row] - start - 4:
            return TRUNCATED, row, start
        value = np.int64(np.int8(data[np.uint64(start + 4)]))
        if length > 1 and value == np.int64(np.int8(data[np.uint64(start + 5)])) >> 7:
            return BAD_LENGTH, row, start
        if length <= 8:
            for offset in range(5, written):
                value = value << 8 | np.int64(data[np.uint64(start + offset)])
        lengths[row] = length
        values[row] = value
        stops[row] = start + written
    return OK, 0, 0


@inlined
def _write_digits(out: Bytes, target: int, number: int, digits: int) -> int:
    for place in range(digits - 1, -1, -1):
        out[target + place] = ord("0") + number % 10
        number //= 10
    return target + digits


@_kernel
def format_times(seconds: Positions, nanos: Positions, offsets: Offsets, out: Bytes) -> int:
    """Writes times as `LocalTime.toString` does: seconds if they aren't 0, fractions in groups of three digits."""
    target = np.int64(0)
    offsets[0] = 0
    for row in range(len(seconds)):
        second, nano = seconds[row], nanos[row]
        target = _write_digits(out, target, second // 3600, 2)
        out[target] = ord(":")
        target = _write_digits(out, target + 1, second // 60 % 60, 2)
        if second % 60 != 0 or nano != 0:
            out[target] = ord(":")
            target = _write_digits(out, target + 1, second % 60, 2)
        if nano != 0:
            out[target] = ord(".")
            if nano % 1_000_000 == 0:
                target = _write_digits(out, target + 1, nano // 1_000_000, 3)
            elif nano % 1_000 == 0:
                target = _write_digits(out, target + 1, nano // 1_000, 6)
            else:
                target = _write_digits(out, target + 1, nano, 9)
        offsets[row + 1] = target
    return target
