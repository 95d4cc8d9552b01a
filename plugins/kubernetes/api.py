"""The part of the Kubernetes API that custom resources need: read, merge patch, create, watch."""

from __future__ import annotations

import json
import logging
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from stateferry.airflow.kubernetes.errors import ConflictError, KubernetesError, KubernetesUnreachableError

PATIENCE_SECONDS = 300.0
_ANSWER_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
_PASSING = (429, 500, 502, 503, 504)
_GROUP = "/apis/flink.apache.org/v1beta1"
# Unknown fields are an error, instead of being left out without a word.
_STRICT = {"fieldValidation": "Strict"}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ApiServer:
    """An API server, and how to authenticate there."""

    url: str
    headers: Callable[[], Mapping[str, str]] = field(default=dict, repr=False)
    """Asked for each request, because a token may expire."""
    verify: ssl.SSLContext | bool = True
    proxy: str | None = None
    namespace: str | None = None
    patience: float = PATIENCE_SECONDS
    """Seconds for which a request without an answer is repeated."""


class KubernetesApi:
    """A client of one API server."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        # Nobody closes the client, and requests are rare: no connection stays open after its answer.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(verify=server.verify, proxy=server.proxy, timeout=_ANSWER_SECONDS, limits=limits)

    def get(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        """The resource; None if there is none."""
        try:
            return self._ask("GET", _path(plural, namespace, name))
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise

    def patch(
        self, plural: str, namespace: str, name: str, body: Mapping[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Applies a merge patch. If it has a ``resourceVersion``, the resource must not have changed since.

        Such a patch is also safe to repeat: if the first one arrived and only its answer was lost, there is a conflict.
        """
        query = _STRICT | ({"dryRun": "All"} if dry_run else {})
        return self._ask("PATCH", _path(plural, namespace, name), query, body)

    def create(self, plural: str, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Creates a resource."""
        return self._ask("POST", _path(plural, namespace), _STRICT, body)

    def watch(self, plural: str, namespace: str, name: str, since: str, seconds: float) -> Iterator[dict[str, Any]]:
        """The states of the resource after that version, as they come, for so many seconds at most.

        It ends early if the API server ends it, or can't be reached: who waits reads the resource again.
        """
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": since,
            "timeoutSeconds": str(max(round(seconds), 1)),
        }
        headers = dict(self.server.headers())
        url = f"{self.server.url}{_path(plural, namespace)}"
        try:
            with self._client.stream(
                "GET", url, params=query, headers=headers, timeout=seconds + _ANSWER_SECONDS
            ) as answer:
                if not answer.is_success:
                    answer.read()
                    _log.warning("%s", _refusal(f"the watch of {name}", answer))
                    time.sleep(min(seconds, _LONGEST_PAUSE))
                    return
                for line in answer.iter_lines():
                    event = json.loads(line)
                    if event["type"] not in ("ADDED", "MODIFIED"):
                        return
                    yield event["object"]
        except httpx.TransportError as error:
            _log.info("the watch of %s has ended: %s", name, error)
            time.sleep(_FIRST_PAUSE)

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        url, end, pause = f"{self.server.url}{path}", time.monotonic() + self.server.patience, _FIRST_PAUSE
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else json.dumps(body)
        while True:
            try:
                headers = {**self.server.headers(), "Content-Type": kind}
                answer = self._client.request(method, url, params=query, content=content, headers=headers)
                if answer.is_success:
                    found: dict[str, Any] = answer.json()
                    return found
                refused = _refusal(f"{method} {url}", answer)
                if answer.status_code not in _PASSING:
                    raise refused
                why = str(refused)
            except httpx.TransportError as error:
                why = f"{method} {url}: {type(error).__name__}: {error}".rstrip(": ")
            if time.monotonic() + pause > end:
                raise KubernetesUnreachableError(f"no answer from Kubernetes within {self.server.patience:g} s: {why}")
            _log.warning("%s; repeating the request in %g s", why, pause)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _path(plural: str, namespace: str, name: str | None = None) -> str:
    path = f"{_GROUP}/namespaces/{quote(namespace, safe='')}/{plural}"
    return path if name is None else f"{path}/{quote(name, safe='')}"


def _refusal(request: str, answer: httpx.Response) -> KubernetesError:
    try:
        words = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        words = answer.text[:2000]
    kind = ConflictError if answer.status_code == 409 else KubernetesError
    error = kind(f"{request} was answered with {answer.status_code}: {words}")
    error.status = answer.status_code
    return error
