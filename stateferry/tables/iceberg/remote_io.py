"""How pyiceberg reads and writes the files of a table's metadata on an object store, in few requests.

pyiceberg's own way takes five requests to write a small file, one after the other, and reads the same files again and
again. Here a file is one request, and what was read or written is remembered: files of metadata have names that no
other file ever gets, and are never changed.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from typing import Any, ClassVar

from pyiceberg.io import FileIO, InputFile, OutputFile

from flinkstate.files.storage import Location

_UNCHANGING = (".metadata.json", ".avro")
_REMEMBERED_BYTES = 64 << 20


class RemoteIO(FileIO):
    """Files on an object store, for pyiceberg: `py-io-impl` names this class."""

    def new_input(self, location: str) -> RemoteFile:
        return RemoteFile(location)

    def new_output(self, location: str) -> RemoteFile:
        return RemoteFile(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        _Contents.forget(name)
        Location.of(name).remove()


class RemoteFile(InputFile, OutputFile):
    """A file that is read or written as a whole if it has metadata; files of rows are only read, in parts."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._size: int | None = None

    @property
    def _place(self) -> Location:
        return Location.of(self.location)

    def __len__(self) -> int:
        if self._size is None:
            content = _Contents.of(self.location)
            self._size = self._place.size() if content is None else len(content)
        return self._size

    def exists(self) -> bool:
        return _Contents.of(self.location) is not None or self._place.exists()

    def open(self, seekable: bool = True) -> Any:
        if not self.location.endswith(_UNCHANGING):
            file = self._place.open()
            self._size = file.size()
            return file
        content = _Contents.of(self.location)
        if content is None:
            content = self._place.read_if_there()
            if content is None:
                raise FileNotFoundError(f"expected a file of a table's metadata, found none: {self.location}")
            _Contents.remember(self.location, content)
        return io.BytesIO(content)

    def create(self, overwrite: bool = False) -> Any:
        """Returns a stream; the file appears when it is closed. Its name is random, so no other file can have it."""
        return _Written(self.location)

    def to_input_file(self) -> RemoteFile:
        return self


class _Written(io.BytesIO):
    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            Location.of(self._name).write_atomically(content)
            if self._name.endswith(_UNCHANGING):
                _Contents.remember(self._name, content)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            super().close()

    def __del__(self) -> None:
        """Keeps the interpreter from closing, and so writing, what its writer has given up."""


class _Contents:
    """What this process has read or written last."""

    _known: ClassVar[OrderedDict[str, bytes]] = OrderedDict()
    _size: ClassVar[int] = 0
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def of(cls, name: str) -> bytes | None:
        with cls._lock:
            if name in cls._known:
                cls._known.move_to_end(name)
            return cls._known.get(name)

    @classmethod
    def remember(cls, name: str, content: bytes) -> None:
        with cls._lock:
            cls._size += len(content) - len(cls._known.pop(name, b""))
            cls._known[name] = content
            while cls._size > _REMEMBERED_BYTES:
                cls._size -= len(cls._known.popitem(last=False)[1])

    @classmethod
    def forget(cls, name: str) -> None:
        with cls._lock:
            cls._size -= len(cls._known.pop(name, b""))
