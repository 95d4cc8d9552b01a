"""What the class files of the new job say about the POJOs and enums that a header describes, by Flink's own rules.

| the new class | Flink |
|---|---|
| has more fields, or lacks some | migrates each value: new fields are null or 0, removed ones are dropped |
| has a field of another type | refuses the state |
| has a field in a superclass of the class that had it | reads it as before |
| has a field in a subclass of the class that had it | takes it for a removed and a new one |
| has a field that is static or transient now | throws an exception at the start |
| isn't a POJO any more | gives it to Kryo, and refuses the state |
| is an enum with more constants, or in another order | reads each as before |
| is an enum without a constant | can't read the header |

A key, or the user key of a `MapState`, is never migrated. `tests/flink/test_new_classes.py` holds this against Flink.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from flinkstate.classfiles.class_file import ENUM, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.classfiles.signatures import parse_type
from flinkstate.errors import RefusedError
from flinkstate.kryo.job_pojos import KNOWN_TYPES, known_type, stored_fields, why_no_pojo
from flinkstate.serializers.types import (
    AvroRecordType,
    CaseClassType,
    EnumType,
    FlinkType,
    KryoType,
    OpaqueType,
    PojoField,
    PojoType,
    TupleType,
    children,
    type_name,
)
from stateferry.basics.quantities import noun
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.outcomes import Finding, Outcome
from stateferry.verdict.unknown import TRY_IT

_TUPLES = "org.apache.flink.api.java.tuple."
_OBJECT, _RECORD = "java.lang.Object", "java.lang.Record"
_NO_SERIALIZER = "a present field should have its associated new field serializer available"
_BY_OTHERS = ("java.", "javax.", "org.apache.flink.", "scala.", "com.twitter.")


class _Change(Enum):
    """What a difference between the header and a class file leads to. The later, the worse."""

    MIGRATES = 0
    RENAMES = 1
    UNKNOWN = 2
    REFUSES = 3
    UNREADABLE = 4


@dataclass(frozen=True, slots=True)
class _Difference:
    """A difference; `exception` is Flink's if it isn't that of a serializer that doesn't fit.

    `or_else`: whether it depends on how the state is declared.
    """

    change: _Change
    text: str
    exception: str | None = None
    or_else: bool = False


def finding_of(part: Part, journey: Journey, job: JobClasses | None) -> Finding | None:
    """Says what becomes of the part with the classes of the new job; None if they change nothing."""
    if job is None or not (journey.stays or journey.upgrades):
        return None
    differences = tuple(_differences(part.type, job, ()))
    if not differences:
        return None
    one = max(differences, key=lambda difference: difference.change.value)
    what = "; ".join(dict.fromkeys(each.text for each in differences if each.change is one.change))
    place = part.place.value
    if one.change in (_Change.UNREADABLE, _Change.REFUSES):
        advice = "keep what it was, and let the new job move the values to a field or state with another name"
        or_else = Outcome.UNKNOWN if one.or_else else None
        return Finding(Outcome.REFUSED, f"in its {place}, {what}", advice, one.exception or _refusal(part), or_else)
    if one.change is _Change.UNKNOWN:
        return Finding(Outcome.UNKNOWN, f"in its {place}, {what}", TRY_IT)
    return _migrated(part, one.change, what)


def _migrated(part: Part, change: _Change, what: str) -> Finding:
    if part.place.is_key:
        reason = f"in its {part.place.value}, {what}, and Flink migrates no {part.place.value}"
        other = Outcome.RESTORES if part.place is Place.USER_KEY else None
        return Finding(Outcome.REFUSED, reason, "keep the class of the key as it was", _key_refusal(part), other)
    if change is _Change.RENAMES:
        reason = f"in its {part.place.value}, {what}: Flink knows no new names, so if it is one, its values are lost"
        return Finding(Outcome.WRONG, reason, "keep the name, or let the job move the values", None, Outcome.RESTORES)
    return Finding(Outcome.RESTORES, f"Flink migrates its {part.place.value}: {what}")


def _key_refusal(part: Part) -> str:
    if part.place is Place.USER_KEY:
        return (
            "StateMigrationException: The new serializer for a MapState requires state migration in order for the job "
            "to proceed, since the key schema has changed"
        )
    return _refusal(part)


def _refusal(part: Part) -> str:
    """The exception with which Flink refuses a serializer that doesn't fit."""
    match part.place:
        case Place.KEY:
            said = "key serializer (...) must be compatible with the previous key serializer"
        case Place.NAMESPACE:
            said = "namespace serializer (...) must be compatible with the previous namespace serializer"
        case _:
            said = "state serializer (...) must not be incompatible with the old state serializer"
    return f"StateMigrationException: The new {said} (...)"


