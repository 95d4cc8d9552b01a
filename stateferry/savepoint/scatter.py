"""Entries for the key groups of another max parallelism, put by until their key group's turn: on a scratch file,
because every key group of the old layout has some for every one of the new."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.grouped import GroupedEntries
from stateferry.serializers.walker import Positions


class Scatter:
    """Takes grouped entries in, then gives them out by key group; use as a context manager."""

    def __init__(self, scratch: str | None = None) -> None:
        self._file: Any = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115  closed by __exit__
        self._written = 0
        self._parts: list[Positions] = []
        self._index: Positions | None = None

    def __enter__(self) -> Scatter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, entries: GroupedEntries) -> None:
        count = len(entries.key_groups)
        state = np.full(count, entries.state)
        starts, ends = entries.bounds[:-1], entries.bounds[1:]
        base = self._written
        self._parts.append(
            np.stack((entries.key_groups, state, base + starts, base + ends, entries.last_starts - starts))
        )
        self._file.write(entries.data.data)
        self._written += len(entries.data)

    def entries(self, key_group: int) -> Iterator[tuple[int, Buffer, int]]:
        """State id, entries and where the last of these begins: the key group's, all of a state before another's, each
        state's in the order in which they came."""
        if self._index is None:
            self._index = self._sorted()
        first, after = np.searchsorted(self._index[0], (key_group, key_group + 1))
        for _, state, start, end, last_start in self._index[:, first:after].T.tolist():
            self._file.seek(start)
            yield state, np.frombuffer(self._file.read(end - start), np.uint8), last_start

    def _sorted(self) -> Positions:
        index = np.concatenate([np.empty((5, 0), np.int64), *self._parts], axis=1)
        self._parts = []
        ordered: Positions = index[:, np.lexsort((index[2], index[1], index[0]))]
        return ordered
