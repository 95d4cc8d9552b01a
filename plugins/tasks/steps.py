"""Runs a step of the run as a Spark application, and turns the result into the state of an Airflow task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowException

from flinkstate.errors import StateferryError, TransientError
from stateferry.airflow.dag_runs.application_ends import (
    application_file,
    ended_text,
    exit_code,
    in_form_of_hook,
    own_refusal,
    what_is_next,
)
from stateferry.airflow.dag_runs.dag_run import (
    FOLDER,
    PLAN_TASK,
    as_of,
    check_not_rejected,
    check_not_returned,
    fail_if_refused,
    publication_of,
    request_of,
    run_of,
    skip,
    wait_for_lease,
)
from stateferry.airflow.dag_runs.decided_cut_over import approve_if_nobody_is_asked, check_like_rehearsal
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.foreseen_failures import foreseen
from stateferry.airflow.tasks.shared_application_task import Asking, application_of
from stateferry.basics.printable import printable
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.shared_application import SharedApplication
from stateferry.runs.record.facts import NothingToDo, TablesProblem, TimedFacts
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.step_facts import FACTS_OF, SnapshotFacts, TablesFacts
from stateferry.runs.record.steps import Step

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors.base import OperatorLineage
    from airflow.sdk import Context
    from pydantic import JsonValue

    from stateferry.runs.record.runs import Run


# A lost or dismissed application takes so long to end.
_SECONDS_TO_END = 10.0


class JobAssets:
    """Assets that other DAGs may follow: those of one job, or of all jobs that have no DAG of their own.

    Each event has job, run and publication or source. The days, for which a rehearsal was made, are partitions of an
    asset of their own: an event with a partition starts no DAG that follows the asset as such.
    """

    def __init__(self, job: str | None = None, timezone: str = "UTC") -> None:
        self._zone = ZoneInfo(timezone)
        in_name, in_uri = (f"_{job}", f"/{quote(job, safe='')}") if job is not None else ("", "")
        uri = f"stateferry://published/savepoint{in_uri}"
        self.published = Asset(name=f"stateferry_published_savepoint{in_name}", uri=uri)
        self.tables = Asset(name=f"stateferry_state_tables{in_name}", uri=f"stateferry://tables{in_uri}")
        self.days = Asset(name=f"stateferry_rehearsed_days{in_name}", uri=f"stateferry://days{in_uri}")
        # A rehearsal moves the tables only if its savepoint is the newest.
        self.tables_if_moved = AssetAlias(f"stateferry_tables_if_moved{in_name}")

    def outlets(self, step: str, *, rehearses: bool) -> list[Asset | AssetAlias]:
        """What the step may have events of."""
        of_step: dict[str, list[Asset | AssetAlias]] = {
            Step.CUT_OVER.value: [self.published],
            Step.TABLES.value: [self.tables_if_moved, self.days] if rehearses else [self.tables],
        }
        return of_step.get(step, [])

    def day(self, moment: datetime) -> str:
        """The partition of a rehearsal, as Airflow's mappers of days, weeks and months read it."""
        return f"{moment.astimezone(self._zone):%Y-%m-%dT%H:%M:%S}"


