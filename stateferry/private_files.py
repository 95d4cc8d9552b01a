"""Who may read what is written: this user alone, unless `STATEFERRY_UMASK` says otherwise.

A umask is what holds for all that a process writes: for SQLite, for the libraries that write tables, for folders that
are made on the way. It is of the whole process, so each process sets it once, where it begins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from stateferry.errors import UsageError

VARIABLE = "STATEFERRY_UMASK"
_DEFAULT = 0o077
_OCTAL = re.compile(r"0?o?([0-7]{1,3})")
_OWNERS = 0o700

# What holds outside of `private_files`, as long as anything is inside.
_usual: list[int] = []


def wanted_umask() -> int:
    """The permissions that nobody gets: 0077 unless the environment says otherwise."""
    text = os.environ.get(VARIABLE)
    if not text:
        return _DEFAULT
    match = _OCTAL.fullmatch(text)
    umask = int(match[1], 8) if match else _OWNERS
    if umask & _OWNERS:
        raise UsageError(
            f"expected {VARIABLE} to be three octal digits that leave this user every permission, such as 077 (nobody "
            f"else), 027 (the group may read) or 007 (the group may write too), found {text!r}"
        )
    return umask


@contextmanager
def private_files(umask: int | None = None) -> Iterator[None]:
    """What is written meanwhile has no more permissions than `umask` leaves, by default those of `wanted_umask`."""
    before = os.umask(wanted_umask() if umask is None else umask)
    _usual.append(before)
    try:
        yield
    finally:
        _usual.pop()
        os.umask(before)


@contextmanager
def usual_files() -> Iterator[None]:
    """What is written meanwhile has the permissions that the user's own umask leaves, as any program's output."""
    before = os.umask(usual_umask())
    try:
        yield
    finally:
        os.umask(before)


def usual_umask() -> int:
    """The user's own."""
    if _usual:
        return _usual[0]
    umask = os.umask(_DEFAULT)
    os.umask(umask)
    return umask
