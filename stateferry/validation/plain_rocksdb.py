"""Reads a few rows of a RocksDB database a second time, by plain code that is independent of the scan.

It finds all versions of a key in all files, and works out in plain Python which of them stand. Shared code is what
opens files, what reads the MANIFEST, and the libraries that decompress blocks. Checksums aren't checked again.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import cramjam

from stateferry.errors import DamagedError
from stateferry.rocksdb.files import StoredFile, read_at
from stateferry.rocksdb.manifest import ColumnFamily, LiveFile, manifest_name, read_manifest

_FOOTER, _TRAILER = 53, 5
_DELETE, _VALUE, _MERGE, _SINGLE_DELETE, _RANGE_DELETE = 0, 1, 2, 7, 15
_END_OF_RANGE = (2**56 - 1) << 8 | _RANGE_DELETE
# A state of at most so many bytes is read whole.
_READ_WHOLE = 256 << 10
_RANGES = 3

Entry = tuple[bytes, int, int, bytes]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from `first` to `last`, both included; to the end if there is no last key."""

    first: bytes
    last: bytes | None

    def __contains__(self, key: bytes) -> bool:
        return self.first <= key and (self.last is None or key <= self.last)


EVERYTHING = KeyRange(b"", None)


class PlainDatabase:
    """A database, whose files are `files` by their own names."""

    def __init__(self, files: Mapping[str, StoredFile]) -> None:
        self._files = files
        self._families = read_manifest(files[manifest_name(files["CURRENT"])])

    def ranges(self, family: str, seed: int) -> list[KeyRange]:
        """Returns the keys to read: all of them, or those of some blocks if these are too many."""
        found = self._live(family)
        if sum(file.size for file in found) <= _READ_WHOLE:
            return [EVERYTHING]
        chance = random.Random(f"{seed}/{family}")
        chosen = chance.choices(found, [file.size for file in found], k=_RANGES)
        return [range_ for file in chosen if (range_ := self._table(file).range_of_a_block(chance)) is not None]

    def rows(self, family: str, keys: KeyRange) -> dict[bytes, bytes]:
        """Returns the rows with keys in a range."""
        versions: dict[bytes, list[tuple[int, int, bytes]]] = {}
        deleted: list[tuple[bytes, bytes, int]] = []
        for file in self._live(family):
            if (keys.last is None or file.smallest[:-8] <= keys.last) and file.largest[:-8] >= keys.first:
                table = self._table(file)
                deleted += table.deleted_ranges()
                for key, sequence, kind, value in table.entries(keys):
                    versions.setdefault(key, []).append((sequence, kind, value))
        rows = {}
        for key, of_key in versions.items():
            gone = max((until for start, end, until in deleted if start <= key < end), default=-1)
            standing = _standing([one for one in of_key if one[0] >= gone])
            if standing is not None:
                rows[key] = standing
        return rows

    def _live(self, family: str) -> list[LiveFile]:
        found: ColumnFamily | None = self._families.get(family)
        return list(found.files.values()) if found else []

    def _table(self, file: LiveFile) -> _PlainTable:
        return _PlainTable(self._files[file.name], file)


def _standing(versions: list[tuple[int, int, bytes]]) -> bytes | None:
    """The value that a key has after all its versions, from the oldest to the newest; None if it has none."""
    value: bytes | None = None
    for _, kind, data in sorted(versions, key=lambda version: version[0]):
        if kind == _VALUE:
            value = data
        elif kind == _MERGE:
            value = data if value is None else value + b"," + data
        elif kind in (_DELETE, _SINGLE_DELETE):
            value = None
        else:
            raise DamagedError("an entry of type 0, 1, 2 or 7", f"{kind}")
    return value


