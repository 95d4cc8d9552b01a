"""Jobs of the Flink Kubernetes Operator: stopped, started and brought back by patches of one resource."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput
from pydantic import ValidationError

from stateferry.airflow.dag_runs.dag_run import rehearsal_of
from stateferry.airflow.flink.errors import FlinkTimeoutError, FlinkUnreachableError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.savepoints import TakenSavepoint
from stateferry.airflow.kubernetes.resource import FlinkResource
from stateferry.airflow.kubernetes.spec import merged
from stateferry.airflow.requests.planning import Occasion
from stateferry.airflow.runs_on import operator
from stateferry.airflow.runs_on.operator_session_jobs import SessionJobOperator
from stateferry.airflow.runs_on.operator_spec import SpecBefore
from stateferry.airflow.runs_on.places import check_place
from stateferry.airflow.tasks.decide_task import Decide
from stateferry.airflow.tasks.flink_tasks import StartJob, TakeSavepoint
from stateferry.airflow.tasks.return_task import ReturnToOldJob
from stateferry.runs.control.outage_limit import StopAsked, record_start
from stateferry.runs.record.facts import JobStarted, NewJob, Returned, SavepointTaken
from stateferry.runs.record.runs import Run
from stateferry.runs.report.decision import Answer
from tests.airflow.kubernetes.conftest import AS_PROVEN, OLD_JOB, CutOver, asked, run_of
from tests.airflow.kubernetes.stand_in import NAME
from tests.airflow.state_migration.test_decide import decided
from tests.airflow.state_migration.test_decide import questions as questions
from tests.support.facts import kept_facts
from tests.support.operator_crds import versions

Make = Callable[..., CutOver]
SESSION = {"resource": f"flinksessionjob/{NAME}", "new_spec": '{"job": {"entryClass": "a.NewJob"}}'}


@pytest.mark.parametrize("version", versions())
def test_a_job_is_stopped_with_a_savepoint_of_the_format_started_from_another_and_the_old_one_again(
    cut_over: Make, version: str, occasion: Occasion, tmp_path: Path
) -> None:
    made = cut_over(version)
    # As the task plan does.
    check_place(made.request, made.context)
    assert made.kubernetes.patches == []
    order = made.order("NATIVE")
    assert not made.place.is_stopping(order)
    taken = made.place.stop(order)
    assert made.place.is_stopping(order)
    assert (taken.job_id, taken.location) == (OLD_JOB, f"{order.directory}/savepoint-1")
    (stop,) = made.kubernetes.patches
    assert stop == {
        "job": {"state": "suspended", "upgradeMode": "savepoint"},
        "flinkConfiguration": {
            "state.savepoints.dir": f"file://{order.directory}",
            "kubernetes.operator.savepoint.format.type": "NATIVE",
            "kubernetes.operator.job.upgrade.last-state-fallback.enabled": "false",
            "kubernetes.operator.job.drain-on-savepoint-deletion": "false",
            "kubernetes.operator.savepoint.dispose-on-delete": "false",
            "kubernetes.operator.deployment.rollback.enabled": "false",
            "kubernetes.operator.job.restart.failed": "false",
        },
    }
    # Every other try does nothing more.
    assert made.place.stop(order) == made.place.stopped_in_the_end(order) == taken
    assert len(made.kubernetes.patches) == 1

    run = run_of(made, occasion, taken.location)
    record_start(run, NewJob(made.place.new_job_id))
    assert not made.place.has_started("/new")
    started = made.place.start(run, "/new", timeout=10)
    assert made.flinks.restored[started["job_id"]] == "/new"
    assert made.place.has_started("/new")
    assert made.place.new_job(run) == started["job_id"]
    start = made.kubernetes.patches[1]
    # In the same patch, or the operator would restore its own last state.
    assert {name: start["job"][name] for name in ("state", "initialSavepointPath", "savepointRedeployNonce")} == {
        "state": "running", "initialSavepointPath": "/new", "savepointRedeployNonce": 1,
    }  # fmt: skip
    new = merged(
        made.before, {"image": "orders:2", "job": {"entryClass": "a.NewJob", "args": ["--rate", "10", "--rows"]}}
    )
    shared = {"initialSavepointPath": "/new", "savepointRedeployNonce": 1}
    # The operator's rollback, restart and fallback, and the savepoint folder, are as they were.
    assert made.spec == merged(merged(new, AS_PROVEN), {"job": shared})
    assert made.place.start(run, "/new", timeout=10)["job_id"] == started["job_id"]
    assert made.spec["job"]["savepointRedeployNonce"] == 1

    # As of every job that the way back is from.
    made.flinks.checkpointed.clear()
    back = made.place.start_old(taken.location)
    assert made.flinks.restored[back["job_id"]] == taken.location
    assert made.spec == merged(
        merged(made.before, AS_PROVEN), {"job": {"initialSavepointPath": taken.location, "savepointRedeployNonce": 2}}
    )


def test_the_tasks_of_a_cut_over_work_there(
    cut_over: Make, occasion: Occasion, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cut_over()
    for name in ("wait_for_slots", "wait_until_ready", "wait_until_the_job_may_stop"):
        monkeypatch.setattr(f"stateferry.airflow.tasks.flink_tasks.{name}", lambda *_: None)
    monkeypatch.setattr("stateferry.airflow.flink.task.FlinkTask.job_meant", lambda _, job: job)
    monkeypatch.setattr("stateferry.airflow.tasks.flink_tasks.publication_of", lambda *_: None)
    taken = TakeSavepoint(task_id=SavepointTaken.name).execute(made.context)
    assert made.flinks.running is None
    started = StartJob(task_id=JobStarted.name).execute(made.context)
    assert made.flinks.running == started["job_id"]
    # The new job has completed a checkpoint, so nothing goes back by itself.
    with pytest.raises(AirflowFailException, match="has completed a checkpoint"):
        ReturnToOldJob(task_id="return_to_old_job").execute(made.context)
    made.flinks.checkpointed.clear()
    back = ReturnToOldJob(task_id="return_to_old_job").execute(made.context)
    assert made.flinks.restored[back["job_id"]] == taken["savepoint"] == back["savepoint"]
    assert made.flinks.running == back["job_id"]
    assert made.spec["image"] == "orders:1"
    run = Run.open(made.rehearsal.folder.parent.child(occasion.short_id))
    assert kept_facts(run, SpecBefore).spec == made.before
    assert kept_facts(run, Returned).ended_at is not None


def test_a_native_savepoint_of_which_nobody_heard_brings_the_old_job_back(
    cut_over: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that stopped the job was lost, and the one that goes back needn't know what it asked for."""
    made = cut_over(source="checkpoint", format="native", no_timers=True)
    taken = made.place.stop(replace(made.order("NATIVE"), key=("d", SavepointTaken.name, "-1", "r")))
    monkeypatch.setattr("stateferry.airflow.tasks.return_task.is_approved", lambda _: True)
    rehearsal_of(made.context).keep(StopAsked(1))
    back = ReturnToOldJob(task_id="return_to_old_job").execute(made.context)
    assert back["savepoint"] == taken.location
    assert made.flinks.restored[back["job_id"]] == taken.location


