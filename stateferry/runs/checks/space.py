"""Checks whether the disks have room for what a run will write, by an estimate from a small sample of the source.

A row repeats the key and two lengths (and with TTL a timestamp) that a blob has once, so the staged savepoint may be
several times as large as the source. The growth of each migrated state is measured on some of its key groups, and
counts for as many bytes as the snapshot has found of the state. It is also measured for key groups that the source has
compressed and the plan does not. What a run compresses counts as if it were not, as nothing is known of its rows.

A large key group that isn't in order is sorted by portions, which are merged: they need room beside what is written.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import cramjam
import numpy as np

from flinkstate.errors import PlanError
from flinkstate.files.storage import Location
from flinkstate.files.stores import most_bytes
from flinkstate.hashing.key_groups import key_group_prefix_bytes, operator_index_for_key_group
from flinkstate.keyed.compression import Compression
from flinkstate.keyed.keyed_file import KeyedFile, Section
from flinkstate.keyed.keyed_files import open_keyed
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.key_group_extents import PlacedState, key_group_extents
from flinkstate.metadata.metadata import NativeHandle, Operator
from flinkstate.reading.reader import has_native_state
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Rules
from stateferry.changes.sections import parse_blobs
from stateferry.runs.checks.resolved_plan import ResolvedPlan

# So many sections are sampled of each of so many key groups.
_SECTIONS_OF_A_GROUP = 4
_SAMPLED_GROUPS = 6
_SAMPLED_BYTES = 1 << 20
# In canonical files other states may lie before the one that is sampled. After so many bytes of these, the sections
# that were found are enough.
_MOST_PASSED = 256 << 20
_PACKED_AT_ONCE = 1 << 20
# Of RocksDB's own files, so many of each of so many subtasks.
_SAMPLED_FILES = 4
_SAMPLED_SUBTASKS = 3
# Smaller files are not looked into: rows take less than so many times the bytes of their blobs.
_MOST_GROWTH = 16
_LENGTHS = 8
_STAMP = 8

# The bytes that the snapshot has found, by operator id, state and key group.
Sizes = Mapping[tuple[str, str, int], int]


@dataclass(frozen=True, slots=True)
class Room:
    """The bytes that the staged savepoint is likely to take, and how they were estimated.

    `merged` are those that wait while the largest key groups are brought in order, where they are written.
    """

    bytes: int
    how: str
    merged: int = 0


def estimate(resolved: ResolvedPlan, sizes: Sizes, at_once: int = 1, linked: frozenset[bytes] = frozenset()) -> Room:
    """Estimates the size of the staged savepoint. The tables' files are smaller, because they are compressed.

    Without `sizes`, before the snapshot has found any, nothing is taken to grow. `at_once` is how many files are
    written at the same time. Keyed state of the `linked` operators takes no room.
    """
    migrated = [one for one in resolved.operators if one.rules and one.operator.id not in linked]
    growths = {one.operator.id: _growth(resolved, one, sizes) for one in migrated}
    total = merged = 0.0
    for operator in resolved.source.metadata.operators:
        keyed = sum(subtask.keyed.size for subtask in operator.subtasks if subtask.keyed is not None)
        total += sum(stream.size for subtask in operator.subtasks for stream in subtask.streams()) - keyed
        if operator.id in linked:
            continue
        grown = growths.get(operator.id, 1.0) * _unpacked(resolved, operator)
        total += keyed * grown
        # A task brings one key group in order at a time.
        largest = sorted(_key_groups_to_order(resolved, operator), reverse=True)[:at_once]
        merged = max(merged, sum(largest) * grown)
    rates = ", ".join(f"{one.operator.label} grows {growths[one.operator.id]:.2f} times" for one in migrated)
    sample = f", and a sample of the blobs ({rates or 'nothing to convert'})" if sizes else ""
    return Room(int(total), f"the sizes of all files{sample}", int(merged))


def check_files(resolved: ResolvedPlan, folder: Location, sizes: Sizes) -> None:
    """Refuses if a new file would be larger than the folder's store takes: before anything is written.

    RocksDB's own files are small. What is compressed is taken to grow by nothing, as nothing is known of its rows.
    """
    most = most_bytes(folder.filesystem)
    for operator in resolved.source.keyed_operators() if most is not None else ():
        size = 0 if operator.id in resolved.layout.native else _largest_subtask(resolved, operator)
        if most is None or size * _MOST_GROWTH <= most:
            continue
        if resolved.layout.compression.of(resolved.source.compression(operator)) is not Compression.SNAPPY:
            one = resolved.conversion.of(operator)
            size = int(size * _growth(resolved, one, sizes) * _unpacked(resolved, operator))
        if size > most:
            subtasks = -(-resolved.layout.of(operator).parallelism * size // most)
            raise PlanError(
                f"a file in {folder.shown} may have at most {most:,} bytes, and that of a subtask of "
                f"{operator.label} would have about {size:,}: give the new job more subtasks, about {subtasks + 1} "
                "(--parallelism)"
            )


def _largest_subtask(resolved: ResolvedPlan, operator: Operator) -> int:
    """The bytes in the source from which the largest new subtask is made."""
    new = resolved.layout.of(operator)
    extents = [extent for placed in resolved.source.placed(operator) for extent in key_group_extents(placed.file)]
    if resolved.conversion.of(operator).changes_key_groups:
        # Keys are spread anew.
        return sum(extent.end - extent.start for extent in extents) // new.parallelism
    sizes = [0] * new.parallelism
    for extent in extents:
        subtask = operator_index_for_key_group(new.max_parallelism, new.parallelism, extent.key_group)
        sizes[subtask] += extent.end - extent.start
    return max(sizes)


def _key_groups_to_order(resolved: ResolvedPlan, operator: Operator) -> list[int]:
    """The sizes of the operator's new key groups, if they are written as RocksDB's files and may not be in order.

    RocksDB's own rows are in order if no blob becomes rows among them and each stays in its key group.
    """
    own = resolved.conversion.of(operator)
    stays = has_native_state(operator) and not own.rules and not own.changes_key_groups
    if operator.id not in resolved.layout.native or stays:
        return []
    extents = [extent for placed in resolved.source.placed(operator) for extent in key_group_extents(placed.file)]
    sizes = [extent.end - extent.start for extent in extents]
    # With other key groups, keys are spread anew.
    return [sum(sizes) // own.new_max] * own.new_max if own.changes_key_groups else sizes


def _growth(resolved: ResolvedPlan, one: OperatorChanges, sizes: Sizes) -> float:
    """The factor by which the operator's keyed state grows; at least 1, as entries that it loses aren't counted."""
    of_states: Counter[str] = Counter()
    for (operator, state, _), size in sizes.items() if one.rules else ():
        if operator == one.operator.hex_id:
            of_states[state] += size
    before = after = float(of_states.total())
    for rules in one.rules:
        # Blobs take less than the rows that they are made of.
        if rules.takes_blobs and (size := of_states[rules.legacy.name]):
            after += size * (_growth_of_blobs(resolved, one, rules, sizes) - 1)
    return max(after / before, 1.0) if before else 1.0


def _growth_of_blobs(resolved: ResolvedPlan, one: OperatorChanges, rules: Rules, sizes: Sizes) -> float:
    before = after = 0
    for section in _sample_of(resolved, one.operator, rules.legacy.name, sizes):
        before += len(section.raw)
        after += _size_as_rows(section, rules, one.new_max)
    return after / before if before else 1.0


def _unpacked(resolved: ResolvedPlan, operator: Operator) -> float:
    """The factor by which the operator's keyed state grows because it is no longer compressed."""
    if has_native_state(operator):
        return _unpacked_rows(resolved, operator)
    found = resolved.source.compression(operator)
    if found is not Compression.SNAPPY or resolved.layout.compression.of(found) is Compression.SNAPPY:
        return 1.0
    content = packed = 0
    for section in _sample(resolved, operator):
        if section.file.header.compressed:
            data = section.raw[:_PACKED_AT_ONCE]
            content += len(data)
            packed += len(cramjam.snappy.compress(data.data))
    return content / packed if packed else 1.0


