"""The tasks of a catch-up that write one subtask's new database: an earlier one, and newer files with what has changed.

The changed keys, as the snapshot has listed them, are read in the source and in the base's source, both through the
operator's transform. So what they become, and what the earlier result has of them, is known; what differs is written.
In another layout the entries of both go through the files of the exchange, by which they get to the subtasks that have
their key groups.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field, replace

from flinkstate.errors import RefusedError
from flinkstate.files.digests import Digests
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.native_difference import EarlierPart
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.rocksdb.pending_rows import PendingRows
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.writing.max_parallelism_change import GroupedEntries
from flinkstate.writing.newer_files import KnownFiles, NewerCounts, NewerFilesWriter
from flinkstate.writing.operator_rewrite import EntriesOf, OperatorRewrite, TransformedFiles
from flinkstate.writing.writer import SavepointWriter
from stateferry.changes.changed_keys import KeyList, changed_keys
from stateferry.changes.exchange_receiver import ExchangeReceiver
from stateferry.changes.max_parallelism_exchange import Exchange, send
from stateferry.changes.staging import SentFile, StagedFile, counts_of_rewrite


@dataclass(frozen=True, slots=True)
class BasePart:
    """A subtask's database in the result on which a catch-up builds, and what its files must be."""

    folder: Location
    handle: NativeHandle
    known: KnownFiles


@dataclass(frozen=True, slots=True)
class ChangedLists:
    """The changed keys of one subtask of the source, by state."""

    operator: bytes
    subtask: int
    lists: Mapping[str, KeyList]


@dataclass(frozen=True, slots=True)
class CaughtUpFile:
    """A subtask's database as it was written, and by state what was written.

    `identities` are those of the files that were taken over. `changed` were its keys, unless others have sent them.
    """

    file: StagedFile
    written: Mapping[str, NewerCounts]
    identities: Mapping[str, str]
    changed: ChangedLists | None


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """What finds the changes of one subtask of the source; `earlier` is its database in the source of the base.

    `changed` are the changed keys by state of the source.
    """

    rewrite: OperatorRewrite
    subtask: int
    earlier: EarlierPart
    changed: Mapping[str, Prefixes]

    def opened(self, opened: ExitStack) -> _Changes:
        """Opens both databases, of which only changed keys are read."""
        old, width = self.rewrite.old, self.rewrite.old.max_parallelism
        part = next(one for one in old.subtasks if one.index == self.subtask)
        assert part.native_keyed is not None
        now, before = (
            opened.enter_context(NativeFile(folder, handle, width, self.subtask))
            for folder, handle in (
                (self.rewrite.source.folder, part.native_keyed), (self.earlier.folder, self.earlier.handle),
            )
        )  # fmt: skip
        found = changed_keys(self.changed, now.header)
        # Timers on the heap are written whole, whatever they were.
        now.only, before.only = found, {state: keys for state, keys in found.items() if not keys.has_every_key}
        # What is counted is what the source becomes.
        uncounted = replace(self.rewrite, transform=deepcopy(self.rewrite.transform))
        files = TransformedFiles(self.rewrite, (now,)), TransformedFiles(uncounted, (before,))
        lists = {meta.name: KeyList.of(found[number]) for number, meta in enumerate(now.header.states)}
        return _Changes(now.handle.range, files, _states_of(self.rewrite), ChangedLists(old.id, self.subtask, lists))


@dataclass(frozen=True, slots=True)
class _Changes:
    """What the changed keys of a subtask become, and what the base has of them: the latter by states behind the others.

    So both can go through the same files.
    """

    range: KeyGroupRange
    files: tuple[TransformedFiles, TransformedFiles]
    states: int
    changed: ChangedLists

    def of_group(self, key_group: int) -> Iterator[GroupedEntries]:
        """Yields the entries of a key group of the source."""
        for number, files in enumerate(self.files):
            for found in files.of_group(files.files[0], key_group):
                yield replace(found, state=found.state + number * self.states)

    def entries(self, key_group: int) -> Iterator[tuple[int, Buffer, int]]:
        """Yields the entries of a key group that stays the same (an `EntriesOf`)."""
        for found in self.of_group(key_group):
            for last_start in found.last_starts.tolist():
                yield found.state, found.data[: found.bounds[-1]], last_start


