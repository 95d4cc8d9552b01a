"""Counts the entries of broadcast states in operator state files.

Layout of an operator state file, as far as this needs it:

| field | type |
|---|---|
| version | i32, 1 to 6 |
| compression | bool (snappy), only in version 6 |
| states | i16 n, n x StateMeta; i16 m, m x StateMeta of broadcast states |
| elements | at the offsets that `_metadata` knows; a broadcast state is one map: i32 count, entries |

Everything behind a compressed file's header is one framed snappy stream. Flink ends a chunk of the stream before it
notes an offset, so a chunk begins at each offset.
"""

from __future__ import annotations

from typing import Any

import cramjam

from stateferry.binary import ByteReader
from stateferry.errors import DamagedError
from stateferry.operator_state import DistributionMode
from stateferry.savepoint.compression import STREAM_START
from stateferry.savepoint.metadata import OperatorHandle
from stateferry.savepoint.storage import Location
from stateferry.savepoint.streams import open_stream

_VERSION = 6
_START = 5  # the version, and whether the file is compressed


def broadcast_entries(folder: Location, handle: OperatorHandle) -> dict[str, int]:
    """Returns the number of entries of each broadcast state in the file."""
    offsets = {
        state.name: state.offsets[0]
        for state in handle.states
        if state.mode is DistributionMode.BROADCAST and state.offsets
    }
    if not offsets:
        return {}
    file, name, size = open_stream(folder, handle.stream)
    with file:
        compressed = _is_compressed(file, name)
        return {state: _count(file, name, size, offset, compressed) for state, offset in offsets.items()}


def _is_compressed(file: Any, name: str) -> bool:
    reader = ByteReader(bytes(file.read(_START)), name)
    version = reader.i32("the version of an operator state file")
    if not 1 <= version <= _VERSION:
        raise reader.damaged(f"a version from 1 to {_VERSION} of an operator state file", f"{version}", position=0)
    return version == _VERSION and reader.boolean("operator state compression")


def _count(file: Any, name: str, size: int, offset: int, compressed: bool) -> int:
    if not _START <= offset < size:
        raise DamagedError(f"an offset of a broadcast state from {_START} to {size - 1}", f"{offset}", file=name)
    file.seek(offset)
    if compressed:
        return _checked(_chunk(file, name, offset), name, offset, None)
    return _checked(bytes(file.read(4)), name, offset, size - offset - 4)


def _checked(data: bytes, name: str, offset: int, room: int | None) -> int:
    reader = ByteReader(data, name, base=offset)
    count = reader.i32("the size of a broadcast state")
    if count < 0 or (room is not None and count > room):
        raise reader.damaged("the size of a broadcast state that fits into the file", f"{count}", position=0)
    return count


def _chunk(file: Any, name: str, offset: int) -> bytes:
    head = bytes(file.read(4))
    length = int.from_bytes(head[1:4], "little")
    if len(head) < 4 or head[0] not in (0, 1):
        raise DamagedError("a snappy chunk with content", head.hex() or "the end", file=name, offset=offset)
    try:
        return bytes(cramjam.snappy.decompress(STREAM_START + head + bytes(file.read(length))))
    except cramjam.DecompressionError as error:
        raise DamagedError("a snappy chunk", str(error), file=name, offset=offset) from None