class _PlainTable:
    def __init__(self, stored: StoredFile, live: LiveFile) -> None:
        self._stored, self._live = stored, live
        with stored.open() as file:
            self._data = _Blocks(file, stored)
            footer = self._data.read(stored.size - _FOOTER, _FOOTER)
            meta, at = _handle(footer, 1)
            index, _ = _handle(footer, at)
            self._meta = {key.decode(): _handle(value, 0)[0] for key, value in _entries(self._data.block(*meta))}
            properties = dict(_entries(self._data.block(*self._meta["rocksdb.properties"])))
            self._is_delta = _varint(properties.get(b"rocksdb.index.value.is.delta.encoded", b"\0"), 0)[0] != 0
            self._trailer = 0 if _varint(properties.get(b"rocksdb.index.key.is.user.key", b"\0"), 0)[0] else 8
            self._index = self._handles(*index)
            if int.from_bytes(properties[b"rocksdb.block.based.table.index.type"], "little") == 2:
                self._index = [one for _, part in self._index for one in self._handles(*part)]
            range_block = self._meta.get("rocksdb.range_del")
            self._ranges = [] if range_block is None else list(_entries(self._data.block(*range_block)))

    def range_of_a_block(self, chance: random.Random) -> KeyRange | None:
        """Returns the range of the keys in any one block; None if there is no block."""
        if not self._index:
            return None
        with self._stored.open() as file:
            block = _Blocks(file, self._stored).block(*chance.choice(self._index)[1])
        keys = [key[:-8] for key, _ in _entries(block)]
        return KeyRange(keys[0], keys[-1])

    def deleted_ranges(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yields start, end and sequence of deleted ranges, within the keys that the MANIFEST gives to the file."""
        first, last = self._live.smallest[:-8], self._live.largest[:-8]
        ends_with_range = int.from_bytes(self._live.largest[-8:], "little") == _END_OF_RANGE
        for key, end in self._ranges:
            start, limit = max(key[:-8], first), min(end, last if ends_with_range else last + b"\0")
            if start < limit:
                yield start, limit, int.from_bytes(key[-8:], "little") >> 8

    def entries(self, keys: KeyRange) -> Iterator[Entry]:
        """Yields key, sequence, type and value of the entries with keys in a range."""
        with self._stored.open() as file:
            blocks = _Blocks(file, self._stored)
            for highest, handle in self._index:
                # A key may go on in the next block.
                if highest < keys.first:
                    continue
                for key, value in _entries(blocks.block(*handle)):
                    tag = int.from_bytes(key[-8:], "little")
                    if key[:-8] in keys:
                        yield key[:-8], tag >> 8, tag & 0xFF, value
                if keys.last is not None and highest > keys.last:
                    return

    def _handles(self, offset: int, size: int) -> list[tuple[bytes, tuple[int, int]]]:
        """Returns the blocks of an index, each with a key that its keys are at most."""
        found: list[tuple[bytes, tuple[int, int]]] = []
        before = (0, 0)
        for key, value, shared in _index_entries(self._data.block(offset, size), self._is_delta):
            if self._is_delta and shared:
                before = (before[0] + before[1] + _TRAILER, before[1] + value[0])
            else:
                before = (value[0], value[1])
            found.append((key[: len(key) - self._trailer], before))
        return found


class _Blocks:
    def __init__(self, file: object, stored: StoredFile) -> None:
        self._file, self._stored = file, stored

    def read(self, offset: int, size: int) -> bytes:
        return read_at(self._file, self._stored, offset, size).tobytes()

    def block(self, offset: int, size: int) -> bytes:
        """Returns the content of a block."""
        data = self.read(offset, size + 1)
        kind, data = data[-1], data[:-1]
        if kind == 0:
            return data
        if kind == 1:
            return bytes(cramjam.snappy.decompress_raw(data))
        length, start = _varint(data, 0)
        if kind == 2:
            return zlib.decompress(data[start:], -zlib.MAX_WBITS)
        if kind in (4, 5):
            return bytes(cramjam.lz4.decompress_block(data[start:], output_len=length))
        return bytes(cramjam.zstd.decompress(data[start:]))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def _end_of_entries(block: bytes) -> int:
    return len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    at, end, key = 0, _end_of_entries(block), b""
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own
        yield key, block[at : at + length]
        at += length


def _index_entries(block: bytes, is_delta: bool) -> Iterator[tuple[bytes, tuple[int, int], int]]:
    """Yields key, offset and size of each entry, and the bytes that its key shares with the one before.

    If the entry's key shares bytes and the index is coded by differences, the first number is what its size is more
    than the one before.
    """
    at, end, key = 0, _end_of_entries(block), b""
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        if not is_delta:
            _, at = _varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own
        if is_delta and shared:
            difference, at = _varint(block, at)
            yield key, (difference >> 1 ^ -(difference & 1), 0), shared
        else:
            handle, at = _handle(block, at)
            yield key, handle, shared
