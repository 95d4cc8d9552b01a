"""A histogram of ages for people: a few classes of equal width, in a round unit of time."""

from __future__ import annotations

from dataclasses import dataclass

from stateferry.basics.durations import MILLISECONDS_PER_UNIT
from stateferry.inventory.ages import Ages

_MOST_CLASSES = 15
_DAY, _HOUR, _MINUTE, _SECOND = (MILLISECONDS_PER_UNIT[unit] for unit in "dhms")
_WIDTHS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_SECOND * seconds for seconds in (1, 2, 5, 10, 20, 30)),
    *(_MINUTE * minutes for minutes in (1, 2, 5, 10, 20, 30)),
    *(_HOUR * hours for hours in (1, 2, 3, 6, 12)),
    *(_DAY * days for days in (1, 2, 5, 10, 20, 30, 60, 90, 180)),
)
_YEAR = 365 * _DAY


# The oldest of a hundred don't widen the classes; they are in one of their own, without an end.
_SHARE = 0.99


@dataclass(frozen=True, slots=True)
class AgeClass:
    """About so many entries have an age of `least` milliseconds or more, but less than `below` if there is an end."""

    least: int
    below: int | None
    entries: int


def classes(ages: Ages) -> tuple[AgeClass, ...]:
    """Returns the classes up to the oldest age. What is in the future is in the first one."""
    if not ages.entries:
        return ()
    reach = max(ages.quantile(_SHARE), 0)
    width = next((width for width in _WIDTHS if reach < width * _MOST_CLASSES), 0)
    if not width:
        width = -(-(reach + 1) // (_MOST_CLASSES * _YEAR)) * _YEAR
    number = reach // width + 1
    older = [ages.entries, *(ages.older_than(width * one) for one in range(1, number + 1))]
    found = [AgeClass(width * one, width * (one + 1), older[one] - older[one + 1]) for one in range(number)]
    if older[-1]:
        found.append(AgeClass(width * number, None, older[-1]))
    return tuple(found)
