"""Kryo 5 stores no offset of a `ZonedDateTime`: in an hour that a clock change repeats, it reads the first one.

Which hours these are, the time zone data of the machine says.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.kryo.refusal import RefusedValueError, text_at

# Their offset never changes, so any that they have is the only one.
_FIXED = re.compile(r"(UTC|GMT|UT)([+-].*)?")
# Python's years end at 9999; the calendar repeats itself after 400. In the year 4 all zones have the time of the sun.
_CYCLE, _LAST_CYCLE, _FIRST_LEAP_YEAR = 400, 9600, 4
_SECOND = timedelta(seconds=1)


def expect_first_offsets(data: Bytes, moments: Positions) -> None:
    """Refuses a `ZonedDateTime` whose offset isn't the one that Kryo 5 would read.

    `moments` has of each where the name of its zone is, its year, its month, day, hour, minute and second, a byte each,
    and its offset in seconds.
    """
    for place, year, rest, offset in np.unique(moments, axis=0).tolist():
        name, parts = text_at(data, place), tuple(rest.to_bytes(5))
        if _FIXED.fullmatch(name):
            continue
        local = "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}".format(year, *parts)
        first, second = _offsets(name, _known_year(year), parts)
        if first is None or second is None:
            raise RefusedValueError(
                f"the ZonedDateTime {local} in {name}: Kryo 5 stores no offset, and this machine has no data of that "
                "time zone, by which to tell whether it would read the same one (install the system's tzdata)",
                place,
            )
        if first != offset or second > first:
            raise RefusedValueError(
                f"the ZonedDateTime {local} in {name} is {offset} seconds ahead of UTC: Kryo 5 stores no offset, and "
                f"by the time zone data of this machine it would read one that is {first} seconds ahead",
                place,
            )


def _known_year(year: int) -> int:
    """Returns a year that Python knows, in which clocks change on the same days."""
    if year < 1:
        return _FIRST_LEAP_YEAR
    return year if year < _LAST_CYCLE else _LAST_CYCLE + year % _CYCLE


@lru_cache(maxsize=1 << 16)
def _offsets(name: str, year: int, parts: tuple[int, ...]) -> tuple[int | None, int | None]:
    """Returns the offsets of a local time before and after a clock change, in seconds; None without data."""
    zone = _zone(name)
    month, day, hour, minute, second = parts
    first, later = (
        datetime(year, month, day, hour, minute, second, tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)
    )
    return None if first is None else first // _SECOND, None if later is None else later // _SECOND


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
