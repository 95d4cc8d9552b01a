"""Cut over: publishes the staged savepoint that has a green report.

The publication record is the commit point. The `_metadata` in the target follows from it: if it is missing there, a
later command writes it. The tables' `main` moves afterwards, when the tables have followed.
"""

from __future__ import annotations

from collections.abc import Mapping

from flinkstate.errors import DamagedError, RefusedError, RejectedError
from flinkstate.files.storage import Location, side_by_side
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.reader import Savepoint
from stateferry.basics.durations import now_ms
from stateferry.changes.staging import with_absolute_files
from stateferry.runs.catalog.lease import Lease
from stateferry.runs.catalog.publications import Control, Publication, Record
from stateferry.runs.checks.separate_places import check_separate_places
from stateferry.runs.control.claimable import offer_links
from stateferry.runs.control.outage_limit import check_not_returned
from stateferry.runs.control.target_metadata import TargetMetadata, digest_of_metadata
from stateferry.runs.record.facts import HeldFiles
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import CutOverFacts, SnapshotFacts
from stateferry.runs.record.steps import Step
from stateferry.runs.report.file_digest import DigestTask, digest_tasks
from stateferry.runs.report.proven import forget_new_savepoint, proven_report
from stateferry.runs.report.report import FileDigest, Report, SavepointDigests
from stateferry.steps.claimable_copies import offer_copies
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import Measure, Workers

BYTES: Measure[tuple[str, FileDigest]] = Measure("B", lambda digest: digest[1].size)


def digests_of(
    workers: Workers, savepoint: Savepoint, written: Mapping[str, FileDigest] | None = None
) -> SavepointDigests:
    """The digests of all files of a savepoint.

    `written` are digests by address, which the writers of the files know. These files aren't read again.
    """
    known = written or {}
    tasks = digest_tasks(savepoint)
    files = {task.stream.name: known[task.uri] for task in tasks if task.uri in known}
    unknown = [task for task in tasks if task.uri not in known]
    files |= dict(workers.do("digests", unknown, DigestTask.take, BYTES))
    return SavepointDigests(savepoint.folder.shown, savepoint.metadata.checkpoint_id, files)


def metadata_digest(savepoint: Savepoint) -> SavepointDigests:
    """The digest of `_metadata` alone.

    This is enough to recognize a source, because each step reads the source anew.
    """
    task = digest_tasks(savepoint)[0]
    return SavepointDigests(savepoint.folder.shown, savepoint.metadata.checkpoint_id, dict([task.take()]))


def do(work: RunAtWork) -> CutOverFacts:
    """Publishes the staged savepoint."""
    publish(work.workers, work.run, work.control, work.lease)
    run = work.run
    offers = run.plan.claimable
    if offers and (why_not := offer_copies(work) if Location.of(run.plan.target).is_on_s3 else offer_links(run)):
        work.say(f"the new job can't claim its savepoint, and its first checkpoint uploads everything: {why_not}")
    return CutOverFacts()


def publish(workers: Workers, run: Run, control: Control, lease: Lease) -> Publication:
    """Publishes the run's staged savepoint, if its files are still those of the green report."""
    if not run.has_done(Step.VALIDATE):
        raise RejectedError(f"run {run.plan.run_id} has not been validated: nothing is published")
    report = proven_report(run)
    if not report.is_green:
        raise RejectedError(f"run {run.plan.run_id} has no green report: nothing is published")
    check_separate_places(run.plan)
    try:
        staged = Savepoint.open(run.staged.shown, places=(run.plan.target,))
        found, why = digests_of(workers, staged, _held(run, report)), ""
    except (DamagedError, RefusedError) as error:
        found, why = None, f" ({error})"
    if found is None or not report.holds_for(found, run.plan.fingerprint):
        forget_new_savepoint(run)
        raise RejectedError(
            f"run {run.plan.run_id}: the staged savepoint's files are not those that were validated{why}, so nothing "
            "is published: migrate and validate again"
        )
    # The target may have become a link while its files were read.
    check_separate_places(run.plan)
    target_metadata = TargetMetadata(run)
    metadata = _proven_metadata(run)
    if metadata is None:
        forget_new_savepoint(run)
        raise RejectedError(
            f"run {run.plan.run_id}: {run.target_metadata.shown}, or one in {run.plan.target}, is not the `_metadata` "
            "that was validated, so nothing is published: migrate and validate again"
        )
    standing, snapshot = control.standing(run.plan.job), run.facts(SnapshotFacts)
    record = Record(
        run_id=run.plan.run_id,
        plan_fingerprint=run.plan.fingerprint,
        source=(snapshot.source if snapshot is not None else None) or run.plan.source,
        checkpoint_id=staged.metadata.checkpoint_id,
        target=run.plan.target,
        metadata_digest=digest_of_metadata(metadata),
        tables={},
        tables_pending=Step.TABLES in run.steps,
    )
    already = standing is not None and standing.record == record
    replaces = standing.sequence if standing is not None and not already else None
    published = (
        standing
        if already and standing
        else control.publish(lease, record, replaces=replaces, check=lambda: check_not_returned(run))
    )
    target_metadata.roll_forward(record.metadata_digest, metadata)
    return published


def _held(run: Run, report: Report) -> dict[str, FileDigest]:
    """The digests, by address, of a base's files that nobody has written to since they were taken over of late.

    The step tables reads these files once more.
    """
    held, target = run.facts(HeldFiles) or HeldFiles(0), Location.of(run.plan.target)
    places = [(target.child(name), identity) for name, identity in held.of_late(now_ms()).items()]
    known = [(place, identity) for place, identity in places if place.uri in report.staged.files]
    is_same = side_by_side(target, lambda one: one[0].identity() == one[1], known)
    return {place.uri: report.staged.files[place.uri] for (place, _), same in zip(known, is_same, strict=True) if same}


def _proven_metadata(run: Run) -> bytes | None:
    """The `_metadata` that is kept for the target, if it is the staged one with names of files for the target.

    None also if the target has another one, which somebody else has put there.
    """
    target, kept = Location.of(run.plan.target), run.target_metadata.read_if_there()
    if kept is None or target.child(METADATA).read_if_there() not in (None, kept):
        return None
    try:
        metadata = parse_metadata(kept, run.target_metadata.shown)
    except DamagedError:
        return None
    same = build_metadata(with_absolute_files(metadata, target)) == run.staged_metadata.read()
    return kept if same and build_metadata(metadata) == kept else None
