"""The way back that loses nothing: the DAG `state_migration` converts a savepoint of the new job, in reverse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk.exceptions import AirflowFailException

from flinkstate.errors import RejectedError
from stateferry.airflow.dag_runs.dag_run import PLAN_TASK, skip
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.requests.jobs import DAG_ID
from stateferry.airflow.requests.request import migration_request
from stateferry.airflow.requests.rollback_request import RollbackRequest
from stateferry.airflow.requests.sources import home_folder, read_metadata
from stateferry.runs.catalog.publications import Publication
from stateferry.runs.control.target_metadata import published_run
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.run_options import DEFAULT_CLOCK_TOLERANCE_MS
from stateferry.runs.plan.upgrade_options import SAME_FLINK
from stateferry.runs.record.facts import NewJob
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts

if TYPE_CHECKING:
    from airflow.sdk import Context


def conversion_of(request: RollbackRequest, undo: Publication) -> dict[str, Any]:
    """The fields of the form of `state_migration` that go back from the publication's new job.

    Raises an error if the publication doesn't say what was migrated, or if the fields don't fit together.
    """
    run = published_run(home_folder(), undo)
    named = f"publication {undo.sequence} (run {undo.record.run_id})"
    if run is None:
        raise RejectedError(
            f"the folder of {named} is gone, so this DAG doesn't know which states to convert: trigger "
            f"{DAG_ID} with reverse on and name them there, or choose way_back 'old savepoint'"
        )
    if run.plan.reverse:
        raise RejectedError(
            f"{named} is itself a way back, so its job has no MapState to convert: choose way_back 'old savepoint', or "
            f"trigger {DAG_ID} to migrate forth again"
        )
    if run.plan.to != SAME_FLINK:
        raise RejectedError(
            f"{named} is for another Flink (to: {run.plan.to}), and a conversion goes back to the same Flink only: "
            "choose way_back 'old savepoint'"
        )
    conf = dict(_values(request, run, undo)) | dict(_if_it_fails(request, run))
    migration_request(conf, "the way back")
    return conf


def _values(request: RollbackRequest, run: Run, undo: Publication) -> Iterator[tuple[str, Any]]:
    plan, facts = run.plan, run.facts(SnapshotFacts)
    yield "source", "flink"
    yield "flink_job", request.flink_job
    yield "savepoint_directory", request.savepoint_directory
    yield "flink_conn_id", request.new_job_conn_id
    yield "job", plan.job
    yield "operators", plan.model_dump(mode="json")["operators"]
    yield "reverse", True
    if facts is not None and facts.declared_otherwise:
        yield "like", plan.source
    yield from _layout(plan, undo)
    if plan.no_timers:
        yield "no_timers", True
    if plan.clock_tolerance_ms != DEFAULT_CLOCK_TOLERANCE_MS:
        yield "clock_tolerance", f"{plan.clock_tolerance_ms}ms"
    for name in ("approval", "approval_timeout", "approvers", "four_eyes"):
        yield name, getattr(request, name)
    if request.restart_job:
        yield "start_job", True
        if request.new_flink_conn_id is not None:
            yield "new_flink_conn_id", request.flink_conn_id
        yield "jar", request.old_jar
        yield "entry_class", request.old_entry_class
        yield "program_args", request.old_program_args
        yield "job_parallelism", request.old_job_parallelism


def _if_it_fails(request: RollbackRequest, run: Run) -> Iterator[tuple[str, Any]]:
    """The program of the new job, by which it starts again if the conversion fails.

    It is known if the job that is stopped is the one that the run has started.
    """
    new = run.facts(NewJob)
    if (
        new is None
        or new.jar is None
        or FlinkHook(request.new_job_conn_id).job_id(str(request.flink_job)) != new.job_id
    ):
        return
    yield "old_jar", new.jar
    yield "old_entry_class", new.entry_class
    yield "old_program_args", new.program_args
    yield "old_job_parallelism", new.parallelism


def _layout(plan: MigrationPlan, undo: Publication) -> Iterator[tuple[str, int]]:
    """The max parallelism of the old job, if the migration has changed it."""
    if plan.max_parallelism is None:
        return
    old = {operator.max_parallelism for operator in read_metadata(undo.record.source).operators}
    if len(old) > 1:
        raise RejectedError(
            f"the operators of the old job have different max parallelisms ({', '.join(map(str, sorted(old)))}), and "
            f"the migration has given all of them {plan.max_parallelism}: one run can't give each its own again. "
            "Choose way_back 'old savepoint'"
        )
    yield "max_parallelism", old.pop()


def consequences_of(request: RollbackRequest, conf: dict[str, Any]) -> list[str]:
    """What a person who approves should know of the conversion."""
    has_ttl = any("ttl_ms" in state and state["ttl_ms"] for one in conf["operators"] for state in one["states"])
    lines = [
        f"the DAG {DAG_ID} stops job {request.flink_job} with a savepoint in {request.savepoint_directory}",
        "it turns the new job's rows into blobs again, and first asks a person itself",
        "no state that the new job has built up is lost, and no input is read twice",
        "until the old job runs, nothing is processed: the conversion takes about as long as the migration did",
        "a key whose map is empty has no blob: the old job finds null",
    ]
    if has_ttl:
        lines.append(
            "a blob has the timestamp of its newest entry, so the older entries of its key live longer; the report "
            "counts them. Expired entries are left out"
        )
    if "max_parallelism" in conf:
        lines.append(f"max parallelism becomes {conf['max_parallelism']} again, as in the old job's savepoint")
    if not request.restart_job:
        lines.append("restart_job is off: nobody starts the old job")
    if "old_jar" in conf:
        lines.append(f"if the conversion fails, the new job starts again with {conf['old_jar']}, from that savepoint")
    else:
        lines.append(
            f"if the conversion fails, nobody starts the new job again: it wasn't started by {DAG_ID}, which doesn't "
            "know its program"
        )
    return lines


class ConvertBack(TriggerDagRunOperator):
    """Triggers the conversion, if the request asks for it."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(trigger_dag_id=DAG_ID, skip_when_already_exists=True, **arguments)

    def execute(self, context: Context) -> Any:
        planned = context["ti"].xcom_pull(task_ids=PLAN_TASK)
        if planned is None:
            raise AirflowFailException("this task comes after plan")
        if planned["conversion"] is None:
            skip(self.log, "way_back is 'old savepoint', so nothing is converted")
        self.conf = planned["conversion"]
        # A retry finds the DAG run that an earlier try has triggered.
        self.trigger_run_id = f"manual__back_{context['dag_run'].run_id}"
        return super().execute(context)
