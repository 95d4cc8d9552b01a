"""Checks the layout of keyed state files of full checkpoints, and of savepoints from before Flink 1.13.

RocksDB and the HashMap backend write different layouts, but the handle (type 3, or 12) is the same. The HashMap backend
still writes them; RocksDB did up to Flink 1.14:

| backend | at a key group's offset |
|---|---|
| RocksDB | as in every later canonical savepoint: i16 state id, i32 key length, a key that begins with the key group |
| HashMap | i32 key group, then for each state i16 state id, i32 number of entries, and the entries |

In a compressed file, a key group of RocksDB is one snappy stream; the HashMap backend writes the key group's number,
then one snappy stream for each state. The HashMap backend gives every key group an offset, RocksDB only those that have
data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.compression import STREAM_START
from flinkstate.metadata.key_group_extents import KeyGroupExtent
from flinkstate.metadata.parse_metadata import HOW_TO_TAKE_ONE_WITH_ANY_FLINK

_HEAD = 4 + len(STREAM_START)
_END_OF_GROUP = b"\xff\xff"
_LAST_ENTRY = 0x80


def expect_canonical(
    file: Any, name: str, extents: list[KeyGroupExtent], key_groups: int, prefix: int, *, compressed: bool
) -> None:
    """Raises unless the file certainly has RocksDB's layout.

    `extents` are the key groups that have an offset; `key_groups` is the number of all key groups of the handle.
    """
    if not extents:
        return
    heads = [_Head.read(file, extent) for extent in extents]
    canonical = [head.may_be_canonical(prefix, compressed=compressed) for head in heads]
    if len(extents) == key_groups and all(head.may_be_of_heap(compressed=compressed) for head in heads):
        if all(canonical):
            raise RefusedError(
                f"{name}: this file may have either of Flink's two layouts, and _metadata doesn't say which. It "
                "belongs to a full checkpoint, or to a savepoint from before Flink 1.13; "
                f"{HOW_TO_TAKE_ONE_WITH_ANY_FLINK}"
            )
        raise RefusedError(
            f"{name}: this file has the HashMap backend's own layout, which Stateferry can't read. It belongs to a "
            "checkpoint or a native savepoint of this backend, or to one of its savepoints from before Flink 1.13; "
            f"{HOW_TO_TAKE_ONE_WITH_ANY_FLINK}"
        )
    if not all(canonical):
        wrong = extents[canonical.index(False)]
        raise DamagedError(
            "a key group in the layout of RocksDB or of the HashMap backend",
            "another beginning or end",
            file=name,
            key_group=wrong.key_group,
            offset=wrong.start,
        )


@dataclass(frozen=True, slots=True)
class _Head:
    """A key group's first bytes and its last two."""

    extent: KeyGroupExtent
    head: bytes
    tail: bytes

    @classmethod
    def read(cls, file: Any, extent: KeyGroupExtent) -> _Head:
        size = extent.end - extent.start
        file.seek(extent.start)
        head = bytes(file.read(min(_HEAD, size)))
        file.seek(extent.end - min(2, size))
        return cls(extent, head, bytes(file.read(min(2, size))))

    def may_be_canonical(self, prefix: int, *, compressed: bool) -> bool:
        if compressed:
            return self.head.startswith(STREAM_START)
        key = self.head[6 : 6 + prefix]
        if self.tail != _END_OF_GROUP or len(key) < prefix:
            return False
        room = self.extent.end - self.extent.start - 2 - 4 - 4 - 2
        group = int.from_bytes(key, "big") & ~(_LAST_ENTRY << 8 * (prefix - 1))
        return group == self.extent.key_group and prefix < int.from_bytes(self.head[2:6], "big") <= room

    def may_be_of_heap(self, *, compressed: bool) -> bool:
        if self.head[:4] != self.extent.key_group.to_bytes(4, "big"):
            return False
        if compressed:
            return self.head[4 : 4 + len(STREAM_START)] == STREAM_START
        return int.from_bytes(self.head[6:10], "big") <= self.extent.end - self.extent.start
