"""Time to live: the settings of Flink's `StateTtlConfig`, and the rule that says when a value has expired.

Times are milliseconds in 64 bits and overflow as in Java.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from flinkstate.errors import UsageError

MAX_LONG = 2**63 - 1
MIN_LONG = -(2**63)


class UpdateType(Enum):
    """Which accesses renew a value's timestamp, so what its age says."""

    ON_CREATE_AND_WRITE = "OnCreateAndWrite"
    ON_READ_AND_WRITE = "OnReadAndWrite"

    @property
    def since(self) -> str:
        """Since when a value is as old as its timestamp says."""
        return "last written" if self is UpdateType.ON_CREATE_AND_WRITE else "last read or written"


class StateVisibility(Enum):
    """Whether a job may still see an expired value that hasn't been removed yet."""

    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "ReturnExpiredIfNotCleanedUp"
    NEVER_RETURN_EXPIRED = "NeverReturnExpired"


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """The settings of one state that matter for its savepoints; `time_to_live` is in milliseconds.

    The other strategies of cleanup leave no trace that could be checked, so only that of full snapshots is here.
    """

    time_to_live: int
    update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE
    visibility: StateVisibility = StateVisibility.NEVER_RETURN_EXPIRED
    cleanup_full_snapshot: bool = False

    def __post_init__(self) -> None:
        _check("time to live (ms)", self.time_to_live, 1, MAX_LONG)

    def have_expired(self, timestamps: NDArray[np.int64], now: int) -> NDArray[np.bool_]:
        """Whether values of these timestamps have expired."""
        return expired_array(timestamps, self.time_to_live, now)


def expired(timestamp: int, ttl: int, now: int) -> bool:
    """Whether a value has expired, as Flink's `TtlUtils.expired`: `timestamp + ttl <= now`, capped against overflow."""
    for name, value in (("timestamp (ms)", timestamp), ("time to live (ms)", ttl), ("time (ms)", now)):
        _check(name, value, MIN_LONG, MAX_LONG)
    return _wrap(timestamp + _capped_ttl(timestamp, ttl)) <= now


def expired_array(timestamps: NDArray[np.int64], ttl: int, now: int) -> NDArray[np.bool_]:
    """`expired` for a column of timestamps."""
    _check("time to live (ms)", ttl, MIN_LONG, MAX_LONG)
    _check("time (ms)", now, MIN_LONG, MAX_LONG)
    room = np.int64(MAX_LONG) - np.maximum(timestamps, 0)
    ages = np.where(timestamps > 0, np.minimum(room, np.int64(ttl)), np.int64(ttl))
    # The sum of numpy's arrays overflows as Java's does.
    result: NDArray[np.bool_] = (timestamps + ages) <= np.int64(now)
    return result


def _capped_ttl(timestamp: int, ttl: int) -> int:
    return min(MAX_LONG - timestamp, ttl) if timestamp > 0 else ttl


def _wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _check(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"expected a {name} of {least}..{most}, found {value}")
