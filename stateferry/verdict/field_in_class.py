"""How the class of a POJO declares a field, by the job's jar."""

from __future__ import annotations

from dataclasses import dataclass

from flinkstate.classfiles.class_file import Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.classfiles.signatures import JavaType, parse_type
from flinkstate.kryo.job_pojos import KNOWN_TYPES, descriptor_of, known_type
from flinkstate.serializers.types import (
    EitherType,
    EnumType,
    FlinkType,
    ListType,
    MapType,
    NullableType,
    PojoType,
    SetType,
    TupleType,
    children,
    simple_name,
)


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


def _text(type_: JavaType) -> str:
    inner = ", ".join(map(_text, type_.arguments))
    return f"{type_.name}<{inner}>" if inner else type_.name
