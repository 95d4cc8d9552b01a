"""A rollback that converts the new job's state back, in a run of the DAG that migrates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from flinkstate.errors import PlanError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.requests.jobs import DAG_ID
from stateferry.airflow.requests.planning import default_catalog
from stateferry.airflow.requests.request import migration_request
from stateferry.airflow.requests.rollback_request import rollback_request
from stateferry.airflow.tasks import way_back
from stateferry.airflow.tasks.rollback_tasks import CancelNewJob, PlanRollback, RollBack
from stateferry.airflow.tasks.way_back import ConvertBack
from stateferry.runs.catalog.publications import Control
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
    assert made["operators"] == published.plan.model_dump(mode="json")["operators"]
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


def test_a_publication_for_another_flink_is_not_converted_back(published: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = Run(published.plan.model_copy(update={"to": "flink-2"}), published.folder)
    monkeypatch.setattr(way_back, "published_run", lambda *_: changed)
    with pytest.raises(AirflowFailException, match=r"is for another Flink .*: choose way_back 'old savepoint'"):
        plan()


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
    assert triggered == [(DAG_ID, "manual__back_manual__1", said["conversion"])]
    assert converting.skip_when_already_exists
    with Control(default_catalog()) as control:
        standing = control.standing("demo")
    assert standing is not None
    assert standing.record.run_id == published.plan.run_id


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
