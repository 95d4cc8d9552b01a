"""Catches up with a rehearsal while the job runs, again and again until little is left: for the command and the DAG."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flinkstate.errors import UsageError
from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA
from stateferry.basics.durations import moment, now_ms
from stateferry.runs.catalog.publications import Control
from stateferry.runs.predict.prediction import catch_up_seconds, copy_seconds
from stateferry.runs.record.catch_ups import CatchUps, OneCatchUp, base_of_cut_over
from stateferry.runs.record.facts import CaughtUp
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts, ValidateFacts
from stateferry.runs.record.temporary_folders import TemporaryFolders

# One that is so fresh isn't followed by another one.
_FRESH_MS = 60_000
# Longer than a catch-up may be old when the job stops: after that another one is made first.
_AHEAD_MS = 2 * 3_600_000


def catch_ups_of(rehearsal: Run) -> CatchUps:
    """The catch-ups with the rehearsal so far."""
    return rehearsal.facts(CatchUps) or CatchUps(_completed_ms(rehearsal), copy=round(copy_seconds(rehearsal), 3))


def why_not_later(last: Run) -> str:
    """Why a cut-over in the next two hours can't go on from this run; empty if it can.

    Its catch-up would be refused while the job stands still.
    """
    facts = last.facts_if_sound(SnapshotFacts)
    first = facts.first_expiry if facts is not None else None
    if first is None or first > now_ms() + _AHEAD_MS:
        return ""
    return (
        f"from {moment(first)} on something may have expired to which a younger map or row of its key gives way in run "
        f"{last.plan.run_id}"
    )


def catch_up(
    rehearsal: Run,
    found: CatchUps,
    one: Callable[[Run, int], Run],
    *,
    settle_ms: int,
    most: int | None = None,
    say: Callable[[str], None],
) -> str:
    """Makes one catch-up after the other, and keeps them with the rehearsal; returns why there are enough.

    `one` makes and validates the run since a base, which has a number among those with this rehearsal. Each one must be
    clearly shorter than the one before, so there is an end.
    """
    new = 0
    while not (why := found.why_enough(new, settle_ms)):
        if not new and found.done and now_ms() - found.done[-1].at < _FRESH_MS:
            return "the last one is a minute old at most"
        if most is not None and len(found.done) >= most:
            return f"there are {len(found.done)}"
        made = _one_catch_up(one(base_of_cut_over(rehearsal) or rehearsal, len(found.done) + 1))
        say(f"caught up with {made.keys} changed keys in {made.seconds:.1f} s, as run {made.run_id}")
        found = replace(found, done=(*found.done, made))
        rehearsal.keep(found)
        new += 1
    return why


def made_before(folder: Location, base: Run) -> Run | None:
    """The catch-up since the base that an earlier try has planned, if it and a later one can go on from it, else None.

    Flink drops what nobody holds. Without its source a run never goes on, and is no base, so it is removed: one that
    reads a newer source takes its place.
    """
    if (run := Run.if_there(folder)) is None:
        return None
    plan = run.plan
    if plan.since != base.plan.run_id:
        raise UsageError(
            f"run {plan.run_id} of job {plan.job} exists already, and is no catch-up with run {base.plan.run_id}: "
            "rehearse anew, with a run_id of fewer than 80 signs that no other run begins with"
        )
    if _file_of_source(run).is_file():
        return run
    with Control(plan.catalog_uri) as control:
        lease = control.acquire(plan.job, plan.run_id)
        try:
            TemporaryFolders(run.temporary_folders).take_over()
            run.remove()
        finally:
            control.release(lease)
    return None


def is_validated(run: Run) -> bool:
    """Whether the run is validated, and green."""
    validated = run.facts(ValidateFacts)
    return validated is not None and validated.green


def _one_catch_up(run: Run) -> OneCatchUp:
    legacy = {state.legacy for operator in run.plan.operators for state in operator.states}
    lists = run.facts(CaughtUp) or CaughtUp()
    # Without a migration all states count.
    keys = sum(one.keys for one in lists.lists if not legacy or one.state in legacy)
    return OneCatchUp(run.plan.run_id, _completed_ms(run), keys, round(catch_up_seconds(run), 3), lists.joined > 0)


def _completed_ms(run: Run) -> int:
    """When the run's source was complete, in milliseconds."""
    return _file_of_source(run).modified_at()


def _file_of_source(run: Run) -> Location:
    place = Location.of(run.plan.source)
    return place if place.name == METADATA else place.child(METADATA)
