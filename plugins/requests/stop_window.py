"""The window in which a job may be stopped, such as 02:00-04:00 in a time zone, every day."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_WINDOW = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9]) ?- ?([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Window:
    """From a time of the day to another, by the clocks of the zone; the end may be on the next day."""

    start: time
    end: time
    zone: ZoneInfo

    @classmethod
    def of(cls, text: str, zone: str) -> Window:
        """Reads `02:00-04:00`; raises a `ValueError` that says what is wrong."""
        found = _WINDOW.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"expected a window such as 02:00-04:00, found {text!r}")
        hours = [int(number) for number in found.groups()]
        start, end = time(hours[0], hours[1]), time(hours[2], hours[3])
        if start == end:
            raise ValueError(f"expected a window that ends at another time than it begins, found {text!r}")
        return cls(start, end, zone_of(zone))

    def at_or_after(self, moment: datetime) -> Iterator[tuple[datetime, datetime]]:
        """The windows that end after the moment, in UTC: the first may have begun already. They never end."""
        day = moment.astimezone(self.zone).date() - timedelta(days=1)
        while True:
            next_day = day + timedelta(days=1)
            opens, closes = self._at(day, self.start), self._at(day if self.end > self.start else next_day, self.end)
            # On the night on which clocks change, a window inside the missing hour is empty.
            if closes > moment and closes > opens:
                yield opens, closes
            day = next_day

    def _at(self, day: date, of_day: time) -> datetime:
        return datetime.combine(day, of_day, self.zone).astimezone(UTC)

    def begin(self, now: datetime, lasts: timedelta) -> datetime | None:
        """When something that takes so long may begin: now, or when a window opens; None if no window is long enough.

        Clocks that change make some windows longer or shorter, so those of a week are looked at.
        """
        for number, (opens, closes) in enumerate(self.at_or_after(now)):
            begin = max(opens, now)
            if begin + lasts <= closes:
                return begin
            if number == 7:
                break
        return None


def zone_of(name: str) -> ZoneInfo:
    """The time zone with this name, such as Europe/Berlin; raises a `ValueError` if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"expected the name of a time zone, such as UTC or Europe/Berlin, found {name!r}") from None
