"""A step's facts for other tasks: rows, bytes, seconds and rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_ROWS = {
    "snapshot": ("entries",),
    "migrate": ("rows written", "rows folded"),
    "rescale": ("rows written", "rows kept"),
}


def figures(step: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The step's figures; `rate` is in bytes per second if the step counts bytes, else in rows per second."""
    seconds = float(facts.get("seconds", 0))
    rows = sum(sum(_all_of(facts, name)) for name in _ROWS.get(step, ()))
    bytes_ = sum(_all_of(facts, "bytes"))
    found: dict[str, Any] = {"step": step, "seconds": seconds}
    found |= {name: amount for name, amount in (("rows", rows), ("bytes", bytes_)) if amount}
    amount = bytes_ or rows
    if amount and seconds:
        found["rate"] = round(amount / seconds)
    return found


def _all_of(facts: Mapping[str, Any], name: str) -> Iterator[int]:
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _all_of(value, name)
        elif key == name and isinstance(value, int):
            yield value
