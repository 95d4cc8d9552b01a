"""A file of an object store whose errors name the file, because those of its driver may not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Adds the name to an `OSError` that has none, as errors of open files do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise OSError(f"{name}: {error}") from error
        if error.filename is None:
            error.filename = name
        raise


class NamedFile:
    """Wraps a file so that errors of reading and writing name it. All other attributes are those of the file."""

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> NamedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int = -1) -> Any:
        with naming(self._name):
            return self._file.read() if size < 0 else self._file.read(size)

    def readinto(self, buffer: Any) -> Any:
        with naming(self._name):
            return self._file.readinto(buffer)

    def write(self, data: Any) -> Any:
        with naming(self._name):
            return self._file.write(data)

    def flush(self) -> None:
        with naming(self._name):
            self._file.flush()

    def close(self) -> None:
        with naming(self._name):
            self._file.close()
