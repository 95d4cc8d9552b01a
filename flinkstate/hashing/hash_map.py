"""The order in which a Java `HashMap` iterates its keys; some results of Flink depend on it.

Keys are iterated by bucket. In a bucket `put` appends, `computeIfAbsent` prepends, and growing keeps the order. (A
bucket of eight keys and more becomes a tree with another order; with names of states this practically never happens.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_DEFAULT_CAPACITY = 16


def order_of_put(keys: Sequence[str], expected_size: int) -> list[str]:
    """Returns the keys of a map that was made by Flink's `newHashMapWithExpectedSize` and filled by `put`."""
    required = expected_size + 1 if expected_size <= 2 else -(-expected_size * 4 // 3)
    return _by_bucket(keys, 1 << (required - 1).bit_length())


def order_of_compute_if_absent(calls: Iterable[str]) -> list[str]:
    """Returns the keys of a map of default size after these calls of `computeIfAbsent`, which may repeat keys."""
    keys: dict[str, None] = {}
    capacity = _DEFAULT_CAPACITY
    for key in calls:
        # The map grows if it is too full when a call begins, whether or not the call adds a key.
        if len(keys) > capacity * 3 // 4:
            capacity *= 2
        keys[key] = None
    return _by_bucket(list(reversed(keys)), capacity)


def _by_bucket(keys: Sequence[str], capacity: int) -> list[str]:
    def bucket(key: str) -> int:
        code = string_hash(key)
        return (code ^ code >> 16) & (capacity - 1)

    return sorted(keys, key=bucket)


def string_hash(text: str) -> int:
    """Returns `String.hashCode` as an unsigned 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for position in range(0, len(units), 2):
        code = (31 * code + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return code
