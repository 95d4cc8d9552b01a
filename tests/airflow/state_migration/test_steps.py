"""What becomes of a step's application: facts, a failure for good, another try, or waiting for the lease."""

from __future__ import annotations

import gc
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.partition_mappers.temporal import StartOfDayMapper
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.definitions.asset import AssetUniqueKey
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
)
from airflow.sdk.execution_time.context import OutletEventAccessors

from flinkstate.errors import TransientError, UsageError
from stateferry.airflow.dag_runs.application_ends import application_file
from stateferry.airflow.dag_runs.dag_run import fail_if_refused
from stateferry.airflow.requests.planning import Occasion
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.tasks import steps
from stateferry.airflow.tasks.check_task import CheckSavepoint
from stateferry.airflow.tasks.steps import JobAssets, StepOperator
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.rejecting import reject
from stateferry.runs.record.facts import NothingToDo, Returned, TablesProblem
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import RescaleFacts, SnapshotFacts, StateSize, TablesFacts
from tests.airflow.state_migration.savepoints import planned_run

# Airflow's hook leaves it to the garbage collector to close what it has read spark-submit's output from.
pytestmark = pytest.mark.filterwarnings("ignore:.*FileIO.*:pytest.PytestUnraisableExceptionWarning")

Submit = Callable[[str], None]


class TaskInstance:
    id, dag_id, run_id = "the task", "state_migration", "manual__1"

    def __init__(self, said: dict[str, Any], states: dict[str, str | None] | None = None) -> None:
        self.said = said
        self.states = states or {}

    def get_task_states(self, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, Any]:
        assert (dag_id, run_ids) == (self.dag_id, [self.run_id])
        return {self.run_id: {task: self.states[task] for task in task_ids if task in self.states}}

    def xcom_pull(self, task_ids: str, key: str = "return_value") -> Any:
        assert task_ids == "plan"
        return self.said.get(key) if key != "return_value" else self.said

    def xcom_push(self, key: str, value: object) -> None:
        self.said[key] = value


@pytest.fixture
def run(home: Path, occasion: Occasion) -> Run:
    return planned_run(MigrationRequest(), occasion)


