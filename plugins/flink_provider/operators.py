"""Savepoints, programs started and jobs cancelled, each once, however often the task is tried."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from airflow.sdk.exceptions import AirflowFailException

from flink_provider.base import HOUR, JOB_ID, FlinkOperator, task_key
from flink_provider.errors import FlinkJobError, FlinkJobLostError, FlinkRefusedError
from flink_provider.identity import flink_id
from flink_provider.jobs import Goal, JarRun, cancel_job, known_state
from flink_provider.rest import FlinkRest
from flink_provider.savepoints import Pending, Savepoint, SavepointOrder, facts, find_or_trigger, take
from flink_provider.triggers import Event, FlinkJobTrigger, FlinkSavepointTrigger, is_deferrable, raise_for

if TYPE_CHECKING:
    from airflow.sdk import Context

# Here the task's own store, which outlives a try, holds the id of a job that Flink has known.
_SUBMITTED = "flink_job_submitted"


class FlinkSavepointOperator(FlinkOperator):
    """Takes a savepoint of a running job, which goes on.

    It goes into a folder of its own in ``savepoint_directory``. Returns its place under ``savepoint``, with ``job_id``,
    ``seconds`` and, where Flink still knows them, ``bytes`` and ``checkpoint_id``.

    :param job: the job's name or id.
    :param savepoint_directory: as Flink is to see it. Where this machine sees it too (a mounted folder, or a store that
        fsspec has a driver for), a retry finds a savepoint there that Flink has forgotten.
    :param savepoint_format: ``CANONICAL`` or ``NATIVE``.
    """

    template_fields: Sequence[str] = ("flink_conn_id", "job", "savepoint_directory", "savepoint_format")
    stop = False

    def __init__(
        self, *, job: str, savepoint_directory: str, savepoint_format: str = "CANONICAL", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.savepoint_directory = savepoint_directory
        self.savepoint_format = savepoint_format

    def execute(self, context: Context) -> dict[str, Any]:
        started = time.time()
        order = self._order(context)
        if not is_deferrable(self):
            return self._taken(context, self.hook.run(lambda rest: self._take(rest, order)), started)
        found = self.hook.run(lambda rest: find_or_trigger(rest, order))
        if isinstance(found, Pending):
            self.show(context, found.job_id)
            self._defer(found, started)
        return self._taken(context, found, started)

    def execute_complete(self, context: Context, event: Event, started: float) -> dict[str, Any]:
        if event["status"] == "forgotten":
            # Its JobManager was restarted, or nobody asked for too long: look for it elsewhere.
            return self.execute(context)
        raise_for(event)
        return self._taken(context, Savepoint(event["job_id"], event["location"]), started)

    def _order(self, context: Context) -> SavepointOrder:
        job = self.the_job_meant(context, self.job) if self.stop else self.job
        tries = max(context["ti"].try_number, 1)
        return SavepointOrder(task_key(context), job, self.savepoint_directory, self.stop, self.savepoint_format, tries)

    async def _take(self, rest: FlinkRest, order: SavepointOrder) -> Savepoint:
        return await take(rest, order, timeout=self.timeout, poll_interval=self.poll_interval)

    def _defer(self, pending: Pending, started: float) -> NoReturn:
        self.log.info("waiting for the savepoint of job %s (trigger %s)", pending.job_id, pending.trigger)
        trigger = FlinkSavepointTrigger(trigger=pending.trigger, **self.watch(pending.job_id))
        self.defer(trigger=trigger, method_name="execute_complete", kwargs={"started": started})

    def _taken(self, context: Context, savepoint: Savepoint, started: float) -> dict[str, Any]:
        if savepoint.job_id is not None:
            self.show(context, savepoint.job_id)
        seconds = {"seconds": round(time.time() - started, 3)}
        result = {"savepoint": savepoint.location, "job_id": savepoint.job_id} | seconds
        result |= self.hook.run(lambda rest: facts(rest, savepoint))
        self.log.info("savepoint: %s", result)
        return result


class FlinkStopWithSavepointOperator(FlinkSavepointOperator):
    """Stops a job with a savepoint; it is not drained, so that another job can go on from there.

    A savepoint counts only if the job has ended with it: one after which the job went on is out of date.
    """

    stop = True


class FlinkRunJarOperator(FlinkOperator):
    """Starts a job from a jar that was uploaded to Flink, and waits until it is under way.

    The job's id follows from the task instance, so that a retry finds the job instead of starting a second one.
    Returns ``job_id``, ``state`` and ``seconds``. ``job_id`` is also an XCom of its own from before the job is started,
    for whoever has to clean up; it is None again if Flink refused the program and there is no such job.

    :param jar: the id that Flink gave the jar, or its file name: then the one uploaded last.
    :param arguments: the program's, one by one.
    :param savepoint: what to start from. The job never claims it (NO_CLAIM), and all of its state must find its place.
    :param wait_until: ``submitted``, ``running``, ``checkpoint`` (running, and has completed one) or ``finished``.
    :param max_failures: how often the job may fail until then, if Flink restarts it when it does; by default as
        often as Flink lets it. The job isn't cancelled when it has failed once more.
    :param cancel_on_kill: cancel the job when a person ends the task. No retry can start it again then.
    :param restart_lost: start the job again when an earlier try has started it and Flink has forgotten it since (a
        JobManager without high availability was restarted). It may have come far; what it did would be done twice.
    """

    template_fields: Sequence[str] = (
        *("flink_conn_id", "jar", "entry_class", "arguments", "parallelism", "savepoint", "configuration"),
    )

    def __init__(
        self,
        *,
        jar: str,
        entry_class: str | None = None,
        arguments: Sequence[str] = (),
        parallelism: int | str | None = None,
        savepoint: str | None = None,
        configuration: Mapping[str, str] | None = None,
        wait_until: Literal["submitted", "running", "checkpoint", "finished"] = "running",
        max_failures: int | None = None,
        cancel_on_kill: bool = False,
        restart_lost: bool = False,
        timeout: float = HOUR,
        **kwargs: Any,
    ) -> None:
        super().__init__(timeout=timeout, **kwargs)
        self.jar = jar
        self.entry_class = entry_class
        self.arguments = arguments
        self.parallelism = parallelism
        self.savepoint = savepoint
        self.configuration = configuration
        self.wait_until = wait_until
        self.max_failures = max_failures
        self.cancel_on_kill = cancel_on_kill
        self.restart_lost = restart_lost

    def execute(self, context: Context) -> dict[str, Any]:
        started = time.time()
        run = self._run(context)
        self._job_id = run.job_id
        self.show(context, run.job_id)
        self._submit(context, run)
        if self.wait_until == "submitted":
            return self._result(run.job_id, "submitted", started)
        goal = replace(_GOALS[self.wait_until], max_failures=self.max_failures)
        if is_deferrable(self):
            watch = self.watch(run.job_id)
            trigger = FlinkJobTrigger(
                states=sorted(goal.states),
                checkpoint=goal.checkpoint,
                max_failures=goal.max_failures,
                cancel_on_kill=self.cancel_on_kill,
                **watch,
            )
            kwargs = {"job_id": run.job_id, "started": started}
            self.defer(trigger=trigger, method_name="execute_complete", kwargs=kwargs)
        with _for_good():
            state = self.hook.wait_for(run.job_id, goal, timeout=self.timeout, poll_interval=self.poll_interval)
        return self._result(run.job_id, state, started)

    def execute_complete(self, context: Context, event: Event, job_id: str, started: float) -> dict[str, Any]:
        with _for_good():
            raise_for(event)
        return self._result(job_id, event["state"], started)

    def on_kill(self) -> None:
        job_id = getattr(self, "_job_id", None)
        if self.cancel_on_kill and job_id is not None:
            self.hook.run(lambda rest: cancel_job(rest, job_id))

    def _run(self, context: Context) -> JarRun:
        parallelism = None if self.parallelism in (None, "") else int(str(self.parallelism))
        return JarRun(
            job_id=flink_id("job", *task_key(context)),
            jar=self.jar,
            entry_class=self.entry_class or None,
            arguments=tuple(self.arguments),
            parallelism=parallelism,
            savepoint=self.savepoint or None,
            configuration=dict(self.configuration or {}),
        )

    def _submit(self, context: Context, run: JarRun) -> None:
        store = context.get("task_state_store")
        if store is not None and store.get(_SUBMITTED) == run.job_id and not self.restart_lost:
            with _for_good():
                self.hook.run(lambda rest: known_state(rest, run.job_id))
            return
        with _for_good():
            try:
                now = self.hook.run_jar(run)
            except FlinkRefusedError:
                # State that doesn't fit is found out by a job, which then is there and has failed.
                if self.hook.job_state(run.job_id) is None:
                    context["ti"].xcom_push(key=JOB_ID, value=None)
                raise
        self.log.info("job %s %s", run.job_id, "was started" if now else "had been started by an earlier try")
        if store is not None:
            store.set(_SUBMITTED, run.job_id)

    def _result(self, job_id: str, state: str, started: float) -> dict[str, Any]:
        return {"job_id": job_id, "state": state, "seconds": round(time.time() - started, 3)}


class FlinkCancelJobOperator(FlinkOperator):
    """Cancels a job, without a savepoint, and waits until it is over; one that is over already is left as it is.

    Returns ``job_id`` and the ``state`` in which the job is then.
    """

    template_fields: Sequence[str] = ("flink_conn_id", "job")

    def __init__(self, *, job: str, timeout: float = HOUR, **kwargs: Any) -> None:
        super().__init__(timeout=timeout, **kwargs)
        self.job = job

    def execute(self, context: Context) -> dict[str, Any]:
        job_id = self.hook.job_id(self.the_job_meant(context, self.job))
        self.show(context, job_id)
        if is_deferrable(self):
            self.hook.run(lambda rest: cancel_job(rest, job_id))
            trigger = FlinkJobTrigger(states=sorted(Goal.over().states), **self.watch(job_id))
            self.defer(trigger=trigger, method_name="execute_complete", kwargs={"job_id": job_id})
        state = self.hook.cancel(job_id, timeout=self.timeout, poll_interval=self.poll_interval)
        return {"job_id": job_id, "state": state}

    def execute_complete(self, context: Context, event: Event, job_id: str) -> dict[str, Any]:
        raise_for(event)
        return {"job_id": job_id, "state": event["state"]}


_GOALS = {
    "running": Goal(frozenset({"RUNNING", "FINISHED"})),
    "checkpoint": Goal(frozenset({"RUNNING", "FINISHED"}), checkpoint=True),
    "finished": Goal(frozenset({"FINISHED"})),
}


@contextmanager
def _for_good() -> Iterator[None]:
    """What no retry can better: a job's id is used up once the job is over, a program that was refused stays so."""
    try:
        yield
    except (FlinkJobError, FlinkJobLostError, FlinkRefusedError) as error:
        raise AirflowFailException(str(error)) from error
