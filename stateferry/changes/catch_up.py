"""The task of a catch-up that writes one subtask's new database: an earlier one, and newer files with what has changed.

The changed keys, as the snapshot has listed them, are read in the source through the operator's transform, and in the
earlier result. What differs is written.
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
from flinkstate.writing.newer_files import KnownFiles, NewerCounts, NewerFilesWriter
from flinkstate.writing.operator_rewrite import OperatorRewrite, TransformedFiles
from flinkstate.writing.writer import SavepointWriter
from stateferry.changes.changed_keys import KeyList, changed_keys, of_result
from stateferry.changes.rules import Rules
from stateferry.changes.staging import StagedFile, counts_of_rewrite


@dataclass(frozen=True, slots=True)
class BasePart:
    """A subtask's database in the result on which a catch-up builds, and what its files must be."""

    folder: Location
    handle: NativeHandle
    known: KnownFiles


@dataclass(frozen=True, slots=True)
class CaughtUpFile:
    """A subtask's database as it was written; the changed keys and what was written of them are by state.

    `identities` are those of the files that were taken over.
    """

    file: StagedFile
    lists: Mapping[str, KeyList]
    written: Mapping[str, NewerCounts]
    identities: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CatchUpTask:
    """Writes one subtask's database; `changed` are the changed keys by state of the source."""

    rewrite: OperatorRewrite
    rules: tuple[Rules, ...]
    folder: str
    subtask: int
    changed: Mapping[str, Prefixes]
    base: BasePart

    def write(self) -> CaughtUpFile:
        """Writes the newer files, and gives those of the base a name beside them."""
        began, digests = time.monotonic(), Digests()
        writer, width = SavepointWriter(self.folder, digests, is_checked=True), self.rewrite.old.max_parallelism
        part = next(one for one in self.rewrite.old.subtasks if one.index == self.subtask)
        assert part.native_keyed is not None
        header = self.rewrite.header
        assert header is not None
        with ExitStack() as opened:
            new, base = (
                opened.enter_context(NativeFile(folder, handle, width, self.subtask))
                for folder, handle in (
                    (self.rewrite.source.folder, part.native_keyed),
                    (self.base.folder, self.base.handle),
                )
            )
            header = replace(header, compressed=False)
            if base.header != header:
                raise RefusedError(f"{base.name}: its states, or their types, aren't those that the source becomes")
            found = changed_keys(self.changed, new.header)
            wanted = of_result(found, new.header, header, self.rules)
            new.only, base.only = found, wanted
            out = opened.enter_context(
                writer.newer_files(
                    self.rewrite.old.hex_id, self.subtask, base, self.base.folder, self.base.known, header,
                    self.rewrite.source.metadata.checkpoint_id, is_compressed=self.rewrite.is_compressed,
                )
            )  # fmt: skip
            _Groups(TransformedFiles(self.rewrite, (new,)), base, out, wanted).write()
            handle = out.close()
            written = out.counts
        staged = StagedFile(
            self.rewrite.old.id,
            self.subtask,
            handle,
            digests,
            time.monotonic() - began,
            counts_of_rewrite(self.rewrite),
        )
        lists = {meta.name: KeyList.of(found[number]) for number, meta in enumerate(new.header.states)}
        return CaughtUpFile(staged, lists, written, out.identities)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Brings the rows of changed keys from what the base has to what the source becomes, a key group at a time."""

    source: TransformedFiles
    base: NativeFile
    out: NewerFilesWriter
    wanted: Mapping[int, Prefixes]
    states: dict[int, tuple[PendingRows, PendingRows]] = field(default_factory=dict)

    def write(self) -> None:
        for key_group in self.base.handle.range:
            for state, data, _ in self.source.entries(key_group):
                self._rows(state)[0].add(data)
            for section in self.base.sections(key_group):
                self._rows(section.state)[1].add_some(section.data, section.starts, section.ends)
            for state, (now, before) in sorted(self.states.items()):
                self.out.write(state, now, before)
                now.clear()
                before.clear()

    def _rows(self, state: int) -> tuple[PendingRows, PendingRows]:
        return self.states.setdefault(state, (PendingRows(), PendingRows()))
