"""Reads a few rows of a RocksDB database a second time, by plain code that is independent of the scan.

It finds all versions of a key in all files, and works out in plain Python which of them stand. Shared code is what
opens files, what reads the MANIFEST, and the libraries that decompress blocks. Checksums aren't checked again.
"""

from __future__ import annotations

import bisect
import random
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import cramjam

from flinkstate.errors import DamagedError
from flinkstate.rocksdb.files import StoredFile, read_at
from flinkstate.rocksdb.live_files import ColumnFamily, LiveFile
from flinkstate.rocksdb.manifest import manifest_name, read_manifest

_FOOTER, _TRAILER = 53, 5
_DELETE, _VALUE, _MERGE, _SINGLE_DELETE, _RANGE_DELETE = 0, 1, 2, 7, 15
_END_OF_RANGE = (2**56 - 1) << 8 | _RANGE_DELETE
# The largest block that is read to draw keys from.
_LARGEST_DRAWN = 16 << 20
_DRAWS = 8
_SNAPPY, _ZLIB, _LZ4, _LZ4HC, _ZSTD = 1, 2, 4, 5, 7
# So many bytes of content there can be behind one compressed byte, and a few more. The libraries trust what a block
# says of its size.
_MOST_RATIO = {_SNAPPY: 22, _ZLIB: 1040, _LZ4: 256, _LZ4HC: 256, _ZSTD: 1 << 15}
_FEW, _LARGEST = 64, 1 << 31
# What plain code says of bytes that no table has.
_UNREADABLE = (ArithmeticError, LookupError, ValueError, struct.error, zlib.error, cramjam.DecompressionError)

