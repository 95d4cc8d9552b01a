"""What will have expired on each of the next days, and when each of Flink's strategies of cleanup removes it.

| strategy | what it removes, and when |
|---|---|
| full snapshot | what has expired is not in the next canonical savepoint; the running job keeps it |
| incremental (HashMap) | each access to the state looks at some keys, by default 5, and removes what has expired |
| compaction filter (RocksDB) | what has expired when a file is compacted, by default after 30 days at the latest |

An expired entry that is read is removed too. Without a strategy, entries that nobody reads any more stay for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from flinkstate.errors import UsageError
from stateferry.basics.durations import MILLISECONDS_PER_UNIT
from stateferry.inventory.ages import Ages

DAY = MILLISECONDS_PER_UNIT["d"]


@dataclass(frozen=True, slots=True)
class Cleanup:
    """The settings of a job's cleanup, by default Flink's.

    `size` is the number of keys (with namespaces) that an access looks at (`cleanupIncrementally`): Flink counts a
    whole map or list as one entry. RocksDB compacts each file when it is as old as `compaction` (the period of
    `cleanupInRocksdbCompactFilter`), and with 0 never for its age alone.
    """

    size: int = 5
    compaction: int = 30 * DAY

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"expected a cleanup size of at least 1 key, found {self.size}")


FLINKS_CLEANUP = Cleanup()


@dataclass(frozen=True, slots=True)
class ForecastDay:
    """A day from now on, if nothing is read or written: what expires on it, and sums up to its end.

    `expired` have expired, so a full snapshot leaves them out. `compacted` of them have been removed by the compaction
    filter at any rate (none, if no file is compacted for its age).
    """

    day: int
    expires: int
    expired: int
    compacted: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What goes when under a time to live (in milliseconds).

    `accesses` to the state make a round of the incremental cleanup (None if it isn't known). `overdue` entries should
    have been removed by a compaction filter before now.
    """

    expired: int
    days: tuple[ForecastDay, ...]
    accesses: int | None
    overdue: int


def forecast(ages: Ages, keys: int | None, ttl: int, days: int, cleanup: Cleanup = FLINKS_CLEANUP) -> Forecast:
    """Forecasts so many days for the entries of so many keys (None if that isn't known).

    Ages are those of a histogram, so the numbers of each day are about right.
    """

    def expired_on(day: int) -> int:
        return ages.older_than(max(ttl - day * DAY, 0))

    def compacted_on(day: int) -> int:
        return ages.older_than(max(ttl + cleanup.compaction - day * DAY, 0)) if cleanup.compaction else 0

    found = tuple(
        ForecastDay(day, expired_on(day) - expired_on(day - 1), expired_on(day), compacted_on(day))
        for day in range(1, days + 1)
    )
    accesses = None if keys is None else -(-keys // cleanup.size)
    return Forecast(expired_on(0), found, accesses, compacted_on(0))
