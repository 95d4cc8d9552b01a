"""Values that Kryo 2 wrote: which of them Kryo 5 writes with the same bytes, and so reads as the same objects.

Flink finds state by the bytes of keys, so those of keys must be the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.kryo.to_other_kryo import recoder
from flinkstate.serializers.programs import compile_type
from flinkstate.serializers.types import KryoType


def same_by_kryo_5(kryo: KryoType, data: Bytes, starts: Positions, ends: Positions) -> Flags | None:
    """Returns whether Kryo 5 writes each value with the bytes that it has; None if one can't be written."""
    try:
        made = recoder(compile_type(replace(kryo, five=False))).recode(data, starts, ends, np.zeros_like(starts))
    except (DamagedError, RefusedError):
        return None
    sizes, begins = ends - starts, np.concatenate((np.zeros(1, np.int64), made.ends))[: len(starts)]
    same: Flags = sizes == made.ends - begins
    rows = np.flatnonzero(same)
    if len(rows):
        sizes = sizes[rows]
        firsts = np.cumsum(sizes) - sizes
        within = np.arange(int(sizes.sum())) - np.repeat(firsts, sizes)
        before = data[np.repeat(starts[rows], sizes) + within]
        same[rows] = np.logical_and.reduceat(before == made.data[np.repeat(begins[rows], sizes) + within], firsts)
    return same