def _differences(old: FlinkType, job: JobClasses, within: tuple[str, ...]) -> Iterator[_Difference]:
    """Yields where the classes of a type differ from what the header says; the type itself is declared as before."""
    if isinstance(old, PojoType):
        if old.class_name not in within:
            yield from _of_pojo(old, job, within)
    elif isinstance(old, EnumType):
        yield from _of_enum(old, job)
    elif isinstance(old, KryoType):
        # Types.GENERIC gives it to Kryo all the same.
        yield from (replace(one, or_else=True) for one in _by_kryo(old.class_name, job))
    elif not isinstance(old, OpaqueType | AvroRecordType):
        if isinstance(old, TupleType) and not isinstance(old, CaseClassType):
            yield from _of_tuple(old.class_name, job)
        for child in children(old):
            yield from _differences(child, job, within)


def _of_tuple(name: str, job: JobClasses) -> Iterator[_Difference]:
    if name in job.classes and not name.startswith(_TUPLES) and stored_fields(name, job):
        yield _Difference(_Change.UNKNOWN, f"{name} is a tuple with fields of its own now, which was not tried")
    elif name not in job.classes and not name.startswith(_BY_OTHERS):
        yield _not_given(name)


def _of_enum(old: EnumType, job: JobClasses) -> Iterator[_Difference]:
    name = old.class_name
    if old.ids is not None or name.startswith(_BY_OTHERS):
        return
    if name not in job.classes:
        yield _not_given(name)
        return
    gone = [one for one in old.names if one not in job.classes[name].constants]
    if gone:
        text = f"the enum {name} lacks {', '.join(gone)}, so Flink can't read the header"
        said = f"Could not create a restore serializer for enum class {name}"
        yield _Difference(_Change.UNREADABLE, text, f"IllegalStateException: {said}")


def _of_pojo(old: PojoType, job: JobClasses, within: tuple[str, ...]) -> Iterator[_Difference]:
    name = old.class_name
    if name not in job.classes:
        if not name.startswith(_BY_OTHERS):
            yield _not_given(name)
        return
    try:
        chain = job.superclasses(name)
        why = why_no_pojo(name, job)
    except RefusedError as error:
        yield _Difference(_Change.UNKNOWN, str(error))
        return
    if why is not None:
        text = f"{name} isn't a POJO for Flink any more, because {why}, so Flink gives it to Kryo"
        yield _Difference(_Change.REFUSES, text)
        return
    if chain[-1].startswith(_TUPLES):
        # Flink's own tuples have these fields.
        old = replace(old, fields=tuple(one for one in old.fields if not one.described_in.startswith(_TUPLES)))
    new = {field.name: (field, declared_in) for field, declared_in in stored_fields(name, job)}
    if chain[-1] == _RECORD and new.keys() != {field.name for field in old.fields}:
        yield _Difference(_Change.UNKNOWN, f"{name} is a record with other fields now, which was not tried")
        return
    yield from _of_names(old, new, job)
    annotated = any(job.classes[one].for_flink for one in chain if one in job.classes)
    for field in old.fields:
        # By @TypeInfo a field may have any serializer.
        if field.name in new and not annotated:
            yield from _of_field(name, field, new[field.name][0], job, (*within, name))
    for subclass in old.subclasses:
        for one in _differences(subclass, job, within):
            changed = _Change.UNKNOWN if one.change in (_Change.MIGRATES, _Change.RENAMES) else one.change
            yield replace(one, change=changed, text=f"{one.text}, and it is a subclass of {name}")


