"""The tasks that write the staged savepoint: each writes one new keyed state file.

Any process may do a task, and doing it again gives the same bytes. At another max parallelism others come
first, which read old key groups and write the files of the exchange.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from flinkstate.errors import KeyTwiceError, RefusedError
from flinkstate.files.digests import Digests
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.metadata.metadata import (
    AbsoluteFile,
    KeyedHandle,
    Metadata,
    NativeHandle,
    Operator,
    RelativeFile,
    StreamHandle,
)
from flinkstate.metadata.savepoint_properties import canonical_properties, native_properties
from flinkstate.serializers.walker import Positions
from flinkstate.writing.operator_rewrite import OperatorRewrite
from flinkstate.writing.writer import SavepointWriter
from stateferry.changes.counts import ConversionCounts
from stateferry.changes.drop_expired import counts_of
from stateferry.changes.exchange_receiver import ExchangeReceiver
from stateferry.changes.max_parallelism_exchange import Exchange, send


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A subtask's new keyed state and what was counted for it.

    `files` has the size and digest of each file as it was written, by its name in the savepoint's folder.
    """

    operator: bytes
    subtask: int
    handle: KeyedHandle | NativeHandle
    files: Digests
    seconds: float
    counts: dict[str, ConversionCounts] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(size for size, _ in self.files.values())


@dataclass(frozen=True, slots=True)
class FileTask:
    """Writes one new keyed state file."""

    rewrite: OperatorRewrite
    folder: str
    subtask: int
    key_groups: KeyGroupRange

    def copy(self) -> StagedFile:
        """Writes the file from the old files; its key groups stay the same."""
        began, digests = time.monotonic(), Digests()
        writer = SavepointWriter(self.folder, digests, is_checked=True)
        handle = self.rewrite.copy_keyed(writer, self.subtask, self.key_groups)
        return self._staged(handle, digests, began)

    def receive(self, exchange: Exchange) -> StagedFile:
        """Writes the file from the parcels that the files of the exchange have for its key groups."""
        began, digests = time.monotonic(), Digests()
        writer = SavepointWriter(self.folder, digests, is_checked=True)
        try:
            with ExchangeReceiver(exchange, self.subtask) as received:
                handle = self.rewrite.write_keyed(writer, self.subtask, self.key_groups, received.entries)
        except KeyTwiceError as error:
            if not self.rewrite.destination.rehashes:
                raise
            # Each by itself is sound, and the old ones were in two key groups.
            raise RefusedError(
                f"operator {self.rewrite.old.label}: two of its keys become the same, as Scala's None and Some(null) "
                f"do, and Flink would keep only one row of each ({error})"
            ) from None
        return self._staged(handle, digests, began)

    def _staged(self, handle: KeyedHandle | NativeHandle, digests: Digests, began: float) -> StagedFile:
        seconds = time.monotonic() - began
        return StagedFile(self.rewrite.old.id, self.subtask, handle, digests, seconds, counts_of_rewrite(self.rewrite))


def counts_of_rewrite(rewrite: OperatorRewrite) -> dict[str, ConversionCounts]:
    """Returns what a rewrite counted, by legacy state."""
    return dict(counts_of(rewrite.transform))


def add_counts(counts: Iterable[dict[str, ConversionCounts]]) -> dict[str, ConversionCounts]:
    """Adds up the counts of several tasks, by legacy state."""
    added: dict[str, ConversionCounts] = {}
    for one in counts:
        for state, counted in one.items():
            added.setdefault(state, ConversionCounts()).add(counted)
    return added


@dataclass(frozen=True, slots=True)
class SendTask:
    """Writes the entries of old key groups to a file of the exchange."""

    rewrite: OperatorRewrite
    key_groups: KeyGroupRange
    file: Location

    def send(self) -> SentFile:
        """Writes the file; returns what the directory needs, and what was counted."""
        last_key_groups = [receiver.end for receiver in self.rewrite.ranges().values()]
        bounds = send(self.file, self.rewrite.send(self.key_groups), last_key_groups)
        return SentFile(bounds, counts_of_rewrite(self.rewrite))


@dataclass(frozen=True, slots=True)
class SentFile:
    """Where each receiver's index begins in a file of the exchange, its size, and what was counted for it."""

    bounds: Positions
    counts: dict[str, ConversionCounts]

    @property
    def size(self) -> int:
        """The number of bytes."""
        return int(self.bounds[-1])


def file_tasks(rewrites: Iterable[OperatorRewrite], folder: str) -> list[FileTask]:
    """Returns a task for each new keyed state file; the folder must be that of a `SavepointWriter`."""
    tasks: list[FileTask] = []
    for rewrite in rewrites:
        ranges = rewrite.ranges()
        parts = zip(ranges.items(), rewrite.of_key_groups(ranges.values()), strict=True)
        tasks += (FileTask(part, folder, subtask, key_groups) for (subtask, key_groups), part in parts)
    return tasks


def assemble(
    source: Metadata, rewrites: Sequence[OperatorRewrite], staged: Iterable[StagedFile], folder: str
) -> Metadata:
    """Copies everything that isn't managed keyed state, and returns the new metadata; it writes no `_metadata`."""
    writer = SavepointWriter(folder)
    handles: dict[bytes, dict[int, KeyedHandle | NativeHandle]] = {rewrite.old.id: {} for rewrite in rewrites}
    for file in staged:
        handles[file.operator][file.subtask] = file.handle
    operators = tuple(rewrite.finish(writer, handles[rewrite.old.id]) for rewrite in rewrites)
    writer.folder.sync_folder()
    return with_operators(source, operators)


def with_operators(source: Metadata, operators: tuple[Operator, ...]) -> Metadata:
    """Returns the source's metadata with these operators, as that of a savepoint."""
    is_native = any(subtask.native_keyed is not None for operator in operators for subtask in operator.subtasks)
    properties = native_properties(source) if is_native else canonical_properties(source)
    return replace(source, operators=operators, properties=properties)


def with_absolute_files(metadata: Metadata, folder: Location) -> Metadata:
    """Returns the metadata with full names of its files, so that `_metadata` may be in another folder."""

    def absolute(stream: StreamHandle) -> StreamHandle:
        return AbsoluteFile(folder.child(stream.path).uri, stream.size) if isinstance(stream, RelativeFile) else stream

    operators = (
        replace(operator, subtasks=tuple(subtask.with_streams(absolute) for subtask in operator.subtasks))
        for operator in metadata.operators
    )
    return replace(metadata, operators=tuple(operators))
