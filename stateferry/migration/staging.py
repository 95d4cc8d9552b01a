"""The staged savepoint as pieces of work: each new keyed state file is one, any process may do it, and doing it
again gives the same bytes. At another max parallelism other pieces come before them, which send them what they
put together.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from stateferry.file_hash import digest_of, new_hasher
from stateferry.key_groups import KeyGroupRange
from stateferry.migration.exchange import Arrivals, send
from stateferry.migration.map_migration import MigrateMaps
from stateferry.savepoint.metadata import AbsoluteFile, KeyedHandle, Metadata, OperatorHandle, RelativeFile, Subtask
from stateferry.savepoint.operator_rewrite import OperatorRewrite
from stateferry.savepoint.storage import Location
from stateferry.savepoint.writer import SavepointWriter

Handle = TypeVar("Handle", OperatorHandle, KeyedHandle)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A new keyed state file and what went into it; `digest` is of its bytes as they were written."""

    operator: bytes
    subtask: int
    handle: KeyedHandle
    digest: str
    seconds: float
    counts: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def name(self) -> str | None:
        """Of the file in the savepoint's folder; a subtask without state has none."""
        stream = self.handle.stream
        return stream.path if isinstance(stream, RelativeFile) else None

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
        began, hasher = time.monotonic(), new_hasher()
        writer = SavepointWriter(self.folder, hasher)
        handle = self.rewrite.copy_keyed(writer, self.subtask, self.key_groups)
        return self._staged(handle, hasher, began)

    def receive(self, files: Sequence[Location]) -> StagedFile:
        """Puts together what was sent for its key groups."""
        began, hasher = time.monotonic(), new_hasher()
        with Arrivals(files, self.key_groups) as arrivals:
            writer = SavepointWriter(self.folder, hasher)
            handle = self.rewrite.write_keyed(writer, self.subtask, self.key_groups, arrivals.entries)
        return self._staged(handle, hasher, began)

    def _staged(self, handle: KeyedHandle, hasher: Any, began: float) -> StagedFile:
        seconds = time.monotonic() - began
        return StagedFile(
            self.rewrite.old.id, self.subtask, handle, digest_of(hasher), seconds, counts_of(self.rewrite)
        )


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
class SendTask:
    """Old key groups whose entries go to others, by way of a file."""

    rewrite: OperatorRewrite
    key_groups: KeyGroupRange
    file: Location

    def send(self) -> SentFile:
        size = send(self.file, self.rewrite.send(self.key_groups))
        return SentFile(size, counts_of(self.rewrite))


@dataclass(frozen=True, slots=True)
class SentFile:
    """How large it is, and what was counted on the way."""

    size: int
    counts: dict[str, Counter[str]]


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
