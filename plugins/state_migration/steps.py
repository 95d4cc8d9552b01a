"""Runs a step of the run as a Spark application, and turns the result into the state of an Airflow task."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, AssetAlias

from state_migration.dag_run import (
    FOLDER,
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
from state_migration.decided import approve_if_nobody_is_asked, check_like_rehearsal
from state_migration.foreseen import foreseen, refusal
from stateferry.exit_codes import DAMAGED_OR_REFUSED, REJECTED, USAGE
from stateferry.printable import printable
from stateferry.runs.facts import (
    FACTS_OF,
    OF_TABLES,
    Advance,
    SnapshotFacts,
    Step,
    TablesFacts,
    TablesProblem,
    TimedFacts,
)
from stateferry.runs.lease import BEING_WORKED_ON
from stateferry.runs.publications import Control
from stateferry.runs.run_states import RunState

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

    from stateferry.runs.runs import Run

JOBS_VARIABLE = "STATEFERRY_SPARK_JOBS"

_FINAL = (REJECTED, USAGE, DAMAGED_OR_REFUSED)
# Airflow's hook reports in this form how spark-submit ended, with its last lines.
_EXIT_CODE = re.compile(r"Error code is: (-?\d+)")
_OWN_LINE = re.compile(r"^stateferry: (.*)$", re.MULTILINE)


class JobAssets:
    """Assets that other DAGs may follow: those of one job, or of all jobs that have no DAG of their own.

    Each event has job, run and publication.
    """

    def __init__(self, job: str | None = None) -> None:
        in_name, in_uri = (f"_{job}", f"/{quote(job, safe='')}") if job is not None else ("", "")
        uri = f"stateferry://published/savepoint{in_uri}"
        self.published = Asset(name=f"stateferry_published_savepoint{in_name}", uri=uri)
        self.tables = Asset(name=f"stateferry_state_tables{in_name}", uri=f"stateferry://tables{in_uri}")
        # A rehearsal moves the tables only if its savepoint is the newest.
        self.tables_if_moved = AssetAlias(f"stateferry_tables_if_moved{in_name}")

    def outlets(self, step: str) -> list[Asset | AssetAlias]:
        """What the step may have events of."""
        of_step: dict[str, Asset | AssetAlias] = {
            Step.VALIDATE.value: self.tables_if_moved,
            Step.CUT_OVER.value: self.published,
            Step.TABLES.value: self.tables,
        }
        return [of_step[step]] if step in of_step else []


class StepOperator(SparkSubmitOperator):
    """Submits one step of the run that `plan` has created; returns its rows, bytes, seconds and rate.

    `of_run` says of which: the run itself, or the rehearsal before it.

    A step that was refused isn't tried again: its run has failed, with the reason, or spark-submit passes on an exit
    code that means a refusal. After any other end of the application, the task is tried again and the step continues.
    While another run has the job's lease, the task waits.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "step")

    def __init__(self, *, step: str, of_run: str = FOLDER, assets: JobAssets | None = None, **kwargs: Any) -> None:
        self.assets = assets or JobAssets()
        super().__init__(
            name=f"stateferry-{step}",
            application="{{ task.application_file() }}",
            application_args=["--run", f"{{{{ ti.xcom_pull(task_ids='{PLAN_TASK}').get('{of_run}') }}}}"],
            outlets=self.assets.outlets(step),
            **kwargs,
        )
        self.step, self.of_run = step, of_run

    @classmethod
    def of(cls, step: Step, assets: JobAssets, **kwargs: Any) -> StepOperator:
        """The operator of the step, as a task that has the step's name."""
        return cls(task_id=step.value, step=step.value, assets=assets, **kwargs)

    def application_file(self) -> str:
        """The file of the step's application, as the driver sees it."""
        return str(spark_jobs() / f"{self.step}.py")

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # its facts become an XCom
        run = run_of(context, self.of_run)
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
                raise refusal(f"{self.step} of run {run.plan.run_id}: {printable(last.reason)}") from None
            problem = run.facts(TablesProblem) if self.step == Step.TABLES else None
            refused = own_refusal(str(error)) or (problem.reason if problem else "")
            if refused:
                raise refusal(f"{self.step} of run {run.plan.run_id}: {printable(refused)}") from None
            if (code := exit_code(str(error))) is not None:
                self.log.error("%s", ended_text(self.step, code, context["ti"]))
                foreseen(error)
            raise
        return self._done(context, run)

    def _skip_what_the_run_leaves_out(self, run: Run) -> None:
        if run.plan.rescales_only and self.step in OF_TABLES:
            skip(self.log, "the run migrates no state, so it has no tables")
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
            self._nothing_to_do(context, run)
        assert facts is not None
        said = _figures(facts)
        for note in facts.notes if isinstance(facts, SnapshotFacts) else ():
            self.log.warning("note: %s", note)
        if self.step == Step.TABLES:
            context["outlet_events"][self.assets.tables].extra = _publication(run)
        # A person may reject a run while its validation is at work.
        if advance is not None and advance.moved and run.state is not RunState.REJECTED:
            told: dict[str, JsonValue] = {"job": run.plan.job, "run_id": run.plan.run_id, "source": run.plan.source}
            context["outlet_events"][self.assets.tables_if_moved].add(self.assets.tables, extra=told)
        self.log.info("%s", ", ".join(f"{name} {value}" for name, value in said.items()))
        if self.step == Step.SNAPSHOT:
            check_like_rehearsal(run)
        if self.step == Step.VALIDATE:
            approve_if_nobody_is_asked(run, request_of(context))
        return said

    def _published(self, context: Context, run: Run) -> dict[str, Any]:
        said = _publication(run)
        context["outlet_events"][self.assets.published].extra = said
        self.log.info("published: restore the new job from %s", run.plan.target)
        return said

    def _nothing_to_do(self, context: Context, run: Run) -> None:
        migrated = "" if run.plan.rescales_only else "migrated already, and "
        why = f"nothing to do: the savepoint is {migrated}in the wanted layout"
        if request_of(context).stops_job:
            # If the job was stopped for this run, a failure makes a later task start it again.
            raise refusal(why)
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


