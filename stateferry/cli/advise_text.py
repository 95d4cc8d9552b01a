"""The output of `stateferry advise` for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from flinkstate.hashing.key_groups import default_note
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import type_name
from stateferry.basics.people_text import console_on, plain, print_line
from stateferry.basics.quantities import noun, percent
from stateferry.look.balance.advice import Advice, Choice
from stateferry.look.balance.apply import how_to_apply
from stateferry.look.balance.key_weights import KeyWeights
from stateferry.look.balance.layouts import KeyGroupLayout, Loads
from stateferry.look.balance.substitutes import Substitutes

# Of more subtasks only the most loaded ones are shown.
_MOST_SUBTASKS = 16
# Of more parallelisms that were asked for, nobody says what a new job would get at each.
_FEW = 3


def show(savepoint: Savepoint, found: Sequence[Advice]) -> None:
    """Prints what was measured of each operator, and the proposal."""
    with console_on(sys.stdout) as console:
        for number, advice in enumerate(found):
            if number:
                console.print()
            _Text(console, savepoint, advice).show()


def show_substitutes(weights: KeyWeights, found: Substitutes) -> None:
    """Prints the substitute of each subtask, and how the measured keys are spread by them."""
    operator, layout = weights.operator, found.layout
    with console_on(sys.stdout) as console:
        print_line(console, f"{operator.label}: substitute keys for {_layout(layout)}", "bold")
        loads = found.loads
        if loads is None:
            print_line(console, f"How they spread the job's keys isn't known: {weights.why_fixed}")
        table = _table(
            "subtask", "substitute", *(() if loads is None else ("heavy keys", weights.measure, "of a fair share"))
        )
        for subtask, key in enumerate(found.keys):
            cells = [str(key)]
            if loads is not None:
                own = int(loads.by_subtask[subtask])
                heavy = sum(one == subtask for _, one in found.pinned)
                cells += [str(heavy), f"{own:,}", _times(own, loads.mean)]
            table.add_row(str(subtask), *cells)
        console.print(table)
        if loads is not None and found.own_loads is not None:
            line = f"today's keys by themselves: {_words(found.own_loads)}; by substitutes: {_words(loads)}"
            print_line(console, line)


class _Text:
    def __init__(self, console: Console, savepoint: Savepoint, advice: Advice) -> None:
        self._console, self._savepoint, self._advice = console, savepoint, advice
        self._weights = advice.weights
        self._measure = advice.weights.measure
        self._known = [one for one in self._weights.groups if one != "keys" or self._weights.why_no_keys is None]

    def show(self) -> None:
        operator, weights = self._weights.operator, self._weights
        totals = ", ".join(f"{int(weights.groups[one].sum()):,} {one}" for one in self._known)
        self._say(
            f"{operator.label}: {totals}, keyed by {type_name(weights.key)}; parallelism {operator.parallelism}, "
            f"max parallelism {operator.max_parallelism}",
            "bold",
        )
        if weights.why_no_keys is not None:
            self._say(f"Keys can't be told apart: {weights.why_no_keys}")
        if weights.sampled < 1:
            self._say(
                f"There are too many keys to hold: the search uses the heaviest ones, and {percent(weights.sampled)} "
                "of the others. The figures of today are exact."
            )
        for parallelism in dict.fromkeys((operator.parallelism, *self._asked_for())):
            if (note := default_note(parallelism, operator.max_parallelism)) is not None:
                self._say(f"{note[0].upper()}{note[1:]}.")
        self._console.print(self._subtasks())
        self._key_groups()
        if weights.heaviest:
            self._heaviest()
        self._console.print()
        self._console.print(self._layouts())
        self._proposal()
        self._console.print()
        self._curve()

    def _asked_for(self) -> Iterator[int]:
        """The parallelisms that were asked for, if they are few enough to be spoken of one by one."""
        choices = self._advice.choices
        yield from (one.parallelism for one in choices if len(choices) <= _FEW)

    def _say(self, text: str, style: str = "") -> None:
        print_line(self._console, text, style)

    def _subtasks(self) -> Table:
        before = self._advice.before
        table = _table("subtask today", *self._known, f"{self._measure}, of a fair share")
        own = before[self._measure].by_subtask
        order = sorted(range(len(own)), key=lambda subtask: -own[subtask])
        shown = sorted(order[:_MOST_SUBTASKS])
        for subtask in shown:
            cells = [f"{before[one].by_subtask[subtask]:,}" for one in self._known]
            table.add_row(str(subtask), *cells, _times(own[subtask], before[self._measure].mean))
        if len(shown) < len(own):
            table.add_row(f"({len(own) - len(shown)} less loaded)", *([""] * (len(self._known) + 1)))
        table.add_section()
        table.add_row("mean", *(f"{before[one].mean:,.1f}" for one in self._known), "")
        table.add_row("worst over mean", *(f"{before[one].worst_over_mean:.2f}" for one in self._known), "")
        table.add_row("idle subtasks", *(f"{before[one].idle}" for one in self._known), "")
        return table

    def _key_groups(self) -> None:
        groups = self._weights.groups[self._measure]
        empty, largest = int((groups == 0).sum()), int(groups.argmax())
        share = f"{_times(groups[largest], groups.mean())} the mean" if groups.any() else "empty"
        self._say(f"{len(groups)} key groups: {empty} empty; the largest is {largest}, {share}")

    def _heaviest(self) -> None:
        self._console.print()
        table = _table("heaviest keys", "key group", "subtask", "rows", "bytes", f"{self._measure}, of a fair share")
        table.columns[0].justify = "left"
        operator, mean = self._weights.operator, self._advice.before[self._measure].mean
        for key in self._weights.heaviest:
            subtask = key.key_group * operator.parallelism // operator.max_parallelism
            texts = (str(key.key_group), str(subtask), f"{key.rows:,}", f"{key.bytes:,}", _times(key.weight, mean))
            table.add_row(plain(_shortened(key.text or "?")), *texts)
        self._console.print(table)

    def _layouts(self) -> Table:
        today = self._weights.operator.max_parallelism
        table = _table(
            "parallelism",
            *(f"at max {today}: worst over mean", "worst", "idle"),
            *("flattest max", "worst over mean", "worst", "idle", "least possible"),
        )
        for choice in self._advice.choices:
            now = ("-", "-", "-") if choice.today is None else _cells(choice.today)
            most = str(choice.flattest.layout.max_parallelism)
            row = (*now, most, *_cells(choice.flattest), f"{choice.least_over_mean:.2f}")
            style = "bold" if choice is self._advice.proposal and len(self._advice.choices) > 1 else ""
            table.add_row(str(choice.parallelism), *row, style=style)
        return table

    def _proposal(self) -> None:
        advice, proposal = self._advice, self._advice.proposal
        layout, today = proposal.flattest.layout, advice.before[self._measure]
        if self._weights.why_fixed is not None:
            self._say(f"Max parallelism stays {layout.max_parallelism}: {self._weights.why_fixed}")
        else:
            self._say(f"searched {advice.candidates:,} max parallelisms")
        if advice.one_key_is_too_heavy:
            self._say(_too_heavy(proposal))
        if not advice.is_worth_it:
            self._say(f"proposal: keep the layout; the flattest one would have {_words(proposal.flattest)}", "green")
            return
        self._say(f"proposal: {_layout(layout)}: {_words(today)} before, {_words(proposal.flattest)} after", "green")
        self._chance()
        for line in how_to_apply(self._savepoint, self._weights.operator, layout):
            self._say(line, "bold" if line.startswith("stateferry ") else "")

    def _chance(self) -> None:
        advice, chance = self._advice, self._advice.chance
        if chance is None:
            return
        self._say(
            f"Other keys of the same weights would have {chance.expected_before:.2f} before and "
            f"{chance.expected_after:.2f} after, on average: a systematic gain of {chance.systematic:.2f}. The rest is "
            f"luck, which lasts as long as these keys do: they are {_better(-chance.bad_luck_before)} than others "
            f"before, and {_better(chance.good_luck_after)} after."
        )
        if advice.steady is not None:
            self._say(
                f"With max parallelism {advice.steady.layout.max_parallelism} all subtasks have as many key groups: "
                f"{_words(advice.steady)} for today's keys."
            )

    def _curve(self) -> None:
        if self._weights.why_fixed is not None:
            return
        table = _table(
            *("max parallelism", "worst over mean", "idle subtasks", "empty key groups"),
            *("bytes of offsets in _metadata", "bytes of key group numbers in rows"),
        )
        today, proposed = self._weights.operator.max_parallelism, self._advice.proposal.flattest.layout.max_parallelism
        for point in self._advice.curve:
            most = point.layout.max_parallelism
            mark = " (today)" if most == today else " (flattest)" if most == proposed else ""
            counts = (point.idle, point.empty_key_groups, point.offset_bytes, point.prefix_bytes)
            table.add_row(f"{most}{mark}", f"{point.worst_over_mean:.2f}", *(f"{count:,}" for count in counts))
        self._say(f"other numbers of key groups at parallelism {self._advice.proposal.parallelism}")
        self._console.print(table)


def _table(*headings: str) -> Table:
    table = Table()
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _cells(loads: Loads) -> tuple[str, str, str]:
    return f"{loads.worst_over_mean:.2f}", f"{loads.worst:,}", str(loads.idle)


def _layout(layout: KeyGroupLayout) -> str:
    return f"parallelism {layout.parallelism}, max parallelism {layout.max_parallelism}"


def _words(loads: Loads) -> str:
    return f"worst over mean {loads.worst_over_mean:.2f} and {loads.idle} idle {noun(loads.idle, 'subtask')}"


def _too_heavy(proposal: Choice) -> str:
    return (
        f"The heaviest key alone exceeds the fair share of one of {proposal.parallelism} subtasks, so no layout is "
        f"flat: worst over mean is at least {proposal.least_over_mean:.2f}. Have the job split that key (salting)."
    )


def _better(by: float) -> str:
    return f"{abs(by):.2f} {'better' if by >= 0 else 'worse'}"


def _times(part: float, whole: float) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
