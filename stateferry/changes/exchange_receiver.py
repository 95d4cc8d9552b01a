"""Receives entries from the files of the exchange, whose layout is in `max_parallelism_exchange.py`.

A receiver reads its part of the directory, its index in each file that has parcels for it, and then the parcels. Those
that lie side by side are read at once.

It holds no more than some key groups in memory at a time. If their parcels were small and in many files, each of these
would be asked for little, and often. Then the receiver first reads all that is for it in one file after the other, and
sends that to itself, by a temporary file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location, side_by_side
from flinkstate.files.temporary_folder import task_folder
from flinkstate.keyed.compression import Buffer
from flinkstate.metadata.streams import expect
from flinkstate.serializers.walker import Positions
from stateferry.changes.kernels import copy_ranges
from stateferry.changes.max_parallelism_exchange import (
    DIGEST,
    PARCEL,
    Directory,
    Exchange,
    Parcels,
    digests_of,
    send_pieces,
)

_AT_ONCE = 64 << 20
_SMALL = 128 << 10
_MOST_OPEN = 128


class ExchangeReceiver:
    """All parcels for a receiver, from all files of the exchange; use it as a context manager."""

    def __init__(self, exchange: Exchange, receiver: int) -> None:
        self._exchange, self._receiver = exchange, receiver
        self._opened: OrderedDict[int, Any] = OrderedDict()
        self._parcels, self._senders = np.empty(0, PARCEL), np.empty(0, np.int64)
        self._until = np.zeros(1, np.int64)
        # The parcels that are in memory, and where each of them begins there.
        self._first = self._after = 0
        self._content, self._offsets = np.empty(0, np.uint8), np.empty(0, np.int64)
        self._read_into, self._sorted_into = np.empty(0, np.uint8), np.empty(0, np.uint8)
        self._temporary: TemporaryDirectory[str] | None = None

    def __enter__(self) -> ExchangeReceiver:
        try:
            parcels, senders = self._index()
            if _is_scattered(parcels, senders):
                parcels, senders = self._relayed(parcels, senders)
            # The parcels of a state are sorted by sender, then by their place in its file, as they are now.
            order = np.lexsort((parcels["state"], parcels["key_group"]))
            self._take(parcels[order], senders[order])
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        self._close_files()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _close_files(self) -> None:
        for file in self._opened.values():
            file.close()
        self._opened.clear()

    def entries(self, key_group: int) -> Iterator[tuple[int, Buffer, int]]:
        """Yields state, entries, and where the last entry begins; entries are valid until the next are asked for."""
        at, after = np.searchsorted(self._parcels["key_group"], (key_group, key_group + 1)).tolist()
        while at < after:
            if not self._first <= at < self._after:
                self._load(at)
            state = self._parcels["state"][at]
            limit = min(after, self._after)
            end = at + int(np.searchsorted(self._parcels["state"][at:limit], state, side="right"))
            start, last = self._offsets[at - self._first], self._offsets[end - 1 - self._first]
            content = self._content[start : self._offsets[end - self._first]]
            yield int(state), content, int(last - start + self._parcels["last_start"][end - 1])
            at = end

    def _index(self) -> tuple[Parcels, Positions]:
        """Returns all parcels, by sender and place in its file, and the sender of each."""
        places = list(self._places())
        found = list(side_by_side(self._exchange.folder, self._index_of, places))
        senders = np.repeat([sender for sender, _, _ in places], list(map(len, found))).astype(np.int64)
        return np.concatenate([np.empty(0, PARCEL), *found]), senders

    def _take(self, parcels: Parcels, senders: Positions) -> None:
        """Makes these the parcels that `_load` loads, in this order."""
        self._parcels, self._senders = parcels, senders
        self._until = np.append(0, np.cumsum(parcels["size"]))
        self._first = self._after = 0

    def _relayed(self, parcels: Parcels, senders: Positions) -> tuple[Parcels, Positions]:
        self._temporary = TemporaryDirectory(prefix="stateferry-", dir=task_folder())
        relay = Exchange(Location.of(self._temporary.name), "relay", senders=1, receivers=1)
        self._take(parcels, senders)
        with Directory(relay) as directory:
            directory.add(send_pieces(relay.file(0), self._loaded(), [int(parcels["key_group"].max())]))
        self._close_files()
        self._exchange, self._receiver = relay, 0
        return self._index()

    def _loaded(self) -> Iterator[tuple[Buffer, Parcels]]:
        while self._after < len(self._parcels):
            self._load(self._after)
            pieces = self._parcels[self._first : self._after].copy()
            pieces["start"] = self._offsets[:-1]
            yield self._content[: self._offsets[-1]], pieces

    def _places(self) -> Iterator[tuple[int, int, int]]:
        """Yields sender, start and end of each index for this receiver."""
        first, file = 0, self._exchange.directory
        with file.open() as opened:
            for start, senders in self._exchange.blocks(self._receiver):
                part = np.empty(16 * senders, np.uint8)
                _read_checked(opened, file, start, part, "the receiver's part of the directory")
                bounds = part.view("<i8").reshape(-1, 2)
                for sender in np.flatnonzero(bounds[:, 0] < bounds[:, 1]).tolist():
                    yield first + sender, int(bounds[sender, 0]), int(bounds[sender, 1])
                first += senders

    def _index_of(self, place: tuple[int, int, int]) -> Parcels:
        sender, start, end = place
        index = np.empty(end - start - DIGEST, np.uint8)
        _read_checked(self._open(sender), self._exchange.file(sender), start, index, "the receiver's index")
        return index.view(PARCEL)

    def _load(self, first: int) -> None:
        """Reads as many parcels from this one on as `_AT_ONCE` holds, at least this one."""
        after = max(first + 1, int(np.searchsorted(self._until, self._until[first] + _AT_ONCE, side="right")) - 1)
        parcels, senders = self._parcels[first:after], self._senders[first:after]
        size = int(self._until[after] - self._until[first])
        self._first = self._after = first
        self._read_into = _as_large(self._read_into, size)
        in_files = np.lexsort((parcels["start"], senders))
        starts, sizes = parcels["start"][in_files], parcels["size"][in_files]
        ends = np.cumsum(sizes)
        self._read(senders[in_files], starts, sizes, ends - sizes)
        begins = np.empty(len(parcels), np.int64)
        begins[in_files] = ends - sizes
        digests = digests_of(self._read_into, begins, begins + parcels["size"])
        wrong = np.flatnonzero(digests != parcels["digest"])
        if len(wrong):
            number = int(wrong[0])
            raise DamagedError(
                "entries as they were sent",
                "others",
                file=self._exchange.file(int(senders[number])).shown,
                offset=int(parcels["start"][number]),
                key_group=int(parcels["key_group"][number]),
            )
        self._content = self._read_into
        if (in_files[1:] < in_files[:-1]).any():
            self._content = self._sorted_into = _as_large(self._sorted_into, size)
            copy_ranges(self._read_into, begins, begins + parcels["size"], np.empty_like(begins), self._content)
        self._offsets = self._until[first : after + 1] - self._until[first]
        self._first, self._after = first, after

    def _read(self, senders: Positions, starts: Positions, sizes: Positions, places: Positions) -> None:
        """Reads parcels, which are sorted by sender and start, to their places: what lies side by side at once."""
        firsts = _first_of_runs(senders, starts, sizes)
        bounds = np.append(places[firsts], places[-1] + sizes[-1])
        runs: dict[int, list[tuple[int, int, int]]] = {}
        for number, first in enumerate(firsts.tolist()):
            run = int(starts[first]), int(bounds[number]), int(bounds[number + 1])
            runs.setdefault(int(senders[first]), []).append(run)

        def read(sender: int) -> None:
            opened, file = self._open(sender), self._exchange.file(sender)
            for start, place, end in runs[sender]:
                _read(opened, file, start, self._read_into[place:end])

        for _ in side_by_side(self._exchange.folder, read, runs):
            pass

    def _open(self, sender: int) -> Any:
        """Returns the opened file. On a store all stay open: they take no descriptors, and to open takes a request."""
        if sender not in self._opened:
            file = self._exchange.file(sender)
            if file.is_local and len(self._opened) >= _MOST_OPEN:
                self._opened.popitem(last=False)[1].close()
            self._opened[sender] = file.open()
        return self._opened[sender]


def _first_of_runs(senders: Positions, starts: Positions, sizes: Positions) -> Positions:
    """Returns which parcels don't lie behind the one before."""
    lie_apart = (senders[1:] != senders[:-1]) | (starts[1:] != starts[:-1] + sizes[:-1])
    return np.flatnonzero(np.append(True, lie_apart)[: len(senders)])


