"""A person's yes or no to a run. A no is final, for whoever would go on with the run.

The catalog's record is what counts. The run's folder says it as well, for people, and is brought up to the record by
whoever finds that it was not.
"""

from __future__ import annotations

import time

from stateferry.runs.control import Control, RunEndedError
from stateferry.runs.processes import Process
from stateferry.runs.run_states import RunState
from stateferry.runs.runs import Run


def reject(run: Run, control: Control, reason: str) -> None:
    """Ends the run, wherever it is before its publication; one that is published already is refused. A lease that the
    run kept between two steps is released, if its holder is known to have ended; elsewhere it expires."""
    run.check(RunState.REJECTED)
    said = control.reject(run.plan.job, run.plan.run_id, reason)
    run.enter(RunState.REJECTED, said.at, said.reason)
    held = control.lease_of(run.plan.job)
    if held is not None and held.run_id == run.plan.run_id and Process.parse(held.holder).is_over:
        control.release(held)


def approve(run: Run, control: Control, now: int, reason: str) -> None:
    _say_in_folder(run, control)
    run.enter(RunState.APPROVED, now, reason)


def check_not_ended(run: Run, control: Control) -> None:
    """Raises that nothing goes on with the run, if it was rejected or rolled back."""
    _say_in_folder(run, control)
    last = run.changes()[-1]
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(last.at / 1000))
    again = (
        "To do the same work again on purpose, start a run of its own: give another --target (and in a plan with a "
        "run_id another one), or trigger a new DAG run"
    )
    name = f"run {run.plan.run_id} of job {run.plan.job}"
    if last.state is RunState.REJECTED:
        raise RunEndedError(
            f"{name} was rejected at {when}: {last.reason}. It doesn't go on, and isn't published. {again}"
        )
    if last.state is RunState.ROLLED_BACK:
        raise RunEndedError(f"{name} was rolled back at {when}. It doesn't go on, and isn't published again. {again}")


def _say_in_folder(run: Run, control: Control) -> None:
    """Who rejected the run may have been killed before its folder said so."""
    said = control.rejection(run.plan.job, run.plan.run_id)
    if said is not None and run.state is not RunState.REJECTED:
        run.note(RunState.REJECTED, said.at, said.reason)
