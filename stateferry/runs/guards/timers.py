"""Whether a native savepoint of a job would hold its timers.

Flink leaves timers that a job keeps on the heap out of native savepoints, without an error. A checkpoint of RocksDB has
them as raw keyed state; timers that RocksDB keeps are states. So a checkpoint without any raw keyed state shows that a
native savepoint of the same job lacks nothing. A savepoint doesn't show it.
"""

from __future__ import annotations

from flinkstate.metadata.metadata import Metadata, Subtask
from flinkstate.metadata.savepoint_properties import is_savepoint
from stateferry.runs.record.facts import ShownTimers
from stateferry.runs.record.run_list import readable_runs
from stateferry.runs.record.run_states import GREEN


def shown_timers(metadata: Metadata) -> ShownTimers | None:
    """What a run's source shows of the job's timers; None if it shows nothing."""
    subtasks = [subtask for operator in metadata.operators for subtask in operator.subtasks]
    if is_savepoint(metadata) or all(subtask.native_keyed is None for subtask in subtasks):
        return None
    return ShownTimers(in_native_savepoints=not any(map(_may_be_on_the_heap, subtasks)))


def _may_be_on_the_heap(subtask: Subtask) -> bool:
    """Whether a checkpoint has timers of the subtask that a native savepoint wouldn't have."""
    native = subtask.native_keyed
    return subtask.raw_keyed is not None or (native is not None and native.timers is not None)


def are_in_native_savepoints(home: str, job: str) -> bool:
    """Whether the newest green run of the job whose source shows it has shown that native savepoints lack no timers."""
    for run in readable_runs(home, job, GREEN):
        if (shown := run.facts_if_sound(ShownTimers)) is not None:
            return shown.in_native_savepoints
    return False
