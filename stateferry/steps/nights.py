"""A night converts only what has changed since the last green one, if its plan wants that and if it can be.

What is in the way is found when the night begins, or by the steps that write. Then the same run converts everything, by
its own now, and says why: nobody waits for it while a job stands still. A red validation ends it, as it ends any run.
"""

from __future__ import annotations

import re

from flinkstate.errors import RefusedError, StateferryError, TransientError
from stateferry.runs.catalog.lease import LeaseLostError
from stateferry.runs.checks.plan_check import resolve
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.predict.earlier_night import last_night
from stateferry.runs.record.facts import Began, CaughtUp, NightChoice, SavepointTaken
from stateferry.runs.record.runs import Run
from stateferry.steps.base_run import base_of
from stateferry.steps.run_at_work import RunAtWork

_ADVICE = re.compile(r"[:.] leave (--)?since out, which converts everything", re.IGNORECASE)
_BACKFILL = "backfill"
# What a run knows before its first step.
_BEFORE = (NightChoice, Began, SavepointTaken)


def begin(work: RunAtWork) -> None:
    """Chooses since which run this one catches up, or keeps why it converts everything."""
    run, plan = work.run, work.run.plan
    if plan.full_every is None or not plan.is_night or plan.since is not None:
        return
    if has_begun_again(run):
        return
    choice = NightChoice(plan.now, plan.now_from)
    try:
        base = _base(plan, plan.full_every)
        of_base = {"since": base.plan.run_id, "now": base.plan.now, "now_from": base.plan.now_from}
        resolved = resolve(_changed(plan, **of_base), work.resolved.source)
        base_of(resolved)
    except (TransientError, LeaseLostError):
        raise
    except StateferryError as error:
        run.keep(NightChoice(plan.now, plan.now_from, _without_advice(error)))
        return
    run.keep(choice)
    work.plan_anew(run.replanned(resolved.plan, _BEFORE), resolved)


def becomes_whole(work: RunAtWork, error: StateferryError) -> bool:
    """Whether the run, whose catch-up this error has ended, is a night that converts everything instead."""
    run = work.run
    choice = run.facts(NightChoice)
    if choice is None or run.plan.since is None or isinstance(error, TransientError | LeaseLostError):
        return False
    why = _without_advice(error)
    run.keep(NightChoice(choice.now, choice.now_from, why))
    plan = _changed(run.plan, since=None, now=choice.now, now_from=choice.now_from)
    work.plan_anew(run.replanned(plan, _BEFORE), None)
    work.say(f"note: {whole_text(why)}")
    return True


def has_begun_again(run: Run) -> bool:
    """Whether the run is a night that converts everything, so that what it had done as a catch-up doesn't count."""
    choice = run.facts(NightChoice)
    return choice is not None and bool(choice.why_whole)


def note_of(run: Run) -> str:
    """What people should know of how this night was converted; empty if it could not have been otherwise."""
    choice = run.facts(NightChoice)
    if choice is None:
        return ""
    if choice.why_whole:
        return whole_text(choice.why_whole)
    return f"this night converts only what has changed since run {run.plan.since}"


def whole_text(why: str) -> str:
    """That a night converts everything, and why."""
    return f"this night converts everything: {why}"


def _base(plan: MigrationPlan, full_every: int) -> Run:
    # What is newer than the end of the day must be noticed, which it isn't by the now of another day.
    if plan.now_from == _BACKFILL:
        raise RefusedError("a backfilled day has a now of its own")
    base = last_night(plan)
    if base.plan.now_from == _BACKFILL:
        raise RefusedError(f"run {base.plan.run_id}, the last one of the job, is of a backfilled day")
    above = (base.facts(CaughtUp) or CaughtUp(depth=0)).depth
    if above + 1 >= full_every:
        raise RefusedError(f"one night in {full_every} does, and {above} since then didn't")
    return base


def _changed(plan: MigrationPlan, **values: object) -> MigrationPlan:
    return plan_of(plan.model_dump(mode="json") | values)


def _without_advice(error: StateferryError) -> str:
    return _ADVICE.sub("", str(error))
