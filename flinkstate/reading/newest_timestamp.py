"""Finds the newest timestamp of time to live in a small savepoint, in Python alone.

The demo savepoint may be years old when a run reads it. This is called in Airflow's environment too, which has no
compiled kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.storage import Location
from flinkstate.keyed.header import parse_header
from flinkstate.keyed.state import KeyedState, StateKind, keyed_states
from flinkstate.metadata.key_group_extents import SubtaskFile, key_group_extents
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.metadata.streams import open_stream

LARGEST = 64 << 20
_END_OF_GROUP = 0xFFFF
_I32, _I64, _U16 = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">H")
# Where the timestamp is in a value. In a map's entry a null flag is before it.
_OFFSETS = {StateKind.VALUE: 0, StateKind.REDUCING: 0, StateKind.AGGREGATING: 0, StateKind.MAP: 1}


def newest_timestamp(folder: Location, metadata: Metadata) -> int | None:
    """Returns the newest timestamp, or None if there is none. Ignores lists. Refuses large and compressed files."""
    found = (
        timestamp
        for operator in metadata.operators
        for subtask in operator.subtasks
        for timestamp in _of_subtask(folder, operator, subtask)
    )
    return max(found, default=None)


def _of_subtask(folder: Location, operator: Operator, subtask: Subtask) -> Iterator[int]:
    handle = subtask.managed_keyed
    if handle is None:
        return
    file, name, size = open_stream(folder, handle.stream)
    with file:
        if size > LARGEST:
            raise RefusedError(f"{name} has {size:,} bytes: too many to be read without compiled kernels")
        data = bytes(file.read(size))
    extents = key_group_extents(SubtaskFile(subtask.index, name, handle.range, handle.offsets, size))
    header, _ = parse_header(data, name, end=min((extent.start for extent in extents), default=size))
    if header.compressed:
        raise RefusedError(f"{name} is compressed: it can't be read without compiled kernels")
    states = keyed_states(header, name)
    for extent in extents:
        try:
            yield from _of_group(data, extent.start, states)
        except (IndexError, ValueError, struct.error) as error:
            raise DamagedError("entries of keyed state", f"{error}", file=name, key_group=extent.key_group) from None


def _of_group(data: bytes, position: int, states: tuple[KeyedState, ...]) -> Iterator[int]:
    (state,) = _U16.unpack_from(data, position)
    position += _U16.size
    while state != _END_OF_GROUP:
        offset = _OFFSETS.get(states[state].kind) if states[state].ttl else None
        is_last = False
        while not is_last:
            (key,) = _I32.unpack_from(data, position)
            is_last = data[position + _I32.size] >= 0x80
            position += _I32.size + key
            (value,) = _I32.unpack_from(data, position)
            position += _I32.size
            if key < 1 or value < 0:
                raise ValueError(f"a key of {key} bytes and a value of {value}")
            if offset is not None:
                yield _I64.unpack_from(data, position + offset)[0]
            position += value
        (state,) = _U16.unpack_from(data, position)
        position += _U16.size
