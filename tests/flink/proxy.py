"""A network between a client and a cluster on loopback that can be slow or silent, and can lose answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

_HOST = "127.0.0.1"
_CHUNK = 1 << 16
_WHILE_SILENT = 0.05


class Proxy:
    """Passes on to `target`, a port of this machine, what arrives at `port`, and the answers `delay` seconds later.

    The answer to the next `lost` requests that begin as in `lost_requests` is lost together with its connection: the
    server has done what was asked, the client doesn't know. While it `is_away`, there are no connections. While it
    `is_silent`, nothing arrives, and nobody is told.
    """

    def __init__(self, target: int, address: tuple[str, int] = (_HOST, 0)) -> None:
        self.delay = 0.0
        self.lost_requests = b"POST "
        self.lost = 0
        self.is_silent = False
        self._target = target
        self._server = socket.create_server(address)
        self.port: int = self._server.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._is_away = False

    @property
    def is_away(self) -> bool:
        return self._is_away

    @is_away.setter
    def is_away(self, away: bool) -> None:
        self._is_away = away
        if away:
            self._end_all()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True, name="proxy").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing alone leaves the thread in accept.
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._end_all()

    def _end_all(self) -> None:
        for one in list(self._open):
            _end(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                server = None if self._is_away else socket.create_connection((_HOST, self._target))
            except OSError:
                server = None
            if server is None:
                client.close()
                continue
            _Connection(self, client, server).start()


class _Connection:
    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._loses = False

    def start(self) -> None:
        self._proxy._open |= {self._client, self._server}
        for source, target, arrived in (
            (self._client, self._server, self._asked),
            (self._server, self._client, self._answered),
        ):
            threading.Thread(target=self._pass_on, args=(source, target, arrived), daemon=True, name="proxy").start()

    def _pass_on(self, source: socket.socket, target: socket.socket, arrived: Callable[[bytes], None]) -> None:
        try:
            while data := source.recv(_CHUNK):
                while self._proxy.is_silent:
                    time.sleep(_WHILE_SILENT)
                arrived(data)
                target.sendall(data)
        except OSError:
            pass  # The other end is gone, or the answer is to be lost.
        finally:
            for one in (self._client, self._server):
                _end(one)
                self._proxy._open.discard(one)

    def _asked(self, data: bytes) -> None:
        if self._proxy.lost and data.startswith(self._proxy.lost_requests):
            self._proxy.lost -= 1
            self._loses = True

    def _answered(self, _: bytes) -> None:
        time.sleep(self._proxy.delay)
        if self._loses:
            raise ConnectionResetError


def _end(one: socket.socket) -> None:
    with suppress(OSError):  # It may have ended already.
        one.shutdown(socket.SHUT_RDWR)
    one.close()
