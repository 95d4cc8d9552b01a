"""The commands `make up`, `make down` and `make demo`."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from flinkstate.errors import UsageError
from local_airflow import demo
from local_airflow.api import RequestRefusedError
from local_airflow.server import NotStartedError, Server
from local_airflow.settings import REPOSITORY, Settings, free_port, is_free
from stateferry.basics.printable import printable_lines, say
from stateferry.basics.private_files import private_files

_CACHE = REPOSITORY / ".cache"
_PORT_FILE = _CACHE / "airflow" / "port"
_ENDS = (signal.SIGINT, signal.SIGTERM)
_LAST_PORT = 65_535


def main(argv: Sequence[str] | None = None) -> int:
    """Carries out the command and returns the exit code."""
    parser = argparse.ArgumentParser(prog="local_airflow", description="Airflow on this machine.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start it").add_argument("--port", type=_port_number, default=8080)
    commands.add_parser("down", help="stop it")
    commands.add_parser("demo", help="migrate the demo savepoint, and stop what was started for it")
    own = commands.add_parser("airflow", help="run Airflow's own command on it", add_help=False)
    own.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    before = {number: signal.getsignal(number) for number in _ENDS}
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with private_files():
            return _carry_out(options)
    # Airflow may end, or answer with an error, while a command waits for it.
    except (NotStartedError, demo.DemoError, OSError, RequestRefusedError, UsageError) as error:
        sys.stderr.write(f"{printable_lines(str(error))}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _carry_out(options: argparse.Namespace) -> int:
    if options.command == "up":
        return _up(options.port)
    if options.command == "down":
        return _down()
    if options.command == "airflow":
        return _airflow(options.arguments)
    server = Server(_settings(_port()))
    if _is_there(server):
        return demo.run(server)
    server = Server(_settings(free_port()))
    try:
        say("starting Airflow on this machine")
        server.start()
        return demo.run(server)
    finally:
        _stop_undisturbed(server)


def _up(port: int) -> int:
    server = Server(_settings(_port()))
    if not _is_there(server):
        server.stop()
        if not is_free(port):
            raise NotStartedError(f"port {port} is in use: end what listens there, or `make up PORT=...`")
        server = Server(_settings(port))
        say("starting Airflow on this machine")
        try:
            server.start()
        except BaseException:
            _stop_undisturbed(server)
            raise
        _PORT_FILE.write_text(f"{port}\n")
    demo.write_savepoint(server.settings)
    say(f"Airflow is up: {server.settings.url}")
    say(f"log in as admin with the password {server.api.password()}")
    say("Airflow's own command is: make airflow ARGS='dags list'")
    say(
        "trigger the DAG state_migration with its form unchanged to migrate a demo savepoint; `make down` stops Airflow"
    )
    return 0


def _is_there(server: Server) -> bool:
    """Whether Airflow runs; starts what has ended of it, as long as it still listens, or its port is free."""
    if server.is_running():
        return True
    if not server.processes() or not (server.lives("api-server") or is_free(server.settings.port)):
        return False
    say("a part of Airflow has ended or doesn't answer: starting it")
    try:
        started = server.resume()
    except NotStartedError as error:
        say(f"{error}. Starting all of Airflow")
        return False
    say(f"started again: {', '.join(started)}")
    return True


def _airflow(arguments: Sequence[str]) -> int:
    settings = _settings(_port())
    if not (settings.home / "airflow.db").exists():
        raise NotStartedError("there is no Airflow yet: start it with `make up`")
    program = str(settings.airflow / "bin" / "airflow")
    return subprocess.run([program, *arguments], env=settings.environment(), check=False).returncode


def _stop_undisturbed(server: Server) -> None:
    """Stops the server and ignores further signals, which make and a terminal may both send."""
    for number in _ENDS:
        signal.signal(number, signal.SIG_IGN)
    server.stop()


def _down() -> int:
    server = Server(_settings(_port()))
    there = bool(server.processes())
    server.stop()
    _PORT_FILE.unlink(missing_ok=True)
    say("Airflow is stopped" if there else "Airflow wasn't running")
    return 0


def _settings(port: int) -> Settings:
    return Settings(_CACHE / "airflow", _CACHE / "stateferry", port)


def _port() -> int:
    return int(_PORT_FILE.read_text()) if _PORT_FILE.exists() else 8080


def _port_number(text: str) -> int:
    """A port that can be listened at."""
    if not (text.isdecimal() and 1 <= int(text) <= _LAST_PORT):
        raise argparse.ArgumentTypeError(f"{text} is no port: take a number from 1 to {_LAST_PORT}")
    return int(text)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
