"""Compiled loops over a MANIFEST: they join the parts of its records, and make numbers of its changes."""

# The keyword that turns numba's reference counts off is missing in its own types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

import numpy as np

from flinkstate.basics.compiling import compiled, kernel_of
from flinkstate.basics.words import fail, load32
from flinkstate.hashing import crc32c
from flinkstate.hashing.crc32c import masked_crc32c
from flinkstate.rocksdb import kernels
from flinkstate.rocksdb.kernels import copy, long_varint

BLOCK, HEADER = 1 << 15, 7
_WHOLE, _FIRST, _LAST = 1, 2, 4
# Why a log can't be read.
NOT_ZERO, SHORT_HEADER, TOO_LONG, BAD_CHECKSUM, BAD_KIND, OPEN_RECORD = range(1, 7)

# The tags of a change. The numbers are of the log, the next file, the last sequence, the log before, the least log to
# keep, and the largest column family.
NUMBERS = (2, 3, 4, 9, 10, 203)
DELETED_FILE, NEW_FILE, COLUMN_FAMILY = 6, 103, 200
MOST_LEVELS = 64
# Of a new file's own tags: the end, and a bit that says that it can't be ignored.
NO_MORE, ESSENTIAL = 1, 1 << 6
BLOB_FILE, EPOCH = 4, 13
# What is known of a file that a change adds or removes. Its first and last key are between two positions.
RECORD, FAMILY, ADDED, LEVEL, NUMBER, SIZE, SMALLEST, SMALLEST_END, LARGEST, LARGEST_END, LEAST, MOST, AGE = range(13)
COLUMNS = 13

_kernel = kernel_of(__file__, kernels.__file__, crc32c.__file__)


@_kernel
def joined(data, size, out, bounds, offsets, failure):
    """Joins the parts of each record, and checks their checksums.

    Record r is `out[bounds[r]:bounds[r + 1]]`, and begins at `offsets[r]` of the file. Returns the number of records,
    or -1 on failure.
    """
    position, at, count, begun = np.int64(0), np.int64(0), np.int64(0), np.int64(-1)
    while position < size:
        left = BLOCK - position % BLOCK
        if left < HEADER:
            for byte in range(left):
                if position + byte >= size or data[position + byte] != 0:
                    return fail(failure, NOT_ZERO, position, 0)
            position += left
            continue
        if size - position < HEADER:
            return fail(failure, SHORT_HEADER, position, size - position)
        length = np.int64(data[position + 4]) | np.int64(data[position + 5]) << 8
        kind = np.int64(data[position + 6])
        if length + HEADER > min(left, size - position):
            return fail(failure, TOO_LONG, position, length)
        end = position + HEADER + length
        if masked_crc32c(data, position + 6, end) != load32(data, position):
            return fail(failure, BAD_CHECKSUM, position, 0)
        # A record begins only when none is open, and goes on only when one is.
        if not 1 <= kind <= 4 or (begun < 0) != (kind in (_WHOLE, _FIRST)):
            return fail(failure, BAD_KIND, position, kind)
        if begun < 0:
            begun = position
        copy(data, position + HEADER, out, at, length)
        at += length
        position = end
        if kind in (_WHOLE, _LAST):
            offsets[count] = begun
            count += 1
            bounds[count] = at
            begun = np.int64(-1)
    return fail(failure, OPEN_RECORD, begun, 0) if begun >= 0 else count


@compiled
def _sized(data, position, limit):
    """Returns where bytes with their number before them begin and end; a negative end if they aren't there."""
    size, position = long_varint(data, position, limit)
    if position < 0 or size > limit - position:
        return position, np.int64(-1)
    return position, position + size


@compiled
def _two_numbers(data, position, limit, file):
    """Reads a file's level and number. Returns the position behind them, or a negative one."""
    file[LEVEL], position = long_varint(data, position, limit)
    if position >= 0:
        file[NUMBER], position = long_varint(data, position, limit)
    return position


@compiled
def _new_file(data, position, limit, file):
    """Reads what is said of a new file. Returns the position behind it, or a negative one if that isn't usual."""
    position = _two_numbers(data, position, limit, file)
    if position < 0:
        return position
    file[SIZE], position = long_varint(data, position, limit)
    if position < 0:
        return position
    for column in (SMALLEST, LARGEST):
        begin, position = _sized(data, position, limit)
        # A key has a tag of 8 bytes.
        if position < begin + 8:
            return np.int64(-1)
        file[column], file[column + 1] = begin, position
    for column in (LEAST, MOST):
        file[column], position = long_varint(data, position, limit)
        if position < 0:
            return position
    own = np.int64(0)
    while own != NO_MORE:
        own, position = long_varint(data, position, limit)
        if position < 0 or own == NO_MORE:
            return position if file[LEVEL] < MOST_LEVELS else np.int64(-1)
        begin, position = _sized(data, position, limit)
        if position < 0 or own & ESSENTIAL or own == BLOB_FILE:
            return np.int64(-1)
        if own == EPOCH:
            file[AGE], begin = long_varint(data, begin, position)
            if begin < 0:
                return begin
    return position


@compiled
def _place_of(tag):
    place = np.int64(0)
    while place < len(NUMBERS) and NUMBERS[place] != tag:
        place += 1
    return place


@compiled
def _usual_change(data, position, limit, record, files, at, numbers):
    """Reads one change. Returns its column family and the number of rows of `files`, or a negative one if it can't."""
    family, is_own = np.int64(0), False
    while position < limit:
        tag, position = long_varint(data, position, limit)
        if position < 0:
            return family, position
        place = _place_of(tag)
        if place < len(NUMBERS):
            numbers[place], position = long_varint(data, position, limit)
        elif tag == COLUMN_FAMILY and not is_own:
            is_own = True
            family, position = long_varint(data, position, limit)
        elif tag in (DELETED_FILE, NEW_FILE) and at < len(files):
            file = files[at]
            file[RECORD], file[ADDED], file[AGE] = record, np.int64(tag == NEW_FILE), 0
            at += 1
            if tag == NEW_FILE:
                position = _new_file(data, position, limit, file)
            else:
                position = _two_numbers(data, position, limit, file)
        else:
            position = np.int64(-1)
        if position < 0:
            return family, position
    return family, at


@_kernel
def usual_changes(data, bounds, first, files, families, numbers, taken):
    """Reads changes from record `first` on, until one has other tags than RocksDB writes all the time, or is damaged.

    Each file that a change adds or removes becomes a row of `files`, and `taken[0]` the number of these. The column
    family of record r is `families[r - first]`, and `numbers[0]` are the last of each of `NUMBERS`. Returns the number
    of changes. The one after them, for which there may be no room, is as if it hadn't been looked at.
    """
    count, at = np.int64(0), np.int64(0)
    while count < len(families):
        record = first + count
        for place in range(len(NUMBERS)):
            numbers[1, place] = numbers[0, place]
        family, end = _usual_change(data, bounds[record], bounds[record + 1], record, files, at, numbers[1])
        if end < 0:
            break
        for place in range(len(NUMBERS)):
            numbers[0, place] = numbers[1, place]
        for place in range(at, end):
            files[place, FAMILY] = family
        families[count] = family
        at = end
        count += 1
    taken[0] = at
    return count
