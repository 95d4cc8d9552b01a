"""What Python has no type of its own for, among the values that Flink's serializers write.

Booleans, numbers and strings are Python's own (a String may hold lone surrogates, a Character is a string of one UTF-16
unit); `java.util.Date`, `java.sql.Date` and `java.sql.Time` are milliseconds; tuples are tuples; lists, sets and arrays
are lists, but `byte[]` and Bitmap are bytes; a map is a list of pairs: keys need not be hashable; an enum is
its name; null is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Singleton(Enum):
    """Values that are one of a kind, but not null."""

    VOID_NAMESPACE = "VoidNamespace"
    GLOBAL_WINDOW = "GlobalWindow"
    NULL_VALUE = "NullValue"
    UNIT = "Unit"


@dataclass(frozen=True, slots=True)
class BigDecimal:
    """`unscaled` * 10 ** -`scale`: equal values of different scale are different values, as in Java."""

    unscaled: int
    scale: int


@dataclass(frozen=True, slots=True)
class LocalDate:
    """Python's own dates end at the year 9999."""

    year: int
    month: int
    day: int


@dataclass(frozen=True, slots=True)
class LocalTime:
    hour: int
    minute: int
    second: int
    nano: int


@dataclass(frozen=True, slots=True)
class LocalDateTime:
    date: LocalDate
    time: LocalTime


@dataclass(frozen=True, slots=True)
class Instant:
    seconds: int
    nano: int


@dataclass(frozen=True, slots=True)
class SqlTimestamp:
    """`nano` is the whole fraction of the second, the milliseconds of `millis` included."""

    millis: int
    nano: int


@dataclass(frozen=True, slots=True)
class Variant:
    value: bytes
    metadata: bytes


@dataclass(frozen=True, slots=True)
class TimeWindow:
    start: int
    end: int


class RowKind(Enum):
    """The change a row stands for, by the two bits Flink writes."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3


@dataclass(frozen=True, slots=True)
class RowValue:
    fields: tuple[Any, ...]
    kind: RowKind = RowKind.INSERT


@dataclass(frozen=True, slots=True)
class PojoValue:
    """`class_name` is that of the object itself: the declared class or one of its subclasses."""

    class_name: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EitherValue:
    value: Any
    is_left: bool


@dataclass(frozen=True, slots=True)
class OptionValue:
    """Scala's `Some(value)` or `None`: not null, though a Some may hold one."""

    value: Any
    is_some: bool


@dataclass(frozen=True, slots=True)
class UnionValue:
    """A value of one of an Avro union's branches. A union of a type and null has the value alone, or None."""

    branch: int
    value: Any


@dataclass(frozen=True, slots=True)
class TtlValue:
    timestamp: int
    value: Any


@dataclass(frozen=True, slots=True)
class TimerValue:
    timestamp: int
    key: Any
    namespace: Any
