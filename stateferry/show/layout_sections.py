"""The parts of a run's page that say where the state is: key groups, subtasks, and which bytes move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from flinkstate.hashing.key_groups import range_for_operator_index
from stateferry.basics.quantities import noun, percent, shown_amount
from stateferry.runs.record.key_group_sizes import OperatorSizes
from stateferry.runs.report.balance_facts import Load, balance_of
from stateferry.show import charts
from stateferry.show.document import section
from stateferry.show.markup import Content, Markup, element
from stateferry.show.run_view import RunView

# So many operators are drawn, the largest; and so many subtasks on each side of a rescale plan.
_MOST_OPERATORS = 8
_MOST_PLACES = 32


def key_groups(view: RunView) -> Iterator[Markup]:
    """A heat map of the key groups of each operator, before and after."""
    found = _operators(view)
    if not found:
        return
    parts: list[Content] = []
    for name, sides in found:
        parts.append(element("h3", f"Operator {name}") if len(found) > 1 else None)
        maps = [_heat_map(when, one) for when, one in sides if one.total]
        parts.append(element("div", *maps, class_="pair") if maps else element("p", "No keyed state.", class_="hint"))
    hint = "Bytes of keyed state, row by row from key group 0. An even map means evenly spread keys."
    yield section("Key groups", hint, *parts, _left_out(view))


def load(view: RunView) -> Iterator[Markup]:
    """The bytes of each subtask, before and after."""
    found = [(name, [(when, one) for when, one in sides if one.total]) for name, sides in _operators(view)]
    if not any(sides for _, sides in found):
        return
    balance = balance_of(view.before, view.after)
    parts: list[Content] = []
    for name, sides in found:
        parts.append(element("h3", f"Operator {name}") if len(found) > 1 else None)
        parts.append(element("div", *(_load(when, one) for when, one in sides), class_="pair"))
        heavy = [one.too_heavy_key.line(one.subtasks) for one in balance if one.operator == name and one.too_heavy_key]
        parts += [element("p", f"{line[0].upper()}{line[1:]}.", class_="warn") for line in heavy]
    hint = "Bytes of keyed state that each subtask has to restore. The dashed line is the mean."
    yield section("Load per subtask", hint, *parts)


def movement(view: RunView) -> Iterator[Markup]:
    """Which bytes go where."""
    largest = sorted(view.movements, key=lambda one: -_number(one.get("bytes")))[:_MOST_OPERATORS]
    parts = [part for one in largest for part in _movement(one, several=len(largest) > 1)]
    if parts:
        hint = "Left the subtasks of the old job, right those of the new one. A band is as thick as its bytes."
        yield section("Rescale plan", hint, *parts)


def _operators(view: RunView) -> list[tuple[str, list[tuple[str, OperatorSizes]]]]:
    """The largest operators by name, each with its sizes before and after."""
    sides: dict[str, list[tuple[str, OperatorSizes]]] = {}
    for when, facts in (("before", view.before), ("after", view.after)):
        for one in facts.operators if facts is not None else ():
            sides.setdefault(one.operator, []).append((when, one))
    ordered = sorted(sides.items(), key=lambda item: -max(one.total for _, one in item[1]))
    return ordered[:_MOST_OPERATORS]


def _left_out(view: RunView) -> Markup | None:
    known = {one.operator for facts in (view.before, view.after) if facts is not None for one in facts.operators}
    rest = len(known) - _MOST_OPERATORS
    if rest <= 0:
        return None
    return element("p", f"{rest} smaller {noun(rest, 'operator is', 'operators are')} left out.", class_="hint")


def _heat_map(when: str, one: OperatorSizes) -> Markup:
    most = max(one.bytes)
    labels = [_key_groups_of(number, one) + f": {shown_amount(size, 'B')}" for number, size in enumerate(one.bytes)]
    aside = f"{one.max_parallelism:,} key groups"
    if one.per_bin > 1:
        aside += f", a cell is {one.per_bin} of them"
    drawn = charts.heat_map(one.bytes, most, f"bytes of the key groups {when}", labels)
    average = one.total / one.max_parallelism
    fullest = ", ".join(f"{group} ({size / average:.2f} ×)" for group, size in one.fullest) if average else ""
    named = element("span", f"largest: {fullest} the mean" if fullest else "")
    return charts.figure(
        when.capitalize(), aside, drawn, element("div", charts.scale(shown_amount(most, "B")), named, class_="axis")
    )


def _key_groups_of(number: int, one: OperatorSizes) -> str:
    first = number * one.per_bin
    last = min(first + one.per_bin, one.max_parallelism) - 1
    return f"key group {first}" if first == last else f"key groups {first}-{last}"


def _load(when: str, one: OperatorSizes) -> Markup:
    mean, worst = one.total / one.parallelism, max(one.by_subtask)
    step = one.subtasks_per_bin
    labels = [
        f"{_subtasks(number, step, one)}: {shown_amount(size, 'B')}" for number, size in enumerate(one.by_subtask)
    ]
    drawn = charts.columns(one.by_subtask, worst, mean, f"bytes of the subtasks {when}", labels)
    aside = f"{one.parallelism:,} {noun(one.parallelism, 'subtask')}, mean {shown_amount(mean, 'B')}"
    if step > 1:
        aside += f"; a column is the largest of {step}"
    over = worst / mean if mean else 1.0
    ends = f"subtask 0 to {one.parallelism - 1}" if one.parallelism > 1 else "subtask 0"
    fullest = element(
        "span", f"fullest: {shown_amount(worst, 'B')}, {over:.2f} × the mean", class_="warn" if over > 1.5 else None
    )
    axis = element("div", element("span", ends), fullest, class_="axis")
    return charts.figure(when.capitalize(), aside, drawn, axis, _beside(one))


def _beside(one: OperatorSizes) -> Markup:
    """What the bytes don't show: rows, idle subtasks and empty key groups."""
    load = Load.of(one)
    found = [] if load.rows is None else [f"rows: at worst {load.rows.worst_over_mean:.2f} × the mean"]
    idle = f"{one.idle:,} {noun(one.idle, 'subtask')} without state" if one.idle else "no idle subtask"
    words = ", ".join([*found, idle, f"{load.empty_key_groups:,} empty {noun(load.empty_key_groups, 'key group')}"])
    return element("p", f"{words[0].upper()}{words[1:]}.", class_="warn" if one.idle else "hint")


