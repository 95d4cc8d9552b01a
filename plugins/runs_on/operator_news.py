"""What the operator says while it carries out a patch that starts a job: that job's id, its error, or old news."""

from __future__ import annotations

from collections.abc import Collection

from stateferry.airflow.kubernetes.errors import OperatorError
from stateferry.airflow.kubernetes.resource import FlinkResource, Resource
from stateferry.airflow.runs_on.operator_spec import RUNS


class StartNews:
    """Of a start with this nonce, asked for when the resource was as `before`; `ended` are jobs that are none of it.

    The operator looks at the job that was there before it reads the patch. So a failure of that one, which Flink has
    told us of already, comes after the patch, and isn't one of the start.
    """

    def __init__(self, resource: Resource, before: FlinkResource, nonce: int, ended: Collection[str | None]) -> None:
        self._resource, self._nonce, self._ended = resource, nonce, ended
        self._job_before, self._has_failed = before.job_status.get("jobId"), before.has_failed
        self._old_error = before.error

    def job_id(self, one: FlinkResource) -> str | None:
        """The id of the job that the operator has started for the patch; raises its error if it can't."""
        job = one.reconciled.get("job") or {}
        is_carried_out = job.get("savepointRedeployNonce") == self._nonce
        if is_carried_out:
            fails = one.error is not None or one.lifecycle == "FAILED"
        else:
            fails = one.error not in (None, self._old_error) and not self._is_of_job_before(one)
        if fails:
            raise OperatorError(f"the operator could not start {self._resource}, which is {one.in_words}")
        job_id = one.job_status.get("jobId")
        return (
            str(job_id) if is_carried_out and one.lifecycle in RUNS and job_id and job_id not in self._ended else None
        )

    def _is_of_job_before(self, one: FlinkResource) -> bool:
        """Whether the error came with the failure of the job before: it has one, and what comes later is another."""
        if self._has_failed or not one.has_failed or one.job_status.get("jobId") != self._job_before:
            return False
        self._has_failed, self._old_error = True, one.error
        return True
