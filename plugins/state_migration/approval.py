"""Asks a person to approve the report. A rejection, or no answer in time, ends the run as rejected."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput
from airflow.sdk.execution_time.hitl import upsert_hitl_detail

from state_migration.dag_run import check_not_returned, fail_if_refused, request_of, run_of, skip
from state_migration.summary import report_summary
from stateferry.durations import now_ms, parse_duration
from stateferry.printable import printable
from stateferry.runs.publications import Control
from stateferry.runs.rejecting import approve, reject
from stateferry.runs.report import Report
from stateferry.runs.runs import Run

if TYPE_CHECKING:
    from airflow.sdk import Context

_APPROVE, _REJECT = "Approve", "Reject"


class AskForApproval(BaseOperator):
    """A task that asks a person, and fails for good on rejection or timeout, with the person and the reason.

    A try that is lost for another reason, such as a lost process, asks the same question again.
    """

    def ask(self, context: Context, subject: str, body: str, timeout: str) -> NoReturn:
        """Asks the question; the task then waits for the answer without a worker."""
        upsert_hitl_detail(context["ti"].id, [_APPROVE, _REJECT], subject, body, params={})
        self.log.info("waiting for an answer, at most %s: %s", timeout, subject)
        raise TaskAwaitingInput(method_name="execute_complete", timeout=timedelta(milliseconds=parse_duration(timeout)))

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Called with the answer, or with an error if there is none in time."""
        if event.get("error_type") == "timeout":
            self._end(context, "no answer came in time")
        if "error" in event:
            raise RuntimeError(f"Airflow could not get the answer: {event['error']}")
        if event["chosen_options"] != [_APPROVE]:
            self._end(context, f"rejected by {_who(event)}")
        self.approved(context, _who(event))
        return {"approved_by": _who(event), "at": str(event["responded_at"])}

    def approved(self, context: Context, who: str) -> None:
        """Called after an approval; subclasses record it here."""

    def rejected(self, context: Context, reason: str) -> None:
        """Called after a rejection; subclasses record it here."""

    def _end(self, context: Context, reason: str) -> NoReturn:
        self.rejected(context, reason)
        raise AirflowFailException(f"{reason}. Nothing has been changed")


class ApproveRun(AskForApproval):
    """Asks whether to publish the run."""

    def execute(self, context: Context) -> Any:
        request, run = request_of(context), run_of(context)
        check_not_returned(run)
        if run.plan.rehearse:
            skip(self.log, "a rehearsal needs no approval")
        if not request.approval:
            _approve(run, "approval is switched off")
            skip(self.log, "approval is switched off")
        with fail_if_refused():
            body = report_summary(Report.read(run.report), run.plan)
        self.ask(context, f"Cut over job {printable(run.plan.job)}?", body, request.approval_timeout)

    def approved(self, context: Context, who: str) -> None:
        _approve(run_of(context), f"approved by {who}")

    def rejected(self, context: Context, reason: str) -> None:
        run = run_of(context)
        with fail_if_refused(), Control(run.plan.catalog_uri) as control:
            reject(run, control, reason)


def _approve(run: Run, reason: str) -> None:
    with fail_if_refused(), Control(run.plan.catalog_uri) as control:
        approve(run, control, now_ms(), reason)


def _who(event: Mapping[str, Any]) -> str:
    user = event.get("responded_by_user") or {}
    return str(user.get("name") or user.get("id") or "somebody")
