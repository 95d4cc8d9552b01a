"""Finds the processes of a server: those in the sessions of its components, and what these started elsewhere.

A mark in the environment finds only processes that tasks have started, because Airflow's own processes overwrite their
environment with their title.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_BOOT = _PROC / "sys" / "kernel" / "random" / "boot_id"


@dataclass(frozen=True, slots=True)
class Session:
    """A session: its leader's process id, when the leader was started, and the boot of the machine when it was."""

    leader: int
    started: int
    boot: str

    @classmethod
    def parse(cls, text: str) -> Session:
        leader, started, boot = text.split()
        return cls(int(leader), int(started), boot)

    def __str__(self) -> str:
        return f"{self.leader} {self.started} {self.boot}"

    def is_this_one(self, processes: Collection[_Process]) -> bool:
        """Whether the session still exists: a process with the leader's id must be the leader itself.

        The system uses the id again only after the whole session has ended.
        """
        same_id = [one for one in processes if one.id == self.leader]
        return self.boot == _boot() and all(one.started == self.started for one in same_id)


@dataclass(frozen=True, slots=True)
class _Process:
    id: int
    parent: int
    session: int
    started: int


def session_of(leader: int) -> Session | None:
    """The session of this leader; None if the process has ended."""
    process = _process(_PROC / str(leader))
    return None if process is None else Session(leader, process.started, _boot())


def members(sessions: Collection[Session], mark: str | None = None) -> list[int]:
    """Processes in these sessions, those with the mark in their environment, and all descendants of both."""
    processes = list(_processes())
    there = {session.leader for session in sessions if session.is_this_one(processes)}
    found = {one.id for one in processes if one.session in there or (mark and _has_mark(one.id, mark.encode()))}
    while more := {one.id for one in processes if one.parent in found} - found:
        found |= more
    return sorted(found)


def idle(session: Session) -> list[int]:
    """What a leader that has ended has left without work: processes that have started none, and no other has."""
    processes = list(_processes())
    if not session.is_this_one(processes):
        return []
    there = {one.id for one in processes if one.session == session.leader}
    parents = {one.parent for one in processes}
    return [one.id for one in processes if one.id in there - parents and one.parent not in there]


def _processes() -> Iterator[_Process]:
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (process := _process(folder)) is not None:
            yield process


def _process(folder: Path) -> _Process | None:
    """The process; None if it has ended, even if its parent hasn't waited for it yet."""
    try:
        # The program's name is in parentheses and may contain any character. Only numbers follow it.
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else _Process(int(folder.name), int(fields[1]), int(fields[3]), int(fields[19]))


def _has_mark(process: int, mark: bytes) -> bool:
    try:
        return mark in (_PROC / str(process) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _boot() -> str:
    return _BOOT.read_text().strip()
