"""Names that look like a name that isn't there, so that a message can ask whether one of them was meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_AS_GOOD_AS_EQUAL = 0.8


def likeness(one: str, other: str) -> float:
    """How alike two names are, from 0 to 1; case and what separates words don't count."""
    first, second = (re.sub(r"[\W_]+", "", name).lower() for name in (one, other))
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def is_alike(one: str, other: str) -> bool:
    """Whether one name may be a slip of the other."""
    return likeness(one, other) >= _AS_GOOD_AS_EQUAL


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Asks whether the most alike of the names was meant, with a space before it; empty if none is alike."""
    found = max(names, key=lambda one: likeness(name, one), default=None)
    return f" Did you mean {found!r}?" if found is not None and is_alike(name, found) else ""
