"""Errors of open files that name the file, because those of drivers may not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


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
