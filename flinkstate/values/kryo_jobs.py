"""The fields of a job's classes, in the order in which Kryo writes them, the constants of its enums, its collections.

Kryo writes an object by the fields of its class and superclasses, sorted by name, neither static nor transient nor made
by the compiler. An object in a field whose class is final has no class tag. Type arguments of a collection in a field
that are final classes drop the tags of its parts (Kryo 2: in the collection itself; Kryo 5: inside of those in it too).

The compiled reading has an account of its own of the same (`flinkstate/kryo/job_parts.py`). To both
`flinkstate/classfiles/plain_classes.py` says which classes Kryo writes so, and `type_arguments.py` what type arguments
make of fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from flinkstate.classfiles.class_file import ABSTRACT, ENUM, FINAL, INTERFACE, STATIC, TRANSIENT, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.classfiles.plain_classes import (
    ENUM_CLASS,
    above_collections,
    collection_class,
    expect_plain,
    is_comparator,
)
from flinkstate.classfiles.signatures import JavaType
from flinkstate.classfiles.type_arguments import (
    KNOWN_WITH_PARAMETERS,
    OPEN,
    OPTIONAL,
    plain_fields,
    takes_arguments,
    typed_fields,
)
from flinkstate.errors import RefusedError

_PRIMITIVES = {
    "Z": "Boolean", "B": "Byte", "S": "Short", "I": "Integer", "J": "Long", "C": "Character", "F": "Float",
    "D": "Double",
}  # fmt: skip
FINAL_CLASSES = frozenset(
    (
        *(f"java.lang.{name}" for name in ("String", "Class", *_PRIMITIVES.values())),
        *(f"java.time.{name}" for name in ("LocalDate", "LocalTime", "LocalDateTime", "Instant")),
        "java.util.UUID",
    )
)
_COLLECTIONS = tuple(
    f"java.util.{name}"
    for name in (
        *("Collection", "List", "ArrayList", "LinkedList", "Vector", "Set", "HashSet", "LinkedHashSet", "SortedSet"),
        *("TreeSet", "NavigableSet", "Map", "HashMap", "LinkedHashMap", "SortedMap", "TreeMap", "NavigableMap"),
        *("concurrent.ConcurrentMap", "concurrent.ConcurrentHashMap"),
    )
)
_NOT_FINAL = (
    *_COLLECTIONS,
    *("java.lang.Object", "java.lang.Number", "java.math.BigInteger", "java.math.BigDecimal", "java.util.Date"),
    *("java.sql.Date", "java.sql.Time", "java.sql.Timestamp", OPEN.name),
    *(name for name in KNOWN_WITH_PARAMETERS if name != OPTIONAL),
)


class UnknownArgumentsError(RefusedError):
    """It isn't known what Kryo made of the type arguments of a field."""


@dataclass(frozen=True, slots=True)
class KryoArgument:
    """What a field or a type argument says of objects: their class if that is final, else "", and its type arguments.

    These are those of the class `declared`. They say which parts of an object have no tags.
    """

    class_name: str
    arguments: tuple[KryoArgument, ...] = ()
    declared: str = ""


@dataclass(frozen=True, slots=True)
class KryoField:
    """A field: of a primitive the boxed class; of an object what the field says of it."""

    name: str
    primitive: str = ""
    objects: KryoArgument = KryoArgument("")


@lru_cache(maxsize=1024)
def kryo_fields(
    class_name: str, job: JobClasses, *, five: bool, arguments: tuple[str, ...] = ()
) -> tuple[KryoField, ...]:
    """Returns the fields of the objects of a class, in a field with these type arguments.

    Raises `RefusedError` if Kryo may write them otherwise.
    """
    if class_name not in KNOWN_WITH_PARAMETERS:
        _expect_plain(class_name, job.superclasses(class_name), job)
        if job.classes[class_name].access & (INTERFACE | ABSTRACT | ENUM):
            raise _cannot_read(class_name)
    try:
        described = plain_fields(class_name, job, five=five)
        if arguments:
            typed = typed_fields(class_name, job, tuple(map(JavaType, arguments)), five=five)
            if typed is None:
                raise UnknownArgumentsError(str(_cannot_read(f"{class_name} in a field with type arguments")))
            described = typed
    except ValueError as error:
        raise RefusedError(f"{_cannot_read(class_name)}: {error}") from None
    found = [_field(member, type_, job) for member, type_ in described.fields]
    if len({field.name for field in found}) < len(found):
        raise _cannot_read(class_name)
    return tuple(sorted(found, key=lambda field: field.name.encode("utf-16-be")))


