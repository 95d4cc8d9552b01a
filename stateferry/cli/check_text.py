"""The output of `stateferry check` for people."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console

from flinkstate.reading.reader import Savepoint
from stateferry.basics.people_text import console_on, plain, print_line
from stateferry.basics.quantities import noun
from stateferry.changes.upgrade.lost_entries import Fate
from stateferry.runs.checks.wanted_layout import unlike_defaults
from stateferry.runs.guards.all_losses import AllLosses
from stateferry.verdict.outcomes import Outcome, StateVerdict
from stateferry.verdict.versions import writer_of

_STYLES = {
    Outcome.RESTORES: "green",
    Outcome.UNKNOWN: "yellow",
    Outcome.FAILS: "red",
    Outcome.WRONG: "red",
    Outcome.REFUSED: "red",
}
# Of what an upgrade lost the first few rows, and of each row the first few entries.
_MOST_ROWS = 5
_KEY = ("key", "namespace", "user_key", "element")
_LOST = (Fate.LOST.value, Fate.GONE.value)


def show(savepoint: Savepoint, target: str, found: Sequence[StateVerdict], losses: AllLosses | None = None) -> None:
    """Prints each operator's states with their outcomes, a line that sums them up, and notes on max parallelisms."""
    with console_on(sys.stdout) as console:
        written = f"{savepoint.taken_as} of {writer_of(savepoint.metadata)}"
        print_line(console, f"{savepoint.folder.shown}: {written}, restored by Flink {target}")
        for operator, states in groupby(found, key=lambda one: one.operator):
            console.print()
            print_line(console, operator, "bold")
            for state in states:
                _show_state(console, state)
        console.print()
        print_line(console, summary(found))
        for note in unlike_defaults(savepoint.metadata.operators):
            print_line(console, f"note: {note}")
        if losses is not None:
            _show_losses(console, losses)


def _show_losses(console: Console, losses: AllLosses) -> None:
    console.print()
    print_line(console, f"what the upgrade lost, by {losses.before}", "bold")
    for one in losses.to_json()["states"]:
        mode = f" ({one['mode']})" if one["mode"] else ""
        print_line(console, f"  {one['operator']}/{one['state']}{mode}: {one['summary']}")
        for row in one["rows"][:_MOST_ROWS]:
            key = ", ".join(f"{what.replace('_', ' ')} {row[what]}" for what in _KEY if what in row)
            # What is lost comes first.
            lost = sorted(row["lost"], key=lambda loss: loss["is"] not in _LOST)
            entries = "; ".join(_loss_words(loss) for loss in lost[:_MOST_ROWS])
            more = f"; {len(row['lost']) - _MOST_ROWS} more" if len(row["lost"]) > _MOST_ROWS else ""
            print_line(console, f"    {key}: {row.get('why_not') or entries}{more}")
        if len(one["rows"]) > _MOST_ROWS:
            print_line(console, f"    and {len(one['rows']) - _MOST_ROWS:,} more rows: --json lists all")
    for why in losses.not_compared:
        print_line(console, f"  not compared: {why}", "yellow")


def _loss_words(loss: Mapping[str, Any]) -> str:
    entry, value = (json.dumps(loss.get(part), ensure_ascii=False) for part in ("entry", "value"))
    return f"{entry}: {value} {loss['is']}" if "entry" in loss else f"{value} {loss['is']}"


def _show_state(console: Console, verdict: StateVerdict) -> None:
    finding = verdict.finding
    outcome = " or ".join(one.value for one in finding.possible)
    text = plain(f"  {verdict.state} ({' '.join(filter(None, (verdict.kind, verdict.type)))}): ")
    console.print(text.append_text(plain(outcome, _STYLES[finding.outcome])), soft_wrap=True)
    print_line(console, f"    why: {finding.reason}")
    if finding.exception is not None:
        print_line(console, f"    Flink throws: {finding.exception}")
    if finding.outcome is not Outcome.RESTORES:
        print_line(console, f"    to do: {finding.advice}")


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
