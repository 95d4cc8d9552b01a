"""The task that catches up with a rehearsal: when it has done enough, and what follows if it can't."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRescheduleException

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location
from stateferry.airflow.flink.task import FlinkTask
from stateferry.airflow.requests.planning import Occasion
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.tasks import catch_up_task
from stateferry.airflow.tasks.catch_up_task import CatchUp
from stateferry.airflow.tasks.flink_tasks import TakeSavepoint
from stateferry.basics.durations import now_ms
from stateferry.runs.control.catching_up import catch_ups_of
from stateferry.runs.record.catch_ups import CatchUps, OneCatchUp, base_of_cut_over
from stateferry.runs.record.facts import CaughtUp, ChangedKeys, ShownTimers
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts, StateSize, ValidateFacts
from tests.airflow.state_migration.savepoints import write_metadata
from tests.airflow.state_migration.test_decide import (
    Flink,
    asked,
    clock,
    context,
    decided,
    ready_at,
    rehearsed,
    reported,
)
from tests.support.facts import kept_facts


@pytest.fixture
def request_(tmp_path: Path) -> MigrationRequest:
    return asked(tmp_path, source="checkpoint", format="native")


@pytest.fixture
def rehearsal(home: Path, occasion: Occasion, request_: MigrationRequest) -> Run:
    return _rehearsed(home, occasion, request_)


def _rehearsed(home: Path, occasion: Occasion, request: MigrationRequest, which: str = "rehearsal") -> Run:
    made = rehearsed(home, occasion.rehearsal(which), request)
    made.keep(ShownTimers(in_native_savepoints=True))
    made.keep(SnapshotFacts(states={"main/mainState": StateSize(9, 90)}, seconds=94.0, ended_at=0))
    return made


class Spark:
    """What the submitted application does: it takes so many seconds, or the run fails for a reason."""

    def __init__(self, *ends: float | str) -> None:
        self.ends, self.runs = list(ends), list[Run]()

    def execute(self, operator: SparkSubmitOperator, _: Any) -> None:
        arguments = operator.application_args
        assert arguments is not None
        assert arguments[0] == "--run"
        run, end = Run.open(Location.of(arguments[1])), self.ends[len(self.runs)]
        self.runs.append(run)
        if isinstance(end, str):
            run.enter(RunState.FAILED, 1, end)
            raise AirflowException("Error code is: 4")
        run.keep(SnapshotFacts(states={"main/mainState": StateSize(9, 90)}, seconds=end, ended_at=now_ms()))
        run.keep(CaughtUp((ChangedKeys("0a", 0, "mainState", 7, "d"), ChangedKeys("0a", 0, "flag", 7, "d"))))
        run.keep(ValidateFacts(green=True, seconds=0.0, ended_at=now_ms()))
        reported(run)


@pytest.fixture
def of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    taken = iter(range(8, 99))
    monkeypatch.setattr(
        catch_up_task,
        "_fresh",
        lambda *_: write_metadata(tmp_path / "job" / f"chk-{next(taken)}", completed_at=now_ms() / 1000),
    )

    def ends(*how: float | str) -> Spark:
        spark = Spark(*how)
        monkeypatch.setattr(SparkSubmitOperator, "execute", lambda self, context: spark.execute(self, context))
        return spark

    return ends


def caught_up(rehearsal: Run, request: MigrationRequest, occasion: Occasion, of_run: str = "rehearsal") -> Any:
    return CatchUp(of_run=of_run).execute(context(rehearsal, request, occasion))


def test_each_is_since_the_one_before_until_one_is_short(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, of_spark: Any
) -> None:
    spark = of_spark(60.0, 30.0, 4.0)
    said = caught_up(rehearsal, request_, occasion)
    ids = [run.plan.run_id for run in spark.runs]
    assert said == {"catch_ups": ids, "enough": "it took 4.0 s"}
    assert [run.plan.since for run in spark.runs] == [rehearsal.plan.run_id, *ids[:2]]
    assert {(run.plan.now, run.plan.rehearse) for run in spark.runs} == {(rehearsal.plan.now, True)}
    assert base_of_cut_over(rehearsal) == spark.runs[-1]
    kept = kept_facts(rehearsal, CatchUps)
    assert [(one.keys, one.seconds) for one in kept.done] == [(7, 60.0), (7, 30.0), (7, 4.0)]
    # Right before the stop there is no other one, as this one is fresh.
    assert caught_up(rehearsal, request_, occasion, "rehearsal_again")["catch_ups"] == ids
    assert len(spark.runs) == 3


def test_they_end_when_they_get_hardly_shorter_or_are_many(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, of_spark: Any
) -> None:
    of_spark(60.0, 59.0)
    made = caught_up(rehearsal, request_, occasion)
    assert "hardly less" in made["enough"]
    spark = of_spark(60.0, 59.0)
    spark.runs = []
    rehearsal.keep(CatchUps(0, tuple(OneCatchUp(made["catch_ups"][-1], 1, 1, 99.0) for _ in range(4))))
    assert caught_up(rehearsal, request_, occasion)["enough"] == "there are 4"
    assert spark.runs == []
    # Right before the stop hours may have passed, so there is another one.
    assert len(caught_up(rehearsal, request_, occasion, "rehearsal_again")["catch_ups"]) == 6


def test_the_job_is_not_stopped_for_a_catch_up_that_could_be_refused(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, of_spark: Any
) -> None:
    of_spark(4.0)
    caught_up(rehearsal, request_, occasion)
    last = base_of_cut_over(rehearsal)
    assert last is not None
    last.keep(SnapshotFacts(first_expiry=now_ms() + 3_600_000))
    with pytest.raises(AirflowFailException, match=r"something may have expired.*The job was not stopped"):
        caught_up(rehearsal, request_, occasion, "rehearsal_again")


def test_before_the_decision_the_cut_over_converts_everything_and_after_it_the_job_runs_on(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, of_spark: Any
) -> None:
    why = "its savepoint isn't there any more: leave --since out"
    of_spark(why)
    assert caught_up(rehearsal, request_, occasion) == {
        "why_not": "its savepoint isn't there any more: leave --since out"
    }
    assert base_of_cut_over(rehearsal) is None
    # It isn't tried again: a person has decided on this.
    assert "why_not" in caught_up(rehearsal, request_, occasion, "rehearsal_again")
    # If the decision was on a catch-up, a longer outage isn't what was approved.
    of_spark(4.0)
    rehearsal.keep(CatchUps(0))
    occasion = Occasion("manual__2", occasion.as_of)
    rehearsal = _rehearsed(Path(rehearsal.plan.home), occasion, request_)
    caught_up(rehearsal, request_, occasion)
    kept = kept_facts(rehearsal, CatchUps)
    rehearsal.keep(CatchUps(0, tuple(OneCatchUp(one.run_id, 1, one.keys, one.seconds) for one in kept.done)))
    # Also if a person clears the task.
    for _ in range(2):
        of_spark("2 files of the base are gone")
        with pytest.raises(AirflowFailException, match=r"2 files of the base.*The job was not stopped, and runs on"):
            caught_up(rehearsal, request_, occasion, "rehearsal_again")


def test_one_that_is_slower_than_the_copy_is_the_last_and_the_cut_over_converts_everything(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, of_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = of_spark(120.0)
    rehearsal.keep(CatchUps(now_ms(), copy=catch_ups_of(rehearsal).copy))
    why = "the last catch-up took 120.0 s, more than the 100.0 s in which the copy converted everything"
    assert caught_up(rehearsal, request_, occasion) == {"why_not": why}
    assert (len(spark.runs), base_of_cut_over(rehearsal)) == (1, None)
    # So it was decided, also if there is another copy when the job may be stopped.
    _rehearsed(Path(rehearsal.plan.home), occasion, request_, "rehearsal_again")
    assert caught_up(rehearsal, request_, occasion, "rehearsal_again") == {"why_not": why}
    assert len(spark.runs) == 1
    decided(rehearsal)
    flink = Flink(monkeypatch)
    TakeSavepoint(task_id="take_savepoint").execute(context(rehearsal, request_, occasion))
    assert len(flink.orders) == 1
    assert Run.open(run_folder(rehearsal.plan.home, rehearsal.plan.job, occasion.short_id)).plan.since is None


@pytest.mark.parametrize(("seconds", "is_stopped"), [(99.0, True), (101.0, False)])
def test_after_the_decision_the_job_is_not_stopped_for_a_catch_up_that_is_slower_than_the_copy(
    seconds: float, is_stopped: bool, rehearsal: Run, request_: MigrationRequest, occasion: Occasion, of_spark: Any
) -> None:
    of_spark(79.0, 78.0)
    rehearsal.keep(CatchUps(now_ms(), copy=catch_ups_of(rehearsal).copy))
    caught_up(rehearsal, request_, occasion)
    kept = catch_ups_of(rehearsal)
    assert [one.seconds for one in kept.done] == [79.0, 78.0]
    rehearsal.keep(replace(kept, done=tuple(replace(one, at=one.at - 60_000) for one in kept.done)))
    of_spark(seconds, seconds)
    if is_stopped:
        assert "hardly less" in caught_up(rehearsal, request_, occasion, "rehearsal_again")["enough"]
    else:
        with pytest.raises(AirflowFailException, match=r"more than the 100\.0 s.*The job was not stopped"):
            caught_up(rehearsal, request_, occasion, "rehearsal_again")
    assert base_of_cut_over(rehearsal) is not None


def test_a_lost_application_is_tried_again_with_the_same_run(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, of_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[Any] = []

    def lost(self: SparkSubmitOperator, _: Any) -> None:
        submitted.append(self.application_args)
        raise AirflowException("Error code is: 137")

    monkeypatch.setattr(SparkSubmitOperator, "execute", lost)
    with pytest.raises(AirflowException, match="137"):
        caught_up(rehearsal, request_, occasion)
    spark = of_spark(4.0)
    caught_up(rehearsal, request_, occasion)
    assert submitted == [["--run", spark.runs[0].folder.shown]]


def test_what_a_stop_with_a_savepoint_has_flink_drop_is_no_base(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, of_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = of_spark()
    monkeypatch.setattr(catch_up_task, "held", lambda newest, *_: str(newest()))
    why = caught_up(rehearsal, request_, occasion)["why_not"]
    assert "/chk-8 can't be held beside the run" in why
    assert base_of_cut_over(rehearsal) is None
    assert spark.runs == []


def test_one_whose_checkpoint_was_dropped_is_planned_anew_in_the_next_try(
    rehearsal: Run, tmp_path: Path, occasion: Occasion, of_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_ = asked(tmp_path, source="checkpoint", format="native", stop_with="checkpoint", may_repeat=True)
    of_spark()
    # It can't be held there, and an executor is lost.
    monkeypatch.setattr(catch_up_task, "held", lambda newest, *_: str(newest()))
    monkeypatch.setattr(SparkSubmitOperator, "execute", lambda *_: (_ for _ in ()).throw(AirflowException("137")))
    with pytest.raises(AirflowException, match="137"):
        caught_up(rehearsal, request_, occasion)
    (made,) = (one for one in runs_of(rehearsal.plan.home, rehearsal.plan.job) if "catch_up" in one.run_id)
    assert made.plan is not None
    Location.of(made.plan.source).remove()
    # A task that was killed as it planned the run leaves it without a state.
    made.state_file.remove()
    spark = of_spark(4.0)
    caught_up(rehearsal, request_, occasion)
    assert [run.plan.run_id for run in spark.runs] == [made.run_id]
    assert spark.runs[0].plan.source != made.plan.source


def test_a_red_one_is_no_base_if_the_task_was_lost_before_it_knew(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, of_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = of_spark(4.0)
    caught_up(rehearsal, request_, occasion)
    (red,) = spark.runs
    rehearsal.keep(CatchUps(0))
    red.keep(ValidateFacts(green=False, seconds=0.0, ended_at=now_ms()))
    red.enter(RunState.FAILED, 1, "the report is red")

    def validates_again(self: SparkSubmitOperator, _: Any) -> None:
        raise AirflowException("Error code is: 4")

    monkeypatch.setattr(SparkSubmitOperator, "execute", validates_again)
    assert caught_up(rehearsal, request_, occasion) == {"why_not": "the report is red"}
    assert base_of_cut_over(rehearsal) is None


def test_a_canonical_savepoint_is_no_base(rehearsal: Run, tmp_path: Path, occasion: Occasion, of_spark: Any) -> None:
    rehearsal.keep(ShownTimers(in_native_savepoints=False))
    spark = of_spark()
    said = caught_up(rehearsal, asked(tmp_path, format="native"), occasion)
    assert "a canonical savepoint can't be caught up with" in said["why_not"]
    assert spark.runs == []


def test_the_job_is_not_stopped_for_a_base_that_is_gone(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, of_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = of_spark(4.0)
    caught_up(rehearsal, request_, occasion)
    decided(rehearsal)
    Location.of(spark.runs[0].plan.source).remove()
    monkeypatch.setattr(FlinkTask, "take_savepoint", lambda *_, **__: pytest.fail("the job was stopped"))
    take_savepoint = TakeSavepoint(task_id="take_savepoint")
    with pytest.raises(AirflowFailException, match=r"is no savepoint.*can't be gone on from"):
        take_savepoint.execute(context(rehearsal, request_, occasion))
    spark.runs[0].folder.remove()
    with pytest.raises(AirflowFailException, match=r"catch_up_1-.* was removed.*rehearse anew"):
        take_savepoint.execute(context(rehearsal, request_, occasion))
    with pytest.raises(AirflowFailException, match=r"catch_up_1-.* was removed.*rehearse anew"):
        caught_up(rehearsal, request_, occasion, "rehearsal_again")
    # Before the decision the person is told.
    kept = catch_ups_of(rehearsal)
    rehearsal.keep(replace(kept, done=tuple(replace(one, at=1, seconds=99.0) for one in kept.done)))
    assert "rehearse anew" in caught_up(rehearsal, request_, occasion)["why_not"]


def test_a_checkpoint_that_flink_drops_too_soon_is_tried_again(
    rehearsal: Run, request_: MigrationRequest, occasion: Occasion, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dropped(*_: object) -> str:
        raise DamagedError("all files of the checkpoint", "that Flink has dropped it", file="chk-7")

    monkeypatch.setattr(catch_up_task, "held", dropped)
    with pytest.raises(DamagedError):
        caught_up(rehearsal, request_, occasion)


@pytest.mark.parametrize("hour", [3, 4])
def test_the_job_is_not_stopped_once_the_last_catch_up_is_old(
    hour: int, rehearsal: Run, tmp_path: Path, occasion: Occasion, of_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a window that opens soon, but not for the next one after that."""
    request = asked(tmp_path, source="checkpoint", format="native", window="02:00-04:00", rehearsal_max_age="9d")
    spark, flink, ready = of_spark(4.0), Flink(monkeypatch), datetime(2026, 11, 20, 1, 50, tzinfo=UTC)
    caught_up(rehearsal, request, occasion)
    decided(rehearsal)
    for run in (rehearsal, *spark.runs):
        ready_at(run, ready)
    write_metadata(Path(spark.runs[0].staged.path))
    stop = TakeSavepoint(task_id="take_savepoint")
    clock(monkeypatch, ready.replace(minute=51))
    with pytest.raises(AirflowRescheduleException):
        stop.execute(context(rehearsal, request, occasion))
    # At three it has waited for something else, at four the window has closed.
    clock(monkeypatch, ready.replace(hour=hour))
    with pytest.raises(
        AirflowFailException, match=r"catch_up_1-.* old when .* was not stopped.*rehearsal_again\.catch"
    ):
        stop.execute(context(rehearsal, request, occasion))
    assert flink.orders == []
