"""A proxy on loopback that makes a server as far away as an object store: each request waits, and bytes are limited.

`python -m benchmarks.slow_pipe PORT SERVER_PORT MILLISECONDS MEGABYTES_PER_SECOND` runs until its input ends, and then
prints how many requests and bytes it has passed on, and how many requests came one after the other: the most of which
each began when the one before it had its answer. A noisy machine changes the times, but hardly these numbers.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

_HOST = "127.0.0.1"
_AT_ONCE = 1 << 18
_SET_PIPE_SIZE = 1031
# The limit holds over such a time.
_BURST = 0.01


@dataclass(slots=True)
class _Request:
    began: float
    ended: float


def longest_chain(requests: Iterable[tuple[float, float]]) -> int:
    """The most requests, by begin and end, of which each began after the one before it had ended."""
    length, last = 0, float("-inf")
    for ended, began in sorted((ended, began) for began, ended in requests):
        if began >= last:
            length, last = length + 1, ended
    return length


@dataclass
class Pipe:
    """What all connections share: the delay of each request, and the bytes per second in both directions together."""

    seconds: float
    rate: float
    requests: list[_Request] = field(default_factory=list)
    to_server: int = 0
    to_client: int = 0
    _free_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def passed(self, size: int, *, to_server: bool) -> None:
        """Notes bytes, and waits as long as they keep the pipe busy."""
        with self._lock:
            if to_server:
                self.to_server += size
            else:
                self.to_client += size
            self._free_at = max(self._free_at, time.monotonic()) + size / self.rate
            wait = self._free_at - time.monotonic()
        if wait > _BURST:
            time.sleep(wait)

    def begun(self) -> _Request:
        """Notes a new request, and waits for it."""
        now = time.monotonic()
        request = _Request(now, now)
        with self._lock:
            self.requests.append(request)
        time.sleep(self.seconds)
        return request

    def figures(self) -> dict[str, int]:
        """What went through."""
        chain = longest_chain((one.began, one.ended) for one in self.requests)
        return {
            "requests": len(self.requests),
            "in_sequence": chain,
            "to_server": self.to_server,
            "to_client": self.to_client,
        }


@dataclass
class _Turn:
    """Whose bytes came last on a connection: after the server's, the client's next ones are a new request."""

    of_server: bool = True
    request: _Request | None = None


def serve(pipe: Pipe, listening: socket.socket, server_port: int) -> None:
    """Passes connections on until the process ends."""
    while True:
        client, _ = listening.accept()
        server = socket.create_connection((_HOST, server_port))
        turn = _Turn()
        for source, target, to_server in ((client, server, True), (server, client, False)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_pass_on, args=(pipe, source, target, turn, to_server), daemon=True).start()


def _pass_on(pipe: Pipe, source: socket.socket, target: socket.socket, turn: _Turn, to_server: bool) -> None:
    out, into = os.pipe()
    fcntl.fcntl(into, _SET_PIPE_SIZE, _AT_ONCE)
    try:
        # The kernel moves the bytes, so that the proxy itself takes little of a core.
        while size := os.splice(source.fileno(), into, _AT_ONCE):
            if to_server and turn.of_server:
                turn.request = pipe.begun()
            turn.of_server = not to_server
            if turn.request is not None and not to_server:
                turn.request.ended = time.monotonic()
            pipe.passed(size, to_server=to_server)
            while size:
                size -= os.splice(out, target.fileno(), size)
    except OSError:
        pass
    finally:
        for end in (out, into):
            os.close(end)
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def main() -> None:
    """Serves until the input ends."""
    port, server_port, milliseconds, megabytes = map(int, sys.argv[1:])
    pipe = Pipe(milliseconds / 1000, megabytes * 1e6)
    listening = socket.create_server((_HOST, port), backlog=128)
    threading.Thread(target=serve, args=(pipe, listening, server_port), daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    sys.stdout.write(f"{json.dumps(pipe.figures())}\n")


if __name__ == "__main__":
    main()
