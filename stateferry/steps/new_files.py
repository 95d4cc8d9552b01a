"""Writes the files of the new savepoint, for the steps migrate and rescale, and makes it a staged savepoint.

At another max parallelism, entries get their key groups in `writing/max_parallelism_change.py` and travel through
`changes/max_parallelism_exchange.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.chunks import plan_chunks
from flinkstate.metadata.metadata import Metadata
from flinkstate.writing.operator_rewrite import OperatorRewrite
from flinkstate.writing.writer import SavepointWriter
from stateferry.basics.durations import now_ms
from stateferry.changes.counts import ConversionCounts
from stateferry.changes.max_parallelism_exchange import Directory, Exchange
from stateferry.changes.staging import (
    FileTask,
    SendTask,
    SentFile,
    StagedFile,
    add_counts,
    file_tasks,
    with_absolute_files,
)
from stateferry.runs.checks.separate_places import check_separate_places
from stateferry.runs.control.target_metadata import TargetMetadata
from stateferry.runs.record.facts import Claim, SentFiles, StagedDigests
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.step_facts import RescaleFacts, ValidateFacts
from stateferry.runs.record.target_access import TargetAccess
from stateferry.runs.record.target_claim import claim_target, target_content
from stateferry.runs.report.proven import remove_report
from stateferry.steps import movement
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import Measure, Workers

_WRITTEN: Measure[StagedFile] = Measure("B", lambda file: file.size)
_SENT: Measure[SentFile] = Measure("B", lambda file: file.size)


@dataclass(frozen=True, slots=True)
class Sent:
    """What the senders of one operator have written, and what they have converted."""

    rewrite: OperatorRewrite
    exchange: Exchange
    sizes: tuple[int, ...]
    counts: dict[str, ConversionCounts]


def stay_and_go(rewrites: Iterable[OperatorRewrite]) -> tuple[list[OperatorRewrite], list[OperatorRewrite]]:
    """The operators whose entries keep their key groups, and those whose entries get others."""
    found: tuple[list[OperatorRewrite], list[OperatorRewrite]] = ([], [])
    for one in rewrites:
        found[one.destination.changes_key_groups].append(one)
    return found


def copy(workers: Workers, step: str, rewrites: Sequence[OperatorRewrite], folder: str) -> list[StagedFile]:
    """Writes the new files of operators whose key groups stay the same, one task for each."""
    SavepointWriter(folder)  # It looks whether the folder is free.
    return list(workers.do(step, file_tasks(rewrites, folder), FileTask.copy, _WRITTEN))


def send(
    workers: Workers, step: str, rewrites: Sequence[OperatorRewrite], exchange: Location, chunk_bytes: int
) -> list[Sent]:
    """Writes the files of the exchange, in which entries go to the key groups of another max parallelism."""
    return [_send(workers, step, one, exchange.child(one.old.hex_id), chunk_bytes) for one in rewrites]


def receive(workers: Workers, step: str, sent: Iterable[Sent], folder: str) -> list[StagedFile]:
    """Writes the new files of operators whose entries were sent; only senders count what they convert."""
    found: list[StagedFile] = []
    for one in sent:
        do = partial(FileTask.receive, exchange=one.exchange)
        found += workers.do(step, file_tasks([one.rewrite], folder), do, _WRITTEN)
    return [replace(file, counts={}) for file in found]


def _send(workers: Workers, step: str, rewrite: OperatorRewrite, folder: Location, chunk_bytes: int) -> Sent:
    folder.make_folder()
    tasks, exchange = _send_tasks(rewrite, folder, chunk_bytes)
    sizes: list[int] = []

    def noted() -> Iterator[dict[str, ConversionCounts]]:
        for one in workers.do(f"{step}: send", tasks, SendTask.send, _SENT):
            directory.add(one.bounds)
            sizes.append(one.size)
            yield one.counts

    with Directory(exchange) as directory:
        counts = add_counts(noted())
    return Sent(rewrite, exchange, tuple(sizes), counts)


def _send_tasks(rewrite: OperatorRewrite, folder: Location, chunk_bytes: int) -> tuple[list[SendTask], Exchange]:
    """Splits the old key groups into ranges with about `chunk_bytes` of state each, one task for each range."""
    also = frozenset() if rewrite.rewrite is None else rewrite.rewrite.more_key_groups
    chunks = plan_chunks(rewrite.old, rewrite.source.placed(rewrite.old), target_bytes=chunk_bytes, also=also)
    ranges = [KeyGroupRange(min(chunk.key_groups), max(chunk.key_groups)) for chunk in chunks]
    exchange = Exchange(folder, uuid.uuid4().hex[:12], len(ranges), len(rewrite.ranges()))
    tasks = [
        SendTask(part, key_groups, exchange.file(number))
        for number, (key_groups, part) in enumerate(zip(ranges, rewrite.of_key_groups(ranges), strict=True))
    ]
    return tasks, exchange


def begin(work: RunAtWork) -> None:
    """Claims the target, and removes what an earlier try has left; says what will move where."""
    run, claim = work.run, work.run.facts(Claim)
    if not run.plan.rehearse:
        check_separate_places(run.plan)
        target, run_id, source = run.plan.target, run.plan.run_id, work.resolved.source
        target_content(target, claimed=claim is not None, run_id=run_id)
        access = TargetAccess.like(source.folder, source.metadata, work.files, claim.access if claim else None)
        claim_target(target, run_id, claimed=claim is not None)
        run.keep(Claim(run.plan.target, access))
    work.remove_drafts()
    run.forget(ValidateFacts, RescaleFacts, SentFiles)
    run.exchange.remove()
    # An earlier try left this `_metadata`, and perhaps a report; its files are about to change.
    run.staged_metadata.remove()
    remove_report(run)
    movements = movement.movement(work.resolved)
    run.rescale_plan.write_atomically(movement.to_json(movements))
    for line in movement.movement_lines(movements):
        work.say(f"rescale plan: {line}")


def finish(work: RunAtWork, metadata: Metadata, digests: StagedDigests) -> None:
    """Makes the files, which are all written, a staged savepoint."""
    run = work.run
    work.remove_drafts()
    described = metadata
    if not run.plan.rehearse:
        TargetMetadata(run).keep(build_metadata(metadata))
        described = with_absolute_files(metadata, work.files)
    run.staged.make_folder()
    run.staged_metadata.write_atomically(build_metadata(described))
    run.keep(digests)
    run.enter(RunState.STAGED, now_ms())


def digests_of(files: Iterable[StagedFile]) -> StagedDigests:
    """The size and digest of each file."""
    return StagedDigests({name: digest for file in files for name, digest in file.files.items()})
