"""The task of a catch-up that writes one subtask's new database: an earlier one, and newer files with what has changed.

The changed keys, as the snapshot has listed them, are read in the source through the operator's transform, and in the
earlier result. What differs is written. At another max parallelism, what the source has of them comes by the files of
the exchange. Where the earlier result has many newer files of a state, the new one takes their place.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from flinkstate.errors import RefusedError
from flinkstate.files.digests import Digests
from flinkstate.files.storage import Location
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.rocksdb.pending_rows import PendingRows
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.rocksdb.read_once import reading_once
from flinkstate.writing.joined_files import JoinedFiles
from flinkstate.writing.newer_files import KnownFiles, NewerCounts, NewerFilesWriter
from flinkstate.writing.operator_rewrite import EntriesOf, OperatorRewrite
from flinkstate.writing.writer import SavepointWriter
from stateferry.changes.exchange_receiver import ExchangeReceiver
from stateferry.changes.max_parallelism_exchange import Exchange
from stateferry.changes.staging import StagedFile, counts_of_rewrite


@dataclass(frozen=True, slots=True)
class BasePart:
    """A subtask's database in the result on which a catch-up builds, and what its files must be."""

    folder: Location
    handle: NativeHandle
    known: KnownFiles


@dataclass(frozen=True, slots=True)
class CaughtUpFile:
    """A subtask's database as it was written, and by state what was written.

    `identities` are those of the files that were taken over; so many newer ones of the base were `joined`.
    """

    file: StagedFile
    written: Mapping[str, NewerCounts]
    identities: Mapping[str, str]
    joined: int


@dataclass(frozen=True, slots=True)
class CatchUpTask:
    """Writes one subtask's database; `changed` are the changed keys by state, as its result has them.

    If it `joins`, it makes one newer file of many.
    """

    rewrite: OperatorRewrite
    folder: str
    subtask: int
    changed: Mapping[str, Prefixes]
    base: BasePart
    joins: bool

    def write(self) -> CaughtUpFile:
        """Writes what the source has of these keys; its key groups stay the same."""
        with self.rewrite.open_old(self.base.handle.range) as old:
            return self._written(old.entries)

    def receive(self, exchange: Exchange) -> CaughtUpFile:
        """Writes what the files of the exchange have for the subtask's key groups."""
        with ExchangeReceiver(exchange, self.subtask) as received:
            return self._written(received.entries)

    def _written(self, entries: EntriesOf) -> CaughtUpFile:
        """Writes the newer files, and gives those of the base a name beside them."""
        began, digests, rewrite = time.monotonic(), Digests(), self.rewrite
        writer = SavepointWriter(self.folder, digests, is_checked=True)
        assert rewrite.header is not None
        header, width = replace(rewrite.header, compressed=False), rewrite.new.max_parallelism
        with ExitStack() as opened:
            base = opened.enter_context(NativeFile(self.base.folder, self.base.handle, width, self.subtask))
            there, wanted = ({meta.name: meta for meta in one.states} for one in (base.header, header))
            if base.header.key_serializer != header.key_serializer or there != wanted:
                raise RefusedError(f"{base.name}: its states, or their types, aren't those that the source becomes")
            out = opened.enter_context(
                writer.newer_files(
                    rewrite.old.hex_id, self.subtask, base, self.base.known, header,
                    rewrite.source.metadata.checkpoint_id, is_compressed=rewrite.is_compressed, joins=self.joins,
                )
            )  # fmt: skip
            # Timers on the heap are written whole, whatever they were.
            listed = {state: keys for state, keys in self.changed.items() if not keys.has_every_key}
            base.read_only({state: keys for state, keys in listed.items() if state not in out.joined})
            # Timers on the heap are behind all other states in the base.
            ids = {meta.name: number for number, meta in enumerate(header.states)}
            groups = _Groups(entries, base, out, [ids[meta.name] for meta in base.header.states])
            if out.joined:
                joined = JoinedFiles(self.base.folder, self.base.handle, width, self.subtask, out.joined, listed)
                groups.joined = opened.enter_context(joined)
                # Each key group is read with other keys.
                opened.enter_context(reading_once())
            groups.write()
            handle = out.close()
        seconds, counts = time.monotonic() - began, counts_of_rewrite(rewrite)
        staged = StagedFile(rewrite.old.id, self.subtask, handle, digests, seconds, counts)
        return CaughtUpFile(staged, out.counts, out.identities, sum(map(len, out.joined.values())))


@dataclass(slots=True)
class _Groups:
    """Brings the rows of changed keys from what the base has to what the source becomes, a key group at a time."""

    entries: EntriesOf
    base: NativeFile
    out: NewerFilesWriter
    ids: list[int]
    states: dict[int, tuple[PendingRows, PendingRows]] = field(default_factory=dict)
    joined: JoinedFiles | None = None

    def write(self) -> None:
        for key_group in self.base.handle.range:
            for state, data, _ in self.entries(key_group):
                self._rows(state)[0].add(data)
            for section in self.base.sections(key_group):
                self._rows(self.ids[section.state])[1].add_some(section.data, section.starts, section.ends)
            for section, is_below in self.joined.sections(key_group) if self.joined is not None else ():
                self._rows(self.ids[section.state])[is_below].add_some(section.data, section.starts, section.ends)
            for state, (now, before) in sorted(self.states.items()):
                self.out.write(state, now, before)
                now.clear()
                before.clear()

    def _rows(self, state: int) -> tuple[PendingRows, PendingRows]:
        return self.states.setdefault(state, (PendingRows(), PendingRows()))
