"""Who may read a published savepoint: whoever may read its source, as Flink often runs as another user.

| in the target | gets permissions, group and, where the system allows it, owner of |
|---|---|
| its folder, and the folders above it that the run made | the source's folder |
| state files | the source's files: what all of them permit; without any, its `_metadata` |
| `_metadata` | the source's |

What isn't on a local disk permits by other means: a target there is left alone, a source there is taken for one that
was written with the user's own umask. While it is written, the target is as closed as everything else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from stateferry.private_files import usual_umask
from stateferry.savepoint.metadata import AbsoluteFile, Metadata, RelativeFile
from stateferry.savepoint.own_files import METADATA, is_state_file
from stateferry.savepoint.storage import Location

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
        found = os.stat(path)
        return cls(stat.S_IMODE(found.st_mode) & _PERMISSIONS, found.st_uid, found.st_gid)

    def give_to(self, path: str) -> None:
        """As far as the system lets us: what belongs to somebody else stays as that one wants it."""
        with suppress(OSError):
            # Only root may give files away; others may give them to a group of theirs.
            os.chown(path, self.user if os.geteuid() == 0 else -1, self.group)
        with suppress(OSError):
            os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~_PERMISSIONS | self.mode)


@dataclass(frozen=True, slots=True)
class TargetAccess:
    """`made` are folders above the target that weren't there."""

    folder: Access
    files: Access
    metadata: Access
    made: tuple[str, ...]

    @classmethod
    def like(cls, source: Location, metadata: Metadata, target: Location, before: TargetAccess | None) -> TargetAccess:
        """`before` is what was found when the target was claimed first."""
        made = before.made if before is not None else tuple(_missing_above(target))
        if not source.is_local:
            usual = usual_umask()
            file = Access(0o666 & ~usual)
            return cls(Access(_PERMISSIONS & ~usual), file, file, made)
        own = Access.of(source.child(METADATA).path)
        files = [Access.of(file.path) for file in _files(source, metadata) if file.is_local]
        common = reduce(lambda mode, file: mode & file.mode, files, _PERMISSIONS)
        return cls(Access.of(source.path), Access(common, files[0].user, files[0].group) if files else own, own, made)

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any] | None) -> TargetAccess | None:
        """None for a run that was begun before there was any such thing."""
        said = (facts or {}).get("access")
        if said is None:
            return None
        folder, files, metadata = (Access(**said[name]) for name in ("folder", "files", "metadata"))
        return cls(folder, files, metadata, tuple(said["made"]))

    def facts(self) -> dict[str, Any]:
        return {"access": asdict(self)}

    def open(self, target: Location, home: str) -> None:
        """Gives all but `_metadata` what it is to have; done again, it does the same."""
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
        """Folders of the home on the way to the target: a home is made for its user alone."""
        top = Path(Location.of(home).path)
        if not Location.of(home).is_local or top not in target.parents:
            return
        on_the_way = [folder for folder in target.parents if folder == top or top in folder.parents]
        for folder, below in zip(on_the_way, (target, *on_the_way), strict=False):
            if str(folder) not in self.made:
                _let_pass(folder, below, self.folder.mode & _THROUGH)


def _let_pass(folder: Path, below: Path, through: int) -> None:
    """Through the folder and not into it; and only if everything else in it is closed to whoever comes through."""
    present = folder.stat()
    wanted = through & ~present.st_mode
    if not wanted or present.st_uid != os.geteuid():
        return
    for entry in os.scandir(folder):
        if entry.name != below.name and not entry.is_symlink():
            open_to = entry.stat(follow_symlinks=False).st_mode
            wanted &= ~(open_to | open_to >> 1 | open_to >> 2)
    if wanted:
        folder.chmod(stat.S_IMODE(present.st_mode) | wanted)


def _files(source: Location, metadata: Metadata) -> Iterator[Location]:
    """Each once."""
    streams = (
        stream for operator in metadata.operators for subtask in operator.subtasks for stream in subtask.streams()
    )
    for stream in dict.fromkeys(streams):
        if isinstance(stream, RelativeFile):
            yield source.child(stream.path)
        elif isinstance(stream, AbsoluteFile):
            yield Location.of(stream.uri)


def _missing_above(target: Location) -> Iterator[str]:
    if target.is_local:
        yield from (str(folder) for folder in Path(target.path).parents if not folder.exists())
