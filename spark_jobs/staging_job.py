"""The staged savepoint's keyed files, written by Spark tasks."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from pyspark.sql import SparkSession

from spark_jobs.exchange import exchange
from spark_jobs.tasks import Measure, run_tasks
from spark_jobs.watching import Watch, watched
from stateferry.key_groups import KeyGroupRange
from stateferry.migration.staging import FileTask, SendTask, StagedFile, file_tasks
from stateferry.savepoint.chunks import plan_chunks
from stateferry.savepoint.rewrite import OperatorRewrite


def stage_files(
    spark: SparkSession, rewrites: Sequence[OperatorRewrite], folder: str, chunk_bytes: int, watch: Watch
) -> list[StagedFile]:
    """Key groups that stay are copied by one task for each new file; the others go through Spark's shuffle."""
    files = file_tasks(rewrites, folder)
    stay = [task for task in files if not task.rewrite.destination.is_elsewhere]
    move = [task for task in files if task.rewrite.destination.is_elsewhere]
    copied = run_tasks(spark, "rescale", stay, FileTask.copy, watch, Measure("B", _size))
    return copied + _exchanged(spark, move, chunk_bytes, watch)


def _size(file: StagedFile) -> int:
    return file.size


def _exchanged(spark: SparkSession, files: Sequence[FileTask], chunk_bytes: int, watch: Watch) -> list[StagedFile]:
    if not files:
        return []
    rewrites = list({task.rewrite.old.id: task.rewrite for task in files}.values())
    senders = [sender for rewrite in rewrites for sender in send_tasks(rewrite, chunk_bytes)]
    received: list[StagedFile] = []
    if senders:
        rows = exchange(spark, senders, files)
        answered = watched(spark, "rescale", len(files), rows.collect, watch)
        received = [pickle.loads(row.staged) for row in answered]
    there = {(file.operator, file.subtask) for file in received}
    # A file that nothing is sent to has its header all the same.
    empty = [task.receive(()) for task in files if (task.rewrite.old.id, task.subtask) not in there]
    return received + empty


def send_tasks(rewrite: OperatorRewrite, chunk_bytes: int) -> list[SendTask]:
    """Runs of old key groups with about `chunk_bytes` of state each."""
    chunks = plan_chunks(rewrite.old, target_bytes=chunk_bytes)
    return [SendTask(rewrite, KeyGroupRange(min(chunk.key_groups), max(chunk.key_groups))) for chunk in chunks]
