"""The way back that loses nothing: a DAG that migrates converts a savepoint of the new job, in reverse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import DagIsPaused, TriggerDagRunOperator
from airflow.sdk.exceptions import AirflowFailException

from flinkstate.errors import RejectedError
from stateferry.airflow.dag_runs.dag_run import PLAN_TASK, skip
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.requests.jobs import DAG_ID, configuration
from stateferry.airflow.requests.request import migration_request
from stateferry.airflow.requests.rollback_request import RollbackRequest
from stateferry.airflow.requests.sources import home_folder, read_metadata
from stateferry.airflow.tasks.plan_task import check_who_is_asked
from stateferry.runs.catalog.publications import Publication
from stateferry.runs.control.target_metadata import published_run
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.run_options import DEFAULT_CLOCK_TOLERANCE_MS
from stateferry.runs.plan.state_ttls import StateTtlPlan
from stateferry.runs.plan.upgrade_options import SAME_FLINK
from stateferry.runs.record.facts import NewJob
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts

if TYPE_CHECKING:
    from airflow.sdk import Context

# What only a migration is told of a state: rows say of which type they are, and a run in reverse makes no flag.
_ONLY_FORTH = ("map_type", "widen", "flag_ttl")


def converting_dag(request: RollbackRequest) -> str:
    """The DAG that converts: the job's own one, where no other job's run is in the way, or that of the form.

    Raises an error if the rollback asks fewer people than that DAG wants. A DAG with own tasks starts no job by its
    jar, as the way back does.
    """
    configured = configuration().of_job(str(request.job))
    if configured is None:
        return DAG_ID
    check_who_is_asked(request, configured)
    return configured.dag_id if configured.own_tasks is None else DAG_ID


def conversion_of(request: RollbackRequest, undo: Publication) -> dict[str, Any]:
    """The fields of a migration's form that go back from the publication's new job.

    Raises an error if nothing can be converted back, or if the fields don't fit together.
    """
    run = migration_of(undo)
    conf = dict(_values(request, run, undo)) | dict(_if_it_fails(request, run))
    migration_request(conf, "the way back")
    return conf


def migration_of(undo: Publication) -> Run:
    """The publication's run; raises an error if what it has made can't be converted back."""
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
    _check_expired(run.plan)
    return run


def _values(request: RollbackRequest, run: Run, undo: Publication) -> Iterator[tuple[str, Any]]:
    plan, facts = run.plan, run.facts(SnapshotFacts)
    yield "source", "flink"
    yield "flink_job", request.flink_job
    yield "savepoint_directory", request.savepoint_directory
    yield "flink_conn_id", request.new_job_conn_id
    yield "job", plan.job
    yield (
        "operators",
        [
            {
                **one,
                "states": [{name: state[name] for name in state if name not in _ONLY_FORTH} for state in one["states"]],
            }
            for one in plan.model_dump(mode="json")["operators"]
        ],
    )
    yield "reverse", True
    if facts is not None and facts.declared_otherwise:
        yield "like", undo.record.source
    yield from _layout(plan, undo)
    if told := _told_of_migrated(plan):
        yield "state_ttl", "\n".join(one.text for one in told)
    if plan.output_format == "native" and _had_files_of_rocksdb(undo.record.source):
        yield "format", "native"
    if plan.classes:
        yield "classes", "\n".join(plan.classes)
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


def _had_files_of_rocksdb(source: str) -> bool:
    """Whether the old job had such files: one with another state backend couldn't restore them."""
    subtasks = [subtask for operator in read_metadata(source).operators for subtask in operator.subtasks]
    return any(subtask.native_keyed is not None for subtask in subtasks)


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


def _told_of_migrated(plan: MigrationPlan) -> list[StateTtlPlan]:
    """What the plan says beside `ttl` of the migrated states' time to live."""
    migrated = {name for one in plan.operators for state in one.states for name in (state.legacy, state.new)}
    return [one for one in plan.state_ttls if one.state in migrated]


def _check_expired(plan: MigrationPlan) -> None:
    """Refuses to drop unasked what the migration has kept."""
    kept = ["keep_expired"] if plan.keep_expired else []
    kept += [f"state_ttl of {one.operator}/{one.state}" for one in _told_of_migrated(plan) if not one.drops]
    if kept:
        raise RejectedError(
            f"the migration has kept what had expired ({', '.join(kept)}), and a blob can't keep it, as it has the "
            f"timestamp of its newest entry: choose way_back 'old savepoint', or trigger {DAG_ID} with reverse on, and "
            "say drop or drop-visible in state_ttl there if such entries may go"
        )


def consequences_of(request: RollbackRequest, conf: dict[str, Any], dag_id: str) -> list[str]:
    """What a person who approves should know of the conversion."""
    has_ttl = any("ttl_ms" in state and state["ttl_ms"] for one in conf["operators"] for state in one["states"])
    lines = [
        f"the DAG {dag_id} stops job {request.flink_job} with a savepoint in {request.savepoint_directory}",
        "it turns the new job's rows into blobs again, and first asks a person itself",
        "no state that the new job has built up is lost, and no input is read twice",
        "until the old job runs, nothing is processed: everything is converted meanwhile, with no catch-up before",
        f"how long that takes, the task decide of {dag_id} predicts before the job is stopped",
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
            "if the conversion fails, nobody starts the new job again: it wasn't started by a migration's DAG, so "
            "its program isn't known"
        )
    return lines


class ConvertBack(TriggerDagRunOperator):
    """Triggers the conversion, if the request asks for it."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(
            trigger_dag_id=DAG_ID, skip_when_already_exists=True, fail_when_dag_is_paused=True, **arguments
        )

    def execute(self, context: Context) -> Any:
        planned = context["ti"].xcom_pull(task_ids=PLAN_TASK)
        if planned is None:
            raise AirflowFailException("this task comes after plan")
        if planned["conversion"] is None:
            skip(self.log, "way_back is 'old savepoint', so nothing is converted")
        self.trigger_dag_id = planned["converting_dag"]
        # Every field: the form of a job's own DAG is filled in with what the job's migration wants.
        self.conf = migration_request(planned["conversion"], "the way back").model_dump()
        # A retry finds the DAG run that an earlier try has triggered.
        self.trigger_run_id = f"manual__back_{context['dag_run'].run_id}"
        try:
            return super().execute(context)
        except DagIsPaused:
            raise refusal(
                f"the DAG {self.trigger_dag_id} is paused, so it would convert nothing, and the new job runs on: turn "
                "it on in Airflow, and clear this task"
            ) from None
