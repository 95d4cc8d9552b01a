"""The connection type `flink`, and a way to one JobManager's REST API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseHook

from flink_provider.errors import FlinkError
from flink_provider.jobs import Goal, JarRun, cancel_job, find_job, has_checkpointed, job_state, run_jar, wait_for
from flink_provider.rest import ANSWER_SECONDS, PATIENCE_SECONDS, Endpoint, FlinkRest

if TYPE_CHECKING:
    from airflow.sdk import Connection

_PORT = 8081
_T = TypeVar("_T")


class FlinkHook(BaseHook):
    """Flink by the connection's host, port and schema; basic authentication by login and password, or a bearer token.

    Inside an event loop use :meth:`rest`; everything else waits for its answer.
    """

    conn_name_attr = "flink_conn_id"
    default_conn_name = "flink_default"
    conn_type = "flink"
    hook_name = "Apache Flink"

    def __init__(self, flink_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.flink_conn_id = flink_conn_id
        self._endpoint: Endpoint | None = None

    def get_conn(self) -> Endpoint:
        if self._endpoint is None:
            self._endpoint = endpoint_of(self.get_connection(self.flink_conn_id))
        return self._endpoint

    @asynccontextmanager
    async def rest(self) -> AsyncIterator[FlinkRest]:
        if self._endpoint is None:
            self._endpoint = endpoint_of(await self.aget_connection(self.flink_conn_id))
        async with FlinkRest(self._endpoint) as rest:
            yield rest

    def run(self, work: Callable[[FlinkRest], Awaitable[_T]]) -> _T:
        """Do something over REST and wait for it, wherever we are."""
        endpoint = self.get_conn()

        async def worked() -> _T:
            async with FlinkRest(endpoint) as rest:
                return await work(rest)

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(worked())
        # As when a task is killed while it waits: a loop cannot run inside another.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(worked())).result()

    def job_id(self, job: str) -> str:
        """Of the job with this name or id that is running, or else of the newest."""
        return self.run(lambda rest: find_job(rest, job)).id

    def job_state(self, job_id: str) -> str | None:
        """None if Flink knows no such job."""
        return self.run(lambda rest: job_state(rest, job_id))

    def has_checkpointed(self, job_id: str) -> bool:
        """Whether the job has completed a checkpoint of its own: from then on, going back replays input."""
        return self.run(lambda rest: has_checkpointed(rest, job_id))

    def run_jar(self, run: JarRun) -> bool:
        """Start the program, unless a job of its id is there already; whether it was started now."""
        return self.run(lambda rest: run_jar(rest, run))

    def wait_for(self, job_id: str, goal: Goal, *, timeout: float, poll_interval: float = 1) -> str:
        """The state in which the goal was reached; a job that ended otherwise is an error, in Flink's words."""
        return self.run(lambda rest: wait_for(rest, job_id, goal, timeout=timeout, poll_interval=poll_interval))

    def cancel(self, job_id: str, *, timeout: float, poll_interval: float = 1) -> str:
        """Cancel the job and wait until it is over; the state in which it is, which may be another than CANCELED."""

        async def work(rest: FlinkRest) -> str:
            await cancel_job(rest, job_id)
            return await wait_for(rest, job_id, Goal.over(), timeout=timeout, poll_interval=poll_interval)

        return self.run(work)

    def test_connection(self) -> tuple[bool, str]:
        """For the button in the form."""

        async def work(rest: FlinkRest) -> Any:
            return await rest.get("/overview")

        try:
            overview = self.run(work)
        except FlinkError as error:
            return False, str(error)
        return True, f"Flink {overview['flink-version']} with {overview['taskmanagers']} TaskManagers"


def endpoint_of(connection: Connection) -> Endpoint:
    extra = connection.extra_dejson
    if not connection.host:
        raise FlinkError(f"connection '{connection.conn_id}' names no host")
    token = extra.get("token") or None
    if token and connection.login:
        raise FlinkError(f"connection '{connection.conn_id}' has both a login and a token; expected one of them")
    return Endpoint(
        url=_url(connection, extra),
        login=connection.login or None,
        password=connection.password,
        token=token,
        verify=extra.get("verify", True) is not False,
        ca_file=extra.get("ca_file") or None,
        patience=float(extra.get("patience") or PATIENCE_SECONDS),
        ui_url=str(extra.get("ui_url") or "").rstrip("/") or None,
        answer=float(extra.get("answer_timeout") or ANSWER_SECONDS),
    )


def _url(connection: Connection, extra: Mapping[str, Any]) -> str:
    schema = connection.schema or "http"
    if schema not in ("http", "https"):
        raise FlinkError(f"connection '{connection.conn_id}' has the schema '{schema}'; expected http or https")
    path = str(extra.get("path") or "").strip("/")
    return f"{schema}://{connection.host}:{connection.port or _PORT}" + (f"/{path}" if path else "")
