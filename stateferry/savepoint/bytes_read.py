"""Which bytes of a savepoint were read, by digests: so that who reads its files later can tell if they are the same.

A keyed state file has a digest of its header and one of each key group, as they lie in the file, compressed or not; any
other file has one of all of it. What is inlined is part of `_metadata`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stateferry.errors import DamagedError
from stateferry.file_hash import digest_of
from stateferry.savepoint.metadata import InlineBytes, RelativeFile, StreamHandle

# In place of a key group's number.
HEADER, WHOLE = -1, -2


@dataclass(slots=True)
class BytesRead:
    """Digests by file, as `_metadata` names it, and part: a key group, the header or the whole."""

    files: dict[str, dict[int, str]] = field(default_factory=dict)

    def note(self, stream: StreamHandle, part: int, hasher: Any) -> None:
        """What was read of the part has gone into the hasher, from its beginning to its end."""
        if not isinstance(stream, InlineBytes):
            self.add(stream.path if isinstance(stream, RelativeFile) else stream.uri, part, digest_of(hasher))

    def add(self, file: str, part: int, digest: str) -> None:
        """Raises that a part isn't what it was when it was read before."""
        before = self.files.setdefault(file, {}).setdefault(part, digest)
        if before != digest:
            where = part if part >= 0 else None
            raise DamagedError("the same bytes when it is read again", "others", file=file, key_group=where)

    def take(self, other: BytesRead) -> None:
        for file, parts in other.files.items():
            for part, digest in parts.items():
                self.add(file, part, digest)

    def to_facts(self) -> dict[str, str]:
        """For JSON, a line for each file: `part:digest`, one after the other."""
        return {
            file: " ".join(f"{part}:{digest}" for part, digest in sorted(parts.items()))
            for file, parts in sorted(self.files.items())
        }

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> BytesRead:
        read = cls()
        for file, line in facts.items():
            for one in str(line).split():
                part, _, digest = one.rpartition(":")
                read.add(file, int(part), digest)
        return read
