"""A job of one Flink is ferried to its successor on another Flink, and comes back to its own if that fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.files.storage import Location
from local_airflow.server import Server
from stateferry.proof.expected.check_result import Outcome
from stateferry.runs.record.runs import Run
from stateferry.runs.report.report import Report
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import FAILING_JOB, LEGACY_JOB, NEW_JOB
from tests.standalone.cut_over.ferry import DAG, PATIENCE, Ferry, connect
from tests.standalone.cut_over.purchases import shown, times_due
from tests.standalone.cut_over.test_caught_up import (
    SETTINGS,
    WITH_CHECKPOINT,
    check_that_it_was_caught_up_with,
    cut_over,
)
from tests.standalone.cut_over.test_with_airflow import (
    approve_while_the_job_runs,
    check_that_it_started_from_what_was_published,
    check_that_nobody_was_waited_for,
)
from tests.standalone.migration import log_of

pytestmark = [pytest.mark.airflow, pytest.mark.flink, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def flink_1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    with FlinkCluster("1.20.0", tmp_path_factory.mktemp("flink-1"), settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def flink_2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    with FlinkCluster("2.3.0", tmp_path_factory.mktemp("flink-2")) as cluster:
        yield cluster


@pytest.mark.full
@pytest.mark.parametrize("new_job", [NEW_JOB, FAILING_JOB])
def test_a_job_of_flink_1_becomes_one_of_flink_2(
    airflow: Server, flink_1: FlinkCluster, flink_2: FlinkCluster, tmp_path: Path, new_job: str
) -> None:
    name = f"between-{new_job.rpartition('.')[2]}"
    # Beside the map that becomes rows: a map by Kryo, a POJO with a list, timers and windows, which judge themselves.
    ferry = Ferry.ready(airflow, flink_1, name, tmp_path, "--ttl-days", 30, "--declared", "hint", "--beside", "yes")
    connect(airflow, f"{name}-2", flink_2.port)
    on_flink_2 = replace(ferry, cluster=flink_2, jar=flink_2.upload_jobs())
    old = ferry.start_old_job()
    asked = {
        "ttl": "30d",
        "to": "flink-2",
        "declared": RECENT,
        "new_flink_conn_id": f"{name}-2",
        "jar": on_flink_2.jar,
        "entry_class": new_job,
    }
    run = ferry.cut_over(old, **asked, approval=True, job_parallelism=3)
    before = approve_while_the_job_runs(ferry, run, old)

    fails = new_job == FAILING_JOB
    assert ferry.end_of(run) == ("failed" if fails else "success"), ferry.logs(run)
    assert old.status == "FINISHED"
    back, state = (ferry, "mainState") if fails else (on_flink_2, "newMainState")
    # One job runs on one of the two; no input was lost, none was read twice.
    assert [job for one in (ferry, on_flink_2) for job in one.running_ids()] == [back.running().id]
    if not fails:
        check_that_nobody_was_waited_for(ferry, run)
        check_that_it_started_from_what_was_published(ferry, run, back.running())
    began = back.cluster.get(f"/jobs/{back.running().id}")["start-time"]
    end = back.check_that_nothing_was_lost(state)
    assert min(times_due(end)) > began, "a timer that the old job had set has not fired"
    assert len(shown(ferry.sink)) > before


RECENT = "beside/recent.totals=List<String>"
ALONE = {
    "work": "rescale only",
    **dict.fromkeys(("operator", "legacy_state", "new_state")),
    "declared": f"main/mainState=Map<String, Long>\n{RECENT}",
    "entry_class": LEGACY_JOB,
    # Of all states; windows that have fired are empty.
    "may_differ": "60%",
}


@pytest.mark.full
@pytest.mark.parametrize(("work", "state"), [({}, "newMainState"), (ALONE, "mainState")], ids=["migrated", "alone"])
def test_only_what_changed_since_the_last_catch_up_is_upgraded_while_the_job_stands_still(
    airflow: Server, flink_1: FlinkCluster, flink_2: FlinkCluster, tmp_path: Path, work: dict[str, object], state: str
) -> None:
    name = f"caught-up-{state}"
    ferry = Ferry.ready(airflow, flink_1, name, tmp_path, "--declared", "hint", "--beside", "yes")
    connect(airflow, f"{name}-2", flink_2.port)
    on_flink_2 = replace(ferry, cluster=flink_2, jar=flink_2.upload_jobs())
    old = ferry.start_old_job()
    asked = {
        "to": "flink-2",
        "declared": RECENT,
        "new_flink_conn_id": f"{name}-2",
        "jar": on_flink_2.jar,
        **WITH_CHECKPOINT,
        **work,
    }
    run = cut_over(ferry, old, "The cut-over converts only what has changed", **asked)
    assert old.status == "CANCELED"
    check_that_it_was_caught_up_with(ferry, run)
    # Without tables, the task has only read what was published.
    report = Report.read(Run.open(Location.of(ferry.xcom(run, "plan")["folder"])).report)
    assert ("published files", Outcome.PASSED) in [(one.name, one.outcome) for one in report.tables]
    assert airflow.api.tasks(DAG, run)["tables"]["state"] == ("success" if work == {} else "skipped")
    check_that_it_started_from_what_was_published(ferry, run, on_flink_2.running())
    began = flink_2.get(f"/jobs/{on_flink_2.running().id}")["start-time"]
    end = on_flink_2.check_that_nothing_was_lost(state)
    assert min(times_due(end)) > began, "a timer that the old job had set has not fired"


@pytest.mark.full
def test_a_program_that_cannot_be_started_is_named_while_the_job_runs(
    airflow: Server, flink_1: FlinkCluster, flink_2: FlinkCluster, tmp_path: Path
) -> None:
    ferry = Ferry.ready(airflow, flink_1, "misnamed", tmp_path, "--ttl-days", 30)
    connect(airflow, "misnamed-2", flink_2.port)
    jar = flink_2.upload_jobs()
    old = ferry.start_old_job()
    mistakes = (
        ({"jar": "totls.jar"}, "the new job can't be started as jar, entry_class and program_args say"),
        ({"jar": jar, "entry_class": "stateferry.totals.NoJob"}, "stateferry.totals.NoJob"),
        ({"jar": jar, "old_jar": "totls.jar"}, "the old job can't be started"),
        ({"jar": jar, "to": "same"}, "say in to for which Flink the new savepoint is"),
        ({"jar": jar, "to": "flink-1.20"}, "to: flink-1.20, but connection misnamed-2 is of Flink 2.3.0"),
    )
    for wrong, said in mistakes:
        run = ferry.cut_over(old, **{"ttl": "30d", "to": "flink-2", "new_flink_conn_id": "misnamed-2"} | wrong)
        assert airflow.api.wait_for_end(DAG, run, PATIENCE) == "failed"
        assert said in log_of(airflow, DAG, run, "plan")
    assert old.status == "RUNNING"
    old.cancel()
