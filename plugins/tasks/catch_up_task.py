"""Catches up with a rehearsal while the job runs, so that little is left to convert once it stands still."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from flinkstate.errors import RefusedError
from flinkstate.files.storage import Location
from stateferry.airflow.dag_runs.application_ends import application_file, own_refusal
from stateferry.airflow.dag_runs.dag_run import (
    REHEARSAL,
    began,
    fail_if_refused,
    newest_rehearsal_of,
    rehearsal_of,
    request_of,
    wait_for_lease,
)
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.dag_runs.task_names import CATCH_UP
from stateferry.airflow.dag_runs.when_to_stop import NOT_STOPPED
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.savepoints import CANONICAL, CHECKPOINT, NATIVE, SavepointOrder
from stateferry.airflow.flink.stopping import fresh_checkpoint
from stateferry.airflow.flink.task import HOUR, FlinkTask, task_key
from stateferry.airflow.requests.planning import Occasion, held, plan_for
from stateferry.airflow.runs_on.port import POLL_SECONDS
from stateferry.airflow.tasks.flink_tasks import kind_of
from stateferry.airflow.tasks.plan_task import occasion_of
from stateferry.basics.durations import now_ms, parse_duration
from stateferry.basics.printable import printable
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.catching_up import (
    catch_up,
    catch_ups_of,
    is_validated,
    made_before,
    why_not_later,
)
from stateferry.runs.record.catch_ups import CatchUps, base_of_cut_over
from stateferry.runs.record.run_folder import HELD, run_folder
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stateferry.airflow.requests.request import MigrationRequest

# The person needn't wait longer for the question.
_MOST_BEFORE_DECISION = 4


class _CannotError(Exception):
    """The cut-over must convert everything."""


class CatchUp(SparkSubmitOperator):
    """Catches up with the newest rehearsal until a catch-up takes no longer than `settle`, or gets hardly shorter.

    Each is a rehearsal of its own, since the one before it, without tables. Before the decision, whatever is in the way
    has the cut-over convert everything, and so does a last one that wasn't faster than the copy; the person who decides
    is told why. After it the job isn't stopped, because the outage would be another one than was approved.
    """

    def __init__(self, *, of_run: str, **kwargs: Any) -> None:
        super().__init__(
            task_id=CATCH_UP, name="stateferry-catch-up", application="{{ task.application_file() }}",
            durable=False, **kwargs,
        )  # fmt: skip
        self.is_last = of_run != REHEARSAL

    def application_file(self) -> str:
        """The file of the application, as the driver sees it."""
        return application_file("steps")

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # what it did becomes an XCom
        request, rehearsal = request_of(context), newest_rehearsal_of(context)
        with fail_if_refused():
            approved, found = rehearsal_of(context), catch_ups_of(rehearsal)
            promised = self.is_last and base_of_cut_over(approved) is not None
            if self.is_last and not promised:
                found = replace(found, why_not=catch_ups_of(approved).why_not)
        try:
            why = self._all(context, request, rehearsal, found)
        except (_CannotError, RefusedError) as error:
            if promised:
                raise refusal(
                    f"{printable(str(error))}. So the cut-over would convert everything, and take longer than was "
                    f"approved. {NOT_STOPPED}: trigger a new run"
                ) from None
            with fail_if_refused():
                rehearsal.keep(replace(catch_ups_of(rehearsal), why_not=str(error)))
            self.log.warning("the cut-over converts everything: %s", printable(str(error)))
            return {"why_not": str(error)}
        self.log.info("enough: %s", why)
        return {"catch_ups": [one.run_id for one in catch_ups_of(rehearsal).done], "enough": why}

    def _all(self, context: Context, request: MigrationRequest, rehearsal: Run, found: CatchUps) -> str:
        """Makes one after the other; returns why there are enough."""
        if found.why_not:
            raise _CannotError(found.why_not)
        kind = kind_of(request)
        if kind == CANONICAL:
            raise _CannotError(
                "a canonical savepoint can't be caught up with, and no rehearsal on a checkpoint has shown yet that a "
                "native one holds the job's timers"
            )
        why = catch_up(
            rehearsal, found, lambda base, number: self._one(context, request, rehearsal, base, number),
            settle_ms=parse_duration(request.settle), most=None if self.is_last else _MOST_BEFORE_DECISION,
            say=lambda text: self.log.info("%s", text),
        )  # fmt: skip
        if slow := catch_ups_of(rehearsal).why_not_faster(is_decided=self.is_last):
            raise _CannotError(slow)
        if soon := why_not_later(base_of_cut_over(rehearsal) or rehearsal):
            raise _CannotError(soon)
        return why

    def _one(self, context: Context, request: MigrationRequest, rehearsal: Run, base: Run, number: int) -> Run:
        occasion = replace(occasion_of(context), run_id=f"{rehearsal.plan.run_id}.{CATCH_UP}_{number}")
        folder = run_folder(base.plan.home, base.plan.job, occasion.short_id)
        with fail_if_refused():
            run = made_before(folder, base)
        if run is None:
            run = self._planned(context, request, occasion, base, folder)
        if not is_validated(run):
            self._wait_for_lease(run)
            self._carry_out(context, run)
        return run

    def _planned(
        self, context: Context, request: MigrationRequest, occasion: Occasion, base: Run, folder: Location
    ) -> Run:
        """The run, whose source Flink takes now."""
        flink = FlinkTask(FlinkHook(request.flink_conn_id), context)
        key = (*task_key(context), occasion.short_id)
        tries = max(context["ti"].try_number, 1)
        order = SavepointOrder(key, str(request.flink_job), str(request.savepoint_directory), False, NATIVE, tries)
        native = request.source != "checkpoint"
        if native:
            source = flink.take_savepoint(order, timeout=6 * HOUR, poll_interval=POLL_SECONDS).location
        else:
            source = held(lambda: _fresh(flink, replace(order, format=CHECKPOINT)), base.plan.job, occasion)
            if not request.stops_with_checkpoint and source != folder.child(HELD).shown:
                raise _CannotError(
                    f"{source} can't be held beside the run, as the log says, and a stop with a savepoint has Flink "
                    "drop it, however many checkpoints the job retains: have the home and the checkpoints on one disk, "
                    "or both on S3, or stop the job with a checkpoint"
                )
        with fail_if_refused():
            plan = plan_for(request.rehearsal(), occasion, source, no_timers=native, base=base.plan)
            run = Run.create(plan, now_ms())
            run.keep(replace(began(context), at=now_ms()))
        return run

    def _carry_out(self, context: Context, run: Run) -> None:
        self.application_args, self._hook = ["--run", run.folder.shown], None
        try:
            super().execute(context)
        except Exception as error:
            # There is none yet if the run was killed as it began, and Spark didn't start.
            last = run.changes()[-1:]
            if last and last[0].state is RunState.FAILED:
                raise _CannotError(last[0].reason) from None
            if refused := own_refusal(str(error)):
                raise _CannotError(refused) from None
            raise

    def _wait_for_lease(self, run: Run) -> None:
        with fail_if_refused(), Control(run.plan.catalog_uri) as control:
            reason = control.why_not_free(run.plan.job, run.plan.run_id)
        if reason:
            wait_for_lease(reason)


def _fresh(flink: FlinkTask, order: SavepointOrder) -> str:
    return flink.hook.run(lambda rest: fresh_checkpoint(rest, order, timeout=HOUR, poll_interval=POLL_SECONDS)).location
