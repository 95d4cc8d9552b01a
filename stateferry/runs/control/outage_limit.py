"""The outage of a cut-over as it happens: since when the job stands still, and that it has taken longer than it may.

Its limit and the way back exclude the start of the new job, and the way back excludes the publication: whichever is
recorded first, under the job's lock. So the old job is never started again beside a new job of which nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flinkstate.errors import RejectedError
from stateferry.basics.durations import rough_duration
from stateferry.runs.catalog.lease import job_locked
from stateferry.runs.record.facts import NewJob, Returned, RunFacts
from stateferry.runs.record.runs import Run


@dataclass(frozen=True, slots=True)
class StopAsked(RunFacts):
    """Flink was first asked to stop the job at this time; kept with the rehearsal on which that was decided.

    The outage may take `limit`; times are in milliseconds. `way_back` says whether the old job can be started again by
    a task.
    """

    name: ClassVar[str] = "stop_asked"

    at: int
    limit: int | None = None
    way_back: bool = False


@dataclass(frozen=True, slots=True)
class OutageExceeded(RunFacts):
    """The outage has taken longer than its limit, so this run starts no new job any more; times in milliseconds."""

    name: ClassVar[str] = "outage_exceeded"

    at: int
    limit: int

    @property
    def reason(self) -> str:
        """Why the run ends."""
        return f"the outage has taken longer than outage_limit ({rough_duration(self.limit)})"


def record_start(run: Run, new_job: NewJob) -> None:
    """Records that the new job is about to be started; refuses that once the old job is to be started again."""
    with job_locked(run.plan.catalog_uri, run.plan.job):
        check_may_start(run)
        run.keep(new_job)


def check_may_start(run: Run) -> None:
    """Refuses to start the new job once the old job is to be started again."""
    check_not_returned(run)
    if (exceeded := run.facts(OutageExceeded)) is not None:
        raise RejectedError(
            f"run {run.plan.run_id} starts no new job: {exceeded.reason}, and the old job is started again"
        )


def check_not_returned(run: Run) -> None:
    """Refuses to continue after the old job was started again: a person may give a step again later."""
    returned = run.facts(Returned)
    if returned is not None:
        raise RejectedError(
            f"run {run.plan.run_id} is over: {returned.reason}, or was to be. It may have processed input since then, "
            "so this run's savepoint is out of date: trigger a new run"
        )


def record_return(run: Run, returned: Returned) -> None:
    """Records that the old job is about to be started again: from now on the run publishes and starts nothing."""
    with job_locked(run.plan.catalog_uri, run.plan.job):
        run.keep(returned)


def exceed_unless_started(run: Run, exceeded: OutageExceeded) -> NewJob | None:
    """Records that the limit is exceeded, unless the new job was or is about to be started; returns that one."""
    with job_locked(run.plan.catalog_uri, run.plan.job):
        new_job = run.facts(NewJob)
        if new_job is None:
            run.keep(exceeded)
        return new_job
