"""The output of `stateferry check` for people."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console

from flinkstate.reading.reader import Savepoint
from stateferry.basics.people_text import console_on, plain
from stateferry.basics.quantities import noun
from stateferry.runs.checks.wanted_layout import unlike_defaults
from stateferry.verdict.outcomes import Outcome, StateVerdict
from stateferry.verdict.versions import writer_of

_STYLES = {
    Outcome.RESTORES: "green",
    Outcome.UNKNOWN: "yellow",
    Outcome.FAILS: "red",
    Outcome.WRONG: "red",
    Outcome.REFUSED: "red",
}


def show(savepoint: Savepoint, target: str, found: Sequence[StateVerdict]) -> None:
    """Prints each operator's states with their outcomes, a line that sums them up, and notes on max parallelisms."""
    with console_on(sys.stdout) as console:
        written = f"{savepoint.format} savepoint of {writer_of(savepoint.metadata)}"
        _line(console, f"{savepoint.folder.shown}: {written}, restored by Flink {target}")
        for operator, states in groupby(found, key=lambda one: one.operator):
            console.print()
            _line(console, operator, "bold")
            for state in states:
                _show_state(console, state)
        console.print()
        _line(console, summary(found))
        for note in unlike_defaults(savepoint.metadata.operators):
            _line(console, f"note: {note}")


def _show_state(console: Console, verdict: StateVerdict) -> None:
    finding = verdict.finding
    outcome = " or ".join(one.value for one in finding.possible)
    text = plain(f"  {verdict.state} ({' '.join(filter(None, (verdict.kind, verdict.type)))}): ")
    console.print(text.append_text(plain(outcome, _STYLES[finding.outcome])), soft_wrap=True)
    _line(console, f"    why: {finding.reason}")
    if finding.exception is not None:
        _line(console, f"    Flink throws: {finding.exception}")
    if finding.outcome is not Outcome.RESTORES:
        _line(console, f"    to do: {finding.advice}")


def summary(found: Sequence[StateVerdict]) -> str:
    """Returns how many states have which outcome, the worst first, and what that means for the job."""
    counts = Counter(one.finding.outcome for one in found)
    listed = [f"{counts[one]} {one.value}" for one in reversed(Outcome) if counts[one]]
    text = f"{len(found)} {noun(len(found), 'state')}: {', '.join(listed) or 'nothing to restore'}"
    if counts[Outcome.REFUSED]:
        return f"{text}. The job does not start"
    if counts[Outcome.WRONG]:
        return f"{text}. The job starts, and no error says what it lost"
    if counts[Outcome.FAILS]:
        return f"{text}. The job starts, and fails when it reads them"
    return text


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(plain(text, style), soft_wrap=True)
