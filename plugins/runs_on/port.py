"""What the tasks need of the place where jobs live: stop one with a snapshot, start another from it, and go back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from stateferry.airflow.flink.savepoints import SavepointOrder, TakenSavepoint
from stateferry.runs.record.runs import Run

# The job stands still while Flink is asked.
POLL_SECONDS = 0.5
# If Flink restarts the job without limit, the job never gets the state FAILED.
MOST_FAILURES = 3


class RunsOn(Protocol):
    """A place where jobs live. Each method may be called by several tries of a task, and does its work once.

    An error of Flink is raised as one of `flink.errors`; what no retry can help is an `AirflowFailException`.
    """

    def check(self) -> None:
        """Fails for good if the jobs can't be stopped and started as the request says; changes nothing."""

    def preview(self) -> Iterator[str]:
        """What a person who decides should see of the changes, as lines of Markdown."""

    def is_stopping(self, order: SavepointOrder) -> bool:
        """Whether an earlier try has begun to stop the job by this order."""

    def stop(self, order: SavepointOrder) -> TakenSavepoint:
        """Stops the old job with a snapshot of the order's format, and tells where that is."""

    def stopped_in_the_end(self, order: SavepointOrder) -> TakenSavepoint | None:
        """The snapshot of an order whose task has ended, waited for; None if the job isn't stopped by it."""

    @property
    def new_job_id(self) -> str | None:
        """The id that the new job will have; None if the place gives it one when it starts."""

    def has_started(self, savepoint: str) -> bool:
        """Whether an earlier try has begun to start the new job from the savepoint."""

    def start(self, run: Run, savepoint: str, *, timeout: float) -> dict[str, Any]:
        """Starts the new job from the savepoint, and waits until it has completed a checkpoint."""

    def new_job(self, run: Run) -> str | None:
        """The id of the new job if it was, or may have been, started for this run."""

    def start_old(self, savepoint: str) -> dict[str, Any]:
        """Starts the old job again, and waits until it has completed a checkpoint, if it takes any."""
