"""Runs a step of the run as a Spark application, and turns the result into the state of an Airflow task."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowFailException

from state_migration.dag_run import (
    PLAN_TASK,
    check_not_rejected,
    check_not_returned,
    fail_if_refused,
    publication_of,
    request_of,
    run_of,
    skip,
    wait_for_lease,
)
from stateferry.exit_codes import DAMAGED_OR_REFUSED, REJECTED, USAGE
from stateferry.printable import printable
from stateferry.runs.facts import FACTS_OF, Advance, SnapshotFacts, Step, TablesFacts, TablesProblem, TimedFacts
from stateferry.runs.lease import BEING_WORKED_ON
from stateferry.runs.publications import Control
from stateferry.runs.run_states import RunState

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

    from stateferry.runs.runs import Run

JOBS_VARIABLE = "STATEFERRY_SPARK_JOBS"

# Assets that other DAGs may follow; each event has job, run and publication.
PUBLISHED_SAVEPOINT = Asset(name="stateferry_published_savepoint", uri="stateferry://published/savepoint")
STATE_TABLES = Asset(name="stateferry_state_tables", uri="stateferry://tables")
# A rehearsal moves the tables only if its savepoint is the newest.
TABLES_IF_MOVED = AssetAlias("stateferry_tables_if_moved")

_FINAL = (REJECTED, USAGE, DAMAGED_OR_REFUSED)
# Airflow's hook reports in this form how spark-submit ended, with its last lines.
_EXIT_CODE = re.compile(r"Error code is: (\d+)")
_OWN_LINE = re.compile(r"^stateferry: (.*)$", re.MULTILINE)


class StepOperator(SparkSubmitOperator):
    """Submits one step of the run that `plan` has created; returns its rows, bytes, seconds and rate.

    A step that was refused isn't tried again: its run has failed, with the reason, or spark-submit passes on an exit
    code that means a refusal. After any other end of the application, the task is tried again and the step continues.
    While another run has the job's lease, the task waits.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "step")

    def __init__(self, *, step: str, **kwargs: Any) -> None:
        super().__init__(
            name=f"stateferry-{step}",
            application="{{ task.application_file() }}",
            application_args=["--run", f"{{{{ ti.xcom_pull(task_ids='{PLAN_TASK}')['folder'] }}}}"],
            **kwargs,
        )
        self.step = step

    @classmethod
    def of(cls, step: Step, **kwargs: Any) -> StepOperator:
        """The operator of the step, as a task that has the step's name."""
        return cls(task_id=step.value, step=step.value, **kwargs)

    def application_file(self) -> str:
        """The file of the step's application, as the driver sees it."""
        return str(_spark_jobs() / f"{self.step}.py")

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # its facts become an XCom
        run = run_of(context)
        self._skip_what_the_run_leaves_out(run)
        check_not_returned(run)
        check_not_rejected(run)
        self._wait_for_lease(run)
        before = run.changes()
        try:
            super().execute(context)
        except Exception as error:
            self._wait_for_lease(run)
            last = run.changes()[-1]
            if last.state in (RunState.FAILED, RunState.REJECTED) and run.changes() != before:
                raise AirflowFailException(f"{self.step} of run {run.plan.run_id}: {printable(last.reason)}") from None
            problem = run.facts(TablesProblem) if self.step == Step.TABLES else None
            refusal = _refusal(str(error)) or (problem.reason if problem else "")
            if refusal:
                raise AirflowFailException(f"{self.step} of run {run.plan.run_id}: {printable(refusal)}") from None
            raise
        return self._done(context, run)

    def _skip_what_the_run_leaves_out(self, run: Run) -> None:
        if run.plan.rehearse and self.step == Step.CUT_OVER:
            skip(self.log, "a rehearsal publishes nothing")
        if run.plan.rehearse and self.step == Step.TABLES:
            skip(self.log, "a rehearsal writes its tables in the task migrate, and checks them in the task validate")
        if not run.plan.rehearse and self.step == Step.MIGRATE:
            skip(self.log, "a cut-over writes its tables after the publication, in the task tables")

    def _wait_for_lease(self, run: Run) -> None:
        with Control(run.plan.catalog_uri) as control:
            reason = control.why_not_free(run.plan.job, run.plan.run_id)
        if reason:
            wait_for_lease(reason)

    def _done(self, context: Context, run: Run) -> dict[str, Any]:
        if self.step == Step.CUT_OVER:
            return self._published(context, run)
        with fail_if_refused():
            facts = run.facts(FACTS_OF[Step(self.step)])
            advance = run.facts(Advance) if self.step == Step.VALIDATE else None
        if facts is None and self.step == Step.TABLES:
            # An earlier version brought them before the publication, or the step was killed before it kept its facts.
            facts = TablesFacts()
        if facts is None:
            self._nothing_to_do(context)
        assert facts is not None
        said = _figures(facts)
        for note in facts.notes if isinstance(facts, SnapshotFacts) else ():
            self.log.warning("note: %s", note)
        if self.step == Step.TABLES:
            context["outlet_events"][STATE_TABLES].extra = _publication(run)
        if advance is not None and advance.moved:
            told: dict[str, JsonValue] = {"job": run.plan.job, "run_id": run.plan.run_id, "source": run.plan.source}
            context["outlet_events"][TABLES_IF_MOVED].add(STATE_TABLES, extra=told)
        self.log.info("%s", ", ".join(f"{name} {value}" for name, value in said.items()))
        return said

    def _published(self, context: Context, run: Run) -> dict[str, Any]:
        said = _publication(run)
        context["outlet_events"][PUBLISHED_SAVEPOINT].extra = said
        self.log.info("published: restore the new job from %s", run.plan.target)
        return said

    def _nothing_to_do(self, context: Context) -> None:
        why = "nothing to do: the savepoint is migrated already, and in the wanted layout"
        if request_of(context).stops_job:
            # The job was stopped for this run. A failure makes a later task start it again.
            raise AirflowFailException(why)
        skip(self.log, why)


def _publication(run: Run) -> dict[str, Any]:
    standing = publication_of(run)
    return {"job": run.plan.job, "publication": standing.sequence, **standing.record.model_dump()}


def _figures(facts: TimedFacts) -> dict[str, Any]:
    """The step's figures; `rate` is in bytes per second if the step counts bytes, else in rows per second."""
    seconds = facts.seconds or 0.0
    found: dict[str, Any] = {"step": facts.name, "seconds": seconds}
    found |= {name: amount for name, amount in (("rows", facts.rows), ("bytes", facts.size)) if amount}
    amount = facts.size or facts.rows
    if amount and seconds:
        found["rate"] = round(amount / seconds)
    return found


def _refusal(said: str) -> str:
    """The driver's last line, if its exit code says that another try can't help; else empty.

    In cluster mode, spark-submit knows neither line nor exit code. Then the state of the run must be enough.
    """
    code, line = _EXIT_CODE.search(said), _OWN_LINE.findall(said)
    final = code is not None and int(code[1]) in _FINAL
    return line[-1] if final and line and BEING_WORKED_ON not in line[-1] else ""


def _spark_jobs() -> Path:
    """The folder of the steps' applications, as the driver sees it; that may differ from the path here."""
    named = os.environ.get(JOBS_VARIABLE)
    if named:
        return Path(named)
    spec = find_spec("spark_jobs")
    if spec is None or not spec.submodule_search_locations:
        raise AirflowFailException(f"stateferry is not installed here: install it, or set {JOBS_VARIABLE}")
    return Path(spec.submodule_search_locations[0])