def own_refusal(said: str) -> str:
    """The driver's last line, if its exit code says that another try can't help; else empty.

    In cluster mode, spark-submit knows neither line nor exit code. Then the state of the run must be enough.
    """
    line = _OWN_LINE.findall(said)
    return line[-1] if exit_code(said) in _FINAL and line and BEING_WORKED_ON not in line[-1] else ""


def exit_code(said: str) -> int | None:
    """The exit code with which spark-submit has ended; below zero if a signal has ended it itself."""
    code = _EXIT_CODE.search(said)
    return int(code[1]) if code is not None else None


def ended_text(step: str, code: int, ti: Any) -> str:
    """How the application has ended, and what happens next."""
    # A shell, and Spark for its driver, add 128 to the number of the signal.
    number = -code if code < 0 else code - 128
    names = {one.value: one.name for one in signal.Signals}
    by = f": {names[number]} has ended it" if number in names else ""
    if number == signal.SIGKILL:
        by += ", as the system does when memory is short, or a person"
    tries, most = getattr(ti, "try_number", 1), getattr(ti, "max_tries", 0)
    again = "Airflow doesn't try again by itself. Remove the cause and clear this task: then"
    if tries <= most:
        again = f"Airflow tries again soon (that is try {tries + 1} of {most + 1}), and"
    return f"the application of {step} has ended with exit code {code}{by}. {again} the step goes on where it was"


def spark_jobs() -> Path:
    """The folder of the steps' applications, as the driver sees it; that may differ from the path here."""
    named = os.environ.get(JOBS_VARIABLE)
    if named:
        return Path(named)
    spec = find_spec("spark_jobs")
    if spec is None or not spec.submodule_search_locations:
        raise refusal(f"stateferry is not installed here: install it, or set {JOBS_VARIABLE}")
    return Path(spec.submodule_search_locations[0])
