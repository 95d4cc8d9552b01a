"""A savepoint's content in figures: of every state file its size and a 64-bit checksum of its bytes, and likewise of
what `_metadata` says apart from where the files lie, so that a savepoint may be described from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from stateferry.errors import DamagedError
from stateferry.migration.kernels import hash_each
from stateferry.runs.report import FileFingerprint, SavepointFingerprint
from stateferry.savepoint.metadata import (
    VERSIONS,
    InlineBytes,
    KeyedHandle,
    Metadata,
    OperatorHandle,
    RelativeFile,
    Subtask,
    build_metadata,
)
from stateferry.savepoint.reader import METADATA, Savepoint
from stateferry.savepoint.storage import Location
from stateferry.savepoint.streams import open_stream

# A file's checksum depends on where it is cut.
_AT_ONCE = 8 << 20
_SEED = 0x5851F42D4C957F2D

BytesRead = Callable[[int], None]
Handle = TypeVar("Handle", OperatorHandle, KeyedHandle)


def fingerprint_of(savepoint: Savepoint, bytes_read: BytesRead = lambda _: None) -> SavepointFingerprint:
    """Reads all of it once; `bytes_read` hears of each part as it is done."""
    summer = _Summer(savepoint.folder, bytes_read)
    operators = tuple(
        replace(operator, subtasks=tuple(summer.subtask(operator.hex_id, subtask) for subtask in operator.subtasks))
        for operator in savepoint.metadata.operators
    )
    summer.files[METADATA] = _of_metadata(replace(savepoint.metadata, operators=operators))
    return SavepointFingerprint(savepoint.folder.shown, savepoint.metadata.checkpoint_id, summer.files)


class _Summer:
    """Sums up files, and gives each a name by what it holds."""

    def __init__(self, folder: Location, bytes_read: BytesRead) -> None:
        self.files: dict[str, FileFingerprint] = {}
        self._folder, self._bytes_read = folder, bytes_read
        self._buffer = np.empty(_AT_ONCE, np.uint8)

    def subtask(self, operator: str, subtask: Subtask) -> Subtask:
        return replace(
            subtask,
            managed_operator=self._handle(subtask.managed_operator, f"{operator}-operator-{subtask.index:05d}"),
            raw_operator=self._handle(subtask.raw_operator, f"{operator}-raw-operator-{subtask.index:05d}"),
            managed_keyed=self._handle(subtask.managed_keyed, f"{operator}-keyed-{subtask.index:05d}"),
            raw_keyed=self._handle(subtask.raw_keyed, f"{operator}-raw-keyed-{subtask.index:05d}"),
        )

    def _handle(self, handle: Handle | None, name: str) -> Handle | None:
        if handle is None or isinstance(handle.stream, InlineBytes):
            return handle
        file, shown, size = open_stream(self._folder, handle.stream)
        with file:
            self.files[name] = self._sum(file, shown, size)
        return replace(handle, stream=RelativeFile(name, size))

    def _sum(self, file: Any, shown: str, size: int) -> FileFingerprint:
        checksum, position = np.full(1, _SEED, np.uint64), 0
        while position < size:
            wanted = min(_AT_ONCE, size - position)
            filled = 0
            while filled < wanted:
                got = int(file.readinto(self._buffer[filled:wanted]))
                if got == 0:
                    raise DamagedError(f"{size} bytes", f"{position + filled}", file=shown)
                filled += got
            checksum = _add(self._buffer, wanted, checksum)
            self._bytes_read(wanted)
            position += wanted
        return _fingerprint(size, checksum)


def _of_metadata(metadata: Metadata) -> FileFingerprint:
    # The oldest version can only be read.
    data = build_metadata(replace(metadata, version=max(metadata.version, VERSIONS[1])))
    checksum = _add(np.frombuffer(bytearray(data), np.uint8), len(data), np.full(1, _SEED, np.uint64))
    return _fingerprint(len(data), checksum)


def _add(data: Any, size: int, checksum: Any) -> Any:
    added = np.empty(1, np.uint64)
    hash_each(data, np.zeros(1, np.int64), np.full(1, size, np.int64), checksum, added)
    return added


def _fingerprint(size: int, checksum: Any) -> FileFingerprint:
    return FileFingerprint(size, f"{int(checksum[0]):016x}")
