"""A RocksDB database that a job changes from night to night, in plain Python, with a snapshot of it for each night."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.header import build_header
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import (
    AbsoluteFile,
    Metadata,
    NamedFile,
    NativeHandle,
    Operator,
    RelativeFile,
    Subtask,
)
from flinkstate.reading.reader import operator_id
from tests.rocksdb.writing import DELETE, NONE, VALUE, Entry, Table, log, new_file, numbers, sized, varint
from tests.support.legacy_states import LegacyState


@dataclass
class SstFile:
    """A file on a level, of a state; `entries` is what it has."""

    number: int
    level: int
    family: int
    entries: list[Entry]


@dataclass
class NightlyDatabase:
    """The database of one subtask. Files are written once into `shared`, and never changed.

    `version` is that of `_metadata`: Flink 1 writes 4.
    If all of the folder is sent elsewhere, `address` is where it is read.
    """

    folder: Path
    state: LegacyState = field(default_factory=LegacyState)
    files: list[SstFile] = field(default_factory=list)
    number: int = 10
    sequence: int = 1
    version: int = 6
    address: str = ""
    # Says neither savepoint nor checkpoint.
    properties: bytes = b"\xac\xed\x00\x05\x70"

    def flush(self, state: LegacyState) -> None:
        """Brings the database to a state: what differs is written into a new file of level 0 for each column family."""
        before, after = (_rows(one) for one in (self.state, state))
        for family in range(len(state._states)):
            changed: list[Entry] = []
            for key in sorted(before[family].keys() | after[family].keys()):
                value = after[family].get(key)
                if before[family].get(key) != value:
                    self.sequence += 1
                    kind = DELETE if value is None else VALUE
                    changed.append((key, self.sequence, kind, value or b""))
            if changed:
                self._add(0, family, changed)
        self.state = state

    def compact(self, family: int = 0) -> None:
        """Brings all files of a column family into one of level 1, which has neither deletions nor older versions."""
        newest: dict[bytes, Entry] = {}
        for file in self.files:
            if file.family == family:
                for entry in file.entries:
                    if entry[0] not in newest or newest[entry[0]][1] < entry[1]:
                        newest[entry[0]] = entry
        self.files = [file for file in self.files if file.family != family]
        kept = [(key, 0, VALUE, value) for key, _, kind, value in newest.values() if kind == VALUE]
        if kept:
            self._add(1, family, sorted(kept))

    def _add(self, level: int, family: int, entries: list[Entry]) -> None:
        self.number += 1
        self.files.append(SstFile(self.number, level, family, entries))
        shared = self.folder / "shared"
        shared.mkdir(parents=True, exist_ok=True)
        properties = {"rocksdb.creating.session.identity": b"SESSION", "rocksdb.creation.time": varint(self.number)}
        data = Table(self.state._states[family], NONE).write(entries, properties)
        self.path_of(self.files[-1]).write_bytes(data)

    def path_of(self, file: SstFile) -> Path:
        return self.folder / "shared" / f"{file.number}-of-the-database"

    def checkpoint(self, number: int) -> Path:
        """An incremental checkpoint of the database as it is."""
        folder = self.folder / f"chk-{number}"
        folder.mkdir()
        edits = [varint(1) + sized(b"leveldb.BytewiseComparator") + numbers(self.number + 1, self.sequence)]
        named = []
        for family, name in enumerate(self.state._states, 1):
            edits.append(varint(200) + varint(family) + varint(201) + sized(name.encode()))
        for file in self.files:
            path = self.path_of(file)
            told = new_file(file.number, file.level, path.stat().st_size, file.entries)
            edits.append(varint(200) + varint(file.family + 1) + told)
            uri = f"{self.address or self.folder}/shared/{path.name}"
            named.append(NamedFile(f"{file.number:06}.sst", AbsoluteFile(uri, path.stat().st_size)))
        private = []
        for name, data in (("CURRENT", b"MANIFEST-000001\n"), ("MANIFEST-000001", log(edits))):
            (folder / name).write_bytes(data)
            private.append(NamedFile(name, RelativeFile(name, len(data))))
        meta = build_header(self.state._header())
        (folder / "meta").write_bytes(meta)
        groups = KeyGroupRange(0, self.state.max_parallelism - 1)
        handle = NativeHandle(
            groups, number, "a-backend", RelativeFile("meta", len(meta)), tuple(named), tuple(private)
        )  # fmt: skip
        subtask = Subtask(0, native_keyed=handle)
        operator = Operator(operator_id("main"), 1, self.state.max_parallelism, "main", "main", subtasks=(subtask,))
        metadata = Metadata(self.version, number, (operator,), properties=self.properties)
        (folder / METADATA).write_bytes(build_metadata(metadata))
        return folder


def _rows(state: LegacyState) -> list[dict[bytes, bytes]]:
    """The rows of each state, by their keys."""
    found: list[dict[bytes, bytes]] = [{} for _ in state._states]
    for states in state._entries().values():
        for family, entries in states.items():
            for entry in entries:
                (size,) = struct.unpack_from(">i", entry)
                found[family][entry[4 : 4 + size]] = entry[8 + size :]
    return found