def _of_names(old: PojoType, new: dict[str, tuple[Member, str]], job: JobClasses) -> Iterator[_Difference]:
    name, chain = old.class_name, job.superclasses(old.class_name)
    removed = [one for one in old.fields if one.name not in new]
    added = [new[one][0] for one in new if one not in {field.name for field in old.fields}]
    unstored = {field.name for one in chain if one in job.classes for field in job.classes[one].fields} - new.keys()
    for gone in removed:
        if gone.name in unstored:
            text = f"the field {gone.name} of {name} is static or transient now"
            yield _Difference(_Change.REFUSES, text, f"IllegalStateException: {_NO_SERIALIZER}")
    # Flink looks for a field in the class that had it, and in its superclasses.
    moved = [
        one
        for one in old.fields
        if one.name in new
        and one.described_in in chain
        and chain.index(new[one.name][1]) < chain.index(one.described_in)
    ]
    if removed:
        names = _fields(name, [one.name for one in removed])
        yield _Difference(_Change.MIGRATES, f"{names} removed: the values are dropped")
    if added:
        names = _fields(name, [one.name for one in added])
        yield _Difference(_Change.MIGRATES, f"{names} new: null or 0 in each value")
    for one in moved:
        text = f"the field {one.name} of {name} is in {new[one.name][1]} now, not in {one.described_in}"
        yield _Difference(_Change.RENAMES, text)
    for gone in removed:
        alike = [one.name for one in added if _may_be(one, gone.type)]
        if alike:
            yield _Difference(_Change.RENAMES, f"{name} lacks the field {gone.name}, and has {' and '.join(alike)} new")


def _fields(class_name: str, names: list[str]) -> str:
    return f"the {noun(len(names), 'field')} {', '.join(names)} of {class_name} {'is' if len(names) == 1 else 'are'}"


def _not_given(name: str) -> _Difference:
    return _Difference(_Change.UNKNOWN, f"there is {name}, which is not in the jars that were given")


def _of_field(
    pojo: str, old: PojoField, new: Member, job: JobClasses, within: tuple[str, ...]
) -> Iterator[_Difference]:
    if not _may_be(new, old.type):
        now, before = _shown(new), type_name(old.type)
        yield _Difference(_Change.REFUSES, f"the field {old.name} of {pojo} is of {now} now, and was of {before}")
    elif isinstance(old.type, KryoType):
        yield from _by_kryo(old.type.class_name, job)
    else:
        yield from _differences(old.type, job, within)


def _by_kryo(name: str, job: JobClasses) -> Iterator[_Difference]:
    if name in job.classes and _has_serializer(name, job):
        text = f"{name} was by Kryo, and Flink has a serializer of its own for the new class"
        yield _Difference(_Change.REFUSES, text)


def _has_serializer(name: str, job: JobClasses) -> bool:
    """Whether Flink takes the class for an enum or a POJO."""
    chain = job.superclasses(name)
    if job.classes[name].access & ENUM:
        return True
    return chain[-1] == _OBJECT and bool(stored_fields(name, job)) and why_no_pojo(name, job) is None


def _may_be(new: Member, old: FlinkType) -> bool:
    """Whether a field of this type can have the serializer `old`; which fields its class has isn't looked at here."""
    known = known_type(new.descriptor)
    if known is not None:
        return known == old
    try:
        java, plain = parse_type(new.signature or new.descriptor), parse_type(new.descriptor)
    except ValueError:
        return True
    if java.name == "T":
        return True
    if isinstance(old, PojoType | EnumType | KryoType):
        return old.class_name == plain.name
    return old not in KNOWN_TYPES


def _shown(field: Member) -> str:
    try:
        name = parse_type(field.descriptor).name
    except ValueError:
        return field.descriptor
    known = known_type(field.descriptor)
    return name.removeprefix("java.lang.") if known is None else type_name(known)