@pytest.fixture
def submits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Submit]:
    """What the program `spark-submit` does, as a shell script."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))

    def does(script: str) -> None:
        program = folder / "spark-submit"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    yield does
    gc.collect()


def execute(
    step: str, run: Run, request: MigrationRequest | None = None, operator: StepOperator | None = None
) -> dict[str, Any]:
    said = {"folder": run.folder.path, "request": (request or MigrationRequest()).model_dump()}
    operator = operator or StepOperator(task_id=step, step=step)
    context: Any = {"ti": TaskInstance(said), "task": operator, "outlet_events": {}}
    operator.render_template_fields(context)
    return operator.execute(context)


def test_a_steps_facts_are_its_answer(run: Run, submits: Submit) -> None:
    states = {"main/a": StateSize(10, 400), "main/b": StateSize(5, 100)}
    submits("")
    with pytest.raises(AirflowSkipException, match="nothing to do"):
        execute("snapshot", run)
    run.keep(NothingToDo("nothing to do: mainState of main is already migrated"))
    with pytest.raises(AirflowSkipException, match="nothing to do: mainState of main is already migrated"):
        execute("snapshot", run)
    run.keep(SnapshotFacts(states=states, seconds=2.0, ended_at=0))
    assert execute("snapshot", run) == {"step": "snapshot", "seconds": 2.0, "rows": 15, "bytes": 500, "rate": 250}


def test_a_night_that_got_another_plan_in_its_first_step_answers_by_that(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replans(*_: object) -> None:
        other = run.replanned(run.plan.model_copy(update={"now": 5}), ())
        other.keep(SnapshotFacts(states={"main/a": StateSize(10, 400)}, seconds=2.0, ended_at=0))

    monkeypatch.setattr(SparkSubmitOperator, "execute", replans)
    assert execute("snapshot", run)["rows"] == 10


def test_what_a_step_notes_is_in_its_log(run: Run, submits: Submit, capsys: pytest.CaptureFixture[str]) -> None:
    submits("")
    run.keep(SnapshotFacts(notes=("--keep-expired had no effect",), seconds=2.0, ended_at=0))
    assert execute("snapshot", run) == {"step": "snapshot", "seconds": 2.0}
    assert "note: --keep-expired had no effect" in capsys.readouterr().out


def test_the_application_is_told_the_runs_folder(run: Run, submits: Submit, tmp_path: Path) -> None:
    submits(f'echo "$@" > {tmp_path}/said')
    run.keep(RescaleFacts(seconds=1.0, ended_at=0))
    execute("rescale", run)
    said = (tmp_path / "said").read_text()
    assert said.endswith(f"spark_jobs/rescale.py --run {run.folder.path}\n")
    assert "--master local[1]" in said


def test_a_step_can_be_submitted_to_yarn_in_cluster_mode(
    run: Run, submits: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    submits(f'echo "$@" > {tmp_path}/said')
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(cluster))
    run.keep(RescaleFacts(seconds=1.0, ended_at=0))
    execute("rescale", run)
    said = (tmp_path / "said").read_text()
    assert "--master yarn" in said
    assert "--deploy-mode cluster" in said


@pytest.mark.parametrize("step", ["rescale", "check"])
def test_a_task_that_is_tried_again_submits_its_application_again(step: str) -> None:
    """The run says what is done: that its driver has ended well, says nothing of a task that was cleared."""
    assert not (CheckSavepoint(task_id=step) if step == "check" else StepOperator(task_id=step, step=step)).durable


@pytest.mark.parametrize("folder", ["local:///opt/jobs", "hdfs://nn:8020/apps/", "s3a://bucket/apps", "/opt/jobs"])
def test_the_applications_may_be_on_a_store(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_SPARK_JOBS", folder)
    assert application_file("migrate") == f"{folder.rstrip('/')}/migrate.py"


def test_a_failure_that_the_run_tells_is_not_tried_again(run: Run, submits: Submit, tmp_path: Path) -> None:
    run.enter(RunState.RUNNING, 1)
    run.enter(RunState.FAILED, 2, "main/newMainState: rows: expected 5, found 4")
    file = run.folder.child("state.json").path
    (tmp_path / "failed.json").write_bytes(Path(file).read_bytes())
    run.enter(RunState.RUNNING, 3)
    submits(f"cp {tmp_path}/failed.json {file}; exit 1")
    with pytest.raises(AirflowFailException, match="expected 5, found 4"):
        execute("validate", run)


def test_a_run_that_is_rejected_meanwhile_gets_no_application_of_its_own(
    run: Run, submits: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dismissed(*_: object) -> bool:
        with Control(run.plan.catalog_uri) as control:
            reject(run, control, "the outage took too long")
        return False

    run.enter(RunState.RUNNING, 1)
    monkeypatch.setattr(StepOperator, "_is_done_by_shared_application", dismissed)
    submits(f"touch {tmp_path}/submitted")
    with pytest.raises(AirflowFailException, match="the outage took too long"):
        execute("rescale", run)
    assert not (tmp_path / "submitted").exists()


def test_a_driver_that_was_killed_is_tried_again(run: Run, submits: Submit) -> None:
    run.enter(RunState.RUNNING, 1)
    run.enter(RunState.FAILED, 2, "of an earlier try, cleared since")
    submits("kill -9 $$")
    with pytest.raises(AirflowException) as caught:
        execute("rescale", run)
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("kill -9 $$", "exit code -9: SIGKILL has ended it, as the system does when memory is short, or a person."),
        ("exit 137", "exit code 137: SIGKILL has ended it, as the system does when memory is short, or a person."),
        ("exit 143", "exit code 143: SIGTERM has ended it."),
        ("exit 75", "exit code 75."),
    ],
)
def test_how_the_application_ended_and_what_happens_next_is_in_the_log(
    run: Run,
    submits: Submit,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    how: str,
) -> None:
    submits(script)
    for tries, then in (
        (1, "Airflow tries again soon (that is try 2 of 4)"),
        (4, "Airflow doesn't try again by itself"),
    ):
        monkeypatch.setattr(TaskInstance, "try_number", tries, raising=False)
        monkeypatch.setattr(TaskInstance, "max_tries", 3, raising=False)
        with pytest.raises(AirflowException):
            execute("rescale", run)
        said = capsys.readouterr().out
        assert f"the application of rescale has ended with {how} {then}" in said
        assert "the step goes on where it was" in said


@pytest.mark.parametrize(
    ("code", "line", "final"),
    [
        (1, "stateferry: run x is rejected: it is not published", True),
        (2, "stateferry: no operator has the id, uid or name 'x'", True),
        (3, "stateferry: /data/x: expected a file, found none", True),
        # Of spark-submit's own, which says nothing of ours.
        (1, "Error: Master must either be yarn or start with spark, k8s, or local", False),
        # It was let go just before this task looked.
        (1, "stateferry: job orders is being worked on by run a: process 1 on vm", False),
        (69, "stateferry: Spark needs Java 17 or later", False),
        (70, "stateferry: an internal error of stateferry", False),
        (75, "stateferry: s3://b/x can't be reached: timeout. This may pass", False),
        (143, "stateferry: ended by SIGTERM", False),
    ],
)
def test_a_driver_s_exit_code_says_whether_another_try_is_any_use(
    run: Run, submits: Submit, code: int, line: str, final: bool
) -> None:
    run.enter(RunState.RUNNING, 1)
    submits(f'echo "what Spark says before"; echo "{line}" >&2; echo "and after"; exit {code}')
    with pytest.raises(AirflowException) as caught:
        execute("rescale", run)
    assert isinstance(caught.value, AirflowFailException) == final
    # Whoever looks into the task sees it, whatever becomes of it.
    assert line.removeprefix("stateferry: ") in str(caught.value)


def test_a_task_that_a_person_ends_takes_its_application_along(run: Run, submits: Submit, tmp_path: Path) -> None:
    operator = StepOperator(task_id="rescale", step="rescale")
    # Before there is one, as while it waits for the lease.
    operator.on_kill()
    submits(f"echo $$ > {tmp_path}/being-written; mv {tmp_path}/being-written {tmp_path}/pid; exec sleep 600")
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(execute, "rescale", run, operator=operator)
        # The process may be there before the hook knows of it, which ends what it knows.
        while not ((tmp_path / "pid").exists() and getattr(operator._hook, "_submit_sp", None)):
            assert not ended.done(), ended.result()
            time.sleep(0.05)
        operator.on_kill()
        with pytest.raises(AirflowException) as caught:
            ended.result(120)
    assert not isinstance(caught.value, AirflowFailException)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    # The run doesn't take it for a failure of its own: the next try goes on.
    assert run.state is RunState.PLANNED
    submits("")
    run.keep(RescaleFacts(seconds=1.0, ended_at=0))
    assert execute("rescale", run)["seconds"] == 1.0


def test_while_another_run_has_the_lease_the_task_waits(run: Run, submits: Submit, tmp_path: Path) -> None:
    submits(f"touch {tmp_path}/submitted")
    with Control(run.plan.catalog_uri) as control:
        held = control.acquire(run.plan.job, "another run")
        with pytest.raises(AirflowRescheduleException):
            execute("snapshot", run)
        assert not (tmp_path / "submitted").exists()
        control.release(held)
    run.keep(SnapshotFacts(seconds=1.0, ended_at=0))
    assert execute("snapshot", run)["seconds"] == 1.0


def test_a_run_that_only_rescales_has_no_tables(run: Run, occasion: Occasion, submits: Submit) -> None:
    request = MigrationRequest.model_validate({"work": "rescale only", "parallelism": 8})
    for asked, name in ((request, "rescale"), (request.rehearsal(), "rehearsed")):
        rescales = planned_run(asked, Occasion(name, occasion.as_of))
        with pytest.raises(AirflowSkipException, match="the run migrates no state, so it has no tables"):
            execute("tables", rescales)


def test_a_catch_up_without_tables_reads_what_was_published(run: Run, submits: Submit) -> None:
    alone = {"operators": (), "rehearse": False, "to": "flink-2", "output_format": "native", "since": "base"}
    plan = run.plan.model_copy(update=alone | {"run_id": "alone"})
    caught_up = Run.create(plan, 0)
    submits("true")
    caught_up.keep(TablesFacts(seconds=1.0, ended_at=0))
    # It isn't an event of the tables, which nothing has changed.
    with pytest.raises(AirflowSkipException, match="the published files are as validated"):
        execute("tables", caught_up)


def test_a_rehearsal_is_not_cut_over_to(run: Run, occasion: Occasion, submits: Submit) -> None:
    other = Occasion("rehearsal", occasion.as_of)
    rehearsal = planned_run(MigrationRequest().rehearsal(), other)
    with pytest.raises(AirflowSkipException, match="a rehearsal publishes nothing"):
        execute("cut_over", rehearsal)


def test_tables_that_fail_say_why_and_are_not_tried_again(run: Run, submits: Submit, tmp_path: Path) -> None:
    run.keep(TablesProblem("they failed their checks"))
    stored = Path(run.file_of(TablesProblem).path)
    stored.rename(tmp_path / "problem.json")
    # In cluster mode, spark-submit knows no more than that the application has failed.
    submits(f"cp {tmp_path}/problem.json {stored}; exit 1")
    with pytest.raises(AirflowFailException, match=r"tables of run .*: they failed their checks"):
        execute("tables", run)
    stored.unlink()
    submits("exit 1")
    with pytest.raises(AirflowException) as raised:
        execute("tables", run)
    assert not isinstance(raised.value, AirflowFailException)


def test_tables_that_were_there_already_leave_no_facts_and_are_no_failure(
    run: Run, submits: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version brought them before the publication, or the step was killed before it kept its facts."""
    submits("")
    run = Run.create(run.plan.model_copy(update={"rehearse": False, "run_id": "cut-over"}), 1)
    monkeypatch.setattr(steps, "_publication", lambda _: {"publication": 1})
    events: defaultdict[Any, SimpleNamespace] = defaultdict(SimpleNamespace)
    flink = {"source": "flink", "flink_job": "orders", "savepoint_directory": "/s"}
    request = MigrationRequest.model_validate(flink | {"operator": "main", "legacy_state": "a", "new_state": "b"})
    assert request.stops_job
    operator = StepOperator(task_id="tables", step="tables")
    said = {"folder": run.folder.path, "request": request.model_dump()}
    context: Any = {"ti": TaskInstance(said), "task": operator, "outlet_events": events}
    operator.render_template_fields(context)
    assert operator.execute(context) == {"step": "tables", "seconds": 0.0}
    assert events[JobAssets().tables].extra == {"publication": 1}


