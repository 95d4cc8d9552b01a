"""Writes one operator into another savepoint: in another layout, and with its keyed state changed if that is wanted.

Keyed state is read and written section by section. At another max parallelism the keys of every keyed operator are
hashed again. All other state is copied byte for byte (operator state element by element, if parallelism changes), and
so are values that can't be decoded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np

from flinkstate.errors import PlanError, RefusedError
from flinkstate.hashing.key_groups import KeyGroupRange, key_group_prefix_bytes, ranges
from flinkstate.keyed.compression import Buffer, Compression
from flinkstate.keyed.header import KeyedHeader
from flinkstate.keyed.key_group_check import why_not_shown
from flinkstate.keyed.keyed_file import WINDOW, KeyedFile, Section
from flinkstate.keyed.native_file import NativeFile
from flinkstate.keyed.state import KeyedState, StateKind, keyed_states
from flinkstate.metadata.metadata import KeyedHandle, NativeHandle, Operator, Subtask
from flinkstate.reading.group_sections import GroupSections
from flinkstate.reading.reader import Savepoint
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.serializers.types import OpaqueType, type_name
from flinkstate.values.key_hashes import why_no_hash
from flinkstate.writing.max_parallelism_change import Destination, GroupedEntries
from flinkstate.writing.native_writer import NativeFileWriter
from flinkstate.writing.operator_file import RewritesElements, redistribute_files, rewrite_files
from flinkstate.writing.writer import KeyedFileWriter, SavepointWriter


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout to write: parallelism by operator id, max parallelism and compression for all.

    What isn't given stays as it is. The keyed state of the operators with the ids `native` is written as RocksDB
    databases. Those with the ids `not_parallel` keep their max parallelism.
    """

    parallelism: Mapping[bytes, int] = field(default_factory=dict)
    max_parallelism: int | None = None
    compression: Compression = Compression.SOURCE
    native: frozenset[bytes] = frozenset()
    not_parallel: frozenset[bytes] = frozenset()

    def of(self, operator: Operator) -> Operator:
        """Returns the operator with its new parallelism and max parallelism."""
        keeps_max = operator.id in self.not_parallel
        return replace(
            operator,
            parallelism=self.parallelism.get(operator.id, operator.parallelism),
            max_parallelism=operator.max_parallelism if keeps_max else self.max_parallelism or operator.max_parallelism,
        )


class Rewrite(RewritesElements, Protocol):
    """Puts other sections of keyed state, and other elements of operator state, in the place of those in a file.

    `more_key_groups` are those that may get sections although they have none. If it `rehashes`, its keys have other
    hashes than those in the file.
    """

    @property
    def more_key_groups(self) -> frozenset[int]: ...

    @property
    def rehashes(self) -> bool: ...

    def header(self, header: KeyedHeader) -> KeyedHeader:
        """Returns a header that describes the other sections."""

    def state(self, state: KeyedState) -> KeyedState:
        """Returns a state as its other sections have it."""

    def sections(
        self, key_group: int, found: Iterator[tuple[KeyedState, Section]]
    ) -> Iterator[tuple[KeyedState, Section]]:
        """Yields the other sections of a key group, one state after another."""

    def of_key_groups(self, key_groups: KeyGroupRange) -> Self:
        """Returns what a task needs that reads these key groups."""


class Transform(Protocol):
    """Changes an operator's keyed state while it is rewritten."""

    def header(self, merged: KeyedHeader) -> KeyedHeader:
        """Returns the header of the new files, from the merged header of all old files."""

    def entries(self, group: GroupSections, destination: Destination) -> Iterator[GroupedEntries]:
        """Yields the new entries of an old key group, one state after another, with the state ids of the new header."""


class Copy:
    """Leaves keyed state as it is, but for the states `without`, whose entries it leaves out."""

    def __init__(self, without: Collection[str] = ()) -> None:
        self._without, self._ids = without, dict[str, int]()

    def header(self, merged: KeyedHeader) -> KeyedHeader:
        self._ids = {state.name: index for index, state in enumerate(merged.states)}
        return merged

    def entries(self, group: GroupSections, destination: Destination) -> Iterator[GroupedEntries]:
        for state, section in group:
            if state.name not in self._without:
                yield destination.send(section, state, self._ids[state.name])


