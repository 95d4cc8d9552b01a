"""The Airflow of `make up`, as far as it needs none: passwords, what the demo says, and parts that are lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import local_airflow.server
from local_airflow import __main__ as command
from local_airflow.api import Api
from local_airflow.demo import _before
from local_airflow.server import COMPONENTS, Server, write_passwords
from local_airflow.settings import LOOPBACK, USERS, Settings, free_port
from stateferry.spark_jobs.startup import class_archive


def test_only_the_user_reads_the_passwords_and_they_stay(tmp_path: Path) -> None:
    settings = Settings(tmp_path, tmp_path / "home", 8080, extra={USERS: "admin:admin,grace:op"})
    # As an earlier version left it.
    settings.passwords.write_text(json.dumps({"admin": "known"}))
    settings.passwords.chmod(0o644)
    write_passwords(settings)
    first = json.loads(settings.passwords.read_text())
    assert first["admin"] == "known"
    assert len(first["grace"]) >= 16
    assert settings.passwords.stat().st_mode & 0o777 == 0o600
    write_passwords(settings)
    assert json.loads(settings.passwords.read_text()) == first
    assert [file.name for file in tmp_path.iterdir()] == [settings.passwords.name]


def test_the_jvm_of_a_step_can_use_the_archive_of_its_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(class_archive, "ARCHIVE", tmp_path / "spark.jsa")
    class_archive.ARCHIVE.touch()
    environment = Settings(tmp_path, tmp_path, 8080).environment()
    # Its folder would come first on the class path, and the archive is of one without it.
    assert "SPARK_CONF_DIR" not in environment
    assert f"-XX:SharedArchiveFile={tmp_path}/spark.jsa" in environment["SPARK_SUBMIT_OPTS"].split()


def test_a_command_leaves_the_handlers_of_signals_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_CACHE", tmp_path)
    monkeypatch.setattr(command, "_PORT_FILE", tmp_path / "port")
    seen: list[object] = []

    def processes(_: Server) -> list[int]:
        seen.append(signal.getsignal(signal.SIGTERM))
        return []

    monkeypatch.setattr(Server, "processes", processes)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert command.main(["down"]) == 0
    assert "Airflow wasn't running" in capsys.readouterr().out
    assert seen[0] is command._interrupt
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("port", ["0", "65536", "99999", "-1", "http"])
def test_a_port_that_nothing_can_listen_at_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["up", f"--port={port}"])
    assert f"{port} is no port: take a number from 1 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    "answer", [None, b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nlost", b"HTTP"]
)
def test_an_airflow_that_ends_meanwhile_is_said_in_one_line(
    answer: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server((LOOPBACK, 0)) as listening:
        server = Server(Settings(tmp_path, tmp_path, listening.getsockname()[1]))

        def answers() -> None:
            for _ in range(2):
                peer, _ = listening.accept()
                with peer:
                    peer.recv(1 << 16)
                    peer.sendall(answer or b"")

        if answer is None:
            listening.close()
        else:
            threading.Thread(target=answers, daemon=True).start()
        monkeypatch.setattr(command, "_carry_out", lambda _: server.api.run("dag", "run"))
        assert command.main(["demo"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(("Airflow doesn't answer at http://127.0.0.1:", "HTTP 500: lost"))
        assert server.unhealthy() == ["api-server"]


def test_the_demo_says_which_run_it_waits_for(tmp_path: Path) -> None:
    class Airflow:
        settings = Settings(tmp_path, tmp_path, 8080)
        state: str | None = "awaiting_input"
        runs: tuple[dict[str, str], ...] = ({"dag_run_id": "manual__1+00:00"},)

        def get(self, path: str) -> Any:
            return {"dag_runs": self.runs}

        def tasks(self, dag: str, run_id: str) -> dict[str, dict[str, str | None]]:
            return {"approve": {"state": self.state}, "snapshot": {"state": "running"}}

    api: Any = Airflow()
    address = "http://127.0.0.1:8080/dags/state_migration/runs/manual__1%2B00%3A00"
    assert _before(api) == f"run manual__1+00:00 waits for an answer: approve or reject it at {address}"
    api.state = None
    assert _before(api) == f"run manual__1+00:00 is at snapshot: {address}"
    api.runs = ()
    assert _before(api) == ""


def test_an_answer_that_comes_too_late_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[dict[str, str] | None] = [None, {"state": "running"}, None, {"state": "success"}]

    def run(self: Api, dag: str, run_id: str) -> dict[str, str]:
        answer = answers.pop(0) if answers else None
        if answer is None:
            raise TimeoutError
        return answer

    monkeypatch.setattr(Api, "run", run)
    monkeypatch.setattr(Api, "tasks", lambda *_: {"plan": {"state": "success"}})
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None)
    monkeypatch.setattr("local_airflow.api.time", clock)  # not for other threads of this process
    api = Api(Settings(tmp_path, tmp_path, 8080))
    assert list(api.wait("dag", "run", lambda _, state: state == "success", 60)) == ["plan"]
    assert answers == []
    with pytest.raises(TimeoutError, match="run run of dag is unknown after 0 s: "):
        api.wait("dag", "run", lambda _, state: state == "success", 0)


_COMPONENT = """#!/bin/sh
[ "$1" = db ] && exit
# A scheduler has one worker without work, and one whose task is at work.
if [ "$1" = scheduler ]; then
  sleep 1000 &
  sh -c 'sleep 2000; true' &
