"""How the class of a POJO declares a field, by the job's jar."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flinkstate.classfiles.class_file import Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.classfiles.signatures import JavaType, parse_type
from flinkstate.kryo.job_pojos import KNOWN_TYPES, descriptor_of, known_type
from flinkstate.kryo.places_in_maps import WIDER_THAN
from flinkstate.serializers.type_text import type_text
from flinkstate.serializers.types import (
    EitherType,
    EnumType,
    FlinkType,
    ListType,
    MapType,
    NullableType,
    PojoType,
    Scalar,
    SetType,
    TupleType,
    children,
    simple_name,
)

# Their type arguments are those of keys and values.
_MAPS = tuple(f"java.util.{name}" for name in ("Map", "SortedMap", "HashMap", "LinkedHashMap", "TreeMap", "Hashtable"))


@dataclass(frozen=True, slots=True)
class FieldInClass:
    """A field of objects of a class of the job, and its type.

    `is_certain` is false where the type alone doesn't say how Flink stores the field: if a class has Flink's annotation
    `TypeInfo`, which a field may have too, or if the type has wildcards or type variables.
    """

    class_name: str
    member: Member
    type: JavaType
    is_certain: bool

    @property
    def name(self) -> str:
        """The simple name of its class."""
        return simple_name(self.type.name)

    @property
    def text(self) -> str:
        """Its type, with type arguments."""
        return _text(self.type)

    def may_be(self, type_: FlinkType) -> bool:
        """Whether Flink may store the field so, by its class and by numbers, texts and dates in its type arguments."""
        match type_:
            case NullableType(value):
                return self.may_be(value)
            case EnumType(name) | PojoType(name) | TupleType(class_name=name) | EitherType(class_name=name):
                names: tuple[str, ...] = (name,)
            case ListType():
                names = ("java.util.List", "java.util.Collection")
            case SetType() | MapType():
                names = (f"java.util.{'Set' if isinstance(type_, SetType) else 'Map'}",)
            case _:
                return type_ not in KNOWN_TYPES or not self.is_certain
        parts = [one.value if isinstance(one, NullableType) else one for one in children(type_)]
        known = [known_type(descriptor_of(one.name)) for one in self.type.arguments]
        same = all(one in (None, part) for part, one in zip(parts, known, strict=False))
        return not self.is_certain or (self.type.name in names and same)

    def __str__(self) -> str:
        return f"the class {self.class_name} in the jar has {self.text} {self.member.name}"


def field_in_class(class_name: str, field: str, job: JobClasses | None) -> FieldInClass | None:
    """Returns a field as the class of its objects has it; None if no class that is known has it."""
    if job is None or class_name not in job.classes:
        return None
    known = [job.classes[name] for name in job.superclasses(class_name) if name in job.classes]
    member = next((member for one in known for member in one.fields if member.name == field), None)
    if member is None:
        return None
    try:
        type_ = parse_type(member.signature or member.descriptor)
    except ValueError:
        return None
    return FieldInClass(class_name, member, type_, not type_.has_open_parts and not any(one.for_flink for one in known))


def contradiction(told: str, found: FieldInClass) -> str:
    """Says that a person declares a field otherwise than its class does."""
    return (
        f"--declared says {told}, and {found}. Leave it out: the class says it. If the new job declares it otherwise, "
        "give its jar first (--classes)"
    )


def other_map(told: MapType, class_name: str, field: str, job: JobClasses | None, *, widen: bool) -> Iterator[str]:
    """Yields a problem if a person tells numbers, texts or dates of a map in a field, and its class has other ones."""
    found = field_in_class(class_name, field, job)
    if found is None or not found.is_certain or len(found.type.arguments) != 2 or found.type.name not in _MAPS:
        return
    for part, argument in zip((told.key, told.value), found.type.arguments, strict=True):
        of_class = known_type(descriptor_of(argument.name))
        wider = WIDER_THAN.get(part, ()) if widen and isinstance(part, Scalar) else ()
        if isinstance(part, Scalar) and of_class is not None and of_class not in (part, *wider):
            yield f"--as says {type_text(told)}, and {found}: say the same, or leave it out if the maps have entries"
            return


def _text(type_: JavaType) -> str:
    inner = ", ".join(map(_text, type_.arguments))
    return f"{type_.name}<{inner}>" if inner else type_.name
