"""Requests to Flink's REST API, repeated while a JobManager is down, slow or not yet elected."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx

from stateferry.airflow.flink.errors import FlinkError, FlinkRefusedError, FlinkUnreachableError

PATIENCE_SECONDS = 300.0
ANSWER_SECONDS = 30.0
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
# A proxy answers so while Flink is down. Flink itself answers 503 while its leader is being elected.
_PASSING = (429, 502, 503, 504)
_PASSING_WORDS = ("AskTimeoutException", "RecipientUnreachableException", "UnavailableDispatcherOperationException")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Endpoint:
    """The address of a JobManager's REST API, and how to authenticate there."""

    url: str
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    verify: bool = True
    ca_file: str | None = None
    patience: float = PATIENCE_SECONDS
    """Seconds for which a request without an answer is repeated."""
    answer: float = ANSWER_SECONDS
    """Seconds that one answer may take."""
    ui_url: str | None = None
    """The address of Flink's web interface, if it is another one."""

    def client(self) -> httpx.AsyncClient:
        """A client for this endpoint."""
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        auth = None if self.login is None else httpx.BasicAuth(self.login, self.password or "")
        return httpx.AsyncClient(headers=headers, auth=auth, verify=self._tls(), timeout=self.answer)

    def _tls(self) -> ssl.SSLContext | bool:
        if not self.verify or not self.url.startswith("https:"):
            return False
        return ssl.create_default_context(cafile=self.ca_file)


class FlinkRest:
    """A client of one JobManager's REST API; a context manager."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._client = endpoint.client()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> Any:
        """Sends a GET request, and repeats it while Flink doesn't answer."""
        return await self._ask("GET", path, repeatable=True)

    async def patch(self, path: str) -> Any:
        """Sends a PATCH request, and repeats it while Flink doesn't answer."""
        return await self._ask("PATCH", path, repeatable=True)

    async def post_once(self, path: str, body: Mapping[str, Any], *, answer: float | None = None) -> Any:
        """Sends a request that must not be done twice; repeats it if it didn't arrive or Flink isn't ready for it.

        :class:`FlinkUnreachableError` means that it may have been done: check that before you send it again.
        """
        return await self._ask("POST", path, body, repeatable=False, answer=answer)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        repeatable: bool,
        answer: float | None = None,
    ) -> Any:
        url = f"{self.endpoint.url}{path}"
        end = time.monotonic() + self.endpoint.patience
        pause = _FIRST_PAUSE
        while True:
            try:
                response = await self._client.request(method, url, json=body, timeout=answer or self.endpoint.answer)
                refused = _refusal(f"{method} {url}", response)
                if refused is None:
                    return _json(f"{method} {url}", response) if response.content else None
                if not _passes(refused):
                    raise refused
                why = str(refused)
            except httpx.TransportError as error:
                why = f"{method} {url}: {type(error).__name__}: {error}".rstrip(": ")
                if not repeatable and not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
                    raise FlinkUnreachableError(f"no answer from Flink: {why}") from error
            if time.monotonic() + pause > end:
                raise FlinkUnreachableError(f"no answer from Flink within {self.endpoint.patience:g} s: {why}")
            _log.warning("%s; repeating the request in %g s", why, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _json(request: str, response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        found = f"{response.text[:200]!r}"
        raise FlinkError(f"{request}: expected JSON, found {found}: is it Flink that answers there?") from None


def _refusal(request: str, response: httpx.Response) -> FlinkRefusedError | None:
    if response.is_success:
        return None
    return FlinkRefusedError(request, response.status_code, _words(response))


def _words(response: httpx.Response) -> str:
    if response.is_redirect:
        return f"redirected to {response.headers.get('location')}: enter that address in the connection"
    try:
        errors = [str(error) for error in response.json()["errors"]]
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError):
        return response.text[:2000]
    # Before the stack trace, Flink only says that there was an internal error; the trace says which.
    traces = [error for error in errors if "Exception" in error]
    return "\n".join(traces or errors).replace("<Exception on server side:\n", "").replace(_END_OF_TRACE, "")


_END_OF_TRACE = "\n\nEnd of exception on server side>"


def _passes(refused: FlinkRefusedError) -> bool:
    return refused.status in _PASSING or (refused.status == 500 and refused.says(*_PASSING_WORDS))
