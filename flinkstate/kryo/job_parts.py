"""Of which parts Kryo's FieldSerializer makes values of the classes of a job.

These are the fields of the class and its superclasses, sorted by name, neither static nor transient nor synthetic. A
field whose class is final has no class tag. Type arguments of a collection or map that are final classes drop the tags
of its elements (Kryo 2: of the collection in the field; Kryo 5: of those inside it too).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from flinkstate.classfiles.class_file import ABSTRACT, FINAL, INTERFACE, STATIC, SYNTHETIC, TRANSIENT, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.classfiles.plain_classes import ENUM_CLASS, collection_class, expect_plain, is_comparator, type_for_kryo
from flinkstate.classfiles.signatures import JavaType, parse_type
from flinkstate.errors import RefusedError
from flinkstate.kryo import kernel_codes as codes

_PRIMITIVES = {
    "I": codes.INTEGER, "J": codes.LONG, "S": codes.SHORT, "B": codes.BYTE, "Z": codes.BOOLEAN,
    "C": codes.CHARACTER, "F": codes.FLOAT, "D": codes.DOUBLE,
}  # fmt: skip
_COLLECTIONS = tuple(
    f"java.util.{name}"
    for name in (
        *("Collection", "List", "Set", "Queue", "Deque", "SortedSet", "NavigableSet", "ArrayList", "LinkedList"),
        *("Vector", "HashSet", "LinkedHashSet", "TreeSet", "ArrayDeque", "Map", "SortedMap", "NavigableMap", "HashMap"),
        *("LinkedHashMap", "TreeMap", "concurrent.ConcurrentMap", "concurrent.ConcurrentHashMap"),
    )
)
NOT_FINAL = (
    *_COLLECTIONS,
    *(f"java.lang.{name}" for name in ("Object", "Number", "Comparable", "CharSequence", "Iterable", "Runnable")),
    *("java.io.Serializable", "java.math.BigInteger", "java.math.BigDecimal", "java.util.Date", "java.util.BitSet"),
    *("java.sql.Date", "java.sql.Time", "java.sql.Timestamp", "java.time.ZoneId", "java.util.PriorityQueue"),
    *("java.util.Hashtable", "java.util.Properties", "java.util.Stack"),
    *("java.util.concurrent.atomic.AtomicInteger", "java.util.concurrent.atomic.AtomicLong", "java.util.Calendar"),
    *("java.util.EnumMap", "java.util.EnumSet", "java.util.TimeZone", "java.util.Comparator"),
)
# Not among either: java.util.concurrent.TimeUnit is final since Java 9, and no savepoint says which Java wrote it.
_FINAL = (
    *(f"java.lang.{name}" for name in ("String", "Integer", "Long", "Short", "Byte", "Boolean", "Character", "Float")),
    *("java.lang.Double", "java.lang.Class", "java.lang.StringBuilder", "java.util.UUID", "java.util.Optional"),
    *("java.util.Locale", "java.util.Currency", "java.net.URI", "java.net.URL", "java.util.regex.Pattern"),
    *(f"java.time.{name}" for name in ("LocalDate", "LocalTime", "LocalDateTime", "Instant", "Duration", "Period")),
    *(f"java.time.{name}" for name in ("Year", "YearMonth", "MonthDay", "ZoneOffset", "OffsetTime", "OffsetDateTime")),
    *("java.time.ZonedDateTime", "java.time.DayOfWeek", "java.time.Month"),
)


@dataclass(frozen=True, slots=True)
class JobPart:
    """A field: its kind, or for an object the name of its class ("" with a class tag), and its type arguments."""

    kind: int
    class_name: str = ""
    arguments: tuple[JavaType, ...] = ()
    name: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class JobTable:
    """What is known of a job's classes: the constants of enums, the parts of others, and why some can't be read.

    `collections` are collections and maps, with the class of the JDK as which Kryo writes them, `comparators` those of
    sorted ones: objects without parts.
    `of_compiler` are the fields that a compiler made, such as `this$0`: Kryo 2 writes them if flink-scala is on Flink's
    class path, else neither Kryo does. They aren't among the parts.
    """

    enums: dict[str, tuple[str, ...]]
    parts: dict[str, tuple[JobPart, ...]]
    reasons: dict[str, str]
    final: dict[str, bool] = field(default_factory=dict)
    enum_of: dict[str, str] = field(default_factory=dict)
    of_compiler: dict[str, str] = field(default_factory=dict)
    collections: dict[str, str] = field(default_factory=dict)
    comparators: frozenset[str] = frozenset()

    def is_final(self, name: str) -> bool:
        """Whether Kryo takes the class for final: of an array, that of its elements counts."""
        found = _is_final(self.final, name)
        assert found is not None, name
        return found


def job_table(job: JobClasses, defaults: Mapping[str, str]) -> JobTable:
    """Looks at all classes; `defaults` are the job's own serializers for classes and their subclasses."""
    enums: dict[str, tuple[str, ...]] = {}
    parts: dict[str, tuple[JobPart, ...]] = {}
    reasons: dict[str, str] = {}
    enum_of: dict[str, str] = {}
    of_compiler: dict[str, str] = {}
    collections: dict[str, str] = {}
    comparators: set[str] = set()
    final = {name: bool(found.access & FINAL) for name, found in job.classes.items()}
    for name, found in job.classes.items():
        if found.access & INTERFACE:
            continue
        try:
            chain = job.superclasses(name)
            if (collection := collection_class(job, chain, defaults)) is not None:
                if not found.access & ABSTRACT:
                    collections[name] = collection
                continue
            expect_plain(job, chain, defaults)
            if chain[-1] == ENUM_CLASS:
                # A constant with a body has a class of its own.
                enum_of[name] = chain[-2]
                enums[name] = job.classes[chain[-2]].constants
            elif not found.access & ABSTRACT:
                parts[name] = tuple(_parts(job, final, chain))
                fields = (one for part in chain[:-1] for one in job.classes[part].fields)
                if (made := next(filter(_is_of_compiler, fields), None)) is not None:
                    of_compiler[name] = made.name
                if not parts[name] and name not in of_compiler and is_comparator(job, chain):
                    comparators.add(name)
        except RefusedError as error:
            reasons[name] = str(error)
    return JobTable(enums, parts, reasons, final, enum_of, of_compiler, collections, frozenset(comparators))


