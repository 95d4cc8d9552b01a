"""`stateferry`, whose workers are those of the cluster that `PYSPARK_SUBMIT_ARGS` names."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager

from stateferry.cli import engine, main
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.spark_jobs.engine import submitted_workers
from stateferry.steps.workers import Watch, Workers


def _workers(
    application: str, watch: Watch, comes_first: ResolvedPlan | None = None
) -> AbstractContextManager[Workers]:
    return submitted_workers(application, watch)


if __name__ == "__main__":
    engine.local_workers = _workers
    sys.exit(main())
