"""The DAG itself, in a real Airflow and on Spark, cuts over a job that the operator runs, or brings it back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateferry.airflow.runs_on.operator_spec import plain
from stateferry.runs.catalog.publications import Control, Publication
from tests.airflow.operator.conftest import CutOver
from tests.airflow.operator.flink_operator import flink
from tests.airflow.operator.resources import (
    NAME,
    UPGRADED,
    flink_version,
    jar,
    native_of_flink_1,
    put_back,
    skip_unless_fit,
)
from tests.flink.remote import NEW_JOB

pytestmark = [pytest.mark.flink, pytest.mark.timeout(3000)]


def test_the_dag_cuts_over_a_job_of_flink_1_to_flink_2(
    cut_over: Callable[..., CutOver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_fit(native_of_flink_1)
    job = {"entryClass": NEW_JOB, "jarURI": f"local://{jar(tmp_path, flink())}"}
    new = {"image": "orders:2", "flinkVersion": flink_version(flink()), "job": job}
    made = cut_over(new, native_of_flink_1, **UPGRADED)
    old = made.read()["status"]["jobStatus"]["jobId"]
    said = made.by_dag()
    assert said["state"] == "success", said["logs"]
    assert [one["status"]["state"] for one in made.snapshots()] == ["COMPLETED"]
    assert said["xcoms"]["take_savepoint"]["job_id"] == old
    published = standing(made)
    assert published is not None
    assert made.restored_from(said["xcoms"]["start_job"]["job_id"]) == published.record.target
    assert made.flink("/config")["flink-version"] == flink()
    made.check_that_nothing_was_lost("newMainState", monkeypatch)


@pytest.mark.parametrize(
    ("entry_class", "options", "fields", "words"),
    [
        pytest.param("com.example.NoSuchJob", [], {}, "restarting failed container", marks=pytest.mark.full),
        (NEW_JOB, ["--checkpoint-millis", "3600000"], {"start_timeout": "2m"}, "RUNNING with a completed checkpoint"),
    ],
    ids=["no such class", "no checkpoint"],
)
def test_the_dag_brings_the_old_job_back_if_the_new_one_does_not_start(
    cut_over: Callable[..., CutOver],
    tmp_path: Path,
    entry_class: str,
    options: list[str],
    fields: dict[str, str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = {"entryClass": entry_class, "args": ["--sink", str(tmp_path / "sink"), *options]}
    made = cut_over({"image": "orders:2", "job": job}, **fields)
    before: dict[str, Any] = made.read()["spec"]
    said = made.by_dag()
    assert said["state"] == "failed"
    assert set(said["logs"]) == {"start_job", "conclude"}
    for log in said["logs"].values():
        assert words in log
    assert "the old job runs again from" in said["logs"]["conclude"]
    assert standing(made) is None

    taken, back = said["xcoms"]["take_savepoint"], said["xcoms"]["return_to_old_job"]
    assert made.restored_from(back["job_id"]) == plain(taken["savepoint"])
    now = made.read()
    assert now["status"]["jobStatus"]["jobId"] == back["job_id"]
    assert now["spec"] == put_back(before, taken["savepoint"])
    made.check_that_nothing_was_lost("mainState", monkeypatch)


def standing(made: CutOver) -> Publication | None:
    """What the DAG has published, unless it was rolled back."""
    with Control(f"sqlite:///{made.folder}/stateferry/catalog.db") as control:
        return control.standing(NAME)
