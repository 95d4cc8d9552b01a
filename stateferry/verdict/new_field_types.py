"""Whether a field of a new class is of the type that a header describes."""

from __future__ import annotations

from flinkstate.classfiles.class_file import Member
from flinkstate.classfiles.signatures import JavaType, parse_type
from flinkstate.kryo.job_pojos import KNOWN_TYPES, component_of, descriptor_of, known_type
from flinkstate.serializers.leaf_types import AvroOpaqueType
from flinkstate.serializers.types import (
    ArrayType,
    AvroRecordType,
    CaseClassType,
    EitherType,
    EnumType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    PojoType,
    Scalar,
    SetType,
    TupleType,
    type_name,
)

_TUPLES = "org.apache.flink.api.java.tuple."
_OPEN = ("T", "*")


def fits(field: Member, old: FlinkType) -> bool | None:
    """Says whether Flink gives a field of this type the serializer `old`; None if that can't be said.

    Which fields its class has, and whether it is a POJO, isn't looked at.
    """
    try:
        java, plain = parse_type(field.signature or field.descriptor), parse_type(field.descriptor)
    except ValueError:
        return None
    if java.name == "T":
        return None
    found = _is(JavaType(plain.name, java.arguments), old)
    # The descriptor of an array of a type variable says too little.
    return found or None if java.name == "*" else found


def has_open_parts(field: Member) -> bool:
    """Whether a type variable or a wildcard is in the field's type."""
    try:
        return parse_type(field.signature or field.descriptor).has_open_parts
    except ValueError:
        return False


def shown(field: Member) -> str:
    """Returns the type of a field as people write it."""
    try:
        java, plain = parse_type(field.signature or field.descriptor), parse_type(field.descriptor)
    except ValueError:
        return field.descriptor
    return _shown(plain if java.name in _OPEN else java)


def _shown(java: JavaType) -> str:
    known = None if java.name in _OPEN else known_type(descriptor_of(java.name))
    if known is not None:
        return type_name(known)
    if java.name.startswith("["):
        return f"{_shown(JavaType(component_of(java.name)))}[]"
    arguments = f"<{','.join(map(_shown, java.arguments))}>" if java.arguments else ""
    return f"{'?' if java.name == '*' else java.name}{arguments}"


def _is(java: JavaType, old: FlinkType) -> bool | None:
    if java.name in _OPEN:
        return None
    may_be_null = isinstance(old, NullableType)
    if isinstance(old, NullableType):
        old = old.value
    known = known_type(descriptor_of(java.name))
    if known is not None or old in KNOWN_TYPES:
        return known == old
    match old:
        case ArrayType(element, component):
            is_alike = java.name.startswith("[") and component_of(java.name) == component
            return _is(JavaType(component), element) if is_alike else False
        case ListType(element):
            return _is_collection(java, ("List", "Collection"), (element,), of_flink_2=may_be_null)
        case SetType(element):
            return _is_collection(java, ("Set",), (element,), of_flink_2=may_be_null)
        case MapType(key, value):
            return _is_collection(java, ("Map",), (key, value), of_flink_2=may_be_null)
        case Scalar():
            return java.name.rpartition(".")[2] == old.label
        case AvroRecordType(class_name, java_class=known_class):
            return java.name == (known_class or class_name) or (None if known_class is None else False)
        case PojoType() | EnumType() | KryoType() | AvroOpaqueType():
            return java.name == old.class_name
        case TupleType() | EitherType():
            return _is_composite(java, old)
    return True if isinstance(old, OpaqueType) else None


def _is_composite(java: JavaType, old: TupleType | EitherType) -> bool | None:
    if java.name != old.class_name:
        return None if isinstance(old, CaseClassType) else False
    if isinstance(old, TupleType) and not java.arguments and not java.name.startswith(_TUPLES):
        # What is in it is in the class file of the tuple or case class.
        return True
    if isinstance(old, CaseClassType):
        # Scala's signatures have Object for numbers.
        return None
    return _are(java.arguments, old.fields if isinstance(old, TupleType) else (old.left, old.right))


def _is_collection(
    java: JavaType, names: tuple[str, ...], parts: tuple[FlinkType, ...], *, of_flink_2: bool
) -> bool | None:
    """Flink 2 has serializers for these interfaces, if type arguments are given that have none themselves.

    Only those let the collection be null. Others are of a job that says more than its classes, as by `Types.POJO`.
    """
    if java.name not in {f"java.util.{name}" for name in names}:
        return False
    is_simple = bool(java.arguments) and not any(one.arguments for one in java.arguments)
    if of_flink_2 and not is_simple:
        return False
    found = _are(java.arguments, parts)
    return None if found and not is_simple else found


def _are(arguments: tuple[JavaType, ...], parts: tuple[FlinkType, ...]) -> bool | None:
    if len(arguments) != len(parts):
        return None
    found = [_is(one, part) for one, part in zip(arguments, parts, strict=True)]
    return False if False in found else None if None in found else True
