"""Exchanges entries through files when they go to the key groups of another max parallelism.

Each task that reads old key groups leaves a file with all entries in them. Each new keyed state file is made of the
parcels for its key groups in all these files.

| part of a file | |
|---|---|
| parcels | entries as in a section; each parcel has those of one key group and state, sorted by both within 64 MiB |
| index | five i64 for each parcel: key group, state, start, end, start of its last entry |
| i64 | the number of parcels |

Numbers are little endian.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stateferry.errors import DamagedError
from stateferry.key_groups import KeyGroupRange
from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.rehash import GroupedEntries
from stateferry.savepoint.storage import Location
from stateferry.savepoint.write_behind import WriteBehind
from stateferry.serializers.walker import Positions

_AT_ONCE = 64 << 20
_NUMBERS = 5
_INTEGER = np.dtype("<i8")
_MOST_OPEN = 128
_NO_PARCELS = np.empty((0, 1 + _NUMBERS), np.int64)


def send(file: Location, entries: Iterable[GroupedEntries]) -> int:
    """Writes a file of the exchange, returns its size. The file is on disk, and gets its name, when it is complete."""
    out = WriteBehind(file)
    try:
        index = [parcel for portion in _portions(entries) for parcel in _write(out, portion)]
        out.write(np.array(index, _INTEGER).tobytes())
        out.write(np.array([len(index)], _INTEGER).tobytes())
        out.finish()
    finally:
        out.close()
    return out.position


def _portions(entries: Iterable[GroupedEntries]) -> Iterator[list[GroupedEntries]]:
    gathered: list[GroupedEntries] = []
    size = 0
    for one in entries:
        # A transform may use the buffer of these entries again.
        gathered.append(replace(one, data=one.data.copy()))
        size += len(one.data)
        if size >= _AT_ONCE:
            yield gathered
            gathered, size = [], 0
    yield gathered


def _write(out: WriteBehind, portion: Sequence[GroupedEntries]) -> list[list[int]]:
    """Writes the portion's entries by key group and state; returns the index of the parcels."""
    groups = sorted(
        (key_group, entries.state, number, place)
        for number, entries in enumerate(portion)
        for place, key_group in enumerate(entries.key_groups.tolist())
    )
    parcels: list[list[int]] = []
    for key_group, state, number, place in groups:
        entries = portion[number]
        start, end = int(entries.bounds[place]), int(entries.bounds[place + 1])
        if not parcels or parcels[-1][:2] != [key_group, state]:
            parcels.append([key_group, state, out.position, 0, 0])
        parcels[-1][3:] = out.position + end - start, out.position + int(entries.last_starts[place]) - start
        out.write(entries.data[start:end])
    return parcels


class Arrivals:
    """All parcels for some key groups, from all files of the exchange; use it as a context manager."""

    def __init__(self, files: Sequence[Location], key_groups: KeyGroupRange) -> None:
        self._files, self._key_groups = files, key_groups
        self._opened: OrderedDict[int, Any] = OrderedDict()
        self._buffer = np.empty(1 << 20, np.uint8)
        self._index: Positions = _NO_PARCELS

    def __enter__(self) -> Arrivals:
        try:
            index = np.concatenate([_NO_PARCELS, *(self._index_of(number) for number in range(len(self._files)))])
        except BaseException:
            self._close()
            raise
        # The parcels of a state are sorted by file, then by their place in it.
        self._index = index[np.lexsort((index[:, 3], index[:, 0], index[:, 2], index[:, 1]))]
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        for file in self._opened.values():
            file.close()

    def entries(self, key_group: int) -> Iterator[tuple[int, Buffer, int]]:
        """Yields state, entries, and where the last entry begins; entries are valid until the next are asked for."""
        first, after = np.searchsorted(self._index[:, 1], (key_group, key_group + 1))
        for number, _, state, start, end, last_start in self._index[first:after].tolist():
            yield state, self._read(number, start, end), last_start - start

    def _index_of(self, number: int) -> Positions:
        """Returns the index of a file's parcels for the wanted key groups, with the file's number before each."""
        size = int(self._open(number).size())
        end = size - 8
        count = int(self._read(number, end, size).view(_INTEGER)[0]) if end >= 0 else 0
        start = end - 8 * _NUMBERS * count
        if count < 0 or start < 0:
            raise DamagedError(
                f"an index of {count} parcels", f"{size} bytes", file=self._files[number].shown, offset=max(end, 0)
            )
        parcels = self._read(number, start, end).view(_INTEGER).reshape(-1, _NUMBERS)
        if not _lie_one_after_another(parcels, start):
            raise DamagedError(
                "parcels one after another", "others in the index", file=self._files[number].shown, offset=start
            )
        wanted = parcels[(parcels[:, 0] >= self._key_groups.start) & (parcels[:, 0] <= self._key_groups.end)]
        return np.column_stack((np.full(len(wanted), number), wanted)).astype(np.int64)

    def _read(self, number: int, start: int, end: int) -> Buffer:
        if end - start > len(self._buffer):
            self._buffer = np.empty(end - start, np.uint8)
        wanted = self._buffer[: end - start]
        file, got = self._open(number), 0
        file.seek(start)
        while got < len(wanted):
            more = file.readinto(wanted[got:].data)
            if not more:
                missing = f"{len(wanted) - got} more bytes"
                raise DamagedError(missing, "the end", file=self._files[number].shown, offset=start + got)
            got += more
        return wanted

    def _open(self, number: int) -> Any:
        if number in self._opened:
            self._opened.move_to_end(number)
        else:
            if len(self._opened) >= _MOST_OPEN:
                self._opened.popitem(last=False)[1].close()
            self._opened[number] = self._files[number].open()
        return self._opened[number]


def _lie_one_after_another(parcels: Positions, size: int) -> bool:
    starts, ends, last_starts = parcels[:, 2], parcels[:, 3], parcels[:, 4]
    bounds_meet = np.array_equal(np.append(starts, size), np.append(0, ends))
    return bounds_meet and bool(((starts <= last_starts) & (last_starts < ends)).all())
