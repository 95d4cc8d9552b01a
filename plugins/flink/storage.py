"""Finds savepoints in storage that this machine sees: local or mounted folders, and stores with a driver for fsspec."""

from __future__ import annotations

import logging
import re

import fsspec

_METADATA = "_metadata"
_NUMBER = re.compile(r"/chk-([0-9]+)/?$", re.ASCII)

_log = logging.getLogger(__name__)


def newest_completed(directory: str) -> str | None:
    """The savepoint in the directory that was completed last; None if there is none, or the directory can't be read.

    ``_metadata`` is written last and appears all at once, so a savepoint that has it is complete. Some stores know the
    time in whole seconds; of checkpoints of the same second, the one with the highest number is the last.
    """
    try:
        files, path = fsspec.url_to_fs(_as_fsspec_says(directory))
        # A store's driver caches listings for the lifetime of the process.
        files.invalidate_cache()
        found = files.find(path, maxdepth=2, detail=True) if files.isdir(path) else {}
    except (ImportError, OSError, ValueError) as error:
        _log.warning("can't look for savepoints in %s: %s: %s", directory, type(error).__name__, error)
        return None
    complete = {name: facts for name, facts in found.items() if name.endswith(f"/{_METADATA}") and facts["size"]}
    if not complete:
        return None
    folders = {name.removesuffix(f"/{_METADATA}"): _written(facts) for name, facts in complete.items()}
    newest = max(folders, key=lambda folder: (folders[folder], checkpoint_number(folder)))
    return f"{directory.rstrip('/')}/{newest.rpartition('/')[2]}"


def checkpoint_number(location: str) -> int:
    """The number of a checkpoint, by the name that Flink gives its folder; -1 if it is none."""
    found = _NUMBER.search(location)
    return int(found[1]) if found else -1


def _as_fsspec_says(directory: str) -> str:
    """The directory in fsspec's form: Flink writes ``file:/folder``, fsspec needs ``file:///folder``."""
    rest = directory.removeprefix("file:")
    return f"file://{rest}" if rest != directory and not rest.startswith("//") else directory


def _written(facts: dict[str, object]) -> str:
    """When a file was written, comparable within one file system; each driver has another name for it."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "modified", "created"):
        if name in facts:
            value = facts[name]
            return f"{value:020.6f}" if isinstance(value, (int, float)) else str(value)
    return str(facts["name"])
