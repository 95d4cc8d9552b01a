"""Durations as people write them (`90s`, `11.5s`, `15m`, `12h`, `30d`, milliseconds), points in time, and the clock."""

from __future__ import annotations

import re
import time

from flinkstate.errors import UsageError

MAX_MILLISECONDS = 2**63 - 1
MILLISECONDS_PER_UNIT = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}

_DURATION = re.compile(r"([0-9]+)(?:\.([0-9]{1,9}))? ?(d|h|m|s|ms)?", re.ASCII)


def parse_duration(text: str | int) -> int:
    """Returns the milliseconds of a duration; a number without a unit is milliseconds.

    A text such as `30` is refused: whoever forgets the unit of 30 days would lose all that is older than 30 ms.
    """
    match = _DURATION.fullmatch(str(text).strip())
    if match is None or isinstance(text, bool):
        raise UsageError(
            f"expected a duration such as 90s, 11.5s, 15m, 12h or 30d, or plain milliseconds, found {text!r}: "
            "write a number followed by one of d, h, m, s, ms"
        )
    whole, fraction, unit = match.groups(default="")
    if isinstance(text, str) and not unit and 1 <= len(whole.lstrip("0")) <= 3:
        raise UsageError(
            f"expected a duration with its unit, found {text!r}: "
            f"write {whole}d, {whole}h, {whole}m or {whole}s, or {whole}ms"
        )
    size = MILLISECONDS_PER_UNIT[unit or "ms"]
    part, rest = divmod(int(fraction or 0) * size, 10 ** len(fraction))
    if rest:
        raise UsageError(f"expected a duration in whole milliseconds, found {text!r}: write it as 90s, 11.5s or 250ms")
    milliseconds = int(whole) * size + part if len(whole) <= 19 else MAX_MILLISECONDS + 1
    if milliseconds > MAX_MILLISECONDS:
        raise UsageError(
            f"expected a duration of at most {MAX_MILLISECONDS} milliseconds, found {text!r}: give a shorter one"
        )
    return milliseconds


def format_duration(milliseconds: int) -> str:
    """Returns the shortest exact text that `parse_duration` reads."""
    if not 0 <= milliseconds <= MAX_MILLISECONDS:
        raise UsageError(f"expected a duration of 0..{MAX_MILLISECONDS} milliseconds, found {milliseconds}")
    for unit, size in MILLISECONDS_PER_UNIT.items():
        if milliseconds and milliseconds % size == 0 and (unit != "ms" or milliseconds < 1000):
            return f"{milliseconds // size}{unit}"
    seconds, rest = divmod(milliseconds, 1000)
    return f"{seconds}.{f'{rest:03}'.rstrip('0')}s" if rest else "0ms"


def rough_duration(milliseconds: int) -> str:
    """Returns a text for people, with three digits: `29.8 d`."""
    for unit, size in MILLISECONDS_PER_UNIT.items():
        if milliseconds >= size and unit != "ms":
            number = milliseconds / size
            return f"{number:.1f} {unit}" if number < 99.95 else f"{number:,.0f} {unit}"
    return f"{milliseconds} ms"


def rough_age(milliseconds: int) -> str:
    """Returns an age for people; what is later than now has one below zero."""
    return rough_duration(milliseconds) if milliseconds >= 0 else f"{rough_duration(-milliseconds)} in the future"


def now_ms() -> int:
    """The present time in milliseconds. The library reads the clock here; a catalog in Postgres has its own."""
    return time.time_ns() // 1_000_000


def moment(milliseconds: int) -> str:
    """Returns a text for people of a point in time."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(milliseconds / 1000))
