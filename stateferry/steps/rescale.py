"""Rescale: makes the blobs rows, and writes the new savepoint's files in the parallelism of the plan.

At another max parallelism, entries get their key groups in `writing/max_parallelism_change.py` and travel through
`changes/max_parallelism_exchange.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from flinkstate.files.storage import Location, side_by_side
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.metadata.chunks import plan_chunks
from flinkstate.metadata.metadata import Metadata
from flinkstate.writing.operator_rewrite import OperatorRewrite
from flinkstate.writing.writer import SavepointWriter
from stateferry.changes.counts import ConversionCounts
from stateferry.changes.max_parallelism_exchange import Directory, Exchange
from stateferry.changes.staging import FileTask, SendTask, SentFile, StagedFile, add_counts, assemble, file_tasks
from stateferry.runs.checks.plan_check import ResolvedPlan
from stateferry.runs.record.facts import RescaleFacts, StagedDigests, Step
from stateferry.steps.workers import Measure, Workers

_WRITTEN: Measure[StagedFile] = Measure("B", lambda file: file.size)
_SENT: Measure[SentFile] = Measure("B", lambda file: file.size)


@dataclass(frozen=True, slots=True)
class Staged:
    """A savepoint whose files are all on disk, but not its `_metadata`."""

    metadata: Metadata
    files: Sequence[StagedFile]

    @property
    def counts(self) -> dict[str, ConversionCounts]:
        """The counts of all files, by state."""
        return add_counts(file.counts for file in self.files)

    @property
    def facts(self) -> RescaleFacts:
        """The facts of the step."""
        return RescaleFacts(
            files=sum(len(file.files) for file in self.files),
            bytes=sum(file.size for file in self.files),
            counts=self.counts,
        )

    @property
    def digests(self) -> StagedDigests:
        """The size and digest of each file."""
        return StagedDigests({name: digest for file in self.files for name, digest in file.files.items()})


def run(workers: Workers, resolved: ResolvedPlan, folder: str, exchange: Location) -> Staged:
    """Builds the new savepoint of the plan; `exchange` is a folder for entries that change their key group."""
    return stage(workers, resolved.source.metadata, resolved.rewrites(), folder, exchange, resolved.plan.chunk_bytes)


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
    SavepointWriter(folder)  # It looks whether the folder is free.
    stay = file_tasks([one for one in rewrites if not one.destination.changes_key_groups], folder)
    staged = list(workers.do(Step.RESCALE, stay, FileTask.copy, _WRITTEN))
    for number, rewrite in enumerate(rewrites):
        if rewrite.destination.changes_key_groups:
            staged += _exchanged(workers, rewrite, folder, exchange.child(f"{number}"), chunk_bytes)
    exchange.remove_if_empty()
    return Staged(assemble(source, rewrites, staged, folder), staged)


def _exchanged(
    workers: Workers,
    rewrite: OperatorRewrite,
    folder: str,
    exchange: Location,
    chunk_bytes: int,
) -> list[StagedFile]:
    exchange.make_folder()
    senders, sent = _send_tasks(rewrite, exchange, chunk_bytes)
    with Directory(sent) as directory:
        counts = add_counts(_noted(directory, workers.do(f"{Step.RESCALE}: send", senders, SendTask.send, _SENT)))
    receive = partial(FileTask.receive, exchange=sent)
    received = list(workers.do(Step.RESCALE, file_tasks([rewrite], folder), receive, _WRITTEN))
    for _ in side_by_side(exchange, Location.remove, sent.files):
        pass
    exchange.remove_if_empty()
    # Only senders count what they convert. The counts are added up, so they may be put on any one file.
    return [replace(file, counts=counts if number == 0 else {}) for number, file in enumerate(received)]


def _noted(directory: Directory, sent: Iterable[SentFile]) -> Iterator[dict[str, ConversionCounts]]:
    for one in sent:
        directory.add(one.bounds)
        yield one.counts


def _send_tasks(rewrite: OperatorRewrite, folder: Location, chunk_bytes: int) -> tuple[list[SendTask], Exchange]:
    """Splits the old key groups into ranges with about `chunk_bytes` of state each, one task for each range."""
    chunks = plan_chunks(rewrite.old, rewrite.source.placed(rewrite.old), target_bytes=chunk_bytes)
    ranges = [KeyGroupRange(min(chunk.key_groups), max(chunk.key_groups)) for chunk in chunks]
    exchange = Exchange(folder, uuid.uuid4().hex[:12], len(ranges), len(rewrite.ranges()))
    tasks = [
        SendTask(part, key_groups, exchange.file(number))
        for number, (key_groups, part) in enumerate(zip(ranges, rewrite.of_key_groups(ranges), strict=True))
    ]
    return tasks, exchange
