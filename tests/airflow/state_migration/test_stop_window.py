"""The window in which a job may be stopped, also on the nights on which clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from stateferry.airflow.requests.stop_window import Window

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def at(day: int, hour: int, minute: int = 0, month: int = 11) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone", "now", "lasts", "begin"),
    [
        ("02:00-04:00", "UTC", at(20, 1), MINUTE, at(20, 2)),
        ("02:00-04:00", "UTC", at(20, 2), MINUTE, at(20, 2)),
        ("02:00-04:00", "UTC", at(20, 3, 58), MINUTE, at(20, 3, 58)),
        # The end would lie outside, so it waits for the next night.
        ("02:00-04:00", "UTC", at(20, 3, 59), 2 * MINUTE, at(21, 2)),
        ("02:00-04:00", "UTC", at(20, 4), MINUTE, at(21, 2)),
        # It may end on the next day.
        ("23:00-01:00", "UTC", at(20, 0, 30), MINUTE, at(20, 0, 30)),
        ("23:00-01:00", "UTC", at(20, 12), MINUTE, at(20, 23)),
        ("02:00 - 04:00", "Europe/Berlin", at(20, 12), MINUTE, at(21, 1)),
        ("02:00-04:00", "America/New_York", at(20, 12), MINUTE, at(21, 7)),
        ("02:00-04:00", "UTC", at(20, 12), 3 * HOUR, None),
    ],
)
def test_it_begins_when_the_window_is_open_and_long_enough(
    text: str, zone: str, now: datetime, lasts: timedelta, begin: datetime | None
) -> None:
    assert Window.of(text, zone).begin(now, lasts) == begin


def test_clocks_that_change_make_it_longer_shorter_or_empty() -> None:
    # On 25 October 2026 at 3 o'clock, clocks in Berlin go back to 2.
    autumn = Window.of("02:00-04:00", "Europe/Berlin")
    assert autumn.begin(at(24, 23, month=10), 3 * HOUR) == at(25, 0, month=10)
    assert autumn.begin(at(25, 12, month=10), 3 * HOUR) is None
    # On 29 March 2026 at 2 o'clock, they go on to 3.
    spring = Window.of("01:30-03:30", "Europe/Berlin")
    assert spring.begin(at(28, 23, month=3), 2 * HOUR) == at(30, 0, month=3) - HOUR / 2
    missing = Window.of("02:00-02:30", "Europe/Berlin")
    begins = missing.begin(at(28, 23, month=3), MINUTE)
    assert begins is not None
    assert begins >= at(29, 1, month=3)


@pytest.mark.parametrize("text", ["", "2-4", "02:00", "02:00-02:00", "24:00-01:00", "02:60-04:00", "02:00-04:00 UTC"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a window"):
        Window.of(text, "UTC")


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../etc/passwd", "/etc/localtime"])
def test_a_zone_that_nobody_knows_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="expected the name of a time zone"):
        Window.of("02:00-04:00", zone)
