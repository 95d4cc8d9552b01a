"""Writes SST files as RocksDB's own: block-based tables of format version 5, as Flink 1.20 and 2.x read them.

A file of the lowest level has only values, with sequence 0. One of level 0 has values and deletions, all with one
sequence number above those of the files below it. Blocks are compressed with snappy if that makes them smaller, and
bear masked crc32c: the RocksDB of Flink 1.20 knows no XXH3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import cramjam
import numpy as np

from flinkstate.basics.array_types import Bytes, Flags, Positions, Tags
from flinkstate.errors import KeyTwiceError
from flinkstate.rocksdb import write_kernels as kernels
from flinkstate.rocksdb.kernels import DELETE, VALUE
from flinkstate.rocksdb.live_files import LiveFile
from flinkstate.rocksdb.manifest import COMPARATOR
from flinkstate.rocksdb.sst_blocks import (
    TRAILER,
)
from flinkstate.rocksdb.write_kernels import SLACK
from flinkstate.serializers.binary import varint

# As Flink sets them by default.
BLOCK = 4 << 10
FILE = 64 << 20
_INTERVAL = 16
# So many bytes of blocks are made before they are compressed and written.
_RAW = 1 << 20
_BLOCKS = 1 << 10
_NONE, _SNAPPY = 0, 1
_CRC32C = 1
_VERSION = 5
_MAGIC = 0x88E241B785F4CFF7


class OutputFile(Protocol):
    """A file that is being written."""

    position: int

    def write(self, data: Bytes | bytes) -> None: ...

    def end(self) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class SortedRows:
    """Rows in the order of their keys: the i-th is n = `order[i]`, which is `data[starts[n]:ends[n]]`.

    Its key is `data[starts[n] + 4 : key_ends[n]]`. Row n with `deleted[n]` says that its key has no value any more.
    """

    data: Bytes
    starts: Positions
    key_ends: Positions
    ends: Positions
    order: Positions
    count: int
    deleted: Flags | None = None

    def key(self, place: int) -> bytes:
        """Returns the key of a row by its place in the order."""
        row = self.order[place]
        return self.data[self.starts[row] + 4 : self.key_ends[row]].tobytes()


class Buffers:
    """What table writers of one task need in memory; they use it one after the other, each a while.

    A writer leaves its open block in its own `SstWriter`; so buffers hold nothing between two calls.
    """

    def __init__(self) -> None:
        self.stored = np.zeros(0, np.uint8)

    def stored_of(self, size: int) -> Bytes:
        """Returns a buffer of at least so many bytes."""
        if len(self.stored) < size:
            self.stored = np.zeros(size + size // 4, np.uint8)
        return self.stored


class SstWriter:
    """One SST file, which gets rows in ascending order of their keys."""

    def __init__(
        self,
        sink: OutputFile,
        number: int,
        level: int,
        family: str,
        family_id: int,
        buffers: Buffers,
        *,
        is_compressed: bool = True,
        sequence: int = 0,
    ) -> None:
        """The file is full when it has `FILE` bytes or somewhat more, unless it is of level 0, which has one of a kind.

        All its entries have the sequence number `sequence`.
        """
        self._sequence, self._deletions = sequence, 0
        self._is_compressed = is_compressed
        self._largest, block = FILE if level else 1 << 62, BLOCK
        self._sink, self.number, self._level = sink, number, level
        self._family, self._family_id, self._buffers, self._block = family, family_id, buffers, block
        self._raw = np.zeros(_RAW + 2 * block + SLACK, np.uint8)
        self._key = np.zeros((1 << 10) + SLACK, np.uint8)
        self._restarts = np.zeros(4 * block // _INTERVAL + 16, np.int64)
        self._block_ends = np.zeros(_BLOCKS, np.int64)
        self._keys, self._bounds = np.zeros(1 << 16, np.uint8), np.zeros(1 << 12, np.int64)
        self._begins: list[Positions] = []
        self._sizes: list[Positions] = []
        self._state = np.zeros(kernels.STATE, np.int64)
        self._state[kernels.KEY_SIZE] = -1
        self._rows = self._written = 0
        self._smallest = self._largest_tag = b""

    @property
    def size(self) -> int:
        """The bytes that were written; of an open block none are."""
        return self._sink.position

    @property
    def is_full(self) -> bool:
        """Whether the next rows belong in another file."""
        return self.size >= self._largest

    @property
    def last_key(self) -> bytes:
        """The last row's key."""
        return self._key[: max(int(self._state[kernels.KEY_SIZE]), 0)].tobytes()

    def append(self, rows: SortedRows, first: int) -> int:
        """Appends rows from `first` in their order; returns where it stopped because the file is full."""
        count, tags = rows.count, self._tags(rows)
        if not self._rows and first < count:
            self._smallest = rows.key(first) + self._tag(rows, tags, first)
        state = self._state
        while first < count:
            after = kernels.make_blocks(
                rows.data, rows.starts, rows.key_ends, rows.ends, rows.order, tags, first, count, self._block,
                _INTERVAL, self._key, self._raw, len(self._raw) - SLACK, self._restarts, self._keys, self._bounds,
                self._block_ends, state,
            )  # fmt: skip
            if after < 0:
                raise _twice(self._family, rows, -1 - after)
            if after > first:
                self._largest_tag = self._tag(rows, tags, after - 1)
                if rows.deleted is not None:
                    self._deletions += int(rows.deleted[rows.order[first:after]].sum())
            self._rows += after - first
            stuck, first = after == first, after
            written = self._write_blocks()
            if self.is_full:
                break
            if first < count and stuck and not written:
                self._grow(rows, first)
        return first

    def _tags(self, rows: SortedRows) -> Tags:
        """Returns the tag of each row, or one for all."""
        value = np.uint64(self._sequence << 8 | VALUE)
        if rows.deleted is None or not rows.count:
            return np.array([value], np.uint64)
        tags = np.where(rows.deleted, np.uint64(self._sequence << 8 | DELETE), value)
        # One tag alone would be that of all rows, and it is.
        return tags.astype(np.uint64)

    @staticmethod
    def _tag(rows: SortedRows, tags: Tags, place: int) -> bytes:
        return int(tags[rows.order[place]] if len(tags) > 1 else tags[0]).to_bytes(8, "little")

    def _grow(self, rows: SortedRows, place: int) -> None:
        """Makes every array large enough for the next row."""
        row, state = rows.order[place], self._state
        size, key = int(rows.ends[row] - rows.starts[row]), int(rows.key_ends[row] - rows.starts[row])
        self._raw = _at_least(self._raw, int(state[kernels.AT]) + size + 64 + 4 * len(self._restarts) + SLACK)
        self._key = _at_least(self._key, key + 8 + SLACK)
        self._keys = _at_least(self._keys, 2 * int(state[kernels.KEYS_AT]) + key + SLACK)
        self._bounds = _at_least(self._bounds, 2 * int(state[kernels.BLOCKS]) + 4)
        self._restarts = _at_least(self._restarts, int(state[kernels.RESTARTS]) + 4)

    def _write_blocks(self) -> bool:
        """Writes the complete blocks, and moves the open one to the front; returns whether there were any."""
        state = self._state
        made = int(state[kernels.BLOCKS]) - self._written
        if made:
            ends = self._block_ends[:made]
            self._store(self._raw, np.append(0, ends[:-1]), ends)
            begin, at = int(ends[-1]), int(state[kernels.AT])
            self._raw[: at - begin] = self._raw[begin:at].copy()
            state[kernels.AT], state[kernels.BLOCK] = at - begin, 0
            self._written += made
        return made > 0

    def _store(self, raw: Bytes, starts: Positions, ends: Positions) -> None:
        """Compresses blocks, and writes them with their checksums."""
        begins, sizes, stored, end = _stored(raw, starts, ends, self._buffers, is_compressed=self._is_compressed)
        self._begins.append(begins + self._sink.position)
        self._sizes.append(sizes)
        self._sink.write(stored[:end])

    def finish(self) -> LiveFile:
        """Completes the file, which must have rows, and returns what the MANIFEST says of it."""
        largest = self.last_key
        self._end_block()
        data_size = self._sink.position
        index = self._index()
        index_at = self._write_plain(index)
        # The meta blocks come behind the index; their order is free.
        properties = self._properties(data_size, len(index))
        properties_at = self._write_plain(_block([(name, properties[name]) for name in sorted(properties)]))
        meta = [(b"rocksdb.properties", b"".join(map(varint, properties_at)))]
        handles = b"".join(map(varint, (*self._write_plain(_block(meta)), *index_at)))
        footer = bytes([_CRC32C]) + handles + bytes(40 - len(handles))
        self._sink.write(footer + struct.pack("<IQ", _VERSION, _MAGIC))
        size = self._sink.position
        self._sink.end()
        sequences = self._sequence, self._sequence
        return LiveFile(self.number, self._level, size, self._smallest, largest + self._largest_tag, sequences)

    def _end_block(self) -> None:
        state = self._state
        count = int(state[kernels.RESTARTS])
        if not state[kernels.ENTRIES]:
            return
        at = int(state[kernels.AT])
        restarts = np.append(self._restarts[:count], count).astype("<u4").view(np.uint8)
        self._raw = _at_least(self._raw, at + len(restarts) + SLACK)
        self._raw[at : at + len(restarts)] = restarts
        self._store(self._raw, np.zeros(1, np.int64), np.array([at + len(restarts)], np.int64))
        size, keys_at, blocks = (int(state[place]) for place in (kernels.KEY_SIZE, kernels.KEYS_AT, kernels.BLOCKS))
        self._keys, self._bounds = _at_least(self._keys, keys_at + size + SLACK), _at_least(self._bounds, blocks + 2)
        self._keys[keys_at : keys_at + size] = self._key[:size]
        state[kernels.KEYS_AT], state[kernels.BLOCKS], self._bounds[blocks + 1] = (
            keys_at + size, blocks + 1, keys_at + size,
        )  # fmt: skip
        state[kernels.ENTRIES] = state[kernels.RESTARTS] = 0

    def _index(self) -> bytes:
        blocks = int(self._state[kernels.BLOCKS])
        begins, sizes = np.concatenate(self._begins), np.concatenate(self._sizes)
        out = np.zeros(int(self._state[kernels.KEYS_AT]) + 32 * blocks + SLACK, np.uint8)
        restarts = np.zeros(blocks, np.int64)
        end = int(kernels.index_entries(self._keys, self._bounds, blocks, begins, sizes, out, restarts))
        return out[:end].tobytes() + np.append(restarts, blocks).astype("<u4").tobytes()

    def _write_plain(self, block: bytes) -> tuple[int, int]:
        """Writes a block that isn't compressed, and returns its handle."""
        data = np.zeros(len(block) + TRAILER + SLACK, np.uint8)
        data[: len(block)] = np.frombuffer(block, np.uint8)
        kernels.seal(data, np.zeros(1, np.int64), np.array([len(block)], np.int64), np.zeros(1, np.uint8))
        at = self._sink.position
        self._sink.write(data[: len(block) + TRAILER])
        return at, len(block)

    def _properties(self, data_size: int, index_size: int) -> Mapping[bytes, bytes]:
        state = self._state
        numbers = {
            "column.family.id": self._family_id,
            # When a file was made would differ each time that it is made.
            "creation.time": 0,
            "data.size": data_size,
            "deleted.keys": self._deletions,
            "file.creation.time": 0,
            "filter.size": 0,
            "fixed.key.length": 0,
            "format.version": 0,
            "index.key.is.user.key": 1,
            "index.size": index_size,
            "index.value.is.delta.encoded": 1,
            "merge.operands": 0,
            "num.data.blocks": int(state[kernels.BLOCKS]),
            "num.entries": self._rows,
            "num.range-deletions": 0,
            "oldest.key.time": 0,
            "raw.key.size": int(state[kernels.RAW_KEYS]),
            "raw.value.size": int(state[kernels.RAW_VALUES]),
        }
        texts = {
            "block.based.table.prefix.filtering": "0",
            "block.based.table.whole.key.filtering": "1",
            "column.family.name": self._family,
            "comparator": COMPARATOR,
            "compression": "Snappy" if self._is_compressed else "NoCompression",
            "merge.operator": "StringAppendTESTOperator",
            "prefix.extractor.name": "nullptr",
            "property.collectors": "[]",
        }
        found = {name: varint(number) for name, number in numbers.items()}
        found |= {name: text.encode() for name, text in texts.items()}
        found["block.based.table.index.type"] = bytes(4)
        return {b"rocksdb." + name.encode(): value for name, value in found.items()}

    def close(self) -> None:
        """Removes the file unless it was finished."""
        self._sink.close()


