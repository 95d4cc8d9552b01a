"""From a request to a plan: the same in every try, and refused before a folder is made."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from flinkstate.errors import PlanError, RefusedError, StateferryError, UsageError
from stateferry.airflow.requests.planning import Occasion, default_catalog, plan_for, planned
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.requests.sources import completed_at, home_folder, newest_savepoint
from stateferry.airflow.tasks.plan_task import occasion_of
from stateferry.runs.plan.homes import CATALOG_VARIABLE
from stateferry.runs.plan.plan_text import shown
from stateferry.runs.record.run_states import RunState
from tests.airflow.state_migration.conftest import AS_OF
from tests.airflow.state_migration.savepoints import planned_run, write_metadata
from tests.support.s3_server import S3Server

STATES = {"legacy_state": "mainState", "new_state": "newMainState"}


def test_the_defaults_run_the_demo(home: Path, occasion: Occasion) -> None:
    plan, run = planned(MigrationRequest(), occasion)
    assert run is not None
    assert run.state is RunState.PLANNED
    assert (plan.job, plan.source, plan.now) == ("demo", str(home / "demo" / "legacy"), int(AS_OF.timestamp() * 1000))
    assert plan.target == f"{home}/savepoints/demo/{plan.run_id}"
    assert plan.catalog_uri == f"sqlite:///{home}/catalog.db"
    assert plan.operators[0].states[0].new == "newMainState"


def test_a_bucket_that_is_missing_is_found_while_the_job_runs(
    home: Path, occasion: Occasion, monkeypatch: pytest.MonkeyPatch
) -> None:
    with S3Server(home) as server:
        server.set_up(monkeypatch)
        asked = {"source": "flink", "flink_job": "orders", "savepoint_directory": server.uri("in"), "operator": "main"}
        there, missing = (asked | STATES | {"target": target} for target in (server.uri("new"), "s3://missing/new"))
        assert planned(MigrationRequest.model_validate(there), occasion)[1] is None
        with pytest.raises(UsageError, match="s3://missing/new: there is no bucket missing: make it, or correct the"):
            planned(MigrationRequest.model_validate(missing), occasion)


@pytest.mark.parametrize(("roots", "said"), [("/old", "expected OLD=NEW, two"), ("/old=s3://b//c", "an empty part")])
def test_a_wrong_place_of_files_is_refused(home: Path, occasion: Occasion, roots: str, said: str) -> None:
    with pytest.raises(PlanError, match=f"the plan: files_from: .*{said}"):
        plan_for(MigrationRequest.model_validate({"files_from": roots}), occasion, str(home / "demo" / "legacy"))


def test_the_demo_gets_its_now_from_itself_however_old_it_is(home: Path, occasion: Occasion) -> None:
    completed = 1_700_000_000
    os.utime(home / "demo" / "legacy" / "_metadata", (completed, completed))
    plan, run = planned(MigrationRequest(), occasion)
    assert (plan.now, plan.now_from) == (1000 * completed, "savepoint")
    assert run is not None
    assert run.changes()[0].at == occasion.now
    backfilled, _ = planned(MigrationRequest(), replace(occasion, run_id="backfill__1", is_backfill=True))
    assert (backfilled.now, backfilled.now_from) == (1000 * completed, "savepoint")
    # A savepoint that is named is as old as it is.
    other = {"source": "path", "savepoint": str(home / "demo" / "legacy"), "operator": "main"}
    named, _ = planned(MigrationRequest.model_validate(other | STATES), replace(occasion, run_id="manual__2"))
    assert (named.now, named.now_from) == (occasion.now, "clock")


def test_a_plan_says_that_its_day_is_backfilled_and_what_is_accepted(home: Path, occasion: Occasion) -> None:
    day = {"source": "folder", "savepoint_folder": str(home / "demo"), "operator": "main", "clock_tolerance": "1h"}
    request = MigrationRequest.model_validate(day | STATES | {"accept_expired": "60%"})
    soon = replace(occasion, as_of=AS_OF + timedelta(days=36500))
    plan, _ = planned(request, replace(soon, is_backfill=True))
    assert (plan.now, plan.now_from) == (soon.now, "backfill")
    assert (plan.accept_expired, plan.clock_tolerance_ms) == (0.6, 3_600_000)
    assert planned(request, replace(soon, run_id="scheduled__1"))[0].now_from == "clock"


def test_an_occasion_knows_whether_a_day_is_backfilled() -> None:
    for run_type, is_backfill in (("backfill", True), ("scheduled", False), ("manual", False)):
        dag_run = SimpleNamespace(run_id="x", data_interval_end=AS_OF, run_after=AS_OF, run_type=run_type)
        made = occasion_of({"dag_run": dag_run})
        assert made.is_backfill is is_backfill
    # A savepoint that is taken now is not of that day.
    day = Occasion("backfill__1", AS_OF, is_backfill=True)
    assert not day.not_before(AS_OF + timedelta(minutes=3)).is_backfill
    assert day.not_before(AS_OF - timedelta(minutes=3)).is_backfill


def test_a_retry_finds_its_run(home: Path, occasion: Occasion) -> None:
    first, again = (planned(MigrationRequest(), occasion)[1] for _ in range(2))
    assert first == again
    other = planned_run(MigrationRequest(), replace(occasion, run_id="manual__2026-11-20T12:00:00-00:00"))
    assert first is not None
    assert other.folder != first.folder


def test_the_catalog_may_be_elsewhere(home: Path, occasion: Occasion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CATALOG_VARIABLE, "postgresql+psycopg://db/catalog")
    assert planned(MigrationRequest(), occasion)[0].catalog_uri == "postgresql+psycopg://db/catalog"


def test_a_target_inside_the_source_by_a_symbolic_link_is_refused(home: Path, occasion: Occasion) -> None:
    (home / "link").symlink_to(home / "demo" / "legacy")
    with pytest.raises(UsageError, match="symbolic links or mounts make the one contain the other"):
        planned(MigrationRequest(target=str(home / "link" / "target")), occasion)
    assert not (home / "runs").exists()


def test_a_home_on_an_object_store_needs_a_catalog_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", "s3://bucket/ferry/")
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)
    assert home_folder() == "s3://bucket/ferry"
    with pytest.raises(UsageError, match="name a Postgres database in STATEFERRY_CATALOG"):
        default_catalog()


def test_what_is_wrong_is_refused_before_a_run_is_there(home: Path, occasion: Occasion) -> None:
    state = {"operator": "mian", "legacy_state": "a", "new_state": "b"}
    cases: list[tuple[dict[str, object], type[StateferryError], str]] = [
        (
            {"source": "path", "savepoint": str(home / "no"), **state},
            UsageError,
            "is no savepoint: it has no",
        ),
        ({"source": "path", "savepoint": str(home / "demo/legacy"), **state}, RefusedError, "no operator 'mian'"),
        ({"parallelism": 8, "max_parallelism": 4}, UsageError, "parallelism 8 is above max_parallelism 4"),
        ({"target": str(home / "demo" / "legacy" / "in")}, UsageError, "lie one in the other"),
        ({"source": "folder", "savepoint_folder": str(home / "no"), **state}, UsageError, "there is no folder"),
    ]
    for values, error, words in cases:
        with pytest.raises(error, match=words):
            planned(MigrationRequest.model_validate(values), occasion)
    assert not (home / "runs").exists()


def test_a_savepoint_that_is_yet_to_be_taken_is_planned_for_without_a_run(home: Path, occasion: Occasion) -> None:
    values = {"source": "flink", "flink_job": "orders", "savepoint_directory": "/savepoints", "operator": "main"}
    request = MigrationRequest.model_validate(values | {"legacy_state": "a", "new_state": "b"})
    plan, run = planned(request, occasion)
    assert (run, plan.job) == (None, "main")
    assert not (home / "runs").exists()


def test_what_is_taken_now_is_not_of_the_future(tmp_path: Path, occasion: Occasion) -> None:
    later = AS_OF + timedelta(minutes=3)
    savepoint = write_metadata(tmp_path / "taken", completed_at=later.timestamp())
    assert occasion.not_before(completed_at(savepoint)).as_of == later
    older = write_metadata(tmp_path / "older", completed_at=AS_OF.timestamp() - 60)
    assert occasion.not_before(completed_at(older)) == occasion


def test_a_day_gets_the_newest_savepoint_that_was_complete_by_its_end(tmp_path: Path) -> None:
    days = [datetime(2026, 11, day, 3, tzinfo=UTC) for day in (1, 2, 3)]
    for day in days:
        write_metadata(tmp_path / f"savepoint-{day.day}", completed_at=day.timestamp())
    (tmp_path / "savepoint-incomplete").mkdir()
    for day in days:
        assert newest_savepoint(str(tmp_path), day + timedelta(hours=20)) == str(tmp_path / f"savepoint-{day.day}")
    with pytest.raises(UsageError, match="no completed savepoint as of 2026-11-01 02:00:00 UTC; 3 are newer"):
        newest_savepoint(str(tmp_path), days[0] - timedelta(hours=1))


def test_the_log_has_moments_and_durations_instead_of_milliseconds() -> None:
    assert shown("now", int(AS_OF.timestamp() * 1000)) == "2026-11-20 12:00:00 UTC"
    assert shown("clock_tolerance_ms", 600_000) == "10m"
    operators = [{"operator": "main", "states": [{"legacy": "a", "ttl_ms": 86_400_000, "flag": None}]}]
    assert shown("operators", operators) == "[{operator: main, states: [{legacy: a, ttl_ms: 1d}]}]"
    assert (shown("rehearse", True), shown("chunk_bytes", 64)) == ("True", "64")