fi
exec sleep 3000
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Processes that stand for Airflow's; its API calls them healthy, as it does for a while after their end."""
    program = tmp_path / "venv" / "bin" / "airflow"
    program.parent.mkdir(parents=True)
    program.write_text(_COMPONENT)
    program.chmod(0o755)
    names = ("metadatabase", "scheduler", "dag_processor", "triggerer")
    later = datetime.now(UTC) + timedelta(hours=1)
    healthy = {name: {"status": "healthy", f"latest_{name}_heartbeat": later.isoformat()} for name in names}
    monkeypatch.setattr(Api, "health", lambda _: healthy)
    one = Server(Settings(tmp_path / "airflow", tmp_path / "home", free_port(), airflow=tmp_path / "venv"))
    one.start()
    yield one
    leaders = [one.pid(name) for name in COMPONENTS]
    one.stop()
    assert one.processes() == []
    assert not any(Path(f"/proc/{leader}").exists() for leader in leaders), "a child that nobody has waited for"


def _commands(server: Server) -> list[str]:
    lines = (Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0") for one in server.processes())
    return sorted(b" ".join(line).decode().strip() for line in lines)


def _wait_for(server: Server, command: str, count: int) -> None:
    deadline = time.monotonic() + 120
    while _commands(server).count(command) != count and time.monotonic() < deadline:
        time.sleep(0.02)
    assert _commands(server).count(command) == count


@pytest.mark.parametrize("lost", [["scheduler"], ["dag-processor", "triggerer"], list(COMPONENTS)])
def test_what_has_ended_is_started_and_the_rest_is_left_at_work(server: Server, lost: list[str]) -> None:
    assert server.is_running()
    before = {name: server.pid(name) for name in COMPONENTS}
    _wait_for(server, "sleep 1000", 1)
    _wait_for(server, "sleep 2000", 1)
    for name in lost:
        os.kill(before[name], signal.SIGKILL)
    while any(server.lives(name) for name in lost):
        time.sleep(0.02)
    assert not server.is_running(), "the API still calls it healthy"
    assert server.resume() == [name for name in COMPONENTS if name in lost]
    assert server.is_running()
    assert {name for name in COMPONENTS if server.pid(name) != before[name]} == {*lost}
    # The task goes on; the worker that nobody gives work to any more is gone. A new scheduler's task begins a moment
    # later.
    _wait_for(server, "sleep 2000", 2 if "scheduler" in lost else 1)
    assert _commands(server).count("sleep 1000") == 1
    assert server.resume() == []


def test_a_part_that_gives_no_sign_of_life_is_started_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    health, before = server.api.health(), server.pid("scheduler")
    answers = {"scheduler": {"status": "unhealthy", "latest_scheduler_heartbeat": "2026-11-20T00:00:00+00:00"}}
    monkeypatch.setattr(Api, "health", lambda _: health | (answers if server.pid("scheduler") == before else {}))
    monkeypatch.setattr(local_airflow.server, "_RECOVERS_WITHIN", 0.1)
    assert not server.is_running()
    assert server.resume() == ["scheduler"]
    assert server.is_running()