def _subtasks(number: int, step: int, one: OperatorSizes) -> str:
    first = number * step
    last = min(first + step, one.parallelism) - 1
    groups = range_for_operator_index(one.max_parallelism, one.parallelism, first)
    return f"subtask {first}, key groups {groups}" if first == last else f"the largest of subtasks {first}-{last}"


def _movement(one: Mapping[str, Any], *, several: bool) -> Iterator[Content]:
    try:
        (old, new), (old_max, new_max) = one["parallelism"], one["max_parallelism"]
        total, staying, reads = int(one["bytes"]), one["bytes_staying"], one["reads"]
        operator = str(one["operator"])
        amounts = _amounts(reads, old, new) if reads is not None else None
    except (KeyError, TypeError, ValueError):
        return
    if several:
        yield element("h3", f"Operator {operator}")
    subtasks = f"{old} {noun(old, 'subtask')}" if old == new else f"{old} → {new} subtasks"
    if amounts is None:
        changes = f", max parallelism {old_max:,} → {new_max:,}" if old_max != new_max else ""
        yield element(
            "p",
            f"{subtasks}{changes}: the key group of every key is computed anew, so "
            f"each old subtask sends a part of its {shown_amount(total / old, 'B')} to each new one.",
        )
        return
    share = f"{percent(staying / total)} of {shown_amount(total, 'B')} stays with its subtask" if total else "no bytes"
    grouped = _grouped(amounts, old, new)
    per_place = -(-max(old, new) // _MOST_PLACES)
    aside = subtasks if per_place == 1 else f"{subtasks}; a place is {per_place} neighbouring subtasks"
    drawn = charts.flows(grouped, -(-old // per_place), -(-new // per_place), f"which bytes go where: {share}")
    yield charts.figure(share, aside, drawn)
    yield charts.legend(("pale", "stays with its subtask"), ("bar", "moves to another subtask"))


def _amounts(reads: list[Mapping[str, Any]], old: int, new: int) -> Counter[tuple[int, int]]:
    amounts: Counter[tuple[int, int]] = Counter()
    for read in reads:
        source, target = int(read["from_subtask"]), int(read["subtask"])
        start, end = read["bytes"]
        if not (0 <= source < old and 0 <= target < new):
            raise ValueError("a subtask outside of its layout")
        amounts[source, target] += int(end) - int(start)
    return amounts


def _grouped(amounts: Mapping[tuple[int, int], int], old: int, new: int) -> list[charts.Flow]:
    """The amounts between places; with many subtasks a place is several neighbours."""
    per_place = -(-max(old, new) // _MOST_PLACES)
    grouped: Counter[tuple[int, int, bool]] = Counter()
    for (source, target), amount in amounts.items():
        grouped[source // per_place, target // per_place, source == target] += amount
    return [charts.Flow(*places, amount) for places, amount in sorted(grouped.items())]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
