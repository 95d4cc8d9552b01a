"""Jobs of the Flink Kubernetes Operator on a session cluster: a FlinkSessionJob.

Flink stops such a job over REST, and the operator starts the next one. For if the operator suspends it, it forgets the
id of the job, and then fails when the nonce changes (1.10 to 1.15). A job that has finished it leaves alone; one that
was cancelled it starts again.
"""

from __future__ import annotations

from stateferry.airflow.flink.savepoints import SavepointOrder, TakenSavepoint, find, found_in_the_end
from stateferry.airflow.flink.task import HOUR, for_good
from stateferry.airflow.kubernetes.resource import FlinkResource
from stateferry.airflow.runs_on.operator import Operator
from stateferry.airflow.runs_on.port import POLL_SECONDS


class SessionJobOperator(Operator):
    """The FlinkSessionJob of the job, and Flink's REST API of the session cluster."""

    def is_stopping(self, order: SavepointOrder) -> bool:
        return self._flink.hook.run(lambda rest: find(rest, order)) is not None

    def stop(self, order: SavepointOrder) -> TakenSavepoint:
        if not self.is_stopping(order):
            self.keep_spec()
        return self._flink.take_savepoint(order, timeout=6 * HOUR, poll_interval=POLL_SECONDS)

    def stopped_in_the_end(self, order: SavepointOrder) -> TakenSavepoint | None:
        with for_good():
            return self._flink.hook.run(
                lambda rest: found_in_the_end(rest, order, timeout=HOUR, poll_interval=POLL_SECONDS)
            )

    def _waits(self, now: FlinkResource) -> bool:
        before = self._before()
        # The operator starts a job again that was cancelled, and one that has failed if its options say so.
        return now.spec == before.spec and now.job_status.get("jobId") in (None, before.job_id)
