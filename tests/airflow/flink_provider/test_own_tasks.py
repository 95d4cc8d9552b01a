"""Own tasks of a team between ours: the example, as Airflow makes its tasks, with real Flink."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, TriggerRule
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from stateferry.airflow.dag_runs.dag_run import rehearsal_of
from stateferry.airflow.dag_runs.priorities import POOL
from stateferry.airflow.migration_dag import migration_dags, tell_problems
from stateferry.airflow.requests.planning import Occasion, plan_for
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.runs_on.own_tasks import OwnTasks
from stateferry.airflow.runs_on.places import check_place
from stateferry.airflow.tasks.outage_task import end_if_exceeded
from stateferry.basics.durations import now_ms
from stateferry.runs.catalog.publications import Publication, Record
from stateferry.runs.control.outage_limit import OutageExceeded, StopAsked
from stateferry.runs.record.facts import JobStarted, NewJob, Returned, SavepointTaken
from stateferry.runs.record.runs import Run
from tests.airflow.flink_provider.conftest import end
from tests.airflow.flink_provider.tries import Store, local
from tests.airflow.state_migration.conftest import home as home
from tests.airflow.state_migration.conftest import occasion as occasion
from tests.airflow.state_migration.test_decide import context, decided, rehearsed
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import LEGACY_JOB, RemoteJob
from tests.support.facts import kept_facts

EXAMPLE = "stateferry.airflow.examples.own_tasks"


@pytest.fixture
def dag(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DAG:
    return made(monkeypatch, EXAMPLE, tmp_path)


def request_of(tmp_path: Path, **others: object) -> dict[str, object]:
    return {
        "source": "flink", "flink_job": "totals", "savepoint_directory": (tmp_path / "savepoints").as_uri(),
        "operator": "main", "legacy_state": "mainState", "new_state": "newMainState", "start_job": True,
        "runs_on": "own tasks", **others,
    }  # fmt: skip


def made(monkeypatch: pytest.MonkeyPatch, own: str | None, tmp_path: Path, **others: object) -> DAG:
    entry = {"request": request_of(tmp_path, **others)} | ({} if own is None else {"own_tasks": own})
    monkeypatch.setenv("AIRFLOW_VAR_STATE_MIGRATION", json.dumps({"jobs": {"orders": entry}}))
    return {one.dag_id: one for one in migration_dags()}.get("state_migration_orders", DAG("none"))


def test_each_group_is_between_a_task_that_asks_and_one_that_goes_on(dag: DAG) -> None:
    for before, first, last, after in (
        ("stop_asked", "own_stop.stop", "own_stop.stop", "take_savepoint"),
        ("start_asked", "own_start.start", "own_start.start", "start_job"),
        ("return_asked", "own_return.end_new_job", "own_return.start_old_job", "return_to_old_job"),
    ):
        assert first in dag.task_dict[before].downstream_task_ids
        assert after in dag.task_dict[last].downstream_task_ids
        # They wait for no slot of others, since the job stands still.
        assert {dag.task_dict[name].pool for name in (before, first, last, after)} == {POOL}
    assert "wait_to_stop" in dag.task_dict["stop_asked"].upstream_task_ids
    assert "cut_over" in dag.task_dict["start_asked"].upstream_task_ids
    fails = {"take_savepoint", "watch_outage", "start_job"}
    assert dag.task_dict["return_asked"].upstream_task_ids == fails
    assert dag.task_dict["return_asked"].trigger_rule == TriggerRule.ONE_FAILED
    assert dag.task_dict["return_to_old_job"].trigger_rule == TriggerRule.ALL_SUCCESS
    assert dag.task_dict["start_job"].trigger_rule == TriggerRule.NONE_FAILED


@pytest.mark.parametrize(
    ("own", "others", "words"),
    [
        (None, {}, "own_tasks: missing, but runs_on of the request is 'own tasks'"),
        (EXAMPLE, {"runs_on": "session", "jar": "a.jar"}, "own_tasks: given, but runs_on"),
        ("nobodys.tasks", {}, "nobodys.tasks can't be imported"),
        (f"{EXAMPLE}.stop", {}, "expected a module or class with the functions stop, start and go_back"),
        ("pathlib.Path", {}, "expected a module or class with the functions"),
    ],
)
def test_a_mistake_is_told_and_takes_no_other_dag_down(
    own: str | None, others: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert made(monkeypatch, own, tmp_path, **others).dag_id == "none"
    with pytest.raises(ValueError, match=words):
        tell_problems()


def test_two_last_tasks_are_one_too_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "two_ends.py").write_text(
        "from airflow.providers.standard.operators.empty import EmptyOperator\n"
        "def stop(asked): [EmptyOperator(task_id='a'), EmptyOperator(task_id='b')]\n"
        "start = go_back = stop\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert made(monkeypatch, "two_ends", tmp_path).dag_id == "none"
    with pytest.raises(ValueError, match="own_stop: expected exactly one last task"):
        tell_problems()


def test_only_the_dag_with_own_tasks_takes_such_a_request(dag: DAG, tmp_path: Path) -> None:
    own = MigrationRequest.model_validate(request_of(tmp_path))
    session = MigrationRequest.model_validate(request_of(tmp_path, runs_on="session", jar="a.jar"))
    check_place(own, {"dag": dag})
    for request, where, words in ((session, dag, "has own tasks"), (own, DAG("state_migration"), "has no own tasks")):
        with pytest.raises(AirflowFailException, match=words):
            check_place(request, {"dag": where})


class Tasks:
    """Runs tasks of the DAG one after the other, each with what Airflow would give it."""

    def __init__(self, dag: DAG, here: Any) -> None:
        self.dag, self.here, self.stores = dag, here, dict[str, Any]()
        self.pushed: dict[tuple[str, str], Any] = {}
        self.said: dict[str, Any] = {"plan": here["ti"].xcom_pull()}

    def run(self, *names: str) -> Any:
        for name in names:
            task: Any = self.dag.task_dict[name]
            ti = SimpleNamespace(**{**vars(self.here["ti"]), "task_id": name, "xcom_pull": self._pull})
            ti.xcom_push = lambda key, value, of=name: self.pushed.update({(of, key): value})
            store = self.stores.setdefault(name, Store())
            found: Any = {**self.here, "ti": ti, "task": task, "dag": self.dag, "task_state_store": store}
            task = task.prepare_for_execution()
            task.render_template_fields(found)
            if task._pre_execute_hook is not None:
                task._pre_execute_hook(found)
            self.said[name] = task.execute(found)
        return self.said[names[-1]]

    def _pull(self, task_ids: Any = None, key: str = "return_value", **_: Any) -> Any:
        name = task_ids if isinstance(task_ids, str) else task_ids[0]
        return self.said.get(name) if key == "return_value" else self.pushed.get((name, key))


def published_by(run: Run) -> Publication:
    read, target = run.plan.source, run.plan.target
    record = Record(
        run_id="r", plan_fingerprint="p", source=read, checkpoint_id=1, target=target, metadata_digest="d", tables={}
    )
    return Publication("main", 1, None, 1, record)


@pytest.fixture
def failed(
    dag: DAG, tmp_path: Path, home: Path, occasion: Occasion, monkeypatch: pytest.MonkeyPatch
) -> tuple[Tasks, Run, list[object]]:
    """After the publication: the tasks, the run, and what is rolled back."""
    request = MigrationRequest.model_validate(request_of(tmp_path))
    rehearsal = rehearsed(home, occasion.rehearsal(), request)
    decided(rehearsal)
    run = Run.create(plan_for(request, occasion, rehearsal.plan.source), occasion.now)
    run.keep(NewJob("new"))
    tasks = Tasks(dag, context(rehearsal, request, occasion))
    tasks.pushed["take_savepoint", "stopped"] = run.plan.source
    rolled_back: list[object] = []
    monkeypatch.setattr("stateferry.airflow.tasks.return_task._publication", published_by)
    monkeypatch.setattr("stateferry.airflow.tasks.return_task._roll_back", lambda *of: rolled_back.append(of))
    return tasks, run, rolled_back


def test_it_is_rolled_back_when_own_tasks_have_ended_the_new_job(failed: tuple[Tasks, Run, list[object]]) -> None:
    tasks, run, rolled_back = failed
    tasks.run("return_asked")
    # They may yet find that it has completed a checkpoint.
    assert not rolled_back
    tasks.said["own_return.start_old_job"] = {"job_id": "old"}
    assert tasks.run("return_to_old_job")["job_id"] == "old"
    # Once more after the return is recorded: until then a step may have gone on.
    assert rolled_back == [(run, published_by(run))] * 2


def test_nothing_is_rolled_back_once_the_new_job_has_completed_a_checkpoint(
    failed: tuple[Tasks, Run, list[object]],
) -> None:
    """The worker of start_job was lost after it had kept that."""
    tasks, run, rolled_back = failed
    run.keep(JobStarted.of_json({"job_id": "new", "state": "RUNNING", "seconds": 1.0}, "a test"))
    with pytest.raises(AirflowFailException, match=r"completed a checkpoint.* has started no job and rolled nothing"):
        tasks.run("return_asked")
    assert not rolled_back
    assert run.facts(Returned) is None


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (Returned("the old job was started again", "/old"), "is over: the old job was started again"),
        (OutageExceeded(1, 60_000), "starts no new job: the outage has taken longer than outage_limit"),
    ],
)
def test_own_tasks_that_are_tried_again_start_no_job_beside_the_old_one(
    fact: Returned | OutageExceeded, words: str, failed: tuple[Tasks, Run, list[object]]
) -> None:
    tasks, run, _ = failed
    run.keep(fact)
    with pytest.raises(AirflowFailException, match=words):
        tasks.run("own_start.start")


@pytest.mark.parametrize("asked", ["success", "skipped"])
def test_own_tasks_that_are_skipped_have_not_started_the_new_job_that_was_asked_for(
    asked: str, failed: tuple[Tasks, Run, list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, _, _ = failed
    states = {"start_asked": asked, "own_start.start": "skipped"}
    tasks.here["ti"].get_task_states = lambda *, task_ids, **_: {"r": {one: states[one] for one in task_ids}}
    monkeypatch.setattr("stateferry.airflow.tasks.flink_tasks.publication_of", lambda *_: None)
    error = AirflowFailException if asked == "success" else AirflowSkipException
    with pytest.raises(error, match=r"last task of own_start, was skipped|start_asked was skipped"):
        tasks.run("start_job")


def test_own_tasks_that_are_cleared_stop_no_job_that_was_started_again(
    failed: tuple[Tasks, Run, list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would start it once more: the way back has been gone already."""
    tasks, _, _ = failed
    stopped: list[object] = []
    monkeypatch.setattr(type(tasks.dag.task_dict["own_stop.stop"]), "execute", lambda _, context: stopped.append(1))
    tasks.run("own_stop.stop")
    assert stopped == [1]
    rehearsal_of(tasks.here).keep(Returned("the old job was started again", "/old", 1))
    with pytest.raises(AirflowFailException, match="is over: the old job was started again"):
        tasks.run("own_stop.stop")
    assert stopped == [1]


