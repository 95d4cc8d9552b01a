"""Operators that take savepoints, start programs and cancel jobs, each exactly once, however often a task is tried."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from stateferry.airflow.flink.base import FlinkOperator
from stateferry.airflow.flink.jobs import Goal, JarRun, cancel_job
from stateferry.airflow.flink.savepoints import CHECKPOINT, Pending, TakenSavepoint, find_or_trigger
from stateferry.airflow.flink.task import HOUR, UP, UP_WITH_CHECKPOINT, FlinkTask, for_good, job_started
from stateferry.airflow.flink.triggers import Event, FlinkJobTrigger, FlinkSavepointTrigger, is_deferrable, raise_for

if TYPE_CHECKING:
    from airflow.sdk import Context


class FlinkSavepointOperator(FlinkOperator):
    """Takes a savepoint of a running job, which continues.

    The savepoint gets a folder of its own in ``savepoint_directory``. Returns its address as ``savepoint``, with
    ``job_id``, ``seconds`` and, if Flink still knows them, ``bytes`` and ``checkpoint_id``.

    :param job: the job's name or id.
    :param savepoint_directory: the directory, as Flink sees it. If this machine sees it too (a mounted folder, or a
        store for which fsspec has a driver), a retry finds a savepoint there that Flink has forgotten.
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
        started, task = time.time(), self.task(context)
        order = task.savepoint_order(
            self.job, self.savepoint_directory, stop=self.stop, savepoint_format=self.savepoint_format
        )
        if not is_deferrable(self):
            savepoint = task.take_savepoint(order, timeout=self.timeout, poll_interval=self.poll_interval)
            return self.taken(task, savepoint, started)
        found = self.hook.run(lambda rest: find_or_trigger(rest, order))
        if found.job_id is not None:
            task.show(found.job_id)
        if isinstance(found, Pending):
            self._defer(found, started)
        return self.taken(task, found, started)

    def execute_complete(self, context: Context, event: Event, started: float) -> dict[str, Any]:
        if event["status"] == "forgotten":
            # The JobManager was restarted, or the result was not requested for too long: look for the savepoint
            # elsewhere.
            return self.execute(context)
        task = self.task(context)
        with task.stopping(self.stop):
            raise_for(event)
        return self.taken(task, TakenSavepoint(event["job_id"], event["location"]), started)

    def _defer(self, pending: Pending, started: float) -> NoReturn:
        self.log.info("waiting for the savepoint of job %s (trigger %s)", pending.job_id, pending.trigger)
        trigger = FlinkSavepointTrigger(trigger=pending.trigger, **self.watch(pending.job_id))
        self.defer(trigger=trigger, method_name="execute_complete", kwargs={"started": started})


class FlinkStopWithSavepointOperator(FlinkSavepointOperator):
    """Stops a job with a savepoint, without draining it, so that another job can continue from there.

    The savepoint counts only if the job has ended with it. If the job went on afterwards, the savepoint is out of date.
    """

    stop = True


class FlinkStopWithCheckpointOperator(FlinkOperator):
    """Has a job take a checkpoint, cancels it, and returns the newest checkpoint once it has ended, as ``savepoint``.

    It costs what has changed since the checkpoint before it, if the job's are incremental. What the job processes
    between the checkpoint and its end, it processes again: a sink that is at least once shows such records twice. A job
    whose checkpoints Flink removes when it is cancelled, or may be unaligned, is refused and runs on, as does one whose
    checkpoint fails.
    """

    template_fields: Sequence[str] = ("flink_conn_id", "job")

    def __init__(self, *, job: str, timeout: float = HOUR, **kwargs: Any) -> None:
        super().__init__(timeout=timeout, **kwargs)
        self.job = job

    def execute(self, context: Context) -> dict[str, Any]:
        started, task = time.time(), self.task(context)
        order = task.savepoint_order(self.job, "", stop=True, savepoint_format=CHECKPOINT)
        found = task.take_savepoint(order, timeout=self.timeout, poll_interval=self.poll_interval)
        return self.taken(task, found, started)