@dataclass(slots=True)
class OperatorRewrite:
    """One operator that is written into a new savepoint.

    It can be pickled: any process may write each of its new files. With `rewrite` the transform sees other sections
    than those that are in the old files. If the job keeps its timers on the heap, they aren't in its databases. Of
    subtasks in `only`, these keys of each state are read, else all.
    """

    source: Savepoint
    old: Operator
    new: Operator
    transform: Transform
    header: KeyedHeader | None
    compression: Compression
    native: bool = False
    rewrite: Rewrite | None = None
    has_timers_on_heap: bool = False
    only: Mapping[int, Mapping[str, Prefixes]] = field(default_factory=dict)

    @classmethod
    def prepare(
        cls,
        source: Savepoint,
        operator: Operator,
        layout: Layout,
        transform: Transform | None = None,
        rewrite: Rewrite | None = None,
    ) -> OperatorRewrite:
        """Prepares the rewrite. Refuses what can't be done before anything is written."""
        new = layout.of(operator)
        _check_layout(operator, new, rehashes=rewrite is not None and rewrite.rehashes)
        is_native = operator.id in layout.native
        prepared = cls(source, operator, new, transform or Copy(), None, layout.compression, is_native, rewrite)
        merged = source.keyed_header(operator)
        if merged is None:
            return prepared
        if prepared.destination.changes_key_groups:
            for state in keyed_states(merged, operator.label):
                _refuse_unstable(state if rewrite is None else rewrite.state(state), operator)
        prepared.header = prepared.transform.header(merged if rewrite is None else rewrite.header(merged))
        natives = (subtask.native_keyed for subtask in operator.subtasks)
        prepared.has_timers_on_heap = any(one is not None and one.timers is not None for one in natives)
        if not is_native:
            prepared.compression = layout.compression.of(source.compression(operator))
        return prepared

    @property
    def destination(self) -> Destination:
        """Where the entries go: from the old to the new max parallelism."""
        rehashes = self.rewrite is not None and self.rewrite.rehashes
        return Destination(self.old.max_parallelism, self.new.max_parallelism, rehashes)

    @property
    def moves(self) -> bool:
        """Whether entries may go to other subtasks."""
        return changes_layout(self.old, self.new) or self.destination.rehashes

    def of_key_groups(self, wanted: Iterable[KeyGroupRange]) -> Iterator[OperatorRewrite]:
        """Yields what a task needs to read each of these ranges: the files that hold them, and no others.

        The files of a large cluster take megabytes to describe, which would be sent with each task.
        """
        held = [(subtask.keyed.range, subtask) for subtask in self.old.subtasks if subtask.keyed is not None]
        # No two files have a key group in common, so they have the same order by their first and by their last one.
        held.sort(key=lambda one: one[0].start)
        lasts = [range_.end for range_, _ in held]
        bare = replace(
            self,
            source=Savepoint(self.source.folder, replace(self.source.metadata, operators=())),
            new=replace(self.new, subtasks=()),
        )
        for key_groups in wanted:
            first = end = bisect_left(lasts, key_groups.start)
            while end < len(held) and held[end][0].start <= key_groups.end:
                end += 1
            rewrite = None if self.rewrite is None else self.rewrite.of_key_groups(key_groups)
            old = replace(self.old, subtasks=tuple(subtask for _, subtask in held[first:end]))
            only = {one.index: self._only_within(one, key_groups) for one in old.subtasks if one.index in self.only}
            yield replace(bare, old=old, rewrite=rewrite, only=only)

    def _only_within(self, subtask: Subtask, key_groups: KeyGroupRange) -> dict[str, Prefixes]:
        assert subtask.keyed is not None
        own, width = subtask.keyed.range.intersection(key_groups), key_group_prefix_bytes(self.old.max_parallelism)
        return {state: keys.within(own, width) for state, keys in self.only[subtask.index].items()}

    def finish(self, writer: SavepointWriter, keyed: Mapping[int, KeyedHandle | NativeHandle]) -> Operator:
        """Copies all other state and returns the new operator; `keyed` has the new keyed files' handles by subtask."""
        subtasks = self._carry_over(writer)
        for index, handle in keyed.items():
            subtasks[index] = subtasks.get(index, Subtask(index)).with_keyed(handle)
        return replace(self.new, subtasks=tuple(subtasks.values()))

    def _carry_over(self, writer: SavepointWriter) -> dict[int, Subtask]:
        rewrite = self.rewrite if self.rewrite is not None and self.rewrite.elements else None
        if self.new.parallelism != self.old.parallelism and not self.old.fully_finished:
            return redistribute_files(self.source.folder, writer, self.old, self.new.parallelism, rewrite)
        if rewrite is not None:
            return rewrite_files(self.source.folder, writer, self.old, rewrite)
        return {
            subtask.index: writer.carry_over(self.source.folder, self.old.hex_id, subtask)
            for subtask in self.old.subtasks
        }

    def ranges(self) -> dict[int, KeyGroupRange]:
        """Returns the key groups of each new keyed file, by subtask.

        If the layout doesn't change, the files keep their ranges, and a subtask without keyed state stays without.
        """
        if self.header is None:
            return {}
        if not self.moves:
            return {subtask.index: subtask.keyed.range for subtask in self.old.subtasks if subtask.keyed is not None}
        return dict(enumerate(ranges(self.new.max_parallelism, self.new.parallelism)))

    def copy_keyed(self, writer: SavepointWriter, index: int, key_groups: KeyGroupRange) -> KeyedHandle | NativeHandle:
        """Writes one subtask's new keyed files, whose key groups stay the same.

        RocksDB's own files in which nothing changes are copied as they are.
        """
        stays = isinstance(self.transform, Copy) and self.rewrite is None
        if self.native and stays and not self.moves:
            found = next((subtask.native_keyed for subtask in self.old.subtasks if subtask.index == index), None)
            if found is not None:
                return writer.carry_native(self.source.folder, self.old.hex_id, index, found)
        with self.open_old(key_groups) as old:
            return self.write_keyed(writer, index, key_groups, old.entries)

    def write_keyed(
        self, writer: SavepointWriter, index: int, key_groups: KeyGroupRange, entries: EntriesOf
    ) -> KeyedHandle | NativeHandle:
        """Writes one subtask's new keyed files with the entries of each of its key groups."""
        if self.header is None:
            raise PlanError(f"operator {self.old.label} has no keyed state")
        with self._opened(writer, index, self.header, key_groups) as out:
            for key_group in key_groups:
                for state, data, last_start in entries(key_group):
                    out.entries(key_group, state, data, last_start)
            return out.close()

    def _opened(
        self, writer: SavepointWriter, index: int, header: KeyedHeader, key_groups: KeyGroupRange
    ) -> KeyedFileWriter | NativeFileWriter:
        if not self.native:
            return writer.keyed_file(self.old.hex_id, index, header, key_groups, self.compression)
        return writer.native_files(
            self.old.hex_id, index, header, key_groups, self.destination.prefix, self.source.metadata.checkpoint_id,
            is_compressed=self.is_compressed, on_heap=self.has_timers_on_heap,
        )  # fmt: skip

    @property
    def is_compressed(self) -> bool:
        """Whether the blocks of a new database are compressed."""
        return self.compression not in (Compression.NONE, Compression.STORED)

    def open_old(self, key_groups: KeyGroupRange) -> TransformedFiles:
        """Opens the old files that have any of these key groups, one after another."""
        return TransformedFiles(self, key_groups)

    def send(self, key_groups: KeyGroupRange) -> Iterator[GroupedEntries]:
        """Yields the entries of old key groups, grouped by the key groups that they go to."""
        with self.open_old(key_groups) as old:
            for key_group in key_groups:
                yield from old.of_group(key_group)


