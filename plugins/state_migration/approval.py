"""Asks a person to approve the report. A rejection, or no answer in time, ends the run as rejected."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.standard.exceptions import HITLRejectException, HITLTimeoutError
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException

from state_migration.summary import report_summary
from state_migration.the_run import check_not_returned, refused_in_words, request_of, run_of, skip
from stateferry.durations import now_ms, parse_duration
from stateferry.printable import printable
from stateferry.runs.publications import Control
from stateferry.runs.rejecting import approve, reject
from stateferry.runs.report import Report
from stateferry.runs.runs import Run

if TYPE_CHECKING:
    from airflow.sdk import Context


class Asking(ApprovalOperator):
    """An approval that fails the task for good on rejection or timeout, with the person and the reason.

    A try that is lost for another reason, such as a lost process, asks the same question again.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(subject="", body="", fail_on_reject=True, **kwargs)

    def ask(self, context: Context, subject: str, body: str, timeout: str) -> NoReturn:
        """Asks the question and waits for the answer in the triggerer."""
        self.subject, self.body = subject, body
        self.response_timeout = timedelta(milliseconds=parse_duration(timeout))
        super().execute(context)
        raise AssertionError("an approval waits for its answer")

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        try:
            answer = super().execute_complete(context, event)
        except HITLTimeoutError:
            self._end(context, "nobody has approved it in time")
        except HITLRejectException:
            self._end(context, f"rejected by {_who(event)}")
        self.approved(context, _who(event))
        return {"approved_by": _who(event), "at": str(answer["responded_at"])}

    def approved(self, context: Context, who: str) -> None:
        """Called after an approval; subclasses record it here."""

    def rejected(self, context: Context, reason: str) -> None:
        """Called after a rejection; subclasses record it here."""

    def _end(self, context: Context, reason: str) -> NoReturn:
        self.rejected(context, reason)
        raise AirflowFailException(f"{reason}: nothing is changed")


class ApproveRun(Asking):
    """Asks whether to publish the run."""

    def execute(self, context: Context) -> Any:
        request, run = request_of(context), run_of(context)
        check_not_returned(run)
        if run.plan.rehearse:
            skip(self.log, "a rehearsal needs no approval")
        if not request.approval:
            _approve(run, "approval is switched off")
            skip(self.log, "approval is switched off")
        with refused_in_words():
            body = report_summary(Report.read(run.report), run.plan)
        self.ask(context, f"Cut over job {printable(run.plan.job)}?", body, request.approval_timeout)

    def approved(self, context: Context, who: str) -> None:
        _approve(run_of(context), f"approved by {who}")

    def rejected(self, context: Context, reason: str) -> None:
        run = run_of(context)
        with refused_in_words(), Control(run.plan.catalog_uri) as control:
            reject(run, control, reason)


def _approve(run: Run, reason: str) -> None:
    with refused_in_words(), Control(run.plan.catalog_uri) as control:
        approve(run, control, now_ms(), reason)


def _who(event: Mapping[str, Any]) -> str:
    user = event.get("responded_by_user") or {}
    return str(user.get("name") or user.get("id") or "somebody")
