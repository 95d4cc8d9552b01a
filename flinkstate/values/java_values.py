"""Classes for those values of Flink's serializers for which Python has no type of its own.

Booleans, numbers and strings are Python's own (a String may have lone surrogates, a Character is a string of one UTF-16
unit). `java.util.Date`, `java.sql.Date` and `java.sql.Time` are milliseconds. Tuples are tuples. Lists, sets and arrays
are lists, but `byte[]` and Bitmap are bytes. A map is a list of pairs, because its keys need not be hashable. An enum
constant is its name. Null is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Singleton(Enum):
    """The values of types that have only one value, which isn't null."""

    VOID_NAMESPACE = "VoidNamespace"
    GLOBAL_WINDOW = "GlobalWindow"
    NULL_VALUE = "NullValue"
    UNIT = "Unit"


@dataclass(frozen=True, slots=True)
class BigDecimal:
    """`unscaled` * 10 ** -`scale`. As in Java, equal numbers with different scales are different values."""

    unscaled: int
    scale: int


@dataclass(frozen=True, slots=True)
class LocalDate:
    """A date of Java's range; Python's own dates end in the year 9999."""

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
    """Seconds since 1970 in UTC, and nanoseconds of the second."""

    seconds: int
    nano: int


@dataclass(frozen=True, slots=True)
class SqlTimestamp:
    """`nano` is the whole fraction of the second, with the milliseconds that `millis` has too."""

    millis: int
    nano: int


@dataclass(frozen=True, slots=True)
class Variant:
    """A value of Flink's type Variant, not decoded."""

    value: bytes
    metadata: bytes


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A window from `start` up to, but without, `end`, in milliseconds."""

    start: int
    end: int


class RowKind(Enum):
    """The change that a row stands for, by the two bits that Flink writes."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3


@dataclass(frozen=True, slots=True)
class RowValue:
    """A row: its fields by position, and the change that it stands for."""

    fields: tuple[Any, ...]
    kind: RowKind = RowKind.INSERT


@dataclass(frozen=True, slots=True)
class PojoValue:
    """`class_name` is the class of the object itself: the declared class or one of its subclasses."""

    class_name: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EitherValue:
    """The value of one side of an Either or a Try."""

    value: Any
    is_left: bool


@dataclass(frozen=True, slots=True)
class OptionValue:
    """Scala's `Some(value)` or `None`, neither of them null; the value of a Some may be null."""

    value: Any
    is_some: bool


@dataclass(frozen=True, slots=True)
class UnionValue:
    """A value of a branch of an Avro union. If the union is of a type and null, the value stands alone, or is None."""

    branch: int
    value: Any


@dataclass(frozen=True, slots=True)
class TtlValue:
    """A value with the time of its last access, in milliseconds."""

    timestamp: int
    value: Any


@dataclass(frozen=True, slots=True)
class TimerValue:
    """A timer, and the time in milliseconds at which it fires."""

    timestamp: int
    key: Any
    namespace: Any
