"""Airflow's schedule cuts a job over once: what shows that it has tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stateferry.runs.catalog.publications import Publication
from stateferry.runs.control.outage_limit import StopAsked
from stateferry.runs.record.run_list import RunSummary
from stateferry.runs.record.runs import Run

# With this begin the ids of the DAG runs that the schedule has triggered.
_BY_SCHEDULE = "scheduled__"


def published_by_schedule(history: Iterable[Publication]) -> Iterator[str]:
    """Yields the runs of the schedule that were ever published; the catalog forgets none of them."""
    yield from (one.record.run_id for one in history if one.record.run_id.startswith(_BY_SCHEDULE))


def is_try_by_schedule(run: RunSummary) -> bool:
    """Whether the schedule has begun to cut over with this run, or has stopped the job after this rehearsal."""
    if run.plan is None or not run.run_id.startswith(_BY_SCHEDULE):
        return False
    # A try may have ended after the stop, and before there was a run but the rehearsal.
    return not run.plan.rehearse or Run(run.plan, run.folder).facts_if_sound(StopAsked) is not None
