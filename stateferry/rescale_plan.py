"""Plans what a restore at another parallelism reads: which byte range of which file goes to which new subtask.

The max parallelism stays the same. So whole key groups move, and the offsets in the files are all that is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from stateferry.errors import DamagedError, UsageError
from stateferry.key_groups import KeyGroupRange, check_layout, ranges


@dataclass(frozen=True, slots=True)
class SubtaskFile:
    """The keyed state file of an old subtask: one offset per key group of its range, 0 for one without data."""

    subtask: int
    name: str
    key_groups: KeyGroupRange
    offsets: tuple[int, ...]
    size: int


class KeyGroupExtent(NamedTuple):
    """The bytes of one key group in its file; `end` is exclusive."""

    key_group: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Read:
    """One sequential read: a new subtask takes the bytes `start` to `end` (exclusive) of an old subtask's file."""

    new_subtask: int
    file: SubtaskFile
    key_groups: KeyGroupRange
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def stays(self) -> bool:
        """Whether the same subtask had these key groups before."""
        return self.new_subtask == self.file.subtask


@dataclass(frozen=True, slots=True)
class RescalePlan:
    """All reads of a rescale, by new subtask and key group; only key groups with data are read."""

    reads: tuple[Read, ...]

    @property
    def total_bytes(self) -> int:
        return sum(read.size for read in self.reads)

    @property
    def staying_bytes(self) -> int:
        return sum(read.size for read in self.reads if read.stays)


def plan_rescale(
    files: Sequence[SubtaskFile], max_parallelism: int, old_parallelism: int, new_parallelism: int
) -> RescalePlan:
    """Returns the reads that bring every key group of the old files to its new subtask.

    An old subtask without keyed state has no file. The files' ranges may differ from Flink's own, but must not overlap.
    """
    new_ranges = ranges(max_parallelism, new_parallelism)
    check_layout(max_parallelism, old_parallelism)
    ordered = sorted(files, key=lambda file: file.key_groups.start)
    _check_files(ordered, max_parallelism, old_parallelism)
    reads: list[Read] = []
    for file in ordered:
        extents = key_group_extents(file)
        if not extents:
            continue
        first = extents[0].key_group * new_parallelism // max_parallelism
        last = extents[-1].key_group * new_parallelism // max_parallelism
        position = 0
        for new_subtask in range(first, last + 1):
            begin = position
            while position < len(extents) and extents[position].key_group <= new_ranges[new_subtask].end:
                position += 1
            reads.extend(_sequential_reads(new_subtask, file, extents[begin:position]))
    reads.sort(key=lambda read: (read.new_subtask, read.key_groups.start))
    return RescalePlan(tuple(reads))


# The result is cached: a file is opened several times, and at a large max parallelism this takes longer than reading.
@lru_cache(maxsize=64)
def key_group_extents(file: SubtaskFile) -> tuple[KeyGroupExtent, ...]:
    """Returns the bytes of each key group with data, by key group; each ends where the next one in the file begins."""
    if len(file.offsets) != file.key_groups.size:
        raise DamagedError(
            f"one offset for each key group of {file.key_groups}", f"{len(file.offsets)} offsets", file=file.name
        )
    starts = sorted(
        (offset, key_group) for key_group, offset in zip(file.key_groups, file.offsets, strict=True) if offset
    )
    for offset, key_group in starts:
        if not 0 < offset < file.size:
            raise DamagedError(
                f"an offset inside the file's {file.size} bytes", f"{offset}", file=file.name, key_group=key_group
            )
    for (offset, key_group), (next_offset, next_key_group) in pairwise(starts):
        if offset == next_offset:
            raise DamagedError(
                f"another offset than that of key group {key_group}",
                f"{next_offset} again",
                file=file.name,
                key_group=next_key_group,
            )
    ends = [offset for offset, _ in starts] + [file.size]
    extents = [KeyGroupExtent(key_group, start, end) for (start, key_group), end in zip(starts, ends[1:], strict=True)]
    return tuple(sorted(extents))


def _sequential_reads(new_subtask: int, file: SubtaskFile, extents: Sequence[KeyGroupExtent]) -> list[Read]:
    """Returns one read for key groups whose bytes follow each other: usually one for all of them."""
    reads: list[Read] = []
    for extent in extents:
        if reads and reads[-1].end == extent.start:
            last = reads.pop()
            key_groups = KeyGroupRange(last.key_groups.start, extent.key_group)
            reads.append(Read(new_subtask, file, key_groups, last.start, extent.end))
        else:
            groups = KeyGroupRange(extent.key_group, extent.key_group)
            reads.append(Read(new_subtask, file, groups, extent.start, extent.end))
    return reads


def _check_files(ordered: Sequence[SubtaskFile], max_parallelism: int, old_parallelism: int) -> None:
    for file in ordered:
        if not 0 <= file.subtask < old_parallelism:
            raise UsageError(
                f"expected an old subtask of 0..{old_parallelism - 1} for {file.name}, found {file.subtask}"
            )
        if file.key_groups.end >= max_parallelism:
            raise DamagedError(
                f"key groups of 0..{max_parallelism - 1}", f"the range {file.key_groups}", file=file.name
            )
    for before, file in pairwise(file for file in ordered if not file.key_groups.is_empty):
        if file.key_groups.start <= before.key_groups.end:
            raise DamagedError(
                f"key groups that no other file has (the range {before.key_groups} belongs to {before.name})",
                f"the range {file.key_groups}",
                file=file.name,
            )
