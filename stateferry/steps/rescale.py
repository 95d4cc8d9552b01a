"""Rescale: puts key groups into new ranges, where the step migrate can't write into them itself.

At another max parallelism it makes the new files of what migrate has sent. A run that migrates no state it writes as a
whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location
from flinkstate.metadata.metadata import Metadata
from flinkstate.writing.operator_rewrite import OperatorRewrite
from stateferry.basics.durations import now_ms
from stateferry.changes.counts import ConversionCounts
from stateferry.changes.staging import StagedFile, add_counts, assemble, with_operators
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.checks.separate_places import check_separate_places
from stateferry.runs.record.facts import SentFiles, StagedDigests
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.step_facts import MigrateFacts, RescaleFacts
from stateferry.runs.record.steps import Step
from stateferry.steps import movement, new_files, sent_files
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import Workers


@dataclass(frozen=True, slots=True)
class Staged:
    """A savepoint whose files are all on disk, but not its `_metadata`."""

    metadata: Metadata
    files: Sequence[StagedFile]
    counts: dict[str, ConversionCounts]


def do(work: RunAtWork) -> RescaleFacts:
    """Does the step and returns its facts."""
    run = work.run
    if run.plan.rescales_only and run.plan.since is None:
        new_files.begin(work)
        staged = alone(work.workers, work.resolved, work.files.shown, run.exchange)
        before = StagedDigests({})
    elif (sent := run.facts(SentFiles)) is None:
        work.say(f"rescale: {RescaleFacts.nothing_to_do}")
        run.enter(RunState.STAGED, now_ms())
        return RescaleFacts()
    else:
        if not run.plan.rehearse:
            check_separate_places(run.plan)
        work.remove_drafts()
        try:
            staged = _received(work, sent)
        except DamagedError:
            # The next try sends the entries anew.
            run.forget(MigrateFacts)
            raise
        before = run.facts(StagedDigests) or StagedDigests({})
    digests = new_files.digests_of(staged.files)
    new_files.finish(work, staged.metadata, StagedDigests({**before.files, **digests.files}))
    return RescaleFacts(
        files=sum(len(file.files) for file in staged.files),
        bytes=sum(file.size for file in staged.files),
        counts=staged.counts,
        layout=movement.changes(work.resolved) or None,
    )


def _received(work: RunAtWork, facts: SentFiles) -> Staged:
    """Makes the new files of what was sent."""
    source, rewrites, folder = work.resolved.described, work.resolved.rewrites(), work.files.shown
    written, sent = sent_files.of_facts(work.run.exchange, facts, rewrites)
    files = new_files.receive(work.workers, Step.RESCALE, sent, folder)
    received = assemble(source, [one.rewrite for one in sent], files, folder)
    return Staged(_put_together(source, written, received), files, {})


def _put_together(source: Metadata, *parts: Metadata) -> Metadata:
    """The metadata with all operators of the parts, in the source's order."""
    operators = {operator.id: operator for part in parts for operator in part.operators}
    return with_operators(source, tuple(operators[one.id] for one in source.operators))


def alone(workers: Workers, resolved: ResolvedPlan, folder: str, exchange: Location) -> Staged:
    """Builds the new savepoint of the plan; `exchange` is a folder for entries that change their key group."""
    return stage(workers, resolved.described, resolved.rewrites(), folder, exchange, resolved.plan.chunk_bytes)


def stage(
    workers: Workers,
    source: Metadata,
    rewrites: Sequence[OperatorRewrite],
    folder: str,
    exchange: Location,
    chunk_bytes: int,
) -> Staged:
    """Builds a savepoint from the source by these rewrites.

    Operators whose key groups stay the same are copied, one task for each new file. Entries of the others go through
    files in `exchange`, which are removed afterwards.
    """
    stay, go = new_files.stay_and_go(rewrites)
    files = new_files.copy(workers, Step.RESCALE, stay, folder)
    sent = new_files.send(workers, Step.RESCALE, go, exchange, chunk_bytes)
    counts = add_counts([*(file.counts for file in files), *(one.counts for one in sent)])
    files += new_files.receive(workers, Step.RESCALE, sent, folder)
    exchange.remove()
    return Staged(assemble(source, rewrites, files, folder), files, counts)
