"""Finds where keys and namespaces of entries end, also of keys that Kryo wrote or that have parts which it wrote.

It must be known which Kryo wrote these. Then where a key ends follows from its bytes, whatever stands behind it.
"""

from __future__ import annotations

import numpy as np

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.kryo_parts import ends_of_parts
from flinkstate.keyed.state import KeyedState
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.serializers.type_parts import fixed_length, kept_by_kryo
from flinkstate.serializers.types import Scalar
from flinkstate.serializers.walker import Bytes, Positions, SplitKeys, split_keys

_BY_KRYO_2 = (
    "Kryo 2 has written this key, before the job was upgraded to Flink 2, which doesn't find what is under it: first "
    "have a run with --to flink-2 alone write all keys by Kryo 5, and migrate its result"
)


def split_stored_keys(state: KeyedState, data: Bytes, starts: Positions, limits: Positions) -> SplitKeys:
    """Finds the key and the namespace of each entry of a state."""
    if not kept_by_kryo(state.key):
        return split_keys(state.key, state.namespace, state.has_suffixes, data, starts, limits)
    five, length = _kryo_and_length(state)
    ends = ends_of_parts(state.key, data, starts, limits, five=five, strict=False)
    for row in np.flatnonzero(ends < 0)[:1]:
        one = slice(row, row + 1)
        ends_of_parts(state.key, data, starts[one], limits[one], five=five, strict=True)
    for row in np.flatnonzero(ends + length > limits)[:1]:
        raise DamagedError("a namespace behind a key by Kryo", "its end", offset=int(ends[row]))
    if state.namespace is Scalar.VOID_NAMESPACE:
        for row in np.flatnonzero(data[ends] != 0)[:1]:
            raise DamagedError("0 behind a key by Kryo", f"{data[ends[row]]}", offset=int(ends[row]))
    return SplitKeys(ends, ends, ends + length, ends + length)


def expect_whole_keys(state: KeyedState, data: Bytes, starts: Positions, limits: Positions) -> None:
    """Raises for the first key by Kryo that doesn't end, with its namespace, where the entry's key does."""
    if not kept_by_kryo(state.key):
        return
    five, length = _kryo_and_length(state)
    ends = ends_of_parts(state.key, data, starts, limits, five=five, strict=False)
    wrong = ends + length != limits
    if state.namespace is Scalar.VOID_NAMESPACE:
        wrong |= data[limits - 1] != 0
    for row in np.flatnonzero(wrong)[:1]:
        one = data, starts[row : row + 1], limits[row : row + 1]
        if five and ends_of_parts(state.key, *one, five=False, strict=False)[0] + length == limits[row]:
            raise RefusedValueError(_BY_KRYO_2, int(starts[row]))
        found = int(split_stored_keys(state, *one).rests[0])
        raise DamagedError("the end of a key by Kryo", f"{limits[row] - found} more bytes", offset=found)


def _kryo_and_length(state: KeyedState) -> tuple[bool, int]:
    """Whether Kryo 5 wrote the state's keys, and how many bytes its namespaces have."""
    wrote, length = {kryo.five for kryo in kept_by_kryo(state.key)}, fixed_length(state.namespace)
    if len(wrote) > 1 or None in wrote or length is None:
        raise RefusedError(f"state {state.name}: its keys are by Kryo, and where they end isn't known")
    return True in wrote, length
