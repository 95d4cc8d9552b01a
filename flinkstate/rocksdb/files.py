"""The files of a RocksDB database, as they lie in a snapshot: each is opened when it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flinkstate.basics.array_types import Bytes
from flinkstate.errors import DamagedError, RefusedError


def refused(file: str, what: str) -> RefusedError:
    """The refusal of what RocksDB reads and this package doesn't: Flink takes another savepoint from the job."""
    return RefusedError(f"{file}: {what}; take a canonical savepoint: flink savepoint --type canonical JOB DIR")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a database: `open` returns a file that can seek; `shown` is its name in messages."""

    shown: str
    size: int
    open: Callable[[], Any]

    def read_all(self, largest: int) -> bytes:
        """Returns the whole content of a file that must not be larger than `largest`."""
        if self.size > largest:
            raise DamagedError(f"a file of at most {largest} bytes", f"{self.size}", file=self.shown)
        with self.open() as file:
            return read_at(file, self, 0, self.size).tobytes()


def read_at(file: Any, stored: StoredFile, offset: int, size: int, slack: int = 0) -> Bytes:
    """Returns `size` bytes of an open file, with `slack` zeros behind them. Allocates nothing for what isn't there."""
    _expect_inside(stored, offset, size)
    data = np.empty(size + slack, np.uint8)
    data[size:] = 0
    _read_into(file, stored, offset, data[:size])
    return data


def read_pieces(file: Any, stored: StoredFile, pieces: Sequence[tuple[int, int]], slack: int) -> Bytes:
    """Returns pieces of an open file, which are given by offset and size, one behind the other."""
    for offset, size in pieces:
        _expect_inside(stored, offset, size)
    together = sum(size for _, size in pieces)
    data = np.empty(together + slack, np.uint8)
    data[together:] = 0
    at = 0
    for offset, size in pieces:
        _read_into(file, stored, offset, data[at : at + size])
        at += size
    return data


def _expect_inside(stored: StoredFile, offset: int, size: int) -> None:
    if offset < 0 or size < 0 or offset + size > stored.size:
        raise DamagedError(
            f"{size} bytes inside the file's {stored.size}", "its end", file=stored.shown, offset=max(offset, 0)
        )


def _read_into(file: Any, stored: StoredFile, offset: int, data: Bytes) -> None:
    filled, size = 0, len(data)
    at_position = getattr(file, "readinto_at", None)
    if at_position is None:
        file.seek(offset)
    while filled < size:
        left = data[filled:].data
        got = int(file.readinto(left) if at_position is None else at_position(left, offset + filled))
        if got == 0:
            raise DamagedError(f"{size} bytes", f"{filled}", file=stored.shown, offset=offset)
        filled += got
