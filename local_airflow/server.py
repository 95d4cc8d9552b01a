"""Starts and stops Airflow's four processes on this machine together.

`airflow standalone` isn't used, because its servers of log files listen on every interface.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_airflow.api import Api
from local_airflow.passwords import write_passwords
from local_airflow.sessions import Session, members, session_of
from local_airflow.settings import MARK, Settings

COMPONENTS = {
    "api-server": ["api-server"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
_FIRST = "api-server"
_HEALTHY = ("metadatabase", "scheduler", "dag_processor", "triggerer")
_STOPPED_WITHIN = 20.0


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
        # An earlier version's log has the password, and may be readable itself.
        self.settings.home.chmod(0o700)
        write_passwords(self.settings)
        self._migrate_database()
        end = time.monotonic() + seconds
        # The API server comes first, because a task that is scheduled before it answers loses its first try.
        self.start_component(_FIRST)
        self._wait_until(self._answers, [_FIRST], end)
        for component in COMPONENTS:
            if component != _FIRST:
                self.start_component(component)
        self._wait_until(self.is_running, list(COMPONENTS), end)

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
        self._session_file(component).write_text(str(session))
        _started.append(process)
        return process.pid

    def pid(self, component: str) -> int:
        """The process id of a component."""
        return Session.parse(self._session_file(component).read_text()).leader

    def processes(self) -> list[int]:
        """All processes of this server, including those that its tasks have started."""
        files = [self._session_file(component) for component in COMPONENTS]
        sessions = [Session.parse(file.read_text()) for file in files if file.exists()]
        return members(sessions, f"{MARK}={self.settings.home}")

    def is_running(self) -> bool:
        """Whether all components are healthy."""
        try:
            return bool(self.processes()) and all(_is_healthy(self.api.health(), part) for part in _HEALTHY)
        except OSError:
            return False

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
            dead = [one for one in components if not Path(f"/proc/{self.pid(one)}").exists()]
            if dead or time.monotonic() > end:
                logs = ", ".join(str(self.log_of(one)) for one in dead or components)
                self.stop()
                raise NotStartedError(f"Airflow {'has ended' if dead else 'is not up in time'}: see {logs}")
            time.sleep(0.5)

    def _answers(self) -> bool:
        try:
            return bool(self.api.health())
        except OSError:
            return False

    @property
    def _airflow(self) -> str:
        return str(self.settings.airflow / "bin" / "airflow")

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


def _is_healthy(health: dict[str, Any], part: str) -> bool:
    return (health.get(part) or {}).get("status") == "healthy"
