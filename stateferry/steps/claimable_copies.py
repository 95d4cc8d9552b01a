"""What the new job may claim on S3: copies that S3 itself makes of a native result's tables, in TARGET-claimable.

A copy is named after the size and digest of the table. So each rehearsal of a cut-over makes those of its own result
while the job runs, and reads them once, and the run that publishes makes only those of tables that are newer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLongError
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.files.digests import digest_of, hasher_of
from flinkstate.files.storage import Location, side_by_side
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Metadata
from flinkstate.metadata.parse_metadata import parse_metadata
from stateferry.basics.quantities import noun
from stateferry.runs.catalog.lease import LeaseLostError
from stateferry.runs.control.claimable import (
    claimable_folder,
    copies_of_tables,
    files_beside,
    offer,
)
from stateferry.runs.record.facts import ClaimableCopies
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.steps import Step
from stateferry.runs.report.report import FileDigest
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import Measure

_STEP = "copies to claim"
# While the job stands still, S3 has so many seconds; without a claim the job uploads everything, and that is all.
_MOST_SECONDS = 60
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A copy, by its name: what tells it from another file, and its size."""

    name: str
    identity: str
    size: int


_BYTES: Measure[CopiedTable] = Measure("B", lambda one: one.size)


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Has S3 copy a table; if it `reads`, the copy is read, and one that is there already need not be made again."""

    table: Location
    copy: Location
    known: FileDigest
    reads: bool

    def make(self) -> CopiedTable:
        """Makes the copy, and looks at it."""
        identity = self.copy.identity() if self.reads else ""
        if not identity or not self._is_right():
            if not self.table.give_to(self.copy):
                raise RefusedError(f"{self.table.shown} isn't copied by S3, or was changed meanwhile")
            identity = self.copy.identity()
            if not self._is_right():
                raise DamagedError(f"the {self.known.size} bytes that were validated", "others", file=self.copy.shown)
        return CopiedTable(self.copy.name, identity, self.known.size)

    def _is_right(self) -> bool:
        if not self.reads:
            return self.copy.size() == self.known.size
        with self.copy.open() as file:
            return FileDigest(self.copy.size(), digest_of(hasher_of(file))) == self.known


def copy_ahead(work: RunAtWork) -> None:
    """Makes the copies of a green rehearsal; whatever is in the way, the run that publishes tries it again."""
    run, plan = work.run, work.run.plan
    # A night is followed by another one, and its target is made by none.
    if not (plan.rehearse and plan.claimable) or plan.full_every is not None:
        return
    made_before = run.facts(ClaimableCopies)
    if made_before is not None and all(made_before.files.values()):
        return
    if not (Location.of(plan.target).is_on_s3 and run.staged.is_on_s3):
        return
    folder = claimable_folder(run)
    try:
        if folder.child(METADATA).is_file():
            raise RefusedError(f"{folder.shown} is another savepoint")
        metadata = parse_metadata(run.staged_metadata.read(), run.staged_metadata.shown)
        _begin(run, folder, copies_of_tables(run, metadata, run.staged))
        copies, made = _copied(work, metadata, run.staged, reads=True)
        run.keep(copies)
    except LeaseLostError:
        raise
    except StateferryError as error:
        work.say(f"note: nothing is copied yet that the new job may claim: {error}")
        return
    work.say(f"note: S3 has copied {_tables(made)} to {folder.shown}, and has all {_tables(copies.files)}")


def offer_copies(work: RunAtWork) -> str:
    """Makes the copies of a published run that aren't there yet; says why not if they can't be, or nothing."""
    run, target, folder = work.run, Location.of(work.run.plan.target), claimable_folder(work.run)
    strays = set[str]()

    def fill(metadata: Metadata) -> None:
        wanted = copies_of_tables(run, metadata, target)
        others = sorted({*files_beside(metadata)} - {table for table, _ in wanted.values()})
        known = _begin(run, folder, (*wanted, *others))

        def copied() -> list[CopiedTable]:
            _, made = _copied(work, metadata, target, reads=False)
            if not all(side_by_side(target, lambda name: target.child(name).give_to(folder.child(name)), others)):
                raise RefusedError(f"S3 doesn't copy the files in {target.shown}")
            return made

        made = _in_time(copied)
        strays.update(known - {METADATA, *wanted, *others})
        work.say(f"note: S3 has copied {_tables(made)} of {len(wanted)} to {folder.shown}, the others before")

    why_not = offer(run, fill)
    # Of tables that were joined meanwhile, or of another base. One that can't be removed does no harm.
    with suppress(OSError, StateferryError):
        gone = [one for one in folder.entries() if one.name in strays] if strays and not why_not else []
        for _ in side_by_side(folder, Location.remove, gone):
            pass
    return why_not


def _begin(run: Run, folder: Location, names: Iterable[str]) -> set[str]:
    """Notes what is to be copied, and returns all that runs of this job have copied, or begun to copy, to the folder.

    Refuses a folder with anything else, and one from which a job may have claimed files: such a job goes on using them,
    whether the savepoint's `_metadata` is there still or not.
    """
    known = set[str]()
    for other, copies in _copies_in(run, folder):
        if other.plan.run_id != run.plan.run_id and other.has_done(Step.CUT_OVER):
            raise RefusedError(f"{folder.shown} may be in use by the job that has claimed it: choose another target")
        known.update(copies.files)
    if strange := sorted(one.name for one in folder.entries() if one.name not in known):
        raise RefusedError(f"{folder.shown} has {strange[0]}, which no run of this job has put there")
    if run.facts(ClaimableCopies) is None:
        run.keep(ClaimableCopies(folder.shown, dict.fromkeys(names, "")))
    return known.union(names)


def _copies_in(run: Run, folder: Location) -> Iterator[tuple[Run, ClaimableCopies]]:
    """The runs of the job that have copies in the folder."""
    plan = run.plan
    for one in runs_of(plan.home, plan.job):
        if one.plan is None or not one.plan.claimable or one.plan.target != plan.target:
            continue
        other = Run.if_there(run_folder(plan.home, plan.job, one.run_id))
        if other is not None and (copies := other.facts(ClaimableCopies)) is not None:
            yield other, copies


def _in_time(do: Callable[[], _T]) -> _T:
    """What is done, unless it takes too long; then nothing waits for the thread that does it."""
    thread = ThreadPoolExecutor(1, "copies")
    try:
        return thread.submit(do).result(_MOST_SECONDS)
    except TookTooLongError:
        raise RefusedError(f"S3 has not made the copies within {_MOST_SECONDS} seconds") from None
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


def _copied(
    work: RunAtWork, metadata: Metadata, place: Location, *, reads: bool
) -> tuple[ClaimableCopies, list[CopiedTable]]:
    """All copies of the tables in the place, and those of them that were made now."""
    folder, wanted = claimable_folder(work.run), copies_of_tables(work.run, metadata, place)
    known = _of_base(work.run, folder)
    there = [name for name in wanted if known.get(name)]
    is_same = side_by_side(folder, lambda name: folder.child(name).identity() == known[name], there)
    stand = {name: known[name] for name, same in zip(there, is_same, strict=True) if same}
    tasks = [
        CopyTask(place.child(table), folder.child(name), digest, reads)
        for name, (table, digest) in wanted.items()
        if name not in stand
    ]
    # To read them takes the workers, and to have S3 copy them takes requests alone.
    do = work.workers.do(_STEP, tasks, CopyTask.make, _BYTES) if reads else side_by_side(folder, CopyTask.make, tasks)
    made = list(do)
    return ClaimableCopies(folder.shown, stand | {one.name: one.identity for one in made}), made


def _of_base(run: Run, folder: Location) -> dict[str, str]:
    """The copies that the base of a catch-up has in this folder."""
    plan = run.plan
    base = None if plan.since is None else Run.if_there(run_folder(plan.home, plan.job, plan.since))
    found = None if base is None else base.facts(ClaimableCopies)
    return {} if found is None or found.folder != folder.shown else dict(found.files)


def _tables(of: Iterable[object]) -> str:
    count = len(list(of))
    return f"{count} {noun(count, 'table')}"
