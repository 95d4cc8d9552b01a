"""What came of a run, in one line."""

from __future__ import annotations

from stateferry.basics.durations import rough_duration
from stateferry.proof.expected.check_result import Outcome
from stateferry.runs.record.run_states import RunState
from stateferry.show.run_view import RunView


def outcome_line(view: RunView) -> str:
    """One line: `cut over orders: published, 193,620 rows, outage 38 s`."""
    what = "rehearse" if view.plan.rehearse else "cut over"
    return f"{what} {view.plan.job}: {', '.join(_parts(view))}"


def _parts(view: RunView) -> list[str]:
    state = view.state
    green = view.report is not None and view.report.is_green
    word = "without a state" if state is None else state.value
    if state is RunState.VERIFIED:
        word = "green, nothing is published" if view.plan.rehearse else "green, not published yet"
    if state is RunState.PLANNED and view.nothing_to_do is not None:
        word = view.nothing_to_do.reason
    parts = [word]
    if state is RunState.FAILED and view.report is not None and not green:
        failed = view.report.count(Outcome.FAILED)
        parts.append(f"the report is red ({failed} failed)")
    if view.rows_written is not None and green:
        parts.append(f"{view.rows_written:,} rows")
    if view.outage is not None:
        parts.append(f"outage {seconds_text(view.outage)}")
    elif view.seconds:
        parts.append(f"steps {seconds_text(sum(view.seconds.values()))}")
    if view.returned is not None:
        parts.append("the old job runs again" if view.returned.ended_at is not None else "the old job was to run again")
    elif state in (RunState.FAILED, RunState.REJECTED) and view.reason:
        parts.append(view.reason.split(": ")[0].split("; ")[0][:160])
    return parts


def seconds_text(seconds: float) -> str:
    """Seconds for people: whole ones from ten on."""
    if seconds >= 120:
        return rough_duration(round(seconds * 1000))
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