# Yields for a key group: state id, entries, where the last entry begins; one state after another.
EntriesOf = Callable[[int], Iterator[tuple[int, Buffer, int]]]


class TransformedFiles:
    """An operator's old keyed files, read through its transform; a context manager.

    One of them is open at a time, so key groups are asked for in ascending order.
    """

    def __init__(self, rewritten: OperatorRewrite, key_groups: KeyGroupRange) -> None:
        self._files, self._only = rewritten.source.open_with(rewritten.old, key_groups), rewritten.only
        self._transform, self._destination = rewritten.transform, rewritten.destination
        self._rewrite = None if rewritten.rewrite is None else rewritten.rewrite.sections
        self._file: KeyedFile | None = None
        self._states: tuple[KeyedState, ...] = ()
        self._window = np.empty(WINDOW, np.uint8)
        self._next_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _next_file(self) -> None:
        file = self._file = next(self._files, None)
        if file is not None:
            self._states = keyed_states(file.header, file.name)
            if isinstance(file, NativeFile) and file.subtask in self._only:
                file.read_only(self._only[file.subtask])

    def of_group(self, key_group: int) -> Iterator[GroupedEntries]:
        """Yields the new entries of an old key group, none if no file has it."""
        while self._file is not None and self._file.handle.range.end < key_group:
            self._next_file()
        if self._file is not None and key_group in self._file.handle.range:
            group = GroupSections(self._file, key_group, self._states, self._window, rewrite=self._rewrite)
            yield from self._transform.entries(group, self._destination)

    def entries(self, key_group: int) -> Iterator[tuple[int, Buffer, int]]:
        """Yields the entries of a key group that stays the same (an `EntriesOf`)."""
        for entries in self.of_group(key_group):
            for last_start in entries.last_starts.tolist():
                yield entries.state, entries.data[: entries.bounds[-1]], last_start


