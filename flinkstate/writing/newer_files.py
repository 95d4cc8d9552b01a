"""Writes one subtask's keyed state as an earlier database of ours, whose files stay, and newer files above them.

The newer files are on level 0, one for each state in which anything differs. All their entries have one sequence
number, above those of the files below, so that RocksDB finds them first. The files of a local database get another name
(a hard link), S3 copies its own, and others are read and written.

If a state of the base has many newer files, a new one may take the place of them all (`joined_files.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.digests import Digests, digest_of, hasher_of
from flinkstate.files.storage import Location, side_by_side
from flinkstate.keyed.header import KeyedHeader
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.metadata import NamedFile, NativeHandle, RelativeFile, StreamHandle
from flinkstate.metadata.streams import open_stream
from flinkstate.rocksdb.live_files import ColumnFamily, LiveFile
from flinkstate.rocksdb.newer_rows import newer_rows
from flinkstate.rocksdb.pending_rows import PendingRows
from flinkstate.rocksdb.write_manifest import NewFamily
from flinkstate.rocksdb.write_sst_file import Buffers, SortedRows, SstWriter
from flinkstate.writing.native_writer import NativeFiles
from flinkstate.writing.write_behind import WriteBehind

# RocksDB compacts level 0 from four files on, and writes slower from twenty on. Of so many newer ones one is made.
JOINED_FROM = 7
# Larger ones stay as they are, up to so many files: of a key group that is joined, all rows are in memory.
MOST_NEWER = 16
_MOST_JOINED, _MOST_OF_KEY_GROUP = 128 << 20, 8 << 20
_COPY = 4 << 20


@dataclass(slots=True)
class NewerCounts:
    """How many rows of a state were put into the newer file, and how many it deletes."""

    put: int = 0
    deleted: int = 0

    def add(self, other: NewerCounts) -> None:
        self.put += other.put
        self.deleted += other.deleted


@dataclass(slots=True)
class _Family:
    """A column family: the files of the base that stay, those that are joined, and the newer file once it is begun."""

    id: int
    name: str
    files: list[LiveFile]
    joined: list[LiveFile]
    newer: SstWriter | None = None
    counts: NewerCounts = field(default_factory=NewerCounts)


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The digests that the files of a base must have, by their names.

    Those with one of these identities had their digests when they were last read.
    """

    digests: Digests
    identities: Mapping[str, str] = field(default_factory=dict)


