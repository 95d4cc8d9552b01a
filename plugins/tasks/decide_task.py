"""The decision before the outage: asks on the rehearsal, while the job runs, and waits until the job may be stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stateferry.airflow.dag_runs.dag_run import REHEARSAL_AGAIN, fail_if_refused, leave_out, rehearsal_of, request_of
from stateferry.airflow.dag_runs.decision_summary import decision_summary, subject_of
from stateferry.airflow.dag_runs.task_names import of_group
from stateferry.airflow.dag_runs.when_to_stop import (
    NOT_STOPPED,
    approved_decision,
    check_may_be_published,
    check_outage_fits,
    check_window_fits,
    rehearsal_must_be_made_again,
    wait_until_the_job_may_stop,
)
from stateferry.airflow.requests.request_parts import APPROVAL_IS_OFF, Approval
from stateferry.airflow.runs_on.places import place_of
from stateferry.airflow.tasks.approval import AskForApproval
from stateferry.basics.durations import now_ms
from stateferry.basics.printable import printable
from stateferry.runs.predict.prediction import predicted_after
from stateferry.runs.record.catch_ups import base_of_cut_over
from stateferry.runs.record.runs import Run
from stateferry.runs.report.decision import Answer, Decision, Sign, answered

if TYPE_CHECKING:
    from airflow.sdk import Context


class AskWhileTheJobRuns(AskForApproval):
    """A question about the rehearsal of this DAG run. After a no, the job runs on."""

    def how(self, context: Context) -> Approval:
        return request_of(context)

    def job(self, context: Context) -> str:
        return rehearsal_of(context).plan.job

    def rejected(self, context: Context, reason: str) -> None:
        with fail_if_refused():
            answered(rehearsal_of(context), Answer.REJECTED, reason, now_ms())
        self.log.info("%s. %s", printable(reason), NOT_STOPPED)


class Decide(AskWhileTheJobRuns):
    """Asks whether to cut over as the rehearsal has shown; nothing stands still until after the answer."""

    def execute(self, context: Context) -> Any:
        request, rehearsal = request_of(context), rehearsal_of(context)
        with fail_if_refused():
            before = rehearsal.facts(Decision)
        if before is not None and before.answer is not Answer.ASKED:
            # An earlier try was lost after the answer.
            return _answer_words(approved_decision(rehearsal))
        with fail_if_refused():
            foreseen = predicted_after(base_of_cut_over(rehearsal) or rehearsal)
            rehearsal.keep(Decision(rehearsal.plan.run_id, may_differ=request.tolerance, foreseen=foreseen))
        check_may_be_published(rehearsal)
        check_window_fits(request, foreseen)
        check_outage_fits(request, foreseen)
        if not request.approval:
            return _approve(rehearsal, APPROVAL_IS_OFF)
        with fail_if_refused():
            subject, body = subject_of(rehearsal, foreseen), decision_summary(request, rehearsal, foreseen)
        if changes := "\n".join(place_of(request, context).preview()):
            body = f"{body}\n\n{changes}"
        return self.ask(context, rehearsal.plan.job, subject, body, request)

    def approved(self, context: Context, who: str) -> None:
        _approve(rehearsal_of(context), f"approved by {who}")


class WaitToStop(AskWhileTheJobRuns):
    """Waits until the approved cut-over may begin: for a person's sign if the request wants one, and for the window.

    If the rehearsal is too old by then, it waits until it is time to make it again; else it skips the tasks that would.

    It keeps nothing but the sign: each try looks at the clock anew.
    """

    def execute(self, context: Context) -> Any:
        request, rehearsal = request_of(context), rehearsal_of(context)
        decision = approved_decision(rehearsal)
        with fail_if_refused():
            signed = rehearsal.facts(Sign) is not None
        if not request.on_sign or signed:
            return self._wait_for_window(context)
        job = printable(rehearsal.plan.job)
        body = (
            f"The job runs. Its cut-over is {printable(decision.reason)}.\n\nApprove: the job is stopped as soon as it "
            "may. Reject: it runs on, and this run ends."
        )
        return self.ask(context, rehearsal.plan.job, f"Stop job {job} now?", body, request)

    def execute_complete(self, context: Context, event: dict[str, Any], answer_by: int | None = None) -> Any:
        super().execute_complete(context, event, answer_by)
        return self._wait_for_window(context)

    def subject(self, context: Context) -> str:
        return f"Stop job {printable(self.job(context))} now?"

    def approved(self, context: Context, who: str) -> None:
        rehearsal_of(context).keep(Sign(who, now_ms()))

    def _wait_for_window(self, context: Context) -> None:
        """Returns when the job may be stopped, or when the rehearsal must be made again before that."""
        if not rehearsal_must_be_made_again(context, self.log):
            wait_until_the_job_may_stop(context, self.log)
            why = "the rehearsal that was approved isn't too old"
            leave_out(self, context, dict.fromkeys(of_group(REHEARSAL_AGAIN), why))


def _approve(rehearsal: Run, reason: str) -> dict[str, Any]:
    with fail_if_refused():
        return _answer_words(answered(rehearsal, Answer.APPROVED, reason, now_ms()))


def _answer_words(decision: Decision) -> dict[str, Any]:
    outage = decision.foreseen.outage if decision.foreseen is not None else None
    return {"answer": decision.reason, "rehearsal": decision.rehearsal, "outage": outage.seconds if outage else None}
