"""The names that Stateferry gives to the files in a savepoint's folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from flinkstate.files.storage import Location, side_by_side

METADATA = "_metadata"

# Behind the number of a native subtask is the name that the file has in its database.
_NATIVE = r"native-\d{5}-(\d{6,}\.sst|[A-Za-z]+(-\d{6,})?)"
_STATE_FILE = rf"[0-9a-f]{{32}}-((keyed|operator|raw-operator|raw-keyed)-\d{{5}}|{_NATIVE})"
_DRAFT = re.compile(rf"({_STATE_FILE}|{METADATA})\.[0-9a-f]{{32}}\.draft")
# A draft of a claim is one already.
_CLAIM = re.compile(r"([0-9A-Za-z._-]{1,100})\.claim(\.[0-9a-f]{32}\.draft)?")
_METADATA_DRAFT = re.compile(rf"{METADATA}\.[0-9a-f]{{32}}\.draft")
_OWN_FILES = re.compile(rf"{_STATE_FILE}|{_CLAIM.pattern}|{_DRAFT.pattern}")


def is_state_file(name: str) -> bool:
    """Whether a writer here gives files this name; also true of drafts and claims, but not of `_metadata` itself."""
    return _OWN_FILES.fullmatch(name) is not None


def claim_name(run_id: str) -> str:
    """The name of the empty file by which a run says that it writes into this folder."""
    return f"{run_id}.claim"


def claimed_by(name: str) -> str | None:
    """The run whose claim has this name; None if the file is no claim."""
    found = _CLAIM.fullmatch(name)
    return found and found[1]


def drafts(folder: Location) -> list[Location]:
    """Returns the drafts in a folder. They belong to writers that were killed, or that are still at work.

    The names don't tell these apart. Object stores have no drafts and are not listed.
    """
    if folder.is_object_store:
        return []
    return [entry for entry in folder.entries() if _DRAFT.fullmatch(entry.name)]


def complete_savepoints(where: Location, among: Iterable[Location] | None = None) -> Iterator[tuple[int, Location]]:
    """Yields the complete savepoints in a folder, and before each when it was completed, in milliseconds.

    They are those with `_metadata`, which is written last. `among` are the folders to look at, else all.
    """
    folders = where.folders() if among is None else among
    for folder, at in side_by_side(where, lambda one: (one, one.child(METADATA).changed_at_if_file()), folders):
        if at is not None:
            yield at, folder


def is_draft_of_metadata(file: Location) -> bool:
    """Whether the file has the name of a draft of `_metadata`."""
    return _METADATA_DRAFT.fullmatch(file.name) is not None
