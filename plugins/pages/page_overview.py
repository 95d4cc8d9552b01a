"""What the pages show, from the catalog and the folders of runs, and only of what a user may read."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from flinkstate.errors import StateferryError
from flinkstate.files.storage import Location
from stateferry.airflow.requests.jobs import DAG_ID
from stateferry.airflow.requests.planning import default_catalog
from stateferry.airflow.requests.sources import home_folder
from stateferry.basics.durations import now_ms
from stateferry.runs.catalog.lease import Lease
from stateferry.runs.catalog.publications import Control, Publication
from stateferry.runs.predict.convergence import convergence_of
from stateferry.runs.record.live_progress import LiveProgress
from stateferry.runs.record.run_folder import folder_name, run_folder
from stateferry.runs.record.runs import Run
from stateferry.show.jobs_page import Delayed, Disk, Job, Overdue, RollingBack, Waiting
from stateferry.show.outage_view import CutOver, DagRunLook, Phase, cut_over_of
from stateferry.show.run_rows import RunRow, RunRows

_FRESH_SECONDS = 2.0
# A cut-over makes up to three runs, and a night of another DAG may come between them.
_LOOKED_AT = 5


def dag_of(row: RunRow) -> str:
    """The DAG whose readers may see the run. What the command line has run belongs to the DAG with the form."""
    return row.dag_id or DAG_ID


def _cut_over(rows: Sequence[RunRow], look: Callable[[str, str], DagRunLook | None]) -> CutOver | None:
    """The cut-over at work among the runs of a job, the newest first; one that has ended without a job that runs, too,
    until there is another run."""
    dag_runs = dict.fromkeys((row.dag_id, row.dag_run_id) for row in rows[:_LOOKED_AT])
    for number, (dag_id, dag_run_id) in enumerate(dag_runs):
        made = [row for row in rows if (row.dag_id, row.dag_run_id) == (dag_id, dag_run_id)]
        if dag_id is None or dag_run_id is None or not any(row.approved for row in made):
            continue
        runs = [run for run in map(_open, made) if run is not None]
        seen = look(dag_id, dag_run_id)
        found = None if seen is None else cut_over_of(runs, seen, now_ms())
        if found is not None and (number == 0 or found.phase is not Phase.ABANDONED):
            return found
    return None


def _job_of_nights(dag_id: str, by_job: Mapping[str, Sequence[RunRow]]) -> str | None:
    """The job whose nights the DAG rehearses: that of its newest scheduled run."""
    of_dag = (row for rows in by_job.values() for row in rows if row.dag_id == dag_id)
    nights = (row for row in of_dag if str(row.dag_run_id).startswith("scheduled__"))
    newest = max(nights, key=lambda row: row.planned_at, default=None)
    return None if newest is None else newest.job


def _open(row: RunRow) -> Run | None:
    try:
        return Run.if_there(Location.of(row.folder))
    except StateferryError:
        # Its row says what is wrong with it.
        return None


@dataclass(slots=True)
class Overview:
    """The runs and the catalog of this Airflow's home. Many threads may ask at once."""

    home: str = field(default_factory=home_folder)
    _rows: RunRows = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _catalog: Mapping[str, tuple[Publication | None, Lease | None]] = field(default_factory=dict)
    _convergence: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    _problem: str = ""
    _read_at: float = float("-inf")

    def __post_init__(self) -> None:
        self._rows = RunRows(self.home)

    def rows(self, readable: Collection[str]) -> tuple[RunRow, ...]:
        """The runs whose DAG is readable, the newest first."""
        return tuple(row for row in self._rows.rows() if dag_of(row) in readable)

    def run(self, job_folder: str, run_id: str) -> RunRow | None:
        """The run of a page's address, readable or not."""
        return next(
            (row for row in self._rows.rows() if row.run_id == run_id and folder_name(row.job) == job_folder), None
        )

    def of_dag_run(self, dag_id: str, dag_run_id: str) -> tuple[RunRow, ...]:
        """The runs that the DAG run has made, the newest first."""
        return tuple(row for row in self._rows.rows() if (row.dag_id, row.dag_run_id) == (dag_id, dag_run_id))

    def jobs(
        self,
        readable: Collection[str],
        base: str,
        waiting: Iterable[Waiting] = (),
        delayed: Iterable[Delayed] = (),
        rollbacks: Iterable[RollingBack] = (),
        overdue: Iterable[Overdue] = (),
        look: Callable[[str, str], DagRunLook | None] = lambda *_: None,
    ) -> list[Job]:
        """The jobs that have readable runs; a publication or a lease of another run isn't shown.

        `look` says what Airflow knows of a DAG run.
        """
        by_job: dict[str, list[RunRow]] = {}
        for row in self.rows(readable):
            by_job.setdefault(row.job, []).append(row)
        asked, late, back = tuple(waiting), tuple(delayed), tuple(rollbacks)
        missed = [(_job_of_nights(one.dag_id, by_job), one) for one in overdue]
        return [
            replace(
                self._job(name, tuple(rows), base, asked, late),
                cut_over=_cut_over(rows, look),
                rollbacks=tuple(one for one in back if one.job == name),
                overdue=tuple(one for job, one in missed if job == name),
            )
            for name, rows in sorted(by_job.items())
        ]

    def _job(
        self,
        name: str,
        rows: tuple[RunRow, ...],
        base: str,
        questions: tuple[Waiting, ...],
        delayed: tuple[Delayed, ...],
    ) -> Job:
        published, lease = self.catalog().get(name, (None, None))
        known = {row.run_id for row in rows}
        dag_runs = {row.dag_run_id for row in rows}
        at_work = lease is not None and lease.run_id in known
        progress = None
        if lease is not None and at_work:
            progress = LiveProgress.of(run_folder(self.home, name, lease.run_id).child("progress.json"))
        return Job(
            name,
            f"{base}/jobs/{folder_name(name)}",
            rows,
            published if published is not None and published.record.run_id in known else None,
            lease if at_work else None,
            progress,
            tuple(one for one in questions if one.job == name or (one.job is None and one.dag_run_id in dag_runs)),
            tuple(one for one in delayed if one.dag_run_id in dag_runs),
            self._converges(name, rows),
        )

    def _converges(self, job: str, rows: tuple[RunRow, ...]) -> tuple[str, ...]:
        """How the job's states converge, for those who may read all of its runs.

        This reads all runs, so it is done again only when the newest has changed.
        """
        if sum(row.job == job for row in self._rows.rows()) != len(rows):
            return ()
        newest = rows[0]
        before = self._convergence.get(job)
        if before is None or before[0] != newest.changed_at:
            try:
                lines = tuple(one.line for one in convergence_of(self.home, job))
            except StateferryError as error:
                lines = (f"not known: {error}",)
            before = self._convergence[job] = (newest.changed_at, lines)
        return before[1]

    def catalog(self) -> Mapping[str, tuple[Publication | None, Lease | None]]:
        """The standing publication and the lease of each job."""
        with self._lock:
            if time.monotonic() - self._read_at > _FRESH_SECONDS:
                self._read_catalog()
            return self._catalog

    @property
    def problem(self) -> str:
        """Why the catalog can't be read; empty if it can."""
        return self._problem

    def _read_catalog(self) -> None:
        try:
            with Control.if_there(default_catalog()) or nullcontext() as control:
                jobs = control.jobs() if control is not None else ()
                self._catalog = {
                    job: (control.standing(job), control.at_work(job)) for job in jobs if control is not None
                }
                self._problem = ""
        except StateferryError as error:
            self._problem = str(error)
        self._read_at = time.monotonic()

    def disks(self) -> list[Disk]:
        """The room where runs are kept."""
        if "://" in self.home:
            return [Disk(self.home, None, None)]
        there = Path(self.home)
        while not there.exists():
            there = there.parent
        usage = shutil.disk_usage(there)
        return [Disk(self.home, usage.free, usage.total)]
