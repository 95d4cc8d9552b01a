"""Decides which runs a cleaning may remove."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from stateferry.durations import MILLISECONDS_PER_UNIT
from stateferry.runs.runs import RunSummary


@dataclass(frozen=True, slots=True)
class Retention:
    """A run stays while it is among the newest of its job or was changed recently."""

    newest: int = 3
    younger_than_ms: int = 14 * MILLISECONDS_PER_UNIT["d"]


def removable(runs: Iterable[RunSummary], keep: Collection[str], rule: Retention, now: int) -> list[RunSummary]:
    """The runs of one job that may be removed, the oldest first.

    `keep` are the ids of runs that must stay: the published run, and the one that a rollback brings back.
    """
    newest_first = sorted(runs, key=lambda run: (run.planned_at, run.run_id), reverse=True)
    old = [
        run
        for run in newest_first[rule.newest :]
        if run.run_id not in keep and run.folder.name not in keep and run.changed_at + rule.younger_than_ms <= now
    ]
    return old[::-1]
