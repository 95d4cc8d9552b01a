"""Asks a person to approve the report. A rejection, or no answer in time, ends the run as rejected."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import TaskAwaitingInput
from airflow.sdk.execution_time.hitl import HITLUser, upsert_hitl_detail

from stateferry.airflow.dag_runs.dag_run import check_not_returned, fail_if_refused, request_of, run_of, skip
from stateferry.airflow.dag_runs.decision_summary import lines_of_a_run
from stateferry.airflow.dag_runs.notices import tell
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.dag_runs.summary import report_summary
from stateferry.airflow.requests.request_parts import APPROVAL_IS_OFF, Approval
from stateferry.basics.durations import now_ms, parse_duration, rough_duration
from stateferry.basics.printable import printable
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.rejecting import approve, reject
from stateferry.runs.record.runs import Run
from stateferry.runs.report.decision import Decision
from stateferry.runs.report.report import Report

if TYPE_CHECKING:
    from airflow.sdk import Context

_APPROVE, _REJECT = "Approve", "Reject"
# The least time for another person, if the first answer came late.
_ASK_AGAIN_MS = 60_000
# People are reminded when a quarter of the time is left, but at most an hour; not if that is less than a minute.
_SHARE_LEFT, _MOST_LEFT_MS, _LEAST_LEFT_MS = 4, 3_600_000, 60_000


class AskForApproval(BaseOperator):
    """A task that asks a person, and fails for good on rejection or timeout, with the person and the reason.

    A try that is lost for another reason, such as a lost process, asks the same question again.
    """

    def ask(self, context: Context, job: str, subject: str, body: str, how: Approval) -> NoReturn:
        """Asks the question; the task then waits for the answer without a worker."""
        who, own = how.asked(), triggered_by(context)
        if how.four_eyes and own is not None:
            body = (
                f"{body}\n\n**Four eyes**: {printable(own)} has triggered this run, so another person must approve it."
            )
        users = [HITLUser(id=user, name=user) for user in who]
        upsert_hitl_detail(context["ti"].id, [_APPROVE, _REJECT], subject, body, params={}, assigned_users=users)
        by = f", by {', '.join(who)}" if who else ""
        self.log.info("waiting for an answer%s, at most %s: %s", by, how.approval_timeout, subject)
        asked = subject if subject.endswith("?") else f"{subject}."
        tell(context, "waiting", job, f"{asked} An answer is waited for, at most {how.approval_timeout}{by}")
        self._wait(parse_duration(how.approval_timeout))

    def _wait(self, milliseconds: int, *, remind: bool = True) -> NoReturn:
        """Waits for so long; unless people were reminded, Airflow says in between that there is no answer yet."""
        left = min(milliseconds // _SHARE_LEFT, _MOST_LEFT_MS)
        timeout = timedelta(milliseconds=milliseconds - (left if remind and left >= _LEAST_LEFT_MS else 0))
        kwargs = {"answer_by": now_ms() + milliseconds}
        raise TaskAwaitingInput(method_name="execute_complete", kwargs=kwargs, timeout=timeout)

    def _remind(self, context: Context, left: int) -> NoReturn:
        """Says that the time is nearly over. An answer that comes meanwhile is taken when the task waits again."""
        how = self.how(context)
        by = f" by {', '.join(how.asked())}" if how.asked() else ""
        text = (
            f"{self.subject(context)} There is still no answer{by}. Without one in {rough_duration(left)}, the run "
            "ends as rejected"
        )
        self.log.warning("%s", printable(text))
        tell(context, "reminder", self.job(context), text)
        self._wait(left, remind=False)

    def _ask_again(self, context: Context, who: str, answer_by: int | None) -> NoReturn:
        """Removes the answer. Airflow keeps the question as it was, so the log and a notice say why."""
        upsert_hitl_detail(context["ti"].id, [_APPROVE, _REJECT], "", params={})
        why = (
            f"{who} has approved, but has also triggered this run, and with four eyes another person must approve. The "
            "question is asked again"
        )
        self.log.warning("%s", printable(why))
        tell(context, "waiting", self.job(context), why)
        self._wait(max((answer_by or 0) - now_ms(), _ASK_AGAIN_MS))

    def execute_complete(self, context: Context, event: dict[str, Any], answer_by: int | None = None) -> Any:
        """Called with the answer, or with an error if there is none in time."""
        if event.get("error_type") == "timeout":
            if answer_by is not None and (left := answer_by - now_ms()) > 0:
                self._remind(context, left)
            self._end(context, "no answer came in time")
        if "error" in event:
            raise RuntimeError(f"Airflow could not get the answer: {event['error']}")
        if event["chosen_options"] != [_APPROVE]:
            self._end(context, f"rejected by {_who(event)}")
        if self.how(context).four_eyes and _who(event) == triggered_by(context):
            self._ask_again(context, _who(event), answer_by)
        self.approved(context, _who(event))
        return {"approved_by": _who(event), "at": str(event["responded_at"])}

    def how(self, context: Context) -> Approval:
        """What the request says of the approval."""
        raise NotImplementedError

    def job(self, context: Context) -> str:
        """The job's name."""
        raise NotImplementedError

    def subject(self, context: Context) -> str:
        """What is asked, in short."""
        return f"Cut over job {printable(self.job(context))}?"

    def approved(self, context: Context, who: str) -> None:
        """Called after an approval; subclasses record it here."""

    def rejected(self, context: Context, reason: str) -> None:
        """Called after a rejection; subclasses record it here."""

    def _end(self, context: Context, reason: str) -> NoReturn:
        self.rejected(context, reason)
        raise refusal(f"{reason}. Nothing has been changed")


class ApproveRun(AskForApproval):
    """Asks whether to publish the run."""

    def execute(self, context: Context) -> Any:
        request, run = request_of(context), run_of(context)
        check_not_returned(run)
        if run.plan.rehearse:
            skip(self.log, "a rehearsal needs no approval")
        with fail_if_refused():
            decision = run.facts(Decision)
        if decision is not None:
            skip(self.log, "it was decided on the rehearsal, before the job was stopped")
        if not request.approval:
            # The task `validate` has approved it, unless a person has cleared this task alone.
            _approve(run, APPROVAL_IS_OFF)
            skip(self.log, APPROVAL_IS_OFF)
        with fail_if_refused():
            body = f"{report_summary(Report.read(run.report), run.plan)}\n\n{lines_of_a_run(request)}"
        self.ask(context, run.plan.job, f"Cut over job {printable(run.plan.job)}?", body, request)

    def how(self, context: Context) -> Approval:
        return request_of(context)

    def job(self, context: Context) -> str:
        return run_of(context).plan.job

    def approved(self, context: Context, who: str) -> None:
        _approve(run_of(context), f"approved by {who}")

    def rejected(self, context: Context, reason: str) -> None:
        run = run_of(context)
        with fail_if_refused(), Control(run.plan.catalog_uri) as control:
            reject(run, control, reason)


def _approve(run: Run, reason: str) -> None:
    with fail_if_refused(), Control(run.plan.catalog_uri) as control:
        approve(run, control, now_ms(), reason)


def triggered_by(context: Context) -> str | None:
    """The name of the person who has triggered the DAG run; None for a run of the schedule."""
    name: str | None = context["dag_run"].triggering_user_name
    return name


def _who(event: Mapping[str, Any]) -> str:
    user = event.get("responded_by_user") or {}
    return str(user.get("name") or user.get("id") or "somebody")