def _is_scattered(parcels: Parcels, senders: Positions) -> bool:
    """Whether the reads would be small if only so much was read at a time as memory shall hold."""
    size = int(parcels["size"].sum())
    times = -(-size // _AT_ONCE)
    runs = len(_first_of_runs(senders, parcels["start"], parcels["size"]))
    return times > 1 and size < runs * times * _SMALL


def _as_large(buffer: Buffer, size: int) -> Buffer:
    return buffer if len(buffer) >= size else np.empty(size, np.uint8)


def _read_checked(opened: Any, file: Location, start: int, out: Buffer, what: str) -> None:
    """Reads bytes and the digest behind them. Raises if they don't belong together."""
    both = np.empty(len(out) + DIGEST, np.uint8)
    _read(opened, file, start, both)
    out[:] = both[:-DIGEST]
    (digest,) = digests_of(out, np.zeros(1, np.int64), np.array([len(out)]))
    if digest != both[-DIGEST:].copy().view("<u8")[0]:
        raise DamagedError(f"{what} as it was written", "another", file=file.shown, offset=start)


def _read(opened: Any, file: Location, start: int, out: Buffer) -> None:
    expect(opened, start, start + len(out))
    opened.seek(start)
    got = 0
    while got < len(out):
        more = opened.readinto(out[got:].data)
        if not more:
            raise DamagedError(f"{len(out) - got} more bytes", "the end", file=file.shown, offset=start + got)
        got += more
