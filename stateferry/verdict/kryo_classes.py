"""Which classes Kryo 2 (Flink 1.x) and Kryo 5 (Flink 2.x) write alike, and what Kryo 5 makes of the others' bytes.

What is said of each class was seen with real Flink: `tests/flink/test_verdict.py` restores values of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from flinkstate.kryo.to_other_kryo import NEVER_READ
from flinkstate.values.kryo_class_names import ENTRY_BY_ENTRY
from stateferry.verdict.outcomes import Outcome

_UTIL = "java.util."
_LANG = "java.lang."
_TUPLE = "org.apache.flink.api.java.tuple.Tuple"
_EITHER = "org.apache.flink.types.Either"
NULL = "null"

# Without parts of other classes.
ALIKE = frozenset(
    (
        *(f"{_LANG}{name}" for name in ("Integer", "Long", "Byte", "Boolean", "String")),
        *("java.math.BigInteger", "java.math.BigDecimal", "java.util.Date"),
        *("java.sql.Date", "java.sql.Time", "java.sql.Timestamp"),
        *("java.net.URI", "java.util.Currency"),
        *(f"{_UTIL}concurrent.atomic.{name}" for name in ("AtomicInteger", "AtomicLong")),
        *("[I", "[J", "[B", f"[L{_LANG}String;", f"[L{_LANG}Long;", f"[L{_LANG}Integer;"),
    )
)
# The classes of their parts are looked at too.
_AROUND = frozenset(
    (
        *(f"{_EITHER}$Left", f"{_EITHER}$Right", "java.util.Optional", "[Ljava.lang.Object;"),
        *(f"{_TUPLE}{arity}" for arity in range(1, 26)),
    ),
)
# Of these no other class is a subclass.
FINAL = frozenset(
    (*(f"{_LANG}{name}" for name in ("Integer", "Long", "Byte", "Boolean", "String")), "java.net.URI")
) | {"java.util.Currency"}
# Of these a long String may be a part. Both Kryos read each other's, but Kryo 5 writes some with other bytes.
WITH_TEXT = frozenset(("java.lang.String", "java.net.URI"))

_NUMBERS = frozenset(
    (*(f"{_LANG}{name}" for name in ("Float", "Double", "Short", "Character")), *("[F", "[D", "[S", "[C"))
)
_NULL_AFTERWARDS = frozenset(f"{_UTIL}{name}" for name in ("TreeMap", "TreeSet", "concurrent.ConcurrentSkipListMap"))
_MAPS = frozenset(ENTRY_BY_ENTRY)
_COLLECTIONS = frozenset(
    f"{_UTIL}{name}"
    for name in (
        *("ArrayList", "LinkedList", "Vector", "Stack", "concurrent.CopyOnWriteArrayList", "HashSet"),
        *("LinkedHashSet", "ArrayDeque"),
    )
)
_OTHER_VALUES = frozenset(("java.util.BitSet", "java.time.Instant", "java.time.Year"))
_OFTEN_UNREADABLE = frozenset(
    (
        "java.util.UUID",
        *(f"java.time.{name}" for name in ("LocalDate", "LocalTime", "LocalDateTime", "Duration", "Period")),
        *(f"java.time.{name}" for name in ("YearMonth", "MonthDay", "ZonedDateTime", "OffsetDateTime", "OffsetTime")),
        *("java.time.ZoneOffset", "java.util.regex.Pattern"),
    )
)
_ENUMS = frozenset(("java.time.DayOfWeek", "java.time.Month", "java.util.concurrent.TimeUnit"))

_DIFFERENCES = (
    (_MAPS, "each map comes back without one of its entries, an empty one as null"),
    (_NULL_AFTERWARDS, "each comes back as null"),
    (_COLLECTIONS, "each collection comes back without one of its elements or with others, an empty one as null"),
    (_NUMBERS, "they come back as other values, because the order of their bytes is another"),
    (_ENUMS, "constants come back as other constants"),
    (_OTHER_VALUES, "they come back as other values"),
    (_OFTEN_UNREADABLE, "they can't be read any more, or come back as other values"),
)


_NOT_READ_BY_2 = ("java.util.ImmutableCollections$", "java.util.ArrayList$SubList")
# Kryo 2 leaves out the name of an offset.
_WITH_OFFSET = frozenset(
    f"java.time.{name}" for name in ("ZoneOffset", "ZonedDateTime", "OffsetDateTime", "OffsetTime")
)
# Flink 2 reads seven bytes at once for their elements.
SMALL_ARRAYS = frozenset(("[S", "[C", "[F"))
_SINGLE = ALIKE | _NUMBERS | _OTHER_VALUES | _OFTEN_UNREADABLE | _ENUMS


def broken_anyway(classes: Iterable[str], kryo: str) -> tuple[Outcome, str] | None:
    """Says of classes that the Kryo that wrote them doesn't read as they were, in the same Flink either."""
    for name in classes:
        if name.startswith(NEVER_READ) or (kryo == "2" and name.startswith(_NOT_READ_BY_2)):
            return Outcome.FAILS, f"Kryo {kryo} writes {name}, but can't read it again"
        if kryo == "2" and name in _WITH_OFFSET:
            return Outcome.WRONG, f"Kryo 2 leaves out a part of {name}: the job reads it without the name of its offset"
    return None


def is_map_of_entries(classes: Iterable[str]) -> bool:
    """Whether all these are maps that come back without an entry."""
    return all(name == NULL or name in _MAPS for name in classes)


def is_single(class_name: str) -> bool:
    """Whether an object of the class holds no others, so that equal ones always have the same bytes."""
    return class_name in _SINGLE


def written_alike(classes: Iterable[str]) -> bool:
    """Whether values that hold objects of these classes only have the same bytes in both lines."""
    return all(name == NULL or name in ALIKE or name in _AROUND for name in classes)


def difference(class_name: str) -> str | None:
    """Returns what Flink 2 makes of each value of this class that Flink 1 wrote; None if that isn't known."""
    return next((text for names, text in _DIFFERENCES if class_name in names), None)


def outcomes_of(class_name: str) -> tuple[Outcome, Outcome | None]:
    """Returns what such values lead to, and what else they may lead to."""
    if class_name in _OFTEN_UNREADABLE:
        return Outcome.FAILS, Outcome.WRONG
    if class_name in _NUMBERS | _OTHER_VALUES:
        return Outcome.WRONG, None
    return Outcome.WRONG, Outcome.FAILS