@lru_cache(maxsize=1024)
def enum_of(class_name: str, job: JobClasses | None) -> ClassFile | None:
    """Returns the enum that the class is, or of which one constant has a body and so this class; else None."""
    if job is None or class_name not in job.classes:
        return None
    chain = job.superclasses(class_name)
    if chain[-1] != ENUM_CLASS:
        return None
    _expect_plain(class_name, chain, job)
    return job.classes[chain[-2]]


@lru_cache(maxsize=1024)
def collection_of(class_name: str, job: JobClasses) -> str | None:
    """Returns the class of the JDK as which Kryo writes a collection or map of the job; None for another class."""
    try:
        return collection_class(job, job.superclasses(class_name), {})
    except RefusedError as error:
        raise RefusedError(f"{_cannot_read(class_name)}: {error}") from None


@lru_cache(maxsize=1024)
def compares(class_name: str, job: JobClasses | None) -> bool:
    """Whether the class is one of the job whose objects are comparators of which Kryo writes no fields."""
    if job is None or class_name not in job.classes:
        return False
    chain = job.superclasses(class_name)
    # Kryo 2 may write fields of a compiler, such as `this$0`.
    kept = (one for name in chain[:-1] for one in job.classes[name].fields if not one.access & (STATIC | TRANSIENT))
    return is_comparator(job, chain) and not any(kept) and not kryo_fields(class_name, job, five=False)


def _expect_plain(class_name: str, chain: tuple[str, ...], job: JobClasses) -> None:
    try:
        # What the job gave default serializers isn't read at all.
        expect_plain(job, chain, {})
    except RefusedError as error:
        raise RefusedError(f"{_cannot_read(class_name)}: {error}") from None


def _field(field: Member, type_: JavaType, job: JobClasses) -> KryoField:
    if field.descriptor in _PRIMITIVES:
        return KryoField(field.name, primitive=f"java.lang.{_PRIMITIVES[field.descriptor]}")
    return KryoField(field.name, objects=_argument(type_, field.name, job))


def _argument(type_: JavaType, field: str, job: JobClasses) -> KryoArgument:
    class_name = type_.name if _is_final(type_.name, field, job) else ""
    if type_.is_its_own_argument and class_name and not takes_arguments(class_name, job, five=False):
        return KryoArgument(class_name)
    is_known = type_.name in (*_COLLECTIONS, *KNOWN_WITH_PARAMETERS)
    is_known = is_known or (type_.name in job.classes and type_.name not in above_collections(job))
    if type_.arguments and not (is_known or type_.is_its_own_argument):
        # Kryo 5 takes them for those of what is there, whatever its class makes of them.
        raise _cannot_read(f"the field {field} with type arguments of the class {type_.name}")
    return KryoArgument(class_name, tuple(_argument(one, field, job) for one in type_.arguments), type_.name)


def _is_final(name: str, field: str, job: JobClasses) -> bool:
    """Whether Kryo takes the class for final: of an array, that of its elements counts."""
    element = name.lstrip("[")
    of_primitives = element != name and element in _PRIMITIVES
    element = element.removeprefix("L").removesuffix(";") if element != name else element
    if of_primitives or element in FINAL_CLASSES or (element in job.classes and job.classes[element].access & FINAL):
        return True
    if element in job.classes or element in _NOT_FINAL:
        return False
    raise _cannot_read(f"the field {field} of class {element}")


def _cannot_read(what: str) -> RefusedError:
    return RefusedError(f"{what} (serialized by Kryo): its values can be copied, but not decoded")
