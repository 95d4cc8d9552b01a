"""Watches the progress of a Spark job while it runs."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkContext

from stateferry.runs.record.live_progress import LiveProgress
from stateferry.steps.workers import Watch

_POLL_SECONDS = 0.5
_numbers = itertools.count()
Answer = TypeVar("Answer")


def watched(
    sc: SparkContext,
    step: str,
    total: int,
    job: Callable[[], Answer],
    watch: Watch,
    amount: Callable[[], int] = lambda: 0,
    unit: str = "",
    done_before: int = 0,
    tasks: int | None = None,
    seconds_before: float = 0.0,
) -> Answer:
    """Runs the job and returns its result; meanwhile calls `watch` with its progress.

    The progress is the number of finished tasks of the job's last stage, plus `done_before`. The job has `tasks`, or
    all that are not done.
    """
    # Each call has its own group, because an earlier job of the same name would count as progress.
    group = f"stateferry-{step}-{next(_numbers)}"
    ended = threading.Event()
    began = time.monotonic() - seconds_before

    def progress(done: int, at_work: int = 0, *, ended: bool = False) -> LiveProgress:
        return LiveProgress(step, done, total, time.monotonic() - began, amount(), unit, ended, at_work)

    def poll() -> None:
        while not ended.wait(_POLL_SECONDS):
            try:
                done, at_work = _done(sc, group)
            except (Py4JError, OSError):
                # The JVM is lost; the job itself reports that.
                return
            watch(progress(min(done_before + done, total), at_work))

    poller = threading.Thread(target=poll, daemon=True, name=f"progress of {step}")
    sc.setJobGroup(group, f"stateferry: {step}", interruptOnCancel=True)
    poller.start()
    try:
        answer = job()
    finally:
        ended.set()
        poller.join()
        sc.setJobGroup("", "")
    done = total if tasks is None else done_before + tasks
    watch(progress(done, ended=done == total))
    return answer


def _done(sc: SparkContext, group: str) -> tuple[int, int]:
    """How many tasks of the job's last stage are done, and how many are at work."""
    tracker = sc.statusTracker()
    done, at_work = 0, 0
    for job_id in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job_id)
        stages = sorted(info.stageIds) if info else []
        stage = tracker.getStageInfo(stages[-1]) if stages else None
        if stage:
            done, at_work = stage.numCompletedTasks, stage.numActiveTasks
    return done, at_work
