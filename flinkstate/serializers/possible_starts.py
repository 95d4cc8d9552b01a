"""Finds the places in a header where a serializer snapshot, a serializer's key or a state may begin.

One pass over the bytes finds all. Each of the three begins with a text; the bytes behind the text tell them apart:

| what begins | text | behind it |
|---|---|---|
| snapshot | a class name: not empty, no control characters, no spaces | i32 version below 2^28 |
| serializer key | not empty | i32 2 |
| state | its name | i32 kind 0 to 4, i32 number of options, options, i32 number of serializers, a serializer's key |

No place where one of them really begins is missed. But a place may be found where no snapshot or key begins, because
these are found by the marks above alone. States are parsed up to their first serializer.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flinkstate.basics.array_types import Bytes, Flags
from flinkstate.errors import DamagedError
from flinkstate.serializers.binary import ByteReader

MOST_UNKNOWN_VERSION = 0x10000000  # less than any four characters of text
SNAPSHOT_VERSION = 2  # comes before each snapshot that isn't part of another one

_VERSION = SNAPSHOT_VERSION.to_bytes(4, "big")
_BLOCK = 1 << 18
_LONGEST_TEXT = 0xFFFF
_BEHIND_TEXT = 12  # the number of bytes behind a text that are checked
_MOST_KINDS = 5
# The most that one state may have. Flink has never written more than 1 option and 3 serializers.
_MOST_OPTIONS = 15
_MOST_SERIALIZERS = 15

_SNAPSHOT, _KEY, _STATE = 1, 2, 4


@dataclass(frozen=True, slots=True)
class PossibleStarts:
    """The places where snapshots, serializers' keys and states may begin, in ascending order."""

    snapshots: array[int]
    keys: array[int]
    states: array[int]


def find_possible_starts(data: bytes, limit: int) -> PossibleStarts:
    """Finds the possible starts in the first `limit` bytes of a header."""
    snapshots, keys, states = array("q"), array("q"), array("q")
    for start in range(0, limit, _BLOCK):
        stop = min(start + _BLOCK, limit)
        end = min(stop + 2 + _LONGEST_TEXT + _BEHIND_TEXT, limit)
        marks = _marks(np.frombuffer(data, np.uint8, end - start, start), stop - start)
        for found, flag in ((snapshots, _SNAPSHOT), (keys, _KEY)):
            found.frombytes((np.flatnonzero(marks & flag).astype(np.int64) + start).tobytes())
        for position in (np.flatnonzero(marks & _STATE) + start).tolist():
            if _may_be_a_state(data, position) and read_state_head(data, position, limit) is not None:
                states.append(position)
    return PossibleStarts(snapshots, keys, states)


def _may_be_a_state(data: bytes, position: int) -> bool:
    """Whether the numbers in a state's head are plausible; a quick check, because there may be many candidates."""
    position += 2 + int.from_bytes(data[position : position + 2], "big") + 4
    options = int.from_bytes(data[position : position + 4], "big")
    position += 4
    for _ in range(options):
        length = int.from_bytes(data[position : position + 2], "big")
        if not length:
            return False
        position += 2 + length
        position += 2 + int.from_bytes(data[position : position + 2], "big")
    position += 4
    key_end = position + 2 + int.from_bytes(data[position : position + 2], "big")
    return data[key_end : key_end + 4] == _VERSION


def read_state_head(data: bytes, position: int, limit: int) -> tuple[int, int] | None:
    """Returns where the first serializer of the state at a position begins, and how many serializers it has.

    Returns None if the bytes are not a state as Flink writes it.
    """
    reader = ByteReader(data, "", position=position, limit=limit)
    try:
        reader.utf("a state's name")
        if not 0 <= reader.i32("a state's kind") < _MOST_KINDS:
            return None
        options = reader.i32("the number of options")
        if not 0 <= options <= _MOST_OPTIONS:
            return None
        for _ in range(options):
            if not reader.utf("an option"):
                return None
            reader.utf("an option's value")
        serializers = reader.i32("the number of serializers")
        start = reader.position
        if 1 <= serializers <= _MOST_SERIALIZERS and read_key(reader):
            return start, serializers
    except DamagedError:
        pass
    return None


def read_key(reader: ByteReader) -> str:
    """Reads the key of a serializer, and checks the version of the snapshot behind it."""
    key = reader.utf("the key of a serializer")
    reader.expect_i32(SNAPSHOT_VERSION, "the version before a serializer snapshot")
    return key


