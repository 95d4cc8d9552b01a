"""What the class files of the new job say about the classes that a header describes, by Flink's own rules.

| the new class | Flink |
|---|---|
| has more fields, or lacks some | migrates each value: new fields are null or 0, removed ones are dropped |
| lacks a field, whose class is gone too | can't skip the old values, and throws an exception at the start |
| has a field of another type | refuses the state |
| has a field in a superclass of the class that had it | reads it as before |
| has a field in a subclass of the class that had it, or in one of another name | takes it for a removed and a new one |
| has a field that is static or transient now | throws an exception at the start |
| doesn't extend a class any more that had a field and is there still | throws an exception at the start |
| isn't a POJO any more | gives it to Kryo, and refuses the state |
| is an enum with more constants, or in another order | reads each as before |
| is an enum without a constant | can't read the header |

A key, or the user key of a `MapState`, is never migrated. `new_schemas.py` has the rules of Avro.
`tests/flink/test_new_classes.py` holds both against Flink.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from flinkstate.classfiles.class_file import ENUM, Member
from flinkstate.classfiles.job_classes import JobClasses, is_of_others
from flinkstate.errors import RefusedError
from flinkstate.kryo.job_pojos import is_met_again, stored_fields, why_no_pojo
from flinkstate.serializers.leaf_types import AvroOpaqueType
from flinkstate.serializers.types import (
    AvroType,
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
from stateferry.verdict.differences import Change, Difference, not_given
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.new_field_types import fits, has_open_parts, shown
from stateferry.verdict.new_schemas import avro_differences, job_class
from stateferry.verdict.outcomes import Finding, Outcome
from stateferry.verdict.unknown import TRY_IT

_TUPLES = "org.apache.flink.api.java.tuple."
_OBJECT, _RECORD = "java.lang.Object", "java.lang.Record"
_NO_SERIALIZER = "a present field should have its associated new field serializer available"
_NO_SNAPSHOT = "field serializer snapshots should be present."
_BY_OTHERS = ("java.", "javax.", "org.apache.flink.", "scala.", "com.twitter.")


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
    if one.change in (Change.UNREADABLE, Change.REFUSES):
        advice = "keep what it was, and let the new job move the values to a field or state with another name"
        or_else = Outcome.UNKNOWN if one.or_else else None
        return Finding(Outcome.REFUSED, f"in its {place}, {what}", advice, one.exception or _refusal(part), or_else)
    if one.change is Change.UNKNOWN:
        return Finding(Outcome.UNKNOWN, f"in its {place}, {what}", TRY_IT)
    return _migrated(part, one.change, what)


def _migrated(part: Part, change: Change, what: str) -> Finding:
    if part.place.is_key:
        reason = f"in its {part.place.value}, {what}, and Flink migrates no {part.place.value}"
        other = Outcome.RESTORES if part.place is Place.USER_KEY else None
        return Finding(Outcome.REFUSED, reason, "keep the class of the key as it was", _key_refusal(part), other)
    if change is Change.RENAMES:
        reason = f"in its {part.place.value}, {what}: Flink knows no new names, so if it is one, its values are lost"
        return Finding(Outcome.WRONG, reason, "keep the name, or let the job move the values", None, Outcome.RESTORES)
    if change is Change.LOSES:
        advice = "keep it as it was, or let the job move the values"
        return Finding(Outcome.WRONG, f"in its {part.place.value}, {what}", advice, None, Outcome.RESTORES)
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


def _differences(old: FlinkType, job: JobClasses, within: tuple[str, ...]) -> Iterator[Difference]:
    """Yields where the classes of a type differ from what the header says; the type itself is declared as before."""
    if isinstance(old, PojoType):
        if old.class_name not in within:
            yield from _of_pojo(old, job, within)
    elif isinstance(old, EnumType):
        yield from _of_enum(old, job)
    elif isinstance(old, KryoType):
        yield from _not_given(_named_by_kryo(old), job)
        # Types.GENERIC gives it to Kryo all the same, and Flink a class that is inside of itself.
        if old.class_name not in within:
            yield from (replace(one, or_else=True) for one in _by_kryo(old.class_name, job))
    elif isinstance(old, AvroType | AvroOpaqueType):
        yield from avro_differences(old, job)
    elif not isinstance(old, OpaqueType):
        if isinstance(old, TupleType) and not isinstance(old, CaseClassType):
            yield from _of_tuple(old.class_name, job)
        for child in children(old):
            yield from _differences(child, job, within)


def _of_tuple(name: str, job: JobClasses) -> Iterator[Difference]:
    if name in job.classes and not name.startswith(_TUPLES) and stored_fields(name, job):
        yield Difference(Change.UNKNOWN, f"{name} is a tuple with fields of its own now, which was not tried")
    elif name not in job.classes and not name.startswith(_BY_OTHERS):
        yield not_given(name)


def _of_enum(old: EnumType, job: JobClasses) -> Iterator[Difference]:
    name = old.class_name
    if old.ids is not None or name.startswith(_BY_OTHERS):
        return
    if name not in job.classes:
        yield not_given(name)
        return
    gone = [one for one in old.names if one not in job.classes[name].constants]
    if gone:
        text = f"the enum {name} lacks {', '.join(gone)}, so Flink can't read the header"
        said = f"Could not create a restore serializer for enum class {name}"
        yield Difference(Change.UNREADABLE, text, f"IllegalStateException: {said}")


def _of_pojo(old: PojoType, job: JobClasses, within: tuple[str, ...]) -> Iterator[Difference]:
    name = old.class_name
    if name not in job.classes:
        if not name.startswith(_BY_OTHERS):
            yield not_given(name)
        return
    try:
        if (other := _no_pojo(old, job)) is not None:
            yield other
        else:
            yield from _of_fields(old, job, within)
    except RefusedError as error:
        yield Difference(Change.UNKNOWN, str(error))
        return
    for subclass in old.registered_subclasses:
        for one in _differences(subclass, job, within):
            changed = Change.UNKNOWN if one.change.value < Change.UNKNOWN.value else one.change
            yield replace(one, change=changed, text=f"{one.text}, and it is a subclass of {name}")
    for _, subclass in old.other_subclasses:
        for one in _differences(subclass, job, within):
            text = f"{one.text}, and it is a subclass of {name} that isn't registered: Flink compares none of these"
            # It reads their values as before, into fields that may not take them.
            yield one if one.change is Change.UNREADABLE else replace(one, change=Change.UNKNOWN, text=text)


def _no_pojo(old: PojoType, job: JobClasses) -> Difference | None:
    """Says why Flink takes the class for no POJO any more, or why that can't be said; None if it is one."""
    name = old.class_name
    last, why = job.superclasses(name)[-1], why_no_pojo(name, job)
    if why is not None:
        text = f"{name} isn't a POJO for Flink any more, because {why}, so Flink gives it to another serializer"
        return Difference(Change.REFUSES, text)
    if last.startswith(_TUPLES):
        if not any(one.described_in.startswith(_TUPLES) for one in old.fields):
            return Difference(Change.UNKNOWN, f"{name} is a tuple now, which was not tried")
        if not stored_fields(name, job):
            return Difference(Change.REFUSES, f"{name} is a tuple without fields of its own now")
        return None
    if last.startswith("java.") and last not in (_OBJECT, _RECORD):
        return Difference(Change.UNKNOWN, f"{name} extends {last} now, which was not tried")
    return None if last in (_OBJECT, _RECORD) else not_given(last)


