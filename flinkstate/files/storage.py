"""Files and folders on local disks, object stores and HDFS, as one thin layer over their drivers.

A savepoint is named as in Flink: by a path or a URI (`file:/...`, `s3://...`, `hdfs://...`), which may also name its
`_metadata`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pyarrow import fs

from flinkstate.errors import DamagedError, UsageError
from flinkstate.files.read_ahead import RemoteInput
from flinkstate.files.sequential_file import SequentialFile, SequentialOutput
from flinkstate.files.stores import copy_object, most_bytes, object_identity, reaching, store_of
from flinkstate.files.upload import RemoteOutput
from flinkstate.files.uris import path_of_file_uri

_OBJECT_STORES = (fs.S3FileSystem, fs.GcsFileSystem, fs.AzureFileSystem)
_AT_ONCE = 16

Item = TypeVar("Item")
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Listed:
    """What a listing says of a file or folder; `modified_at` is in milliseconds, 0 if the filesystem doesn't know."""

    location: Location
    is_folder: bool
    size: int
    modified_at: int


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder on some filesystem; `shown` is its name in messages."""

    filesystem: Any
    path: str
    shown: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles a place on a store by its name: so whoever unpickles it uses connections that it has already."""
        if "://" in self.shown:
            return _located, (self.shown,)
        return Location, (self.filesystem, self.path, self.shown)

    @classmethod
    def of(cls, name: str) -> Location:
        """Returns the location that a path or URI names."""
        if not name:
            raise UsageError("expected a path or URI, found an empty text")
        if name.startswith("file:"):
            name = path_of_file_uri(name)
        if "://" not in name:
            path = str(Path(name).absolute())
            return cls(fs.LocalFileSystem(), path, path)
        filesystem, path = store_of(name)
        return cls(filesystem, path, name.rstrip("/"))

    def child(self, name: str) -> Location:
        return Location(self.filesystem, f"{self.path}/{name}", f"{self.shown}/{name}")

    @property
    def parent(self) -> Location:
        return Location(self.filesystem, self.path.rpartition("/")[0] or "/", self.shown.rpartition("/")[0] or "/")

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def uri(self) -> str:
        """The name of the file as Flink writes it into metadata."""
        return f"file:{self.path}" if self.is_local else self.shown

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def is_object_store(self) -> bool:
        """Whether there are only files: no folders, no renames, and so no drafts."""
        return isinstance(self.filesystem, _OBJECT_STORES)

    @property
    def is_on_s3(self) -> bool:
        return isinstance(self.filesystem, fs.S3FileSystem)

    def _info(self) -> Any:
        with reaching(self.shown):
            return self.filesystem.get_file_info(self.path)

    def check_bucket(self) -> None:
        """Refuses a place whose bucket is missing: to list a folder in it finds nothing, and only a write fails."""
        if not self.is_object_store:
            return
        bucket = self.path.partition("/")[0]
        with reaching(self.shown):
            if self.filesystem.get_file_info(bucket).type == fs.FileType.NotFound:
                raise UsageError(f"{self.shown}: there is no bucket {bucket}: make it, or correct the name")

    def is_file(self) -> bool:
        if not self.is_object_store:
            return bool(self._info().type == fs.FileType.File)
        # One request. To find out whether there is a folder of this name takes another one.
        file = self.open_if_there()
        if file is not None:
            file.close()
        return file is not None

    def is_folder(self) -> bool:
        return bool(self._info().type == fs.FileType.Directory)

    def exists(self) -> bool:
        return bool(self._info().type != fs.FileType.NotFound)

    def size(self) -> int:
        return int(self._info().size)

    def modified_at(self) -> int:
        """When the file was last changed, in milliseconds; 0 if the filesystem doesn't know."""
        return _milliseconds(self._info())

    def identity(self) -> str:
        """What another file at this place, or a file that was written to, has otherwise.

        Empty if that isn't known, or if there is no file.
        """
        with reaching(self.shown, "read"):
            try:
                if not self.is_local:
                    return object_identity(self.filesystem, self.path)
                found = os.stat(self.path)
            except FileNotFoundError:
                return ""
        return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"

    def changed_at_if_file(self) -> int | None:
        """The same of a file; None if it is none, or missing."""
        info = self._info()
        return _milliseconds(info) if info.type == fs.FileType.File else None

    def entries(self) -> list[Location]:
        """Returns what is in the folder; nothing if there is no such folder."""
        return [one.location for one in self.listed()]

    def folders(self) -> list[Location]:
        """Returns the folders in the folder."""
        return [one.location for one in self.listed() if one.is_folder]

    def listed(self, *, recursive: bool = False) -> list[Listed]:
        """Returns what a listing says of each entry: on an object store a single request tells of a thousand."""
        selector = fs.FileSelector(self.path, allow_not_found=True, recursive=recursive)
        with reaching(self.shown, "listed"):
            try:
                found = self._selected(selector)
            except NotADirectoryError:
                return []
            return [
                Listed(
                    self._below(info.path), info.type == fs.FileType.Directory, int(info.size or 0), _milliseconds(info)
                )
                for info in found
            ]

    def _selected(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            found: list[fs.FileInfo] = self.filesystem.get_file_info(selector)
        except FileNotFoundError:
            # First there was no folder, and when pyarrow looked why, another process had made it.
            found = self.filesystem.get_file_info(selector)
        return found

    def _below(self, path: str) -> Location:
        return self.child(path[len(self.path) :].lstrip("/"))

    def open(self) -> Any:
        """Opens the file for reading; it can seek. A missing file counts as damage of the savepoint."""
        file = self.open_if_there()
        if file is None:
            raise DamagedError("a file", "none", file=self.shown)
        return file

    def open_if_there(self) -> Any:
        """Opens the file for reading; None if it is missing. A store isn't asked before whether it has the file."""
        if self.is_local and not self.is_file():
            return None
        with reaching(self.shown, "read"):
            try:
                if self.is_local:
                    return SequentialFile(self.path)
                return RemoteInput(self.filesystem.open_input_file(self.path), self.shown)
            except FileNotFoundError:
                return None

    def read(self) -> bytes:
        with reaching(self.shown, "read"), self.open() as file:
            return bytes(file.read())

    def read_if_there(self) -> bytes | None:
        """Returns the content of the file; None if it is missing."""
        file = self.open_if_there()
        if file is None:
            return None
        with reaching(self.shown, "read"), file:
            try:
                return bytes(file.read())
            except OSError:
                # On a store it may have been removed since it was opened.
                if self.is_local or self.is_file():
                    raise
                return None

    def make_folder(self) -> None:
        """Makes the folder, with its parents, if it is missing. Object stores need no folders."""
        if self.is_object_store:
            return
        with reaching(self.shown, "made"):
            self.filesystem.create_dir(self.path, recursive=True)

    def create(self) -> Any:
        """Opens a stream that writes this file.

        On a store or HDFS the file appears when the stream is closed, with its whole content. On a local disk readers
        may see it grow, so files whose names have a meaning are written by `write_atomically`.
        """
        with reaching(self.shown, "written"):
            if self.is_local:
                return SequentialOutput(self.path)
            return RemoteOutput(self.filesystem.open_output_stream(self.path), self.shown, most_bytes(self.filesystem))

    def write_atomically(self, data: bytes, before: Callable[[str], None] = lambda _: None) -> None:
        """Writes the file so that it appears complete and on disk; before that `before` gets a local draft's path."""
        with reaching(self.shown, "written"):
            self._write_atomically(data, before)

    def _write_atomically(self, data: bytes, before: Callable[[str], None]) -> None:
        if not self.is_local:
            with self.create() as stream:  # on an object store, one put
                stream.write(data)
            return
        draft = self.draft()
        try:
            with open(draft.path, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            before(draft.path)
            draft.replace(self)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft.path)
            raise
        self.parent.sync_folder()

    def draft(self) -> Location:
        """Returns a new name beside the file, under which it is written before `replace` gives it its own name."""
        return self.parent.child(f"{self.name}.{uuid.uuid4().hex}.draft")

    def replace(self, other: Location) -> None:
        """Renames this local file to the other, atomically. Elsewhere `create` does what is needed."""
        with reaching(other.shown, "written"):
            os.replace(self.path, other.path)

    def link_to(self, other: Location) -> bool:
        """Gives this local file another name as well, atomically; False if the other can't be on the same disk."""
        draft = other.draft()
        try:
            # Of a symbolic link, the system would make another one.
            os.link(os.path.realpath(self.path), draft.path)
        except OSError:
            return False
        try:
            draft.replace(other)
        finally:
            # Of two names of the same file, a rename keeps both.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft.path)
        return True

    def may_give_to(self, other: Location) -> bool:
        """Whether `give_to` may do that: both places are on disks, or both on S3."""
        return (self.is_local and other.is_local) or (self.is_on_s3 and other.is_on_s3)

    def give_to(self, other: Location) -> str | None:
        """Has the file at the other place, too, without reading it: by another name on its disk, or by S3's own copy.

        Returns the identity that this file had, empty if it may have changed meanwhile; None if neither can be.
        """
        if not self.may_give_to(other):
            return None
        if self.is_local:
            return other.identity() if self.link_to(other) else None
        # The driver can't ask for a copy on a condition.
        before = self.identity()
        with reaching(other.shown, "written"):
            try:
                copy_object(other.filesystem, self.path, other.path)
            except OSError:
                if not self.is_file():
                    raise DamagedError("a file", "none", file=self.shown) from None
                raise
        return before if self.identity() == before else ""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds a lock on the local file, which is made if it is missing and stays. Other processes wait for the lock.

        Object stores and HDFS have no locks.
        """
        with open(self.path, "ab") as file:
            # The lock ends when the file is closed, even if the process is killed.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def sync_file(self) -> None:
        """Waits until a closed local file is on disk. Elsewhere a file is as safe as it gets once it is closed."""
        if self.is_local:
            _sync(self.path, os.O_RDONLY)

    def sync_folder(self) -> None:
        """Waits until the names in a local folder are on disk."""
        if self.is_local:
            _sync(self.path, os.O_RDONLY | os.O_DIRECTORY)

    def remove(self) -> None:
        """Removes the file, or the folder with all that is in it."""
        with reaching(self.shown, "removed"):
            found = self._info().type
            if found == fs.FileType.Directory:
                self.filesystem.delete_dir(self.path)
            elif found != fs.FileType.NotFound:
                self.filesystem.delete_file(self.path)


def side_by_side(place: Location, do: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
    """What `do` gives for each item, in order; on a store, which takes long to answer, several are done at once.

    Few more are done than those that are asked for.
    """
    return map(do, items) if place.is_local else _several_at_once(do, items)


def _several_at_once(do: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
    threads, begun = ThreadPoolExecutor(_AT_ONCE, "side-by-side"), deque[Future[Done]]()
    try:
        for item in items:
            begun.append(threads.submit(do, item))
            if len(begun) >= _AT_ONCE:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _located(name: str) -> Location:
    return Location.of(name)


def _milliseconds(info: Any) -> int:
    return 0 if info.mtime_ns is None else int(info.mtime_ns) // 1_000_000


def _sync(path: str, flags: int) -> None:
    with reaching(path, "written"):
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