def _marks(data: Bytes, starts: int) -> Bytes:
    """Returns for each of the first `starts` positions, as flags, what may begin there."""
    size = len(data)
    behind = _flags_behind_a_text(data)
    lengths = np.zeros(starts, np.int32)
    lengths[: size - 1] = data[:starts][: size - 1].astype(np.int32) << 8
    lengths[: size - 1] |= data[1 : starts + 1]
    ends = np.arange(2, starts + 2, dtype=np.int32) + lengths
    inside = ends <= size
    marks = np.where(inside, behind[np.minimum(ends, size)], 0).astype(np.uint8)
    marks[lengths == 0] &= _STATE
    # Check the texts themselves, at the positions that are left.
    left = np.flatnonzero(marks)
    text = _Utf8Ranges(data)
    left_starts, left_ends = left + 2, ends[left]
    is_text = text.is_valid(left_starts, left_ends)
    is_class = is_text & text.has_no_gap(left_starts, left_ends)
    marks[left] &= np.where(is_class, 7, np.where(is_text, _KEY | _STATE, 0)).astype(np.uint8)
    return marks


def _flags_behind_a_text(data: Bytes) -> Bytes:
    """Returns for each position, as flags, what may have begun with a text that ends there."""
    size = len(data)
    padded = np.concatenate((data, np.full(_BEHIND_TEXT + 1, 0xFF, np.uint8)))

    def at(offset: int) -> Bytes:
        return padded[offset : offset + size + 1]

    zeros = at(0) == 0
    zeros &= at(1) == 0
    zeros &= at(2) == 0
    more_zeros = zeros & (at(4) == 0)
    more_zeros &= at(5) == 0
    more_zeros &= at(6) == 0
    more_zeros &= at(3) < _MOST_KINDS
    no_options = more_zeros & (at(7) == 0)
    no_options &= at(8) == 0
    no_options &= at(9) == 0
    no_options &= at(10) == 0
    no_options &= (at(11) >= 1) & (at(11) <= _MOST_SERIALIZERS)
    options = more_zeros
    options &= (at(7) >= 1) & (at(7) <= _MOST_OPTIONS)
    options &= (at(8) > 0) | (at(9) > 0)
    flags = np.zeros(size + 1, np.uint8)
    flags[at(0) < MOST_UNKNOWN_VERSION >> 24] |= _SNAPSHOT
    flags[zeros & (at(3) == SNAPSHOT_VERSION)] |= _KEY
    flags[options | no_options] |= _STATE
    return flags


class _Utf8Ranges:
    """Tells which ranges of the bytes are valid modified UTF-8."""

    def __init__(self, data: Bytes) -> None:
        following = np.append(data[1:], np.uint8(0))
        continues = data >> 6 == 0b10
        next_continues = np.append(continues[1:], False)
        third_continues = np.append(next_continues[1:], False)
        self._of_two = next_continues & (
            ((data >= 0xC2) & (data < 0xE0)) | ((data == 0xC0) & (following == 0x80))  # c0 80 is NUL
        )
        self._of_three = (
            (data >> 4 == 0b1110) & next_continues & third_continues & ~((data == 0xE0) & (following < 0xA0))
        )
        self._continues = continues
        inner = np.zeros(len(data), np.bool_)
        inner[1:] |= self._of_two[:-1] | self._of_three[:-1]
        inner[2:] |= self._of_three[:-2]
        good = ((data > 0) & (data < 0x80)) | self._of_two | self._of_three | (continues & inner)
        self._bad_before = _counts_before(~good)
        self._gaps_before = _counts_before((data <= 0x20) | (data == 0x7F))

    def is_valid(self, starts: NDArray[np.int64], ends: NDArray[np.int32]) -> Flags:
        """Whether each range is whole characters: it begins and ends with one, and has no byte outside of one."""
        last = np.maximum(ends - 1, 0)
        empty = ends <= starts
        valid: Flags = self._bad_before[ends] == self._bad_before[starts]
        valid &= empty | ~self._continues[np.minimum(starts, len(self._continues) - 1)]
        valid &= empty | ~(self._of_two[last] | self._of_three[last])
        valid &= (ends - starts < 2) | ~self._of_three[np.maximum(last - 1, 0)]
        return valid

    def has_no_gap(self, starts: NDArray[np.int64], ends: NDArray[np.int32]) -> Flags:
        """Whether each range has neither a space nor a control character."""
        gapless: Flags = self._gaps_before[ends] == self._gaps_before[starts]
        return gapless


def _counts_before(flags: Flags) -> NDArray[np.int32]:
    counts = np.zeros(len(flags) + 1, np.int32)
    np.cumsum(flags, out=counts[1:])
    return counts
