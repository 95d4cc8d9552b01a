"""Sends entries through files when they go to the key groups of another max parallelism.

Each task that reads old key groups (a sender) leaves a file with all entries in them. Each new keyed state file is made
(by a receiver) of the parcels for its key groups in all these files, see `exchange_receiver.py`.

| part of a sender's file | |
|---|---|
| parcels | entries as in a section; each parcel has those of one key group and state, sorted by both within 64 MiB |
| index | for each receiver with parcels here: a record of each of them, in their order, and a digest of the records |

If each receiver read each sender's whole index, all of them together would read senders times receivers of it. So each
sender answers where the index of each receiver begins, and the driver writes a directory of that:

| part of the directory | |
|---|---|
| blocks | each of 1,024 senders, the last one of those that are left |
| of it, for each receiver | start and end of its index in each sender's file, as i64, and a digest of them |

Numbers are little endian; a digest is a `hash_each` of `key_hashes.py`, as u64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flinkstate.files.storage import Location
from flinkstate.keyed.compression import Buffer
from flinkstate.serializers.walker import Positions
from flinkstate.writing.max_parallelism_change import GroupedEntries
from flinkstate.writing.write_behind import WriteBehind
from stateferry.changes.kernels import copy_ranges
from stateferry.changes.key_hashes import hash_each

Parcels = npt.NDArray[np.void]
PARCEL = np.dtype(
    [
        ("start", "<i8"),
        ("size", "<i8"),
        ("last_start", "<i8"),
        ("digest", "<u8"),
        ("key_group", "<u2"),
        ("state", "<u2"),
    ]
)
DIGEST = 8
_INTEGER = np.dtype("<i8")
_AT_ONCE = 64 << 20
_WRITTEN_AT_ONCE = 8 << 20
_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Exchange:
    """The files by which one driver's tasks exchange the entries of an operator.

    The names of the files contain an id of the driver. So another driver of the same run, which has lost the lease or
    taken it, neither writes nor removes them.
    """

    folder: Location
    driver: str
    senders: int
    receivers: int

    def file(self, sender: int) -> Location:
        return self.folder.child(f"{sender:06}-{self.driver}")

    @property
    def directory(self) -> Location:
        return self.folder.child(f"directory-{self.driver}")

    def blocks(self, receiver: int) -> Iterator[tuple[int, int]]:
        """Yields for each block of the directory where the receiver's part is, and the number of its senders."""
        start = 0
        for first in range(0, self.senders, _BLOCK):
            senders = min(_BLOCK, self.senders - first)
            size = 2 * _INTEGER.itemsize * senders + DIGEST
            yield start + receiver * size, senders
            start += self.receivers * size


class Directory:
    """Writes the directory; use it as a context manager."""

    def __init__(self, exchange: Exchange) -> None:
        self._out = WriteBehind(exchange.directory)
        self._block: list[Positions] = []

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._write()
                self._out.finish()
        finally:
            self._out.close()

    def add(self, bounds: Positions) -> None:
        """Adds what the next sender has answered: where each receiver's index begins in its file, and the end."""
        self._block.append(bounds)
        if len(self._block) == _BLOCK:
            self._write()

    def _write(self) -> None:
        if self._block:
            bounds = np.stack(self._block, axis=1)
            parts = np.stack((bounds[:-1], bounds[1:]), axis=2).reshape(len(bounds) - 1, -1)
            ends = np.arange(1, len(parts) + 1) * 8 * parts.shape[1]
            digests = digests_of(parts.reshape(-1).view(np.uint8), ends - 8 * parts.shape[1], ends)
            self._out.write(np.column_stack((parts, digests.view(np.int64))).astype(_INTEGER).tobytes())
            self._block = []


def digests_of(data: Buffer, starts: Positions, ends: Positions) -> npt.NDArray[np.uint64]:
    """Returns a digest of the bytes from each start to its end."""
    return hash_each(data, starts, ends, np.zeros(len(starts), np.uint64))


def send(file: Location, entries: Iterable[GroupedEntries], last_key_groups: Sequence[int]) -> Positions:
    """Writes a sender's file, for receivers with these last key groups, as `send_pieces` does."""
    return send_pieces(file, ((one.data, _pieces(one)) for one in entries), last_key_groups)


