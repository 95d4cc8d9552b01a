"""The MANIFEST: which files a database consists of. `CURRENT` names it.

It is a log of blocks of 32 KiB: u32 masked crc32c, u16 length, u8 type (1 whole, 2 first, 3 middle and 4 last part of a
record), data. A record is a change: tags with their values. All changes together say which column families there are,
and which files of each are live, with their level, size, first and last key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from stateferry.errors import DamagedError, RefusedError
from stateferry.rocksdb import kernels
from stateferry.rocksdb.coding import Coded
from stateferry.rocksdb.files import StoredFile

_LARGEST = 1 << 30
_BLOCK = 1 << 15
_HEADER = 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
COMPARATOR = "leveldb.BytewiseComparator"
_MOST_LEVELS = 64
# A tag with this bit can be skipped by its length.
_IGNORABLE = 1 << 13
_COMPARATOR, _COMPACT_CURSOR, _DELETED_FILE = 1, 5, 6
_NUMBERS = {2: "a log number", 3: "the next file number", 4: "the last sequence", 9: "a log number", 10: "a log number"}
_NUMBERS |= {203: "the largest column family", 300: "the rest of a group"}
_NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4 = 100, 102, 103
_COLUMN_FAMILY, _ADD, _DROP = 200, 201, 202
# Of a new file's own tags: the end, and a bit that says that it can't be ignored.
_NO_MORE, _ESSENTIAL = 1, 1 << 6
_BLOB_FILE = 4


@dataclass(frozen=True, slots=True)
class LiveFile:
    """An SST file of a column family. Its first and last key are internal keys, with their tags."""

    number: int
    level: int
    size: int
    smallest: bytes
    largest: bytes

    @property
    def name(self) -> str:
        return f"{self.number:06}.sst"


@dataclass(slots=True)
class ColumnFamily:
    """A column family: its number and name, and its live files by number."""

    id: int
    name: str
    files: dict[int, LiveFile] = field(default_factory=dict)


def manifest_name(current: StoredFile) -> str:
    """Returns the name of the MANIFEST that `CURRENT` names."""
    content = current.read_all(1 << 10)
    name = content.rstrip(b"\n").decode("ascii", "replace")
    digits = name.removeprefix("MANIFEST-")
    if not content.endswith(b"\n") or name == digits or not digits.isascii() or not digits.isdigit():
        raise DamagedError("the name of a MANIFEST and a line feed", repr(content), file=current.shown, offset=0)
    return name


def read_manifest(file: StoredFile) -> dict[str, ColumnFamily]:
    """Returns the column families by name."""
    families = {0: ColumnFamily(0, "default")}
    for offset, record in _records(file.read_all(_LARGEST), file.shown):
        _Edit(Coded(record, file.shown), families, offset).apply()
    by_name: dict[str, ColumnFamily] = {}
    for family in families.values():
        if family.name in by_name:
            raise DamagedError("each column family once", f"{family.name!r} again", file=file.shown)
        by_name[family.name] = family
    return by_name


def _records(data: bytes, name: str) -> Iterator[tuple[int, bytes]]:
    """Yields each record with its offset. The file must end behind one."""
    bytes_ = np.frombuffer(data + bytes(kernels.SLACK), np.uint8)
    position, parts, begun = 0, bytearray(), None
    while position < len(data):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER:
            rest = data[position : position + left]
            if any(rest) or len(rest) < left:
                raise DamagedError("zeros until the block's end", "other bytes", file=name, offset=position)
            position += left
            continue
        coded = Coded(data[position : position + _HEADER], name, position)
        coded.take(4, "a checksum")
        length, kind = coded.fixed(2, "a length"), coded.fixed(1, "a type")
        if length + _HEADER > min(left, len(data) - position):
            raise DamagedError("a record inside its block and file", f"{length} bytes", file=name, offset=position)
        _check(bytes_, position, length, name)
        # A record begins only when none is open, and goes on only when one is.
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or (begun is None) != (kind in (_WHOLE, _FIRST)):
            raise DamagedError("the next part of a record", f"one of type {kind}", file=name, offset=position)
        begun = position if begun is None else begun
        parts += data[position + _HEADER : position + _HEADER + length]
        position += _HEADER + length
        if kind in (_WHOLE, _LAST):
            yield begun, bytes(parts)
            parts, begun = bytearray(), None
    if begun is not None:
        raise DamagedError("the rest of a record", "the end", file=name, offset=begun)


def _check(data: np.ndarray[tuple[int], np.dtype[np.uint8]], position: int, length: int, name: str) -> None:
    """Checks the checksum of a part of a record, which covers its type and data."""
    if kernels.record_mismatch(data, position, length):
        raise DamagedError("a record that its checksum fits", "another", file=name, offset=position)


class _Edit:
    """One change of the MANIFEST."""

    def __init__(self, coded: Coded, families: dict[int, ColumnFamily], offset: int) -> None:
        self._coded, self._families, self._offset = coded, families, offset
        # A record is in parts, so offsets inside it say little: errors name its beginning.
        self._id = 0
        self._added: list[LiveFile] = []
        self._deleted: list[int] = []
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
            coded.varint(_NUMBERS[tag])
        elif tag == _COMPARATOR:
            if (found := coded.text("the comparator")) != COMPARATOR:
                raise RefusedError(f"{coded.file}: its keys are ordered by {found}, not by {COMPARATOR}")
        elif tag == _COMPACT_CURSOR:
            coded.varint("a level")
            coded.bytes("a key")
        elif tag == _DELETED_FILE:
            coded.varint("a level")
            self._deleted.append(coded.varint("a file's number"))
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
            raise RefusedError(f"{coded.file}: it has an entry of type {tag}, which isn't read (offset {self._offset})")

    def _new_file(self, tag: int) -> LiveFile:
        coded = self._coded
        level, number = coded.varint("a level"), coded.varint("a file's number")
        if level >= _MOST_LEVELS:
            raise coded.damaged(f"a level below {_MOST_LEVELS}", f"{level}")
        if tag == _NEW_FILE_3 and coded.varint("a path's number"):
            raise RefusedError(f"{coded.file}: its files are in several folders")
        size = coded.varint("a file's size")
        smallest, largest = coded.bytes("a file's first key"), coded.bytes("a file's last key")
        if min(len(smallest), len(largest)) < 8:
            raise coded.damaged("keys with their tags", f"{min(len(smallest), len(largest))} bytes")
        coded.varint("a file's first sequence")
        coded.varint("a file's last sequence")
        while tag == _NEW_FILE_4 and (own := coded.varint("a file's tag")) != _NO_MORE:
            value = coded.bytes("a tag's value")
            if own & _ESSENTIAL or (own == _BLOB_FILE and value and value != b"\0"):
                raise RefusedError(f"{coded.file}: a file has the property {own}, which isn't read")
        return LiveFile(number, level, size, smallest, largest)

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
        for number in self._deleted:
            if family.files.pop(number, None) is None:
                raise self._damaged("a live file to remove", f"{number:06}.sst of {family.name} in {coded.file}")
        for file in self._added:
            if file.number in family.files:
                raise self._damaged("a new file", f"{file.name} again")
            family.files[file.number] = file

    def _damaged(self, expected: str, found: str) -> DamagedError:
        return DamagedError(expected, found, file=self._coded.file, offset=self._offset)
