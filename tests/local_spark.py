"""As much of Spark as the pipeline's steps use, in this process: tasks are done one after the other, as pickled."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest

from spark_jobs import cut_over, migrate, session, snapshot, staging_job, validate
from stateferry.migration.staging import FileTask, SendTask, SentEntries, add_counts, counts_of


class LocalSpark:
    """What steps ask of a session beside `run_tasks`."""

    class sparkContext:  # noqa: N801 Spark's own name
        defaultParallelism = 2  # noqa: N815 Spark's own name


def _run_tasks(_: object, __: str, work: Sequence[Any], do: Callable[[Any], Any], *___: object, **____: object) -> Any:
    return [_sent(do(_sent(one))) for one in work]


def _sent(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


def _watched(_: object, __: str, ___: int, job: Callable[[], Any], *____: object, **_____: object) -> Any:
    return job()


@dataclass(frozen=True, slots=True)
class _Received:
    staged: bytes


@dataclass(frozen=True, slots=True)
class _Exchanged:
    rows: Iterator[_Received]

    def collect(self) -> list[_Received]:
        return list(self.rows)


def _exchange(_: LocalSpark, senders: Sequence[SendTask], files: Sequence[FileTask]) -> _Exchanged:
    """What the shuffle does for `spark_jobs.exchange`: each new file's entries, in order, from all senders."""
    sent: dict[tuple[bytes, int], list[SentEntries]] = defaultdict(list)
    counts: dict[bytes, list[dict[str, Counter[str]]]] = defaultdict(list)
    for sender in map(_sent, senders):
        for subtask, entries in sender.send():
            sent[sender.rewrite.old.id, subtask].append(entries)
        counts[sender.rewrite.old.id].append(counts_of(sender.rewrite))
    return _Exchanged(_received(files, sent, counts))


def _received(
    files: Sequence[FileTask],
    sent: dict[tuple[bytes, int], list[SentEntries]],
    counts: dict[bytes, list[dict[str, Counter[str]]]],
) -> Iterator[_Received]:
    for task in files:
        operator = task.rewrite.old.id
        if (operator, task.subtask) in sent:
            entries = sorted(sent[operator, task.subtask], key=lambda one: (one.key_group, one.state))
            staged = task.receive(entries)
            yield _Received(pickle.dumps(replace(staged, counts=add_counts(counts.pop(operator, ())))))


def without_spark(patch: pytest.MonkeyPatch) -> None:
    """Commands that start Spark get this in its place."""
    patch.setattr(session, "session", lambda _: nullcontext(LocalSpark()))
    for step in (snapshot, migrate, staging_job, validate, cut_over):
        patch.setattr(step, "run_tasks", _run_tasks)
    patch.setattr(staging_job, "watched", _watched)
    patch.setattr(staging_job, "exchange", _exchange)
