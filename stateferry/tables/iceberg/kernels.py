"""Compiled parts of the index of keys: an open-addressing hash table; keys are told apart by 128 bits."""

from __future__ import annotations

import numpy as np

from flinkstate.basics.compiling import kernel_of

_kernel = kernel_of(__file__)


@_kernel
def number_keys(first, second, slots, numbers, firsts):  # type: ignore[no-untyped-def]
    """Numbers the different keys in the order in which they first occur.

    `slots` has -1 in every place. Their number is a power of two, and larger than that of the keys. `firsts[n]` becomes
    the index where key n first occurs. Returns how many different keys there are.
    """
    mask = np.uint64(len(slots) - 1)
    count = np.int64(0)
    for index in range(len(first)):
        slot = np.int64(first[index] & mask)
        while True:
            number = slots[slot]
            if number < 0:
                slots[slot] = count
                firsts[count] = index
                numbers[index] = count
                count += 1
                break
            if first[firsts[number]] == first[index] and second[firsts[number]] == second[index]:
                numbers[index] = number
                break
            slot = np.int64(np.uint64(slot + 1) & mask)
    return count


@_kernel
def find_keys(known_first, known_second, slots, first, second, out):  # type: ignore[no-untyped-def]
    """Finds the number of each key among the known ones, or -1."""
    mask = np.uint64(len(slots) - 1)
    for index in range(len(first)):
        slot = np.int64(first[index] & mask)
        out[index] = -1
        while slots[slot] >= 0:
            number = slots[slot]
            if known_first[number] == first[index] and known_second[number] == second[index]:
                out[index] = number
                break
            slot = np.int64(np.uint64(slot + 1) & mask)


@_kernel
def add_to_keys(numbers, values, chosen, sums):  # type: ignore[no-untyped-def]
    """Adds the chosen values to the sums of their keys."""
    for index in range(len(numbers)):
        if chosen[index]:
            sums[numbers[index]] += values[index]
