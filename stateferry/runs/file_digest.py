"""A savepoint's files to the byte, so that what was validated and what is published can be held to be the same."""

from __future__ import annotations

from dataclasses import dataclass

from stateferry.file_hash import digest_of, hasher_of
from stateferry.runs.report import FileFingerprint
from stateferry.savepoint.metadata import AbsoluteFile, InlineBytes, RelativeFile, StreamHandle
from stateferry.savepoint.reader import METADATA, Savepoint
from stateferry.savepoint.storage import Location
from stateferry.savepoint.streams import open_stream


@dataclass(frozen=True, slots=True)
class DigestTask:
    """One file of the savepoint in `folder`."""

    folder: Location
    stream: AbsoluteFile | RelativeFile

    def take(self) -> tuple[str, FileFingerprint]:
        file, _, size = open_stream(self.folder, self.stream)
        with file:
            return self.name, FileFingerprint(size, digest_of(hasher_of(file)))

    @property
    def name(self) -> str:
        """As `_metadata` has it."""
        return self.stream.path if isinstance(self.stream, RelativeFile) else self.stream.uri

    @property
    def uri(self) -> str:
        return self.folder.child(self.stream.path).uri if isinstance(self.stream, RelativeFile) else self.stream.uri


def digest_tasks(savepoint: Savepoint) -> list[DigestTask]:
    """`_metadata`, and every file of the savepoint once; inlined state is in the former."""
    streams: dict[StreamHandle, None] = {RelativeFile(METADATA, savepoint.folder.child(METADATA).size()): None}
    for operator in savepoint.metadata.operators:
        for subtask in operator.subtasks:
            streams.update(dict.fromkeys(subtask.streams()))
    return [DigestTask(savepoint.folder, stream) for stream in streams if not isinstance(stream, InlineBytes)]
