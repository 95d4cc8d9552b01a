import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import UsageError
from flinkstate.ttl import (
    MAX_LONG,
    MIN_LONG,
    StateTtlConfig,
    StateVisibility,
    UpdateType,
    expired,
    expired_array,
)

EDGES = st.sampled_from([MIN_LONG, MIN_LONG + 1, -1, 0, 1, MAX_LONG - 1, MAX_LONG])
LONGS = EDGES | st.integers(MIN_LONG, MAX_LONG)


def java_expired(timestamp: int, ttl: int, now: int) -> bool:
    """The rule in 64-bit arithmetic, step by step."""

    def long(value: int) -> int:
        return int.from_bytes((value & (2**64 - 1)).to_bytes(8, "big"), "big", signed=True)

    age = ttl
    if timestamp > 0 and long(MAX_LONG - timestamp) < ttl:
        age = long(MAX_LONG - timestamp)
    return long(timestamp + age) <= now


@pytest.mark.parametrize(
    ("timestamp", "ttl", "now", "expected"),
    [
        (1000, 100, 1099, False),
        (1000, 100, 1100, True),
        (1000, 100, 1101, True),
        (1000, MAX_LONG, MAX_LONG - 1, False),
        (1000, MAX_LONG, MAX_LONG, True),
        (0, MAX_LONG, MAX_LONG - 1, False),
        (-1000, 1000, -1, False),
        (-1000, 1000, 0, True),
        (5000, 100, 1000, False),
    ],
)
def test_expiry_at_its_edges(timestamp: int, ttl: int, now: int, expected: bool) -> None:
    assert expired(timestamp, ttl, now) is expected
    assert expired_array(np.array([timestamp]), ttl, now).tolist() == [expected]


@given(st.lists(LONGS, max_size=20), LONGS, LONGS)
def test_expiry_wraps_as_java_does(timestamps: list[int], ttl: int, now: int) -> None:
    expected = [java_expired(timestamp, ttl, now) for timestamp in timestamps]
    assert [expired(timestamp, ttl, now) for timestamp in timestamps] == expected
    assert expired_array(np.array(timestamps, dtype=np.int64), ttl, now).tolist() == expected


@pytest.mark.parametrize("triple", [(MAX_LONG + 1, 1, 1), (1, MAX_LONG + 1, 1), (1, 1, MIN_LONG - 1)])
def test_times_have_64_bits(triple: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match="expected a t"):
        expired(*triple)


def test_defaults_are_those_of_flink() -> None:
    config = StateTtlConfig(1000)
    assert config.update_type is UpdateType.ON_CREATE_AND_WRITE
    assert config.visibility is StateVisibility.NEVER_RETURN_EXPIRED
    assert not config.cleanup_full_snapshot


def test_settings_say_what_has_expired() -> None:
    config = StateTtlConfig(100)
    assert config.have_expired(np.array([900, 901]), 1000).tolist() == [True, False]


def test_settings_are_checked() -> None:
    for ttl in (0, MAX_LONG + 1):
        with pytest.raises(UsageError, match="expected a"):
            StateTtlConfig(ttl)
