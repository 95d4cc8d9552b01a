"""Measures a change of one entry on Flink's RocksDB, as one value for each map and as one row for each entry.

What Java adds to it isn't measured: with a value for each map the job also deserializes and serializes the whole map.
"""

from __future__ import annotations

import ctypes
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from threading import Thread

from stateferry.look.rocksdb_library import LibraryDatabase

# So much state is written of each kind, in at most so many maps: more would take longer to write than to measure.
_STATE_BYTES, _MOST_MAPS = 16 << 20, 50_000
_WARM_CACHE, _COLD_CACHE = 128 << 20, 1 << 10
# Changes write so many values in turn.
_VALUES = 16


@dataclass(frozen=True, slots=True)
class MapSize:
    """The maps of a state: entries of a map, and bytes of a key, of a user key with its value, and of a whole map."""

    entries: int
    key_bytes: int
    entry_bytes: int

    @property
    def map_bytes(self) -> int:
        return self.entries * self.entry_bytes + 4


@dataclass(frozen=True, slots=True)
class AccessTimes:
    """Microseconds of an access to a whole map, and to one entry, in the median; `threads` share the database."""

    what: str
    threads: int
    whole: float
    entry: float

    @property
    def gain(self) -> float:
        """How many times as fast the access becomes."""
        return self.whole / self.entry


def measure(library: ctypes.CDLL, folder: Path, size: MapSize, threads: int, seconds: float) -> list[AccessTimes]:
    """Measures changes and reads, warm and cold, with one thread and with several; `folder` is for the databases."""
    maps = max(min(_STATE_BYTES // max(size.map_bytes + size.key_bytes, 1), _MOST_MAPS), 1)
    whole, rows = folder / "whole", folder / "rows"
    _fill(library, whole, ((_key(size, number), _bytes(size.map_bytes)) for number in range(maps)))
    _fill(
        library,
        rows,
        (
            (_row(size, number, entry), _bytes(size.entry_bytes))
            for number in range(maps)
            for entry in range(size.entries)
        ),
    )

    maps_in_turn, entries_in_turn = _values(size.map_bytes), _values(size.entry_bytes)

    def change_whole(database: LibraryDatabase, draws: random.Random) -> None:
        key = _key(size, draws.randrange(maps))
        database.get(key)
        database.put(key, next(maps_in_turn))

    def change_entry(database: LibraryDatabase, draws: random.Random) -> None:
        row = _row(size, draws.randrange(maps), draws.randrange(size.entries))
        database.get(row)
        database.put(row, next(entries_in_turn))

    def read_whole(database: LibraryDatabase, draws: random.Random) -> None:
        database.get(_key(size, draws.randrange(maps)))

    def read_entry(database: LibraryDatabase, draws: random.Random) -> None:
        database.get(_row(size, draws.randrange(maps), draws.randrange(size.entries)))

    def times(path: Path, work: _Work, number: int, *, cold: bool) -> float:
        if cold:
            _forget(path)
        with LibraryDatabase(library, path, _COLD_CACHE if cold else _WARM_CACHE) as database:
            return _median(database, work, number, seconds)

    # Reads come first: changes leave files of their own behind.
    found = [
        AccessTimes(
            "a read with a cold block cache",
            1,
            times(whole, read_whole, 1, cold=True),
            times(rows, read_entry, 1, cold=True),
        )
    ]
    for number in dict.fromkeys((1, threads)):
        changed = (times(whole, change_whole, number, cold=False), times(rows, change_entry, number, cold=False))
        found.append(AccessTimes("a change", number, *changed))
    return found


_Work = Callable[[LibraryDatabase, random.Random], None]


def _median(database: LibraryDatabase, work: _Work, threads: int, seconds: float) -> float:
    """The median of the microseconds of the work; its first third warms up."""
    times: list[list[int]] = [[] for _ in range(threads)]
    until = time.monotonic() + seconds

    def go(number: int) -> None:
        draws, own = random.Random(number), times[number]
        while time.monotonic() < until or len(own) < 3:
            began = time.perf_counter_ns()
            work(database, draws)
            own.append(time.perf_counter_ns() - began)

    running = [Thread(target=go, args=(number,)) for number in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    return statistics.median(time for own in times for time in own[len(own) // 3 :]) / 1000


def _fill(library: ctypes.CDLL, path: Path, rows: Iterator[tuple[bytes, bytes]]) -> None:
    with LibraryDatabase(library, path, _WARM_CACHE) as database:
        for key, value in rows:
            database.put(key, value)
        database.compact()


def _forget(path: Path) -> None:
    """Has the system forget what it holds of the files, where it can be asked to."""
    if not hasattr(os, "posix_fadvise"):
        return
    for file in path.iterdir():
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _key(size: MapSize, number: int) -> bytes:
    """A key of the state's length, which begins with its key group."""
    return (number * 2654435761 % 2**32).to_bytes(4, "big").ljust(size.key_bytes, b"k")


def _row(size: MapSize, number: int, entry: int) -> bytes:
    return _key(size, number) + entry.to_bytes(4, "big")


def _values(count: int) -> Iterator[bytes]:
    """Values of so many bytes, without end; they are made now, since that takes longer than RocksDB takes for them."""
    return cycle([_bytes(count) for _ in range(max(min(_VALUES, _STATE_BYTES // count), 1))])


def _bytes(count: int) -> bytes:
    # Half of it can be compressed, as of most state.
    return random.randbytes(count // 2).ljust(count, b"v")
