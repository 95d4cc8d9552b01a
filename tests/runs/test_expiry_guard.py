"""What a run is told of time is held against the ages: limits on both sides, and what a green run makes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RejectedError
from stateferry.runs.guards.expiry_guard import ClockContradictedError, TooManyExpireError, check_ages
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.state_ages import FoundAges, Holds, StateAges
from stateferry.runs.record.step_facts import SnapshotFacts

NOW = 1_795_000_000_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


class Job:
    """A job's runs, one after the other, in a home of their own."""

    def __init__(self, home: Path) -> None:
        self.home, self.runs = home, 0

    def plan(self, ttl: int = 30 * DAY, **told: Any) -> MigrationPlan:
        self.runs += 1
        state = {"legacy": "mainState", "new": "newMainState", "ttl_ms": ttl}
        values = {"job": "orders", "source": "/in", "target": "/out", "home": str(self.home), "now": NOW}
        values |= {"run_id": f"run-{self.runs:03}", "operators": [{"operator": "main", "states": [state]}]}
        return plan_of(values | told)

    def green(
        self, expired: int, counted: int = 1000, *, youngest: int = 0, state: RunState = RunState.VERIFIED, **told: Any
    ) -> MigrationPlan:
        plan = self.plan(**told)
        run = Run.create(plan, self.runs)
        run.keep(SnapshotFacts(ages=found(plan, expired, counted, youngest=youngest)))
        for one in (RunState.RUNNING, RunState.VERIFIED, state):
            run.enter(one, self.runs, "because")
        return plan

    def stops(self, expired: int, counted: int = 1000, **told: Any) -> str:
        """What the next run is stopped with; empty if it isn't."""
        plan = self.plan(**told)
        try:
            check_ages(plan, found(plan, expired, counted))
        except TooManyExpireError as error:
            return str(error)
        return ""


def found(
    plan: MigrationPlan, expired: int, counted: int, *, youngest: int = 0, holds: Holds = Holds.BLOBS
) -> FoundAges:
    ttl = plan.operators[0].states[0].ttl_ms or 0
    quartiles = (DAY, 2 * DAY, 3 * DAY)
    ages = (ttl, counted, expired, int(youngest < 0) * 7, youngest, quartiles, 4 * DAY)
    return FoundAges(plan.now, plan.keep_expired, (StateAges("main", "mainState", "mainState", holds, *ages),))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "home")


@pytest.mark.parametrize(
    ("expired", "counted", "stopped"),
    [(250, 1000, False), (251, 1000, True), (99, 99, False), (100, 100, True), (100, 400, False), (100, 399, True)],
)
def test_a_first_run_stops_at_more_than_a_quarter_and_a_hundred(
    job: Job, expired: int, counted: int, stopped: bool
) -> None:
    assert bool(job.stops(expired, counted)) is stopped


def test_it_says_how_many_how_old_and_what_to_do(job: Job) -> None:
    words = job.stops(995, 1000, ttl=30 * MINUTE)
    assert words.startswith(
        "state mainState of operator main: 995 of 1,000 entries (99.5 %) would expire under a time to live of 30m at "
        "2026-11-18 11:06:40 UTC, more than a quarter. Their ages: youngest 0 ms, quartiles 1.0 d, 2.0 d, 3.0 d, "
        "oldest 4.0 d."
    )
    assert words.endswith("(--ttl). If so many entries are meant to expire, allow it: --accept-expired 100%")
    assert "suggests" not in words
    assert "--now" not in words