class NewerFilesWriter:
    """A subtask's database: that of `base`, with newer files. States are written in ascending order of key groups."""

    def __init__(
        self,
        files: NativeFiles,
        base: NativeFile,
        known: KnownFiles,
        header: KeyedHeader,
        *,
        is_compressed: bool,
        joins: bool = False,
    ) -> None:
        """`known` is of the base's files. Timers that the base has on the heap are written whole.

        If it `joins`, the newer file of a state that has many small ones gets what is wanted of all rows of which these
        say anything; what is there is then what lies below them.
        """
        self.identities: dict[str, str] = {}
        """Those of the files that were taken over, by their new names."""
        self._files, self._base, self._known = files, base, known
        self._is_compressed, self._buffers = is_compressed, Buffers()
        there = base.database.families
        stored = files.stored_states(header, base.prefix, on_heap=base.handle.timers is not None)
        self._header = replace(header, states=tuple(stored.values()))
        room = min(_MOST_JOINED, len(base.handle.range) * _MOST_OF_KEY_GROUP)
        self._families = {
            number: _Family(id_, meta.name, *_stay_and_go(there[meta.name], room if joins else 0))
            for id_, (number, meta) in enumerate(stored.items(), 1)
        }
        live = [file for family in self._families.values() for file in (*family.files, *family.joined)]
        self._sequence = max((file.sequences[1] for file in live), default=0) + 1
        files.next_number = max((file.number for file in live), default=files.next_number - 1) + 1

    def __enter__(self) -> NewerFilesWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for family in self._families.values():
            if family.newer is not None:
                family.newer.close()
        self._files.close()

    @property
    def counts(self) -> dict[str, NewerCounts]:
        """What was written, by state."""
        return {family.name: family.counts for family in self._families.values()}

    @property
    def joined(self) -> dict[str, list[LiveFile]]:
        """The newer files of the base that new ones take the place of, by state."""
        return {family.name: family.joined for family in self._families.values() if family.joined}

    def write(self, state: int, wanted: PendingRows, there: PendingRows) -> None:
        """Brings rows that the base has of some keys to those that are wanted of the same keys."""
        if (timers := self._files.timers(state)) is not None:
            timers.add(state, wanted.in_order().data[: wanted.bytes])
            return
        rows = newer_rows(wanted, there)
        if not rows.count:
            return
        family = self._families[state]
        if family.newer is None:
            number, sink = self._files.next_table()
            family.newer = SstWriter(
                sink, number, 0, family.name, family.id, self._buffers,
                is_compressed=self._is_compressed, sequence=self._sequence,
            )  # fmt: skip
        _append(family.newer, rows)
        deleted = 0 if rows.deleted is None else int(rows.deleted.sum())
        family.counts.add(NewerCounts(rows.count - deleted, deleted))

    def close(self) -> NativeHandle:
        """Completes the files and returns their handle; they are on disk then."""
        families, kept = [], [file for family in self._families.values() for file in family.files]
        for family in self._families.values():
            newer = [] if family.newer is None else [family.newer.finish()]
            families.append(NewFamily(family.id, family.name, [*family.files, *newer]))
        streams = {file.name: file for file in self._base.handle.files}
        for one in (one for joined in self.joined.values() for one in joined):
            source, known = self._validated(streams[one.name])
            self._check(source, source, known)
        wanted = [streams[file.name] for file in kept]
        for file, (identity, found) in zip(
            wanted, side_by_side(self._base.folder, self._take_over, wanted), strict=True
        ):
            self.identities[self._files.location(file.name).name] = identity
            self._files.keep_file(file.name, *found)
        return self._files.finish(families, self._header)

    def _take_over(self, file: NamedFile) -> tuple[str, tuple[int, str]]:
        """Gives a file of the base its name in the new folder, if it is still what it was when it was validated.

        Returns its identity there, and its size and digest.
        """
        stream, target = file.stream, self._files.location(file.name)
        source, known = self._validated(file)
        before = source.give_to(target)
        if before is None:
            self._copy(stream, target)
        # Before it is read: what changes later has another one.
        identity = target.identity()
        if not before or self._known.identities.get(source.name) != before:
            self._check(target, source, known)
        return identity, known

    def _validated(self, file: NamedFile) -> tuple[Location, tuple[int, str]]:
        """Where a file of the base is, and the size and digest that it had when it was validated."""
        stream = file.stream
        if not isinstance(stream, RelativeFile) or stream.name not in self._known.digests:
            raise RefusedError(f"{self._base.name}: {file.name} isn't one of the files that were validated")
        return self._base.folder.child(stream.path), self._known.digests[stream.name]

    @staticmethod
    def _check(place: Location, source: Location, known: tuple[int, str]) -> None:
        with place.open() as written:
            found = place.size(), digest_of(hasher_of(written))
        if found != known:
            raise DamagedError(f"the {known[0]} bytes that were validated", f"{found[0]} others", file=source.shown)

    def _copy(self, stream: StreamHandle, target: Location) -> None:
        opened, _, _ = open_stream(self._base.folder, stream)
        out = WriteBehind(target)
        try:
            with opened:
                while portion := opened.read(_COPY):
                    out.write(portion)
            out.finish()
        finally:
            out.close()


def _append(table: SstWriter, rows: SortedRows) -> None:
    done = 0
    while done < rows.count:
        done = table.append(rows, done)


def _stay_and_go(family: ColumnFamily, room: int) -> tuple[list[LiveFile], list[LiveFile]]:
    """The base's files that stay, and those that are joined, if there is room for so many bytes."""
    newer = family.of_level(0)
    going = newer if len(newer) >= JOINED_FROM and sum(file.size for file in newer) <= room else []
    return sorted((file for file in family.files.values() if file not in going), key=lambda one: one.number), going
