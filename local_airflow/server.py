"""Starts and stops Airflow's four processes on this machine together.

`airflow standalone` isn't used, because its servers of log files listen on every interface.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from local_airflow.api import Api, RequestRefusedError
from local_airflow.sessions import Session, idle, members, session_of
from local_airflow.settings import MARK, USERS, Settings

COMPONENTS = {
    "api-server": ["api-server"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
_FIRST = "api-server"
_HEALTH = {
    "api-server": "metadatabase",
    "scheduler": "scheduler",
    "dag-processor": "dag_processor",
    "triggerer": "triggerer",
}
_OWNER_ONLY = 0o600
_STOPPED_WITHIN = 20.0
# A component that is only slow says by then that it works.
_RECOVERS_WITHIN = 45.0


class NotStartedError(Exception):
    """Airflow did not come up; its log says why."""


@dataclass(frozen=True, slots=True)
class Server:
    """Airflow's processes on this machine."""

    settings: Settings

    @property
    def api(self) -> Api:
        """A client of this server's REST API."""
        return Api(self.settings)

    def log_of(self, component: str) -> Path:
        """The log file of a component."""
        return self.settings.home / f"{component}.log"

    def start(self, seconds: float = 180) -> None:
        """Starts all components and waits until they answer; stops what is left of an earlier server first."""
        self.stop()
        self.settings.home.mkdir(parents=True, exist_ok=True)
        self.settings.stateferry_home.mkdir(parents=True, exist_ok=True)
        # The file of passwords is in this folder.
        self.settings.home.chmod(0o700)
        write_passwords(self.settings)
        self._migrate_database()
        end = time.monotonic() + seconds
        self._start(list(COMPONENTS), end)

    def resume(self, seconds: float = 180) -> list[str]:
        """Starts the components that have ended, or give no sign of life any more, and returns their names.

        What the others do goes on, and so do tasks that a dead scheduler has started: a job may stand still.
        """
        dead = [one for one in COMPONENTS if not self.lives(one)]
        end = time.monotonic() + _RECOVERS_WITHIN
        # Without the API server nobody knows how the others are.
        while not dead and self.unhealthy() and time.monotonic() < end:
            time.sleep(0.5)
        dead = dead or [one for one in COMPONENTS if one in self.unhealthy()]
        for component in dead:
            self._end_leader(component)
        self._start(dead, time.monotonic() + seconds)
        return dead

    def _start(self, components: list[str], end: float) -> None:
        """Starts these components, and waits until all are healthy."""
        since = time.time()
        # The API server comes first, because a task that is scheduled before it answers loses its first try.
        for component in components:
            self.start_component(component)
            if component == _FIRST:
                self._wait_until(self._answers, [_FIRST], end)
        self._wait_until(lambda: not self.unhealthy(components, since), list(COMPONENTS), end)

    def start_component(self, component: str) -> int:
        """Starts a component and returns its process id."""
        with self.log_of(component).open("ab") as log:
            process = subprocess.Popen(
                [self._airflow, *COMPONENTS[component]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.settings.environment(),
                cwd=self.settings.home,
                start_new_session=True,
            )
        session = session_of(process.pid)
        assert session is not None, "it isn't waited for yet"
        # Tasks that an earlier one has started may be at work.
        earlier = [one for one in self._sessions(component) if members([one])]
        self._session_file(component).write_text("\n".join(map(str, [session, *earlier])))
        _started.append(process)
        return process.pid

    def pid(self, component: str) -> int:
        """The process id of a component."""
        return self._sessions(component)[0].leader

    def lives(self, component: str) -> bool:
        """Whether the component's own process is there; Airflow calls one healthy for half a minute after its end."""
        _reap()
        return any(session_of(one.leader) == one for one in self._sessions(component)[:1])

    def processes(self) -> list[int]:
        """All processes of this server, including those that its tasks have started."""
        sessions = [one for component in COMPONENTS for one in self._sessions(component)]
        return members(sessions, f"{MARK}={self.settings.home}")

    def is_running(self) -> bool:
        """Whether all components are there and healthy."""
        return all(self.lives(one) for one in COMPONENTS) and not self.unhealthy()

    def unhealthy(self, started: Collection[str] = (), since: float = 0) -> list[str]:
        """The components that aren't healthy; those that were started must have reported since then that they are."""
        try:
            health = self.api.health()
        except (OSError, RequestRefusedError):
            return [_FIRST]
        parts = {one: (health.get(part) or {}) for one, part in _HEALTH.items()}
        return [
            one
            for one, part in parts.items()
            if part.get("status") != "healthy" or (one in started and _last_sign(part) < since)
        ]

    def stop(self) -> None:
        """Asks all processes to end, and kills those that don't."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
            end = time.monotonic() + _STOPPED_WITHIN
            while self.processes() and time.monotonic() < end:
                _reap()
                time.sleep(0.2)
        # What has ended doesn't count as a process any more, but as a child of this one until it is waited for.
        _reap()

    def _migrate_database(self) -> None:
        log = self.log_of("database")
        command = [self._airflow, "db", "migrate"]
        environment = self.settings.environment()
        with log.open("ab") as output:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=environment, check=False)
        if done.returncode:
            raise NotStartedError(f"Airflow's database can't be made: see {log}")

    def _wait_until(self, is_so: Callable[[], bool], components: list[str], end: float) -> None:
        while not is_so():
            _reap()
            dead = [one for one in components if not self.lives(one)]
            if dead or time.monotonic() > end:
                logs = ", ".join(str(self.log_of(one)) for one in dead or components)
                self.stop()
                raise NotStartedError(f"Airflow {'has ended' if dead else 'is not up in time'}: see {logs}")
            time.sleep(0.5)

    def _answers(self) -> bool:
        try:
            return bool(self.api.health())
        except (OSError, RequestRefusedError):
            return False

    @property
    def _airflow(self) -> str:
        return str(self.settings.airflow / "bin" / "airflow")

    def _end_leader(self, component: str) -> None:
        """Ends the component's own process, and those that wait in vain for its orders; those of tasks go on."""
        for session in self._sessions(component):
            if session_of(session.leader) == session:
                os.kill(session.leader, signal.SIGKILL)
                _wait_until_gone(session)
            for pid in idle(session):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _sessions(self, component: str) -> list[Session]:
        """The session of the component, then those of earlier ones, whose tasks may be at work."""
        file = self._session_file(component)
        return [Session.parse(line) for line in file.read_text().splitlines()] if file.exists() else []

    def _session_file(self, component: str) -> Path:
        return self.settings.home / f"{component}.session"


@contextmanager
def running(settings: Settings) -> Iterator[Server]:
    """A server that is stopped at the end of the context."""
    server = Server(settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()


_started: list[subprocess.Popen[bytes]] = []


def _reap() -> None:
    """Waits for children that have ended, so that they don't count as running."""
    _started[:] = [process for process in _started if process.poll() is None]


def _wait_until_gone(session: Session) -> None:
    while session_of(session.leader) == session:
        _reap()
        time.sleep(0.05)


def _last_sign(part: dict[str, Any]) -> float:
    """When the component last reported that it works, in seconds; now, if it doesn't report it."""
    reported = [value for name, value in part.items() if name.startswith("latest_")]
    return datetime.fromisoformat(reported[0]).timestamp() if reported and reported[0] else time.time()


def write_passwords(settings: Settings) -> None:
    """Gives each user of Airflow's simple login without a password a new one, in a file that only this user reads.

    Airflow would make them itself, in a file that everybody may read, and print them into its log.
    """
    file = settings.passwords
    if file.exists():
        file.chmod(_OWNER_ONLY)
    known = json.loads(file.read_text()) if file.exists() and file.stat().st_size else {}
    users = [user.partition(":")[0] for user in settings.environment()[USERS].split(",")]
    passwords = {**{user: secrets.token_urlsafe(12) for user in users}, **known}
    if passwords != known:
        draft = file.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "w") as out:
            out.write(f"{json.dumps(passwords)}\n")
        draft.rename(file)
