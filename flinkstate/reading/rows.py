"""Gathers a state's entries into portions of a suitable size.

At a large max parallelism key groups are small. Their sections are then copied together, so that the cost of a call is
paid once for many entries. A large section is handed on without a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from flinkstate.basics.array_types import Positions
from flinkstate.errors import DamagedError
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.keyed_file import KeyedFile, Section
from flinkstate.metadata.key_group_extents import KeyGroupExtent

# At least this part (1/4) of a portion is handed on without a copy.
_LARGE = 4

KeyGroups = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where data came from: from position `begin` on it is that of `file`, in one extent or (None) in several.

    A position in the data plus `shift` is a position in a buffer that begins at `base` of the file. This holds no
    section, because a section would keep its whole window in memory.
    """

    begin: int
    file: KeyedFile
    extent: KeyGroupExtent | None
    base: int
    shift: int


@dataclass(frozen=True, slots=True)
class RowPortion:
    """Entries of one state, valid until the next ones are asked for. Entry i belongs to `key_groups[i]`.

    Its key (behind `prefix` bytes of key group) begins at `key_starts[i]` and ends at `key_ends[i]`; its value is
    `data[value_starts[i]:ends[i]]`.
    """

    data: Buffer
    prefix: int
    key_groups: KeyGroups
    starts: Positions
    key_ends: Positions
    ends: Positions
    origins: tuple[_Origin, ...]

    @classmethod
    def of(cls, section: Section) -> RowPortion:
        """Returns the entries of a section, without a copy."""
        origin = _Origin(0, section.file, section.extent, section.base, 0)
        key_groups = np.full(len(section), section.key_group, np.int32)
        positions = (section.starts, section.key_ends, section.ends)
        return cls(section.data, section.file.prefix, key_groups, *positions, (origin,))

    @classmethod
    def of_run(
        cls,
        file: KeyedFile,
        data: Buffer,
        base: int,
        key_groups: KeyGroups,
        positions: tuple[Positions, Positions, Positions],
    ) -> RowPortion:
        """Returns entries of several key groups whose bytes follow each other in the file, from `base` on."""
        return cls(data, file.prefix, key_groups, *positions, (_Origin(0, file, None, base, 0),))

    def part(self, first: int, last: int) -> RowPortion:
        """Returns the rows from `first` up to, but without, `last`."""
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
        """Gives a `DamagedError` whose offset is a position in `data` its place in the file."""
        try:
            yield
        except DamagedError as error:
            position = error.offset or 0
            origin = [origin for origin in self.origins if origin.begin <= position][-1]
            moved = DamagedError(error.expected, error.found, offset=position + origin.shift)
            extent, base = origin.extent, origin.base
            if extent is None:
                extent = origin.file.extent_at(base + position + origin.shift)
                # The content of a framed key group is where its stream was.
                base -= 0 if origin.file.has_places else extent.start
            raise origin.file.locate(moved, extent, base) from None


def gather(found: Iterable[RowPortion], most_rows: int, most_bytes: int) -> Iterator[RowPortion]:
    """Yields the rows in portions of at most so many rows and bytes; a single entry may be larger than that."""
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


def _fitting(rows: RowPortion, first: int, most_rows: int, most_bytes: int) -> int:
    within = int(np.searchsorted(rows.ends, rows.starts[first] + most_bytes, "right"))
    return max(min(first + most_rows, within), first + 1)


def _is_large(rows: RowPortion, first: int, last: int, most_rows: int, most_bytes: int) -> bool:
    """Whether it costs less to hand the entries on as a portion than to copy them to others."""
    size = int(rows.ends[last - 1] - rows.starts[first])
    return _LARGE * (last - first) >= most_rows or _LARGE * size >= most_bytes


class _Gathered:
    """Entries that were copied one behind the other."""

    def __init__(self, most_rows: int, most_bytes: int) -> None:
        self._data = np.empty(most_bytes, np.uint8)
        self._starts, self._key_ends, self._ends = np.empty((3, most_rows), np.int64)
        self._key_groups = np.empty(most_rows, np.int32)
        self._origins: list[_Origin] = []
        self._size = self.count = 0

    def fits(self, rows: RowPortion, first: int, last: int) -> bool:
        size = int(rows.ends[last - 1] - rows.starts[first])
        return self.count + last - first <= len(self._starts) and self._size + size <= len(self._data)

    def add(self, found: RowPortion, first: int, last: int) -> None:
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

    def take(self) -> RowPortion:
        """Returns what was gathered; the next entries will overwrite it."""
        part, origins = slice(self.count), tuple(self._origins)
        prefix, data = origins[0].file.prefix, self._data[: self._size]
        # The key groups become a column, which is in use longer than the portion.
        key_groups = self._key_groups[part].copy()
        rows = RowPortion(data, prefix, key_groups, self._starts[part], self._key_ends[part], self._ends[part], origins)
        self._origins, self.count, self._size = [], 0, 0
        return rows
