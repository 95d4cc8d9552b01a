"""A checkpoint of a running job, held by further names of its files, so that Flink may drop it while it is needed.

Flink keeps as many checkpoints as the job retains, by default one, and removes what an older one alone has.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import AbsoluteFile, FileSegment, RelativeFile, StreamHandle
from flinkstate.metadata.parse_metadata import parse_metadata


def hold(checkpoint: Location, folder: Location) -> Location:
    """Returns a checkpoint in the folder that has the same files, by further names; the checkpoint itself if none can.

    Files have further names on their own disk alone. Raises an error if Flink has dropped the checkpoint meanwhile.
    """
    if not (checkpoint.is_local and folder.is_local):
        return checkpoint
    if folder.child(METADATA).is_file():
        return folder
    folder.remove()
    folder.make_folder()
    file = checkpoint.child(METADATA)
    if (content := file.read_if_there()) is None:
        raise _dropped(file.shown)
    metadata = parse_metadata(content, file.shown)
    names: dict[str, str] = {}
    try:
        completed = file.modified_at() / 1000
        operators = tuple(
            replace(one, subtasks=tuple(of.with_streams(lambda stream: _held(stream, checkpoint, folder, names))
                                        for of in one.subtasks))
            for one in metadata.operators
        )  # fmt: skip
    except FileNotFoundError as error:
        raise _dropped(str(error.filename)) from None
    except OSError:
        folder.remove()
        return checkpoint
    draft = folder.child(METADATA).draft()
    draft.write_atomically(build_metadata(replace(metadata, operators=operators)))
    os.utime(draft.path, (completed, completed))
    draft.replace(folder.child(METADATA))
    return folder


def _dropped(file: str) -> DamagedError:
    return DamagedError("all files of the checkpoint", "that Flink has dropped it", file=file)


def _held(stream: StreamHandle, checkpoint: Location, folder: Location, names: dict[str, str]) -> StreamHandle:
    """The file by another name in the folder."""
    match stream:
        case RelativeFile(path, size):
            place = checkpoint.child(path)
        case AbsoluteFile(uri, size):
            place = Location.of(uri)
        case FileSegment():
            raise OSError("it has a part of a file")
        case _:
            return stream
    if not place.is_local:
        raise OSError("it is on a store")
    name = names.setdefault(place.path, f"{len(names)}-{place.name}")
    with suppress(FileExistsError):
        os.link(place.path, folder.child(name).path)
    return RelativeFile(name, size)
