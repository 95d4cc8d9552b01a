"""Gives a published savepoint the permissions of its source, because Flink often runs as another user.

| in the target | gets permissions, group and, where the system allows it, owner of |
|---|---|
| its folder, and the folders above it that the run made | the source's folder; their owner may write |
| state files | the source's files: what all of them permit; if there are none, its `_metadata` |
| `_metadata` | the source's `_metadata` |

Storage other than a local disk has other means of access. A target there is not changed. A source there is treated as
if it had been written with the user's own umask. While the target is written, it has the same permissions as all other
files of the run.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA, is_state_file
from flinkstate.metadata.metadata import AbsoluteFile, FileSegment, Metadata, RelativeFile
from stateferry.basics.private_files import usual_umask

_PERMISSIONS = 0o777
_THROUGH = 0o011


@dataclass(frozen=True, slots=True)
class Access:
    """Permissions, owner and group of a file or folder; -1 leaves the owner or group as it is."""

    mode: int
    user: int = -1
    group: int = -1

    @classmethod
    def of(cls, path: str) -> Access:
        """The access of an existing file or folder."""
        found = os.stat(path)
        return cls(stat.S_IMODE(found.st_mode) & _PERMISSIONS, found.st_uid, found.st_gid)

    def give_to(self, path: str) -> None:
        """Sets permissions, owner and group as far as the system allows; another user's files may stay as they are."""
        with suppress(OSError):
            # Only root may change the owner; other users may only choose one of their own groups.
            os.chown(path, self.user if os.geteuid() == 0 else -1, self.group)
        with suppress(OSError):
            os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~_PERMISSIONS | self.mode)


@dataclass(frozen=True, slots=True)
class TargetAccess:
    """The access that the parts of a target get; `made` are the folders above the target that didn't exist."""

    folder: Access
    files: Access
    metadata: Access
    made: tuple[str, ...]

    @classmethod
    def like(cls, source: Location, metadata: Metadata, target: Location, before: TargetAccess | None) -> TargetAccess:
        """The same access as the source; `before` is what was found when the target was first claimed."""
        made = before.made if before is not None else tuple(_missing_above(target))
        if not source.is_local:
            usual = usual_umask()
            file = Access(0o666 & ~usual)
            return cls(Access(_PERMISSIONS & ~usual), file, file, made)
        folder, own = Access.of(source.path), Access.of(source.child(METADATA).path)
        # The source's folder may be read-only, and `_metadata` is written into the target's after it is opened.
        folder = replace(folder, mode=folder.mode | stat.S_IRWXU)
        # A file that is gone is named where its content is needed.
        there = (file.path for file in _files(source, metadata) if file.is_local and os.path.exists(file.path))
        files = [Access.of(path) for path in there]
        common = reduce(lambda mode, file: mode & file.mode, files, _PERMISSIONS)
        return cls(folder, Access(common, files[0].user, files[0].group) if files else own, own, made)

    def open(self, target: Location, home: str) -> None:
        """Sets the access of everything but `_metadata`; it may be repeated."""
        if not target.is_local:
            return
        for entry in target.entries():
            if is_state_file(entry.name):
                self.files.give_to(entry.path)
        for path in (*self.made, target.path):
            if os.path.isdir(path):
                self.folder.give_to(path)
        self._let_through(Path(target.path), home)

    def _let_through(self, target: Path, home: str) -> None:
        """Lets users pass through the home's folders above the target, because a home is open to its owner only."""
        top = Path(Location.of(home).path)
        if not Location.of(home).is_local or top not in target.parents:
            return
        on_the_way = [folder for folder in target.parents if folder == top or top in folder.parents]
        for folder, below in zip(on_the_way, (target, *on_the_way), strict=False):
            if str(folder) not in self.made:
                _let_pass(folder, below, self.folder.mode & _THROUGH)


def _let_pass(folder: Path, below: Path, through: int) -> None:
    """Lets users pass through the folder without listing it, and only if they can't open anything else in it."""
    present = folder.stat()
    wanted = through & ~present.st_mode
    if not wanted or present.st_uid != os.geteuid():
        return
    for entry in os.scandir(folder):
        # Another process may remove one meanwhile.
        with suppress(FileNotFoundError):
            if entry.name != below.name and not entry.is_symlink():
                open_to = entry.stat(follow_symlinks=False).st_mode
                wanted &= ~(open_to | open_to >> 1 | open_to >> 2)
    if wanted:
        folder.chmod(stat.S_IMODE(present.st_mode) | wanted)


def _files(source: Location, metadata: Metadata) -> Iterator[Location]:
    """The state files of the source, each once."""
    streams = (
        stream for operator in metadata.operators for subtask in operator.subtasks for stream in subtask.streams()
    )
    places: dict[str, Location] = {}
    for stream in streams:
        if isinstance(stream, RelativeFile):
            places.setdefault(stream.path, source.child(stream.path))
        elif isinstance(stream, AbsoluteFile | FileSegment):
            # A merged file has many segments.
            places.setdefault(stream.uri, Location.of(stream.uri))
    return iter(places.values())


def _missing_above(target: Location) -> Iterator[str]:
    if target.is_local:
        yield from (str(folder) for folder in Path(target.path).parents if not folder.exists())
