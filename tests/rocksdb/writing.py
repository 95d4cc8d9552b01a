"""A small writer of RocksDB files, byte by byte as the format says: no code of the reader has a part in it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cramjam
import pyarrow as pa

from flinkstate.rocksdb.files import StoredFile

DELETE, VALUE, MERGE, SINGLE_DELETE, RANGE_DELETE = 0, 1, 2, 7, 15
NONE, SNAPPY, ZLIB, LZ4, ZSTD = 0, 1, 2, 4, 7
_MAGIC = struct.pack("<Q", 0x88E241B785F4CFF7)
_OF_NEW_INDEXES = ("rocksdb.index.key.is.user.key", "rocksdb.index.value.is.delta.encoded")
_END = (2**56 - 1) << 8 | RANGE_DELETE

Entry = tuple[bytes, int, int, bytes]
"""Key, sequence, type, value; of a deleted range the value is its end."""


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def masked_crc32c(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def internal(entry: Entry) -> bytes:
    return entry[0] + struct.pack("<Q", entry[1] << 8 | entry[2])


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry[0], -(entry[1] << 8 | entry[2])))


def block(pairs: Sequence[tuple[bytes, bytes]], restart: int = 16, *, values_sized: bool = True) -> bytes:
    out, restarts, before = bytearray(), [], b""
    for number, (key, value) in enumerate(pairs):
        shared = 0
        if number % restart:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        else:
            restarts.append(len(out))
        out += varint(shared) + varint(len(key) - shared) + (varint(len(value)) if values_sized else b"")
        out += key[shared:] + value
        before = key
    restarts = restarts or [0]
    return bytes(out) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


@dataclass
class Table:
    """An SST file that is being written."""

    family: str = "state"
    compression: int = SNAPPY
    block_bytes: int = 200
    two_levels: bool = False
    user_keys: bool = True
    delta_coded: bool = True
    # Without the properties that say how the index is written.
    old: bool = False
    # The type of compression and the bytes that the first block has instead of its own.
    first_block: tuple[int, bytes] | None = None
    data: bytearray = field(default_factory=bytearray)

    def _add(self, content: bytes, compression: int = NONE) -> bytes:
        handle_at = len(self.data)
        stored = _COMPRESS[compression](content)
        if not self.data and self.first_block is not None:
            compression, stored = self.first_block
        self.data += stored + bytes([compression]) + masked_crc32c(stored + bytes([compression]))
        return varint(handle_at) + varint(len(stored))

    def _index(self, blocks: Sequence[tuple[bytes, bytes]]) -> bytes:
        cut = 0 if not self.user_keys else 8
        pairs = [(key[: len(key) - cut], handle) for key, handle in blocks]
        return block(pairs, 1, values_sized=not self.delta_coded)

    def write(self, entries: Sequence[Entry], properties: Mapping[str, bytes] | None = None) -> bytes:
        points = [entry for entry in in_order(entries) if entry[2] != RANGE_DELETE]
        ranges = [entry for entry in in_order(entries) if entry[2] == RANGE_DELETE]
        blocks: list[tuple[bytes, bytes]] = []
        pending: list[tuple[bytes, bytes]] = []
        for number, entry in enumerate(points):
            pending.append((internal(entry), entry[3]))
            if sum(map(len, (part for pair in pending for part in pair))) >= self.block_bytes or entry is points[-1]:
                # A key that is in two blocks can't separate them without its tag.
                last = number + 1 == len(points) or points[number + 1][0] != entry[0]
                if last or not self.user_keys:
                    blocks.append((internal(entry), self._add(block(pending), self.compression)))
                    pending = []
        meta = {}
        if ranges:
            meta["rocksdb.range_del"] = self._add(block([(internal(one), one[3]) for one in ranges], 1))
        found: dict[str, bytes] = {
            "rocksdb.block.based.table.index.type": struct.pack("<I", 2 if self.two_levels else 0),
            "rocksdb.column.family.id": varint(1),
            "rocksdb.column.family.name": self.family.encode(),
            "rocksdb.comparator": b"leveldb.BytewiseComparator",
            "rocksdb.deleted.keys": varint(sum(one[2] not in (VALUE, MERGE) for one in entries)),
            "rocksdb.index.key.is.user.key": varint(self.user_keys),
            "rocksdb.index.value.is.delta.encoded": varint(self.delta_coded),
            "rocksdb.merge.operands": varint(sum(one[2] == MERGE for one in entries)),
            "rocksdb.num.entries": varint(len(entries)),
            "rocksdb.num.range-deletions": varint(len(ranges)),
            "rocksdb.raw.key.size": varint(sum(len(one[0]) + 8 for one in entries)),
            "rocksdb.raw.value.size": varint(sum(len(one[3]) for one in entries)),
            **(properties or {}),
        }
        found = {name: value for name, value in found.items() if not (self.old and name in _OF_NEW_INDEXES)}
        meta["rocksdb.properties"] = self._add(block([(name.encode(), found[name]) for name in sorted(found)], 1))
        meta_index = self._add(block([(name.encode(), meta[name]) for name in sorted(meta)], 1))
        if self.two_levels:
            parts = [blocks[at : at + 3] for at in range(0, len(blocks), 3)]
            blocks = [(part[-1][0], self._add(self._index(part))) for part in parts]
        index = self._add(self._index(blocks))
        handles = meta_index + index
        footer = b"\1" + handles + bytes(40 - len(handles)) + struct.pack("<I", 5) + _MAGIC
        return bytes(self.data + footer)


_COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    NONE: lambda content: content,
    SNAPPY: lambda content: bytes(cramjam.snappy.compress_raw(content)),
    ZLIB: lambda content: varint(len(content)) + _deflated(content),
    LZ4: lambda content: varint(len(content)) + bytes(cramjam.lz4.compress_block(content, store_size=False)),
    ZSTD: lambda content: varint(len(content)) + bytes(cramjam.zstd.compress(content)),
}


def _deflated(content: bytes) -> bytes:
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    return deflater.compress(content) + deflater.flush()


def bounds(entries: Sequence[Entry]) -> tuple[bytes, bytes]:
    """A file's first and last internal key, deleted ranges included."""
    keys = [(entry[0], -(entry[1] << 8 | entry[2]), internal(entry)) for entry in entries]
    keys += [(e[3], -_END, e[3] + struct.pack("<Q", _END)) for e in entries if e[2] == RANGE_DELETE]
    return min(keys)[2], max(keys)[2]


