import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import UsageError
from stateferry.basics.durations import MAX_MILLISECONDS, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90s", 90_000),
        ("15m", 900_000),
        ("12h", 43_200_000),
        ("30d", 2_592_000_000),
        ("250ms", 250),
        ("11.5s", 11_500),
        ("1.25 h", 4_500_000),
        ("0.001s", 1),
        ("1500", 1500),
        (" 2 h ", 7_200_000),
        (1500, 1500),
        ("0", 0),
        (30, 30),
        ("9223372036854775807", MAX_MILLISECONDS),
    ],
)
def test_durations_are_read_as_milliseconds(text: str | int, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "d",
        "-1s",
        -1,
        "1.5",
        "30",
        "0999",
        ".5s",
        "1.s",
        "1.5ms",
        "0.0001s",
        "1,5h",
        "1w",
        "1h30m",
        "٣s",
        "9223372036854775808",
        "9223372036854775807s",
        "9" * 5000,
        True,
    ],
)
def test_other_texts_are_refused_with_what_was_found(text: str | int) -> None:
    with pytest.raises(UsageError, match="expected a duration") as refusal:
        parse_duration(text)
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0ms"),
        (90_000, "90s"),
        (2_592_000_000, "30d"),
        (1500, "1.5s"),
        (11_500, "11.5s"),
        (61_007, "61.007s"),
        (999, "999ms"),
        (3_600_000, "1h"),
    ],
)
def test_format_takes_the_largest_exact_unit(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text


def test_format_refuses_what_is_no_duration() -> None:
    with pytest.raises(UsageError, match="found -1"):
        format_duration(-1)


@given(st.integers(0, MAX_MILLISECONDS))
def test_format_and_parse_undo_each_other(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds
