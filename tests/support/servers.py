"""What tests need to start a server: as a process of its own, or in a thread."""

from __future__ import annotations

import json
import shutil
import socket
import socketserver
import subprocess
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Self

from flinkstate.basics.closing import Closing

LOOPBACK = "127.0.0.1"


def with_us(how: str = "KILL") -> list[str]:
    """What makes a process end when the one that started it does, however that ends: Linux knows how."""
    return ["setpriv", "--pdeathsig", how] if shutil.which("setpriv") else []


def free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as server:
        port: int = server.getsockname()[1]
    return port


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((LOOPBACK, port)) == 0


class Server(Closing):
    """A server that starts with the context, and is closed at its end or if it doesn't come up."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    @abstractmethod
    def start(self) -> None:
        """Returns when the server answers."""


class ServerProcess(Server):
    """A server in a process that listens on a port; it ends with this process at the latest. `log` is what it says."""

    patience = 240.0

    def __init__(self, log: Path, port: int = 0) -> None:
        self.log = log
        self.port = port or free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def prepared(self) -> list[str]:
        """Writes its settings, and returns the command by which it starts."""

    def start(self) -> None:
        """Returns when the process listens; if it ended or took longer, the error has the end of its log."""
        command = [*with_us(), *self.prepared()]
        with self.log.open("wb") as log:
            process = self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + self.patience
        while not listens(self.port):
            if process.poll() is not None or time.monotonic() > end:
                said = self.log.read_text(errors="replace")[-4000:]
                raise RuntimeError(f"{type(self).__name__} doesn't listen:\n{said}")
            time.sleep(0.05)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def serving(server: socketserver.TCPServer) -> Iterator[int]:
    """The port of a server that answers in a thread."""
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


class Handler(BaseHTTPRequestHandler):
    """Answers, and logs nothing."""

    def log_message(self, *_: object) -> None: ...

    def answer(self, content: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def answer_json(self, body: object, status: int = 200) -> None:
        self.answer(json.dumps(body).encode(), status)
