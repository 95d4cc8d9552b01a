"""Recognises compressed operator state of Flink 1.18.0 and 1.18.1, whose offsets don't tell its elements apart.

Newer versions end a chunk in front of each element. These versions (FLINK-34063) end one only where 64 KiB of content
are full, and don't count what still waits for that. So an offset is the one before it, if less than a chunk was written
since, else it is where a full chunk ends, inside of an element.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.frame_kernels import BLOCK
from flinkstate.metadata.metadata import OperatorHandle

_UNDIVIDED = (
    "the offsets of compressed operator state don't tell its elements apart, as Flink 1.18 writes them with "
    "execution.checkpointing.snapshot-compression (FLINK-34063). Newer versions of Flink restore other elements than "
    "there were: start the job with Flink 1.18 without that option, and take another savepoint"
)
# Snappy repeats at most 64 bytes by 3 bytes.
_SMALLEST_FULL_CHUNK = BLOCK // 64 * 3
_FULL_STORED = b"\1" + (BLOCK + 4).to_bytes(3, "little")
# The size of the content of a compressed chunk, as a varint.
_FULL_COMPRESSED = b"\x80\x80\x04"


def may_be_undivided(handle: OperatorHandle) -> bool:
    """Whether the offsets alone allow that the file is such a one; only few files must be opened to know it."""
    gaps = [end - start for start, end in _gaps(handle)]
    return 0 in gaps or (bool(gaps) and min(gaps) >= _SMALLEST_FULL_CHUNK)


def refuse_undivided(file: Any, name: str, handle: OperatorHandle) -> None:
    """Refuses a compressed file whose elements aren't told apart."""
    if not may_be_undivided(handle):
        return
    gaps = _gaps(handle)
    has_shared = any(start == end for start, end in gaps)
    # One chunk that isn't full in front of an element shows that the file is of a newer version.
    if has_shared or all(_ends_with_full_chunk(file, name, start, end) for start, end in gaps):
        raise RefusedError(f"{name}: {_UNDIVIDED}")


def _gaps(handle: OperatorHandle) -> list[tuple[int, int]]:
    return list(pairwise(sorted(offset for state in handle.states for offset in state.offsets)))


def _ends_with_full_chunk(file: Any, name: str, start: int, end: int) -> bool:
    is_full = False
    while start < end:
        file.seek(start)
        # The type and length of the chunk, its checksum, and the size of its content if that is compressed.
        head = bytes(file.read(11))
        is_full = head[:4] == _FULL_STORED or (head[:1] == b"\0" and head[8:] == _FULL_COMPRESSED)
        start += 4 + int.from_bytes(head[1:4], "little")
    if start > end:
        raise DamagedError("the start of a snappy chunk", "the middle of one", file=name, offset=end)
    return is_full
