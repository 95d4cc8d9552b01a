"""What every step's application does after spark-submit has started it."""

from __future__ import annotations

from spark_jobs.startup.import_path import prefer_installed


def carry_out(step: str) -> int:
    """Carries out the step that the arguments describe, and returns the exit code."""
    prefer_installed()
    # The imports come after that. They take seconds; in a local application, the workers' imports run meanwhile.
    from spark_jobs.session import workers_prepared

    with workers_prepared():
        from spark_jobs.engine import submitted_workers
        from stateferry.cli.step import main
        from stateferry.runs.facts import Step

        return main(Step(step), submitted_workers)
