"""A person at a browser fills the form, triggers, reads the report, approves, and sees the run succeed.

Meanwhile a Spark application is killed in the middle of its step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.standalone.killing import Killed
from tests.standalone.migration import DAG, PATIENCE, Migration, wait_for_question
from tests.standalone.orders import Orders, entries_of
from tests.support.browser import Browser, browser, why_not

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(why_not()), reason=f"the form is not tested in a browser: there is {why_not()}"),
]


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Browser]:
    with browser(tmp_path) as opened:
        try:
            yield opened
        finally:
            opened.screenshot(tmp_path / "last.png")


def test_a_person_fills_the_form_and_a_killed_run_succeeds(
    migration: Migration, person: Browser, tmp_path: Path
) -> None:
    airflow = migration.airflow
    _log_in(person, airflow.settings.url, airflow.api.password())

    person.open(f"{airflow.settings.url}/dags/{DAG}")
    person.click("//button[@data-testid='trigger-dag-button']")
    _section(person, "1. Which savepoint")
    person.choose("//label[contains(., 'Where from')]/following::input[1]", "path")
    person.paste("//input[@name='element_savepoint']", str(migration.source["savepoint"]))
    _section(person, "2. Which state becomes which")
    params = migration.params()
    for name in ("operator", "legacy_state", "new_state", "flag_state", "job"):
        person.paste(f"//input[@name='element_{name}']", str(params[name]))
    person.screenshot(tmp_path / "form.png")
    person.click("//button[@data-testid='trigger-dag-submit'][not(@disabled)]")
    run = _newest_run(migration)
    assert airflow.api.run(DAG, run)["conf"]["job"] == migration.job

    # Airflow's page draws itself anew all the time.
    person.open("about:blank")
    killed = Killed.at_work(migration, run)
    migration.wait_for(run, "approve", "awaiting_input")
    killed.check_went_on()
    person.open(f"{airflow.settings.url}/dags/{DAG}/runs/{run}/tasks/approve/required_actions")
    person.wait_for("//*[contains(text(), 'The report is green')]")
    person.screenshot(tmp_path / "approval.png")
    assert migration.published() is None
    wait_for_question(airflow, DAG, run)
    person.click("//button[normalize-space()='Approve']")

    assert migration.end_of(run) == "success", migration.told(run)
    ferried = migration.run_of(run)
    assert entries_of(Path(ferried.plan.target)) == Orders().entries
    assert migration.in_tables(ferried) == Orders().entries
    publication = migration.published()
    assert publication is not None
    assert publication.record.target == ferried.plan.target
    person.open(f"{airflow.settings.url}/dags/{DAG}/runs/{run}")
    person.wait_for("//*[normalize-space()='Success']")
    person.screenshot(tmp_path / "success.png")


def _log_in(person: Browser, url: str, password: str) -> None:
    person.open(url)
    person.type("//input[@name='username']", "admin")
    person.type("//input[@type='password']", password)
    person.click("//button[@type='submit']")
    person.wait_for("//*[normalize-space()='Dags']")


def _section(person: Browser, title: str) -> None:
    person.click(f"//button[@data-part='item-trigger'][contains(., '{title}')]")


def _newest_run(migration: Migration) -> str:
    """The one that the form has made."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        runs = migration.airflow.api.get(f"/dags/{DAG}/dagRuns?order_by=-id&limit=1&run_type=manual")["dag_runs"]
        if runs and (runs[0]["conf"] or {}).get("job") == migration.job:
            return str(runs[0]["dag_run_id"])
        time.sleep(0.5)
    raise TimeoutError("the form has made no run")