@dataclass(frozen=True, slots=True)
class _OldFields:
    """The fields that a header describes, by what Flink finds of them in the new classes.

    `kept` come with the new field. Flink doesn't find the others: the class has a field of the same name elsewhere
    (`moved`), or none (`removed`). `unstored` it finds, where the class stores none, as (field, class).
    """

    kept: tuple[tuple[PojoField, Member, str], ...]
    moved: tuple[tuple[PojoField, str], ...]
    removed: tuple[PojoField, ...]
    unstored: tuple[tuple[PojoField, str], ...]


def _old_fields(old: PojoType, new: dict[str, tuple[Member, str]], job: JobClasses) -> _OldFields:
    kept, moved, removed, unstored = [], [], [], []
    for field in old.fields:
        found, stored = _found_in(field, job), new.get(field.name)
        if found is None:
            if stored is None:
                removed.append(field)
            else:
                moved.append((field, stored[1]))
        elif stored is None or stored[1] != found:
            unstored.append((field, found))
        else:
            kept.append((field, *stored))
    return _OldFields(tuple(kept), tuple(moved), tuple(removed), tuple(unstored))


def _found_in(field: PojoField, job: JobClasses) -> str | None:
    """Returns the class in which Flink finds a field: the one that had it, or one of its superclasses now."""
    if field.described_in.startswith(("java.", "org.apache.flink.")):
        return field.described_in
    for one in job.superclasses(field.described_in):
        if one in job.classes and any(member.name == field.name for member in job.classes[one].fields):
            return one
    return None


def _of_fields(old: PojoType, job: JobClasses, within: tuple[str, ...]) -> Iterator[Difference]:
    name, chain = old.class_name, job.superclasses(old.class_name)
    if chain[-1].startswith(_TUPLES):
        # Flink's own tuples have these fields.
        old = replace(old, fields=tuple(one for one in old.fields if not one.described_in.startswith(_TUPLES)))
    new = {field.name: (field, declared_in) for field, declared_in in stored_fields(name, job)}
    if chain[-1] == _RECORD and new.keys() != {field.name for field in old.fields}:
        yield Difference(Change.UNKNOWN, f"{name} is a record with other fields now, which was not tried")
        return
    fields = _old_fields(old, new, job)
    names = {field.name for field in old.fields}
    yield from _of_names(name, fields, [one for one, _ in new.values() if one.name not in names], job)
    gone = (*fields.removed, *(field for field, _ in fields.moved))
    of_types = [one for field in gone for one in _unread(field.type, job)]
    # By @TypeInfo a field may have any serializer.
    if not any(job.classes[one].for_flink for one in chain if one in job.classes):
        for field, now, declared_in in fields.kept:
            as_declared = not within and declared_in == name
            of_types += _of_field(name, field, now, job, (*within, name), as_declared=as_declared)
    for one in of_types:
        # In a POJO such a header counts as none.
        is_absent = one.change is Change.UNREADABLE
        yield replace(one, exception=f"IllegalStateException: {_NO_SNAPSHOT}") if is_absent else one


