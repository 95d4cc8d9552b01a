"""What `plan` makes of who asks: the schedule cuts over once, and a form asks nobody less than the configuration."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped
from airflow.sdk.timezone import coerce_datetime
from airflow.timetables.base import TimeRestriction
from airflow.timetables.trigger import CronTriggerTimetable

from flinkstate.files.storage import Location
from stateferry.airflow.dag_runs import missed_nights
from stateferry.airflow.migration_dag import migration_dags
from stateferry.airflow.requests.form import migration_params
from stateferry.airflow.tasks.plan_task import PlanOperator
from stateferry.runs.catalog.publications import Control, Record
from stateferry.runs.control.outage_limit import StopAsked
from stateferry.runs.record.runs import Run
from tests.airflow.state_migration.conftest import AS_OF

ORDERS = "state_migration_orders"


@pytest.fixture
def configure(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def configured(by_schedule: str = "cut over", **request: object) -> None:
        savepoint = {"source": "path", "savepoint": str(home / "demo" / "legacy"), "operator": "main"}
        states = {"legacy_state": "mainState", "new_state": "newMainState"}
        entry = {"request": {**savepoint, **states, **request}, "by_schedule": by_schedule}
        monkeypatch.setenv("AIRFLOW_VAR_STATE_MIGRATION", json.dumps({"jobs": {"orders": entry}}))

    return configured


def planned(run_id: str, run_type: str, *nights: datetime, late: int = 0, cleared: int = 0, **conf: object) -> Run:
    """The run that the task `plan` of a DAG run makes; Airflow has run the nights."""
    dag = next(dag for dag in migration_dags() if dag.dag_id == ORDERS)
    plan = dag.task_dict["plan"]
    assert isinstance(plan, PlanOperator)
    pushed: dict[str, Any] = {}
    at = AS_OF + timedelta(days=int(run_id[-1]))
    dag_run = SimpleNamespace(
        dag_id=ORDERS, run_id=run_id, data_interval_end=at, run_after=at, run_type=run_type, conf=conf,
        start_date=at + timedelta(minutes=late), clear_number=cleared, triggering_user_name="ada", logical_date=at,
    )  # fmt: skip
    ti = SimpleNamespace(
        dag_id=ORDERS, xcom_push=lambda key, value: pushed.update({key: value}),
        get_dr_count=lambda dag_id, logical_dates: len(set(nights).intersection(logical_dates)), log_url="",
    )  # fmt: skip
    params = {**dag.params.dump(), **conf}
    with pytest.raises(DownstreamTasksSkipped):
        plan.execute({"ti": ti, "dag_run": dag_run, "params": params})  # type: ignore[typeddict-item]
    return Run.open(Location.of(pushed["return_value"]["folder"]))


def refused(**conf: Any) -> str:
    """Why a form's run is refused."""
    with pytest.raises(AirflowFailException) as caught:
        planned("manual__1", "manual", **conf)
    return str(caught.value)


