"""What a message says of a name that doesn't exist: which known name was probably meant, and which there are."""

from __future__ import annotations

import re
from collections.abc import Collection

_AS_GOOD_AS_EQUAL = 0.8
_BUT_FOR_A_LETTER = 0.9


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that is most like this one; None if none is. Upper and lower case count as alike."""
    from difflib import get_close_matches

    folded = {one.casefold(): one for one in known}
    near = get_close_matches(name.casefold(), folded, 1)
    return folded[near[0]] if near else None


def there_are(name: str, known: Collection[str], listed: str = "") -> str:
    """The end of a message: `Did you mean mainState? There are: mainState, newMainState`.

    `listed` is what there are, if that says more than the names.
    """
    near = nearest(name, known)
    did_you_mean = "" if near is None else f"Did you mean {near}? "
    return f"{did_you_mean}There are: {listed or ', '.join(known) or 'none'}"


def is_alike(one: str, other: str) -> bool:
    """Whether one name may be a slip of the other; case and what separates words don't count."""
    return _likeness(one, other) >= _AS_GOOD_AS_EQUAL


def is_slip(one: str, other: str) -> bool:
    """Whether one name is the other but for a letter or so. Names whose numbers differ are told apart on purpose."""
    return _likeness(one, other) >= _BUT_FOR_A_LETTER and _numbers(one) == _numbers(other)


def _likeness(one: str, other: str) -> float:
    from difflib import SequenceMatcher

    first, second = (re.sub(r"[\W_]+", "", name).lower() for name in (one, other))
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def _numbers(name: str) -> list[str]:
    return re.findall(r"\d+", name)
