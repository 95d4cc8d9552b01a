"""Runs the programs that write values of flink-scala by Flink's own serializers."""

from __future__ import annotations

import numpy as np

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.errors import DamagedError
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.scala import kernels
from flinkstate.scala.programs import ScalaProgram
from flinkstate.serializers.types import type_name
from flinkstate.serializers.walker import failed, new_failure

_LEAST_ROOM = 1 << 12


def write_values(
    program: ScalaProgram, data: Bytes, starts: Positions, ends: Positions, heads: Positions, kept: Flags
) -> tuple[Bytes, Positions]:
    """Returns the values one after another, each with the `heads` bytes before it, and where each ends.

    Those that are `kept` stay as they are. Raises an error whose offset is a position in `data`.
    """
    count, failure, copied = len(starts), new_failure(), program.copied
    size = int((ends - starts + heads).sum())
    out, new_ends = np.empty(size + size // 2 + _LEAST_ROOM, np.uint8), np.zeros(count, np.int64)
    registers, of_walk = np.zeros(program.registers, np.int64), np.zeros(copied.registers, np.int64)
    place, done = np.zeros(3, np.int64), 0
    while done < count:
        done = kernels.write_values(
            data, starts, ends, heads, kept, done, program.code, copied.code, copied.pool, of_walk, registers, place,
            np.empty(len(out), np.uint8), out, int(new_ends[done - 1]) if done else 0, new_ends, failure,
        )  # fmt: skip
        if done < count:
            code, _, detail = failure.tolist()
            if code != kernels.NO_ROOM:
                raise _failed(failure, data, program)
            more = np.empty(2 * len(out) + detail, np.uint8)
            more[: len(out)] = out
            out = more
    return out[: int(new_ends[-1]) if count else 0], new_ends


def _failed(failure: Positions, data: Bytes, program: ScalaProgram) -> Exception:
    code, position, detail = failure.tolist()
    what = type_name(program.type)
    if code == kernels.NULL_ELEMENT:
        where = "as an element of a collection, or as a side of an Either,"
        return RefusedValueError(f"null {where} in a {what}, which has no null there", position)
    if code == kernels.LEFTOVER:
        return DamagedError(f"the end of a {what}", f"{detail} more bytes", offset=position)
    return failed(failure, data, program.type)