def _stored(
    raw: Bytes, starts: Positions, ends: Positions, buffers: Buffers, *, is_compressed: bool
) -> tuple[Positions, Positions, Bytes, int]:
    """Returns blocks as they are stored, one behind the other: where each begins, its size, the bytes and their end."""
    contents = ends - starts
    room = contents + contents // 6 + 32 + TRAILER
    out = buffers.stored_of(int(room.sum()) + SLACK)
    source, target = raw.data, out.data
    begins, sizes, kinds = np.empty_like(starts), np.empty_like(starts), np.zeros(len(starts), np.uint8)
    compress: Callable[[Any, Any], int] = cramjam.snappy.compress_raw_into
    at = 0
    for block, (start, end, most) in enumerate(zip(starts.tolist(), ends.tolist(), room.tolist(), strict=True)):
        size = compress(source[start:end], target[at : at + most]) if is_compressed else most
        # As RocksDB does: what saves less than an eighth isn't worth the time to read it.
        if size < end - start - (end - start) // 8:
            kinds[block] = _SNAPPY
        else:
            size = end - start
            target[at : at + size] = source[start:end]
        begins[block], sizes[block] = at, size
        at += size + TRAILER
    kernels.seal(out, begins, sizes, kinds)
    return begins, sizes, out, at


def _at_least(array: Any, size: int) -> Any:
    if len(array) >= size:
        return array
    grown = np.zeros(size + size // 2, array.dtype)
    grown[: len(array)] = array
    return grown


def _twice(state: str, rows: SortedRows, place: int) -> KeyTwiceError:
    found = f"in state {state}, {rows.key(place).hex()} behind a key that isn't smaller"
    return KeyTwiceError("each key of a state once, in order", found)


def _block(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Returns a small block whose keys share nothing."""
    out, restarts = bytearray(), []
    for key, value in pairs:
        restarts.append(len(out))
        out += bytes(1) + varint(len(key)) + varint(len(value)) + key + value
    return bytes(out) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
