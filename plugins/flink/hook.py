"""The connection type `flink`, and the hook to one JobManager's REST API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseHook

from stateferry.airflow.flink.checkpoints import Checkpoint, checkpoint_interval, completed_checkpoints
from stateferry.airflow.flink.errors import FlinkError
from stateferry.airflow.flink.jobs import (
    Goal,
    JarRun,
    JobOverview,
    cancel_job,
    check_program,
    find_job,
    has_checkpointed,
    job_state,
    list_jobs,
    run_jar,
    wait_for,
)
from stateferry.airflow.flink.rest import ANSWER_SECONDS, PATIENCE_SECONDS, Endpoint, FlinkRest

if TYPE_CHECKING:
    from airflow.sdk import Connection

_PORT = 8081
_T = TypeVar("_T")


class FlinkHook(BaseHook):
    """Flink at the connection's host, port and schema; authenticates with login and password, or with a bearer token.

    Inside an event loop, use `rest`. All other methods block until Flink has answered.
    """

    conn_name_attr = "flink_conn_id"
    default_conn_name = "flink_default"
    conn_type = "flink"
    hook_name = "Apache Flink (REST)"

    def __init__(self, flink_conn_id: str = default_conn_name, *, patience: float | None = None, **kwargs: Any) -> None:
        """With `patience` it waits no longer for an answer, in seconds, whatever the connection says."""
        super().__init__(**kwargs)
        self.flink_conn_id, self._patience = flink_conn_id, patience
        self._endpoint: Endpoint | None = None

    def get_conn(self) -> Endpoint:
        """The endpoint that the connection describes."""
        if self._endpoint is None:
            self._endpoint = self._of_patience(endpoint_of(self.get_connection(self.flink_conn_id)))
        return self._endpoint

    def _of_patience(self, endpoint: Endpoint) -> Endpoint:
        if (most := self._patience) is None:
            return endpoint
        return replace(endpoint, patience=min(endpoint.patience, most), answer=min(endpoint.answer, most))

    @asynccontextmanager
    async def rest(self) -> AsyncIterator[FlinkRest]:
        """A client for use inside an event loop."""
        if self._endpoint is None:
            self._endpoint = self._of_patience(endpoint_of(await self.aget_connection(self.flink_conn_id)))
        async with FlinkRest(self._endpoint) as rest:
            yield rest

    def run(self, work: Callable[[FlinkRest], Awaitable[_T]]) -> _T:
        """Does work over REST and waits for the result, inside or outside an event loop."""
        endpoint = self.get_conn()

        async def worked() -> _T:
            async with FlinkRest(endpoint) as rest:
                return await work(rest)

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(worked())
        # A task that is killed while it waits comes here: an event loop can't run inside another one.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(worked())).result()

    def jobs(self) -> list[JobOverview]:
        """All jobs that Flink remembers, the newest first."""
        return self.run(list_jobs)

    def job_id(self, job: str) -> str:
        """The id of the running job with this name or id, else of the newest such job."""
        return self.run(lambda rest: find_job(rest, job)).id

    def job_state(self, job_id: str) -> str | None:
        """The job's state; None if Flink doesn't know the job."""
        return self.run(lambda rest: job_state(rest, job_id))

    def has_checkpointed(self, job_id: str) -> bool:
        """Whether the job has completed a checkpoint of its own. If it has, the old job would read input again."""
        return self.run(lambda rest: has_checkpointed(rest, job_id))

    def completed_checkpoints(self, job: str) -> list[Checkpoint]:
        """The completed checkpoints of the job with this name or id whose files are still there, the newest first."""
        return self.run(lambda rest: completed_checkpoints(rest, job))

    def checkpoint_interval(self, job_id: str) -> int | None:
        """The milliseconds between two checkpoints of the job; None if it takes none by itself."""
        return self.run(lambda rest: checkpoint_interval(rest, job_id))

    def run_jar(self, run: JarRun) -> bool:
        """Starts the program unless a job with its id exists; returns whether it was started now."""
        return self.run(lambda rest: run_jar(rest, run))

    def flink_version(self) -> str:
        """The version of Flink, such as 2.3.0."""
        return str(self.run(lambda rest: rest.get("/config"))["flink-version"])

    def check_program(self, run: JarRun) -> None:
        """Raises Flink's error if Flink lacks the jar, or can't make the plan of the program's job."""
        self.run(lambda rest: check_program(rest, run))

    def wait_for(self, job_id: str, goal: Goal, *, timeout: float, poll_interval: float = 1) -> str:
        """Waits for the goal and returns the state in which it was reached; raises an error if the job ends before."""
        return self.run(lambda rest: wait_for(rest, job_id, goal, timeout=timeout, poll_interval=poll_interval))

    def cancel(self, job_id: str, *, timeout: float, poll_interval: float = 1) -> str:
        """Cancels the job, waits until it has ended, and returns its final state, which need not be CANCELED."""

        async def work(rest: FlinkRest) -> str:
            await cancel_job(rest, job_id)
            return await wait_for(rest, job_id, Goal.over(), timeout=timeout, poll_interval=poll_interval)

        return self.run(work)

    def test_connection(self) -> tuple[bool, str]:
        """Tests the connection, for the button in Airflow's form."""

        async def work(rest: FlinkRest) -> Any:
            return await rest.get("/overview")

        try:
            overview = self.run(work)
        except FlinkError as error:
            return False, str(error)
        return True, f"Flink {overview['flink-version']} with {overview['taskmanagers']} TaskManagers"


def endpoint_of(connection: Connection) -> Endpoint:
    """The endpoint that a connection describes."""
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