def tables_of_night(run: Run, assets: JobAssets, facts: TablesFacts, *, rejected: bool = False) -> OutletEventAccessors:
    """What Airflow is told of when the tables of a night have followed."""
    run = Run.create(run.plan.model_copy(update={"rehearse": True, "run_id": "night"}), 1)
    run.keep(facts)
    if rejected:
        run.enter(RunState.REJECTED, 1, "by ada")
    events = OutletEventAccessors()
    operator = StepOperator(task_id="tables", step="tables", of_run="rehearsal", assets=assets)
    said = {"folder": run.folder.path, "rehearsal": run.folder.path, "request": MigrationRequest().model_dump()}
    dag_run = SimpleNamespace(data_interval_end=datetime(2026, 7, 19, 22, 30, tzinfo=UTC), run_after=None)
    context: Any = {"ti": TaskInstance(said), "task": operator, "outlet_events": events, "dag_run": dag_run}
    operator.render_template_fields(context)
    operator._done(context, run)
    return events


def test_a_rehearsal_that_was_rejected_meanwhile_is_no_event(run: Run) -> None:
    with pytest.raises(AirflowSkipException, match="was rejected"):
        tables_of_night(run, JobAssets(), TablesFacts(moved=True), rejected=True)


@pytest.mark.parametrize("moved", [True, False])
def test_a_green_rehearsal_is_a_partition_of_the_days(run: Run, moved: bool) -> None:
    """Also that of a backfilled day, whose savepoint isn't the newest, so that the tables stay as they are."""
    assets = JobAssets("orders", "Europe/Berlin")
    events = tables_of_night(run, assets, TablesFacts(moved=moved))
    # As everywhere else, the day of a night is that where the team is.
    (key,) = events[assets.days].partition_keys
    assert StartOfDayMapper().to_downstream(key) == "2026-07-20"
    extra = {"job": run.plan.job, "run_id": "night", "source": run.plan.source}
    assert events[assets.days].extra == {**extra, "tables": moved}
    moves = [(one.dest_asset_key, one.extra) for one in events[assets.tables_if_moved].asset_alias_events]
    assert moves == [(AssetUniqueKey.from_asset(assets.tables), extra)] * moved


