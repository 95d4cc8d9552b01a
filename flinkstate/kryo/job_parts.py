"""Of which parts Kryo's FieldSerializer makes values of the classes of a job.

These are the fields of the class and its superclasses, sorted by name, neither static nor transient nor synthetic. A
field whose class is final has no class tag. Type arguments of a collection or map that are final classes drop the tags
of its elements (Kryo 2: of the collection in the field; Kryo 5: of those inside it too); those of another class drop
the tags of its fields (`flinkstate/classfiles/type_arguments.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from flinkstate.classfiles.class_file import ABSTRACT, FINAL, INTERFACE, STATIC, SYNTHETIC, TRANSIENT, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.classfiles.plain_classes import (
    ENUM_CLASS,
    above_collections,
    collection_class,
    expect_plain,
    interfaces,
    is_comparator,
)
from flinkstate.classfiles.signatures import JavaType
from flinkstate.classfiles.type_arguments import (
    EITHER,
    KNOWN_WITH_PARAMETERS,
    OPEN,
    plain_fields,
    takes_arguments,
    typed_fields,
)
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
    *(name for name, found in KNOWN_WITH_PARAMETERS.items() if not found.access & FINAL),
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
# Beside collections and classes of the job, what may have type arguments in a field.
_WITH_ARGUMENTS = ("java.lang.Comparable", "java.util.Comparator", "java.util.EnumSet", *KNOWN_WITH_PARAMETERS)


@dataclass(frozen=True, slots=True)
class JobPart:
    """A field: its kind, or for an object the name of its class ("" with a class tag), and its type arguments.

    They are those of the class `declared`.
    """

    kind: int
    class_name: str = ""
    arguments: tuple[JavaType, ...] = ()
    name: str = field(default="", compare=False)
    declared: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class JobTable:
    """What is known of a job's classes: the constants of enums, the parts of others, and why some can't be read.

    `parts` are those by Kryo 2, `parts_5` those by Kryo 5 where they are others. `takers` has for each Kryo the classes
    whose fields may change with type arguments, by the classes and interfaces that they extend or implement.

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
    parts_5: dict[str, tuple[JobPart, ...]] = field(default_factory=dict)
    takers: tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]] = ({}, {})
    job: JobClasses | None = None

    def parts_by(self, name: str, *, five: bool) -> tuple[JobPart, ...]:
        """The parts of an object without type arguments by one of the Kryos."""
        return self.parts_5.get(name, self.parts[name]) if five else self.parts[name]

    def typed_parts(
        self, name: str, arguments: tuple[JavaType, ...], *, five: bool
    ) -> tuple[tuple[JobPart, ...], int] | None:
        """Returns the parts of an object in a field with type arguments, and how many entries Kryo keeps of these."""
        assert self.job is not None
        found = typed_fields(name, self.job, arguments, five=five)
        return None if found is None else (tuple(_parts(self.job, self.final, found.fields)), found.kept)

    def is_final(self, name: str) -> bool:
        """Whether Kryo takes the class for final: of an array, that of its elements counts."""
        found = name != OPEN.name and _is_final(self.final, name)
        assert found is not None, name
        return found


def job_table(job: JobClasses, defaults: Mapping[str, str]) -> JobTable:
    """Looks at all classes; `defaults` are the job's own serializers for classes and their subclasses."""
    enums: dict[str, tuple[str, ...]] = {}
    parts: dict[str, tuple[JobPart, ...]] = {}
    reasons: dict[str, str] = {}
    parts_5: dict[str, tuple[JobPart, ...]] = {}
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
                parts[name], by_5 = (_plain_parts(name, job, final, five=five) for five in (False, True))
                if by_5 != parts[name]:
                    parts_5[name] = by_5
                fields = (one for part in chain[:-1] for one in job.classes[part].fields)
                if (made := next(filter(_is_of_compiler, fields), None)) is not None:
                    of_compiler[name] = made.name
                if not parts[name] and name not in of_compiler and is_comparator(job, chain):
                    comparators.add(name)
        except RefusedError as error:
            reasons[name] = str(error)
    takers = _takers(job, parts, five=False), _takers(job, parts, five=True)
    return JobTable(
        enums, parts, reasons, final, enum_of, of_compiler, collections, frozenset(comparators), parts_5, takers, job
    )


def _is_of_compiler(one: Member) -> bool:
    return one.access & (STATIC | TRANSIENT | SYNTHETIC) == SYNTHETIC


def _takers(job: JobClasses, parts: Mapping[str, object], *, five: bool) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in (*parts, *KNOWN_WITH_PARAMETERS):
        if name != EITHER and takes_arguments(name, job, five=five):
            chain = job.superclasses(name)
            above = (EITHER,) if name.startswith(f"{EITHER}$") else interfaces(job, chain)
            for one in dict.fromkeys((*chain, *above)):
                found.setdefault(one, []).append(name)
    return {name: tuple(some) for name, some in found.items()}


def _plain_parts(name: str, job: JobClasses, final: Mapping[str, bool], *, five: bool) -> tuple[JobPart, ...]:
    try:
        fields = plain_fields(name, job, five=five).fields
    except ValueError as error:
        raise RefusedError(str(error)) from None
    names = [one.name for one, _ in fields]
    if twice := sorted({one for one in names if names.count(one) > 1}):
        raise RefusedError(f"it and a superclass both have a field {twice[0]}")
    return tuple(_parts(job, final, fields))


def _parts(
    job: JobClasses, final: Mapping[str, bool], fields: tuple[tuple[Member, JavaType], ...]
) -> Iterator[JobPart]:
    for one, type_ in sorted(fields, key=lambda field_: field_[0].name.encode("utf-16-be")):
        yield _part(job, final, one, type_)


def _part(job: JobClasses, final: Mapping[str, bool], one: Member, type_: JavaType) -> JobPart:
    if type_.name in _PRIMITIVES:
        return JobPart(_PRIMITIVES[type_.name], name=one.name)
    for part in type_.with_arguments():
        if part == OPEN:
            continue
        if _is_final(final, part.name) is None:
            raise RefusedError(f"its field {one.name} is of {part.name}, of which isn't known whether it is final")
        if part.arguments and not part.is_its_own_argument and not _may_have_arguments(part.name, job):
            raise RefusedError(f"the type of its field {one.name} has type arguments of {part.name}")
    is_final = _is_final(final, type_.name)
    if is_final and type_.is_its_own_argument and not takes_arguments(type_.name, job, five=False):
        type_ = JavaType(type_.name)
    kind = codes.KNOWN_PART if is_final else codes.TAGGED_PART
    return JobPart(kind, type_.name if is_final else "", type_.arguments, one.name, type_.name)


def _may_have_arguments(name: str, job: JobClasses) -> bool:
    """Whether it is known what the type arguments of the class mean. Those of the job's collections may be others."""
    if name in job.classes:
        return name not in above_collections(job)
    return name in (*_COLLECTIONS, *_WITH_ARGUMENTS)


def _is_final(final: Mapping[str, bool], name: str) -> bool | None:
    element = name.lstrip("[")
    if element != name:
        if not element.startswith("L"):
            return True
        element = element[1:-1]
    if element in _FINAL or element in NOT_FINAL:
        return element in _FINAL
    return final.get(element)