def test_a_start_that_fails_is_in_the_operators_error_and_the_old_job_comes_back(
    cut_over: Make, occasion: Occasion
) -> None:
    made = cut_over()
    taken = made.place.stop(made.order())
    run = run_of(made, occasion, taken.location)
    record_start(run, NewJob())
    good = made.flinks.start

    def fails(spec: Any) -> str:
        if spec["image"] == "orders:2":
            raise ValueError("ImagePullBackOff: orders:2")
        return good(spec)

    made.operator.start = fails
    with pytest.raises(AirflowFailException, match=r"could not start .*error: ImagePullBackOff: orders:2"):
        made.place.start(run, run.plan.target, timeout=10)
    # The job never came up, so none can have done anything.
    assert made.place.new_job(run) is None
    back = made.place.start_old(taken.location)
    assert made.flinks.restored[back["job_id"]] == taken.location
    assert made.spec["job"]["savepointRedeployNonce"] == 2


@pytest.mark.parametrize("known", [True, False], ids=["already", "after the patch"])
def test_the_failure_of_the_new_job_is_none_of_the_old_ones_start(
    cut_over: Make, occasion: Occasion, known: bool
) -> None:
    """Flink says it sooner than the operator, which looks at the job that is there before it reads the patch."""
    made = cut_over()
    taken = made.place.stop(made.order())
    made.place.start(run_of(made, occasion, taken.location), "/new", timeout=10)
    made.flinks.checkpointed.clear()
    made.operator.failure = "no price list"
    if known:
        made.operator.reconcile()
        assert made.kubernetes.resource["status"]["lifecycleState"] == "FAILED"
    back = made.place.start_old(taken.location)
    assert made.flinks.restored[back["job_id"]] == taken.location


