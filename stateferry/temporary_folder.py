"""The one folder for temporary files of this process and of the processes that it starts. It is removed when this
process ends; its name is known before it is made, so that a run can write it down first.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import shutil
import stat
import string
import tempfile
import time
from functools import cache
from pathlib import Path

_NAME = re.compile(r"stateferry-[0-9a-z]{10}")
_LETTERS = string.ascii_lowercase + string.digits
# Spark takes no longer folder for its sockets, whose paths have room for about a hundred bytes.
_LONGEST = 61
# What Java and the shell take as it is, as part of an option.
_PLAIN = re.compile(r"[0-9A-Za-z._/+=@,-]+", re.ASCII)
_SHORT = "/tmp"
_TRIES = 10


def temporary_folder() -> str:
    """This process's own; it may not be there yet."""
    return _chosen(os.getpid())


@cache
def _chosen(_: int) -> str:
    name = f"stateferry-{''.join(secrets.choice(_LETTERS) for _ in range(10))}"
    wanted = os.path.join(tempfile.gettempdir(), name)
    fits = os.path.isabs(wanted) and len(wanted) <= _LONGEST and _PLAIN.fullmatch(wanted)
    return wanted if fits else f"{_SHORT}/{name}"


def make_temporary_folder() -> str:
    """Makes it, for this user alone; who makes it removes it when it ends."""
    folder = temporary_folder()
    if not os.path.isdir(folder):
        os.mkdir(folder, 0o700)
        atexit.register(_remove_own, folder, os.getpid())
    return folder


def _remove_own(folder: str, maker: int) -> None:
    if os.getpid() == maker:
        remove_temporary_folder(folder)


def is_temporary_folder(folder: str) -> bool:
    """Whether there is a folder that this user may have made here: of this kind of name, and the user's own."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    named = _NAME.fullmatch(os.path.basename(folder)) is not None
    return named and os.path.isabs(folder) and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def is_in_use(folder: str) -> bool:
    """Whether another process of this machine has the folder on its command line, as Spark's JVM and what starts it do.

    A JVM whose folder is removed while it starts stays for ever, though the process that started it has ended."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if line.parent.name != str(os.getpid()) and folder.encode() in line.read_bytes():
                return True
    return False


def remove_temporary_folder(folder: str) -> None:
    """Whoever else is about to end may still be removing a part of it."""
    for _ in range(_TRIES):
        if not is_temporary_folder(folder):
            return
        shutil.rmtree(folder, ignore_errors=True)
        if os.path.lexists(folder):
            time.sleep(0.02)


def size_of(folder: str) -> int:
    """In bytes, as far as it can be told."""
    size = 0
    for at, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(at, name)).st_size
    return size
