"""Entries between key groups of different max parallelisms, carried by Spark's shuffle as few large rows."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from stateferry.migration.staging import FileTask, SendTask, SentEntries, add_counts, counts_of

# One row is what a task has for one key group and state of one operator.
_SENT = pa.schema(
    [
        ("file", pa.int32()),
        ("key_group", pa.int32()),
        ("state", pa.int32()),
        ("task", pa.int32()),
        ("number", pa.int64()),
        ("last_start", pa.int64()),
        ("data", pa.binary()),
    ]
)
_SENT_DDL = "file int, key_group int, state int, task int, number bigint, last_start bigint, data binary"
_BYTES_PER_BATCH = 32 << 20
# In the place of a key group: what a sender has counted. It comes before all entries.
_COUNTS = -1


def exchange(spark: SparkSession, senders: Sequence[SendTask], files: Sequence[FileTask]) -> DataFrame:
    """A row for each new file that got entries: its number among `files` and, pickled, the `StagedFile`."""
    by_file = {(task.rewrite.old.id, task.subtask): number for number, task in enumerate(files)}
    of_operator = {task.rewrite.old.id: number for number, task in enumerate(files)}

    def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                sender = senders[task]
                rows = (
                    (by_file[sender.rewrite.old.id, subtask], task, number, sent)
                    for number, (subtask, sent) in enumerate(sender.send())
                )
                yield from _batches(rows)
                # The shuffle brings what was counted exactly once, whatever is tried again.
                counted = np.frombuffer(pickle.dumps(counts_of(sender.rewrite)), np.uint8)
                yield _batch([_row(of_operator[sender.rewrite.old.id], task, -1, SentEntries(_COUNTS, 0, counted, 0))])

    def receive(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file, rows in groupby(_rows(batches), key=lambda row: row[0]):
            counts: list[dict[str, Counter[str]]] = []
            staged = files[file].receive(_without_counts((sent for _, sent in rows), counts))
            staged = replace(staged, counts=add_counts(counts))
            yield pa.RecordBatch.from_pydict({"file": [file], "staged": [pickle.dumps(staged)]}, schema=_RECEIVED)

    tasks = spark.range(0, len(senders), 1, len(senders))
    sent = tasks.mapInArrow(send, _SENT_DDL)
    ordered = sent.repartition(len(files), "file").sortWithinPartitions("file", "key_group", "state", "task", "number")
    return ordered.mapInArrow(receive, "file int, staged binary")


_RECEIVED = pa.schema([("file", pa.int32()), ("staged", pa.binary())])


def _without_counts(sent: Iterable[SentEntries], counts: list[dict[str, Counter[str]]]) -> Iterator[SentEntries]:
    for one in sent:
        if one.key_group == _COUNTS:
            counts.append(pickle.loads(one.data.tobytes()))
        else:
            yield one


def _row(file: int, task: int, number: int, sent: SentEntries) -> tuple[Any, ...]:
    return (file, sent.key_group, sent.state, task, number, sent.last_start, sent.data.tobytes())


def _batches(rows: Iterable[tuple[int, int, int, SentEntries]]) -> Iterator[pa.RecordBatch]:
    gathered: list[tuple[Any, ...]] = []
    size = 0
    for file, task, number, sent in rows:
        gathered.append(_row(file, task, number, sent))
        size += len(sent.data)
        if size >= _BYTES_PER_BATCH:
            yield _batch(gathered)
            gathered, size = [], 0
    if gathered:
        yield _batch(gathered)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _SENT, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_SENT)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, SentEntries]]:
    for batch in batches:
        files, key_groups, states, last_starts = (
            batch.column(name).to_pylist() for name in ("file", "key_group", "state", "last_start")
        )
        for row, data in enumerate(batch.column("data")):
            entries = np.frombuffer(data.as_buffer(), np.uint8)
            yield files[row], SentEntries(key_groups[row], states[row], entries, last_starts[row])
