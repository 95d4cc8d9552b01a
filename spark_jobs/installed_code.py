"""Compares the installed code of the driver and of a worker, before the worker unpickles what it is to do.

A task is pickled with the names of its classes, and their fields in order. A worker with other code would set fields to
wrong values or leave them out, without an error, and would do and prove the work with mistakes that the driver's code
no longer has.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from functools import cache

import flinkstate
import stateferry

# The digest, the folders and the machine. Only built-in types: a worker with other code must understand them too.
Code = tuple[str, tuple[str, ...], str]


def folders() -> tuple[str, ...]:
    """Where this process has the packages from."""
    return tuple(map(os.path.realpath, (*flinkstate.__path__, *stateferry.__path__)))


def own_code(*, is_local: bool) -> Code:
    """The code of this process.

    The digest is left out for workers on this machine, which find the folders: in most cases they have the same.
    """
    return "" if is_local else digest_of(folders()), folders(), socket.gethostname()


def difference(driver: Code) -> str | None:
    """What differs between the driver's code and that of this process, in words; None if it is the same."""
    digest, its_folders, machine = driver
    own = folders()
    if (not digest and its_folders == own) or (digest or digest_of(its_folders)) == digest_of(own):
        return None
    return (
        f"a worker has another Stateferry (in {own[-1]} on {socket.gethostname()}) than the driver "
        f"(in {its_folders[-1]} on {machine}): install the same on all machines"
    )


@cache
def digest_of(packages: tuple[str, ...]) -> str:
    """A digest of the packages' sources; the version isn't enough, because many commits have the same."""
    found = hashlib.sha256()
    for package in packages:
        for name, path in sorted(_sources(package, "")):
            file = os.open(path, os.O_RDONLY)
            try:
                source = os.read(file, os.fstat(file).st_size)
            finally:
                os.close(file)
            found.update(f"{name} {len(source)}\n".encode())
            found.update(source)
    return found.hexdigest()


def _sources(folder: str, above: str) -> Iterator[tuple[str, str]]:
    """The sources in the folder by their names in the package; `spark_jobs`, for example, may be a link.

    A compiled file counts where its source was removed. What is for Airflow alone isn't in every environment.
    """
    for entry in os.scandir(folder):
        name = f"{above}/{entry.name}"
        if entry.name.endswith(".py") or (entry.name.endswith(".pyc") and not os.path.exists(entry.path[:-1])):
            yield name, entry.path
        elif entry.name != "__pycache__" and name != "/airflow" and entry.is_dir():
            yield from _sources(entry.path, name)