def test_a_new_job_that_the_operator_has_started_again_meanwhile_is_not_thrown_away(
    cut_over: Make, occasion: Occasion
) -> None:
    """It does so with a job that was ended over REST."""
    made = cut_over()
    taken = made.place.stop(made.order())
    made.place.start(run_of(made, occasion, taken.location), "/new", timeout=10)
    made.flinks.checkpointed.add(str(made.flinks.running))
    patches = len(made.kubernetes.patches)
    with pytest.raises(AirflowFailException, match=r"the old job isn't started: the new job .* has come up meanwhile"):
        made.place.start_old(taken.location)
    assert len(made.kubernetes.patches) == patches


def test_the_old_job_that_fails_to_start_after_the_new_one_is_seen(cut_over: Make, occasion: Occasion) -> None:
    made = cut_over()
    taken = made.place.stop(made.order())
    made.place.start(run_of(made, occasion, taken.location), "/new", timeout=10)
    made.flinks.checkpointed.clear()
    made.operator.failure = "no price list"

    def fails(_: Any) -> str:
        raise ValueError("no quota")

    made.operator.start = fails
    with pytest.raises(AirflowFailException, match=r"could not start .*error: no quota"):
        made.place.start_old(taken.location)


def test_a_job_that_was_restored_from_elsewhere_is_found(cut_over: Make, occasion: Occasion) -> None:
    made = cut_over()
    taken = made.place.stop(made.order())
    run = run_of(made, occasion, taken.location)
    good = made.flinks.start

    def from_last_state(spec: Any) -> str:
        job = good(spec)
        made.flinks.restored[job] = "file:///checkpoints/chk-7"
        return job

    made.operator.start = from_last_state
    with pytest.raises(AirflowFailException, match="was restored from file:///checkpoints/chk-7, not from /new"):
        made.place.start(run, "/new", timeout=10)
    assert made.place.new_job(run) is not None


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_a_job_that_goes_on_after_the_savepoint_of_its_stop_is_not_stopped(
    cut_over: Make, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task has failed while it stopped. The operator calls it suspended all the same, and lets it run."""
    made = cut_over()
    monkeypatch.setattr(operator, "_ENDS_WITHIN", 0.1)
    monkeypatch.setattr(FlinkHook, "job_state", lambda *_: state)
    for stop in (made.place.stop, made.place.stopped_in_the_end):
        with pytest.raises(AirflowFailException, match=f"Flink says that job {OLD_JOB} is {state}: it may have gone"):
            stop(made.order())
    assert made.spec["job"]["state"] == "suspended"


@pytest.mark.parametrize("answer", ["FINISHED", None, FlinkUnreachableError("its cluster is gone")])
def test_a_job_that_runs_a_moment_longer_and_one_whose_cluster_is_gone_are_stopped(
    cut_over: Make, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cut_over()
    answers = ["RUNNING", answer]

    def state(*_: object) -> object:
        if isinstance(said := answers.pop(0), Exception):
            raise said
        return said

    monkeypatch.setattr(FlinkHook, "job_state", state)
    made.place.stop(made.order())
    assert answers == []


@pytest.mark.parametrize("path", ["", "KUBERNETES_OPERATOR_LAST_STATE", "/theirs/savepoint-0"])
def test_only_the_savepoint_that_was_asked_for_counts(cut_over: Make, path: str) -> None:
    """An older path, and the operator's last state, which the job runs on from in the end."""
    made = cut_over()
    made.operator.stop = lambda *_: path
    with pytest.raises(AirflowFailException, match="is suspended, but not with the savepoint that was asked for"):
        made.place.stop(made.order())
    assert made.place.stopped_in_the_end(made.order()) is None
    # Without a nonce: no other job has run meanwhile, so the operator's last state is the old job's.
    assert made.spec == made.before


def test_a_job_that_cannot_be_stopped_runs_on_with_its_spec_as_it_was(cut_over: Make) -> None:
    made = cut_over()

    def fails(*_: Any) -> str:
        raise ValueError("Checkpoint triggering task is not running")

    made.operator.stop = fails
    with pytest.raises(AirflowFailException, match=r"could not stop .*Checkpoint triggering task"):
        made.place.stop(made.order())
    assert made.place.stopped_in_the_end(made.order()) is None
    assert made.spec == made.before


@pytest.mark.parametrize("seen", ["by the task", "after it"])
def test_a_job_that_flink_stops_after_the_operators_error_is_stopped(cut_over: Make, seen: str) -> None:
    """Flink's own limit may be longer than the time for which the operator waits."""
    made = cut_over()

    def ends_late(folder: str, kind: str) -> str:
        if seen == "by the task":
            made.flinks.savepoint = TakenSavepoint(OLD_JOB, made.flinks.stop(folder, kind))
        raise ValueError("Timed out stopping the job with savepoint")

    made.operator.stop = ends_late
    order = made.order()
    if seen == "after it":
        with pytest.raises(AirflowFailException, match="Timed out stopping"):
            made.place.stop(order)
        made.flinks.savepoint = TakenSavepoint(OLD_JOB, made.flinks.stop(order.directory, order.format))
    taken = made.place.stopped_in_the_end(order) if seen == "after it" else made.place.stop(order)
    assert taken == TakenSavepoint(OLD_JOB, f"{order.directory}/savepoint-1")
    back = made.place.start_old(taken.location)
    assert made.flinks.restored[back["job_id"]] == taken.location


LATE = TakenSavepoint(OLD_JOB, "/savepoints/late")


def not_stopped(made: CutOver) -> None:
    """The operator says that it couldn't."""

    def fails(*_: Any) -> str:
        raise ValueError("Savepoint Error")

    made.operator.stop = fails
    with pytest.raises(AirflowFailException, match="Savepoint Error"):
        made.place.stop(made.order())


def test_a_job_that_flink_stops_while_its_spec_becomes_as_it_was_is_no_job_that_runs_on(
    cut_over: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cut_over()
    not_stopped(made)
    monkeypatch.setattr(operator, "_RESTORED_WITHIN", 0.1)
    made.kubernetes.before_patch = [lambda: setattr(made.flinks, "savepoint", LATE)]
    with pytest.raises(AirflowFailException, match=r"Flink has stopped the job with /savepoints/late.* if no job runs"):
        made.place.stopped_in_the_end(made.order())


def test_a_job_that_the_operator_stops_and_starts_again_while_its_spec_becomes_as_it_was_runs_on(
    cut_over: Make,
) -> None:
    """Its own next try of the stop has succeeded, of which it says so later than Flink."""
    made = cut_over()
    not_stopped(made)

    def restores() -> None:
        made.flinks.savepoint = LATE
        threading.Timer(0.3, lambda: made.kubernetes.set_status(jobStatus={"jobId": "9" * 32})).start()

    made.kubernetes.before_patch = [restores]
    assert made.place.stopped_in_the_end(made.order()) is None


def test_flink_is_asked_again_if_it_gave_no_answer_after_the_spec_became_as_it_was(
    cut_over: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cut_over()
    not_stopped(made)
    answers: list[Any] = [None, FlinkUnreachableError("no answer"), LATE]

    def look(*_: object) -> Any:
        if isinstance(said := answers.pop(0), Exception):
            raise said
        return said

    monkeypatch.setattr(operator, "_RESTORED_WITHIN", 0.1)
    monkeypatch.setattr(operator.Operator, "_stopped_in_flink", look)
    with pytest.raises(FlinkUnreachableError):
        made.place.stopped_in_the_end(made.order())
    assert made.spec == made.before
    with pytest.raises(AirflowFailException, match="Flink has stopped the job with /savepoints/late"):
        made.place.stopped_in_the_end(made.order())


def test_somebody_else_who_changes_the_resource_is_seen(cut_over: Make) -> None:
    made = cut_over()
    made.operator.is_down = True
    # In the moment of the patch: a change of the status alone is none of the spec.
    made.kubernetes.before_patch = [lambda: made.kubernetes.set_status(taskManager={"replicas": 1})]
    made.kubernetes.after_change = lambda: made.kubernetes.change_spec({"job": {"state": "running"}})
    with pytest.raises(AirflowFailException, match=r"somebody else has changed .*job.state is running, not suspended"):
        made.place.stop(made.order())
    assert len(made.kubernetes.patches) == 1
    made.operator.is_down = False
    made.operator.reconcile()
    made.kubernetes.before_patch = [lambda: made.kubernetes.change_spec({"image": "orders:9"})]
    with pytest.raises(AirflowFailException, match=r"in this moment: image is orders:9, not orders:1"):
        made.place.stop(made.order())
    assert len(made.kubernetes.patches) == 1


@pytest.mark.parametrize(
    "more",
    [{}, {"initialSavepointPath": ""}, {"initialSavepointPath": "/theirs", "savepointRedeployNonce": 7}],
    ids=["last state", "no savepoint", "savepoint"],
)
def test_the_old_job_does_not_start_where_somebody_else_has_started_one(
    cut_over: Make, occasion: Occasion, more: dict[str, Any]
) -> None:
    """That one has gone on from the operator's last state, or another, and has processed what the old job would read
    again."""
    made = cut_over()
    taken = made.place.stop(made.order())
    made.kubernetes.change_spec({"job": {"state": "running", **more}})
    with pytest.raises(AirflowFailException, match="somebody else has started a job"):
        made.place.start(run_of(made, occasion, taken.location), "/new", timeout=10)
    with pytest.raises(
        AirflowFailException, match=r"since this run stopped it, so from .*savepoint-1 the old job would"
    ):
        made.place.start_old(taken.location)
    assert len(made.kubernetes.patches) == 1


def test_the_operators_error_names_the_cause() -> None:
    """As 1.15 writes it of a job whose tasks fail."""
    error = {
        "type": "org.apache.flink.util.SerializedThrowable", "message": "Recovery is suppressed",
        "throwableList": [{"type": "java.lang.IllegalStateException", "message": "the price list cannot be found"}],
    }  # fmt: skip
    assert FlinkResource({"status": {"error": json.dumps(error)}}).error == (
        "Recovery is suppressed: the price list cannot be found"
    )


def test_an_operator_that_is_down_is_waited_for(cut_over: Make, occasion: Occasion) -> None:
    made = cut_over()
    made.operator.is_down = True

    def comes_back() -> None:
        made.operator.is_down = False
        made.operator.reconcile()

    threading.Timer(0.4, comes_back).start()
    taken = made.place.stop(made.order())
    made.operator.is_down = True
    run = run_of(made, occasion, taken.location)
    with pytest.raises(FlinkTimeoutError, match="the operator hasn't carried out its spec yet: see whether"):
        made.place.start(run, "/new", timeout=0.2)


def test_what_cannot_be_cut_over_is_refused_before_the_stop(cut_over: Make) -> None:
    made = cut_over()
    for status, words in (
        ({"lifecycleState": "FAILED"}, "only a job that runs can be stopped"),
        ({"jobStatus": {"state": "RESTARTING"}}, "only a job that runs"),
        ({"error": "no pods"}, "error: no pods"),
    ):
        before = json.loads(json.dumps(made.kubernetes.resource["status"]))
        made.kubernetes.set_status(**status)
        for refuses in (made.place.check, lambda: made.place.stop(made.order())):
            with pytest.raises(AirflowFailException, match=words):
                refuses()
        made.kubernetes.resource["status"] = before
    made.flinks.running = "f" * 32
    with pytest.raises(AirflowFailException, match=r"but the job of flinkdeployment team/orders is 0123.*orders-rest"):
        made.place.check()
    made.flinks.running = OLD_JOB
    made.kubernetes.resource["metadata"]["ownerReferences"] = [{"kind": "FlinkBlueGreenDeployment", "name": "orders"}]
    with pytest.raises(AirflowFailException, match="belongs to a FlinkBlueGreenDeployment"):
        made.place.check()
    del made.kubernetes.resource["metadata"]["ownerReferences"]
    made.kubernetes.change_spec({"flinkConfiguration": {"kubernetes.operator.job.restart.failed": "true"}})
    with pytest.raises(AirflowFailException, match=r"is STABLE .*RUNNING.*, but the operator doesn't say that it has"):
        made.place.check()
    assert made.kubernetes.patches == []
    made.kubernetes.resource["spec"].pop("job")
    with pytest.raises(AirflowFailException, match="session cluster without a job of its own"):
        made.place.check()


def test_a_spec_that_the_operator_does_not_know_is_refused_before_the_stop(cut_over: Make) -> None:
    made = cut_over(new_spec="{taskManager: {resources: {}}}")
    with pytest.raises(AirflowFailException, match=r'unknown field "spec.taskManager.resources"'):
        made.place.check()
    made = cut_over(new_spec="{job: {parallelism: many}}")
    with pytest.raises(AirflowFailException, match="'many' is not of type 'integer'"):
        made.place.check()
    made = cut_over(new_spec="{flinkVersion: v2_0}")
    with pytest.raises(AirflowFailException, match=r"flinkVersion v2_0, but the run makes a savepoint for v1_20"):
        made.place.check()
    assert made.kubernetes.patches == []


def test_a_session_job_starts_on_the_flink_of_its_cluster(cut_over: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its spec has no `flinkVersion`."""
    made = cut_over(to="flink-2", **SESSION)
    monkeypatch.setattr(FlinkHook, "flink_version", lambda _: "2.3.0")
    made.place.check()
    monkeypatch.setattr(FlinkHook, "flink_version", lambda _: "1.20.0")
    with pytest.raises(AirflowFailException, match=r"to: flink-2, but connection flink_default is of Flink 1\.20\.0"):
        made.place.check()


@pytest.mark.parametrize("version", versions())
def test_a_session_job_that_flink_has_stopped_is_started_from_a_savepoint_and_the_old_one_again(
    cut_over: Make, version: str, occasion: Occasion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cut_over(version, **SESSION)
    made.place.check()
    place = made.place
    assert isinstance(place, SessionJobOperator)
    place.keep_spec()
    old = made.flinks.stop(str(tmp_path / "ours"), "CANONICAL")
    started = place.start(run_of(made, occasion, old), "/new", timeout=10)
    new = merged(merged(made.before, made.request.new_spec_patch()), AS_PROVEN)
    assert made.spec == merged(new, {"job": {"initialSavepointPath": "/new", "savepointRedeployNonce": 1}})
    assert made.flinks.restored[started["job_id"]] == "/new"
    made.flinks.checkpointed.clear()
    back = made.place.start_old(old)
    assert made.flinks.restored[back["job_id"]] == old
    by = {"initialSavepointPath": old, "savepointRedeployNonce": 2}
    assert made.spec == merged(merged(made.before, AS_PROVEN), {"job": by})


def test_what_only_a_cluster_has_is_refused_for_a_session_job(cut_over: Make) -> None:
    made = cut_over(resource=SESSION["resource"], new_spec="{image: orders:2}")
    with pytest.raises(AirflowFailException, match=r'unknown field "spec.image"'):
        made.place.check()
    assert made.kubernetes.patches == []


def test_no_job_is_started_beside_or_instead_of_one_that_the_operator_has_started_again(
    cut_over: Make, occasion: Occasion, tmp_path: Path
) -> None:
    """A job of a session cluster, which Flink has stopped: its spec is as it was."""
    made = cut_over(**SESSION)
    place = made.place
    assert isinstance(place, SessionJobOperator)
    place.keep_spec()
    made.kubernetes.resource["status"]["jobStatus"]["jobId"] = "f" * 32
    run = run_of(made, occasion, made.flinks.stop(str(tmp_path / "theirs"), "CANONICAL"))
    with pytest.raises(AirflowFailException, match="somebody else has started a job"):
        place.start(run, "/new", timeout=10)
    with pytest.raises(AirflowFailException, match="somebody else has started a job"):
        place.start_old("/theirs/savepoint-1")
    assert made.kubernetes.patches == []


def test_who_decides_sees_what_changes_in_the_spec(cut_over: Make, questions: list[tuple[str, str]]) -> None:
    made = cut_over()
    decided(made.rehearsal, Answer.ASKED)
    with pytest.raises(TaskAwaitingInput):
        Decide(task_id="decide").execute(made.context)
    ((_, body),) = questions
    assert "| image | orders:1 | orders:2 |" in body
    assert "| job.entryClass | a.LegacyJob | a.NewJob |" in body
    assert "| job.initialSavepointPath | – | (the new savepoint) |" in body
    assert "the operator starts the old job again: `orders` gets its spec as it is now" in body


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"resource": None}, "resource: missing"),
        ({"resource": "Orders!"}, "resource: expected a name"),
        ({"resource": "flinkbluegreendeployment/orders"}, "FlinkBlueGreenDeployment can't be cut over"),
        ({"resource": "deployment/orders"}, "expected a kind of flinkdeployment, flinksessionjob, found 'deployment'"),
        ({"new_spec": None}, "new_spec: missing"),
        ({"new_spec": "orders:2"}, "expected an object"),
        ({"new_spec": "{a: [}"}, "not YAML"),
        ({"new_spec": "/nowhere/spec.yaml"}, "new_spec: .*No such file"),
        ({"new_spec": "{job: {state: running}}"}, "job.state: expected some of jarURI"),
        ({"new_spec": "{serviceAccount: root}"}, "serviceAccount: expected some of image"),
        ({"jar": "new.jar"}, "jar: given, but runs_on is 'kubernetes'"),
        ({"format": "native", "claimable": True}, "claimable: given, but runs_on is 'kubernetes'"),
        ({"old_jar": "old.jar"}, "old_jar: given, but runs_on is 'kubernetes'"),
        ({"runs_on": "session", "jar": "new.jar"}, "resource: given, but runs_on is 'session'"),
        ({"start_job": False}, "new_spec: given, but start_job is off"),
        ({"source": "path", "savepoint": "/in", "flink_job": None, "savepoint_directory": None}, "only where it has"),
    ],
)
def test_fields_that_do_not_fit_are_refused(tmp_path: Path, others: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        asked(tmp_path, **others)


def test_the_spec_may_be_an_object_or_a_file_and_a_limit_needs_no_old_jar(tmp_path: Path) -> None:
    assert asked(tmp_path, new_spec={"image": "orders:3"}).new_spec_patch() == {"image": "orders:3"}
    (tmp_path / "spec.yaml").write_text("image: orders:4\n")
    assert asked(tmp_path, new_spec=f"{tmp_path}/spec.yaml").new_spec_patch() == {"image": "orders:4"}
    limited = asked(tmp_path, outage_limit="5m")
    assert limited.has_way_back
    assert limited.rehearsal().new_spec is None