def send_pieces(file: Location, found: Iterable[tuple[Buffer, Parcels]], last_key_groups: Sequence[int]) -> Positions:
    """Writes a sender's file of pieces, each with entries of one key group and state, which lie in a buffer.

    Returns where each receiver's index begins, and the size of the file. The file is on disk, and gets its name, when
    it is complete.
    """
    out = WriteBehind(file)
    try:
        written = np.empty(_WRITTEN_AT_ONCE, np.uint8)
        parcels = [_write(out, data, pieces, written) for data, pieces in _portions(found)]
        bounds = _write_index(out, np.concatenate([np.empty(0, PARCEL), *parcels]), last_key_groups)
        out.finish()
    finally:
        out.close()
    return bounds


def _portions(found: Iterable[tuple[Buffer, Parcels]]) -> Iterator[tuple[Buffer, Parcels]]:
    """Yields pieces of at most `_AT_ONCE` bytes together, or those of one buffer."""
    buffer, size = np.empty(_AT_ONCE, np.uint8), 0
    gathered: list[Parcels] = []
    for data, pieces in found:
        if size + len(data) > len(buffer):
            if gathered:
                yield buffer, np.concatenate(gathered)
            gathered, size = [], 0
        if len(data) > len(buffer):
            yield data, pieces
        else:
            # Whoever found them may use the buffer again.
            buffer[size : size + len(data)] = data
            pieces["start"] += size
            gathered.append(pieces)
            size += len(data)
    if gathered:
        yield buffer, np.concatenate(gathered)


def _pieces(entries: GroupedEntries) -> Parcels:
    pieces = np.zeros(len(entries.key_groups), PARCEL)
    pieces["start"] = entries.bounds[:-1]
    pieces["size"] = np.diff(entries.bounds)
    pieces["last_start"] = entries.last_starts - entries.bounds[:-1]
    pieces["key_group"], pieces["state"] = entries.key_groups, entries.state
    return pieces


def _write(out: WriteBehind, data: Buffer, pieces: Parcels, written: Buffer) -> Parcels:
    """Writes the pieces by key group and state; returns the parcels that they become."""
    pieces = pieces[np.lexsort((pieces["state"], pieces["key_group"]))]
    sizes = np.ascontiguousarray(pieces["size"])
    starts = np.ascontiguousarray(pieces["start"])
    ends = starts + sizes
    is_new = np.append(True, (np.diff(pieces["key_group"]) != 0) | (np.diff(pieces["state"]) != 0))[: len(pieces)]
    firsts = np.flatnonzero(is_new)
    bounds = np.append(firsts, len(pieces))
    offsets = np.append(0, np.cumsum(sizes))
    parcels = pieces[firsts]
    parcels["size"] = np.diff(offsets[bounds])
    lasts = bounds[1:] - 1
    parcels["last_start"] = offsets[lasts] - offsets[firsts] + pieces["last_start"][lasts]
    parcels["start"] = out.position + offsets[firsts]
    at, before = 0, offsets[bounds]
    while at < len(firsts):
        after = max(at + 1, int(np.searchsorted(before, before[at] + len(written), side="right")) - 1)
        first, end = bounds[at], bounds[after]
        size = int(before[after] - before[at])
        if end - first == 1:
            content = data[starts[first] : ends[first]]
        else:
            content = written[:size] if size <= len(written) else np.empty(size, np.uint8)
            copy_ranges(data, starts[first:end], ends[first:end], np.empty(end - first, np.int64), content)
        places = before[at : after + 1] - before[at]
        parcels["digest"][at:after] = digests_of(content, places[:-1], places[1:])
        out.write(content)
        at = after
    return parcels


def _write_index(out: WriteBehind, parcels: Parcels, last_key_groups: Sequence[int]) -> Positions:
    """Writes the parcels' records by receiver; returns where each receiver's index begins, and the end."""
    receivers = np.searchsorted(last_key_groups, parcels["key_group"])
    counts = np.bincount(receivers, minlength=len(last_key_groups))
    records = parcels[np.argsort(receivers, kind="stable")].view(np.uint8)
    ends = np.cumsum(counts) * PARCEL.itemsize
    starts = ends - counts * PARCEL.itemsize
    digests = digests_of(records, starts, ends).astype("<u8")
    bounds = out.position + np.append(0, np.cumsum(ends - starts + DIGEST * (counts > 0)))
    for receiver in np.flatnonzero(counts).tolist():
        out.write(records[starts[receiver] : ends[receiver]])
        out.write(digests[receiver].tobytes())
    return bounds