def test_a_hook_of_the_teams_own_is_called_too(
    failed: tuple[Tasks, Run, list[object]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hooked.py").write_text(
        "from airflow.providers.standard.operators.empty import EmptyOperator\n"
        "def theirs(context): raise ValueError('of the team')\n"
        "def stop(asked): EmptyOperator(task_id='a', pre_execute=theirs)\n"
        "start = go_back = stop\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    tasks, _, _ = failed
    tasks.dag = made(monkeypatch, "hooked", tmp_path)
    for name in ("own_stop.a", "own_start.a"):
        with pytest.raises(ValueError, match="of the team"):
            tasks.run(name)


def test_nobody_is_asked_to_go_back_while_own_tasks_are_about_to_start_the_new_job(
    failed: tuple[Tasks, Run, list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, run, _ = failed
    states = ["running", "running", "failed"]
    looks: list[tuple[str, bool]] = []

    def look(*, task_ids: list[str], **_: Any) -> dict[str, dict[str, str]]:
        # A task that begins only now is refused.
        looks.append((task_ids[0], run.facts(Returned) is not None))
        return {"r": {task_ids[0]: states.pop(0)}}

    tasks.here["ti"].get_task_states = look
    monkeypatch.setattr("stateferry.airflow.tasks.return_task.POLL_SECONDS", 0.01)
    assert tasks.run("return_asked")["new_job_asked"]
    assert looks == [("own_start.start", True)] * 3
    # What runs on is what `go_back` has to end.
    states.extend(["running"] * 9)
    monkeypatch.setattr("stateferry.airflow.tasks.return_task._STARTED_WITHIN", 0.01)
    tasks.run("return_asked")


@pytest.mark.parametrize("state", ["success", "running"])
def test_a_new_job_that_own_tasks_have_started_in_time_stays(
    state: str, failed: tuple[Tasks, Run, list[object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit passes before `start_job` has recorded that the new job has completed a checkpoint."""
    tasks, run, _ = failed
    run.keep(NewJob())
    run.keep(SavepointTaken(seconds=1.0, ended_at=now_ms(), requested_at=now_ms() - 360_000))
    tasks.here["ti"].get_task_states = lambda *, task_ids, **_: {"r": dict.fromkeys(task_ids, state)}
    monkeypatch.setattr("stateferry.airflow.tasks.outage_task.reject", lambda *_: None)
    monkeypatch.setattr("stateferry.airflow.tasks.outage_task.dismiss", lambda *_: None)
    request = MigrationRequest.model_validate(request_of(tmp_path, outage_limit="5m"))
    here: Any = {**tasks.here, "dag": tasks.dag}
    if state == "success":
        end_if_exceeded(here, request, run, logging.getLogger())
        assert run.facts(OutageExceeded) is None
    else:
        with pytest.raises(AirflowFailException, match="the old job is started again"):
            end_if_exceeded(here, request, run, logging.getLogger())


@pytest.mark.parametrize("savepoint", ["too old", "none at all"])
def test_a_savepoint_that_is_refused_when_the_job_is_stopped_is_not_what_the_old_job_starts_from(
    savepoint: str, failed: tuple[Tasks, Run, list[object]]
) -> None:
    tasks, run, _ = failed
    location = run.plan.source if savepoint == "too old" else "/nowhere"
    tasks.said["own_stop.stop"] = {"savepoint": location}
    ti = SimpleNamespace(**{**vars(tasks.here["ti"]), "xcom_pull": tasks._pull})
    here: Any = {**tasks.here, "ti": ti, "dag": tasks.dag}
    place = OwnTasks(here)
    order: Any = None
    rehearsal_of(here).keep(StopAsked(0))
    assert savepoint != "too old" or place.stop(order) == place.stopped_in_the_end(order)
    rehearsal_of(here).keep(StopAsked(now_ms() + 600_000))
    with pytest.raises(AirflowFailException, match=r"so what it has processed since would be lost|is no savepoint"):
        place.stop(order)
    taken = place.stopped_in_the_end(order)
    assert taken is not None
    assert taken.location == ""


def test_the_example_looks_for_no_new_job_by_the_id_of_the_old_one(failed: tuple[Tasks, Run, list[object]]) -> None:
    """It would find none, and start the old job beside the new one."""
    tasks, _, _ = failed
    tasks.said["return_asked"] = {"savepoint": "/old", "new_job_asked": True, "flink_job": "a1", "old_job": "a1"}
    with pytest.raises(AirflowFailException, match="a1 is the old job's id: look whether the new one runs"):
        tasks.run("own_return.end_new_job")


@pytest.mark.flink
def test_the_example_stops_starts_and_brings_a_real_job_back(
    cluster: FlinkCluster, jar: str, sink: Path, connection: None, dag: DAG, tmp_path: Path, home: Path,
    occasion: Occasion, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    first = RemoteJob.start(cluster, jar, LEGACY_JOB, "--sink", sink)
    first.wait_for_checkpoints(1)
    name = str(cluster.get(f"/jobs/{first.id}")["name"])
    request = MigrationRequest.model_validate(request_of(tmp_path, flink_job=name))
    rehearsal = rehearsed(home, occasion.rehearsal(), request)
    decided(rehearsal)
    for waits in ("wait_for_slots", "wait_until_ready", "wait_until_the_job_may_stop"):
        monkeypatch.setattr(f"stateferry.airflow.tasks.flink_tasks.{waits}", lambda *_: None)
    monkeypatch.setattr("stateferry.airflow.tasks.flink_tasks.publication_of", lambda *_: None)
    monkeypatch.setattr("stateferry.airflow.tasks.flink_tasks.check_operators", lambda *_: None)
    for task in ("own_start.start", "own_return.start_old_job"):
        started: Any = dag.task_dict[task]
        started.jar, started.entry_class, started.arguments = jar, LEGACY_JOB, ["--sink", str(sink)]
    tasks = Tasks(dag, context(rehearsal, request, occasion))

    asked = tasks.run("stop_asked")
    assert asked["format"] == "CANONICAL"
    assert first.status == "RUNNING"
    assert rehearsal.facts(StopAsked) is not None
    taken = tasks.run("own_stop.stop", "take_savepoint")
    assert first.status == "FINISHED"
    assert local(taken["savepoint"]).is_relative_to(local(asked["savepoint_directory"]))
    run = Run.open(rehearsal.folder.parent.child(occasion.short_id))
    kept = kept_facts(run, SavepointTaken)
    assert (kept.requested_at, kept.job_id) == (asked["asked_at"], first.id)
    assert kept.seconds is not None
    assert kept.seconds > 0

    shutil.copytree(local(taken["savepoint"]), local(run.plan.target))
    tasks.run("start_asked", "own_start.start")
    second = tasks.said["own_start.start"]["job_id"]
    # As if start_job had failed before it knew that the new job has completed a checkpoint.
    with pytest.raises(AirflowFailException, match="has completed a checkpoint: a person must decide"):
        tasks.run("return_asked", "own_return.end_new_job")
    monkeypatch.setattr("stateferry.airflow.flink.hook.FlinkHook.has_checkpointed", lambda *_: False)
    back = tasks.run("return_asked", "own_return.end_new_job", "own_return.start_old_job", "return_to_old_job")
    assert back["savepoint"] == taken["savepoint"]
    assert cluster.get(f"/jobs/{second}/status")["status"] == "CANCELED"
    latest = cluster.get(f"/jobs/{back['job_id']}/checkpoints")["latest"]
    assert local(latest["restored"]["external_path"]) == local(taken["savepoint"])
    assert kept_facts(run, Returned).ended_at is not None
    assert run.facts(NewJob) is not None
    assert run.facts(JobStarted) is None
    end(RemoteJob(cluster, back["job_id"]))
