"""Where each key group is in a keyed state file: from its offset to the next one in the file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from flinkstate.errors import DamagedError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.metadata.metadata import KeyedHandle, NativeHandle


@dataclass(frozen=True, slots=True)
class SubtaskFile:
    """The keyed state file of an old subtask: one offset per key group of its range, 0 for one without data."""

    subtask: int
    name: str
    key_groups: KeyGroupRange
    offsets: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class PlacedState:
    """A subtask's keyed state, and where its key groups are in its file."""

    handle: KeyedHandle | NativeHandle
    file: SubtaskFile


class KeyGroupExtent(NamedTuple):
    """The bytes of one key group in its file; `end` is exclusive."""

    key_group: int
    start: int
    end: int


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
                "an offset of its own for each key group",
                f"{next_offset} for key group {key_group} too",
                file=file.name,
                key_group=next_key_group,
            )
    ends = [offset for offset, _ in starts] + [file.size]
    extents = [KeyGroupExtent(key_group, start, end) for (start, key_group), end in zip(starts, ends[1:], strict=True)]
    return tuple(sorted(extents))
