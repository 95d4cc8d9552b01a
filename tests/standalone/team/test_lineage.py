"""What a running Airflow tells OpenLineage of a cut-over: by the listener of Airflow's own provider, as events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stateferry.proof.expected.check_result import Outcome
from stateferry.runs.record.runs import Run
from stateferry.runs.report.report import Report
from tests.standalone.migration import BEFORE_PUBLICATION, DAG, Migration
from tests.standalone.orders import Orders
from tests.standalone.team.events import Event, ends, inputs, outputs

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]
STATUS = {Outcome.PASSED: "pass", Outcome.FAILED: "fail", Outcome.COULD_NOT_TELL: "skip"}


def test_a_green_run_tells_what_it_has_read_written_and_found_out(migration: Migration, events: Path) -> None:
    run = migration.trigger(mode="cut over", approval=False)
    assert migration.end_of(run) == "success", migration.told(run)
    heard, ours = ends(migration.airflow, events, DAG, run), migration.run_of(run)
    assert {"plan", *BEFORE_PUBLICATION, "cut_over", "tables", "conclude"} <= heard.keys()
    assert {event["eventType"] for event in heard.values()} == {"COMPLETE"}
    source, target = ("file", ours.plan.source), ("file", ours.plan.target)
    assert inputs(heard["snapshot"])[source]["inputStatistics"]["rowCount"] == Orders().stored
    assert list(inputs(heard["migrate"])) == [source]
    entries = len(Orders().entries)
    written = outputs(heard["migrate"])[target]["outputStatistics"]
    assert written["rowCount"] == entries
    assert written["fileCount"] == len([one for one in Path(target[1]).rglob("*") if one.is_file()]) - 1
    assert (list(inputs(heard["validate"])), list(outputs(heard["validate"]))) == ([source, target], [])
    assertions = check_that_it_tells_the_report(ours, heard["validate"])
    assert all(one["success"] for one in assertions)
    (rows,) = [one for one in assertions if one["assertion"] == "row_count"]
    assert rows["actual"] == f"{entries}"
    assert list(outputs(heard["cut_over"])) == [target]
    tables = {name: facets for (_, name), facets in outputs(heard["tables"]).items()}
    (of_entries,) = [facets for name, facets in tables.items() if name.endswith(".map_entry")]
    assert of_entries["outputStatistics"]["rowCount"] == entries
    assert list(inputs(heard["tables"])) == [target]


def test_a_red_validation_is_a_failure_that_says_which_check_has_failed(migration: Migration, events: Path) -> None:
    run = migration.trigger(mode="cut over", approval=False)
    migration.wait_for(run, "migrate", "success")
    with paused(migration):
        ours = migration.run_of(run)
        assert migration.states(run)["validate"] is None
        change_a_value(ours)
    assert migration.end_of(run) == "failed"
    heard, states = ends(migration.airflow, events, DAG, run), migration.states(run)
    assert (states["validate"], states["cut_over"]) == ("failed", "upstream_failed")
    failed = heard["validate"]
    assert failed["eventType"] == "FAIL"
    assert list(inputs(failed)) == [("file", ours.plan.source), ("file", ours.plan.target)]
    assertions = check_that_it_tells_the_report(ours, failed)
    assert [one["name"] for one in assertions if not one["success"]] == ["main: readable"]
    assert failed["run"]["facets"]["errorMessage"]["message"] in migration.log(run, "validate")
    assert heard.keys().isdisjoint({"cut_over", "tables"})
    assert migration.published() is None


def check_that_it_tells_the_report(run: Run, event: Event) -> list[dict[str, Any]]:
    """Each check of the report is a test of the task's run; what it could tell is an assertion on the new savepoint."""
    checks = Report.read(run.report).checks
    tests = event["run"]["facets"]["test"]["tests"]
    assert [(one["name"], one["status"]) for one in tests] == [(one.name, STATUS[one.outcome]) for one in checks]
    told: list[dict[str, Any]] = inputs(event)["file", run.plan.target]["dataQualityAssertions"]["assertions"]
    assert [(one["name"], one["success"], one["actual"]) for one in told] == [
        (one.name, one.outcome is Outcome.PASSED, one.actual)
        for one in checks
        if one.outcome is not Outcome.COULD_NOT_TELL
    ]
    return told


def change_a_value(run: Run) -> None:
    """As a faulty disk could do it, in what the run has written."""
    (file,) = (one for one in Path(run.plan.target).iterdir() if "-keyed-" in one.name)
    value, written = next(iter(Orders().entries.values())), file.read_bytes()
    assert written.count(value.to_bytes(8, "big")) == 1
    file.write_bytes(written.replace(value.to_bytes(8, "big"), (value + 1).to_bytes(8, "big")))


@contextmanager
def paused(migration: Migration) -> Iterator[None]:
    """No task begins meanwhile."""
    migration.airflow.api.call("PATCH", f"/dags/{DAG}", {"is_paused": True})
    try:
        yield
    finally:
        migration.airflow.api.call("PATCH", f"/dags/{DAG}", {"is_paused": False})
