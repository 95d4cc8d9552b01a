"""A state's entries, gathered into portions of a size that suits what is done with them.

At a large max parallelism key groups are small: their sections are copied together, so that what costs the same for one
entry and for many is paid once for many. A large section is handed on as it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

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
    """From position `begin` on the data is that of a file: of an extent's bytes, or of several extents' (in the window
    that begins at `base`), whose positions are larger by `shift`. It holds no section, which would hold its whole
    window."""

    begin: int
    file: KeyGroupFile
    extent: KeyGroupExtent | None
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

    @classmethod
    def of(cls, section: Section) -> Rows:
        origin = _Origin(0, section.file, section.extent, section.base, 0)
        key_groups = np.full(len(section), section.key_group, np.int32)
        positions = (section.starts, section.key_ends, section.ends)
        return cls(section.data, section.file.prefix, key_groups, *positions, (origin,))

    @classmethod
    def of_run(
        cls,
        file: KeyGroupFile,
        data: Buffer,
        base: int,
        key_groups: KeyGroups,
        positions: tuple[Positions, Positions, Positions],
    ) -> Rows:
        """Of several key groups whose bytes in the file follow each other from `base` on."""
        return cls(data, file.prefix, key_groups, *positions, (_Origin(0, file, None, base, 0),))

    def part(self, first: int, last: int) -> Rows:
        rows = slice(first, last)
        positions = (self.starts[rows], self.key_ends[rows], self.ends[rows])
        return replace(
            self, key_groups=self.key_groups[rows], starts=positions[0], key_ends=positions[1], ends=positions[2]
        )

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
            extent = origin.extent or origin.file.extent_at(origin.base + position + origin.shift)
            raise origin.file.locate(moved, extent, origin.base) from None


def gather(found: Iterable[Rows], most_rows: int, most_bytes: int) -> Iterator[Rows]:
    """The rows in portions of at most so many rows and bytes; one entry may be larger than that."""
    gathered = _Gathered(most_rows, most_bytes)
    for rows in found:
        first = 0
        while first < len(rows):
            last = _fitting(rows, first, most_rows, most_bytes)
            if _is_large(rows, first, last, most_rows, most_bytes):
                if gathered.count:
                    yield gathered.take()
                yield rows.part(first, last)
            else:
                if not gathered.fits(rows, first, last):
                    yield gathered.take()
                gathered.add(rows, first, last)
            first = last
    if gathered.count:
        yield gathered.take()


def _fitting(rows: Rows, first: int, most_rows: int, most_bytes: int) -> int:
    within = int(np.searchsorted(rows.ends, rows.starts[first] + most_bytes, "right"))
    return max(min(first + most_rows, within), first + 1)


def _is_large(rows: Rows, first: int, last: int, most_rows: int, most_bytes: int) -> bool:
    """Whether it is cheaper to take a portion for itself than to copy the entries to others."""
    size = int(rows.ends[last - 1] - rows.starts[first])
    return _LARGE * (last - first) >= most_rows or _LARGE * size >= most_bytes


class _Gathered:
    """Entries copied one behind the other."""

    def __init__(self, most_rows: int, most_bytes: int) -> None:
        self._data = np.empty(most_bytes, np.uint8)
        self._starts, self._key_ends, self._ends = np.empty((3, most_rows), np.int64)
        self._key_groups = np.empty(most_rows, np.int32)
        self._origins: list[_Origin] = []
        self._size = self.count = 0

    def fits(self, rows: Rows, first: int, last: int) -> bool:
        size = int(rows.ends[last - 1] - rows.starts[first])
        return self.count + last - first <= len(self._starts) and self._size + size <= len(self._data)

    def add(self, found: Rows, first: int, last: int) -> None:
        begin, end = int(found.starts[first]), int(found.ends[last - 1])
        shift = begin - self._size
        rows = slice(self.count, self.count + last - first)
        self._data[self._size : self._size + end - begin] = found.data[begin:end]
        np.subtract(found.starts[first:last], shift, out=self._starts[rows])
        np.subtract(found.key_ends[first:last], shift, out=self._key_ends[rows])
        np.subtract(found.ends[first:last], shift, out=self._ends[rows])
        self._key_groups[rows] = found.key_groups[first:last]
        self._origins.extend(replace(origin, begin=self._size, shift=origin.shift + shift) for origin in found.origins)
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
