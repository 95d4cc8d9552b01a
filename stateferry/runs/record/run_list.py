"""All runs of a home, as lists show them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from flinkstate.basics.did_you_mean import there_are
from flinkstate.errors import StateferryError, TransientError, UsageError
from flinkstate.files.storage import Location, side_by_side
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.record.catch_ups import is_catch_up_of
from stateferry.runs.record.run_folder import RunFolder, folder_name, runs_folder
from stateferry.runs.record.run_states import (
    ENDED,
    GREEN,
    RunState,
    StateChange,
)
from stateferry.runs.record.runs import Run, check_home


@dataclass(frozen=True, slots=True)
class RunSummary(RunFolder):
    """One run in a list of runs; a folder that can't be read has a `problem` and no plan."""

    job: str
    run_id: str
    folder: Location
    plan: MigrationPlan | None
    changes: tuple[StateChange, ...]
    problem: str = ""

    @property
    def state(self) -> RunState | None:
        """The present state; None if there is none."""
        return self.changes[-1].state if self.changes else None

    @property
    def reason(self) -> str:
        """The problem, or the reason of the present state."""
        return self.problem or (self.changes[-1].reason if self.changes else "")

    @property
    def planned_at(self) -> int:
        """When the run was planned, in milliseconds; 0 if that isn't known."""
        return self.changes[0].at if self.changes else 0

    @property
    def changed_at(self) -> int:
        """When the run got its present state, in milliseconds; 0 if that isn't known."""
        return self.changes[-1].at if self.changes else 0


def runs_of(home: str, job: str | None = None) -> list[RunSummary]:
    """The runs of the job, or of all jobs, the newest first."""
    check_home(home)
    jobs = [runs_folder(home).child(folder_name(job))] if job is not None else runs_folder(home).folders()
    folders = [folder for of_job in jobs for folder in of_job.folders()]
    runs = side_by_side(runs_folder(home), _summary, folders)
    return sorted(runs, key=lambda run: (run.planned_at, run.run_id), reverse=True)


def those_named(runs: Sequence[RunSummary], name: str) -> list[RunSummary]:
    """The runs with this id, or those whose ids begin with it, without the catch-ups of one that is among them."""
    if named := [run for run in runs if run.run_id == name]:
        return named
    found = [run for run in runs if run.run_id.startswith(name)]
    return [
        one
        for one in found
        if not any(
            one.job == other.job and is_catch_up_of(other.run_id, one.run_id) for other in found if other is not one
        )
    ]


def find_run(home: str, job: str, run_id: str) -> Run:
    """The run with this id, or the only run whose id begins with it."""
    of_job = runs_of(home, job)
    found = those_named(of_job, run_id)
    if len(found) != 1:
        known = [run.run_id for run in of_job]
        how_many = "no run" if not found else f"{len(found)} runs"
        raise UsageError(f"job {job} has {how_many} {run_id!r}. {there_are(run_id, known)}")
    return Run.open(found[0].folder)


def run_folders(home: str) -> list[Location]:
    """The folders of all runs, in no order."""
    return [folder for job in runs_folder(home).folders() for folder in job.folders()]


def run_stamps(home: str) -> list[tuple[Location, tuple[object, ...]]]:
    """The folders of all runs, each with a value that changes when anything in the folder does.

    On an object store this is one listing of all of them.
    """
    runs = runs_folder(home)
    if runs.is_local:
        names = ("state.json", "report.json", "steps")
        return [(folder, tuple(folder.child(name).modified_at() for name in names)) for folder in run_folders(home)]
    found: dict[tuple[str, str], list[object]] = {}
    for one in runs.listed(recursive=True):
        job, _, rest = one.location.path.removeprefix(f"{runs.path}/").partition("/")
        run_id, _, name = rest.partition("/")
        if name and not one.is_folder:
            found.setdefault((job, run_id), []).append((name, one.modified_at, one.size))
    return [(runs.child(job).child(run_id), tuple(stamp)) for (job, run_id), stamp in found.items()]


def readable_runs(home: str, job: str, states: Collection[RunState] = ()) -> Iterator[Run]:
    """Yields the runs of the job whose plans can be read, the newest first; if states are given, only those."""
    for run in runs_of(home, job):
        if run.plan is not None and (not states or run.state in states):
            yield Run(run.plan, run.folder)


def green_before(plan: MigrationPlan) -> Iterator[Run]:
    """Yields the job's green runs but for the plan's, the newest first; backfilled ones only for a backfill."""
    for run in readable_runs(plan.home, plan.job, GREEN):
        if run.plan.run_id != plan.run_id and (run.plan.now_from != "backfill" or plan.now_from == "backfill"):
            yield run


def asked_for_before(plan: MigrationPlan, now_is_enough: Collection[RunState] = ()) -> Run | None:
    """The newest run for which this plan asks again, or None.

    The run has not ended, or it is in one of the states `now_is_enough`.
    """
    for run in runs_of(plan.home, plan.job):
        wanted = run.state is not None and (run.state not in ENDED or run.state in now_is_enough)
        if wanted and run.plan is not None and run.plan.is_asked_for_again_by(plan):
            return Run(run.plan, run.folder)
    return None


def _summary(folder: Location) -> RunSummary:
    try:
        run = Run.of_checked(folder)
        return RunSummary(run.plan.job, run.plan.run_id, folder, run.plan, run.changes())
    except TransientError:
        # This error passes. If the run were listed as unreadable now, another run might be started instead of this one.
        raise
    except StateferryError as error:
        return RunSummary(folder.parent.name, folder.name, folder, None, (), str(error))