def _unpacked_rows(resolved: ResolvedPlan, operator: Operator) -> float:
    """The same for RocksDB's own files, by what some of them say of their rows."""
    content = stored = 0
    placed = resolved.source.placed(operator)
    for one in placed[:: max(len(placed) // _SAMPLED_SUBTASKS, 1)][:_SAMPLED_SUBTASKS]:
        with _opened(resolved, operator, one) as file:
            sizes = file.database.content_sizes(_SAMPLED_FILES) if isinstance(file, NativeFile) else (0, 0)
            content, stored = content + sizes[0], stored + sizes[1]
    return content / stored if stored else 1.0


def _size_as_rows(section: Section, rules: Rules, new_max: int) -> int:
    blobs = parse_blobs(section, replace(rules, legacy=rules.in_source))
    per_row = _LENGTHS + key_group_prefix_bytes(new_max) + (_STAMP if rules.legacy.ttl else 0)
    keys = int((blobs.counts * (per_row + blobs.key_ends - blobs.key_starts)).sum())
    return keys + int((blobs.ends - blobs.entries).sum())


def _sample(resolved: ResolvedPlan, operator: Operator) -> Iterator[Section]:
    """Sections from key groups spread over the operator, which has canonical files; reads the beginning of each."""
    window = np.empty(_SAMPLED_BYTES, np.uint8)
    for placed, group in _spread(_key_groups(resolved, operator)):
        with _opened(resolved, operator, placed) as file:
            yield from islice(file.sections(group, window), _SECTIONS_OF_A_GROUP)


def _sample_of(resolved: ResolvedPlan, operator: Operator, state: str, sizes: Sizes) -> Iterator[Section]:
    """The same of one state, from key groups that have it."""
    window, passed, has_found = np.empty(_SAMPLED_BYTES, np.uint8), 0, False
    groups = [one for one in _key_groups(resolved, operator) if sizes.get((operator.hex_id, state, one[1]))]
    for placed, group in _spread(groups):
        if has_found and passed > _MOST_PASSED:
            return
        wanted = [group] if isinstance(placed.handle, NativeHandle) else None
        with _opened(resolved, operator, placed, wanted) as file:
            names = [one.name for one in file.header.states]
            number = names.index(state)
            if wanted is None:
                passed += sum(sizes.get((operator.hex_id, name, group), 0) for name in names[:number])
            for section in islice(file.sections_of(group, {number}, window), _SECTIONS_OF_A_GROUP):
                has_found = True
                yield section


def _key_groups(resolved: ResolvedPlan, operator: Operator) -> list[tuple[PlacedState, int]]:
    return [
        (placed, extent.key_group)
        for placed in resolved.source.placed(operator)
        for extent in key_group_extents(placed.file)
    ]


def _spread(groups: list[tuple[PlacedState, int]]) -> list[tuple[PlacedState, int]]:
    return groups[:: max(len(groups) // _SAMPLED_GROUPS, 1)][:_SAMPLED_GROUPS]


def _opened(
    resolved: ResolvedPlan, operator: Operator, placed: PlacedState, wanted: Sequence[int] | None = None
) -> KeyedFile:
    folder, max_parallelism = resolved.source.folder, operator.max_parallelism
    return open_keyed(folder, placed.handle, max_parallelism, placed.file.subtask, wanted=wanted)


def free_bytes(place: str) -> int | None:
    """The free bytes on the disk of a folder, which need not exist; None for an object store, where it isn't known."""
    if "://" in place:
        return None
    return shutil.disk_usage(_present(place)).free


def check_room(needs: Mapping[str, int], how: str) -> None:
    """Refuses if the needed bytes don't fit; adds up the needs of all folders on the same disk."""
    by_disk: dict[int, list[str]] = {}
    for place in needs:
        if free_bytes(place) is not None:
            by_disk.setdefault(_device(place), []).append(place)
    for places in by_disk.values():
        needed, free = sum(needs[place] for place in places), free_bytes(places[0]) or 0
        if needed > free:
            raise PlanError(
                f"expected {needed:,} bytes free for {' and '.join(places)}, found {free:,}: free some space, or "
                f"choose folders on a larger disk. The need is estimated from {how}"
            )


def on_one_disk(one: Location, other: Location) -> bool:
    """Whether the folders, which need not exist, are on the same disk of this machine."""
    return one.is_local and other.is_local and _device(one.path) == _device(other.path)


def _device(place: str) -> int:
    return _present(place).stat().st_dev


def _present(place: str) -> Path:
    """The folder, or its nearest parent that exists."""
    folder = Path(place)
    while not folder.exists():
        folder = folder.parent
    return folder
