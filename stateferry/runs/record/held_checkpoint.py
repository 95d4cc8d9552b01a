"""A checkpoint of a running job, held by further names of its files, so that Flink may drop it while it is needed.

Flink keeps as many checkpoints as the job retains, by default one, and removes what an older one alone has.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from flinkstate.errors import DamagedError, UsageError
from flinkstate.files.storage import Location
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA, complete_savepoints
from flinkstate.metadata.metadata import AbsoluteFile, FileSegment, RelativeFile, StreamHandle
from flinkstate.metadata.parse_metadata import parse_metadata

_CHECKPOINT = re.compile(r"chk-([0-9]+)", re.ASCII)
# On a busy machine, a job that completes two checkpoints in a second has dropped one before all of it is held.
_SECONDS_TO_HOLD, _SECONDS_BETWEEN = 30.0, 0.1


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


def hold_newest(newest: Callable[[], str], folder: Location) -> Location:
    """The checkpoint that the call names, or a newer one beside it, held in the folder.

    What Flink says may be seconds old, and the checkpoint dropped since.
    """
    end = time.monotonic() + _SECONDS_TO_HOLD
    while True:
        try:
            place = Location.of(newest())
            if place.is_local and place.parent.is_folder():
                place = Location.of(newest_checkpoint_in(place.parent.shown, None))
            return hold(place, folder)
        except (DamagedError, UsageError, FileNotFoundError):
            if time.monotonic() > end:
                raise
            time.sleep(_SECONDS_BETWEEN)


def newest_checkpoint_in(folder: str, as_of: datetime | None) -> str:
    """The complete checkpoint (`chk-N` with `_metadata`) in the folder with the highest number.

    If a moment is given, it is the newest that was completed by then.
    """
    where = Location.of(folder)
    if not where.is_folder():
        raise UsageError(f"there is no folder of checkpoints {where.shown}")
    found = [entry for entry in where.folders() if _CHECKPOINT.fullmatch(entry.name)]
    complete = {
        number_of(checkpoint.name): (at, checkpoint.shown) for at, checkpoint in complete_savepoints(where, found)
    }
    limit = None if as_of is None else int(as_of.timestamp() * 1000)
    eligible = {number: path for number, (at, path) in complete.items() if limit is None or at <= limit}
    if not eligible:
        raise UsageError(no_checkpoint(f"{where.shown} has no complete checkpoint chk-N", as_of, len(complete)))
    return eligible[max(eligible)]


def number_of(checkpoint: str) -> int:
    """The number of a checkpoint by the name of its folder."""
    return int(checkpoint.rpartition("chk-")[2])


def no_checkpoint(what: str, as_of: datetime | None, newer: int) -> str:
    """That there is no such checkpoint, and what to do."""
    if as_of is None:
        return f"{what} that is complete and whose files are there: turn on checkpoints, and retain them"
    return (
        f"{what} that was completed by {as_of.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC; {newer} are newer. A job "
        "replaces its checkpoints by newer ones. A day is backfilled from what was complete by then: name a folder "
        "that still has the day's savepoint (source 'folder')"
    )


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
