"""An index of keys by 128 bits of hash, which stand for each key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flinkstate.basics.array_types import Flags, Positions
from flinkstate.keyed.state import KeyedState
from flinkstate.serializers.types import Scalar
from stateferry.changes.key_hashes import Hashes, Lanes, key_lanes
from stateferry.tables.iceberg import kernels

_LEAST_SLOTS = 16


class KeyIndex:
    """Different keys, numbered in the order in which they first occur.

    `numbers` has the number of each key that was given, `firsts` the index where each number first occurs.
    """

    def __init__(self, lanes: Lanes) -> None:
        first, second = lanes
        # At most half of the slots are in use, so that searches are short.
        self._slots = np.full(max(1 << (2 * len(first)).bit_length(), _LEAST_SLOTS), -1, np.int64)
        self.numbers = np.empty(len(first), np.int64)
        firsts = np.empty(len(first), np.int64)
        count = kernels.number_keys(first, second, self._slots, self.numbers, firsts)
        self.firsts: Positions = firsts[:count].copy()
        self.lanes: Lanes = (first[self.firsts], second[self.firsts])

    def __len__(self) -> int:
        return len(self.firsts)

    def find(self, lanes: Lanes) -> Positions:
        """Returns the number of each key, or -1."""
        out = np.empty(len(lanes[0]), np.int64)
        kernels.find_keys(*self.lanes, self._slots, *lanes, out)
        return out

    def sums(self, values: Hashes, chosen: Flags) -> Hashes:
        """Returns for each key the sum of its chosen values."""
        out = np.zeros(len(self), np.uint64)
        kernels.add_to_keys(self.numbers, values, chosen, out)
        return out


def join_lanes(lanes: list[Lanes]) -> Lanes:
    """Joins the hashes of several lists of keys."""
    empty = np.empty(0, np.uint64)
    first, second = zip(*lanes, strict=True) if lanes else ((empty,), (empty,))
    return np.concatenate(first), np.concatenate(second)


def lanes_of_parts(state: KeyedState, keys: pa.Array, namespaces: pa.Array | None) -> Lanes:
    """Returns for keys and namespaces in separate columns what `key_lanes` returns for the bytes in a savepoint."""
    content, starts, ends = ranges_of_binary(whole_keys(state, keys, namespaces))
    return key_lanes(content, starts, ends)


def whole_keys(state: KeyedState, keys: pa.Array, namespaces: pa.Array | None) -> pa.Array:
    """Returns keys with their namespaces, as the bytes in a savepoint."""
    if state.namespace is Scalar.VOID_NAMESPACE:
        return pc.binary_join_element_wise(keys, pa.scalar(b"\0", pa.binary()), pa.scalar(b"", pa.binary()))
    if state.has_suffixes:
        parts = (keys, _lengths(keys), namespaces, _lengths(namespaces))
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
    return pc.binary_join_element_wise(keys, namespaces, pa.scalar(b"", pa.binary()))


def _lengths(parts: pa.Array) -> pa.Array:
    """Returns each part's length as Flink appends it: little-endian, in as few bytes as it needs."""
    lengths = pc.binary_length(parts).dictionary_encode()
    suffixes = [_little_endian(length) for length in lengths.dictionary.to_pylist()]
    return pa.array(suffixes, pa.binary()).take(lengths.indices)


def _little_endian(number: int) -> bytes:
    return number.to_bytes(max(1, -(-number.bit_length() // 8)), "little")


def ranges_of_binary(values: pa.Array) -> tuple[npt.NDArray[np.uint8], Positions, Positions]:
    """Returns the bytes of an array's values, and where each value begins and ends; nulls are empty."""
    if pa.types.is_dictionary(values.type):
        content, starts, ends = ranges_of_binary(values.dictionary)
        indices = values.indices.to_numpy()
        return content, starts[indices], ends[indices]
    *_, data = values.buffers()
    if pa.types.is_fixed_size_binary(values.type):
        positions = np.arange(values.offset, values.offset + len(values) + 1) * values.type.byte_width
    else:
        bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        positions = bounds.astype(np.int64)
    starts, ends = positions[:-1], positions[1:]
    if values.null_count:
        ends = np.where(values.is_null().to_numpy(zero_copy_only=False), starts, ends)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    # The kernels are compiled for read-only bytes, whatever buffer these are in.
    content.flags.writeable = False
    return content, starts, ends
