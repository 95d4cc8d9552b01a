"""Spark as the engine of the steps: for commands on this machine, and for applications started by spark-submit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext

from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.record.steps import Step
from stateferry.spark_jobs.session import session, slots, submitted_session
from stateferry.spark_jobs.startup.head_start import HeadStart
from stateferry.spark_jobs.workers import SparkWorkers
from stateferry.steps.snapshot import first_work
from stateferry.steps.workers import Watch


@contextmanager
def local_workers(application: str, watch: Watch, comes_first: ResolvedPlan | None = None) -> Iterator[SparkWorkers]:
    """Workers on the active session, or on a local one that is started.

    This process begins the snapshot of the plan `comes_first` while Spark starts.
    """
    ahead = None if comes_first is None else HeadStart(Step.SNAPSHOT, *first_work(comes_first, slots()))
    with session(application, ahead.start if ahead else lambda: None) as sc:
        _wait_for_workers(sc)
        yield SparkWorkers(sc, watch, ahead)


@contextmanager
def submitted_workers(application: str, watch: Watch) -> Iterator[SparkWorkers]:
    """Workers of an application that spark-submit has started."""
    with submitted_session(application) as sc:
        _wait_for_workers(sc)
        yield SparkWorkers(sc, watch)


def _wait_for_workers(sc: SparkContext) -> None:
    """Returns when Python workers have started: no step's time has that in it, so times of runs can be compared."""
    workers = SparkWorkers(sc)
    list(workers.do("start", range(workers.at_once), int))