def log(records: Iterable[bytes]) -> bytes:
    """A log of the records, each in as many parts as the blocks of 32 KiB make necessary."""
    out = bytearray()
    for content in records:
        begun, rest = False, content
        while rest or not begun:
            left = 32768 - len(out) % 32768
            if left < 7:
                out += bytes(left)
                continue
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = bytes([(3 if begun else 2) if rest else (4 if begun else 1)])
            out += masked_crc32c(kind + part) + struct.pack("<H", len(part)) + kind + part
            begun = True
    return bytes(out)


def new_file(
    number: int,
    level: int,
    size: int,
    entries: Sequence[Entry],
    epoch: int = 0,
    sequences: Sequence[int] | None = None,
) -> bytes:
    """What the MANIFEST says of a file."""
    first, last = bounds(entries)
    sequences = sequences or [entry[1] for entry in entries]
    edit = varint(103) + varint(level) + varint(number) + varint(size) + sized(first) + sized(last)
    told = varint(13) + sized(varint(epoch)) if epoch else b""
    return edit + varint(min(sequences)) + varint(max(sequences)) + told + varint(1)


def numbers(next_file: int, last_sequence: int) -> bytes:
    """The numbers without which RocksDB opens no database."""
    return varint(2) + varint(0) + varint(3) + varint(next_file) + varint(4) + varint(last_sequence)


def database(runs: Sequence[Sequence[Sequence[Entry]]], levels: Sequence[int], **options: Any) -> dict[str, bytes]:
    """The files of a database with a column family ``state``: for each run, on its level, the entries of its files."""
    files: dict[str, bytes] = {"CURRENT": b"MANIFEST-000001\n"}
    edits = [varint(1) + sized(b"leveldb.BytewiseComparator"), varint(200) + varint(1) + varint(201) + sized(b"state")]
    number = 10 + sum(map(len, runs))
    edits.append(numbers(number, max(entry[1] for run in runs for entries in run for entry in entries)))
    for run, level in zip(runs, levels, strict=True):
        for entries in run:
            number -= 1
            files[f"{number:06}.sst"] = data = Table(**options).write(entries)
            edits.append(varint(200) + varint(1) + new_file(number, level, len(data), entries))
    files["MANIFEST-000001"] = log(edits)
    return files


def stored(files: Mapping[str, bytes]) -> dict[str, StoredFile]:
    def opener(data: bytes) -> Callable[[], Any]:
        return lambda: pa.BufferReader(data)

    return {name: StoredFile(name, len(data), opener(data)) for name, data in files.items()}
