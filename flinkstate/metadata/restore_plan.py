"""Plans what a restore at another parallelism reads: which byte range of which file goes to which new subtask.

Flink keeps the max parallelism then. So whole key groups move, and the offsets in the files are all that is needed.
Another max parallelism is a matter of `flinkstate.writing.max_parallelism_change`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from flinkstate.errors import DamagedError, UsageError
from flinkstate.hashing.key_groups import KeyGroupRange, check_layout, ranges
from flinkstate.metadata.key_group_extents import KeyGroupExtent, SubtaskFile, key_group_extents


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
class RestorePlan:
    """All reads of a restore, by new subtask and key group; only key groups with data are read."""

    reads: tuple[Read, ...]

    @property
    def total_bytes(self) -> int:
        return sum(read.size for read in self.reads)

    @property
    def staying_bytes(self) -> int:
        return sum(read.size for read in self.reads if read.stays)


def plan_restore(
    files: Sequence[SubtaskFile], max_parallelism: int, old_parallelism: int, new_parallelism: int
) -> RestorePlan:
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
    return RestorePlan(tuple(reads))


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
