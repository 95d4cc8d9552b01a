"""The pages in a real Airflow: behind its login, each user sees what the DAG's readers may see, and many may look."""

from __future__ import annotations

import json
import statistics
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from local_airflow.server import Server
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.facts import Began
from stateferry.runs.record.key_group_sizes import SourceSizes, StagedSizes
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts, StateSize
from stateferry.runs.report.report import Report
from tests.pages.views import EVIL, FAILED, NOW, report, sizes
from tests.standalone.migration import Migration
from tests.support.browser import Browser, browser, why_not

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(3000)]

ORDERS, BILLS = "state_migration_orders", "state_migration_bills"
NOWHERE = {"source": "path", "savepoint": "/nowhere", "operator": "main", "legacy_state": "a", "new_state": "b"}


@pytest.fixture
def two_jobs(airflow: Server, configured: Callable[[str], None]) -> Server:
    """An Airflow with a DAG for each of two jobs."""
    jobs = {name: {"request": NOWHERE, "schedule": None} for name in ("orders", "bills")}
    configured(json.dumps({"jobs": jobs}))
    for dag in (ORDERS, BILLS):
        airflow.api.wait_for_dag(dag, 300)
    return airflow


def a_run(airflow: Server, job: str, run_id: str, dag_id: str | None, at: int = NOW) -> Run:
    """What a rehearsal leaves in its folder."""
    home = str(airflow.settings.stateferry_home)
    plan = plan_of(
        {
            "job": job,
            "run_id": run_id,
            "now": at,
            "source": "/savepoints/one",
            "target": f"/savepoints/{run_id}",
            "home": home,
            "operators": [{"operator": "main", "states": [{"legacy": "old", "new": "new"}]}],
            "rehearse": True,
        },
        "the plan",
    )
    run = Run.create(plan, at)
    run.keep(Began(at, dag_id, None if dag_id is None else f"manual__{run_id}"))
    run.keep(SnapshotFacts(states={"main/old": StateSize(10, 4000)}, seconds=2.0, ended_at=0))
    for state in (RunState.RUNNING, RunState.VERIFIED):
        run.enter(state, at + 1000)
    return run


def as_large_as_can_be(run: Run) -> None:
    """Every key group that Flink allows, and names that would act as markup."""
    run.keep(SourceSizes((sizes(32_768, 2_000),)))
    run.keep(StagedSizes((sizes(32_768, 32_768),)))
    found: Report = report(replace(FAILED, name=EVIL, samples=(EVIL,) * 10))
    found.write(run.report)


def address(airflow: Server, path: str) -> str:
    return f"{airflow.settings.url}/stateferry{path}"


def token_of(airflow: Server, user: str) -> str:
    password = json.loads(airflow.settings.passwords.read_text())[user]
    body = json.dumps({"username": user, "password": password}).encode()
    asked = urllib.request.Request(f"{airflow.settings.url}/auth/token", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return str(json.loads(answer.read())["access_token"])


def get(airflow: Server, path: str, token: str | None) -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(address(airflow, path), headers=headers), timeout=120) as ok:
            return int(ok.status), ok.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.full
def test_each_user_sees_the_runs_of_readable_dags(two_jobs: Server) -> None:
    for job, dag in (("orders", ORDERS), ("bills", BILLS), ("by-hand", None)):
        a_run(two_jobs, job, f"{job}-of-a-night", dag)
    pages = {job: f"/jobs/{job}/runs/{job}-of-a-night" for job in ("orders", "bills", "by-hand")}
    of_dag = f"/dags/{ORDERS}/runs/manual__orders-of-a-night"
    for page in ("/", "/jobs/orders/history", of_dag, *pages.values()):
        assert get(two_jobs, page, None)[0] == 401, page
    # What is shown is two seconds old at most.
    time.sleep(2.1)
    ada, admin = token_of(two_jobs, "ada"), token_of(two_jobs, "admin")
    assert {job: get(two_jobs, page, admin)[0] for job, page in pages.items()} == dict.fromkeys(pages, 200)
    assert {job: get(two_jobs, page, ada)[0] for job, page in pages.items()} == {
        "orders": 200,
        "bills": 403,
        "by-hand": 403,
    }
    assert [get(two_jobs, of_dag, one)[0] for one in (ada, admin)] == [200, 200]
    assert get(two_jobs, f"/dags/{BILLS}/runs/manual__bills-of-a-night", ada)[0] == 403
    shown, everything = get(two_jobs, "/", ada)[1], get(two_jobs, "/", admin)[1]
    assert ["/jobs/orders/" in one for one in (shown, everything)] == [True, True]
    for hidden in ("bills", "by-hand"):
        assert hidden not in shown
        assert hidden in everything


