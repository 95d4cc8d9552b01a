"""The nights of a schedule that had no run: Airflow or the DAG was off, or an earlier run was still at work.

Nobody can tell of a night at its own time, as nothing runs then: Airflow's deadlines are of DAG runs that were made. So
the next scheduled run does, and one that begins late tells of itself. The page of all jobs shows a night that is due.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from airflow.sdk.timezone import coerce_datetime
from airflow.timetables.base import TimeRestriction
from airflow.timetables.trigger import CronTriggerTimetable
from croniter import croniter

from stateferry.airflow.dag_runs.notices import tell
from stateferry.airflow.requests.jobs import ConfiguredJob
from stateferry.basics.durations import rough_duration
from stateferry.basics.printable import printable
from stateferry.basics.quantities import noun

if TYPE_CHECKING:
    from airflow.sdk import Context

# So many nights are looked for. Before a schedule's first night, or before it was changed, there are none.
_MOST, _SHOWN = 60, 5
_LATE = timedelta(minutes=15)
_WHY = "Airflow was stopped or the DAG paused, or an earlier run was still at work or waited for an answer"


def tell_missed(context: Context, job: ConfiguredJob, log: Any) -> None:
    """Tells of the nights between this scheduled run and the one before it, and if this one begins late."""
    dag_run = context["dag_run"]
    if (at := dag_run.logical_date) is None or job.schedule is None:
        return
    missed, late = missed_nights(context, job, at), _late(dag_run)
    if missed or (late and _runs_at(context, _before(job, at))):
        text = missed_text(job.job, missed, at, late)
        log.warning("%s", text)
        tell(context, "missed", job.job, text)


def missed_nights(context: Context, job: ConfiguredJob, at: datetime) -> list[datetime]:
    """The times of the schedule before `at`, back to the last one that had a run; none if no earlier one had."""
    before = _before(job, at)
    if not _runs_at(context, before):
        return []
    return list(takewhile(lambda night: not _runs_at(context, [night]), before))


def missed_text(job: str, missed: list[datetime], at: datetime, late: timedelta) -> str:
    """What people read of the nights, the newest first, and of this one, which was due at `at`."""
    delay = rough_duration(int(late.total_seconds() * 1000))
    if not missed:
        return f"the scheduled run of job {printable(job)} of {_shown(at)} began {delay} late. {_WHY}"
    times = ", ".join(map(_shown, missed[:_SHOWN]))
    more = f" and {len(missed) - _SHOWN} before" if len(missed) > _SHOWN else ""
    nights = noun(len(missed), "scheduled run")
    goes_on = f"This run goes on, {delay} late" if late else "This run goes on"
    return f"{len(missed)} {nights} of job {printable(job)} didn't take place: {times}{more}. {_WHY}. {goes_on}"


def _late(dag_run: Any) -> timedelta:
    """How long after its time the run has begun; nothing of one that began in time, or was cleared by a person."""
    if dag_run.start_date is None or dag_run.clear_number:
        return timedelta()
    late: timedelta = dag_run.start_date - dag_run.run_after
    return late if late > _LATE else timedelta()


def _shown(night: datetime) -> str:
    return f"{night.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _before(job: ConfiguredJob, at: datetime) -> list[datetime]:
    """The times of the schedule before `at`, the newest first, as Airflow's own timetable has them: clocks change.

    It only goes forward, and begins where the expression leads that is taken back as if clocks didn't.
    """
    zone, timetable = ZoneInfo(job.timezone), CronTriggerTimetable(str(job.schedule), timezone=job.timezone)
    back = croniter(job.schedule, at.astimezone(zone).replace(tzinfo=None))
    first = [back.get_prev(datetime) for _ in range(_MOST)][-1]
    since = TimeRestriction(coerce_datetime(first.replace(tzinfo=zone)), latest=None, catchup=True)
    nights, last = list[datetime](), None
    while (night := timetable.next_dagrun_info(last_automated_data_interval=last, restriction=since)) is not None:
        if night.run_after >= at:
            break
        nights.append(night.run_after)
        last = night.data_interval
    return nights[::-1]


def _runs_at(context: Context, nights: list[datetime]) -> int:
    ti = context["ti"]
    return int(ti.get_dr_count(dag_id=ti.dag_id, logical_dates=nights))
