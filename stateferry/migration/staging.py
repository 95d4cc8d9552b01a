"""The staged savepoint as pieces of work: each new keyed state file is one, any process may do it, and doing it
again gives the same bytes. At another max parallelism the pieces send to each other; who carries that is the
caller's to say.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeVar

import numpy as np

from stateferry.key_groups import KeyGroupRange, operator_index_for_key_group
from stateferry.migration.map_migration import MigrateMaps
from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.grouped import GroupedEntries
from stateferry.savepoint.metadata import AbsoluteFile, KeyedHandle, Metadata, OperatorHandle, RelativeFile, Subtask
from stateferry.savepoint.own_files import remove_drafts
from stateferry.savepoint.rewrite import OperatorRewrite
from stateferry.savepoint.storage import Location
from stateferry.savepoint.writer import SavepointWriter

_SENT_AT_ONCE = 64 << 20

Handle = TypeVar("Handle", OperatorHandle, KeyedHandle)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A new keyed state file and what went into it."""

    operator: bytes
    subtask: int
    handle: KeyedHandle
    seconds: float
    counts: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        stream = self.handle.stream
        return stream.size if isinstance(stream, RelativeFile) else 0


@dataclass(frozen=True, slots=True)
class FileTask:
    """One new keyed state file."""

    rewrite: OperatorRewrite
    folder: str
    subtask: int
    key_groups: KeyGroupRange

    def copy(self) -> StagedFile:
        """Reads the key groups' entries where they are."""
        began = time.monotonic()
        handle = self.rewrite.copy_keyed(SavepointWriter(self.folder), self.subtask, self.key_groups, lambda _: None)
        return self._staged(handle, began)

    def receive(self, sent: Iterable[SentEntries]) -> StagedFile:
        """Writes entries that were sent, in the order of key group and state."""
        began = time.monotonic()
        by_group = _ByKeyGroup(sent)
        handle = self.rewrite.write_keyed(SavepointWriter(self.folder), self.subtask, self.key_groups, by_group.entries)
        return self._staged(handle, began)

    def _staged(self, handle: KeyedHandle, began: float) -> StagedFile:
        return StagedFile(self.rewrite.old.id, self.subtask, handle, time.monotonic() - began, counts_of(self.rewrite))


def counts_of(rewrite: OperatorRewrite) -> dict[str, Counter[str]]:
    return dict(rewrite.transform.counts) if isinstance(rewrite.transform, MigrateMaps) else {}


def add_counts(counts: Iterable[dict[str, Counter[str]]]) -> dict[str, Counter[str]]:
    """By legacy state, from several pieces of work."""
    added: dict[str, Counter[str]] = {}
    for one in counts:
        for state, counted in one.items():
            added.setdefault(state, Counter()).update(counted)
    return added


@dataclass(frozen=True, slots=True)
class SentEntries:
    """Entries of one state on their way to a key group; `last_start` is where the last of them begins."""

    key_group: int
    state: int
    data: Buffer
    last_start: int


class _ByKeyGroup:
    """Gives out what arrives in the order of key groups, to somebody who asks in that order."""

    def __init__(self, sent: Iterable[SentEntries]) -> None:
        self._groups = groupby(sent, key=lambda one: one.key_group)
        self._next = next(self._groups, None)

    def entries(self, key_group: int) -> Iterator[tuple[int, Buffer, int]]:
        if self._next is not None and self._next[0] == key_group:
            for one in self._next[1]:
                yield one.state, one.data, one.last_start
            self._next = next(self._groups, None)


@dataclass(frozen=True, slots=True)
class SendTask:
    """Old key groups whose entries go to others."""

    rewrite: OperatorRewrite
    key_groups: KeyGroupRange

    def send(self) -> Iterator[tuple[int, SentEntries]]:
        """With the new subtask that each portion goes to."""
        gathered: list[GroupedEntries] = []
        size = 0
        for entries in self.rewrite.send(self.key_groups, lambda _: None):
            # What a transform hands out may lie in a buffer that it uses again.
            gathered.append(replace(entries, data=entries.data.copy()))
            size += len(entries.data)
            if size >= _SENT_AT_ONCE:
                yield from self._portions(gathered)
                gathered, size = [], 0
        yield from self._portions(gathered)

    def _portions(self, gathered: Sequence[GroupedEntries]) -> Iterator[tuple[int, SentEntries]]:
        new = self.rewrite.new
        for sent in merged(gathered):
            yield operator_index_for_key_group(new.max_parallelism, new.parallelism, sent.key_group), sent


def merged(gathered: Sequence[GroupedEntries]) -> Iterator[SentEntries]:
    """What goes to the same key group and belongs to the same state, put together."""
    index = [
        (int(key_group), entries.state, number, place)
        for number, entries in enumerate(gathered)
        for place, key_group in enumerate(entries.key_groups.tolist())
    ]
    index.sort()
    for (key_group, state), parts in groupby(index, key=lambda part: part[:2]):
        data = bytearray()
        last_start = 0
        for _, _, number, place in parts:
            entries = gathered[number]
            start, end = int(entries.bounds[place]), int(entries.bounds[place + 1])
            last_start = len(data) + int(entries.last_starts[place]) - start
            data += entries.data[start:end].data
        yield SentEntries(key_group, state, np.frombuffer(data, np.uint8), last_start)


def file_tasks(rewrites: Iterable[OperatorRewrite], folder: str) -> list[FileTask]:
    return [
        FileTask(rewrite, folder, subtask, key_groups)
        for rewrite in rewrites
        for subtask, key_groups in rewrite.ranges().items()
    ]


def assemble(
    source: Metadata, rewrites: Sequence[OperatorRewrite], staged: Iterable[StagedFile], folder: str
) -> Metadata:
    """Carries over everything that isn't managed keyed state, and describes the whole; nothing is committed."""
    writer = SavepointWriter(folder)
    handles: dict[bytes, dict[int, KeyedHandle]] = {rewrite.old.id: {} for rewrite in rewrites}
    for file in staged:
        handles[file.operator][file.subtask] = file.handle
    operators = tuple(rewrite.finish(writer, handles[rewrite.old.id]) for rewrite in rewrites)
    remove_drafts(writer.folder)
    writer.folder.sync_folder()
    return replace(source, operators=operators)


def with_absolute_files(metadata: Metadata, folder: Location) -> Metadata:
    """The same savepoint described from elsewhere."""

    def absolute(handle: Handle | None) -> Handle | None:
        if handle is None or not isinstance(handle.stream, RelativeFile):
            return handle
        return replace(handle, stream=AbsoluteFile(folder.child(handle.stream.path).uri, handle.stream.size))

    def moved(subtask: Subtask) -> Subtask:
        return replace(
            subtask,
            managed_operator=absolute(subtask.managed_operator),
            raw_operator=absolute(subtask.raw_operator),
            managed_keyed=absolute(subtask.managed_keyed),
            raw_keyed=absolute(subtask.raw_keyed),
        )

    operators = (
        replace(operator, subtasks=tuple(moved(subtask) for subtask in operator.subtasks))
        for operator in metadata.operators
    )
    return replace(metadata, operators=tuple(operators))
