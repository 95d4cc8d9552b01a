"""Ends an outage that takes longer than the request allows: then the old job is started again.

Before that, it tells people that the outage takes longer than was predicted. Airflow's own deadlines count from moments
that are known when a DAG run is made; when the job is stopped isn't.

The task waits in the triggerer, beside the steps: whatever becomes of them, of their workers and of the scheduler, the
limit is kept as soon as a task can run at all.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent
from asgiref.sync import sync_to_async

from flinkstate.errors import RejectedError
from stateferry.airflow.dag_runs.dag_run import fail_if_refused, rehearsal_of, request_of, run_of, skip
from stateferry.airflow.dag_runs.notices import tell
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.runs_on.places import place_of
from stateferry.airflow.tasks.shared_application_task import dismiss
from stateferry.basics.durations import moment, now_ms, parse_duration
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.outage_limit import OutageExceeded, exceed_unless_started
from stateferry.runs.control.rejecting import reject
from stateferry.runs.predict.estimates import Estimate, estimate_text
from stateferry.runs.record.facts import JobStarted, SavepointTaken
from stateferry.runs.record.run_states import RunState
from stateferry.runs.report.decision import Decision

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stateferry.airflow.requests.request import MigrationRequest
    from stateferry.runs.record.runs import Run

_LOOK_SECONDS = 2.0
# So long a task takes to start, which is begun before the time is over.
_LEAD_SECONDS = 4.0
# After that, the scheduler ends the wait without the triggerer.
_TRIGGERER_LATE = timedelta(seconds=15)
_TOLD = "told_late"
# Own tasks that are skipped have started no job, and have `start_job` skipped too: then the old job has to come back.
_ENDED = ("success", "failed", "upstream_failed", "removed")


def ends_by(request: MigrationRequest, run: Run) -> int | None:
    """When the outage has to be over, in milliseconds; None if it may take as long as it takes."""
    taken = run.facts(SavepointTaken)
    if request.outage_limit is None or taken is None or taken.requested_at is None:
        return None
    return taken.requested_at + parse_duration(request.outage_limit)


def end_if_exceeded(context: Context, request: MigrationRequest, run: Run, log: Any) -> None:
    """Fails for good if the outage has exceeded its limit; then this run neither publishes nor starts a job any more.

    Once the new job has completed a checkpoint, the outage is over, however long it took.
    """
    by = ends_by(request, run)
    if by is None or now_ms() < by or run.facts(JobStarted) is not None:
        return
    exceeded = OutageExceeded(now_ms(), parse_duration(str(request.outage_limit)))
    with fail_if_refused():
        new_job = exceed_unless_started(run, exceeded)
        if new_job is not None:
            hook, job = FlinkHook(request.new_job_conn_id), new_job.job_id
            if job is not None and hook.job_state(job) is not None and hook.has_checkpointed(job):
                log.info("the new job %s has completed a checkpoint: the outage is over", job)
                return
            own = request.runs_on == "own tasks"
            if own and place_of(request, context).has_started(run.plan.target):
                # They succeed when the job has completed a checkpoint; start_job has yet to record it.
                log.info("own tasks have started the new job: the outage is over")
                return
            run.keep(exceeded)
        if run.state is not RunState.PUBLISHED:
            with Control(run.plan.catalog_uri) as control, suppress(RejectedError):
                # It may be published in this moment; then the publication is rolled back.
                reject(run, control, exceeded.reason)
    # The steps' application would only take the old job's place on the machines.
    dismiss(context)
    raise refusal(f"{exceeded.reason}: the old job is started again")


def late_from(context: Context, request: MigrationRequest, run: Run) -> tuple[int, Estimate] | None:
    """From when on the outage is late, in milliseconds, and how long it was to take; None if nobody is to be told."""
    taken, decision = run.facts(SavepointTaken), rehearsal_of(context).facts(Decision)
    foreseen = None if decision is None or decision.foreseen is None else decision.foreseen.outage
    if request.outage_alert is None or foreseen is None or taken is None or taken.requested_at is None:
        return None
    return taken.requested_at + round(1000 * foreseen.seconds) + parse_duration(request.outage_alert), foreseen


class WatchOutage(BaseOperator):
    """Fails for good when the outage exceeds its limit, which has the old job started again; else ends with it.

    If it is late before that, a notice says so.
    """

    def execute(self, context: Context) -> None:
        request, run = request_of(context), run_of(context)
        by, late = ends_by(request, run), late_from(context, request, run)
        if by is None and late is None:
            skip(self.log, "the outage has no limit, and was not predicted")
        if late is not None and (by is None or late[0] < by):
            self._wait_until(context, late[0] + round(1000 * _LEAD_SECONDS), run)
            self._tell(context, run, late[1], by)
        if by is not None:
            self.log.info("without a checkpoint of the new job at %s, the old job is started again", moment(by))
            self._wait_until(context, by, run)
            self._judge(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> None:
        """Called when the outage is late, and shortly before the time is over."""
        self.execute(context)

    def _tell(self, context: Context, run: Run, foreseen: Estimate, by: int | None) -> None:
        """Tells people once, unless the outage is over."""
        store = context.get("task_state_store")
        if run.facts(JobStarted) is not None or (store is not None and store.get(_TOLD) is not None):
            return
        text = f"job {run.plan.job} still stands still, and was predicted to do so for {estimate_text(foreseen)}"
        if by is not None:
            text += f". Without a checkpoint of the new job at {moment(by)}, the old job is started again"
        self.log.warning(text)
        tell(context, "late", run.plan.job, text)
        if store is not None:
            store.set(_TOLD, "yes")

    def _wait_until(self, context: Context, by: int, run: Run) -> None:
        left = by / 1000 - _LEAD_SECONDS - time.time()
        if left <= 0 or run.facts(JobStarted) is not None:
            return
        ti = context["ti"]
        trigger = OutageTrigger(dag_id=ti.dag_id, dag_run_id=ti.run_id, until=by / 1000 - _LEAD_SECONDS)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=left) + _TRIGGERER_LATE)

    def _judge(self, context: Context) -> None:
        request, run = request_of(context), run_of(context)
        by = ends_by(request, run)
        assert by is not None, "the outage has a limit"
        while now_ms() < by and run.facts(JobStarted) is None:
            time.sleep(max(min((by - now_ms()) / 1000, 0.5), 0))
        end_if_exceeded(context, request, run, self.log)
        self.log.info("the outage is over")


class OutageTrigger(BaseTrigger):
    """Ends the task when `start_job` has ended; fires at the time `until` (Unix time) if it hasn't by then."""

    def __init__(self, *, dag_id: str, dag_run_id: str, until: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dag_id, self.dag_run_id, self.until = dag_id, dag_run_id, until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        values = {"dag_id": self.dag_id, "dag_run_id": self.dag_run_id, "until": self.until}
        return f"{type(self).__module__}.{type(self).__qualname__}", values

    async def run(self) -> AsyncIterator[TriggerEvent]:
        while (left := self.until - time.time()) > 0:
            try:
                state = await self._state()
            except Exception:
                # Whatever keeps Airflow from answering, the time goes on.
                logging.getLogger(__name__).warning("the state of start_job isn't known", exc_info=True)
                state = None
            if state in _ENDED:
                yield TaskSuccessEvent()
                return
            await asyncio.sleep(max(min(left, _LOOK_SECONDS), 0))
        yield TriggerEvent({"until": self.until})  # type: ignore[no-untyped-call]

    async def _state(self) -> str | None:
        by_run = await sync_to_async(RuntimeTaskInstance.get_task_states)(
            dag_id=self.dag_id, task_ids=[JobStarted.name], run_ids=[self.dag_run_id]
        )
        return next((str(states[JobStarted.name]) for states in by_run.values() if JobStarted.name in states), None)
