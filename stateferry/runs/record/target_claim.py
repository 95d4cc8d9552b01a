"""What the target folder holds, and the claim by which a run says that it writes there."""

from __future__ import annotations

import os
from enum import Enum

from flinkstate.errors import UsageError
from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA, claim_name, claimed_by, is_state_file


class TargetContent(Enum):
    """What the target folder holds, if this run may continue there."""

    NOTHING = "nothing"
    FILES_OF_THIS_RUN = "files of this run"
    THIS_PUBLICATION = "this publication"


def target_content(
    target: str, *, claimed: bool, published_metadata: bytes | None = None, run_id: str = ""
) -> TargetContent:
    """Finds what the target holds, and refuses anything that isn't this run's.

    `claimed` says whether this run has begun to write there before. `published_metadata` is the `_metadata` that this
    run has published or will publish. A claim of the run `run_id` doesn't count.
    """
    folder = Location.of(target)
    names = [entry.name for entry in folder.entries() if not run_id or claimed_by(entry.name) != run_id]
    if not names and folder.is_file():
        raise UsageError(f"target {folder.shown} is a file; a savepoint is a folder: choose another target")
    foreign = sorted(name for name in names if name != METADATA and not is_state_file(name))
    if foreign:
        raise UsageError(f"target {folder.shown} is not empty, it holds {foreign[0]}: choose another target")
    if METADATA in names:
        if published_metadata is not None and folder.child(METADATA).read() == published_metadata:
            return TargetContent.THIS_PUBLICATION
        raise UsageError(f"target {folder.shown} already holds another savepoint: choose another target")
    if names and not claimed:
        raise UsageError(
            f"target {folder.shown} holds state files of another run that was not published: continue that run "
            "(give its command again), remove the files, or choose another target"
        )
    check_can_be_made(target)
    return TargetContent.FILES_OF_THIS_RUN if names else TargetContent.NOTHING


def check_can_be_made(target: str) -> None:
    """Refuses a target on a disk whose folder can't be made, or can't be written into. It makes nothing itself.

    Of a store only a write shows that.
    """
    folder = Location.of(target)
    if not folder.is_local:
        return
    present = folder.path
    while not os.path.lexists(present):
        present = os.path.dirname(present)
    if not os.path.isdir(present):
        raise UsageError(f"target {folder.shown} can't be made: {present} is no folder: choose another target")
    if not os.access(present, os.W_OK | os.X_OK):
        raise UsageError(
            f"target {folder.shown} can't be written: there is no permission to write into {present}: give it, or "
            "choose another target"
        )


def claim_target(target: str, run_id: str, *, claimed: bool) -> None:
    """Says in the target that this run writes there, and refuses a target that another run has claimed.

    Two runs of different jobs or homes may find the same target empty at the same time, and their files have the same
    names. Each writes its claim first, and then looks for others, so at least one of them sees the other.
    """
    folder = Location.of(target)
    own = folder.child(claim_name(run_id))
    folder.make_folder()
    own.write_atomically(b"")
    try:
        for other in {claimed_by(entry.name) for entry in folder.entries()} - {run_id, None}:
            raise UsageError(
                f"target {folder.shown} is claimed by run {other}, which is not this one ({run_id}): "
                "give each run its own target. If that run has ended and is not to go on, remove the files"
            )
        target_content(target, claimed=claimed, run_id=run_id)
    except UsageError:
        own.remove()
        raise
