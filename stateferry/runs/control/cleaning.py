"""Cleans up after a job: removes what no publication, no reader and no run that may continue still needs.

| removed, when it is old enough | kept |
|---|---|
| runs with their staged savepoints | the newest runs; the published run and the run that a rollback brings back |
| the same | for 14 days what a cut-over waits with or may go back by; a try of the schedule, which cuts over once |
| drafts in the targets of all runs, left behind by writers that were killed | drafts that were changed recently |
| state files in a removed run's target | folders with a `_metadata` or another run's claim, targets ever published |
| branches of removed runs | `main`, branches with other names |
| snapshots of the tables | heads of kept branches, and what the standing publication or its predecessor names |
| data and metadata files that no snapshot names | all others |
| uploads to an S3 store that were never completed: of targets, runs and tables | uploads that were begun recently |
| at any age: temporary folders of this machine's processes that have ended | those of processes that run |

Runs of another catalog, and what they wrote, are kept, and then the job's tables as well.

Cleaning needs the job's lease, but for temporary folders. It removes things in such an order that a later run, or
another cleaning, can continue after an interruption.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table
from sqlalchemy import make_url

from flinkstate.errors import TransientError
from flinkstate.files.storage import Location
from flinkstate.files.temporary_folder import remove_temporary_folder, size_of
from flinkstate.files.unfinished_uploads import unfinished_uploads
from flinkstate.metadata.file_names import METADATA, claimed_by, drafts, is_state_file
from stateferry.basics.durations import MILLISECONDS_PER_UNIT
from stateferry.runs.catalog.control_tables import sqlite_file
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.outage_limit import StopAsked
from stateferry.runs.control.tries_by_schedule import is_try_by_schedule, published_by_schedule
from stateferry.runs.plan.homes import default_rest_catalog, default_warehouse
from stateferry.runs.record.catch_ups import is_catch_up_of
from stateferry.runs.record.facts import Began, Claim
from stateferry.runs.record.run_list import RunSummary, runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.temporary_folders import TemporaryFolders
from stateferry.runs.report.decision import Answer, Decision
from stateferry.tables.iceberg.cleaning import TableCleaning, tables_of_job
from stateferry.tables.iceberg.commits import TableHome

_POSTGRES = 5432


@dataclass(frozen=True, slots=True)
class Retention:
    """A run stays while it is among the newest of its job or was changed recently."""

    newest: int = 3
    younger_than_ms: int = 14 * MILLISECONDS_PER_UNIT["d"]


def removable(runs: Iterable[RunSummary], keep: Collection[str], rule: Retention, now: int) -> list[RunSummary]:
    """The runs of one job that may be removed, the oldest first.

    `keep` are the ids of runs that must stay: the published run, and the one that a rollback brings back.
    """
    newest_first = sorted(runs, key=lambda run: (run.planned_at, run.run_id), reverse=True)
    old = [
        run
        for run in newest_first[rule.newest :]
        if run.run_id not in keep and run.folder.name not in keep and run.changed_at + rule.younger_than_ms <= now
    ]
    return old[::-1]


@dataclass(frozen=True, slots=True)
class Removal:
    """Something that is removed; `size` is in bytes, 0 if the thing has no size."""

    what: str
    name: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The cleaning of one job. A dry run removes nothing and needs no lease."""

    home: str
    job: str
    control: Control
    catalog_uri: str
    rule: Retention
    now: int
    dry_run: bool = False

    def remove_temporary_folders(self) -> Iterator[Removal]:
        """Removes what killed processes of the job's runs left on this machine, at any age; needs no lease."""
        for run in runs_of(self.home, self.job):
            for folder in TemporaryFolders(run.temporary_folders).left_behind():
                size = size_of(folder)
                if not self.dry_run:
                    remove_temporary_folder(folder)
                yield Removal("temporary folder", folder, size)

    def clean(self) -> Iterator[Removal]:
        """Removes one thing after the other, and yields each of them."""
        others = self.of_other_catalogs()
        runs = [run for run in runs_of(self.home, self.job) if run not in others]
        protected = self.control.protected_runs(self.job)
        going = self._going(removable(runs, protected, self.rule, self.now))
        staying = [run for run in runs if run not in going]
        in_use = self._targets_in_use([*staying, *others])
        for run in going:
            yield from self._target(run, in_use)
            yield self._run(run)
        yield from self._drafts(staying)
        kept_runs = {run.run_id for run in staying} | protected
        if not others:
            yield from self._tables(kept_runs, runs)
        yield from self._uploads(runs)

    def of_other_catalogs(self) -> list[RunSummary]:
        """The runs that plan for another catalog: this one doesn't know which of them is published or at work.

        Their tables may have the same names and the same folder as those of this catalog.
        """
        own = _database(self.catalog_uri)
        return [run for run in runs_of(self.home, self.job) if run.plan and _database(run.plan.catalog_uri) != own]

    def _going(self, old: Sequence[RunSummary]) -> list[RunSummary]:
        """Those of the old runs that nothing needs any more."""
        old = [run for run in old if self._may_go(run)]
        began = {run.run_id: _dag_run_of(run) for run in old}
        cut_overs = [run.run_id for run in old if self._is_of_cut_over(run)]
        dag_runs = {began[run_id] for run_id in cut_overs} - {None}
        # A rehearsal that was made again and its catch-ups, on which the cut-over builds, are of the same DAG run.
        needed = {*cut_overs, *(run_id for run_id, dag_run in began.items() if dag_run in dag_runs)}
        # If the catalog has a publication by the schedule, that says what a try without one would.
        once = not any(published_by_schedule(self.control.history(self.job)))
        return [
            run
            for run in old
            if not (run.run_id in needed or any(is_catch_up_of(one, run.run_id) for one in needed))
            and not (once and is_try_by_schedule(run))
        ]

    def _is_of_cut_over(self, run: RunSummary) -> bool:
        """Whether a cut-over that was not rejected may wait for its time, or may need the way back."""
        if run.plan is None:
            return False
        of_run = Run(run.plan, run.folder)
        decision = of_run.facts_if_sound(Decision)
        if decision is None or decision.answer is Answer.REJECTED:
            return False
        changed_at = max(run.file_of(kind).modified_at() for kind in (Decision, StopAsked))
        return changed_at + Retention().younger_than_ms > self.now

    def _may_go(self, run: RunSummary) -> bool:
        if run.changes:
            # A backfilled day is planned as of that day, which may lie long ago.
            return run.state_file.modified_at() + self.rule.younger_than_ms <= self.now
        # The run has no state: it was killed as it began, or it begins right now. A plan that can't be read is left for
        # a person to look at.
        begun = run.plan is not None or not run.plan_file.exists()
        return begun and run.folder.modified_at() + self.rule.younger_than_ms <= self.now

    def _targets_in_use(self, staying: Sequence[RunSummary]) -> set[str]:
        published = [one.record.target for one in self.control.history(self.job)]
        return {Location.of(name).path for name in (*published, *(run.plan.target for run in staying if run.plan))}

    def _target(self, run: RunSummary, in_use: set[str]) -> Iterator[Removal]:
        """Removes the state files that the run wrote into a target without a `_metadata`."""
        if run.plan is None or Run(run.plan, run.folder).stored(Claim) is None:
            return
        target = Location.of(run.plan.target)
        entries = target.listed()
        if target.path in in_use or any(entry.location.name == METADATA for entry in entries):
            return
        # The files of a run that failed may have been removed by hand, for a run of another job or home.
        if any(claimed_by(entry.location.name) not in (None, run.run_id) for entry in entries):
            return
        left = [entry for entry in entries if is_state_file(entry.location.name)]
        if not left:
            return
        size = sum(entry.size for entry in left)
        if not self.dry_run:
            for entry in left:
                entry.location.remove()
            if len(left) == len(entries):
                target.remove()
        yield Removal("unpublished state files", target.shown, size)

    def _drafts(self, staying: Sequence[RunSummary]) -> Iterator[Removal]:
        """Removes old drafts: no reader uses them, and writing drafts needs the lease, which the cleaning has now."""
        places = {one.record.target for one in self.control.history(self.job)}
        places |= {run.plan.target for run in staying if run.plan and not run.plan.rehearse}
        for draft in (draft for place in sorted(places) for draft in _drafts_if_reached(place)):
            if draft.modified_at() + self.rule.younger_than_ms <= self.now:
                size = draft.size()
                if not self.dry_run:
                    draft.remove()
                yield Removal("draft", draft.shown, size)

    def _uploads(self, runs: Sequence[RunSummary]) -> Iterator[Removal]:
        """Aborts old uploads. Their files never appeared: their writers were stopped, or have given up."""
        places = {one.record.target for one in self.control.history(self.job)}
        places |= {run.plan.target for run in runs if run.plan and not run.plan.rehearse}
        places |= {run.folder.parent.shown for run in runs}
        places |= {table.location() for table in self._tables_of_job(runs)}
        for place in sorted(places):
            for upload in unfinished_uploads(Location.of(place)):
                if upload.begun_at + self.rule.younger_than_ms <= self.now:
                    if not self.dry_run:
                        upload.abort()
                    yield Removal("unfinished upload", upload.shown)

    def _run(self, run: RunSummary) -> Removal:
        size = sum(entry.size for entry in run.folder.listed(recursive=True))
        if not self.dry_run:
            run.remove()
        return Removal("run", run.folder.shown, size)

    def _tables(self, kept_runs: set[str], runs: Sequence[RunSummary]) -> Iterator[Removal]:
        before = self.now - self.rule.younger_than_ms
        protected = self._protected_snapshots()
        for table in self._tables_of_job(runs):
            cleaning = TableCleaning(table, kept_runs, protected.get(".".join(table.name()), set()), before)
            name = ".".join(table.name())
            branches, snapshots, files = cleaning.branches(), cleaning.snapshots(), cleaning.files()
            if not self.dry_run:
                cleaning.remove()
            yield from (Removal("branch", f"{name} {branch}") for branch in branches)
            yield from (Removal("snapshot", f"{name} {snapshot}") for snapshot in snapshots)
            yield from (Removal("table file", file.location.shown, file.size) for file in files)

    def _tables_of_job(self, runs: Sequence[RunSummary]) -> Iterator[Table]:
        """Those in the SQL catalog, and in the REST catalog that the newest run names."""
        newest = next((run.plan.rest_catalog for run in runs if run.plan), default_rest_catalog())
        for rest in dict.fromkeys((None, newest)):
            yield from tables_of_job(TableHome(self.catalog_uri, default_warehouse(self.home), rest), self.job)

    def _protected_snapshots(self) -> dict[str, set[int]]:
        standing = self.control.standing(self.job)
        wanted = {standing.sequence, standing.previous} if standing is not None else set()
        found: dict[str, set[int]] = {}
        for one in self.control.history(self.job):
            if one.sequence in wanted:
                for table, snapshot in one.record.tables.items():
                    found.setdefault(table, set()).add(snapshot)
        return found


def _dag_run_of(run: RunSummary) -> tuple[str | None, str] | None:
    """The DAG run to which the run belongs, if there is one."""
    began = None if run.plan is None else Run(run.plan, run.folder).facts_if_sound(Began)
    return None if began is None or began.dag_run_id is None else (began.dag_id, began.dag_run_id)


def _drafts_if_reached(place: str) -> list[Location]:
    try:
        return drafts(Location.of(place))
    except TransientError:
        # The HDFS of an earlier target may be gone. If it isn't, the next cleaning finds them.
        return []


def _database(catalog_uri: str) -> str:
    """What is the same for all addresses of one catalog."""
    if (file := sqlite_file(catalog_uri)) is not None:
        return str(file.resolve())
    # Neither the user nor the driver, nor how it is connected to, makes it another one.
    url = make_url(catalog_uri)
    return f"{url.get_backend_name()}://{(url.host or '').lower()}:{url.port or _POSTGRES}/{url.database}"
