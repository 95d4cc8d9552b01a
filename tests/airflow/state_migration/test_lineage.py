"""What OpenLineage hears of the steps, by Airflow's own provider with a transport into a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
from airflow.utils.state import TaskInstanceState

from stateferry.airflow.flink.operators import FlinkRunJarOperator, FlinkSavepointOperator
from stateferry.airflow.requests.planning import Occasion
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.tasks.steps import StepOperator
from stateferry.changes.counts import ConversionCounts
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import (
    MigrateFacts,
    RescaleFacts,
    SnapshotFacts,
    StateSize,
    TablesFacts,
    TablesOfState,
)
from stateferry.runs.report.report import Report, SavepointDigests
from stateferry.tables.counts import TableCounts
from tests.airflow.state_migration.savepoints import planned_run
from tests.airflow.state_migration.test_steps import TaskInstance

NOBODY = SavepointDigests("/demo", 1, {})
Heard = Callable[[Any], dict[str, Any]]


@pytest.fixture
def run(home: Path, occasion: Occasion) -> Run:
    made = planned_run(MigrationRequest(), occasion)
    made.keep(SnapshotFacts(states={"main/mainState": StateSize(1400, 9000)}, seconds=1.0, ended_at=0))
    return made


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Heard:
    """The event of a task that has ended, as the provider wrote it into the file."""
    file = tmp_path / "events"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))

    def ended(operator: Any) -> dict[str, Any]:
        task: Any = SimpleNamespace(
            task_type=type(operator).__name__, dag_id="state_migration", task_id=operator.task_id
        )
        task = _Shown(operator, task)
        dag_run = SimpleNamespace(run_id="manual__1")
        manager = ExtractorManager()  # type: ignore[no-untyped-call]
        found = manager.extract_metadata(dag_run, task, TaskInstanceState.SUCCESS, TaskInstance({}))
        OpenLineageAdapter().complete_task(
            run_id="01940c5e-0000-7000-8000-000000000001", job_name=f"state_migration.{operator.task_id}",
            end_time="2026-11-20T12:00:00+00:00", task=found, nominal_start_time=None, nominal_end_time=None,
            owners=None, tags=None, job_description=None,
        )  # fmt: skip
        event: dict[str, Any] = json.loads(file.read_text().splitlines()[-1])
        return event

    return ended


class _Shown:
    """The operator, in a DAG."""

    def __init__(self, operator: Any, task: Any) -> None:
        self._of, self._task = operator, task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name, None) or getattr(self._of, name)


def step(name: str, run: Run) -> StepOperator:
    """The operator, after a try."""
    operator = StepOperator(task_id=name, step=name)
    operator._run = run
    return operator


def test_a_snapshot_has_read_the_source(run: Run, heard: Heard) -> None:
    event = heard(step("snapshot", run))
    (source,) = event["inputs"]
    assert (source["namespace"], source["name"]) == ("file", run.plan.source)
    statistics = source["inputFacets"]["inputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (1400, 9000)
    assert event["outputs"] == []


def test_a_migration_has_written_the_new_savepoint(run: Run, heard: Heard) -> None:
    run.keep(MigrateFacts(files=4, bytes=800, seconds=1.0, ended_at=0))
    event = heard(step("migrate", run))
    (written,) = event["outputs"]
    assert (written["namespace"], written["name"]) == ("file", run.plan.target)
    assert written["outputFacets"]["outputStatistics"]["fileCount"] == 4
    assert [one["name"] for one in event["inputs"]] == [run.plan.source]
    (published,) = heard(step("cut_over", run))["outputs"]
    assert published["name"] == run.plan.target


def test_a_step_that_had_nothing_to_do_has_written_nothing(run: Run, heard: Heard) -> None:
    run.keep(RescaleFacts(seconds=1.0, ended_at=0))
    event = heard(step("rescale", run))
    assert event["outputs"] == []
    assert [one["name"] for one in event["inputs"]] == [run.plan.source]


def test_rows_are_told_by_a_step_that_has_counted_them(run: Run, heard: Heard) -> None:
    run.keep(RescaleFacts(files=4, bytes=800, seconds=1.0, ended_at=0))
    (written,) = heard(step("rescale", run))["outputs"]
    statistics = written["outputFacets"]["outputStatistics"]
    assert (statistics["size"], statistics["fileCount"], "rowCount" in statistics) == (800, 4, False)
    run.keep(MigrateFacts(files=4, bytes=800, counts={"main/a": ConversionCounts(rows_written=7)}, seconds=1.0))
    (written,) = heard(step("migrate", run))["outputs"]
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 7


def test_the_checks_are_assertions_on_the_new_savepoint_and_tests_of_the_run(run: Run, heard: Heard) -> None:
    checks = (
        Check("main/newMainState: rows", Outcome.PASSED, "1400 = 1300 blob entries + 100 rows", "1400"),
        Check("main/newMainState: content", Outcome.FAILED, "checksum a", "checksum b"),
        Check("key groups", Outcome.COULD_NOT_TELL, "the hash of a key", "by a class of the job"),
    )
    Report("demo", "r", "f", 0, NOBODY, NOBODY, checks).write(run.report)
    event = heard(step("validate", run))
    source, checked = event["inputs"]
    assert (source["name"], checked["name"]) == (run.plan.source, run.plan.target)
    assertions = checked["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(one["assertion"], one["success"], one["actual"]) for one in assertions] == [
        ("row_count", True, "1400"),
        ("main/newMainState: content", False, "checksum b"),
    ]
    assert [one["status"] for one in event["run"]["facets"]["test"]["tests"]] == ["pass", "fail", "skip"]


def test_the_tables_are_datasets_of_the_catalog_with_their_rows(run: Run, heard: Heard) -> None:
    checks = (Check("main/newMainState: as the tables say", Outcome.PASSED, "7 entries", "7 entries"),)
    Report("demo", "r", "f", 0, NOBODY, NOBODY, (), tables=checks).write(run.report)
    snapshots = {"demo.main.newMainState.map_entry": 1, "demo.main.newMainState.key_ledger": 2}
    tables = (TablesOfState(("demo", "main", "newMainState"), snapshots),)
    counts = {"main/newMainState": TableCounts(rows_written=7)}
    run.keep(TablesFacts(tables=tables, counts=counts, seconds=1.0, ended_at=0))
    event = heard(step("tables", run))
    assert {one["namespace"] for one in event["outputs"]} == {run.plan.catalog_uri}
    rows = {one["name"]: one["outputFacets"].get("outputStatistics", {}).get("rowCount") for one in event["outputs"]}
    assert rows == {"demo.main.newMainState.map_entry": 7, "demo.main.newMainState.key_ledger": None}
    (assertion,) = event["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert assertion["success"] is True


def test_a_task_that_has_not_begun_tells_nothing(heard: Heard) -> None:
    event = heard(StepOperator(task_id="migrate", step="migrate"))
    assert event["inputs"] == event["outputs"] == []


def test_the_operators_of_flink_read_and_write_savepoints(heard: Heard) -> None:
    taken = FlinkSavepointOperator(task_id="take", job="orders", savepoint_directory="s3://me:secret@state/savepoints")
    taken._taken = "s3://me:secret@state/savepoints/savepoint-1"
    (written,) = heard(taken)["outputs"]
    assert (written["namespace"], written["name"]) == ("s3://state", "savepoints/savepoint-1")
    event = heard(FlinkRunJarOperator(task_id="start", jar="orders.jar", savepoint="/savepoints/1"))
    assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [("file", "/savepoints/1")]
