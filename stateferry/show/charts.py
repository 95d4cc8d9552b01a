"""Charts as plain SVG, drawn here. Words and figures beside them are HTML, so that they stay readable on a phone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from stateferry.show.markup import Content, Markup, element, join

_LEVELS = 8
_WIDE = 64
_NARROW, _NARROW_UP_TO = 32, 256
_MOST_TITLES = 256


class Flow(NamedTuple):
    """An amount that goes from one place to another, or stays where it is."""

    source: int
    target: int
    stays: bool
    amount: int


def figure(caption: Content, aside: Content, *content: Content) -> Markup:
    """A chart with its caption, and a remark at the caption's end."""
    return element("figure", element("figcaption", element("span", caption), element("span", aside)), *content)


def level(value: float, most: float) -> int:
    """The step of the scale for a value: 0 for nothing, then 1 to 8 in equal steps up to the most."""
    return 0 if value <= 0 or most <= 0 else min(_LEVELS, max(1, math.ceil(value / most * _LEVELS)))


def heat_map(values: Sequence[int], most: int, what: str, labels: Sequence[str]) -> Markup:
    """One cell for each value, row by row; `labels` are shown when a cell is pointed at, if there are not too many."""
    wide = _NARROW if len(values) <= _NARROW_UP_TO else _WIDE
    columns = max(1, min(len(values), wide))
    rows = max(1, -(-len(values) // columns))
    places = [(number % columns, number // columns) for number in range(len(values))]
    cells: list[Markup] = []
    if len(values) <= _MOST_TITLES:
        cells = [
            element("rect", element("title", label), x=x, y=y, width=0.94, height=0.94, class_=f"h{level(value, most)}")
            for (x, y), value, label in zip(places, values, labels, strict=True)
        ]
    else:
        by_level: dict[int, list[str]] = {}
        for (x, y), value in zip(places, values, strict=True):
            by_level.setdefault(level(value, most), []).append(f"M{x} {y}h.94v.94h-.94z")
        cells = [element("path", d="".join(paths), class_=f"h{of}") for of, paths in sorted(by_level.items())]
    return element("svg", *cells, viewBox=f"0 0 {columns} {rows}", role="img", aria_label=what)


def scale(most: str) -> Markup:
    """What the steps of a heat map mean."""
    steps = [element("rect", x=step * 12, y=0, width=11, height=10, class_=f"h{step}") for step in range(_LEVELS + 1)]
    drawn = element("svg", *steps, viewBox="0 0 108 10", aria_hidden="true")
    return element("span", "0", drawn, most, class_="scale")


def columns(values: Sequence[float], top: float, mean: float, what: str, labels: Sequence[str]) -> Markup:
    """A column for each value, up to `top`, and a line at the mean; what is far above it has another colour."""
    gap = 0.18 if len(values) <= _WIDE else 0.0
    bars = []
    for number, (value, label) in enumerate(zip(values, labels, strict=True)):
        height = 100 * value / top if top else 0
        over = " over" if mean and value > 1.5 * mean else ""
        title = element("title", label) if len(values) <= _MOST_TITLES else None
        place = {"x": number + gap / 2, "y": round(100 - height, 2), "width": 1 - gap, "height": round(height, 2)}
        bars.append(element("rect", title, class_=f"bar{over}", **place))
    line = 100 - 100 * mean / top if top else 100
    across = element("line", x1=0, x2=len(values), y1=round(line, 2), y2=round(line, 2), class_="mark dash")
    return _stretched(max(len(values), 1), 100, what, *bars, across, height=90)


def stacked_columns(
    stacks: Sequence[Sequence[float]], kinds: Sequence[str], top: float, what: str, labels: Sequence[str]
) -> Markup:
    """A column for each stack, of one part for each kind, the first kind at the bottom."""
    parts: list[Markup] = []
    for number, (stack, label) in enumerate(zip(stacks, labels, strict=True)):
        below = 0.0
        for kind, value in zip(kinds, stack, strict=True):
            height = 100 * value / top if top else 0
            place = {"y": round(100 - below - height, 2), "height": round(height, 2), "x": number + 0.09, "width": 0.82}
            parts.append(element("rect", element("title", label), class_=f"bar {kind}", **place))
            below += height
    return _stretched(max(len(stacks), 1), 100, what, *parts, height=110)


def part_of_whole(value: float, top: float, what: str) -> Markup:
    """A bar up to the value, in front of a pale one up to the top."""
    whole = element("rect", x=0, y=3, width=1000, height=10, class_="h0")
    part = element("rect", x=0, y=3, width=round(1000 * value / top, 1) if top else 0, height=10, class_="bar")
    return _stretched(1000, 16, what, whole, part, height=16)


def bar(value: float | None, mark: float | None, top: float, what: str) -> Markup:
    """A bar up to the value, and a mark, such as what was predicted."""
    share = 0.0 if value is None or not top else 1000 * value / top
    drawn = [] if value is None else [element("rect", x=0, y=3, width=round(max(share, 2), 1), height=10, class_="bar")]
    if mark is not None and top:
        at = round(min(max(1000 * mark / top, 1), 999), 1)
        drawn.append(element("line", x1=at, x2=at, y1=0, y2=16, class_="mark"))
    return _stretched(1000, 16, what, *drawn, height=16)


def span(
    least: float, low: float, middle: float, high: float, most: float, mark: float, top: float, what: str
) -> Markup:
    """A range with its quartiles, and a mark; what lies beyond the mark has another colour."""
    at = [round(1000 * min(max(one, 0) / top, 1), 1) if top else 0.0 for one in (least, low, middle, high, most, mark)]
    drawn = [element("rect", x=at[0], y=13, width=max(at[4] - at[0], 1), height=4, class_="bar pale")]
    if at[4] > at[5]:
        drawn.append(element("rect", x=at[5], y=13, width=round(at[4] - at[5], 1), height=4, class_="bar over"))
    drawn.append(element("rect", x=at[1], y=7, width=round(max(at[3] - at[1], 2), 1), height=16, class_="bar"))
    drawn.append(element("rect", x=max(at[2] - 1, 0), y=7, width=3, height=16, fill="var(--card)"))
    drawn.append(element("line", x1=at[5], x2=at[5], y1=0, y2=30, class_="mark"))
    return _stretched(1000, 30, what, *drawn, height=30)


def flows(flowing: Sequence[Flow], sources: int, targets: int, what: str) -> Markup:
    """Bands from sources (left) to targets (right), as thick as the amounts."""
    total = sum(flow.amount for flow in flowing) or 1
    places = max(sources, targets)
    gap = min(8.0, 120 / places)
    unit = (400 - gap * (places - 1)) / total
    left = _stacks([(flow.source, flow.amount) for flow in flowing], sources, unit, gap)
    right = _stacks([(flow.target, flow.amount) for flow in flowing], targets, unit, gap)
    begin, end = dict(left), dict(right)
    moving: list[str] = []
    staying: list[str] = []
    ends: list[Markup] = []
    for flow in sorted(flowing):
        thick = flow.amount * unit
        band = _band(begin[flow.source], end[flow.target], thick)
        (staying if flow.stays else moving).append(band)
        begin[flow.source] += thick
        end[flow.target] += thick
    for stacks, filled, x in ((left, begin, 0), (right, end, 594)):
        for place, at in stacks.items():
            height = max(filled[place] - at, 1)
            ends.append(element("rect", x=x, y=round(at, 1), width=6, height=round(height, 1), class_="end"))
    paths = [
        element("path", d="".join(bands), class_=kind)
        for kind, bands in (("stays", staying), ("moves", moving))
        if bands
    ]
    return _stretched(600, 400, what, *paths, *ends, height=min(360, 120 + 12 * places))


def _stacks(amounts: Sequence[tuple[int, int]], places: int, unit: float, gap: float) -> dict[int, float]:
    """Where each place begins, from the top, so that both sides are in the middle."""
    thick = [0.0] * places
    for place, amount in amounts:
        thick[place] += amount * unit
    at = (400 - sum(thick) - gap * (places - 1)) / 2
    found: dict[int, float] = {}
    for place, height in enumerate(thick):
        found[place] = at
        at += height + gap
    return found


def _band(left: float, right: float, thick: float) -> str:
    a, b, c, d = (f"{value:.1f}" for value in (left, right, right + thick, left + thick))
    return f"M6 {a}C260 {a} 340 {b} 594 {b}V{c}C340 {c} 260 {d} 6 {d}Z"


def _stretched(width: int, tall: int, what: str, *content: Content, height: int) -> Markup:
    """A chart that fills its width, and has a fixed height on the screen."""
    return element(
        "svg",
        join(*content),
        viewBox=f"0 0 {width} {tall}",
        preserveAspectRatio="none",
        role="img",
        aria_label=what,
        class_="bare",
        style=f"--height:{height}px",
    )


def legend(*entries: tuple[str, str]) -> Markup:
    """What the colours of a drawing mean: their classes in the style sheet, without `k-`, and the words for them."""
    return element(
        "div", *(element("span", element("i", class_=f"k-{kind}"), name) for kind, name in entries), class_="legend"
    )