def _of_names(name: str, fields: _OldFields, added: list[Member], job: JobClasses) -> Iterator[Difference]:
    chain = job.superclasses(name)
    for field, found in fields.unstored:
        text = f"the field {field.name} of {name} is static or transient now"
        if found not in chain:
            text = f"Flink finds the field {field.name} of {name} in {found}, which it doesn't extend any more"
        yield Difference(Change.REFUSES, text, f"IllegalStateException: {_NO_SERIALIZER}")
    if fields.removed:
        names = _fields(name, [one.name for one in fields.removed])
        yield Difference(Change.MIGRATES, f"{names} removed: the values are dropped")
    for gone in fields.removed:
        if gone.described_in and gone.described_in not in job.classes:
            text = f"the field {gone.name} was in {gone.described_in}, which is not in the jars that were given"
            yield Difference(Change.MIGRATES, text)
    if added:
        names = _fields(name, [one.name for one in added])
        yield Difference(Change.MIGRATES, f"{names} new: null or 0 in each value")
    for one, declared_in in fields.moved:
        text = f"the field {one.name} of {name} is in {declared_in} now, not in {one.described_in}"
        absent = one.described_in not in job.classes
        yield Difference(Change.RENAMES, f"{text}, which is not in the jars that were given" if absent else text)
    for gone in fields.removed:
        alike = [one.name for one in added if fits(one, gone.type) is not False]
        if alike:
            yield Difference(Change.RENAMES, f"{name} lacks the field {gone.name}, and has {' and '.join(alike)} new")


def _unread(old: FlinkType, job: JobClasses) -> Iterator[Difference]:
    """Yields why Flink may not read the serializer of a field that isn't there any more: it needs it to skip values."""
    if isinstance(old, EnumType):
        yield from _of_enum(old, job)
    is_avro = isinstance(old, AvroType | AvroOpaqueType)
    named = job_class(old) if is_avro else old.class_name if isinstance(old, PojoType | KryoType | TupleType) else None
    if named is not None and named not in job.classes and not named.startswith(("[", *_BY_OTHERS)):
        yield not_given(named)
    if isinstance(old, KryoType):
        yield from _not_given(_named_by_kryo(old), job)
    # Of the classes that are named in Avro's schema Flink needs none to skip the value.
    for child in () if is_avro else children(old):
        yield from _unread(child, job)


def _named_by_kryo(old: KryoType) -> Iterator[str]:
    """Yields the classes that Flink looks for when it reads the header: also those that the job gave Kryo."""
    yield old.class_name
    for one in old.registrations:
        yield from (one.class_name, *([] if one.serializer is None else [one.serializer]))
    for pair in old.defaults:
        yield from pair


def _not_given(names: Iterable[str], job: JobClasses) -> Iterator[Difference]:
    """Yields those of the classes that are not in the jars; libraries are not read from these.

    Of a serializer that was given as an object the header has no name, and words with spaces stand for it.
    """
    named = (one for one in names if " " not in one)
    yield from (not_given(one) for one in named if one not in job.classes and not is_of_others(one))


def _fields(class_name: str, names: list[str]) -> str:
    return f"the {noun(len(names), 'field')} {', '.join(names)} of {class_name} {'is' if len(names) == 1 else 'are'}"


def _of_field(
    pojo: str, old: PojoField, new: Member, job: JobClasses, within: tuple[str, ...], *, as_declared: bool
) -> Iterator[Difference]:
    """`as_declared`: whether the type variables of the field are the state's own, which is declared as before."""
    fit, what = fits(new, old.type), f"the field {old.name} of {pojo}"
    if fit is False:
        yield Difference(Change.REFUSES, f"{what} is of {shown(new)} now, and was of {type_name(old.type)}")
    elif fit is None and not (as_declared and has_open_parts(new)):
        yield Difference(
            Change.UNKNOWN, f"{what} is of {shown(new)} now: whether that is {type_name(old.type)} is not known"
        )
    elif isinstance(old.type, KryoType):
        yield from _not_given(_named_by_kryo(old.type), job)
        if not is_met_again(old.type.class_name, within, job):
            yield from _by_kryo(old.type.class_name, job)
    else:
        yield from _differences(old.type, job, within)


def _by_kryo(name: str, job: JobClasses) -> Iterator[Difference]:
    if name in job.classes and _has_serializer(name, job):
        text = f"{name} was by Kryo, and Flink has a serializer of its own for the new class"
        yield Difference(Change.REFUSES, text)


def _has_serializer(name: str, job: JobClasses) -> bool:
    """Whether Flink takes the class for an enum or a POJO."""
    if job.classes[name].access & ENUM:
        return True
    return job.superclasses(name)[-1] == _OBJECT and why_no_pojo(name, job) is None
