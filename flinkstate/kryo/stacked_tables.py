"""The tables of several serializers in one array of each kind, whose place i has those of serializer i.

A kernel that picks one of them by its number compiles faster than with a tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def stacked(tables: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Returns an array for each table. The first one of each serializer is its `ClassTable.tables`."""
    of_classes, *others = zip(*tables, strict=True)
    kinds, by_id, slots, extents = zip(*of_classes, strict=True)
    # In a hash table that is repeated, all names are found as before.
    size = max(map(len, slots))
    repeated = np.stack([np.tile(one, size // len(one)) for one in slots])
    return (_padded(kinds), _padded(by_id, -1), repeated, _padded(extents)), *map(_padded, others)


def _padded(arrays: Sequence[npt.NDArray[Any]], filler: int = 0) -> npt.NDArray[Any]:
    """Stacks arrays, of which shorter ones get `filler` behind them: nothing looks there."""
    shape = np.max([one.shape for one in arrays], axis=0)
    stacked = np.full((len(arrays), *shape), filler, arrays[0].dtype)
    for place, one in enumerate(arrays):
        stacked[place][tuple(map(slice, one.shape))] = one
    return stacked
