"""A state's entries, gathered from its sections into portions of a size that suits what is done with them.

At a large max parallelism key groups are small: their sections are copied together, so that what costs the same for one
entry and for many is paid once for many. A large section is handed on as it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stateferry.errors import DamagedError
from stateferry.rescale_plan import KeyGroupExtent
from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.key_group_file import KeyGroupFile, Section
from stateferry.serializers.walker import Positions

# What is at least this part of a portion is handed on as it lies.
_LARGE = 4

KeyGroups = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Origin:
    """From position `begin` on the data is that of a file: of an extent's bytes (in the window that begins at `base`),
    whose positions are larger by `shift`. It holds no section, which would hold its whole window."""

    begin: int
    file: KeyGroupFile
    extent: KeyGroupExtent
    base: int
    shift: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Entries of one state, valid until the next ones are asked for: entry i is of `key_groups[i]`, its key (behind
    `prefix` bytes of key group) begins at `key_starts[i]` and ends at `key_ends[i]`; its value is
    `data[value_starts[i]:ends[i]]`."""

    data: Buffer
    prefix: int
    key_groups: KeyGroups
    starts: Positions
    key_ends: Positions
    ends: Positions
    origins: tuple[_Origin, ...]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def key_starts(self) -> Positions:
        return self.starts + (4 + self.prefix)

    @property
    def value_starts(self) -> Positions:
        return self.key_ends + 4

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Gives damage that was found at a position in `data` its place in the file it came from."""
        try:
            yield
        except DamagedError as error:
            position = error.offset or 0
            origin = [origin for origin in self.origins if origin.begin <= position][-1]
            moved = DamagedError(error.expected, error.found, offset=position + origin.shift)
            raise origin.file.locate(moved, origin.extent, origin.base) from None


def gather(sections: Iterable[Section], most_rows: int, most_bytes: int) -> Iterator[Rows]:
    """The sections' entries in portions of at most so many rows and bytes; one entry may be larger than that."""
    gathered = _Gathered(most_rows, most_bytes)
    for section in sections:
        first = 0
        while first < len(section):
            last = _fitting(section, first, most_rows, most_bytes)
            if _is_large(section, first, last, most_rows, most_bytes):
                if gathered.count:
                    yield gathered.take()
                yield _as_it_lies(section, first, last)
            else:
                if not gathered.fits(section, first, last):
                    yield gathered.take()
                gathered.add(section, first, last)
            first = last
    if gathered.count:
        yield gathered.take()


def _fitting(section: Section, first: int, most_rows: int, most_bytes: int) -> int:
    within = int(np.searchsorted(section.ends, section.starts[first] + most_bytes, "right"))
    return max(min(first + most_rows, within), first + 1)


def _is_large(section: Section, first: int, last: int, most_rows: int, most_bytes: int) -> bool:
    """Whether it is cheaper to take a portion for itself than to copy the entries to others."""
    size = int(section.ends[last - 1] - section.starts[first])
    return _LARGE * (last - first) >= most_rows or _LARGE * size >= most_bytes


def _origin(section: Section, begin: int, shift: int) -> _Origin:
    return _Origin(begin, section.file, section.extent, section.base, shift)


def _as_it_lies(section: Section, first: int, last: int) -> Rows:
    part = slice(first, last)
    key_groups = np.full(last - first, section.key_group, np.int32)
    positions = (section.starts[part], section.key_ends[part], section.ends[part])
    return Rows(section.data, section.file.prefix, key_groups, *positions, (_origin(section, 0, 0),))


class _Gathered:
    """Entries copied one behind the other."""

    def __init__(self, most_rows: int, most_bytes: int) -> None:
        self._data = np.empty(most_bytes, np.uint8)
        self._starts, self._key_ends, self._ends = np.empty((3, most_rows), np.int64)
        self._key_groups = np.empty(most_rows, np.int32)
        self._origins: list[_Origin] = []
        self._size = self.count = 0

    def fits(self, section: Section, first: int, last: int) -> bool:
        size = int(section.ends[last - 1] - section.starts[first])
        return self.count + last - first <= len(self._starts) and self._size + size <= len(self._data)

    def add(self, section: Section, first: int, last: int) -> None:
        begin, end = int(section.starts[first]), int(section.ends[last - 1])
        shift = begin - self._size
        rows = slice(self.count, self.count + last - first)
        self._data[self._size : self._size + end - begin] = section.data[begin:end]
        np.subtract(section.starts[first:last], shift, out=self._starts[rows])
        np.subtract(section.key_ends[first:last], shift, out=self._key_ends[rows])
        np.subtract(section.ends[first:last], shift, out=self._ends[rows])
        self._key_groups[rows] = section.key_group
        self._origins.append(_origin(section, self._size, shift))
        self.count, self._size = rows.stop, self._size + end - begin

    def take(self) -> Rows:
        """What was gathered; the next entries take its place."""
        part, origins = slice(self.count), tuple(self._origins)
        prefix, data = origins[0].file.prefix, self._data[: self._size]
        # The key groups become a column, which outlives the next portion.
        key_groups = self._key_groups[part].copy()
        rows = Rows(data, prefix, key_groups, self._starts[part], self._key_ends[part], self._ends[part], origins)
        self._origins, self.count, self._size = [], 0, 0
        return rows
