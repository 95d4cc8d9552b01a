"""Sets who may read the files that a process writes: only this user, unless `STATEFERRY_UMASK` says otherwise.

A umask covers all that a process writes: also SQLite, the libraries that write tables, and new folders. It belongs to
the whole process, so each process sets it once, when it begins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from flinkstate.errors import UsageError

VARIABLE = "STATEFERRY_UMASK"
_DEFAULT = 0o077
_OCTAL = re.compile(r"0?o?([0-7]{1,3})")
_OWNERS = 0o700

# The umasks that `private_files` has replaced, the user's own first.
_usual: list[int] = []


def wanted_umask() -> int:
    """Returns the umask for private files: 0077 unless the environment says otherwise."""
    text = os.environ.get(VARIABLE)
    if not text:
        return _DEFAULT
    match = _OCTAL.fullmatch(text)
    umask = int(match[1], 8) if match else _OWNERS
    if umask & _OWNERS:
        raise UsageError(
            f"expected {VARIABLE} to be three octal digits that leave this user every permission, such as 077 (only "
            f"this user may read), 027 (the group may read) or 007 (the group may also write), found {text!r}"
        )
    return umask


@contextmanager
def private_files(umask: int | None = None) -> Iterator[None]:
    """Files written in this context have at most the permissions that `umask` (by default `wanted_umask`) leaves."""
    before = os.umask(wanted_umask() if umask is None else umask)
    _usual.append(before)
    try:
        yield
    finally:
        _usual.pop()
        os.umask(before)


@contextmanager
def usual_files() -> Iterator[None]:
    """Files written in this context have the permissions that the user's own umask leaves, as of any program."""
    before = os.umask(usual_umask())
    try:
        yield
    finally:
        os.umask(before)


def usual_umask() -> int:
    """Returns the user's own umask."""
    if _usual:
        return _usual[0]
    umask = os.umask(_DEFAULT)
    os.umask(umask)
    return umask
