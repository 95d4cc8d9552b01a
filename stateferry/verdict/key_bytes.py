"""Keys that Kryo wrote: Flink finds state by their bytes, so these must be the same by the other Kryo."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.kryo.to_other_kryo import recoder
from flinkstate.serializers.programs import compile_type
from flinkstate.serializers.types import KryoType


def changed_by_kryo_5(kryo: KryoType, data: Bytes, starts: Positions, ends: Positions) -> bool:
    """Whether Kryo 5 writes one of these values with other bytes than Kryo 2 did; False if they can't be written."""
    sizes = ends - starts
    offsets = np.cumsum(sizes) - sizes
    with contextlib.suppress(DamagedError, RefusedError):
        made = recoder(compile_type(replace(kryo, five=False))).recode(data, starts, ends, np.zeros_like(starts))
        before = data[np.repeat(starts - offsets, sizes) + np.arange(int(sizes.sum()))]
        return not np.array_equal(made.data, before)
    return False
