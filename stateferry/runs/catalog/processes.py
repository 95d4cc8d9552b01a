"""Identifies a process in such a way that another process can find out whether it still runs."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

_SHOWN = re.compile(r"process (\d+) on (\S*), started (\d+)")


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a machine.

    `started` tells two processes apart that had the same id one after the other; it is 0 if the system doesn't say.
    """

    id: int
    host: str
    started: int

    @classmethod
    def this(cls) -> Process:
        """The current process."""
        return cls(os.getpid(), socket.gethostname(), _start_of(os.getpid()) or 0)

    @classmethod
    def parse(cls, text: str) -> Process:
        """The process in a text that `str` made; any other text gives a process with the id 0."""
        match = _SHOWN.fullmatch(text)
        return cls(int(match[1]), match[2], int(match[3])) if match else cls(0, text, 0)

    def __str__(self) -> str:
        return f"process {self.id} on {self.host}, started {self.started}"

    @property
    def shown(self) -> str:
        """The process in words, for messages."""
        return f"process {self.id} on {self.host}" if self.id else self.host

    @property
    def is_over(self) -> bool:
        """Whether the process is known to have ended; False if it is of another machine, as nothing is known then."""
        return self._is_here and not self.surely_runs()

    @property
    def _is_here(self) -> bool:
        return self.host == socket.gethostname() and self.id > 0

    def surely_runs(self) -> bool:
        """Whether the process is known to run; False if it is of another machine, as nothing is known then."""
        if not self._is_here:
            return False
        started = _start_of(self.id)
        if started is None:
            return False
        return self.started in (0, started)


def _start_of(process: int) -> int | None:
    """The start time of a process, in the system's own units; None if there is no such process."""
    try:
        # The program's name is in parentheses and may contain any character. Only numbers follow it.
        fields = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return _signalled(process)
    return None if fields[0] in "ZX" else int(fields[19])


def _signalled(process: int) -> int | None:
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0
