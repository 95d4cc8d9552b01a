"""Computes to which key group a key belongs and which subtask owns a key group, one value at a time.

The names follow Flink's `KeyGroupRange` and `KeyGroupRangeAssignment`. `key_group_arrays.py` does the same for whole
columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from flinkstate.errors import UsageError

DEFAULT_LOWER_BOUND_MAX_PARALLELISM = 128
UPPER_BOUND_MAX_PARALLELISM = 32768
LAST_MAX_PARALLELISM_WITH_ONE_BYTE_PREFIX = 128

_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """Key groups `start` to `end`, both inclusive; `(0, -1)` is the empty range."""

    start: int
    end: int

    EMPTY: ClassVar[KeyGroupRange]

    def __post_init__(self) -> None:
        if (self.start, self.end) != (0, -1) and not 0 <= self.start <= self.end:
            raise UsageError(
                f"expected a key group range with 0 <= start <= end, found [{self.start}, {self.end}]: "
                "the empty range is KeyGroupRange.EMPTY"
            )

    @classmethod
    def of(cls, start: int, end: int) -> KeyGroupRange:
        """Returns the range from start to end, or the empty range if start is behind end."""
        return cls(start, end) if start <= end else cls.EMPTY

    @property
    def size(self) -> int:
        return self.end - self.start + 1

    @property
    def is_empty(self) -> bool:
        return self.end < self.start

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange:
        return KeyGroupRange.of(max(self.start, other.start), min(self.end, other.end))

    def __contains__(self, key_group: object) -> bool:
        return isinstance(key_group, int) and self.start <= key_group <= self.end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end + 1))

    def __len__(self) -> int:
        return self.size

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}]"


KeyGroupRange.EMPTY = KeyGroupRange(0, -1)


def murmur(code: int) -> int:
    """Returns Flink's `MathUtils.murmurHash`: murmur3 of one 32-bit integer with seed 0, made non-negative."""
    if not -(2**31) <= code < 2**31:
        raise UsageError(f"expected a hash code of 32 bits (-2147483648..2147483647), found {code}")
    mixed = (code & _MASK) * 0xCC9E2D51 & _MASK
    mixed = _rotate_left(mixed, 15) * 0x1B873593 & _MASK
    mixed = (_rotate_left(mixed, 13) * 5 + 0xE6546B64) & _MASK
    mixed ^= 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _MASK
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _MASK
    mixed ^= mixed >> 16
    if mixed < 2**31:
        return mixed
    return 0 if mixed == 2**31 else 2**32 - mixed


def _rotate_left(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK


def assign_to_key_group(hash_code: int, max_parallelism: int) -> int:
    """Returns the key group of a key with this `hashCode`."""
    check_parallelism(max_parallelism, "max parallelism")
    return murmur(hash_code) % max_parallelism


def operator_index_for_key_group(max_parallelism: int, parallelism: int, key_group: int) -> int:
    """Returns the subtask that owns a key group."""
    check_layout(max_parallelism, parallelism)
    if not 0 <= key_group < max_parallelism:
        raise UsageError(f"expected a key group of 0..{max_parallelism - 1}, found {key_group}")
    return key_group * parallelism // max_parallelism


def range_for_operator_index(max_parallelism: int, parallelism: int, index: int) -> KeyGroupRange:
    """Returns the key groups that a subtask owns."""
    check_layout(max_parallelism, parallelism)
    if not 0 <= index < parallelism:
        raise UsageError(f"expected a subtask of 0..{parallelism - 1}, found {index}")
    start = (index * max_parallelism + parallelism - 1) // parallelism
    end = ((index + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(start, end)


def ranges(max_parallelism: int, parallelism: int) -> tuple[KeyGroupRange, ...]:
    """Returns the key groups of every subtask, in the order of the subtasks."""
    return tuple(range_for_operator_index(max_parallelism, parallelism, index) for index in range(parallelism))


def default_max_parallelism(parallelism: int) -> int:
    """Returns the max parallelism that Flink gives to an operator for which neither job nor savepoint has one.

    It is the least power of two that is no less than one and a half times the parallelism, within 128..32768.
    """
    check_parallelism(parallelism, "parallelism")
    rounded_up = 1 << (parallelism + parallelism // 2 - 1).bit_length()
    return min(max(rounded_up, DEFAULT_LOWER_BOUND_MAX_PARALLELISM), UPPER_BOUND_MAX_PARALLELISM)


def default_note(parallelism: int, max_parallelism: int) -> str | None:
    """Says what a new job would get at this parallelism, if it isn't the max parallelism of the savepoint."""
    default = default_max_parallelism(parallelism)
    if default == max_parallelism:
        return None
    return (
        f"a new job gets max parallelism {default} at parallelism {parallelism}, unless it sets another one; one that "
        f"starts from this savepoint gets {max_parallelism}"
    )


def key_group_prefix_bytes(max_parallelism: int) -> int:
    """Returns how many bytes a key group takes before every key."""
    check_parallelism(max_parallelism, "max parallelism")
    return 1 if max_parallelism <= LAST_MAX_PARALLELISM_WITH_ONE_BYTE_PREFIX else 2


def check_parallelism(value: int, name: str) -> None:
    """Refuses a parallelism outside of Flink's bounds; `name` is how the message calls it."""
    if not 1 <= value <= UPPER_BOUND_MAX_PARALLELISM:
        raise UsageError(f"expected a {name} of 1..{UPPER_BOUND_MAX_PARALLELISM}, found {value}")


def check_layout(max_parallelism: int, parallelism: int) -> None:
    """Refuses a parallelism that is larger than the max parallelism, or either outside of Flink's bounds."""
    check_parallelism(max_parallelism, "max parallelism")
    check_parallelism(parallelism, "parallelism")
    if parallelism > max_parallelism:
        raise UsageError(
            f"expected a parallelism of at most the max parallelism {max_parallelism}, found {parallelism}: "
            "lower the parallelism or raise the max parallelism"
        )
