"""The DAG itself, in a real Airflow and on Spark, cuts over a job that the operator runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stateferry.runs.catalog.publications import Control
from tests.airflow.operator.conftest import CutOver
from tests.airflow.operator.resources import NAME

pytestmark = [pytest.mark.flink, pytest.mark.timeout(3000)]


def test_the_dag_cuts_over(cut_over: Callable[..., CutOver], monkeypatch: pytest.MonkeyPatch) -> None:
    made = cut_over()
    old = made.read()["status"]["jobStatus"]["jobId"]
    said = made.by_dag()
    assert said["state"] == "success", said["logs"]
    assert said["xcoms"]["take_savepoint"]["job_id"] == old
    with Control(f"sqlite:///{made.folder}/stateferry/catalog.db") as control:
        published = control.standing(NAME)
    assert published is not None
    assert made.restored_from(said["xcoms"]["start_job"]["job_id"]) == published.record.target
    made.check_that_nothing_was_lost("newMainState", monkeypatch)