@dataclass(frozen=True, slots=True)
class SentChanges(SentFile):
    """A file of the exchange with changes, and the keys that have changed."""

    changed: ChangedLists


@dataclass(frozen=True, slots=True)
class SendChangesTask:
    """Writes the changes of one subtask of the source to a file of the exchange."""

    part: ChangedPart
    file: Location

    def send(self) -> SentChanges:
        """Writes the file; returns what the directory needs, and what was counted."""
        last_key_groups = [receiver.end for receiver in self.part.rewrite.ranges().values()]
        with ExitStack() as opened:
            changes = self.part.opened(opened)
            found = (one for key_group in changes.range for one in changes.of_group(key_group))
            bounds = send(self.file, found, last_key_groups)
        return SentChanges(bounds, counts_of_rewrite(self.part.rewrite), changes.changed)


@dataclass(frozen=True, slots=True)
class CatchUpTask:
    """Writes one subtask's database; in the layout of the source, its changes are those of `part`."""

    rewrite: OperatorRewrite
    folder: str
    subtask: int
    base: BasePart
    part: ChangedPart | None = None

    def write(self) -> CaughtUpFile:
        """Writes what has changed in the same subtask of the source."""
        assert self.part is not None
        with ExitStack() as opened:
            changes = self.part.opened(opened)
            return self._written(changes.entries, changes.changed)

    def receive(self, exchange: Exchange) -> CaughtUpFile:
        """Writes what the files of the exchange have for the subtask's key groups."""
        with ExchangeReceiver(exchange, self.subtask) as received:
            return self._written(received.entries)

    def _written(self, entries: EntriesOf, changed: ChangedLists | None = None) -> CaughtUpFile:
        """Writes the newer files, and gives those of the base a name beside them."""
        began, digests, rewrite = time.monotonic(), Digests(), self.rewrite
        writer = SavepointWriter(self.folder, digests, is_checked=True)
        assert rewrite.header is not None
        header = replace(rewrite.header, compressed=False)
        with ExitStack() as opened:
            width = rewrite.new.max_parallelism
            base = opened.enter_context(NativeFile(self.base.folder, self.base.handle, width, self.subtask))
            there, wanted = ({meta.name: meta for meta in one.states} for one in (base.header, header))
            if base.header.key_serializer != header.key_serializer or there != wanted:
                raise RefusedError(f"{base.name}: its states, or their types, aren't those that the source becomes")
            out = opened.enter_context(
                writer.newer_files(
                    rewrite.old.hex_id, self.subtask, base, self.base.folder, self.base.known, header,
                    rewrite.source.metadata.checkpoint_id, is_compressed=rewrite.is_compressed,
                )
            )  # fmt: skip
            _Groups(entries, base.handle.range, out, _states_of(rewrite)).write()
            handle = out.close()
        seconds, counts = time.monotonic() - began, counts_of_rewrite(rewrite)
        staged = StagedFile(rewrite.old.id, self.subtask, handle, digests, seconds, counts)
        return CaughtUpFile(staged, out.counts, out.identities, changed)


def _states_of(rewrite: OperatorRewrite) -> int:
    assert rewrite.header is not None
    return len(rewrite.header.states)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Brings the rows of changed keys from what the base has to what the source becomes, a key group at a time."""

    entries: EntriesOf
    key_groups: KeyGroupRange
    out: NewerFilesWriter
    states: int
    rows: dict[int, PendingRows] = field(default_factory=dict)

    def write(self) -> None:
        for key_group in self.key_groups:
            for state, data, _ in self.entries(key_group):
                self._of(state).add(data)
            for state in sorted({number % self.states for number in self.rows}):
                now, before = self._of(state), self._of(state + self.states)
                self.out.write(state, now, before)
                now.clear()
                before.clear()

    def _of(self, state: int) -> PendingRows:
        return self.rows.setdefault(state, PendingRows())