def test_the_end_of_the_ages_and_an_old_savepoint_are_hints(job: Job) -> None:
    plan = job.plan(ttl=30 * MINUTE)
    rows = StateAges(
        "main",
        "mainState",
        "newMainState",
        Holds.ROWS,
        30 * MINUTE,
        500,
        400,
        0,
        2 * DAY,
        (1, 2, 3),
        3 * DAY,
        3 * DAY,
        3 * DAY,
    )
    blobs = StateAges(
        "main",
        "mainState",
        "mainState",
        Holds.BLOBS,
        30 * MINUTE,
        500,
        500,
        0,
        8 * DAY,
        (1, 2, 3),
        31 * DAY,
        31 * DAY,
        30 * DAY,
    )
    with pytest.raises(TooManyExpireError) as caught:
        check_ages(plan, FoundAges(NOW, False, (blobs, rows)))
    words = str(caught.value)
    assert "The ages of mainState end all at once at 31.0 d, which suggests a time to live of 30d" in words
    assert words.count("suggests") == 1
    assert f"The youngest of all is 2.0 d old: if the savepoint was taken then, --now {NOW - 2 * DAY} counts" in words
    assert "400 of 500 entries (80.0 %)" in words


@pytest.mark.parametrize(
    ("before", "expired", "stopped"),
    [
        # 5 percentage points more, twice as many, a hundred more: each on both sides.
        (10, 109, False),
        (10, 110, True),
        (99, 198, False),
        (99, 199, True),
        (120, 240, False),
        (120, 241, True),
        (200, 299, False),
        (200, 300, True),
        # As yesterday, or a little more: whatever the share.
        (240, 260, False),
        (600, 600, False),
        (600, 649, False),
        (990, 1000, False),
    ],
)
def test_a_run_after_a_green_one_is_held_against_that(job: Job, before: int, expired: int, stopped: bool) -> None:
    job.green(before)
    assert bool(job.stops(expired)) is stopped


def test_five_points_of_many_and_a_hundred_of_few(job: Job) -> None:
    job.green(0, 100_000)
    assert not job.stops(4_999, 100_000)
    assert job.stops(5_000, 100_000)
    job.green(0, 1500)
    assert not job.stops(99, 1500)
    assert job.stops(100, 1500)


def test_the_share_drifts_night_after_night(job: Job) -> None:
    """A savepoint that lies there, rehearsed every night: 3.3 points more each time."""
    for night in range(31):
        expired = 33 * night
        assert not job.stops(expired), night
        job.green(expired)


def test_only_green_runs_count(job: Job) -> None:
    for state in (RunState.FAILED, RunState.REJECTED):
        job.green(600, state=state)
    assert job.stops(600)
    published = job.green(600, state=RunState.PUBLISHED)
    assert not job.stops(600)
    Run.create(published, 0).enter(RunState.ROLLED_BACK, 99)
    assert job.stops(600)
    job.green(600, state=RunState.APPROVED)
    assert not job.stops(600)


def test_another_time_to_live_is_no_green_run_s(job: Job) -> None:
    job.green(600, ttl=30 * DAY)
    assert job.stops(700, ttl=15 * DAY)
    # A longer one lets less expire.
    assert not job.stops(500, ttl=45 * DAY)
    job.green(0, ttl=60 * DAY)
    assert not job.stops(620, ttl=30 * DAY), "a try with another time to live makes the night's own forgotten"


def test_what_is_accepted_may_expire_and_no_more(job: Job) -> None:
    assert not job.stops(600, accept_expired="60%")
    assert "more than the 60.0 % that are accepted" in job.stops(601, accept_expired="60%")
    assert job.stops(200, accept_expired=0.1)
    assert not job.stops(99, accept_expired=0)


def test_what_a_rehearsal_was_allowed_holds_at_its_cut_over(job: Job) -> None:
    job.green(30, accept_expired=0.6, rehearse=True)
    assert not job.stops(600)
    assert job.stops(650)
    # It was meant for that time to live.
    assert job.stops(600, ttl=30 * MINUTE)
    # A limit that is told anew holds.
    assert job.stops(600, accept_expired=0.5)
    job.green(30, rehearse=True)
    assert job.stops(600)


def test_a_job_that_ran_green_under_its_limit_may_drift_over_it(job: Job) -> None:
    job.green(590, accept_expired=0.6)
    assert not job.stops(623, accept_expired=0.6)
    assert job.stops(690, accept_expired=0.6)


def test_a_night_is_not_held_against_days_that_were_backfilled_since(job: Job) -> None:
    job.green(400, accept_expired=0.5)
    job.green(0, now_from="backfill")
    assert not job.stops(400)


