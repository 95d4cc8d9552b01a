"""Reads numbers, flags and counts of many values at once, and raises errors that show the damaged bytes."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.columns import kernels
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.types import FlinkType, type_name

Number = TypeVar("Number", bound=np.generic)


def read_numbers(
    type_: FlinkType, data: Bytes, starts: Positions, limits: Positions, number: type[Number]
) -> npt.NDArray[Number]:
    """Reads big-endian numbers of the given numpy type."""
    result = np.empty(len(starts), number)
    unsigned = result.view(f"u{result.itemsize}")
    raise_if_damaged(kernels.gather(data, starts, limits, unsigned), type_, data, limits, result.itemsize)
    return result


def read_flags(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> Flags:
    """Reads a byte of 0 or 1 at each start."""
    flags = np.empty(len(starts), np.uint8)
    raise_if_damaged(kernels.read_flags(data, starts, limits, flags), type_, data, limits, 1)
    return flags.view(np.bool_)


def read_offsets(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions, least: int) -> Positions:
    """Returns the running sum of the i32 count at each start; no count may claim more than the bytes behind it hold."""
    offsets = np.empty(len(starts) + 1, np.int64)
    raise_if_damaged(kernels.read_counts(data, starts, limits, least, offsets), type_, data, limits, 4)
    return offsets


def raise_if_damaged(
    outcome: kernels.Outcome, type_: FlinkType, data: Bytes, limits: Positions, needed: int | None = None
) -> None:
    """Raises the damage that a kernel's outcome describes, if any."""
    code, row, position = outcome
    if code == kernels.OK:
        return
    name, rest = type_name(type_), int(limits[row]) - position
    first_bytes = bytes(data[position : position + min(rest, 4)])
    if code == kernels.TRUNCATED:
        raise DamagedError(f"{needed or 'all'} bytes of {name}", f"{rest} until the end", offset=position)
    if code == kernels.BAD_FLAG:
        raise DamagedError(f"a flag 0 or 1 in {name}", f"{first_bytes[0]}", offset=position)
    if code == kernels.BAD_COUNT:
        count = int.from_bytes(first_bytes, "big", signed=True)
        raise DamagedError(
            f"a count in {name} that fits into the {rest - 4} bytes behind it", f"{count}", offset=position
        )
    if code == kernels.BAD_UNIT:
        expected = f"a character of at most 16 bits, in as few bytes as it needs, in {name}"
        raise DamagedError(expected, first_bytes[:3].hex(), offset=position)
    raise DamagedError(f"a length as {name} has it, in as few bytes as it needs", first_bytes.hex(), offset=position)


def damaged_where(wrong: Flags, positions: Positions, expected: str, found: npt.NDArray[np.generic]) -> None:
    """Raises the damage of the first row that is wrong, if any."""
    if wrong.any():
        row = int(wrong.argmax())
        raise DamagedError(expected, f"{found[row]}", offset=int(positions[row]))


class UnfitError(RefusedError):
    """Arrow can't hold values; `places` has a position in each of them, so that the others can be read."""

    def __init__(self, message: str, places: Positions | None = None) -> None:
        super().__init__(message)
        self.places = np.empty(0, np.int64) if places is None else places


def refuse_outside(type_: FlinkType, outside: Flags, starts: Positions, arrow: str) -> None:
    """Refuses the values that are outside the range of their Arrow type, if any; the message names the first."""
    if outside.any():
        places = starts[outside]
        what = f"a {type_name(type_)} outside what {arrow} can hold; read the state with raw=true"
        raise UnfitError(f"offset {places[0]}: {what}", places)
