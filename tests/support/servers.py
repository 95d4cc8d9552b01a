"""What tests need to start a server: as a process of its own, or in a thread."""

from __future__ import annotations

import json
import shutil
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

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


def wait_until_listens(name: str, port: int, process: subprocess.Popen[bytes], log: Path, patience: float) -> None:
    """Returns when the server's process listens; if it ended or took longer, the error has the end of its log."""
    end = time.monotonic() + patience
    while not listens(port):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{name} doesn't listen:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.05)


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