class FlinkRunJarOperator(FlinkOperator):
    """Starts a job from a jar that was uploaded to Flink, and waits until it runs.

    The job's id is computed from the task instance, so that a retry finds the job instead of starting a second one.
    Returns ``job_id``, ``state`` and ``seconds``. ``job_id`` is also an XCom of its own, written before the job is
    started, for tasks that clean up. It becomes None if Flink refused the program and there is no such job.

    :param jar: the id that Flink gave the jar, or its file name; the name means the jar uploaded last.
    :param arguments: the program's arguments, one by one.
    :param savepoint: the savepoint to start from. The job never claims it (NO_CLAIM), and must accept all of its state.
    :param wait_until: ``submitted``, ``running``, ``checkpoint`` (running, and has completed one) or ``finished``.
    :param max_failures: how many times the job may fail until then, if Flink restarts it; by default as many times as
        Flink allows. The task then fails, but the job isn't cancelled.
    :param cancel_on_kill: cancel the job when a person ends the task. A retry can't start it again after that.
    :param restart_lost: start the job again if an earlier try has started it and Flink has forgotten it (a JobManager
        without high availability was restarted). The job may repeat work that it did before.
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
        started, task = time.time(), self.task(context)
        run = self._run(task)
        self._job_id = run.job_id
        task.submit(run, restart_lost=self.restart_lost)
        if self.wait_until == "submitted":
            return job_started(run.job_id, "submitted", started)
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
        state = task.wait_for(run.job_id, goal, timeout=self.timeout, poll_interval=self.poll_interval)
        return job_started(run.job_id, state, started)

    def execute_complete(self, context: Context, event: Event, job_id: str, started: float) -> dict[str, Any]:
        with for_good():
            raise_for(event)
        return job_started(job_id, event["state"], started)

    def on_kill(self) -> None:
        job_id = getattr(self, "_job_id", None)
        if self.cancel_on_kill and job_id is not None:
            self.hook.run(lambda rest: cancel_job(rest, job_id))

    def _run(self, task: FlinkTask) -> JarRun:
        parallelism = None if self.parallelism in (None, "") else int(str(self.parallelism))
        return JarRun(
            job_id=task.job_id,
            jar=self.jar,
            entry_class=self.entry_class or None,
            arguments=tuple(self.arguments),
            parallelism=parallelism,
            savepoint=self.savepoint or None,
            configuration=dict(self.configuration or {}),
        )


class FlinkCancelJobOperator(FlinkOperator):
    """Cancels a job, without a savepoint, and waits until it has ended; does nothing if it has ended already.

    Returns ``job_id`` and the job's final ``state``.
    """

    template_fields: Sequence[str] = ("flink_conn_id", "job")

    def __init__(self, *, job: str, timeout: float = HOUR, **kwargs: Any) -> None:
        super().__init__(timeout=timeout, **kwargs)
        self.job = job

    def execute(self, context: Context) -> dict[str, Any]:
        task = self.task(context)
        if is_deferrable(self):
            job_id = task.job_to_cancel(self.job)
            self.hook.run(lambda rest: cancel_job(rest, job_id))
            trigger = FlinkJobTrigger(states=sorted(Goal.over().states), **self.watch(job_id))
            self.defer(trigger=trigger, method_name="execute_complete", kwargs={"job_id": job_id})
        return task.cancel(self.job, timeout=self.timeout, poll_interval=self.poll_interval)

    def execute_complete(self, context: Context, event: Event, job_id: str) -> dict[str, Any]:
        raise_for(event)
        return {"job_id": job_id, "state": event["state"]}


_GOALS = {"running": UP, "checkpoint": UP_WITH_CHECKPOINT, "finished": Goal(frozenset({"FINISHED"}))}
