"""What `stateferry catch-up` says at its end: how the job is stopped, and what is given then."""

from __future__ import annotations

from stateferry.runs.control.catching_up import catch_ups_of, why_not_later
from stateferry.runs.record.facts import ShownTimers
from stateferry.runs.record.runs import Run

_HEAP = "the job may keep timers on the heap, and a native savepoint lacks those"


def why_everything(rehearsal: Run, last: Run) -> str:
    """Why the cut-over converts everything, and not what has changed since the last catch-up; empty if it doesn't."""
    if slow := catch_ups_of(rehearsal).why_not_faster():
        return f"catching up doesn't pay: {slow}"
    if soon := why_not_later(last):
        return soon
    # Only a checkpoint shows the timers, and nobody drops a savepoint.
    if last.facts_if_sound(ShownTimers) is not None and last.plan.source != last.held.shown:
        return (
            f"{last.plan.source} isn't held beside run {last.plan.run_id}, and a stop with a savepoint has Flink drop "
            "it, however many checkpoints the job retains"
        )
    return ""


def how_to_stop(rehearsal: Run, last: Run, *, whole: bool) -> str:
    """With what the job is stopped, and what is given; `whole` if everything is converted."""
    shown = last.facts_if_sound(ShownTimers)
    of_nights = [] if rehearsal.plan.full_every is None else ["--full-every"]
    without = " and ".join(["--rehearse", *of_nights, *(["--since"] if whole else [])])
    since = [] if whole else [f"--since {last.plan.run_id}"]
    if shown is not None and not shown.in_native_savepoints:
        if whole:
            return f"{_HEAP}: stop the job with a canonical savepoint, and {_given(['that savepoint'], without)}"
        return (
            f"{_HEAP}: take a checkpoint, cancel the job, which must retain its checkpoints then "
            f"(RETAIN_ON_CANCELLATION), and {_given([*since, 'its newest checkpoint'], without)}; what the job has "
            "processed since that, the new one processes again. Or stop it with a canonical savepoint, and convert "
            "everything, without --since"
        )
    shows = ["--no-timers"] if shown is not None and not rehearsal.plan.no_timers else []
    return f"stop the job with a native savepoint, and {_given([*since, 'that savepoint', *shows], without)}"


def _given(what: list[str], without: str) -> str:
    *first, last = what
    those = f"{', '.join(first)} and {last}" if first else last
    return f"give the rehearsal's command with {those}, without {without}"
