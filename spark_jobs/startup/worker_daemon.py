"""Where Spark's Python workers come from: a process that has imported what tasks need, so that none of the workers
forked from it has to, and that keeps short what workers do between tasks.

Getting ready takes longer than everything else that a small run does. A local session lets it be done while its JVM
starts, by a process of its own (`Nursery`); what Spark starts then hands its pipes over to that one.
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

from spark_jobs.startup import memory
from stateferry.temporary_folder import is_in_use, make_temporary_folder, remove_temporary_folder

_SOCKET = "STATEFERRY_NURSERY"
_PIPES = (0, 1, 2)
_LONGEST_PID = 20
_AHEAD = "--ahead-of-spark"
_LONGEST_END = 60.0
_numbers = count(1)
# What tasks need; not the catalog's libraries, which only the driver does.
_PRELOADED = (
    "numpy.ma",
    "spark_jobs.savepoint_source",
    "spark_jobs.workers",
    "stateferry.migration.inventory",
    "stateferry.migration.staging",
    "stateferry.runs.file_digest",
    "stateferry.tables.account",
    "stateferry.tables.chunk",
    "stateferry.validation.checks",
)


class Nursery:
    """A worker daemon that gets ready before there is a Spark to need it. It ends with that Spark's JVM, or, if none
    comes, with this process."""

    def __init__(self) -> None:
        path = f"{make_temporary_folder()}/nursery-{next(_numbers)}"
        command = [sys.executable, "-m", "spark_jobs.startup.worker_daemon", _AHEAD, path, str(os.getpid())]
        # As Spark starts its daemon: with one order of hashes for all, and not to be interrupted from the terminal.
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        # Where we have no output ourselves, it needs one all the same: that of Spark's pipes takes its place.
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

    def close(self) -> None:
        """Once Spark has stopped."""
        os.environ.pop(_SOCKET, None)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _passes_on(descriptor: int) -> bool:
    """Whether processes that we start have it too."""
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


class _WithoutPandas:
    """Has pyarrow do as if there was none: tasks don't need it, and to import it takes as long as all that they do."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _get_ready() -> None:
    # Nothing of what is imported is garbage, and all of it would be looked through again and again.
    gc.disable()
    memory.keep()
    import pyarrow as pa

    from stateferry import compiled

    for module in _PRELOADED:
        importlib.import_module(module)
    compiled.load()
    # The first array imports pandas if it can: here once, instead of in each worker.
    pa.array([])


def _keep_what_is_known_of_zips(_: zipimporter) -> None:
    """Spark's own archives, on every worker's path, don't change; to list their content again takes 80 ms a task."""


def _serve() -> None:
    from pyspark import daemon

    worker = daemon.worker

    def until_spark_ends(connection: socket.socket, authenticated: bool) -> int:
        try:
            code: int = worker(connection, authenticated)  # type: ignore[no-untyped-call]
        except ConnectionError:
            # What the worker has to say of the end of its input nobody hears.
            return 1
        return code

    daemon.worker = until_spark_ends
    zipimporter.invalidate_caches = _keep_what_is_known_of_zips  # type: ignore[assignment, method-assign]
    # Workers look for garbage after each task: not among what was there before them.
    gc.freeze()
    gc.enable()
    daemon.manager()  # type: ignore[no-untyped-call]


def _hand_over(path: str) -> bool:
    """Gives pipes and environment to the process that waits; true once that one has ended."""
    with socket.socket(socket.AF_UNIX) as peer:
        try:
            peer.connect(path)
            socket.send_fds(peer, [b"\0"], _PIPES)
            peer.sendall(json.dumps(dict(os.environ)).encode())
            peer.shutdown(socket.SHUT_WR)
            taker = peer.recv(_LONGEST_PID)
        except OSError:
            return False
        if not taker:
            return False
        # Spark ends its daemon by this signal and by closing its pipes. The taker has the pipes and ends by them; with
        # the signal as well it could end before it has removed the temporary folder.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        peer.recv(1)
    return True


def _wait(path: str, maker: int) -> None:
    """Gets ready, and serves whoever comes first. Whoever started this process removes its own temporary folder; if it
    has been killed, this process does."""
    me = os.getpid()
    try:
        _serve_first(path)
    finally:
        # Workers are forked from here.
        if os.getpid() == me and os.getppid() != maker:
            _remove_after_all_others(os.path.dirname(path))


def _remove_after_all_others(folder: str) -> None:
    """A JVM on its way to its end may make the folder again."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end = time.monotonic() + _LONGEST_END
    while is_in_use(folder) and time.monotonic() < end:
        time.sleep(0.1)
    remove_temporary_folder(folder)


def _serve_first(path: str) -> None:
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(1)
            sys.meta_path.insert(0, _WithoutPandas())
            _get_ready()
            if listener not in select.select([listener, sys.stdin], [], [])[0]:
                return
            peer, _ = listener.accept()
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
    _, pipes, _, _ = socket.recv_fds(peer, 1, len(_PIPES))
    with peer.makefile("rb") as said:
        environment = json.loads(said.read())
    for given, own in zip(pipes, _PIPES, strict=True):
        os.dup2(given, own)
        os.close(given)
    os.environ.clear()
    os.environ.update(environment)
    # The other end learns by whom it was taken, and, when this process ends, that it has.
    peer.sendall(str(os.getpid()).encode())
    _serve()


def main(argv: list[str]) -> None:
    # Spark names the module whose workers it wants: the only one there is for tasks.
    if argv[:1] == [_AHEAD]:
        _wait(argv[1], int(argv[2]))
    elif not ((path := os.environ.get(_SOCKET)) and _hand_over(path)):
        _get_ready()
        _serve()


if __name__ == "__main__":
    main(sys.argv[1:])
