"""A rollback that converts the new job's state back, in a run of the DAG that migrates."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from flinkstate.errors import PlanError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.requests.form import migration_params
from stateferry.airflow.requests.jobs import DAG_ID, Configuration, configuration_of
from stateferry.airflow.requests.planning import default_catalog, requested_by_form
from stateferry.airflow.requests.request import migration_request
from stateferry.airflow.requests.rollback_request import rollback_request
from stateferry.airflow.tasks import way_back
from stateferry.airflow.tasks.rollback_tasks import CancelNewJob, PlanRollback, RollBack
from stateferry.airflow.tasks.way_back import ConvertBack
from stateferry.runs.catalog.publications import Control
from stateferry.runs.plan.state_ttls import state_ttls_of
from stateferry.runs.record.facts import NewJob
from stateferry.runs.record.runs import Run
from tests.airflow.state_migration.test_rollback import programs, published
from tests.airflow.state_migration.test_steps import TaskInstance

__all__ = ["programs", "published"]

ASKED = {
    "job": "demo",
    "way_back": "convert",
    "flink_job": "totals",
    "savepoint_directory": "/savepoints",
    "restart_job": True,
    "old_jar": "old.jar",
}


def plan(**changes: Any) -> dict[str, Any]:
    params = {name: value for name, value in (ASKED | changes).items() if value is not None}
    return PlanRollback(task_id="plan").execute(
        {"params": params, "dag_run": SimpleNamespace(conf=None, triggering_user_name=None)}
    )


def test_the_migration_is_asked_to_go_back(published: Run) -> None:
    said = plan()
    request = migration_request(said["conversion"], "a test")
    made = request.plan_values()
    assert made["reverse"] is True
    state = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState", "ttl_ms": 2_592_000_000}
    others = {"field": None, "rest": "stop", "no_flag": False}
    assert made["operators"] == [{"operator": "main", "states": [state | others]}]
    assert made["job"] == published.plan.job
    assert (request.stops_job, request.flink_job, request.savepoint_directory) == (True, "totals", "/savepoints")
    assert (request.start_job, request.new_program().jar) == (True, "old.jar")
    assert request.approval
    text = " ".join(said["consequences"])
    assert "no state that the new job has built up is lost" in text
    assert "the older entries of its key live longer" in text


def test_the_new_job_starts_again_if_the_conversion_fails(published: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nobody starts the new job again" in " ".join(plan()["consequences"])
    published.keep(NewJob("f00d", "new.jar", "New", "--days 30", 3))
    found = {"totals": "f00d"}
    monkeypatch.setattr(FlinkHook, "job_id", lambda _, job: found[job])
    monkeypatch.setattr(FlinkHook, "__init__", lambda *_: None)
    said = plan()
    assert "the new job starts again with new.jar" in " ".join(said["consequences"])
    assert migration_request(said["conversion"], "a test").old_program() == ("new.jar", "New", ["--days", "30"], 3)
    # Another job of that name has another program.
    found["totals"] = "beef"
    assert "old_jar" not in plan()["conversion"]


def with_plan(published: Run, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """As if the migration had been asked for with these values."""
    values = published.plan.model_dump(mode="json") | changes
    migrated = Run(type(published.plan).model_validate(values), published.folder)
    monkeypatch.setattr(way_back, "published_run", lambda *_: migrated)


def test_what_only_the_way_forth_needs_is_left_out(published: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    operators = published.plan.model_dump(mode="json")["operators"]
    state = operators[0]["states"][0] | {"map_type": "Map<String, Long>", "widen": True, "flag_ttl": "with"}
    with_plan(published, monkeypatch, lazy=True, share=0.3, operators=[{"operator": "main", "states": [state]}])
    assert plan()["conversion"]["operators"][0]["states"][0].keys().isdisjoint({"map_type", "widen", "flag_ttl"})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"keep_expired": True}, r"has kept what had expired \(keep_expired\), and a blob can't keep it"),
        (
            {"state_ttls": ["main/mainState=30d:ReturnExpiredIfNotCleanedUp"]},
            r"has kept what had expired \(state_ttl of main/mainState\).*: choose way_back 'old savepoint', or trigger",
        ),
        ({"state_ttls": ["main/newMainState=30d"]}, r"state_ttl of main/newMainState"),
    ],
)
def test_expired_entries_that_the_migration_kept_are_not_dropped_unasked(
    published: Run, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    with_plan(published, monkeypatch, **changes)
    with pytest.raises(AirflowFailException, match=said):
        plan()


def test_what_was_said_of_expired_entries_is_said_again(published: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "main/mainState=30d:drop-visible:ReturnExpiredIfNotCleanedUp:OnReadAndWrite:cleanupFullSnapshot"
    with_plan(published, monkeypatch, state_ttls=[told, "main/sessions=12h"])
    again = migration_request(plan()["conversion"], "a test").plan_values()["state_ttls"]
    assert state_ttls_of([again]) == state_ttls_of([told])


@pytest.mark.parametrize("is_native", [True, False])
def test_the_way_back_is_native_if_the_old_job_was(
    published: Run, monkeypatch: pytest.MonkeyPatch, is_native: bool
) -> None:
    with_plan(published, monkeypatch, output_format="native", classes_digest=None)
    subtask = SimpleNamespace(native_keyed=object() if is_native else None)
    metadata = SimpleNamespace(operators=[SimpleNamespace(subtasks=[subtask])])
    monkeypatch.setattr(way_back, "read_metadata", lambda _: metadata)
    assert migration_request(plan()["conversion"], "a test").is_native is is_native


def test_a_publication_for_another_flink_is_not_converted_back(published: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = Run(published.plan.model_copy(update={"to": "flink-2"}), published.folder)
    monkeypatch.setattr(way_back, "published_run", lambda *_: changed)
    with pytest.raises(AirflowFailException, match=r"is for another Flink .*: choose way_back 'old savepoint'"):
        plan()
    assert "'convert'" not in " ".join(plan(way_back=None, savepoint_directory=None)["consequences"])


def test_the_old_savepoint_says_what_it_loses_and_how_old_it_is(published: Run) -> None:
    said = plan(way_back=None, savepoint_directory=None)
    assert said["conversion"] is None
    text = " ".join(said["consequences"])
    assert "state that only the new job has built up is lost" in text
    assert " ago" in text
    assert "way_back 'convert' loses nothing" in text


def test_a_conversion_is_triggered_once_and_nothing_else_happens(
    published: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    triggered: list[tuple[str, str | None, Any]] = []

    def trigger(self: Any, context: Any) -> None:
        triggered.append((self.trigger_dag_id, self.trigger_run_id, self.conf))

    monkeypatch.setattr(TriggerDagRunOperator, "execute", trigger)
    said = plan()
    context: Any = {"ti": TaskInstance(said), "dag_run": SimpleNamespace(run_id="manual__1")}
    for task in (CancelNewJob(task_id="cancel_new_job"), RollBack(task_id="roll_back")):
        with pytest.raises(AirflowSkipException):
            task.execute(context)
    converting = ConvertBack(task_id="convert_back")
    converting.execute(context)
    ((dag_id, run_id, conf),) = triggered
    assert (dag_id, run_id) == (DAG_ID, "manual__back_manual__1")
    assert migration_request(conf, "a test") == migration_request(said["conversion"], "a test")
    assert converting.skip_when_already_exists
    with Control(default_catalog()) as control:
        standing = control.standing("demo")
    assert standing is not None
    assert standing.record.run_id == published.plan.run_id


def configure(monkeypatch: pytest.MonkeyPatch, **entry: Any) -> Configuration:
    """Configures the job of the rollback, whose own DAG has a form that is filled in."""
    values = {"source": "checkpoint", "flink_job": "totals", "savepoint_directory": "/sp", "job": "demo"}
    states = {"operator": "main", "legacy_state": "mainState", "new_state": "newMainState", "ttl": "30d"}
    request = {**values, **states, "format": "native", "accept_expired": "60%", **entry.pop("request", {})}
    found = configuration_of(json.dumps({"jobs": {"totals": {"request": request, **entry}}}), "a test")
    assert not found.problems
    monkeypatch.setattr(way_back, "configuration", lambda: found)
    return found


def test_the_own_dag_of_a_configured_job_converts(published: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = configure(monkeypatch)
    monkeypatch.setattr(TriggerDagRunOperator, "execute", lambda *_: None)
    said = plan()
    assert "the DAG state_migration_totals stops job totals" in said["consequences"][0]
    converting = ConvertBack(task_id="convert_back")
    context: Any = {"ti": TaskInstance(said), "dag_run": SimpleNamespace(run_id="manual__1")}
    converting.execute(context)
    assert converting.trigger_dag_id == "state_migration_totals"
    # What the migration wants, which the form has, isn't for the way back.
    form = ParamsDict(migration_params(found.jobs[0].request))
    form.update(converting.conf)
    assert requested_by_form(form.validate(), {}) == migration_request(said["conversion"], "a test")


def test_a_dag_with_own_tasks_does_not_convert(published: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, own_tasks="team.tasks", request={"runs_on": "own tasks"})
    assert plan()["converting_dag"] == DAG_ID


def test_a_rollback_asks_whom_the_conversion_must_ask(published: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, request={"approvers": ["ada", "grace"], "four_eyes": True})
    with pytest.raises(AirflowFailException, match="the form: four_eyes: off, but a test"):
        plan()
    with pytest.raises(AirflowFailException, match="approvers: expected some of ada, grace"):
        plan(four_eyes=True)
    assert plan(four_eyes=True, approvers="grace")["conversion"]["approvers"] == "grace"


def test_a_paused_dag_is_not_triggered(published: Run) -> None:
    ti: Any = TaskInstance(plan())
    ti.get_dag = lambda dag_id: SimpleNamespace(is_paused=dag_id == DAG_ID)
    context: Any = {"ti": ti, "dag_run": SimpleNamespace(run_id="manual__1")}
    with pytest.raises(AirflowFailException, match="state_migration is paused, so it would convert nothing"):
        ConvertBack(task_id="convert_back").execute(context)


def test_without_a_conversion_nothing_is_triggered(published: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TriggerDagRunOperator, "execute", lambda *_: pytest.fail("it was triggered"))
    said = plan(way_back=None, savepoint_directory=None)
    context: Any = {"ti": TaskInstance(said), "dag_run": SimpleNamespace(run_id="manual__1")}
    with pytest.raises(AirflowSkipException):
        ConvertBack(task_id="convert_back").execute(context)


def test_without_the_runs_folder_nothing_is_known_to_convert(published: Run) -> None:
    published.folder.remove()
    with pytest.raises(AirflowFailException, match="so this DAG doesn't know which states to convert"):
        plan()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"flink_job": None}, "flink_job: missing, and way_back 'convert' needs it"),
        ({"savepoint_directory": None}, "savepoint_directory: missing, and way_back 'convert' needs it"),
        ({"way_back": "old savepoint"}, "savepoint_directory: given, but way_back is 'old savepoint'"),
        ({"way_back": "any"}, "way_back: expected 'old savepoint' or 'convert'"),
        ({"old_jar": None}, "old_jar: missing, and restart_job needs it"),
    ],
)
def test_fields_that_do_not_fit_together_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        rollback_request(ASKED | changes, "the form")


def test_a_conversion_may_end_without_a_job() -> None:
    request = rollback_request(ASKED | {"restart_job": False, "old_jar": None}, "the form")
    assert request.converts
