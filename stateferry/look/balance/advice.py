"""Compares the layouts that an operator's state could have with the one it has, and proposes the flattest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flinkstate.errors import UsageError
from flinkstate.hashing.key_groups import UPPER_BOUND_MAX_PARALLELISM, check_parallelism
from stateferry.look.balance.key_weights import KeyWeights
from stateferry.look.balance.layouts import Chance, CurvePoint, KeyGroupLayout, LayoutSearch, Loads

# A proposal that lowers the worst over mean by less than this isn't worth a new layout.
WORTH = 0.05


@dataclass(frozen=True, slots=True)
class Span:
    """Numbers from `least` to `most`, both inclusive."""

    least: int
    most: int

    @classmethod
    def of(cls, text: str, name: str) -> Span:
        """Returns the span that a number or two numbers with a hyphen name, such as 8 or 1-64."""
        first, hyphen, last = text.partition("-")
        if not first.isdecimal() or not (last if hyphen else first).isdecimal():
            raise UsageError(f"expected a {name} such as 8, or a range such as 1-64, found {text!r}")
        span = cls(int(first), int(last if hyphen else first))
        for end in (span.least, span.most):
            check_parallelism(end, name)
        if span.least > span.most:
            raise UsageError(f"expected a range of {name} that ascends, such as 1-64, found {text!r}")
        return span


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A parallelism: its loads at today's max parallelism (None if that is too small), and in the flattest layout."""

    parallelism: int
    today: Loads | None
    flattest: Loads
    least_possible: float

    @property
    def least_over_mean(self) -> float:
        """No layout has a smaller worst over mean than this."""
        return self.least_possible / self.flattest.mean if self.flattest.mean else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """What to do about the balance of an operator: `before` and `after` are loads by measure.

    `candidates` max parallelisms were looked at. `chance` compares the proposal with today's max parallelism at the
    proposal's parallelism, for which the curve is too.
    """

    weights: KeyWeights
    candidates: int
    before: dict[str, Loads]
    choices: tuple[Choice, ...]
    proposal: Choice
    after: dict[str, Loads]
    chance: Chance | None
    steady: Loads | None
    curve: tuple[CurvePoint, ...]

    @property
    def is_worth_it(self) -> bool:
        """Whether the proposal is noticeably flatter than today's layout."""
        today = self.before[self.weights.measure].worst_over_mean
        return today - self.proposal.flattest.worst_over_mean >= WORTH

    @property
    def one_key_is_too_heavy(self) -> bool:
        """Whether the heaviest key alone exceeds a subtask's fair share, so that no layout is flat."""
        weights = self.weights
        if not weights.heaviest:
            return False
        return weights.heaviest[0].weight > self.proposal.flattest.mean


def advise(weights: KeyWeights, parallelism: Span | None = None, max_parallelism: Span | None = None) -> Advice:
    """Returns the advice for measured state, by default at today's parallelism and any max parallelism from today's."""
    search = LayoutSearch(weights)
    today = search.today
    wanted = parallelism or Span(today.parallelism, today.parallelism)
    least = max(today.max_parallelism, wanted.least)
    allowed = max_parallelism or Span(least, UPPER_BOUND_MAX_PARALLELISM)
    parallelisms = range(wanted.least, min(wanted.most, allowed.most) + 1)
    if not parallelisms:
        raise UsageError(
            f"expected a max parallelism of at least the parallelism {wanted.least}, found at most {allowed.most}"
        )
    if weights.why_fixed is not None and wanted.least > today.max_parallelism:
        raise UsageError(
            f"expected a parallelism of at most the max parallelism {today.max_parallelism}, which is fixed: "
            f"{weights.why_fixed}"
        )
    maxes = search.candidates(allowed.least, allowed.most, parallelisms)
    worst, _ = search.worst_and_idle(maxes, parallelisms)
    choices = tuple(_choices(search, search.flattest(maxes, worst, parallelisms)))
    proposal = _best(choices, today)
    layout = proposal.flattest.layout
    steady = search.steady(layout.parallelism) if weights.why_fixed is None else None
    same_groups = KeyGroupLayout(layout.parallelism, max(today.max_parallelism, layout.parallelism))
    more = [layout.max_parallelism, *([steady.max_parallelism] if steady else [])]
    return Advice(
        weights,
        len(maxes),
        search.all_loads(today),
        choices,
        proposal,
        search.all_loads(layout),
        search.chance(same_groups, layout) if weights.why_fixed is None and layout != same_groups else None,
        search.loads(steady) if steady and steady not in (today, layout) else None,
        search.curve(layout.parallelism, *more),
    )


def _choices(search: LayoutSearch, flattest: Sequence[KeyGroupLayout | None]) -> list[Choice]:
    most = search.today.max_parallelism
    choices = []
    for layout in flattest:
        if layout is not None:
            parallelism = layout.parallelism
            today = search.loads(KeyGroupLayout(parallelism, most)) if parallelism <= most else None
            choices.append(Choice(parallelism, today, search.loads(layout), search.least_possible(parallelism)))
    return choices


def _best(choices: Sequence[Choice], today: KeyGroupLayout) -> Choice:
    """Returns the flattest choice that has at least as many subtasks as today, if there is one; of equals the first."""
    enough = [choice for choice in choices if choice.parallelism >= today.parallelism]
    return min(enough or choices, key=lambda choice: choice.flattest.worst_over_mean)
