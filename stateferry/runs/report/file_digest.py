"""Digests of a savepoint's files, which prove that the files that are published are those that were validated."""

from __future__ import annotations

from dataclasses import dataclass

from flinkstate.files.digests import digest_of, hasher_of
from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import EmptySegment, FileHandle, InlineBytes, RelativeFile, StreamHandle
from flinkstate.metadata.streams import open_stream
from flinkstate.reading.reader import Savepoint
from stateferry.runs.report.report import FileDigest


@dataclass(frozen=True, slots=True)
class DigestTask:
    """One file of the savepoint in `folder`."""

    folder: Location
    stream: FileHandle

    def take(self) -> tuple[str, FileDigest]:
        """The file's name, and the size and digest of its content."""
        file, _, size = open_stream(self.folder, self.stream)
        with file:
            return self.stream.name, FileDigest(size, digest_of(hasher_of(file)))

    @property
    def uri(self) -> str:
        """The file's full address."""
        return self.folder.child(self.stream.path).uri if isinstance(self.stream, RelativeFile) else self.stream.name


def digest_tasks(savepoint: Savepoint) -> list[DigestTask]:
    """One task for `_metadata`, and one for each state file; state that is inlined is in `_metadata` itself."""
    streams: dict[StreamHandle, None] = {RelativeFile(METADATA, savepoint.folder.child(METADATA).size()): None}
    for operator in savepoint.metadata.operators:
        for subtask in operator.subtasks:
            streams.update(dict.fromkeys(subtask.streams()))
    return [
        DigestTask(savepoint.folder, stream) for stream in streams if not isinstance(stream, InlineBytes | EmptySegment)
    ]
