"""The proxy that makes a server as far away as an object store: it delays, limits and counts, and changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.slow_pipe import longest_chain
from local_airflow.settings import free_port
from tests.support.servers import Handler, serving

pytestmark = pytest.mark.slow
_CONTENT = bytes(range(256)) * 20_000


@pytest.fixture
def server_port() -> Iterator[int]:
    class Content(Handler, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(_CONTENT)

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Content)) as port:
        yield port


def test_requests_wait_and_bytes_are_limited_and_counted(server_port: int) -> None:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.slow_pipe", str(port), str(server_port), "200", "10"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pipe:
        assert pipe.stdout is not None
        assert pipe.stdout.readline() == "ready\n"
        began = time.monotonic()
        for _ in range(2):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                assert answer.read() == _CONTENT
        seconds = time.monotonic() - began
        out, _ = pipe.communicate()
    told = json.loads(out)
    # 0.2 s for each request, and 10 MB/s for what was sent.
    assert seconds > 2 * 0.2 + (2 * len(_CONTENT) - 1_000_000) / 10e6
    assert (told["requests"], told["in_sequence"]) == (2, 2)
    assert 0 < told["to_client"] - 2 * len(_CONTENT) < 1000
    assert 0 < told["to_server"] < 1000


def test_requests_side_by_side_are_no_longer_chain() -> None:
    assert longest_chain([]) == 0
    assert longest_chain([(0.0, 1.0), (0.1, 0.9), (0.2, 1.1)]) == 1
    assert longest_chain([(0.0, 1.0), (1.0, 2.0), (0.5, 3.0), (2.5, 4.0)]) == 3
