"""The folder for temporary files of this process and of the processes that it starts.

It is removed when this process ends. Its name is known before it is made, so that a run can note it first.
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
# Spark can't use a longer folder: it puts sockets there, and the path of a socket has about a hundred bytes at most.
_LONGEST = 61
# Characters that Java and the shell take literally in an option.
_PLAIN = re.compile(r"[0-9A-Za-z._/+=@,-]+", re.ASCII)
_SHORT = "/tmp"
_TRIES = 10


def temporary_folder() -> str:
    """Returns this process's folder, which may not exist yet."""
    return _folder_of(os.getpid())


@cache
def _folder_of(_: int) -> str:
    name = f"stateferry-{''.join(secrets.choice(_LETTERS) for _ in range(10))}"
    wanted = os.path.join(tempfile.gettempdir(), name)
    fits = os.path.isabs(wanted) and len(wanted) <= _LONGEST and _PLAIN.fullmatch(wanted)
    return wanted if fits else f"{_SHORT}/{name}"


def make_temporary_folder() -> str:
    """Makes the folder, for this user alone. The process that makes it removes it when it ends."""
    folder = temporary_folder()
    if not os.path.isdir(folder):
        os.mkdir(folder, 0o700)
        atexit.register(_remove_own, folder, os.getpid())
    return folder


def _remove_own(folder: str, maker: int) -> None:
    if os.getpid() == maker:
        remove_temporary_folder(folder)


def is_temporary_folder(folder: str) -> bool:
    """Whether this is a temporary folder of Stateferry that exists and belongs to this user."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    named = _NAME.fullmatch(os.path.basename(folder)) is not None
    return named and os.path.isabs(folder) and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def is_in_use(folder: str) -> bool:
    """Whether another process on this machine has the folder on its command line, as Spark's JVM and its starter do.

    If the folder is removed while a JVM starts, the JVM never ends, even when the process that started it has ended.
    """
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if line.parent.name != str(os.getpid()) and folder.encode() in line.read_bytes():
                return True
    return False


def remove_temporary_folder(folder: str) -> None:
    """Removes the folder. It tries several times, because processes that are ending may be removing parts of it too."""
    for _ in range(_TRIES):
        if not is_temporary_folder(folder):
            return
        shutil.rmtree(folder, ignore_errors=True)
        if os.path.lexists(folder):
            time.sleep(0.02)


def task_folder() -> str | None:
    """Returns the folder for a task's files: in Spark's workers Spark's own, which goes even if a worker is killed."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return folder if os.path.isdir(folder) else None


def size_of(folder: str) -> int:
    """Returns the bytes of the folder's files, as far as these can be read."""
    size = 0
    for at, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(at, name)).st_size
    return size