@pytest.fixture
def person(airflow: Server, tmp_path: Path) -> Iterator[Browser]:
    """Who has logged in."""
    with browser(tmp_path) as opened:
        opened.open(airflow.settings.url)
        opened.type("//input[@name='username']", "admin")
        opened.type("//input[@type='password']", airflow.api.password())
        opened.click("//button[@type='submit']")
        opened.wait_for("//*[normalize-space()='Dags']")
        yield opened


@pytest.mark.full
@pytest.mark.skipif(bool(why_not()), reason=f"the pages are not looked at in a browser: there is {why_not()}")
def test_a_person_finds_the_pages_and_reads_them_on_any_screen(
    airflow: Server, job: str, person: Browser, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    pages = 20 if pytestconfig.getoption("--all") else 3
    for night in range(50 * pages):
        run = a_run(airflow, job, f"night-{night:04}", None, NOW + night * 86_400_000)
    as_large_as_can_be(run)
    time.sleep(2.1)
    person.wait_for("//a[contains(@href, '/stateferry/')] | //*[normalize-space()='Stateferry']")
    for path, said in (
        ("/", job),
        (f"/jobs/{job}/history", f"{50 * pages:,} runs"),
        (f"/jobs/{job}/history?page={pages}", f"page {pages} of {pages}"),
        (f"/jobs/{job}/runs/{run.plan.run_id}", '<script>alert("1")</script>'),
    ):
        for (width, height), dark in (((1400, 1000), False), ((400, 850), True)):
            person.look_like(width, height, dark=dark)
            person.open(address(airflow, path))
            assert said in person.text()
            assert person.run("return document.documentElement.scrollWidth") <= width, path
            (red, *_) = person.run(
                "return getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"
            )
            assert (red < 60) is dark
            assert person.run("return document.querySelectorAll('script').length") == 0
            person.screenshot(tmp_path / f"{path.count('/')}-{width}.png")
    person.open(address(airflow, f"/jobs/{job}/runs/{run.plan.run_id}"))
    person.click("//a[normalize-space()='history']")
    person.wait_for("//h2[normalize-space()='Over time']")


_PAUSE = 5.0


class Readers:
    """People who leave the pages open, which a browser loads again every five seconds while a run is at work."""

    def __init__(self, airflow: Server, number: int, paths: list[str]) -> None:
        self._airflow, self._paths, self._number = airflow, paths, number
        self._token, self._over = token_of(airflow, "admin"), threading.Event()
        self.seconds: list[float] = []
        self.refused: list[int] = []

    def __enter__(self) -> Readers:
        self._pool = ThreadPoolExecutor(self._number)
        for number in range(self._number):
            self._pool.submit(self._read, number)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()

    def _read(self, number: int) -> None:
        self._over.wait(_PAUSE * number / self._number)
        while not self._over.is_set():
            begun = time.monotonic()
            status, _ = get(self._airflow, self._paths[number % len(self._paths)], self._token)
            self.seconds.append(time.monotonic() - begun)
            self.refused += [status] if status != 200 else []
            self._over.wait(_PAUSE)

    @property
    def p95(self) -> float:
        return statistics.quantiles(self.seconds, n=20)[-1]


@pytest.mark.full
@pytest.mark.spark
def test_many_readers_are_answered_while_a_run_is_at_work(migration: Migration) -> None:
    """A tenth of the fifty readers for whom docs/report.md has figures, as other tests share the machine."""
    airflow = migration.airflow
    old = a_run(airflow, migration.job, "an-old-run", None)
    as_large_as_can_be(old)
    pages = ["/", f"/jobs/{migration.job}/history", f"/jobs/{migration.job}/runs/an-old-run"]
    # What is shown is two seconds old at most.
    time.sleep(2.1)
    with Readers(airflow, 5, pages) as readers:
        run = migration.trigger(mode="rehearse")
        assert migration.end_of(run) == "success", migration.told(run)
    assert readers.refused == []
    assert len(readers.seconds) > 10
    assert readers.p95 < 10