class StepOperator(SparkSubmitOperator):
    """Has one step of the run that `plan` has created carried out; returns its rows, bytes, seconds and rate.

    `of_run` says of which: the run itself, or the rehearsal before it. The application that the run's steps share does
    it; if there is none, the step is submitted as an application of its own.

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
            outlets=self.assets.outlets(step, rehearses=of_run != FOLDER),
            # The run's lease and facts make another try safe; an earlier driver says nothing of a cleared task.
            durable=False,
            **kwargs,
        )
        self.step, self.of_run = step, of_run
        self._asking: Asking | None = None
        self._run: Run | None = None

    @classmethod
    def of(cls, step: Step, assets: JobAssets, **kwargs: Any) -> StepOperator:
        """The operator of the step, as a task that has the step's name."""
        return cls(task_id=step.value, step=step.value, assets=assets, **kwargs)

    def application_file(self) -> str:
        """The file of the step's own application, as the driver sees it."""
        return application_file(self.step)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # its facts become an XCom
        run = self._run = run_of(context, self.of_run)
        self._skip_what_the_run_leaves_out(run)
        check_not_returned(run)
        check_not_rejected(run)
        # Between two steps, the application that they share keeps the lease.
        self._wait_for_lease(run, of_other_run=True)
        before = run.changes()
        try:
            if not self._is_done_by_shared_application(context, run):
                # The application may have been ended because the run was rejected.
                check_not_rejected(run)
                self._wait_for_lease(run, patience=_SECONDS_TO_END)
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
                self.log.error("%s. %s", ended_text(self.step, code), what_is_next(context["ti"]))
                foreseen(error)
            if isinstance(error, TransientError):
                foreseen(error)
            raise
        # A night that catches up has another plan since its first step.
        return self._done(context, run_of(context, self.of_run))

    def get_openlineage_facets_on_complete(self, _: Any) -> OperatorLineage[Any, Any] | None:
        """What OpenLineage's provider asks for when the task has ended, well or not."""
        from stateferry.airflow.tasks.lineage import lineage_of

        return None if self._run is None else lineage_of(self._run, Step(self.step))

    def on_kill(self) -> None:
        # In the middle of a question to the catalog, no other one can be asked.
        if self._asking is not None:
            self._asking.is_withdrawn = True
        else:
            super().on_kill()

    def _is_done_by_shared_application(self, context: Context, run: Run) -> bool:
        """Whether it has done the step; raises its failure."""
        task = application_of(self.of_run)
        with SharedApplication(run.plan.catalog_uri, run.folder.shown) as shared:
            asking = self._asking = Asking(shared, self.step, self.log)
            try:
                ended = asking.answer(context, task)
            except TransientError:
                raise
            except StateferryError as error:
                self.log.warning("the run's application can't be asked: %s", printable(str(error)))
                ended = None
            finally:
                self._asking = None
        if asking.is_withdrawn:
            raise AirflowException(f"{self.step} was ended, and the application with it")
        if ended is not None and ended[0] != 0:
            raise AirflowException(in_form_of_hook(*ended))
        return ended is not None

    def _skip_what_the_run_leaves_out(self, run: Run) -> None:
        if self.step == Step.TABLES and Step.TABLES not in run.steps:
            skip(self.log, "the run migrates no state, so it has no tables")
        if run.plan.rehearse and self.step == Step.CUT_OVER:
            skip(self.log, "a rehearsal publishes nothing")

    def _wait_for_lease(self, run: Run, *, of_other_run: bool = False, patience: float = 0) -> None:
        """Has the task start again later if another process has the lease, and keeps it for the seconds of patience."""
        end = time.monotonic() + patience
        with Control(run.plan.catalog_uri) as control:
            held = control.lease_of(run.plan.job)
            if of_other_run and held is not None and held.run_id == run.plan.run_id:
                return
            while reason := control.why_not_free(run.plan.job, run.plan.run_id):
                if time.monotonic() >= end:
                    wait_for_lease(reason)
                time.sleep(0.2)

    def _done(self, context: Context, run: Run) -> dict[str, Any]:
        if self.step == Step.CUT_OVER:
            return self._published(context, run)
        with fail_if_refused():
            facts = run.facts(FACTS_OF[Step(self.step)])
        if facts is None and self.step == Step.TABLES:
            # The step was killed before it kept its facts.
            facts = TablesFacts()
        if facts is None:
            self._nothing_to_do(context, run)
        assert facts is not None
        figures = _figures(facts)
        for note in facts.notes if isinstance(facts, SnapshotFacts) else ():
            self.log.warning("note: %s", note)
        if isinstance(facts, TablesFacts):
            if run.plan.rescales_only:
                # If the task succeeded, it would be an event of the tables.
                skip(self.log, "the published files are as validated; the run migrates no state, so it has no tables")
            self._tables_followed(context, run, facts)
        self.log.info("%s", ", ".join(f"{name} {value}" for name, value in figures.items()))
        if self.step == Step.SNAPSHOT:
            check_like_rehearsal(run)
        if self.step == Step.VALIDATE:
            approve_if_nobody_is_asked(run, request_of(context))
        return figures

    def _tables_followed(self, context: Context, run: Run, facts: TablesFacts) -> None:
        if not run.plan.rehearse:
            context["outlet_events"][self.assets.tables].extra = _publication(run)
            return
        if run.state is RunState.REJECTED:
            # A person may reject a run while its tables are written. If the task succeeded, it would be an event.
            skip(self.log, "the run was rejected while its tables were written, so nobody is told of them")
        extra: dict[str, JsonValue] = {"job": run.plan.job, "run_id": run.plan.run_id, "source": run.plan.source}
        if facts.moved:
            context["outlet_events"][self.assets.tables_if_moved].add(self.assets.tables, extra=extra)
        day = context["outlet_events"][self.assets.days]
        day.add_partitions(self.assets.day(as_of(context)))
        day.extra = extra | {"tables": facts.moved}

    def _published(self, context: Context, run: Run) -> dict[str, Any]:
        publication = _publication(run)
        context["outlet_events"][self.assets.published].extra = publication
        self.log.info("published: restore the new job from %s", run.plan.target)
        return publication

    def _nothing_to_do(self, context: Context, run: Run) -> None:
        kept = run.facts(NothingToDo)
        migrated = "" if run.plan.rescales_only else "migrated already, and "
        why = printable(kept.reason) if kept else f"nothing to do: the savepoint is {migrated}in the wanted layout"
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
