"""The MANIFEST: which files a database consists of. `CURRENT` names it.

It is a log of blocks of 32 KiB: u32 masked crc32c, u16 length, u8 type (1 whole, 2 first, 3 middle and 4 last part of a
record), data. A record is a change: tags with their values. All changes together say which column families there are,
and which files of each are live, with their level, size, first and last key, and least and largest sequence number.
They also say the last sequence number of the database and the number of its next file (`live_files.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.errors import DamagedError
from flinkstate.rocksdb import manifest_kernels
from flinkstate.rocksdb.coding import Coded
from flinkstate.rocksdb.files import StoredFile, refused
from flinkstate.rocksdb.kernels import SLACK
from flinkstate.rocksdb.live_files import ColumnFamily, LiveFile, check_visible
from flinkstate.rocksdb.manifest_kernels import BLOB_FILE, EPOCH, ESSENTIAL, MOST_LEVELS, NO_MORE
from flinkstate.rocksdb.usual_changes import UsualChanges

_LARGEST = 1 << 30
# What is expected of a log, and what is there instead.
_DAMAGE = {
    manifest_kernels.NOT_ZERO: ("zeros until the block's end", "other bytes"),
    manifest_kernels.SHORT_HEADER: (f"{manifest_kernels.HEADER} bytes before a record", "{} bytes until the end"),
    manifest_kernels.TOO_LONG: ("a record inside its block and file", "{} bytes"),
    manifest_kernels.BAD_CHECKSUM: ("a record that its checksum fits", "another"),
    manifest_kernels.BAD_KIND: ("the next part of a record", "one of type {}"),
    manifest_kernels.OPEN_RECORD: ("the rest of a record", "the end"),
}
COMPARATOR = "leveldb.BytewiseComparator"
# A tag with this bit can be skipped by its length.
_IGNORABLE = 1 << 13
_COMPARATOR, _LOG, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT_CURSOR, _DELETED_FILE = 1, 2, 3, 4, 5, 6
# Without these RocksDB doesn't open a database. Of each number the last one counts.
_NEEDED = {_LOG: "a log number", _NEXT_FILE: "the next file number", _LAST_SEQUENCE: "the last sequence"}
_GROUP = 300
_NUMBERS = {**_NEEDED, 9: "a log number", 10: "a log number", 203: "the largest column family"}
_NUMBERS |= {_GROUP: "the rest of a group"}
_NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4 = 100, 102, 103
_COLUMN_FAMILY, _ADD, _DROP = 200, 201, 202
# Which blob files came, and what of them is garbage.
_BLOB_FILES = (400, 401)
_OF_BLOB_FILES = "values are in blob files (enable_blob_files), which aren't read"
_MOST_KEPT = 256
_read: dict[bytes, Mapping[str, ColumnFamily]] = {}
"""What has been read, by a digest of the bytes, the oldest first."""


def manifest_name(current: StoredFile) -> str:
    """Returns the name of the MANIFEST that `CURRENT` names."""
    content = current.read_all(1 << 10)
    name = content.rstrip(b"\n").decode("ascii", "replace")
    digits = name.removeprefix("MANIFEST-")
    if not content.endswith(b"\n") or name == digits or not digits.isascii() or not digits.isdigit():
        raise DamagedError("the name of a MANIFEST and a line feed", repr(content), file=current.shown, offset=0)
    return name


def read_manifest(file: StoredFile) -> Mapping[str, ColumnFamily]:
    """Returns the column families by name, which stay as they are.

    A job that runs for long adds to its MANIFEST with each flush, and each task opens the database anew. So what a
    MANIFEST of the same bytes says is kept.
    """
    content = file.read_all(_LARGEST)
    digest = hashlib.blake2b(content).digest()
    found = _read.get(digest)
    if found is None:
        found = _read[digest] = _families(content, file)
        if len(_read) > _MOST_KEPT:
            del _read[next(iter(_read))]
    return found


def _families(content: bytes, file: StoredFile) -> dict[str, ColumnFamily]:
    families, numbers, rest = {0: ColumnFamily(0, "default")}, dict[int, int](), 0
    records, bounds, offsets = _joined(content, file.shown)
    at = 0
    while at < len(offsets):
        usual = UsualChanges(records, bounds, at)
        if not rest and usual.count and usual.carry_out(families, numbers):
            at += usual.count
            continue
        for number in range(at, at + max(usual.count, 1)):
            record, offset = records[bounds[number] : bounds[number + 1]].tobytes(), int(offsets[number])
            numbers.pop(_GROUP, None)
            _Edit(Coded(record, file.shown), families, numbers, offset).apply()
            # RocksDB carries out the changes of a group only when all are there.
            if rest and numbers.get(_GROUP) != rest - 1:
                raise DamagedError(
                    f"a change that {rest - 1} of its group follow", "another", file=file.shown, offset=offset
                )
            rest = numbers.get(_GROUP, 0)
        at += max(usual.count, 1)
    if rest:
        raise DamagedError("all changes of a group", f"{rest} are missing", file=file.shown)
    for number, what in _NEEDED.items():
        if number not in numbers:
            raise DamagedError(what, "none", file=file.shown)
    check_visible(families.values(), numbers[_LAST_SEQUENCE], numbers[_NEXT_FILE], file.shown)
    by_name: dict[str, ColumnFamily] = {}
    for family in families.values():
        if family.name in by_name:
            raise DamagedError("each column family once", f"{family.name!r} again", file=file.shown)
        by_name[family.name] = family
    return by_name


def _joined(data: bytes, name: str) -> tuple[Bytes, Positions, Positions]:
    """Returns the records, one behind the other, where each begins and ends there, and its offset in the file.

    The file must end behind a record.
    """
    most, failure = len(data) // manifest_kernels.HEADER + 1, np.zeros(3, np.int64)
    records, bounds, offsets = (
        np.zeros(len(data) + SLACK, np.uint8),
        np.zeros(most + 1, np.int64),
        np.zeros(most, np.int64),
    )
    bytes_ = np.frombuffer(data + bytes(SLACK), np.uint8)
    count = manifest_kernels.joined(bytes_, len(data), records, bounds, offsets, failure)
    if count >= 0:
        return records, bounds[: count + 1], offsets[:count]
    why, offset, found = failure.tolist()
    expected, other = _DAMAGE[why]
    raise DamagedError(expected, other.format(found), file=name, offset=offset)


class _Edit:
    """One change of the MANIFEST."""

    def __init__(self, coded: Coded, families: dict[int, ColumnFamily], numbers: dict[int, int], offset: int) -> None:
        self._coded, self._families, self._numbers, self._offset = coded, families, numbers, offset
        # A record is in parts, so offsets inside it say little: errors name its beginning.
        self._id = 0
        self._added: list[LiveFile] = []
        # Level and number.
        self._deleted: list[tuple[int, int]] = []
        self._name: str | None = None
        self._drops = False

    def apply(self) -> None:
        coded = self._coded
        try:
            while not coded.at_end():
                self._tag(coded.varint("a tag"))
        except DamagedError as error:
            raise error.located(offset=self._offset) from None
        self._carry_out()

    def _tag(self, tag: int) -> None:
        coded = self._coded
        if tag in _NUMBERS:
            self._numbers[tag] = coded.varint(_NUMBERS[tag])
        elif tag == _COMPARATOR:
            if (found := coded.text("the comparator")) != COMPARATOR:
                raise refused(coded.file, f"its keys are ordered by {found}, not by {COMPARATOR}")
        elif tag == _COMPACT_CURSOR:
            coded.varint("a level")
            coded.bytes("a key")
        elif tag == _DELETED_FILE:
            self._deleted.append((coded.varint("a level"), coded.varint("a file's number")))
        elif tag in (_NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4):
            self._added.append(self._new_file(tag))
        elif tag == _COLUMN_FAMILY:
            self._id = coded.varint("a column family's number")
        elif tag == _ADD:
            self._name = coded.text("a column family's name")
        elif tag == _DROP:
            self._drops = True
        elif tag & _IGNORABLE:
            coded.bytes("what may be ignored")
        else:
            what = _OF_BLOB_FILES if tag in _BLOB_FILES else f"it has an entry of type {tag}, which isn't read"
            raise refused(coded.file, f"{what} (offset {self._offset})")

    def _new_file(self, tag: int) -> LiveFile:
        coded = self._coded
        level, number = coded.varint("a level"), coded.varint("a file's number")
        if level >= MOST_LEVELS:
            raise coded.damaged(f"a level below {MOST_LEVELS}", f"{level}")
        if tag == _NEW_FILE_3 and coded.varint("a path's number"):
            raise refused(coded.file, "its files are in several folders")
        size = coded.varint("a file's size")
        smallest, largest = coded.bytes("a file's first key"), coded.bytes("a file's last key")
        if min(len(smallest), len(largest)) < 8:
            raise coded.damaged("keys with their tags", f"{min(len(smallest), len(largest))} bytes")
        sequences = coded.varint("a file's least sequence"), coded.varint("a file's largest sequence")
        epoch = 0
        while tag == _NEW_FILE_4 and (own := coded.varint("a file's tag")) != NO_MORE:
            value = coded.bytes("a tag's value")
            if own == BLOB_FILE and value and value != b"\0":
                raise refused(coded.file, _OF_BLOB_FILES)
            if own & ESSENTIAL:
                raise refused(coded.file, f"a file has the property {own}, which isn't read")
            if own == EPOCH:
                epoch = Coded(value, coded.file).varint("a file's epoch")
        return LiveFile(number, level, size, smallest, largest, sequences, epoch)

    def _carry_out(self) -> None:
        coded, families = self._coded, self._families
        if self._name is not None:
            if self._id in families and self._id != 0:
                raise self._damaged("a new column family", f"number {self._id} again")
            families[self._id] = ColumnFamily(self._id, self._name)
        if self._drops:
            families.pop(self._id, None)
            return
        family = families.get(self._id)
        if family is None:
            raise self._damaged("a column family that there is", f"number {self._id}")
        for level, number in self._deleted:
            gone = family.files.pop(number, None)
            if gone is None or gone.level != level:
                found = f"{number:06}.sst of level {level} of {family.name} in {coded.file}"
                raise self._damaged("a live file to remove", found)
        for file in self._added:
            if file.number in family.files:
                raise self._damaged("a new file", f"{file.name} again")
            family.files[file.number] = file

    def _damaged(self, expected: str, found: str) -> DamagedError:
        return DamagedError(expected, found, file=self._coded.file, offset=self._offset)
