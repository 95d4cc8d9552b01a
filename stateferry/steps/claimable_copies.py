"""What the new job may claim on S3: copies that S3 itself makes of a native result's tables, in TARGET-claimable.

A copy is named after the size and digest of the table. So each rehearsal of a cut-over makes those of its own result
while the job runs, and reads them once, and the run that publishes makes only those of tables that are newer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.files.digests import digest_of, hasher_of
from flinkstate.files.storage import Location, side_by_side
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Metadata, RelativeFile
from flinkstate.metadata.parse_metadata import parse_metadata
from stateferry.basics.quantities import noun
from stateferry.runs.control.claimable import (
    claimable_content,
    claimable_folder,
    copies_of_tables,
    published_metadata,
)
from stateferry.runs.control.target_metadata import TargetMetadata
from stateferry.runs.record.facts import ClaimableCopies
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.runs import Run
from stateferry.runs.report.report import FileDigest
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import Measure

_STEP = "copies to claim"


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
    if not (Location.of(plan.target).is_on_s3 and run.staged.is_on_s3) or run.facts(ClaimableCopies) is not None:
        return
    folder = claimable_folder(run)
    try:
        if folder.child(METADATA).is_file():
            raise RefusedError(f"{folder.shown} is another savepoint")
        metadata = parse_metadata(run.staged_metadata.read(), run.staged_metadata.shown)
        copies, made = _copied(work, metadata, run.staged, reads=True)
        run.keep(copies)
    except StateferryError as error:
        work.say(f"note: nothing is copied yet that the new job may claim: {error}")
        return
    work.say(f"note: S3 has copied {_tables(made)} to {folder.shown}, and has all {_tables(copies.files)}")


def offer_copies(work: RunAtWork) -> str:
    """Makes the copies of a published run that aren't there yet; says why not if they can't be, or nothing."""
    run, target, folder = work.run, Location.of(work.run.plan.target), claimable_folder(work.run)
    try:
        metadata = published_metadata(run)
        content = claimable_content(run, metadata)
        found = folder.child(METADATA).read_if_there()
        if found is not None:
            return "" if found == content else f"{folder.shown} is another savepoint"
        copies, made = _copied(work, metadata, target, reads=False)
        tables = {table for table, _ in copies_of_tables(run, metadata, target).values()}
        subtasks = (subtask for operator in metadata.operators for subtask in operator.subtasks)
        streams = {stream.path for one in subtasks for stream in one.streams() if isinstance(stream, RelativeFile)}
        others = sorted(streams - tables)
        if not all(side_by_side(target, lambda name: target.child(name).give_to(folder.child(name)), others)):
            return f"S3 doesn't copy the files in {target.shown}"
        # Of tables that were joined meanwhile, or of another base.
        strays = [one for one in folder.entries() if one.name not in {*copies.files, *others}]
        for _ in side_by_side(folder, Location.remove, strays):
            pass
        TargetMetadata(run).publish(folder, content)
    except (OSError, StateferryError) as error:
        return f"{error}"
    work.say(f"note: S3 has copied {_tables(made)} of {len(copies.files)} to {folder.shown}, the others before")
    return ""


def _copied(
    work: RunAtWork, metadata: Metadata, place: Location, *, reads: bool
) -> tuple[ClaimableCopies, list[CopiedTable]]:
    """All copies of the tables in the place, and those of them that were made now."""
    folder, wanted = claimable_folder(work.run), copies_of_tables(work.run, metadata, place)
    known = _of_base(work.run, folder)
    there = [name for name in wanted if name in known]
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