def test_flags_and_what_is_kept_never_stop(job: Job) -> None:
    plan = job.plan()
    check_ages(plan, found(plan, 1000, 1000, holds=Holds.FLAGS))
    check_ages(job.plan(keep_expired=True), found(plan, 1000, 1000))
    with pytest.raises(TooManyExpireError):
        check_ages(plan, found(plan, 1000, 1000, holds=Holds.ROWS))


def clock(job: Job, ahead: int, **told: Any) -> str:
    plan = job.plan(**told)
    try:
        check_ages(plan, found(plan, 0, 1000, youngest=-ahead))
    except ClockContradictedError as error:
        return str(error)
    return ""


def test_timestamps_may_be_ahead_by_the_tolerance_and_no_more(job: Job) -> None:
    assert not clock(job, 10 * MINUTE)
    assert clock(job, 10 * MINUTE + 1)
    assert not clock(job, 2 * HOUR, clock_tolerance_ms="2h")
    assert clock(job, 2 * HOUR + 1, clock_tolerance_ms="2h")
    assert clock(job, 1, clock_tolerance_ms=0)
    assert clock(job, HOUR, keep_expired=True), "a savepoint of the future is the wrong one, or the clock is"
    assert "later than what counts as now" in clock(job, 2**63 - 1, now=0), "the greatest timestamp there is"


def test_a_clock_has_words_of_its_own_and_so_has_a_backfilled_day(job: Job) -> None:
    words = clock(job, 95 * MINUTE)
    assert "7 timestamps are later than what counts as now" in words
    assert "the newest is 2026-11-18 12:41:40 UTC, 1.6 h after 2026-11-18 11:06:40 UTC" in words
    assert "--clock-tolerance 95m (it is 10m)" in words
    backfilled = clock(job, 4 * DAY, now_from="backfill")
    assert backfilled.startswith("the savepoint is newer than the day that is backfilled: ")
    assert "2026-11-22 11:06:40 UTC, 4.0 d after the end of that day, 2026-11-18 11:06:40 UTC" in backfilled
    assert "TaskManagers" not in backfilled
    assert "backfilled" not in words


def test_a_job_whose_clocks_differed_in_its_green_run_goes_on(job: Job) -> None:
    job.green(0, youngest=-HOUR, clock_tolerance_ms="2h")
    assert not clock(job, 61 * MINUTE)
    assert clock(job, 3 * HOUR)
    job.green(0, youngest=0)
    assert clock(job, 61 * MINUTE)


def test_facts_keep_all_of_it_and_read_well(job: Job) -> None:
    plan = job.plan(keep_expired=True)
    made = found(plan, 45, 1000, youngest=-2 * HOUR)
    stored = json.loads(json.dumps(SnapshotFacts(ages=made).to_json()))
    assert SnapshotFacts.of_json(stored, "the file").ages == made
    assert SnapshotFacts.of_json({}, "the file").ages is None
    heading, line = made.lines()
    assert heading == "ages at 2026-11-18 11:06:40 UTC:"
    assert re.sub(r" +", " ", line) == (
        " main/mainState: 45 of 1,000 entries expired (4.5 %) under a time to live of 30d, kept all the same; youngest "
        "2.0 h in the future, quartiles 1.0 d, 2.0 d, 3.0 d, oldest 4.0 d"
    )


def test_the_errors_are_a_no() -> None:
    assert issubclass(TooManyExpireError, RejectedError)
    assert issubclass(ClockContradictedError, RejectedError)


def test_a_night_of_everything_is_held_against_the_last_one_and_not_against_catch_ups_by_an_old_now(job: Job) -> None:
    job.green(200)
    job.green(20, since="run-001", output_format="native", youngest=-6 * DAY)
    assert not job.stops(200)
    assert clock(job, 2 * DAY)


def test_a_job_of_which_only_catch_ups_are_left_is_held_against_those(job: Job) -> None:
    job.green(590, accept_expired=0.6, since="run-000", output_format="native", youngest=-6 * DAY)
    assert not job.stops(590)
    assert clock(job, 2 * DAY)
