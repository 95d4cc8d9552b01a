"""A checkpoint of a running job, held by further names of its files, so that Flink may drop it while it is needed.

On S3, where a file has no further names, it is held by copies that S3 makes. Flink keeps as many checkpoints as the job
retains, by default one, and removes what an older one alone has.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from flinkstate.errors import DamagedError, StateferryError, TransientError, UsageError
from flinkstate.files.storage import Location, side_by_side
from flinkstate.files.stores import MOST_COPIED_BY_S3
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA, complete_savepoints
from flinkstate.metadata.metadata import AbsoluteFile, FileSegment, RelativeFile, StreamHandle
from flinkstate.metadata.parse_metadata import parse_metadata

_CHECKPOINT = re.compile(r"chk-([0-9]+)", re.ASCII)
# On a busy machine, a job that completes two checkpoints in a second has dropped one before all of it is held.
_SECONDS_TO_HOLD, _SECONDS_BETWEEN = 30.0, 0.1
# S3 may need longer than that for a large state: a later try copies only what is new since the one before.
_LEAST_TRIES = 5
_NOT_HELD = (
    "can't be held beside the run, so let the job retain more checkpoints (execution.checkpointing.num-retained; after "
    "a stop with a savepoint it retains none) while something is read of it"
)


class _CannotError(Exception):
    """The files can't be held."""


def hold(checkpoint: Location, folder: Location, say: Callable[[str], None]) -> Location:
    """Returns a checkpoint in the folder that has the same files; if there can't be one, itself, and says why.

    Files have further names on their own disk alone. Raises an error if Flink has dropped the checkpoint meanwhile.
    """
    if not checkpoint.may_give_to(folder):
        say(f"{checkpoint.shown} {_NOT_HELD}: it and {folder.shown} are neither on disks nor on S3 both")
        return checkpoint
    if folder.child(METADATA).is_file():
        return folder
    if folder.is_local:
        folder.remove()
    folder.make_folder()
    file = checkpoint.child(METADATA)
    if (content := file.read_if_there()) is None:
        raise _dropped(file.shown)
    metadata = parse_metadata(content, file.shown)
    completed, files = file.modified_at() / 1000, dict[str, Location]()
    try:
        operators = tuple(
            replace(one, subtasks=tuple(of.with_streams(lambda stream: _held(stream, checkpoint, folder, files))
                                        for of in one.subtasks))
            for one in metadata.operators
        )  # fmt: skip
        there = {one.name for one in folder.entries()}
        wanted = [(place, folder.child(name)) for name, place in files.items() if name not in there]
        for _ in side_by_side(folder, _hold_file, wanted):
            pass
    except _CannotError as error:
        folder.remove()
        say(f"{checkpoint.shown} {_NOT_HELD}: {error}")
        return checkpoint
    content, place = build_metadata(replace(metadata, operators=operators)), folder.child(METADATA)
    if not place.is_local:
        # Nobody can set the time of an object, so it says when the checkpoint was held.
        place.write_atomically(content)
        return folder
    draft = place.draft()
    draft.write_atomically(content)
    os.utime(draft.path, (completed, completed))
    draft.replace(place)
    return folder


def hold_newest(newest: Callable[[], str], folder: Location, say: Callable[[str], None]) -> Location:
    """The checkpoint that the call names, or a newer one beside it, held in the folder if it can be.

    What Flink says may be seconds old, and the checkpoint dropped since.
    """
    end, tries = time.monotonic() + _SECONDS_TO_HOLD, 0
    while True:
        try:
            tries += 1
            place = Location.of(newest())
            if place.may_give_to(folder) and place.parent.is_folder():
                place = Location.of(newest_checkpoint_in(place.parent.shown, None))
            return hold(place, folder, say)
        except (DamagedError, UsageError, FileNotFoundError):
            if tries >= _LEAST_TRIES and time.monotonic() > end:
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


def _held(stream: StreamHandle, checkpoint: Location, folder: Location, files: dict[str, Location]) -> StreamHandle:
    """The file by its name in the folder, which is kept with it in `files`."""
    match stream:
        case RelativeFile(path, size):
            place = checkpoint.child(path)
        case AbsoluteFile(uri, size):
            place = Location.of(uri)
        case FileSegment():
            raise _CannotError("it has parts of merged files")
        case _:
            return stream
    if not place.may_give_to(folder) or (place.is_on_s3 and size > MOST_COPIED_BY_S3):
        raise _CannotError(f"{place.shown} is elsewhere, or too large to be copied")
    # The same in every try.
    name = f"{hashlib.sha256(place.path.encode()).hexdigest()[:16]}-{place.name}"
    files[name] = place
    return RelativeFile(name, size)


def _hold_file(of: tuple[Location, Location]) -> None:
    place, held = of
    try:
        given = place.give_to(held)
    except DamagedError:
        raise _dropped(place.shown) from None
    except TransientError:
        raise
    except StateferryError as error:
        # S3 may let us read it, and not copy it.
        raise _CannotError(str(error)) from None
    if given is None:
        raise _CannotError(f"{place.shown} can't be linked") if place.is_file() else _dropped(place.shown)
