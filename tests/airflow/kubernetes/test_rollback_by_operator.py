"""The DAG state_rollback under the Flink Kubernetes Operator: the old job runs again, by its spec as it was."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from flinkstate.errors import PlanError
from stateferry.airflow.dag_runs.dag_run import PLAN_TASK
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.kubernetes.spec import merged
from stateferry.airflow.requests.planning import Occasion, default_catalog
from stateferry.airflow.requests.rollback_request import rollback_request
from stateferry.airflow.tasks.rollback_tasks import CancelNewJob, PlanRollback, RollBack, StartOldJob
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.outage_limit import record_start
from stateferry.runs.record.facts import NewJob
from stateferry.runs.record.runs import Run
from tests.airflow.kubernetes.conftest import AS_PROVEN, CutOver, run_of
from tests.support.operator_crds import versions
from tests.support.records import record_of

Make = Callable[..., CutOver]
FORM = {"runs_on": "kubernetes", "restart_job": True, "approval": False}


def published(made: CutOver, occasion: Occasion) -> Run:
    """The run that was published, whose new job hasn't been started yet."""
    made.place.stop(made.order())
    run = run_of(made, occasion, f"{made.order().directory}/savepoint-1")
    with Control(default_catalog()) as control:
        lease = control.acquire(run.plan.job, run.plan.run_id)
        control.publish(lease, record_of(run.plan), replaces=None)
        control.release(lease)
    return run


class Rollback:
    """A run of the DAG, task by task."""

    def __init__(self, job: str, **others: object) -> None:
        form = {"job": job, **FORM, **others}
        dag_run = SimpleNamespace(conf=None, triggering_user_name=None)
        self.context: Any = cast("Any", {"params": form, "dag_run": dag_run})
        self.planned = PlanRollback(task_id=PLAN_TASK).execute(self.context)
        said = {PLAN_TASK: self.planned}
        self.context["ti"] = SimpleNamespace(
            dag_id="state_rollback", task_id="start_old_job", map_index=-1, run_id="manual", try_number=1,
            xcom_pull=lambda task_ids, key="return_value": said.get(task_ids), xcom_push=lambda key, value: None,
        )  # fmt: skip


@pytest.mark.parametrize("version", versions())
def test_the_old_job_runs_again_by_its_spec_as_it_was(cut_over: Make, version: str, occasion: Occasion) -> None:
    made = cut_over(version)
    run = published(made, occasion)
    record_start(run, NewJob(None))
    made.place.start(run, run.plan.target, timeout=10)
    new_job = made.flinks.running
    # Long after the cut-over the team has given the new job more memory.
    made.kubernetes.change_spec({"taskManager": {"resource": {"memory": "4096m"}}})
    rollback = Rollback(run.plan.job)
    shown = "\n".join(rollback.planned["consequences"])
    assert "flinkdeployment team/orders: image becomes orders:1, and is orders:2" in shown
    assert "taskManager.resource.memory becomes 2048m, and is 4096m" in shown
    with pytest.raises(AirflowSkipException, match="the operator ends the new job when it starts the old one"):
        CancelNewJob(task_id="cancel_new_job").execute(rollback.context)
    RollBack(task_id="roll_back").execute(rollback.context)
    with Control(default_catalog()) as control:
        assert control.standing(run.plan.job) is None
    assert made.flinks.running == new_job
    started = StartOldJob(task_id="start_old_job").execute(rollback.context)
    assert made.flinks.running == started["job_id"] != new_job
    assert made.flinks.restored[started["job_id"]] == run.plan.source
    back = {"initialSavepointPath": run.plan.source, "savepointRedeployNonce": 2}
    assert made.spec == merged(merged(made.before, AS_PROVEN), {"job": back})
    # Another try starts nothing more.
    assert StartOldJob(task_id="start_old_job").execute(rollback.context)["job_id"] == started["job_id"]


def test_a_connection_to_another_cluster_is_noticed_before_anything_is_rolled_back(
    cut_over: Make, occasion: Occasion, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cut_over()
    run = published(made, occasion)
    record_start(run, NewJob(None))
    made.place.start(run, run.plan.target, timeout=10)
    monkeypatch.setattr(FlinkHook, "job_state", lambda *_: None)
    with pytest.raises(AirflowFailException, match=r"runs job 0+1, which Flink doesn't know at flink_conn_id"):
        Rollback(run.plan.job)


def test_without_the_spec_as_it_was_nothing_is_rolled_back(cut_over: Make, occasion: Occasion) -> None:
    run = published(cut_over(), occasion)
    with pytest.raises(AirflowFailException, match="no job by the operator, so it has no spec as it was: leave "):
        Rollback(run.plan.job)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"restart_job": False}, "runs_on: 'kubernetes', but restart_job is off"),
        ({"old_jar": "old.jar"}, "old_jar: given, but runs_on is 'kubernetes'"),
        ({"flink_job": "orders"}, "flink_job: given, but runs_on is 'kubernetes'"),
        (
            {"way_back": "convert", "savepoint_directory": "/s", "flink_job": "orders"},
            "way_back: 'convert', but runs_on",
        ),
    ],
)
def test_fields_that_say_something_else_are_refused(others: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        rollback_request({"job": "main", **FORM, **others}, "the form")
