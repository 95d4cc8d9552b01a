"""What tests need to start a server as a process of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
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