def _is_of_compiler(one: Member) -> bool:
    return one.access & (STATIC | TRANSIENT | SYNTHETIC) == SYNTHETIC


def _parts(job: JobClasses, final: Mapping[str, bool], chain: tuple[str, ...]) -> Iterator[JobPart]:
    unwritten = STATIC | TRANSIENT | SYNTHETIC
    fields = [(one, name) for name in chain[:-1] for one in job.classes[name].fields if not one.access & unwritten]
    names = [one.name for one, _ in fields]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RefusedError(f"it and a superclass both have a field {twice[0]}")
    for one, declared_in in sorted(fields, key=lambda field_: field_[0].name.encode("utf-16-be")):
        try:
            type_ = type_for_kryo(one, job, chain, declared_in, partial(_is_final, final))
            plain = parse_type(one.descriptor)
        except ValueError:
            raise RefusedError(f"its field {one.name} has a type that can't be read, {one.signature}") from None
        yield _part(final, one, type_, plain)


def _part(final: Mapping[str, bool], one: Member, type_: JavaType, plain: JavaType) -> JobPart:
    if plain.name in _PRIMITIVES:
        return JobPart(_PRIMITIVES[plain.name], name=one.name)
    if type_.has_open_parts:
        raise RefusedError(f"the type of its field {one.name} has a wildcard or a type variable")
    if type_.arguments and plain.name not in _COLLECTIONS:
        raise RefusedError(f"its field {one.name} has type arguments and isn't a collection or a map")
    inner = [one for argument in type_.arguments for one in argument.with_arguments()]
    if other := next((one.name for one in inner if one.arguments and one.name not in _COLLECTIONS), None):
        raise RefusedError(f"the type of its field {one.name} has type arguments of {other}, and that is no collection")
    for part in (plain, *inner):
        if _is_final(final, part.name) is None:
            raise RefusedError(f"its field {one.name} is of {part.name}, of which isn't known whether it is final")
    if _is_final(final, plain.name):
        return JobPart(codes.KNOWN_PART, plain.name, name=one.name)
    return JobPart(codes.TAGGED_PART, "", type_.arguments, one.name)


def _is_final(final: Mapping[str, bool], name: str) -> bool | None:
    element = name.lstrip("[")
    if element != name:
        if not element.startswith("L"):
            return True
        element = element[1:-1]
    if element in _FINAL or element in NOT_FINAL:
        return element in _FINAL
    return final.get(element)
