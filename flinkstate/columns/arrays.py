"""Makes Arrow arrays of numpy's buffers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkstate.basics.array_types import Flags, Positions
from flinkstate.errors import RefusedError

Column = tuple[pa.Array, Positions]

MOST_OFFSET = 2**31 - 1


def fixed_array(type_: pa.DataType, values: npt.NDArray[np.generic], present: Flags | None) -> pa.Array:
    """Returns an array of values with a fixed width; null where not `present`."""
    return pa.Array.from_buffers(type_, len(values), [validity(present), pa.py_buffer(values)])


def struct_array(type_: pa.DataType, children: list[pa.Array], length: int, present: Flags | None = None) -> pa.Array:
    """Returns an array of structs; null where not `present`."""
    return pa.Array.from_buffers(type_, length, [validity(present)], children=children)


def validity(present: Flags | None) -> pa.Buffer | None:
    """Returns Arrow's bit mask of the values that are present, or None if all are."""
    if present is None or bool(present.all()):
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def narrow(offsets: Positions) -> npt.NDArray[np.int32]:
    """Returns offsets of 32 bits, which Arrow's usual arrays and Spark need; refuses larger ones."""
    if offsets[-1] > MOST_OFFSET:
        raise RefusedError(
            f"{offsets[-1]} elements or bytes in one column: Arrow counts to {MOST_OFFSET}; "
            "read fewer values at once, or the state with raw=true"
        )
    return offsets.astype(np.int32)


def allocate(size: int) -> pa.Buffer:
    # From Arrow's pool, which reuses pages: touching new pages costs more than filling them.
    return pa.allocate_buffer(max(size, 1))


def spread(array: pa.Array, order: list[Positions], length: int) -> pa.Array:
    """Puts the values into the rows that `order` names in turn, in an array of `length`; other rows are null."""
    rows = np.concatenate(order)
    if len(order) == 1 and len(rows) == length:
        return array
    if not len(rows):
        return pa.nulls(length, array.type)
    index, absent = np.zeros(length, np.int64), np.ones(length, np.bool_)
    index[rows] = np.arange(len(rows))
    absent[rows] = False
    return array.take(pa.array(index, mask=absent))


def running_sum(counts: Positions) -> Positions:
    """Returns the offsets of lists that have these counts, with the end of the last."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def list_array(offsets: Positions, values: pa.Array) -> pa.Array:
    """Returns an array of lists; list i has the values from `offsets[i]` to `offsets[i + 1]`."""
    return pa.ListArray.from_arrays(pa.array(narrow(offsets)), values)
