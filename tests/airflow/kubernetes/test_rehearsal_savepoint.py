"""Savepoints for rehearsals: under the Flink Kubernetes Operator, by a FlinkStateSnapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stateferry.airflow.flink.errors import FlinkTimeoutError
from stateferry.airflow.flink.savepoints import SavepointOrder, TakenSavepoint
from stateferry.airflow.flink.task import FlinkTask
from stateferry.airflow.kubernetes.errors import OperatorError
from stateferry.airflow.runs_on.operator_snapshots import taken_by_operator
from stateferry.airflow.runs_on.places import resource_of, savepoint_of_running_job
from tests.airflow.kubernetes.conftest import OLD_JOB, CutOver
from tests.airflow.kubernetes.stand_in import NAME
from tests.support.operator_crds import versions

Make = Callable[..., CutOver]


def taken(made: CutOver, order: SavepointOrder) -> TakenSavepoint:
    return savepoint_of_running_job(made.request.rehearsal(), made.context, order)


@pytest.mark.parametrize("version", versions())
def test_the_operator_takes_it_once_while_the_job_runs(cut_over: Make, version: str) -> None:
    made, asked = cut_over(version), []

    def take(folder: str, kind: str) -> str:
        asked.append((folder, kind))
        return f"{folder}/savepoint-1"

    made.kubernetes.take = take
    order = replace(made.order("NATIVE"), stop=False)
    savepoint = TakenSavepoint(OLD_JOB, f"file://{order.directory}/savepoint-1")
    assert taken(made, order) == savepoint
    # Another try finds it.
    assert taken(made, replace(order, tries=2)) == savepoint
    assert asked == [(f"file://{order.directory}", "NATIVE")]
    ((name, snapshot),) = made.kubernetes.snapshots.items()
    assert snapshot["spec"] == {
        "jobReference": {"kind": "FlinkDeployment", "name": NAME},
        "savepoint": {"path": f"file://{order.directory}", "formatType": "NATIVE", "disposeOnDelete": False},
        "backoffLimit": 0,
    }
    assert name == f"stateferry-{order.trigger(0)}"
    assert made.kubernetes.patches == []


def test_a_failure_is_in_the_operators_words_and_another_try_takes_another_one(cut_over: Make) -> None:
    made = cut_over()

    def fail(*_: str) -> str:
        raise OSError("Checkpoint Coordinator is suspending.")

    made.kubernetes.take = fail
    order = replace(made.order(), stop=False)
    with pytest.raises(OperatorError, match=r"^FlinkStateSnapshot team/\S+ is FAILED: Checkpoint Coordinator is susp"):
        taken(made, order)
    made.kubernetes.take = lambda folder, _: f"{folder}/savepoint-2"
    assert taken(made, replace(order, tries=2)).location.endswith("/savepoint-2")
    assert len(made.kubernetes.snapshots) == 2


def test_a_savepoint_elsewhere_does_not_count(cut_over: Make) -> None:
    made = cut_over()
    made.kubernetes.take = lambda *_: "s3://theirs/savepoint-1"
    with pytest.raises(OperatorError, match="has savepoint s3://theirs/savepoint-1, which isn't in "):
        taken(made, replace(made.order(), stop=False))


def test_an_operator_that_does_nothing_is_waited_for(cut_over: Make) -> None:
    made = cut_over()
    order = replace(made.order(), stop=False)
    with pytest.raises(FlinkTimeoutError, match=r"is not begun after 0\.2 s"):
        taken_by_operator(resource_of(made.request), order, timeout=0.2)
    (snapshot,) = made.kubernetes.snapshots.values()
    made.kubernetes.take = lambda folder, _: f"{folder}/savepoint-1"
    made.kubernetes.carry_out(snapshot)
    assert taken(made, order).location.endswith("/savepoint-1")


def test_without_a_resource_flink_takes_it(cut_over: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made, order = cut_over(), SavepointOrder(("a",), "orders", "/savepoints")
    by_flink = TakenSavepoint(OLD_JOB, "/savepoints/1")
    monkeypatch.setattr(FlinkTask, "take_savepoint", lambda *_, **__: by_flink)
    request = made.request.rehearsal().model_copy(update={"resource": None})
    assert savepoint_of_running_job(request, made.context, order) == by_flink
    assert made.kubernetes.snapshots == {}
