"""The nights of a schedule that had no run: Airflow or the DAG was off, or an earlier run was still at work.

Nobody can tell of a night at its own time, as nothing runs then. So the next scheduled run does.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from croniter import croniter

from stateferry.airflow.dag_runs.notices import tell
from stateferry.airflow.requests.jobs import ConfiguredJob
from stateferry.basics.printable import printable
from stateferry.basics.quantities import noun

if TYPE_CHECKING:
    from airflow.sdk import Context

# So many nights are looked for. Before a schedule's first night, or before it was changed, there are none.
_MOST, _SHOWN = 60, 5


def tell_missed(context: Context, job: ConfiguredJob, log: Any) -> None:
    """Tells of the nights between this scheduled run and the one before it."""
    if (at := context["dag_run"].logical_date) is None or job.schedule is None:
        return
    if missed := missed_nights(context, job, at):
        text = missed_text(job.job, missed)
        log.warning("%s", text)
        tell(context, "missed", job.job, text)


def missed_nights(context: Context, job: ConfiguredJob, at: datetime) -> list[datetime]:
    """The times of the schedule before `at`, back to the last one that had a run; none if no earlier one had."""
    before = list(islice(_before(job, at), _MOST))
    if not _runs_at(context, before):
        return []
    return list(takewhile(lambda night: not _runs_at(context, [night]), before))


def missed_text(job: str, missed: list[datetime]) -> str:
    """What is told of the nights, the newest first."""
    times = ", ".join(f"{night:%Y-%m-%d %H:%M} UTC" for night in missed[:_SHOWN])
    more = f" and {len(missed) - _SHOWN} before" if len(missed) > _SHOWN else ""
    nights = noun(len(missed), "scheduled run")
    return (
        f"{len(missed)} {nights} of job {printable(job)} didn't take place: {times}{more}. Airflow was stopped or the "
        "DAG paused, or an earlier run was still at work or waited for an answer. This run goes on"
    )


def _before(job: ConfiguredJob, at: datetime) -> Iterator[datetime]:
    nights = croniter(job.schedule, at.astimezone(ZoneInfo(job.timezone)))
    while True:
        yield nights.get_prev(datetime).astimezone(UTC)


def _runs_at(context: Context, nights: list[datetime]) -> int:
    ti = context["ti"]
    return int(ti.get_dr_count(dag_id=ti.dag_id, logical_dates=nights))