Entry = tuple[bytes, int, int, bytes]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from `first` up to, but without, `after`; to the end if that is None."""

    first: bytes
    after: bytes | None

    def __contains__(self, key: bytes) -> bool:
        return self.first <= key and (self.after is None or key < self.after)


EVERYTHING = KeyRange(b"", None)


class PlainDatabase:
    """A database, whose files are `files` by their own names."""

    def __init__(self, files: Mapping[str, StoredFile], families: Mapping[str, ColumnFamily] | None = None) -> None:
        """`families` is what the MANIFEST says, if it has been read."""
        self._files = files
        self._families = read_manifest(files[manifest_name(files["CURRENT"])]) if families is None else families
        self._tables: dict[int, _PlainTable] = {}

    def size(self, family: str, within: KeyRange) -> int:
        """Returns the bytes of the files that may have keys in a range."""
        return sum(file.size for file in self._live(family, within))

    def draw(self, family: str, within: KeyRange, chance: random.Random) -> tuple[KeyRange, dict[bytes, bytes]] | None:
        """Draws some neighbouring keys in a range; returns the range of these and the rows, None if there are none.

        The keys begin with any one of a block, and go on as far as one block of each file has them.
        """
        files = self._live(family, within)
        for _ in range(_DRAWS if files else 0):
            (file,) = chance.choices(files, [file.size for file in files])
            table = self._table(file)
            with table.naming_damage():
                first = table.draw(within, chance)
            if first is None:
                continue
            begun, ends = KeyRange(first, within.after), []
            for table in map(self._table, self._live(family, begun)):
                with table.naming_damage():
                    ends.append(table.end_of_block(first))
            chosen = KeyRange(first, min(end for end in (*ends, within.after) if end is not None))
            if rows := self.rows(family, chosen):
                return chosen, rows
        return None

    def rows(self, family: str, keys: KeyRange) -> dict[bytes, bytes]:
        """Returns the rows with keys in a range."""
        versions: dict[bytes, list[tuple[int, int, bytes]]] = {}
        deleted: list[tuple[bytes, bytes, int]] = []
        for file in self._live(family, keys):
            table = self._table(file)
            with table.naming_damage():
                deleted += table.deleted_ranges()
                for key, sequence, kind, value in table.entries(keys):
                    versions.setdefault(key, []).append((sequence, kind, value))
        rows = {}
        for key, of_key in versions.items():
            gone = max((until for start, end, until in deleted if start <= key < end), default=0)
            standing = _standing([one for one in of_key if one[0] >= gone])
            if standing is not None:
                rows[key] = standing
        return rows

    def _live(self, family: str, keys: KeyRange) -> list[LiveFile]:
        """Returns the files that may have keys in a range."""
        found = self._families.get(family)
        return [
            file
            for file in (found.files.values() if found else ())
            if file.largest[:-8] >= keys.first and (keys.after is None or file.smallest[:-8] < keys.after)
        ]

    def _table(self, file: LiveFile) -> _PlainTable:
        table = self._tables.get(file.number)
        if table is None:
            table = self._tables[file.number] = _PlainTable(self._files[file.name], file)
        return table


def _standing(versions: list[tuple[int, int, bytes]]) -> bytes | None:
    """The value that a key has after all its versions, from the oldest to the newest; None if it has none."""
    value: bytes | None = None
    for _, kind, data in sorted(versions):
        if kind == _VALUE:
            value = data
        elif kind == _MERGE:
            value = data if value is None else value + b"," + data
        else:
            value = None
    return value


class _PlainTable:
    def __init__(self, stored: StoredFile, live: LiveFile) -> None:
        self._stored, self._live = stored, live
        # Where what was read last begins.
        self._at = 0
        with self.naming_damage(), stored.open() as file:
            self._data = _PlainBlocks(file, self)
            footer = self.read(file, stored.size - _FOOTER, _FOOTER)
            meta, at = _handle(footer, 1)
            index, _ = _handle(footer, at)
            self._meta = {key.decode(): _handle(value, 0)[0] for key, value in _entries(self._data.block(*meta))}
            properties = dict(_entries(self._data.block(*self._meta["rocksdb.properties"])))
            self._is_delta = properties.get(b"rocksdb.index.value.is.delta.encoded", b"\0") != b"\0"
            self._trailer = 8 if properties.get(b"rocksdb.index.key.is.user.key", b"\0") == b"\0" else 0
            self._index = self._part(*index)
            self._has_parts = int.from_bytes(properties[b"rocksdb.block.based.table.index.type"], "little") == 2
            range_block = self._meta.get("rocksdb.range_del")
            self._ranges = [] if range_block is None else list(_entries(self._data.block(*range_block)))

    @contextmanager
    def naming_damage(self) -> Iterator[None]:
        """Names the file and the place that is read, where plain code stumbles over bytes that no table has."""
        try:
            yield
        except _UNREADABLE as error:
            found = f"{type(error).__name__}: {error}"
            raise DamagedError("a table of RocksDB", found, file=self._stored.shown, offset=self._at) from None
        except DamagedError as error:
            raise error.located(file=self._stored.shown, offset=error.offset or self._at) from None

    def read(self, file: object, offset: int, size: int) -> bytes:
        """Reads from the open file."""
        self._at = max(offset, 0)
        return read_at(file, self._stored, offset, size).tobytes()

    def draw(self, within: KeyRange, chance: random.Random) -> bytes | None:
        """Returns any one key in a range; None if none was found."""
        index = self._index
        if self._has_parts:
            drawn = index.draw(within, chance)
            if drawn is None:
                return None
            with self._stored.open() as file:
                index = self._part(*drawn, _PlainBlocks(file, self))
        drawn = index.draw(within, chance)
        if drawn is None or drawn[1] > _LARGEST_DRAWN:
            return None
        with self._stored.open() as file:
            block = _PlainBlocks(file, self).block(*drawn)
        keys = [key[:-8] for key, _ in _entries(block) if key[:-8] in within]
        return chance.choice(keys) if keys else None

    def end_of_block(self, key: bytes) -> bytes | None:
        """Returns where the keys end of the first block that may have the key or a larger one; None if none has."""
        with self._stored.open() as file:
            for highest, _ in self._from(key, _PlainBlocks(file, self)):
                return highest + b"\0"
        return None

    def _from(self, key: bytes, blocks: _PlainBlocks) -> Iterator[tuple[bytes, tuple[int, int]]]:
        """Yields the blocks from the first one on that may have the key or a larger one."""
        for highest, handle in self._index.entries_from(key):
            if self._has_parts:
                yield from self._part(*handle, blocks).entries_from(key)
            else:
                yield highest, handle

    def _part(self, offset: int, size: int, blocks: _PlainBlocks | None = None) -> _PlainIndex:
        return _PlainIndex((blocks or self._data).block(offset, size), self._is_delta, self._trailer)

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
            blocks = _PlainBlocks(file, self)
            for highest, handle in self._from(keys.first, blocks):
                for key, value in _entries(blocks.block(*handle)):
                    tag = int.from_bytes(key[-8:], "little")
                    if tag & 0xFF not in (_DELETE, _VALUE, _MERGE, _SINGLE_DELETE):
                        raise DamagedError("an entry of type 0, 1, 2 or 7", f"{tag & 0xFF}")
                    if key[:-8] in keys:
                        yield key[:-8], tag >> 8, tag & 0xFF, value
                # A key may go on in the next block.
                if keys.after is not None and highest >= keys.after:
                    return


class _PlainIndex:
    """A block of an index: keys that the keys of blocks are at most, with the blocks."""

    def __init__(self, block: bytes, is_delta: bool, trailer: int) -> None:
        self._block, self._is_delta, self._trailer = block, is_delta, trailer
        self._end = _end_of_entries(block)
        count = int.from_bytes(block[-4:], "little")
        # Entries that share nothing with those before.
        self._restarts = struct.unpack_from(f"<{count}I", block, self._end)

    def _key(self, restart: int) -> bytes:
        _, at = _varint(self._block, self._restarts[restart])
        size, at = _varint(self._block, at)
        at = at if self._is_delta else _varint(self._block, at)[1]
        return self._block[at : at + size - self._trailer]

    def _first_with(self, key: bytes) -> int:
        """Returns the first restart whose key is the key or a larger one; their number if there is none."""
        return bisect.bisect_left(range(len(self._restarts)), key, key=self._key)

    def entries_from(self, key: bytes) -> Iterator[tuple[bytes, tuple[int, int]]]:
        """Yields the entries from the first one on whose key is the key or a larger one."""
        if self._end:
            start = self._restarts[max(self._first_with(key) - 1, 0)]
            for highest, handle in self._entries(start):
                if highest >= key:
                    yield highest, handle

    def draw(self, within: KeyRange, chance: random.Random) -> tuple[int, int] | None:
        """Returns any one block that may have keys in a range; None if there is none."""
        if not self._end:
            return None
        first = max(self._first_with(within.first) - 1, 0)
        after = len(self._restarts) if within.after is None else self._first_with(within.after) + 1
        restart = self._restarts[chance.randrange(first, min(after, len(self._restarts)))]
        return next(self._entries(restart))[1]

    def _entries(self, at: int) -> Iterator[tuple[bytes, tuple[int, int]]]:
        """Yields key and handle of the entries from a restart on."""
        block, key, before = self._block, b"", (0, 0)
        while at < self._end:
            shared, at = _varint(block, at)
            own, at = _varint(block, at)
            if not self._is_delta:
                _, at = _varint(block, at)
            key = key[:shared] + block[at : at + own]
            at += own
            if self._is_delta and shared:
                # The block follows the one before; the number says by how much its size differs, with its sign last.
                difference, at = _varint(block, at)
                before = (before[0] + before[1] + _TRAILER, before[1] + (difference >> 1 ^ -(difference & 1)))
            else:
                before, at = _handle(block, at)
            yield key[: len(key) - self._trailer], before


class _PlainBlocks:
    def __init__(self, file: object, table: _PlainTable) -> None:
        self._file, self._table = file, table

    def block(self, offset: int, size: int) -> bytes:
        """Returns the content of a block."""
        data = self._table.read(self._file, offset, size + 1)
        kind, data = data[-1], data[:-1]
        if kind == 0:
            return data
        # Snappy's own form begins with the size as well.
        length, start = _varint(data, 0)
        if length > min(len(data) * _MOST_RATIO[kind] + _FEW, _LARGEST):
            raise ValueError(f"{length} bytes of content in a block of {size}")
        if kind == _SNAPPY:
            return bytes(cramjam.snappy.decompress_raw(data))
        if kind == _ZLIB:
            return zlib.decompress(data[start:], -zlib.MAX_WBITS)
        if kind in (_LZ4, _LZ4HC):
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
