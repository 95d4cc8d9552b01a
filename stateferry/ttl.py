"""Time to live: the settings of Flink's `StateTtlConfig`, and the rule that says when a value has expired.

Times are milliseconds in 64 bits and overflow as in Java.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stateferry.durations import MILLISECONDS_PER_UNIT
from stateferry.errors import UsageError

MAX_LONG = 2**63 - 1
MIN_LONG = -(2**63)


class UpdateType(Enum):
    """Which accesses renew a value's timestamp."""

    DISABLED = "Disabled"
    ON_CREATE_AND_WRITE = "OnCreateAndWrite"
    ON_READ_AND_WRITE = "OnReadAndWrite"


class StateVisibility(Enum):
    """Whether a job may still see an expired value that hasn't been removed yet."""

    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "ReturnExpiredIfNotCleanedUp"
    NEVER_RETURN_EXPIRED = "NeverReturnExpired"


class TtlTimeCharacteristic(Enum):
    """The clock by which values age; Flink has only this one."""

    PROCESSING_TIME = "ProcessingTime"


@dataclass(frozen=True, slots=True)
class IncrementalCleanup:
    """Checks `cleanup_size` entries at a time, on every access to the state or also on every record."""

    cleanup_size: int = 5
    run_cleanup_for_every_record: bool = False

    def __post_init__(self) -> None:
        _check("incremental cleanup size (entries)", self.cleanup_size, 1, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class CompactionFilterCleanup:
    """Removes expired entries in RocksDB's compactions, which read the time again after so many entries.

    Files older than the period are always compacted; a period of 0 turns that off.
    """

    query_time_after_entries: int = 1000
    periodic_compaction: int = 30 * MILLISECONDS_PER_UNIT["d"]

    def __post_init__(self) -> None:
        _check("number of entries between two queries of the time", self.query_time_after_entries, 0, MAX_LONG)
        _check("period of compaction (ms)", self.periodic_compaction, 0, MAX_LONG)


@dataclass(frozen=True, slots=True)
class CleanupStrategies:
    """How expired values are removed; by default in the background, in the state backend's own way."""

    in_full_snapshot: bool = False
    incremental: IncrementalCleanup | None = None
    compaction_filter: CompactionFilterCleanup | None = None
    in_background: bool = True

    @property
    def effective_incremental(self) -> IncrementalCleanup | None:
        """The increments of the HashMap backend: cleanup in the background alone means the default ones."""
        return self.incremental or (IncrementalCleanup() if self.in_background else None)

    @property
    def in_compaction_filter(self) -> bool:
        """Whether the RocksDB backend removes expired entries in compactions."""
        return self.in_background or self.compaction_filter is not None


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """The time-to-live settings of one state; `time_to_live` is in milliseconds."""

    time_to_live: int
    update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE
    visibility: StateVisibility = StateVisibility.NEVER_RETURN_EXPIRED
    cleanup: CleanupStrategies = field(default_factory=CleanupStrategies)
    time_characteristic: TtlTimeCharacteristic = TtlTimeCharacteristic.PROCESSING_TIME

    DISABLED: ClassVar[StateTtlConfig]

    def __post_init__(self) -> None:
        _check("time to live (ms)", self.time_to_live, 1, MAX_LONG)

    @property
    def is_enabled(self) -> bool:
        return self.update_type is not UpdateType.DISABLED

    def has_expired(self, timestamp: int, now: int) -> bool:
        """Whether a value last accessed at `timestamp` has expired; without time to live none ever does."""
        return self.is_enabled and expired(timestamp, self.time_to_live, now)

    def have_expired(self, timestamps: NDArray[np.int64], now: int) -> NDArray[np.bool_]:
        """`has_expired` for a column of timestamps."""
        if not self.is_enabled:
            return np.zeros(len(timestamps), dtype=np.bool_)
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


StateTtlConfig.DISABLED = StateTtlConfig(MAX_LONG, UpdateType.DISABLED)
