"""What the files in a savepoint's folder are called by who writes them here."""

from __future__ import annotations

import re

from stateferry.savepoint.storage import Location

METADATA = "_metadata"

_STATE_FILE = r"[0-9a-f]{32}-(keyed|operator|raw-operator|raw-keyed)-\d{5}"
_DRAFT = re.compile(rf"({_STATE_FILE}|{METADATA})\.[0-9a-f]{{32}}\.draft")
_OWN_FILES = re.compile(rf"{_STATE_FILE}|{_DRAFT.pattern}")


def is_state_file(name: str) -> bool:
    """Whether it is a name of the files here, but for `_metadata`."""
    return _OWN_FILES.fullmatch(name) is not None


def remove_drafts(folder: Location) -> None:
    """What writers that were killed left behind; one that is still at work finds its draft gone, and fails."""
    for entry in folder.entries():
        if _DRAFT.fullmatch(entry.name):
            entry.remove()
