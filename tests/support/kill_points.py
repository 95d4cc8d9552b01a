"""Every state of a folder that a killed process could leave: a picture is taken before each of its effects.

What a process that is killed leaves behind is what the disk holds at that moment. So instead of killing a run at its
n-th effect, one run is watched, and what the disk held before its n-th effect is kept; nothing that happens in the
process afterwards, no `finally` and no `except`, can touch it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from sqlalchemy import Engine, event

from flinkstate.files.storage import Location

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.rmtree"}
_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True, slots=True)
class Picture:
    """All folders (without content) and files under a root, before `effect` happened."""

    effect: str
    content: dict[str, bytes | None]

    @classmethod
    def of(cls, root: Path, effect: str = "") -> Picture:
        content: dict[str, bytes | None] = {}
        for folder, folders, files in os.walk(root):
            for name in folders:
                content[os.path.relpath(os.path.join(folder, name), root)] = None
            for name in files:
                path = os.path.join(folder, name)
                content[os.path.relpath(path, root)] = Path(path).read_bytes()
        return cls(effect, content)

    def digest(self) -> bytes:
        digest = hashlib.sha256()
        for name, data in sorted(self.content.items()):
            digest.update(repr((name, None if data is None else hashlib.sha256(data).digest())).encode())
        return digest.digest()

    def restore(self, root: Path) -> None:
        """Makes the root exactly as it was."""
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        for name, data in sorted(self.content.items()):
            if data is None:
                (root / name).mkdir(exist_ok=True)
            else:
                (root / name).write_bytes(data)


@dataclass(slots=True)
class KillPoints:
    """Of one run: how many effects it had by kind, and what differs of what their deaths would leave."""

    root: Path
    effects: dict[str, int] = field(default_factory=dict)
    pictures: list[Picture] = field(default_factory=list)
    _seen: set[bytes] = field(default_factory=set)
    _known: dict[bytes, bytes] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)
    _busy: bool = False

    def chosen(self, every: int) -> Iterator[tuple[int, Picture]]:
        """One in so many pictures, with their numbers, and the first and the last before each kind of effect."""
        kinds = [picture.effect.partition(" ")[0] for picture in self.pictures]
        ends = {kinds.index(kind) for kind in kinds} | {len(kinds) - 1 - kinds[::-1].index(kind) for kind in kinds}
        for number, picture in enumerate(self.pictures):
            if number % every == 0 or number in ends:
                yield number, picture

    def before(self, kind: str, path: object = None) -> None:
        with self._lock:
            if self._busy or not (path is None or self._is_inside(path)):
                return
            self._busy = True
            try:
                self.effects[kind] = self.effects.get(kind, 0) + 1
                shown = "" if path is None else f" {os.path.relpath(str(path), self.root)}"
                self._keep(Picture.of(self.root, f"{kind}{shown}"))
            finally:
                self._busy = False

    def _is_inside(self, path: object) -> bool:
        name = os.fsdecode(path) if isinstance(path, str | bytes) else str(path)
        return name == str(self.root) or name.startswith(f"{self.root}/")

    def _keep(self, picture: Picture) -> None:
        digest = picture.digest()
        if digest not in self._seen:
            self._seen.add(digest)
            for name, data in picture.content.items():
                if data is not None:
                    picture.content[name] = self._known.setdefault(data, data)
            self.pictures.append(picture)


_watching: list[KillPoints] = []
_hooked = False


def _audited(name: str, arguments: tuple[Any, ...]) -> None:
    if not _watching:
        return
    if name == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes) and flags & _TO_WRITE:
            _watching[0].before("open to write", path)
    elif name in _CHANGES and isinstance(arguments[0], str | bytes | os.PathLike):
        _watching[0].before(name, arguments[0])


def _hook() -> None:
    global _hooked
    if not _hooked:
        sys.addaudithook(_audited)
        _hooked = True


class _Stream:
    """A stream that tells of each write before it is done."""

    def __init__(self, stream: Any, path: str, points: KillPoints) -> None:
        self._stream, self._path, self._points = stream, path, points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, data: Any) -> Any:
        self._points.before("write", self._path)
        return self._stream.write(data)

    def close(self) -> None:
        if not self._stream.closed:
            self._points.before("close", self._path)
        self._stream.close()


@contextmanager
def watched(root: Path) -> Iterator[KillPoints]:
    """Keeps a picture of the root before each effect of what is done meanwhile in this process: files created, written
    (each write of a stream), closed, renamed and removed, folders made and removed, transactions committed."""
    points = KillPoints(root)

    def commits(_: Any) -> None:
        points.before("commit")

    with pytest.MonkeyPatch.context() as patch:
        _patch(patch, points)
        event.listen(Engine, "commit", commits)
        _hook()
        _watching.append(points)
        try:
            yield points
            points.before("end")
        finally:
            _watching.remove(points)
            event.remove(Engine, "commit", commits)


def _patch(patch: pytest.MonkeyPatch, points: KillPoints) -> None:
    create, make_folder, remove = Location.create, Location.make_folder, Location.remove
    create_table_file, delete_table_file = PyArrowFile.create, PyArrowFileIO.delete

    def watched_create(self: Location) -> Any:
        points.before("create", self.path)
        return _Stream(create(self), self.path, points)

    def watched_make_folder(self: Location) -> None:
        points.before("make folder", self.path)
        make_folder(self)

    def watched_remove(self: Location) -> None:
        points.before("remove", self.path)
        remove(self)

    def watched_create_table_file(self: Any, overwrite: bool = False) -> Any:
        path = self.location.removeprefix("file://")
        points.before("create", path)
        return _Stream(create_table_file(self, overwrite), path, points)

    def watched_delete_table_file(self: Any, location: Any) -> None:
        points.before("remove", str(getattr(location, "location", location)).removeprefix("file://"))
        delete_table_file(self, location)

    patch.setattr(Location, "create", watched_create)
    patch.setattr(Location, "make_folder", watched_make_folder)
    patch.setattr(Location, "remove", watched_remove)
    patch.setattr(PyArrowFile, "create", watched_create_table_file)
    patch.setattr(PyArrowFileIO, "delete", watched_delete_table_file)