def changes_layout(old: Operator, new: Operator) -> bool:
    """Whether the operator gets another parallelism or max parallelism, so that entries may go to other subtasks."""
    return (old.parallelism, old.max_parallelism) != (new.parallelism, new.max_parallelism)


def _check_layout(old: Operator, new: Operator, *, rehashes: bool) -> None:
    if not 1 <= new.parallelism <= new.max_parallelism:
        raise PlanError(
            f"operator {old.label}: expected a parallelism of 1 to the max parallelism {new.max_parallelism}, "
            f"found {new.parallelism}"
        )
    has_state = any(subtask.finished or subtask.streams() for subtask in old.subtasks)
    if not (changes_layout(old, new) or rehashes) or old.fully_finished or not has_state:
        return
    keyed = any(subtask.keyed is not None for subtask in old.subtasks)
    so = "keep its parallelism and max parallelism"
    if rehashes:
        so = "its keys, whose hashes would be others, can't go to other key groups"
    if any(subtask.finished for subtask in old.subtasks) and (keyed or new.parallelism != old.parallelism):
        raise RefusedError(f"operator {old.label} {_FINISHED}: {so}")
    if any(subtask.raw_keyed is not None for subtask in old.subtasks):
        raise RefusedError(f"operator {old.label} {_RAW_KEYED}: {so}")
    if new.parallelism != old.parallelism and any(subtask.raw_operator is not None for subtask in old.subtasks):
        raise RefusedError(f"operator {old.label} {_RAW_OPERATOR}: keep its parallelism")


_FINISHED = "has finished subtasks: Flink can't restore them in another layout"
_RAW_KEYED = "has raw keyed state, which only the operator itself can distribute"
_RAW_OPERATOR = "has raw operator state, which only the operator itself can distribute"


def why_not_distributed(operator: Operator) -> str | None:
    """Why the operator's state can't be distributed to another number of subtasks; None if it can."""
    if operator.fully_finished:
        return None
    if any(subtask.finished for subtask in operator.subtasks):
        return f"it {_FINISHED}"
    if any(subtask.raw_keyed is not None for subtask in operator.subtasks):
        return f"it {_RAW_KEYED}"
    return f"it {_RAW_OPERATOR}" if any(one.raw_operator is not None for one in operator.subtasks) else None


def _refuse_unstable(state: KeyedState, operator: Operator) -> None:
    """Refuses a state whose keys' new key groups can't be computed from their bytes."""
    where = f"operator {operator.label}"
    if state.asynchronous:
        raise RefusedError(
            f"{where}: {state.name} is asynchronous (V2) state, whose keys can't be read: keep the max parallelism"
        )
    if isinstance(state.namespace, OpaqueType) and state.kind is StateKind.TIMERS:
        raise RefusedError(
            f"{where}: the elements of {state.name} can't be read: {state.namespace.reason}. Keep the max parallelism"
        )
    # With more than one key group, those in which the keys are show how rows are hashed.
    if reason := why_no_hash(state.key) or why_not_shown(state.key, operator.max_parallelism):
        raise RefusedError(
            f"{where}: its keys ({type_name(state.key)}) can't be hashed for another max parallelism: "
            f"{reason}. Keep the max parallelism"
        )
