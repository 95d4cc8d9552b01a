"""The run of a cut-over that was decided on its rehearsal: what it begins with, and whether it is like that one."""

from __future__ import annotations

from stateferry.airflow.dag_runs.dag_run import fail_if_refused
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.requests.request_parts import APPROVAL_IS_OFF
from stateferry.basics.durations import now_ms
from stateferry.basics.printable import printable
from stateferry.basics.quantities import percent
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.rejecting import approve, reject
from stateferry.runs.predict.differences import beyond, is_newer
from stateferry.runs.predict.estimates import Prediction
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.report.decision import Decision


def begin_as_decided(run: Run, decision: Decision) -> None:
    """Keeps with the run that it was decided on, and what was predicted to the person who decided."""
    run.keep(decision)
    if decision.foreseen is not None and run.stored(Prediction) is None:
        run.keep(decision.foreseen)


def check_like_rehearsal(run: Run) -> None:
    """Rejects the run if its source differs from that of its rehearsal by more than was approved.

    Then the old job is started again: a later task sees that this one has failed. Nothing is checked of a run that was
    not decided on a rehearsal.
    """
    with fail_if_refused():
        decision = run.facts(Decision)
        if decision is None:
            return
        rehearsal = Run.open(run_folder(run.plan.home, run.plan.job, decision.rehearsal))
        problems = [one.text for one in beyond(rehearsal, run, decision.may_differ)]
        if not is_newer(rehearsal, run):
            problems.append(f"{run.plan.source} is not newer than {rehearsal.plan.source}")
        if not problems:
            return
        reason = (
            f"it differs from rehearsal {decision.rehearsal} by more than {percent(decision.may_differ)}: "
            f"{'; '.join(problems)}"
        )
        if run.state is not RunState.REJECTED:
            with Control(run.plan.catalog_uri) as control:
                reject(run, control, reason)
                control.release_between_steps(run.plan.job, run.plan.run_id)
    raise refusal(f"run {run.plan.run_id} is not published, because {printable(reason)}")


def approve_if_nobody_is_asked(run: Run, request: MigrationRequest) -> None:
    """Approves the validated run as its rehearsal was approved, or because the request switches approval off."""
    with fail_if_refused():
        decision = run.facts(Decision)
        if decision is not None:
            reason = f"{decision.reason}, on rehearsal {decision.rehearsal}"
        elif not (run.plan.rehearse or request.stops_job or request.approval):
            reason = APPROVAL_IS_OFF
        else:
            return
        if run.state is RunState.VERIFIED:
            with Control(run.plan.catalog_uri) as control:
                approve(run, control, now_ms(), reason)
