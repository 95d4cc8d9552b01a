"""What the applications of steps do after spark-submit has started them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stateferry.spark_jobs.startup.import_path import prefer_installed


def carry_out(step: str) -> int:
    """Carries out the step that the arguments describe, and returns the exit code."""
    with _started():
        from stateferry.cli.step import main
        from stateferry.runs.record.steps import Step
        from stateferry.spark_jobs.engine import submitted_workers

        return main(Step(step), submitted_workers)


def carry_out_steps() -> int:
    """Carries out the steps that it is asked for, and returns the exit code."""
    with _started():
        from stateferry.cli.shared_steps import main
        from stateferry.spark_jobs.engine import submitted_workers

        return main(submitted_workers)


@contextmanager
def _started() -> Iterator[None]:
    """Imports come in here, as they take seconds; in a local application, the workers' imports run meanwhile."""
    prefer_installed()
    from stateferry.spark_jobs.session import workers_prepared

    with workers_prepared():
        yield