def test_after_the_old_job_was_started_again_no_task_goes_on(run: Run, submits: Submit) -> None:
    run.keep(Returned("it went back to the old job", "/in"))
    for step in ("snapshot", "cut_over"):
        with pytest.raises(AirflowFailException, match="savepoint is out of date: trigger a new run"):
            execute(step, run)


def test_a_step_of_a_rejected_run_is_not_submitted(run: Run, submits: Submit, tmp_path: Path) -> None:
    submits(f"touch {tmp_path}/submitted")
    with Control(run.plan.catalog_uri) as control:
        # Killed before the run's folder said so.
        control.reject(run.plan.job, run.plan.run_id, "rejected by ada")
    for step in ("snapshot", "cut_over"):
        with pytest.raises(AirflowFailException, match=r"was rejected at .* rejected by ada"):
            execute(step, run)
    assert run.state is RunState.REJECTED
    assert not (tmp_path / "submitted").exists()


def test_a_run_that_is_rejected_while_a_step_is_at_work_is_not_tried_again(
    run: Run, submits: Submit, tmp_path: Path
) -> None:
    run.enter(RunState.RUNNING, 1)
    file = Path(run.folder.child("state.json").path)
    before = file.read_bytes()
    run.enter(RunState.REJECTED, 2, "rejected by ada")
    (tmp_path / "rejected.json").write_bytes(file.read_bytes())
    file.write_bytes(before)
    submits(f"cp {tmp_path}/rejected.json {file}; exit 1")
    with pytest.raises(AirflowFailException, match="rejected by ada"):
        execute("validate", run)


def test_nothing_to_do_fails_where_a_job_was_stopped_for_it(run: Run, submits: Submit) -> None:
    submits("")
    flink = {"source": "flink", "flink_job": "orders", "savepoint_directory": "/s"}
    stopping = MigrationRequest.model_validate(flink | {"operator": "main", "legacy_state": "a", "new_state": "b"})
    with pytest.raises(AirflowFailException, match="nothing to do"):
        execute("snapshot", run, stopping)


def test_who_goes_back_waits_for_the_lease_too(run: Run) -> None:
    with Control(run.plan.catalog_uri) as control:
        held = control.acquire(run.plan.job, "another run")
        with pytest.raises(AirflowRescheduleException), fail_if_refused():
            control.acquire(run.plan.job, run.plan.run_id)
        control.release(held)
    with pytest.raises(AirflowFailException, match="no retry betters this"), fail_if_refused():
        raise UsageError("no retry betters this")
    with pytest.raises(TransientError, match="the store is away"), fail_if_refused():
        raise TransientError("the store is away")
