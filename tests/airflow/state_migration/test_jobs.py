"""The configuration of jobs: read as a whole, and what is wrong in one entry takes no other one down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateferry.airflow.requests.jobs import (
    EVENTS,
    FILE_VARIABLE,
    NIGHTLY,
    Configuration,
    configuration,
    configuration_of,
)

REQUEST = {"source": "path", "savepoint": "/in", "operator": "main", "legacy_state": "old", "new_state": "new"}
MAIL = {"notifier": "airflow.providers.smtp.notifications.smtp.SmtpNotifier", "arguments": {"to": "ops@example.org"}}


def read(values: object) -> Configuration:
    return configuration_of(json.dumps(values), "the variable")


def problem(values: object) -> str:
    (line,) = read(values).problems
    return line


def test_nothing_is_no_configuration() -> None:
    assert configuration_of(None, "the variable") == Configuration()


def test_a_single_request_is_rehearsed_each_midnight_by_the_dag_of_the_form() -> None:
    (job,) = read(REQUEST).jobs
    assert (job.dag_id, job.schedule, job.timezone) == ("state_migration", NIGHTLY, "UTC")
    assert job.by_schedule({}, is_backfill=False).rehearses
    assert job.by_schedule({"ttl": "3d"}, is_backfill=True).given_options()["ttl"] == "3d"


def test_a_night_with_native_files_goes_on_from_the_last_one_and_converts_everything_each_week() -> None:
    def full_every(**more: object) -> object:
        (job,) = read({**REQUEST, **more}).jobs
        night = job.by_schedule({}, is_backfill=False)
        return night.plan_values().get("full_every")

    assert full_every() is None
    assert full_every(format="native") == 7
    assert full_every(format="native", full_every=3) == 3
    assert full_every(format="native", lazy=True, share="30%", flag_state="flag") == 7
    # What can't be caught up with isn't tried, unless somebody asks for it.
    assert full_every(format="native", reverse=True) is None
    # Copies of what nobody publishes would be left on S3.
    (claims,) = read({**REQUEST, "format": "native", "claimable": True}).jobs
    assert not claims.by_schedule({}, is_backfill=False).plan_values().get("claimable")
    (cut_over,) = read({**REQUEST, "format": "native", "full_every": 3}).jobs
    assert cut_over.request.rehearsal().plan_values().get("full_every") is None


def test_each_job_has_a_dag_and_what_is_its_own() -> None:
    orders = {"request": REQUEST, "schedule": "30 2 * * 1-5", "timezone": "Europe/Berlin", "pool": "ferry"}
    found = read({"jobs": {"orders": orders, "by-hand": {"request": REQUEST, "schedule": None}}, "notify": [MAIL]})
    assert not found.problems
    one, other = found.jobs
    assert (one.dag_id, one.job, one.schedule, one.timezone) == (
        *("state_migration_orders", "orders", "30 2 * * 1-5", "Europe/Berlin"),
    )
    assert (one.pool, other.pool, other.schedule, other.job) == ("ferry", None, None, "by-hand")
    assert found.of_dag("state_migration_orders") == found.of_job("orders") == one
    assert found.of_dag("state_migration") is None
    assert [one.events for one in found.notices_of("state_migration_orders", "orders")] == [EVENTS]


def test_who_is_told_of_a_job_is_told_by_the_dags_of_all_jobs_too() -> None:
    found = read({"jobs": {"orders": {"request": REQUEST, "notify": [MAIL]}}})
    for dag, job, told in (
        ("state_rollback", "orders", 1),
        ("state_migration", "orders", 1),
        ("state_rollback", "bills", 0),
    ):
        assert len(found.notices_of(dag, job)) == told, (dag, job)


def test_a_bad_entry_takes_no_good_one_down() -> None:
    bad: dict[str, Any] = {
        "typo": {"request": {**REQUEST, "sauce": "x"}},
        "cron": {"request": REQUEST, "schedule": "@every"},
        "seconds": {"request": REQUEST, "schedule": "0 0 * * * 30"},
        "zone": {"request": REQUEST, "timezone": "Mars/Olympus"},
        "no": 3,
        "what?": {"request": REQUEST},
        "twin": {"request": {**REQUEST, "job": "orders"}},
        "never": {"request": {**REQUEST, "mode": "rehearse"}, "by_schedule": "cut over"},
        "empty": {},
    }
    found = read({"jobs": {"orders": {"request": REQUEST}, **bad, "last": {"request": REQUEST}}, "jobz": 1})
    assert [one.name for one in found.jobs] == ["orders", "last"]
    assert len(found.problems) == len(bad) + 1
    for name in bad:
        (line,) = (one for one in found.problems if f"jobs.{name}" in one)
        assert line.startswith("the variable: ")
    said = "\n".join(found.problems)
    assert "the variable: jobs.typo.request: sauce: unknown field: did you mean" in said
    assert "schedule: expected a cron expression such as '0 0 * * *', found '@every'" in said
    assert "expected a cron expression of five fields" in said
    assert "the job is 'orders', as that of jobs.orders: they would share a lease" in said
    assert "request: missing" in said


def test_all_mistakes_of_an_entry_are_told_at_once() -> None:
    request = {**REQUEST, "sauce": "x", "ttl": "soon"}
    entry = {"request": request, "schedule": "@every", "zone": "UTC", "notify": [{"notifier": "smtp"}]}
    found = read({"jobs": {"or ders": entry}})
    assert found.jobs == ()
    said = "\n".join(found.problems)
    for words in (
        "jobs.or ders: expected a name of letters",
        "jobs.or ders: schedule: expected a cron expression",
        "jobs.or ders: zone: unknown field",
        "jobs.or ders.request: sauce: unknown field",
        "jobs.or ders.request: ttl: expected a duration",
        "jobs.or ders.notify[0]: notifier: ",
    ):
        assert words in said, (words, said)
    never = read({"jobs": {"a": {"request": {**REQUEST, "mode": "rehearse"}, "by_schedule": "cut over", "zone": 1}}})
    assert len(never.problems) == 2, never.problems


def test_what_is_wrong_with_a_notice_leaves_its_job() -> None:
    wrong = [{"notifier": "smtp"}, {**MAIL, "events": ["never"]}, {**MAIL, "events": []}, "mail"]
    found = read({"jobs": {"orders": {"request": REQUEST, "notify": [*wrong, MAIL]}}})
    assert len(found.problems) == len(wrong)
    assert [len(one.notices) for one in found.jobs] == [1]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], "the variable: expected a JSON object, found list"),
        ({"sauce": "path"}, "the variable: sauce: unknown field: did you mean source?"),
        ({"jobs": [REQUEST]}, "the variable: jobs: expected an object with an entry for each job, found list"),
        ({"jobs": {}, "notify": {}}, "the variable: notify: expected a list, found dict"),
    ],
)
def test_what_is_wrong_as_a_whole_is_told(values: object, words: str) -> None:
    assert words in problem(values)
    assert read(values).jobs == ()


def test_what_is_no_json_is_told() -> None:
    assert "expected JSON" in configuration_of("orders: 1", "the variable").problems[0]
    twice = '{"jobs": {"a": {}, "a": {}}}'
    assert "'a' is there more than once" in configuration_of(twice, "the variable").problems[0]


def test_only_who_opts_in_is_cut_over_by_schedule_and_never_by_a_backfill() -> None:
    (job,) = read({"jobs": {"orders": {"request": REQUEST, "by_schedule": "cut over"}}}).jobs
    assert not job.by_schedule({}, is_backfill=False).rehearses
    assert job.by_schedule({}, is_backfill=True).rehearses
    (other,) = read({"jobs": {"orders": {"request": REQUEST}}}).jobs
    assert other.by_schedule({}, is_backfill=False).rehearses


def test_a_file_may_have_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "jobs.json"
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    assert "can't be read" in configuration().problems[0]
    file.write_text(json.dumps({"jobs": {"orders": {"request": REQUEST}}}))
    assert [one.name for one in configuration().jobs] == ["orders"]
    assert configuration().problems == ()
    monkeypatch.setenv("AIRFLOW_VAR_STATE_MIGRATION", json.dumps(REQUEST))
    assert "has no effect, because STATEFERRY_JOBS_FILE names" in configuration().problems[0]
    assert [one.name for one in configuration().jobs] == ["orders"]
    monkeypatch.delenv(FILE_VARIABLE)
    assert [one.name for one in configuration().jobs] == [""]
