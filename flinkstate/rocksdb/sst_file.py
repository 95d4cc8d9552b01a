"""An SST file: blocks of entries, an index of them, properties, and a footer that says where these are.

| part | content |
|---|---|
| data blocks | entries, sorted by key and then from the newest to the oldest; behind a key u64 `sequence << 8 | type` |
| meta blocks | properties, deleted ranges; filters, which aren't read |
| index | for each data block its handle and a key that its keys are at most; in two levels if the file says so |
| footer, 53 bytes | u8 type of checksum, handles of meta index and index, zeros, u32 version, u64 magic number |

A handle is two varints: offset and size. `sst_blocks.py` has the layout of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flinkstate.basics.array_types import Bytes
from flinkstate.basics.closing import Closing
from flinkstate.errors import DamagedError
from flinkstate.files.digests import digest_of, new_hasher
from flinkstate.rocksdb import kernels
from flinkstate.rocksdb.coding import Coded
from flinkstate.rocksdb.file_index import Index
from flinkstate.rocksdb.files import (
    StoredFile,
    read_at,
    refused,
)
from flinkstate.rocksdb.kernels import SLACK
from flinkstate.rocksdb.live_files import RANGE_DELETE, LiveFile
from flinkstate.rocksdb.manifest import COMPARATOR
from flinkstate.rocksdb.prefixes import EVERY_KEY, Prefixes
from flinkstate.rocksdb.read_once import once
from flinkstate.rocksdb.sst_blocks import (
    CRC32C,
    TRAILER,
    XXH3,
    Handle,
    check_blocks,
    content_sizes,
    decompress_each,
    entries,
    entries_end,
)

_FOOTER = 53
_MAGIC = 0x88E241B785F4CFF7
_OTHER_MAGIC = {
    0xDB4775248B80FB57: "an SST file of version 0",
    0x8242229663BF9564: "a plain table",
    0x4F3418EB7A8F13B8: "a plain table",
}
# They differ in the filters, which aren't read, and in the index, of which the properties say how it is coded.
_VERSIONS = range(2, 6)
_CHECKSUMS = {0: "no checksums", 2: "xxHash32", 3: "xxHash64"}
_LARGEST_META = 1 << 28
# The index by so many prefixes is kept (`read_once`), and so much room the index by some is given first.
_MOST_KEPT, _ROOM_OF_SOME = 1 << 17, 1 << 14
# So many bytes of a key are in messages.
_SHOWN = 40
_BINARY, _TWO_LEVELS = 0, 2
_INDEX_KINDS = {1: "a hash index", 3: "an index with first keys"}

# Behind the last key of a file that ends with a deleted range.
_RANGE_END = (2**56 - 1) << 8 | RANGE_DELETE

_PROPERTIES = "rocksdb.properties"
_RANGES = "rocksdb.range_del"
_DICTIONARY = "rocksdb.compression_dict"
_INDEX_TYPE = "rocksdb.block.based.table.index.type"
_USER_KEYS = "rocksdb.index.key.is.user.key"
_DELTA_CODED = "rocksdb.index.value.is.delta.encoded"
_SESSION = "rocksdb.creating.session.identity"
_GLOBAL_SEQUENCE = "rocksdb.external_sst_file.global_seqno"


@dataclass(frozen=True, slots=True)
class DeletedRange:
    """Entries older than `sequence` with keys from `start` up to, but without, `end` are deleted."""

    start: bytes
    end: bytes
    sequence: int


class SstFile(Closing):
    """An SST file, which is open while it is read; a context manager."""

    def __init__(self, stored: StoredFile, live: LiveFile, family: str, family_id: int) -> None:
        if stored.size != live.size:
            raise DamagedError(f"{live.size} bytes, as the MANIFEST says", f"{stored.size}", file=stored.shown)
        self.stored, self.live, self.name = stored, live, stored.shown
        self._file: Any = None
        try:
            vars(self).update(once(self.file, ("itself", family), lambda: self._read_itself(family, family_id)))
        except BaseException:
            self.close()
            raise

    def _read_itself(self, family: str, family_id: int) -> dict[str, Any]:
        """Reads what the file says of itself, and returns it, by the names of attributes."""
        before = vars(self).keys() | {"_file"}
        self._read_footer()
        self._meta = self._handles(self.read_block(self._meta_handle, _LARGEST_META))
        self._refuse_meta()
        self._read_properties(family, family_id)
        return {name: one for name, one in vars(self).items() if name not in before}

    @property
    def file(self) -> Any:
        """The open file; it is opened again if it was closed."""
        if self._file is None:
            self._file = self.stored.open()
        return self._file

    def close(self) -> None:
        """Closes the file until it is needed again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read_footer(self) -> None:
        at = self.stored.size - _FOOTER
        if at < 0:
            raise DamagedError(f"a file of at least {_FOOTER} bytes", f"{self.stored.size}", file=self.name)
        data = read_at(self.file, self.stored, at, _FOOTER).tobytes()
        coded = Coded(data, self.name, at)
        magic = int.from_bytes(data[-8:], "little")
        if magic in _OTHER_MAGIC:
            raise refused(self.name, f"{_OTHER_MAGIC[magic]}; SST files of versions 2 to 5 are read")
        if magic != _MAGIC:
            raise coded.damaged(f"the magic number {_MAGIC:016x} of an SST file", f"{magic:016x}", _FOOTER - 8)
        version = int.from_bytes(data[-12:-8], "little")
        if version not in _VERSIONS:
            if version > 16:
                raise coded.damaged("a version of an SST file", f"{version}", _FOOTER - 12)
            raise refused(self.name, f"an SST file of version {version}; versions 2 to 5 are read")
        self.version = version
        self.checksum = coded.fixed(1, "the type of checksum")
        if self.checksum not in (CRC32C, XXH3):
            if self.checksum not in _CHECKSUMS:
                raise coded.damaged("a type of checksum from 0 to 4", f"{self.checksum}", 0)
            raise refused(self.name, f"an SST file with {_CHECKSUMS[self.checksum]}; crc32c and XXH3 are read")
        self._meta_handle, self._index_handle = (_handle(coded, what) for what in ("the meta index", "the index"))
        rest = data[coded.position : _FOOTER - 12]
        if any(rest):
            raise coded.damaged("zeros", rest.hex())

    def _refuse_meta(self) -> None:
        if _DICTIONARY in self._meta:
            raise refused(self.name, "its blocks are compressed with a dictionary, which isn't read")
        if _PROPERTIES not in self._meta:
            raise DamagedError(f"a block {_PROPERTIES}", "none", file=self.name, offset=self._meta_handle.offset)

    def _read_properties(self, family: str, family_id: int) -> None:
        handle = self._meta[_PROPERTIES]
        self._at = handle.offset
        found = {
            key.decode("utf-8", "replace"): value
            for key, value in entries(self.read_block(handle, _LARGEST_META), self.name, handle.offset)
        }
        self._properties = found
        kind = self._number(_INDEX_TYPE, size=4)
        if kind not in (_BINARY, _TWO_LEVELS):
            raise refused(self.name, f"an SST file with {_INDEX_KINDS.get(kind, 'an unknown index')}")
        self._is_partitioned = kind == _TWO_LEVELS
        self._trailer = 0 if self._number(_USER_KEYS, default=0) else 8
        self._is_delta_coded = bool(self._number(_DELTA_CODED, default=0))
        self.entries = self._number("rocksdb.num.entries")
        self.deletions = self._number("rocksdb.deleted.keys", default=0)
        self.operands = self._number("rocksdb.merge.operands", default=0)
        self.range_deletions = self._number("rocksdb.num.range-deletions", default=0)
        self.raw_bytes = self._number("rocksdb.raw.key.size") + self._number("rocksdb.raw.value.size")
        # Its number may be in the MANIFEST alone, so 0 here says nothing.
        if _GLOBAL_SEQUENCE in found:
            raise refused(self.name, "an SST file from outside, with one sequence number for all its entries")
        comparator = self._text("rocksdb.comparator")
        if comparator != COMPARATOR:
            raise refused(self.name, f"its keys are ordered by {comparator}, not by {COMPARATOR}")
        own = (self._number("rocksdb.column.family.id"), self._text("rocksdb.column.family.name"))
        # A file that was imported from another database keeps the number that its column family had there.
        if own[1] != family:
            raise DamagedError(
                f"a file of the column family {family!r} (number {family_id})", f"{own[1]!r} ({own[0]})",
                file=self.name, offset=handle.offset,
            )  # fmt: skip

    def _number(self, name: str, *, size: int | None = None, default: int | None = None) -> int:
        value = self._properties.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            raise DamagedError(f"the property {name}", "none", file=self.name, offset=self._at)
        coded = Coded(value, self.name, self._at)
        return coded.varint(name) if size is None else coded.fixed(size, name)

    def _text(self, name: str) -> str:
        value = self._properties.get(name)
        if value is None:
            raise DamagedError(f"the property {name}", "none", file=self.name, offset=self._at)
        return value.decode("utf-8", "replace")

    @property
    def identity(self) -> str:
        """A digest of all that the file says of itself: footer, properties, deleted ranges, and its index.

        RocksDB writes into the properties which database wrote the file, when, and as which of its files. The index has
        where each block is and how large it is. What is in a block isn't looked at.
        """
        return once(self.file, "identity", self._identity)

    def _identity(self) -> str:
        hasher = new_hasher()
        hasher.update(self.stored.size.to_bytes(8, "big"))
        hasher.update(read_at(self.file, self.stored, self.stored.size - _FOOTER, _FOOTER).tobytes())
        handles = [self._meta_handle, self._meta[_PROPERTIES], self._index_handle]
        for handle in [*handles, *([self._meta[_RANGES]] if _RANGES in self._meta else [])]:
            hasher.update(read_at(self.file, self.stored, handle.offset, handle.size + TRAILER).tobytes())
        return digest_of(hasher)

    @property
    def names_its_database(self) -> bool:
        """Whether the file says which database wrote it, and in which session."""
        return bool(self._properties.get(_SESSION))

    def _handles(self, block: Bytes) -> Mapping[str, Handle]:
        at = self._meta_handle.offset
        return {
            name.decode("utf-8", "replace"): _handle(Coded(value, self.name, at), "a meta block")
            for name, value in entries(block, self.name, at)
        }

    def check_first(self, key: bytes) -> None:
        """Checks the file's first key against the one in the MANIFEST: it may be a file of another database."""
        smallest = self.live.smallest
        if key != smallest[:-8] if smallest[-8] < RANGE_DELETE else key < smallest[:-8]:
            raise self._strange("first", smallest, key)

    def check_last(self, key: bytes) -> None:
        """Checks the file's last key against the one in the MANIFEST. Where a deleted range ends, no entry has the key:
        RocksDB would look for it in the next file."""
        largest = self.live.largest
        if key != largest[:-8] if largest[-8] < RANGE_DELETE else key >= largest[:-8]:
            raise self._strange("last", largest, key)

    def _strange(self, which: str, expected: bytes, found: bytes) -> DamagedError:
        return DamagedError(f"the {which} key {_hex(expected[:-8])}, as the MANIFEST says", _hex(found), file=self.name)

    def deleted_ranges(self) -> list[DeletedRange]:
        """Returns the file's deleted ranges, within the first and last key that the MANIFEST says.

        A file may repeat a range that goes on in its neighbours. Outside its own keys it must not count: an entry there
        that is newer may have lost its sequence number.
        """
        handle = self._meta.get(_RANGES)
        if (handle is None) != (self.range_deletions == 0):
            raise DamagedError(
                f"{self.range_deletions} deleted ranges", "none" if handle is None else "some", file=self.name
            )
        if handle is None:
            return []
        ranges = []
        for key, end in entries(self.read_block(handle, _LARGEST_META), self.name, handle.offset):
            tag = int.from_bytes(key[-8:], "little")
            if len(key) < 8 or tag & 0xFF != RANGE_DELETE:
                raise DamagedError(
                    "a deleted range", f"an entry of type {tag & 0xFF}", file=self.name, offset=handle.offset
                )
            ranges.append(DeletedRange(key[:-8], end, tag >> 8))
        first, last = self.live.smallest[:-8], self.live.largest[:-8]
        # Ranges end before their end key, and a file that ends with a range has that key as its last.
        is_range = int.from_bytes(self.live.largest[-8:], "little") == _RANGE_END
        after = last if is_range else last + b"\0"
        clipped = [DeletedRange(max(one.start, first), min(one.end, after), one.sequence) for one in ranges]
        return [one for one in clipped if one.start < one.end]

    def deletes_within(self, low: bytes, after: bytes) -> bool:
        """Whether a deleted range has any of the keys from `low` on, before `after`. The file is closed then."""
        with self:
            return any(one.start < after and one.end > low for one in self.deleted_ranges())

    def indexes(self, low: bytes, high: bytes, only: Prefixes | None = None) -> Iterator[Index]:
        """Yields the data blocks that may have keys from `low` to `high`: all at once, or by parts of the index.

        With `only`, these are the blocks that may have keys with one of the prefixes.
        """
        only = EVERY_KEY if only is None else only
        top = self._index_of(self._index_handle, only).within(low, high)
        if not self._is_partitioned:
            yield top
            return
        for part in range(len(top)):
            own = self._index_of(top.handle(part), only)
            begins = own.begins and part == 0 and top.begins
            ends = own.ends and part == len(top) - 1 and top.ends
            yield replace(own, begins=begins, ends=ends).within(low, high)

    def _index_of(self, handle: Handle, only: Prefixes) -> Index:
        if only.has_every_key or len(only) > _MOST_KEPT:
            return self._read_index(handle, only)
        # With the prefixes, so that no others get the same place in memory meanwhile.
        what = ("index", handle.offset, id(only))
        return once(self.file, what, lambda: (only, self._read_index(handle, only)))[1]

    def _read_index(self, handle: Handle, only: Prefixes) -> Index:
        block = self.read_block(handle, _LARGEST_META)
        end = entries_end(block, len(block) - SLACK, self.name, handle.offset)
        restarts = (len(block) - SLACK - end) // 4 - 1
        room = max(4 * end, 1 << 10) if only.has_every_key else min(max(4 * end, 1 << 10), _ROOM_OF_SOME)
        while True:
            keys, bounds = np.zeros(room, np.uint8), np.zeros(min(end // 3 + 2, room // 4), np.int64)
            offsets, sizes = np.zeros((2, len(bounds)), np.int64)
            result, failure = np.zeros(3, np.int64), np.zeros(3, np.int64)
            count = kernels.index_entries(
                block, end, restarts, self._is_delta_coded, self._trailer, only.has_every_key, only.keys, only.bounds,
                keys, bounds, offsets, sizes, result, failure,
            )  # fmt: skip
            if count >= 0:
                break
            # Keys grow by at most what an entry adds to the one before, so a sound index fits in the end.
            if failure[0] != kernels.NEED_KEY or room > min(end * end + (1 << 10), _LARGEST_META):
                raise DamagedError(
                    "an entry of an index", "other bytes", file=self.name, offset=handle.offset + int(failure[1])
                )
            room *= 4
        index = Index(
            keys[: result[0]].copy(), bounds[: count + 1].copy(), offsets[:count].copy(), sizes[:count].copy(),
            self._trailer, bool(result[1]), bool(result[2]),
        )  # fmt: skip
        self._check_handles(index, handle.offset)
        return index

    def _check_handles(self, index: Index, at: int) -> None:
        if not len(index):
            # A file may consist of deleted ranges.
            return
        # Each by itself first: the sum of two large ones would be negative.
        is_inside = all(one.min() >= 0 and one.max() <= self.stored.size for one in (index.offsets, index.sizes))
        ends = index.offsets + index.sizes + TRAILER
        in_order = (index.offsets[1:] >= ends[:-1]).all()
        if not is_inside or (ends > self.stored.size).any() or not in_order:
            raise DamagedError("blocks inside the file, one behind the other", "others", file=self.name, offset=at)

    def read_block(self, handle: Handle, largest: int) -> Bytes:
        """Returns the content of a block, with `SLACK` bytes behind it, after a check of its checksum."""
        if handle.size > largest:
            raise DamagedError(
                f"a block of at most {largest} bytes", f"{handle.size}", file=self.name, offset=handle.offset
            )
        data = read_at(self.file, self.stored, handle.offset, handle.size + TRAILER, SLACK)
        begins, sizes = np.zeros(1, np.int64), np.array([handle.size], np.int64)
        offsets = np.array([handle.offset], np.int64)
        check_blocks(self.checksum, self.name, data, begins, sizes, offsets)
        kinds = data[handle.size : handle.size + 1]
        ends = content_sizes(self.name, data, begins, sizes, kinds, offsets)
        content = np.zeros(int(ends[0]) + SLACK, np.uint8)
        decompress_each(self.name, data, begins, sizes, kinds, content, ends, offsets)
        return content


def _hex(key: bytes) -> str:
    return key.hex() if len(key) <= _SHOWN else f"{key[:_SHOWN].hex()}... ({len(key)} bytes)"


def _handle(coded: Coded, what: str) -> Handle:
    return Handle(coded.varint(f"the offset of {what}"), coded.varint(f"the size of {what}"))
