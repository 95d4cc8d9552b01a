"""How Kryo writes a class of the job: by its fields, as a constant of an enum, or as a collection or map of the JDK.

Classes that it writes in any other way are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError

ENUM_CLASS = "java.lang.Enum"
_OBJECT = "java.lang.Object"
_OF_KRYO = "com.esotericsoftware."
# Interfaces outside of the jars for which Kryo has no serializers, nor for any that they extend.
_HARMLESS = (
    *("java.io.", "java.lang.", "java.security.", "java.time.", "java.util.Comparator", "java.util.function."),
    "org.apache.flink.",
)
# Kryo writes a subclass of these as it writes them: without the fields of its own.
_AS_THEY_ARE = tuple(
    f"java.util.{name}"
    for name in (
        *("HashMap", "LinkedHashMap", "Hashtable", "Properties", "WeakHashMap", "concurrent.ConcurrentHashMap"),
        *("ArrayList", "LinkedList", "Vector", "Stack", "concurrent.CopyOnWriteArrayList", "HashSet", "LinkedHashSet"),
    )
)
_EXTENDED = {
    **{name: name for name in _AS_THEY_ARE},
    "java.util.AbstractMap": "java.util.HashMap",
    "java.util.AbstractList": "java.util.ArrayList",
    "java.util.AbstractSequentialList": "java.util.ArrayList",
    "java.util.AbstractSet": "java.util.HashSet",
}
_ANY_COLLECTION = "java.util.AbstractCollection"
_IMPLEMENTED = {
    "java.util.Map": "java.util.HashMap",
    "java.util.SortedMap": "java.util.HashMap",
    "java.util.NavigableMap": "java.util.HashMap",
    "java.util.concurrent.ConcurrentMap": "java.util.HashMap",
    "java.util.List": "java.util.ArrayList",
    "java.util.Set": "java.util.HashSet",
    "java.util.SortedSet": "java.util.HashSet",
    "java.util.NavigableSet": "java.util.HashSet",
}


def expect_plain(job: JobClasses, chain: tuple[str, ...], defaults: Mapping[str, str]) -> None:
    """Refuses a class that Kryo doesn't write by its fields or as a constant; `chain` is it and its superclasses.

    `defaults` are the job's own serializers for classes and their subclasses.
    """
    if chain[-1] not in (_OBJECT, ENUM_CLASS):
        raise RefusedError(why_not_read(chain[-1]))
    _expect_no_other_serializer(job, chain, defaults, _HARMLESS)


def collection_class(job: JobClasses, chain: tuple[str, ...], defaults: Mapping[str, str]) -> str | None:
    """Returns the class of the JDK as which Kryo writes a collection or map of the job; None for another class.

    Raises `RefusedError` for one that Kryo may write otherwise.
    """
    found = _EXTENDED.get(chain[-1])
    if found is None and chain[-1] in (_OBJECT, _ANY_COLLECTION):
        found = next((_IMPLEMENTED[one] for one in interfaces(job, chain) if one in _IMPLEMENTED), None)
    if found is not None:
        _expect_no_other_serializer(job, chain, defaults, (*_HARMLESS, "java.util."))
    return found


@lru_cache(maxsize=4)
def above_collections(job: JobClasses) -> frozenset[str]:
    """Returns the job's collections and maps, and the classes and interfaces that they extend or implement."""
    found: set[str] = set()
    for name in job.classes:
        chain = job.superclasses(name)
        above = {*chain, *interfaces(job, chain)}
        if any(one.startswith("java.util.") and not one.startswith(_HARMLESS) for one in above):
            found |= above
    return frozenset(found & job.classes.keys())


def is_comparator(job: JobClasses, chain: tuple[str, ...]) -> bool:
    """Whether what the job sorts may be sorted by an object of this class."""
    return "java.util.Comparator" in interfaces(job, chain)


def why_not_read(superclass: str) -> str:
    """Says why a class with this superclass isn't read, of the JDK or of a library."""
    if superclass.startswith("java."):
        return f"it extends {superclass}, of which no subclasses are read"
    return f"it extends {superclass}, which is not read from the jars"


def _expect_no_other_serializer(
    job: JobClasses, chain: tuple[str, ...], defaults: Mapping[str, str], harmless: tuple[str, ...]
) -> None:
    if (serializer := default_serializer(job, chain, defaults)) is not None:
        raise RefusedError(f"with the job's serializer {serializer}")
    for one in interfaces(job, chain):
        # Kryo asks whether a class is an enum before it asks for collections and maps.
        is_other = one not in job.classes and not one.startswith(harmless) and chain[-1] != ENUM_CLASS
        if is_other or one.startswith(_OF_KRYO):
            raise RefusedError(f"it implements {one}, which is not read from the jars")
    for found in (job.classes[name] for name in chain[:-1]):
        if found.differs:
            which = "it" if found.name == chain[0] else f"its superclass {found.name}"
            raise RefusedError(f"two of the jars have {which}, with {found.differs}")
        if found.for_kryo:
            raise RefusedError("it mentions classes of Kryo, such as annotations")


def default_serializer(job: JobClasses, chain: tuple[str, ...], defaults: Mapping[str, str]) -> str | None:
    """Returns the serializer that the job gave Kryo for one of the classes in the chain, or of their interfaces."""
    return next((defaults[one] for one in (*chain, *interfaces(job, chain)) if one in defaults), None)


def interfaces(job: JobClasses, chain: tuple[str, ...]) -> Iterator[str]:
    """Yields the interfaces of the classes in the chain."""
    waiting = [one for name in chain if name in job.classes for one in job.classes[name].interfaces]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            yield name
            waiting += job.classes[name].interfaces if name in job.classes else ()
