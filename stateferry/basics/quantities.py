"""Shares and counted nouns, as people write and read them."""

from __future__ import annotations

import math
import re

from flinkstate.errors import UsageError

_STEPS_UP = ("B", "kB", "MB", "GB", "TB")
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(%)?", re.ASCII)


def parse_share(text: str | float) -> float:
    """Returns the number of a share."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        share = float(text)
    else:
        match = _SHARE.fullmatch(str(text).strip())
        share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"expected a share such as 60% or 0.6, at most 100% or 1, found {text!r}")
    return share


def percent(share: float) -> str:
    """Returns a text for people, rounded down, so that nothing less than the whole is 100 %."""
    return f"{math.floor(round(share * 1000, 6)) / 10:.1f} %"


def percent_at_least(share: float) -> str:
    """Returns the least whole percentage that is no less than the share, as `parse_share` reads it."""
    return f"{min(math.ceil(round(share * 100, 6)), 100)}%"


def noun(number: int, one: str, several: str | None = None) -> str:
    """Returns `one` if the number is 1, else `several`, by default `one` with an s."""
    return one if number == 1 else f"{one}s" if several is None else several


def shown_amount(amount: float, unit: str) -> str:
    """Returns an amount with its unit; bytes get a larger unit if it fits."""
    if unit != "B":
        return f"{amount:,.0f} {unit}"
    power = 0
    while amount >= 1000 and power < len(_STEPS_UP) - 1:
        amount, power = amount / 1000, power + 1
    return f"{amount:.1f} {_STEPS_UP[power]}" if power else f"{amount:.0f} B"