def test_the_schedule_cuts_over_once(configure: Any, capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    first = planned("scheduled__1", "scheduled")
    assert not first.plan.rehearse
    # A task that is cleared, or tried again, is the same night.
    assert not planned("scheduled__1", "scheduled").plan.rehearse
    capsys.readouterr()
    assert planned("scheduled__2", "scheduled").plan.rehearse
    said = capsys.readouterr().out
    assert f"the schedule has tried to cut over job orders before (run {first.plan.run_id})" in said
    assert "so this run rehearses: cut over by the form" in said


def test_the_schedule_does_not_stop_the_job_again_if_there_was_no_run_yet(
    configure: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    configure()
    first, rehearsal = (planned(f"scheduled__{night}", "scheduled") for night in (1, 2))
    first.folder.remove()
    rehearsal.keep(StopAsked(1))
    capsys.readouterr()
    assert planned("scheduled__3", "scheduled").plan.rehearse
    assert f"has tried to cut over job orders before (run {rehearsal.plan.run_id})" in capsys.readouterr().out


def test_the_schedule_does_not_cut_over_again_once_its_run_was_cleaned_away(
    configure: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    configure()
    first = planned("scheduled__1", "scheduled")
    record = Record(
        run_id=first.plan.run_id, plan_fingerprint="x", source="/in", checkpoint_id=1, target="/out",
        metadata_digest="", tables={},
    )  # fmt: skip
    with Control(first.plan.catalog_uri) as control:
        lease = control.acquire("orders", first.plan.run_id)
        control.rollback(lease, undo=control.publish(lease, record, replaces=None).sequence)
        control.release(lease)
    # Its own publication keeps it from nothing.
    assert not planned("scheduled__1", "scheduled").plan.rehearse
    first.folder.remove()
    capsys.readouterr()
    assert planned("scheduled__2", "scheduled").plan.rehearse
    assert f"has tried to cut over job orders before (run {first.plan.run_id})" in capsys.readouterr().out


def test_the_next_night_tells_of_those_that_did_not_take_place(configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str, str]] = []
    monkeypatch.setattr(missed_nights, "tell", lambda _, event, job, text: told.append((event, job, text)))
    configure("rehearse")
    midnight = (AS_OF + timedelta(days=9)).replace(hour=0)
    planned("scheduled__9", "scheduled")
    # AS_OF is at noon, so that the last midnight is no other run's.
    planned("scheduled__9", "scheduled", midnight)
    assert told == []
    planned("backfill__9", "backfill", midnight - timedelta(days=1))
    assert told == []
    planned("scheduled__9", "scheduled", midnight - timedelta(days=1))
    planned("scheduled__9", "scheduled", midnight - timedelta(days=7), midnight - timedelta(days=9))
    assert [(event, job) for event, job, _ in told] == [("missed", "orders")] * 2
    assert told[0][2].startswith(
        "1 scheduled run of job orders didn't take place: 2026-11-29 00:00 UTC. Airflow was stopped or the DAG paused"
    )
    assert told[1][2].startswith("7 scheduled runs of job orders didn't take place: 2026-11-29 00:00 UTC, 2026-11-28")
    assert "2026-11-25 00:00 UTC and 2 before. " in told[1][2]
    assert told[1][2].endswith("waited for an answer. This run goes on")
    planned("scheduled__9", "scheduled", midnight - timedelta(days=1), late=30)
    assert told[2][2].endswith("waited for an answer. This run goes on, 30.0 m late")


@pytest.mark.parametrize(
    "schedule", ["30 2 * * *", "0 2,3 * * *", "*/30 * * * *", "0 * * * *", "*/20 2 * * *", "0 0 * * 1"]
)
@pytest.mark.parametrize("clocks", ["2026-03-29", "2026-10-25"])
def test_the_nights_are_those_of_airflow_when_clocks_change(schedule: str, clocks: str) -> None:
    timetable = CronTriggerTimetable(schedule, timezone="Europe/Berlin")
    job: Any = SimpleNamespace(schedule=schedule, timezone="Europe/Berlin")
    begin = datetime.fromisoformat(f"{clocks}T00:00:00+00:00") - timedelta(days=70)
    restriction = TimeRestriction(coerce_datetime(begin), None, catchup=True)
    made, last = list[datetime](), None
    while not made or made[-1] < begin + timedelta(days=73):
        info = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
        assert info is not None
        made.append(info.run_after)
        last = info.data_interval
    near = [at for at, night in enumerate(made) if abs(night - begin - timedelta(days=70)) < timedelta(days=2)]
    assert near
    for at in near:
        # One that is before the first of `made` was made by nobody here.
        found = [night for night in missed_nights._before(job, made[at]) if night >= begin]
        assert found == made[max(0, at - len(found)) : at][::-1]
        # Times in the hour that clocks skip count among the sixty.
        assert len(found) >= min(at, 57)


def test_a_night_that_begins_late_tells_of_itself(configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(missed_nights, "tell", lambda _, event, job, text: told.append(text))
    configure("rehearse")
    midnight = (AS_OF + timedelta(days=9)).replace(hour=0)
    # The first night of a job is begun when it is configured, and a person may clear one.
    planned("scheduled__9", "scheduled", late=210)
    planned("scheduled__9", "scheduled", midnight, late=210, cleared=1)
    planned("scheduled__9", "scheduled", midnight, late=14)
    assert told == []
    planned("scheduled__9", "scheduled", midnight, late=210)
    (text,) = told
    assert text.startswith("the scheduled run of job orders of 2026-11-29 12:00 UTC began 3.5 h late. Airflow was stop")


def test_a_publication_that_stands_is_not_replaced_by_the_schedule(
    configure: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    configure()
    by_hand = planned("manual__1", "manual").plan
    record = Record(
        run_id=by_hand.run_id, plan_fingerprint="x", source="/in", checkpoint_id=1, target="/out", metadata_digest="",
        tables={},
    )  # fmt: skip
    with Control(by_hand.catalog_uri) as control:
        control.publish(control.acquire("orders", by_hand.run_id), record, replaces=None)
    assert planned("scheduled__2", "scheduled").plan.rehearse
    assert "publication 1 of job orders stands, so this run rehearses" in capsys.readouterr().out


def test_only_who_opted_in_is_cut_over_by_schedule(configure: Any) -> None:
    configure()
    assert planned("backfill__1", "backfill").plan.rehearse
    # A run by hand before it is none of the schedule.
    assert not planned("manual__1", "manual").plan.rehearse
    assert not planned("scheduled__1", "scheduled").plan.rehearse
    configure("rehearse")
    assert planned("scheduled__2", "scheduled").plan.rehearse


def test_a_day_that_the_schedule_has_begun_can_be_done_again_by_a_backfill(configure: Any) -> None:
    """Airflow takes the DAG run that is there, with its id, and makes it one of the backfill."""
    configure("rehearse")
    night = planned("scheduled__1", "scheduled")
    assert night.plan.now_from == "clock"
    assert planned("scheduled__1", "backfill").plan == night.plan
    # One that the schedule didn't get to plan is a day of the backfill.
    assert planned("scheduled__2", "backfill").plan.now_from == "backfill"
    configure()
    planned("scheduled__3", "scheduled")
    with pytest.raises(AirflowFailException, match=r"job orders was cut over on this day.*: leave this day out"):
        planned("scheduled__3", "backfill")


def test_a_form_asks_no_fewer_people_than_the_configuration_wants(configure: Any) -> None:
    configure(approvers=["ada", "grace"], four_eyes=True)
    wants = "jobs.orders.request wants it for job orders, and the form can't change that"
    assert f"the form: four_eyes: off, but the Airflow variable state_migration: {wants}" in refused(four_eyes=False)
    for wrong in (None, "ada, eve", "eve"):
        said = refused(approvers=wrong)
        assert "the form: approvers: expected some of ada, grace: the Airflow variable" in said
    assert "only ada, who has triggered this run, and four_eyes is on" in refused(approvers="ada")
    assert "four_eyes: off" in refused(approval=False, approvers=None, four_eyes=False)
    for approvers in ("grace", "ada, grace", ["grace", "ada"]):
        assert not planned("manual__2", "manual", approvers=approvers).plan.rehearse
    # A rehearsal publishes nothing, so nobody need be asked.
    assert planned("manual__3", "manual", mode="rehearse", approvers=None, four_eyes=False).plan.rehearse


def test_the_same_holds_for_the_form_of_every_dag(configure: Any) -> None:
    configure(four_eyes=True)
    form = {name: param.value for name, param in migration_params().items()}
    assert form["four_eyes"] is False
    assert "wants it for job orders" in refused(**{**form, "job": "orders"})
