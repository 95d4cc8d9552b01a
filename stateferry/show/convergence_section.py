"""The part of a run's page that says how far a lazy migration has come, night after night."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stateferry.basics.durations import moment
from stateferry.basics.quantities import percent
from stateferry.runs.predict.convergence import Convergence, Night
from stateferry.show import charts
from stateferry.show.document import section
from stateferry.show.markup import Content, Markup, element
from stateferry.show.run_view import RunView

_KINDS = (("", "bar", "moved by Stateferry"), ("pale", "pale", "moved by the job"), ("rest", "rest", "left"))


def convergence(view: RunView) -> Iterator[Markup]:
    """Keys that runs and the job have moved, and those that are left, up to this run."""
    if not view.nights:
        return
    parts: list[Content] = []
    for state, nights in view.nights.items():
        line = Convergence.of(state, nights).line
        parts += [_nights(state, nights), element("p", f"{line}.", class_="hint")]
    hint = "A column is a run that has brought the tables, this one or the newest before it at the right."
    yield section("Keys moved so far", hint, *parts, charts.legend(*((mark, name) for _, mark, name in _KINDS)))


def _nights(state: str, nights: Sequence[Night]) -> Markup:
    stacks = [(night.by_ferry, night.by_job, night.left) for night in nights]
    labels = [
        f"{moment(night.at)}: {night.by_ferry:,} moved by Stateferry, {night.by_job:,} by the job, {night.left:,} left"
        for night in nights
    ]
    top = max(night.keys for night in nights)
    drawn = charts.stacked_columns(stacks, [kind for kind, _, _ in _KINDS], top, f"keys of {state}", labels)
    last = nights[-1]
    aside = f"{percent(1 - last.left / last.keys)} of {last.keys:,} keys moved"
    ends = [element("span", moment(night.at)[:10]) for night in (nights[0], last)]
    return charts.figure(state, aside, drawn, element("div", *ends, class_="axis"))
