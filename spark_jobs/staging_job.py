"""The staged savepoint's keyed files, written by Spark tasks."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pyspark import SparkContext

from spark_jobs.tasks import Measure, run_tasks
from spark_jobs.watching import Watch
from stateferry.key_groups import KeyGroupRange
from stateferry.migration.staging import FileTask, SendTask, SentFile, StagedFile, add_counts, file_tasks
from stateferry.savepoint.chunks import plan_chunks
from stateferry.savepoint.rewrite import OperatorRewrite
from stateferry.savepoint.storage import Location

_WRITTEN: Measure[StagedFile] = Measure("B", lambda file: file.size)
_SENT: Measure[SentFile] = Measure("B", lambda file: file.size)


def stage_files(
    spark: SparkContext,
    rewrites: Sequence[OperatorRewrite],
    folder: str,
    exchange: Location,
    chunk_bytes: int,
    watch: Watch,
) -> list[StagedFile]:
    """Key groups that stay are copied by one task for each new file; the others go through files in `exchange`, which
    are gone afterwards."""
    files = file_tasks(rewrites, folder)
    stay = [task for task in files if not task.rewrite.destination.is_elsewhere]
    staged = run_tasks(spark, "rescale", stay, FileTask.copy, watch, _WRITTEN)
    for number, rewrite in enumerate(rewrites):
        if rewrite.destination.is_elsewhere:
            receivers = [task for task in files if task.rewrite is rewrite]
            staged += _exchanged(spark, rewrite, receivers, exchange.child(f"{number}"), chunk_bytes, watch)
    exchange.remove_if_empty()
    return staged


def _exchanged(
    spark: SparkContext,
    rewrite: OperatorRewrite,
    receivers: Sequence[FileTask],
    exchange: Location,
    chunk_bytes: int,
    watch: Watch,
) -> list[StagedFile]:
    exchange.make_folder()
    senders = send_tasks(rewrite, exchange, chunk_bytes)
    sent = run_tasks(spark, "rescale: send", senders, SendTask.send, watch, _SENT)
    receive = partial(FileTask.receive, files=[sender.file for sender in senders])
    received = run_tasks(spark, "rescale", receivers, receive, watch, _WRITTEN)
    for sender in senders:
        sender.file.remove()
    exchange.remove_if_empty()
    # Senders alone know what they made of what they read; whose file tells it makes no difference.
    counts = add_counts(file.counts for file in sent)
    return [replace(file, counts=counts if number == 0 else {}) for number, file in enumerate(received)]


def send_tasks(rewrite: OperatorRewrite, exchange: Location, chunk_bytes: int) -> list[SendTask]:
    """Runs of old key groups with about `chunk_bytes` of state each. Their files are of this driver alone: another one
    that does the same, and has lost the lease or taken it, neither writes nor removes them."""
    driver = uuid.uuid4().hex[:12]
    chunks = plan_chunks(rewrite.old, target_bytes=chunk_bytes)
    return [
        SendTask(
            rewrite,
            KeyGroupRange(min(chunk.key_groups), max(chunk.key_groups)),
            exchange.child(f"{number:06}-{driver}"),
        )
        for number, chunk in enumerate(chunks)
    ]
