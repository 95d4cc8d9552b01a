"""The daemon from which Spark forks its Python workers. It has imported what tasks need, so that workers needn't.

It also shortens what workers do between tasks. The imports take longer than everything else in a small run. So a local
session starts a process that does them while the JVM starts (`PreparedDaemon`). The daemon that Spark starts then hands
its pipes over to that process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from itertools import count
from zipimport import zipimporter

from flinkstate.files.temporary_folder import is_in_use, make_temporary_folder, remove_temporary_folder
from stateferry.spark_jobs import installed_code
from stateferry.spark_jobs.startup import import_path, memory

_SOCKET = "STATEFERRY_PREPARED_DAEMON"
_PIPES = (0, 1, 2)
_LONGEST_PID = 20
_AHEAD = "--ahead-of-spark"
_LONGEST_END = 60.0
_numbers = count(1)
# The modules that tasks need. Only the driver needs the catalog's libraries.
_PRELOADED = (
    "numpy.ma",
    "stateferry.spark_jobs.savepoint_source",
    "stateferry.spark_jobs.workers",
    "stateferry.inventory.inventory",
    "stateferry.changes.staging",
    "stateferry.runs.report.file_digest",
    "stateferry.tables.account",
    "stateferry.tables.chunk",
    "stateferry.proof.checks",
)


class PreparedDaemon:
    """A worker daemon that does its imports before Spark needs it.

    It ends with the JVM of the Spark that uses it, or with this process if no Spark does.
    """

    def __init__(self) -> None:
        path = f"{make_temporary_folder()}/prepared-{next(_numbers)}"
        command = [sys.executable, "-m", "stateferry.spark_jobs.startup.worker_daemon", _AHEAD, path, str(os.getpid())]
        # As when Spark starts its daemon: the same hash seed for all workers, and no interrupts from the terminal.
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        # If this process has no stderr, the daemon needs one all the same, until it gets Spark's pipes.
        stderr = None if _passes_on(2) else subprocess.DEVNULL
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=environment,
            process_group=0,
        )
        os.environ[_SOCKET] = path

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        return self._process.pid

    @staticmethod
    def environment() -> dict[str, str]:
        """The variable by which Spark's daemon finds the one that waits; empty if none does."""
        return {name: os.environ[name] for name in (_SOCKET,) if name in os.environ}

    def close(self) -> None:
        """Ends the daemon; call it after Spark has stopped."""
        os.environ.pop(_SOCKET, None)
        assert self._process.stdin is not None
        # A daemon that Spark uses doesn't read from here any more.
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(b"end")
        self._process.wait()


def _passes_on(descriptor: int) -> bool:
    """Whether child processes inherit this file descriptor."""
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


class _WithoutPandas:
    """Hides pandas from pyarrow. Tasks don't need it, and its import takes as long as all other imports together."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _get_ready() -> None:
    import_path.prefer_installed()
    # No imported object is garbage, and the collector would search all of them again and again.
    gc.disable()
    memory.keep()
    import pyarrow as pa

    from stateferry.basics import compiled

    for module in _PRELOADED:
        importlib.import_module(module)
    compiled.load()
    # The first array imports pandas if that is possible: here once, and not in each worker.
    pa.array([])


def _keep_what_is_known_of_zips(_: zipimporter) -> None:
    """Does nothing: Spark's archives on a worker's path don't change, and listing them again takes 80 ms a task."""


def _serve() -> None:
    from pyspark import daemon

    worker = daemon.worker

    def until_spark_ends(connection: socket.socket, authenticated: bool) -> int:
        try:
            code: int = worker(connection, authenticated)  # type: ignore[no-untyped-call]
        except ConnectionError:
            # The worker's message about the end of its input would have no reader.
            return 1
        return code

    daemon.worker = until_spark_ends
    zipimporter.invalidate_caches = _keep_what_is_known_of_zips  # type: ignore[assignment, method-assign]
    # Workers collect garbage after each task. This excludes the objects that exist already.
    gc.freeze()
    gc.enable()
    daemon.manager()  # type: ignore[no-untyped-call]


def _hand_over(path: str) -> bool:
    """Gives pipes and environment to the waiting process; returns True when that process has ended."""
    with socket.socket(socket.AF_UNIX) as peer:
        # Spark ends its daemon by this signal and by closing its pipes. The other process has the pipes, and ends when
        # they close. With the signal too, it could end before it has removed the temporary folder.
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            peer.connect(path)
            socket.send_fds(peer, [b"\0"], _PIPES)
            peer.sendall(json.dumps(dict(os.environ)).encode())
            peer.shutdown(socket.SHUT_WR)
            taker = peer.recv(_LONGEST_PID)
        except OSError:
            taker = b""
        if not taker:
            signal.signal(signal.SIGTERM, before)
            return False
        peer.recv(1)
    return True


def _wait(path: str, maker: int) -> None:
    """Does the imports, and serves the first process that connects.

    The process that started this one removes its own temporary folder. If it was killed, this process does.
    """
    me = os.getpid()
    try:
        _serve_first(path, maker)
    finally:
        # This code also runs in the workers, which are forked from this process.
        if os.getpid() == me and os.getppid() != maker:
            _remove_after_all_others(os.path.dirname(path))


def _remove_after_all_others(folder: str) -> None:
    """Removes the folder when no other process uses it: a JVM that is ending may create it again."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end = time.monotonic() + _LONGEST_END
    while is_in_use(folder) and time.monotonic() < end:
        time.sleep(0.1)
    remove_temporary_folder(folder)


def _await_end_of(maker: int) -> None:
    """Waits for the end of the process that started this one, which closes its files a moment before it ends."""
    end = time.monotonic() + _LONGEST_END
    while os.getppid() == maker and time.monotonic() < end:
        time.sleep(0.01)


def _serve_first(path: str, maker: int) -> None:
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(1)
            sys.meta_path.insert(0, _WithoutPandas())
            _get_ready()
            if listener not in select.select([listener, sys.stdin], [], [])[0]:
                if not os.read(0, 1):
                    # The other end closed without a word: its process was killed.
                    _await_end_of(maker)
                return
            peer, _ = listener.accept()
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
    _, pipes, _, _ = socket.recv_fds(peer, 1, len(_PIPES))
    with peer.makefile("rb") as answer:
        environment = json.loads(answer.read())
    for given, own in zip(pipes, _PIPES, strict=True):
        os.dup2(given, own)
        os.close(given)
    os.environ.clear()
    os.environ.update(environment)
    # The other end learns the id of this process now, and its end when the connection closes.
    peer.sendall(str(os.getpid()).encode())
    _serve()


def main(argv: list[str]) -> None:
    """Waits for Spark if it is started ahead of it; else hands over to a waiting daemon, or serves itself."""
    # Spark passes the name of the worker module, of which there is only one for tasks.
    if argv[:1] == [_AHEAD]:
        _wait(argv[1], int(argv[2]))
    elif not ((path := os.environ.get(_SOCKET)) and _hand_over(path)):
        _get_ready()
        # Once here, not in each worker. A daemon that was started ahead of Spark is on the driver's machine.
        with contextlib.suppress(OSError):
            installed_code.digest_of(installed_code.folders())
        _serve()


if __name__ == "__main__":
    main(sys.argv[1:])
