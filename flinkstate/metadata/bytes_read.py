"""Digests of the bytes of a savepoint that were read. A later reader compares them to know that the files are the same.

A keyed state file has a digest of its header and one of each key group, as they are in the file, compressed or not. Any
other file has one digest of the whole. State that is inlined is part of `_metadata` and has none.

A subtask's RocksDB database has a digest of its header and, under the same name, one of the rows of each key group.
Each of its SST files has a digest of what the file says of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flinkstate.errors import DamagedError
from flinkstate.files.digests import digest_of
from flinkstate.metadata.metadata import InlineBytes, StreamHandle

# These take the place of a key group's number.
HEADER, WHOLE, SST = -1, -2, -3


@dataclass(slots=True)
class BytesRead:
    """Digests by file (named as in `_metadata`) and part: a key group's number, `HEADER`, `WHOLE` or `SST`."""

    files: dict[str, dict[int, str]] = field(default_factory=dict)

    def note(self, stream: StreamHandle, part: int, hasher: Any) -> None:
        """Notes the digest of a part, all of whose bytes were given to the hasher."""
        if not isinstance(stream, InlineBytes):
            self.add(stream.name, part, digest_of(hasher))

    def add(self, file: str, part: int, digest: str) -> None:
        """Notes a digest. Raises `DamagedError` if the part had other bytes when it was read before."""
        before = self.files.setdefault(file, {}).setdefault(part, digest)
        if before != digest:
            where = part if part >= 0 else None
            raise DamagedError(
                "the same bytes as when it was read before",
                "other bytes: the file has changed meanwhile",
                file=file,
                key_group=where,
            )

    def take(self, other: BytesRead) -> None:
        """Adds all digests of the other."""
        for file, parts in other.files.items():
            for part, digest in parts.items():
                self.add(file, part, digest)

    def to_facts(self) -> dict[str, str]:
        """Returns the digests for JSON: for each file one line of `part:digest`, separated by spaces."""
        return {
            file: " ".join(f"{part}:{digest}" for part, digest in sorted(parts.items()))
            for file, parts in sorted(self.files.items())
        }

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> BytesRead:
        """Returns the digests that `to_facts` wrote."""
        read = cls()
        for file, line in facts.items():
            for one in str(line).split():
                part, _, digest = one.rpartition(":")
                read.add(file, int(part), digest)
        return read
