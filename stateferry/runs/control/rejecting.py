"""A person's approval or rejection of a run. A rejection is final.

The record in the catalog decides. The state in the run's folder is for people, and follows the record: each command
that finds a difference corrects it.
"""

from __future__ import annotations

from stateferry.basics.durations import moment, now_ms
from stateferry.runs.catalog.processes import Process
from stateferry.runs.catalog.publications import Control, RunEndedError
from stateferry.runs.record.run_states import RunState, StateChange
from stateferry.runs.record.runs import Run


def reject(run: Run, control: Control, reason: str) -> None:
    """Rejects a run that is not published; an error says so if it is.

    If the run kept its lease between two steps, the lease is released if its holder is known to have ended. Otherwise
    it expires.
    """
    run.check(RunState.REJECTED)
    rejection = control.reject(run.plan.job, run.plan.run_id, reason)
    run.enter(RunState.REJECTED, rejection.at, rejection.reason)
    held = control.lease_of(run.plan.job)
    if held is not None and held.run_id == run.plan.run_id and Process.parse(held.holder).is_over:
        control.release(held)


def approve(run: Run, control: Control, now: int, reason: str) -> None:
    """Approves the run, for the reason that is given."""
    _say_in_folder(run, control)
    run.enter(RunState.APPROVED, now, reason)


def check_may_continue(run: Run, control: Control) -> StateChange:
    """Raises an error if the run was rejected or rolled back; else returns its last change."""
    if not run.changes():
        # Whoever planned it was killed before the run got its first state.
        run.enter(RunState.PLANNED, now_ms())
    _say_in_folder(run, control)
    last = run.changes()[-1]
    when = moment(last.at)
    again = (
        "To do the same work again, start a new run: give another --target (and another run_id, if the plan has one), "
        "or trigger a new DAG run"
    )
    name = f"run {run.plan.run_id} of job {run.plan.job}"
    if last.state is RunState.REJECTED:
        raise RunEndedError(
            f"{name} was rejected at {when}: {last.reason}. It does not continue and is not published. {again}"
        )
    if last.state is RunState.ROLLED_BACK:
        raise RunEndedError(
            f"{name} was rolled back at {when}. It does not continue and is not published again. {again}"
        )
    return last


def _say_in_folder(run: Run, control: Control) -> None:
    """Notes a rejection in the run's folder; the command that rejected may have been killed before it did so."""
    rejection = control.rejection(run.plan.job, run.plan.run_id)
    if rejection is not None and run.state is not RunState.REJECTED:
        run.note(RunState.REJECTED, rejection.at, rejection.reason)
