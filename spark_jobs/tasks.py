"""Library tasks on Spark: each piece of work is one Spark task and answers with one small object."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import SparkSession

Work = TypeVar("Work")
Fact = TypeVar("Fact")

_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a step has come."""

    step: str
    done: int
    total: int
    seconds: float


Watch = Callable[[Progress], None]


def run_tasks(
    spark: SparkSession, step: str, work: Sequence[Work], do: Callable[[Work], Fact], watch: Watch = lambda _: None
) -> list[Fact]:
    """Does all the work, a task for each piece, and returns the facts in the order of the work."""
    if not work:
        return []
    pieces = spark.sparkContext.parallelize(list(enumerate(work)), len(work))

    def job() -> list[tuple[int, Fact]]:
        return pieces.map(lambda numbered: (numbered[0], do(numbered[1]))).collect()

    facts = dict(watched(spark, step, len(work), job, watch))
    return [facts[number] for number in range(len(work))]


Answer = TypeVar("Answer")


def watched(spark: SparkSession, step: str, total: int, job: Callable[[], Answer], watch: Watch) -> Answer:
    """The job's answer; meanwhile `watch` hears how many of its last stage's tasks are done."""
    context = spark.sparkContext
    group = f"stateferry-{step}"
    ended = threading.Event()
    began = time.monotonic()

    def poll() -> None:
        tracker = context.statusTracker()
        while not ended.wait(_POLL_SECONDS):
            done = 0
            for job_id in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job_id)
                stages = sorted(info.stageIds) if info else []
                stage = tracker.getStageInfo(stages[-1]) if stages else None
                done = stage.numCompletedTasks if stage else done
            watch(Progress(step, min(done, total), total, time.monotonic() - began))

    poller = threading.Thread(target=poll, daemon=True, name=f"progress of {step}")
    context.setJobGroup(group, f"stateferry: {step}", interruptOnCancel=True)
    poller.start()
    try:
        answer = job()
    finally:
        ended.set()
        poller.join()
        context.setJobGroup("", "")
    watch(Progress(step, total, total, time.monotonic() - began))
    return answer
