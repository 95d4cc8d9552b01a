"""A proxy on loopback before an object store: it answers some requests as stores in trouble do.

It knows where requests and answers end, so that each fault is one of a request: an answer that never comes, comes late,
breaks off, or lies.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Self

from tests.support.servers import LOOPBACK

_AT_ONCE = 1 << 16
_LONGEST_HEAD = 1 << 16
# With this a closed socket says that the connection was reset.
_RESETS = struct.pack("ii", 1, 0)
_ERROR = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"


class Fault(Enum):
    """What happens to a request, or to its answer."""

    SLOW = "the answer comes late"
    BUSY = "503 instead of doing it"
    FAILS_AFTER = "500, although it was done"
    REFUSED = "the connection is reset before it is done"
    SILENT = "nothing is done, and no answer comes"
    LOST = "the connection is reset after it was done"
    TORN = "the connection is reset in the middle of the answer"
    SHORT = "the answer ends in the middle"
    LESS = "the answer has fewer bytes, and says so"
    MORE = "the answer says that it has more bytes"
    EXPIRED = "the credentials have expired"
    FULL = "there is no room for what is written"


_ANSWERS = {
    Fault.BUSY: (503, "SlowDown", "Please reduce your request rate."),
    Fault.FAILS_AFTER: (500, "InternalError", "We encountered an internal error. Please try again."),
    Fault.EXPIRED: (400, "ExpiredToken", "The provided token has expired."),
    Fault.FULL: (507, "InsufficientStorage", "There is not enough room."),
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request that has arrived: its number, from one, and its first line."""

    number: int
    method: str
    path: str


Choice = Callable[[Request], "Fault | float | None"]
"""What happens to a request: a fault, seconds that its answer comes late, or nothing."""


@dataclass
class TroubledStore:
    """Passes requests on to `target`, a port of this machine. `choice` can be exchanged at any moment."""

    target: int
    choice: Choice = field(default=lambda _: None)
    requests: int = 0
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server = socket.create_server((LOOPBACK, 0), backlog=128)
        self.port: int = self._server.getsockname()[1]
        self.url = f"http://{LOOPBACK}:{self.port}"
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True, name="troubled store").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True, name="troubled store").start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, ValueError), client, socket.create_connection((LOOPBACK, self.target)) as server:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asking, answering = _Stream(client), _Stream(server)
            while (head := asking.head()) is not None and self._one(head, asking, answering):
                pass

    def _one(self, head: bytes, asking: _Stream, answering: _Stream) -> bool:
        """Serves one request, and returns whether the connection goes on."""
        method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        with self._lock:
            self.requests += 1
            request = Request(self.requests, method, path)
        fault = self.choice(request)
        if isinstance(fault, float):
            time.sleep(fault)
            fault = None
        if fault is not None:
            self.done.append(f"request {request.number}, {method} {path}: {fault.value}")
        if fault is Fault.REFUSED:
            return asking.reset()
        if fault is Fault.SILENT:
            return asking.wait_for_the_end()
        if fault in (Fault.BUSY, Fault.EXPIRED, Fault.FULL):
            asking.say_continue(head)
            asking.take_body(head)
            return asking.answer(*_ANSWERS[fault], without_body=method == "HEAD")
        answer = asking.pass_request(head, answering)
        if fault is Fault.LOST:
            if method != "HEAD":
                answering.take_body(answer)
            return asking.reset()
        if fault is Fault.FAILS_AFTER:
            if method != "HEAD":
                answering.take_body(answer)
            return asking.answer(*_ANSWERS[fault], without_body=method == "HEAD")
        return answering.pass_answer(answer, asking, fault, without_body=method == "HEAD")


class _Stream:
    """One end of a connection: what was received and not used yet."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._rest = b""

    def send(self, data: bytes) -> None:
        self._end.sendall(data)

    def head(self) -> bytes | None:
        """Returns the next head with its empty line; None at the end."""
        while b"\r\n\r\n" not in self._rest:
            more = self._end.recv(_AT_ONCE)
            if not more or len(self._rest) > _LONGEST_HEAD:
                return None
            self._rest += more
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n"

    def _some(self, most: int) -> bytes:
        if not self._rest:
            self._receive()
        data, self._rest = self._rest[:most], self._rest[most:]
        return data

    def _receive(self) -> None:
        data = self._end.recv(_AT_ONCE)
        if not data:
            raise ConnectionResetError
        self._rest += data

    def body(self, head: bytes) -> Iterator[bytes]:
        """Receives the body that belongs to a head, as it was sent."""
        if _field(head, "transfer-encoding") is None:
            yield from self._exactly(int(_field(head, "content-length") or 0))
            return
        size = 1
        while size:
            while b"\r\n" not in self._rest:
                self._receive()
            line, _, self._rest = self._rest.partition(b"\r\n")
            size = int(line.split(b";")[0], 16)
            yield line + b"\r\n"
            yield from self._exactly(size + 2)

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            data = self._some(size)
            size -= len(data)
            yield data

    def say_continue(self, head: bytes) -> None:
        if _field(head, "expect"):
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def take_body(self, head: bytes) -> None:
        """Receives the body that belongs to a head, and forgets it."""
        for _ in self.body(head):
            pass

    def pass_request(self, head: bytes, server: _Stream) -> bytes:
        """Passes a request on, and returns the head of its answer."""
        server.send(head)
        if _field(head, "expect"):
            # A server that doesn't want the body answers at once.
            answer = server.awaited_head()
            if b" 100 " not in answer.split(b"\r\n", 1)[0]:
                return answer
            self.send(answer)
        for data in self.body(head):
            server.send(data)
        return server.awaited_head()

    def awaited_head(self) -> bytes:
        head = self.head()
        if head is None:
            raise ConnectionResetError
        return head

    def pass_answer(self, head: bytes, client: _Stream, fault: Fault | None, *, without_body: bool) -> bool:
        """Passes an answer on, and returns whether the connection goes on."""
        size = int(_field(head, "content-length") or 0)
        said = {Fault.LESS: size // 2, Fault.MORE: size + 100}.get(fault, size) if size and fault else size
        client.send(re.sub(rb"(?i)\r\ncontent-length: *\d+", f"\r\nContent-Length: {said}".encode(), head))
        half, passed = size // 2, 0
        for data in () if without_body else self.body(head):
            if fault in (Fault.TORN, Fault.SHORT, Fault.LESS) and passed + len(data) > half:
                client.send(data[: max(half - passed, 0)])
                return client.reset() if fault is Fault.TORN else False
            client.send(data)
            passed += len(data)
        return fault not in (Fault.LESS, Fault.MORE)

    def answer(self, status: int, code: str, message: str, *, without_body: bool) -> bool:
        body = _ERROR.format(code=code, message=message).encode()
        head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        self.send(head.encode() + (b"" if without_body else body))
        return True

    def wait_for_the_end(self) -> bool:
        while self._end.recv(_AT_ONCE):
            pass
        return False

    def reset(self) -> bool:
        self._end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
        self._end.close()
        return False


def _field(head: bytes, name: str) -> str | None:
    for line in head.decode("latin-1").split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.strip().lower() == name:
            return value.strip()
    return None
