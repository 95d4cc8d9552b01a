"""Writes the MANIFEST of a new database: one whose files are all on the lowest level, or also on level 0 above it.

The layout of both files is that of `manifest.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flinkstate.rocksdb import write_kernels as kernels
from flinkstate.rocksdb.live_files import LiveFile
from flinkstate.rocksdb.manifest import COMPARATOR
from flinkstate.serializers.binary import varint

_BLOCK = 1 << 15
_HEADER = 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_COMPARATOR, _LOG, _NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG = 1, 2, 3, 4, 9
_NEW_FILE, _COLUMN_FAMILY, _ADD, _LARGEST_FAMILY = 103, 200, 201, 203
_NO_MORE = 1

NAME = "MANIFEST-000001"
CURRENT = f"{NAME}\n".encode()
# The MANIFEST has the number before.
FIRST_FILE = 2


@dataclass(frozen=True, slots=True)
class NewFamily:
    """A column family and its files. Number 0 is the default one."""

    id: int
    name: str
    files: Sequence[LiveFile]


def manifest_bytes(families: Sequence[NewFamily], next_file: int) -> bytes:
    """Returns the MANIFEST of a database with these column families, besides the default one, which is empty."""
    return b"".join(_log(_edits(families, next_file)))


def _edits(families: Sequence[NewFamily], next_file: int) -> Iterator[bytes]:
    largest = max((family.id for family in families), default=0)
    last = max((file.sequences[1] for family in families for file in family.files), default=0)
    yield _text(_COMPARATOR, COMPARATOR) + _numbers(
        _LOG, 0, _PREVIOUS_LOG, 0, _NEXT_FILE, next_file, _LAST_SEQUENCE, last, _LARGEST_FAMILY, largest
    )
    for family in families:
        yield (
            _numbers(_COLUMN_FAMILY, family.id)
            + _text(_ADD, family.name)
            + _text(_COMPARATOR, COMPARATOR)
            + _numbers(_LOG, 0)
        )
    for family in families:
        for file in family.files:
            yield (
                _numbers(_COLUMN_FAMILY, family.id, _NEW_FILE, file.level, file.number, file.size)
                + _sized(file.smallest)
                + _sized(file.largest)
                + _numbers(*file.sequences, _NO_MORE)
            )


def _log(records: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the parts of a log, none of which goes beyond the end of its block."""
    position = 0
    for record in records:
        rest, begun = record, False
        while rest or not begun:
            left = _BLOCK - position % _BLOCK
            if left < _HEADER:
                yield bytes(left)
                position += left
                continue
            part, rest = rest[: left - _HEADER], rest[left - _HEADER :]
            kind = (_MIDDLE if begun else _FIRST) if rest else (_LAST if begun else _WHOLE)
            checked = bytes([kind]) + part
            padded = np.frombuffer(checked + bytes(kernels.SLACK), np.uint8)
            checksum = int(kernels.record_checksum(padded, 0, len(checked)))
            yield struct.pack("<IH", checksum, len(part)) + checked
            position += _HEADER + len(part)
            begun = True


def _numbers(*values: int) -> bytes:
    return b"".join(map(varint, values))


def _text(tag: int, value: str) -> bytes:
    return varint(tag) + _sized(value.encode())


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data
