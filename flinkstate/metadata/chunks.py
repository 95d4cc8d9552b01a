"""Chunks: ranges of neighbouring key groups of about the same number of bytes. One task reads a chunk in sequence.

A chunk has everything that a task needs to open its files.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass
from itertools import pairwise

from flinkstate.errors import DamagedError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.metadata.key_group_extents import PlacedState, key_group_extents
from flinkstate.metadata.metadata import KeyedHandle, NativeHandle, Operator

TARGET_BYTES = 64 << 20
# With fewer bytes, starting a task takes longer than reading.
_LEAST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class FilePart:
    """The key groups of a chunk that are in one subtask's keyed state file, with data unless others were wanted."""

    subtask: int
    handle: KeyedHandle | NativeHandle
    key_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """The file parts that one task reads; `size` is their number of bytes."""

    max_parallelism: int
    parts: tuple[FilePart, ...]
    size: int

    @property
    def key_groups(self) -> tuple[int, ...]:
        """The key groups of all file parts."""
        return tuple(key_group for part in self.parts for key_group in part.key_groups)

    @property
    def range(self) -> KeyGroupRange:
        """The key groups from the first to the last."""
        return KeyGroupRange(min(self.key_groups), max(self.key_groups))


@dataclass(frozen=True, slots=True)
class _Group:
    subtask: int
    handle: KeyedHandle | NativeHandle
    key_group: int
    size: int


def plan_chunks(
    operator: Operator,
    placed: Sequence[PlacedState],
    wanted: Container[int] | None = None,
    *,
    target_bytes: int = TARGET_BYTES,
    at_least: int = 1,
    also: Collection[int] = (),
) -> tuple[Chunk, ...]:
    """Returns the key groups with data, all or the wanted ones, in chunks of about `target_bytes`.

    `placed` is the operator's state. Key groups `also` are wanted without data, too. If these were fewer than
    `at_least` chunks, they are smaller, but not below about 4 MiB.
    """
    groups = [group for group in _groups(operator, placed, also) if wanted is None or group.key_group in wanted]
    total = sum(group.size for group in groups)
    count = max(-(-total // target_bytes), min(at_least, -(-total // _LEAST_BYTES)), 1)
    runs: list[list[_Group]] = [[] for _ in range(count)]
    before = 0
    for group in groups:
        # A key group goes to the chunk in which its middle is. So no chunk is off by more than one key group.
        runs[(2 * before + group.size) * count // (2 * total)].append(group)
        before += group.size
    return tuple(_chunk(operator.max_parallelism, run) for run in runs if run)


def _groups(operator: Operator, placed: Sequence[PlacedState], also: Collection[int]) -> list[_Group]:
    groups = [
        _Group(one.file.subtask, one.handle, extent.key_group, extent.end - extent.start)
        for one in placed
        for extent in key_group_extents(one.file)
    ]
    if also:
        there = {group.key_group for group in groups}
        empty = [(one, group) for one in placed for group in one.handle.range if group in also and group not in there]
        groups += [_Group(one.file.subtask, one.handle, group, 1) for one, group in empty]
    groups.sort(key=lambda group: group.key_group)
    for one, next_one in pairwise(groups):
        if one.key_group == next_one.key_group:
            raise DamagedError(
                f"each key group in one subtask of operator {operator.label}",
                f"this one in subtasks {one.subtask} and {next_one.subtask}",
                key_group=one.key_group,
            )
    return groups


def _chunk(max_parallelism: int, run: list[_Group]) -> Chunk:
    parts: dict[int, list[_Group]] = {}
    for group in run:
        parts.setdefault(group.subtask, []).append(group)
    return Chunk(
        max_parallelism,
        tuple(
            FilePart(subtask, groups[0].handle, tuple(group.key_group for group in groups))
            for subtask, groups in parts.items()
        ),
        sum(group.size for group in run),
    )
