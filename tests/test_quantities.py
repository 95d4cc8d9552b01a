"""Shares, ages and counted nouns as people write and read them."""

from __future__ import annotations

import pytest

from flinkstate.errors import UsageError
from stateferry.basics.durations import MILLISECONDS_PER_UNIT, moment, rough_duration
from stateferry.basics.quantities import noun, parse_share, percent, percent_at_least


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("60%", 0.6),
        ("60 %", 0.6),
        ("0.6", 0.6),
        (0.6, 0.6),
        (" 7% ", 0.07),
        ("12.5%", 0.125),
        ("100%", 1),
        (1, 1),
        ("0", 0),
        (1e-9, 1e-9),
    ],
)
def test_shares_are_read_as_numbers_up_to_one(text: str | float, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize(
    "text", ["", "%", "60", "101%", "1.01", 1.5, -0.1, "-1%", "sixty", "1e-1", "٦%", True, float("nan")]
)
def test_what_is_no_share_is_refused(text: str | float) -> None:
    with pytest.raises(UsageError, match=r"expected a share such as 60% or 0\.6"):
        parse_share(text)


def test_percentages_never_say_more_than_there_is_or_accept_less() -> None:
    assert [percent(share) for share in (0, 0.0457, 0.6, 0.9999, 1)] == [
        "0.0 %",
        "4.5 %",
        "60.0 %",
        "99.9 %",
        "100.0 %",
    ]
    for expired in range(1, 1001):
        assert parse_share(percent_at_least(expired / 1000)) >= expired / 1000
    assert percent_at_least(0.07) == "7%"


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (29.8, "29.8 d"),
        (365, "365 d"),
        (99.96, "100 d"),
        (0.5, "12.0 h"),
        (1 / 24, "1.0 h"),
        (1 / 1440, "1.0 m"),
        (0, "0 ms"),
    ],
)
def test_ages_for_people(age: float, text: str) -> None:
    assert rough_duration(int(age * MILLISECONDS_PER_UNIT["d"])) == text


def test_moments_for_people() -> None:
    assert moment(1_795_000_000_000) == "2026-11-18 11:06:40 UTC"
    assert moment(2**63 - 1).endswith("UTC")


@pytest.mark.parametrize(("number", "expected"), [(0, "keys are"), (1, "key is"), (2, "keys are"), (11, "keys are")])
def test_one_is_the_only_number_of_one(number: int, expected: str) -> None:
    assert noun(number, "key is", "keys are") == expected
