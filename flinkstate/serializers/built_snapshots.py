"""Builds snapshots of serializers, as Flink writes them into a header."""

from __future__ import annotations

from dataclasses import replace

from flinkstate.errors import RefusedError, UsageError
from flinkstate.serializers.binary import ByteWriter
from flinkstate.serializers.partly_known import COMPOSITE_VERSION, NESTED_MAGIC, OUTER_MAGIC
from flinkstate.serializers.snapshot_classes import (
    ARRAY_SNAPSHOT,
    EITHER_SNAPSHOT,
    ENUM_SNAPSHOT,
    KRYO_SNAPSHOT,
    LIST_SNAPSHOT,
    MAP_SNAPSHOT,
    NULLABLE_SNAPSHOT,
    POJO_SNAPSHOT,
    ROW_SNAPSHOT,
    SET_SNAPSHOT,
    SIMPLE_TYPES,
    TTL_SNAPSHOT,
    TUPLE_SNAPSHOT,
)
from flinkstate.serializers.snapshot_merge import with_nested
from flinkstate.serializers.snapshots import (
    MISSING,
    OPTIONAL_MAP_MAGIC,
    SerializerSnapshot,
    SnapshotParser,
)
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import (
    FLINK_EITHER,
    ArrayType,
    EitherType,
    EnumType,
    FlinkType,
    KryoCollectionType,
    KryoRegistration,
    KryoType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    ScalaType,
    SetType,
    TimerType,
    TtlType,
    TupleType,
    children,
    type_name,
)

# Classes that Kryo's serializer registers; without Avro on the class path it registers a stand-in.
AVRO_ARRAY = "org.apache.avro.generic.GenericData$Array"
_KRYO_PARTS = "org.apache.flink.api.java.typeutils.runtime.kryo.Serializers$"
_TUPLES = "org.apache.flink.api.java.tuple.Tuple"
_AVRO_STAND_IN = _KRYO_PARTS + "DummyAvroKryoSerializerClass"
_BY_CLASS, _BY_SERIALIZER_CLASS = 0, 1


def snapshot_of(type_: FlinkType) -> SerializerSnapshot:
    """Builds the snapshot of a type, if nothing is in it that only its job knows."""
    match type_:
        case Scalar() | PrimitiveArrayType() if type_ in SIMPLE_TYPES.values():
            return simple_snapshot(type_)
        case MapType(key, value):
            return map_snapshot(snapshot_of(key), snapshot_of(value))
        case ListType(element):
            return list_snapshot(snapshot_of(element))
        case SetType(element):
            return composite_snapshot(SET_SNAPSHOT, 1, type_, (snapshot_of(element),))
        case NullableType(value, 0):
            return nullable_snapshot(snapshot_of(value))
        case ArrayType(element, component_class):
            component = ByteWriter().utf(component_class).bytes()
            return composite_snapshot(ARRAY_SNAPSHOT, 1, type_, (snapshot_of(element),), component)
        case TupleType() | RowType() | EitherType() if (found := _snapshot_of_parts(type_)) is not None:
            return found
        case EnumType(class_name, (_, *_) as names, None):
            writer = ByteWriter().utf(ENUM_SNAPSHOT).i32(3).utf(class_name).i32(len(names))
            for name in names:
                writer.utf(name)
            return SerializerSnapshot(ENUM_SNAPSHOT, 3, type_, (), writer.bytes())
        case PojoType(fields=(_, *_)) if all(one.declared_in for one in type_.fields):
            return _pojo_snapshot(type_)
        case KryoType(registrations=(_, *_)):
            return _kryo_snapshot_of(type_)
    raise _not_described(type_)


def _not_described(type_: object) -> UsageError | RefusedError:
    if not isinstance(type_, FlinkType):
        return UsageError(f"expected a type, such as Scalar.LONG, found {type_!r}")
    return RefusedError(
        f"a new state of type {type_name(type_)} can't be described: only types without parts, arrays, lists, maps "
        "and Flink's tuples, rows and Either. Let the job write a savepoint with the state, and copy that one with "
        "other entries"
    )


def _snapshot_of_parts(type_: TupleType | RowType | EitherType) -> SerializerSnapshot | None:
    """Builds the snapshot of a class of Flink; None if the type is none of these."""
    match type_:
        case TupleType(fields, class_name) if class_name.startswith(_TUPLES):
            nested = tuple(map(snapshot_of, fields))
            return composite_snapshot(TUPLE_SNAPSHOT, 2, type_, nested, ByteWriter().utf(class_name).bytes())
        case RowType(fields, True):
            has_kind = ByteWriter().boolean(True).bytes()
            return composite_snapshot(ROW_SNAPSHOT, 4, type_, tuple(map(snapshot_of, fields)), has_kind)
        case EitherType(left, right, class_name) if class_name == FLINK_EITHER:
            return composite_snapshot(EITHER_SNAPSHOT, 1, type_, (snapshot_of(left), snapshot_of(right)))
    return None


def composite_snapshot(
    class_name: str, outer_version: int, type_: FlinkType, nested: tuple[SerializerSnapshot, ...], outer: bytes = b""
) -> SerializerSnapshot:
    """Builds a composite snapshot around nested ones; `outer` is what it says itself."""
    writer = ByteWriter().utf(class_name).i32(COMPOSITE_VERSION).i32(OUTER_MAGIC).i32(outer_version).raw(outer)
    writer.i32(NESTED_MAGIC).i32(1).i32(len(nested))
    for snapshot in nested:
        writer.raw(snapshot.raw)
    return SerializerSnapshot(class_name, 3, type_, nested, writer.bytes())


def simple_snapshot(type_: Scalar | PrimitiveArrayType) -> SerializerSnapshot:
    """Builds the snapshot of a type without parts, or of an array of such."""
    class_name = next(name for name, known in SIMPLE_TYPES.items() if known == type_)
    return SerializerSnapshot(class_name, 3, type_, (), ByteWriter().utf(class_name).i32(3).bytes())


def map_snapshot(key: SerializerSnapshot, value: SerializerSnapshot) -> SerializerSnapshot:
    """Builds the snapshot of Flink's map serializer."""
    return composite_snapshot(MAP_SNAPSHOT, 1, MapType(key.type, value.type), (key, value))


def nullable_snapshot(value: SerializerSnapshot) -> SerializerSnapshot:
    """Builds the snapshot of Flink's serializer of values that may be null, without padding."""
    outer = ByteWriter().i32(0).bytes()
    return composite_snapshot(NULLABLE_SNAPSHOT, 2, NullableType(value.type, 0), (value,), outer)


def kryo_snapshot(value_class: str) -> SerializerSnapshot:
    """Builds the snapshot of Kryo's serializer for a class of the JDK, of a job that registers no classes."""
    return _kryo_snapshot_of(KryoType(value_class, registrations=(KryoRegistration(value_class), _stand_in())))


def _stand_in() -> KryoRegistration:
    dummy = ByteWriter().utf(_KRYO_PARTS + "DummyAvroRegisteredClass").i32(_BY_SERIALIZER_CLASS).utf(_AVRO_STAND_IN)
    avro = ByteWriter().utf(AVRO_ARRAY).raw(_framed(ByteWriter().utf(AVRO_ARRAY))).raw(_framed(dummy)).bytes()
    return KryoRegistration(AVRO_ARRAY, _AVRO_STAND_IN, avro)


def is_of_avro(registration: KryoRegistration) -> bool:
    """Whether flink-avro, on the job's class path, has registered its serializer: only Flink 1 has that."""
    return registration.class_name == AVRO_ARRAY and registration.serializer not in (None, _AVRO_STAND_IN)


def without_avro(snapshot: SerializerSnapshot) -> SerializerSnapshot:
    """Returns the snapshot with Flink's stand-in, which each Flink reads, wherever flink-avro registered a serializer.

    The ids of classes are the same, so all values but Avro's arrays are read as before.
    """
    kryo = snapshot.type
    if snapshot.class_name == KRYO_SNAPSHOT and isinstance(kryo, KryoType):
        if not any(map(is_of_avro, kryo.registrations)):
            return snapshot
        return _kryo_snapshot_of(kryo_without_avro(kryo))
    if isinstance(snapshot.type, OpaqueType):
        return snapshot  # nobody looks into its values for Avro's arrays
    nested = tuple(map(without_avro, snapshot.nested))
    return snapshot if nested == snapshot.nested else with_nested(snapshot, nested)


def kryo_without_avro(kryo: KryoType) -> KryoType:
    """As `without_avro`, of a serializer of Kryo that isn't described yet."""
    parts = tuple(_stand_in() if is_of_avro(one) else one for one in kryo.registrations)
    return replace(kryo, registrations=parts)


def _kryo_snapshot_of(type_: KryoType) -> SerializerSnapshot:
    writer = ByteWriter().utf(KRYO_SNAPSHOT).i32(2).utf(type_.class_name)
    writer.i64(OPTIONAL_MAP_MAGIC).i32(len(type_.registrations))
    for part in type_.registrations:
        name = part.class_name
        by_class = ByteWriter().utf(name).raw(_framed(ByteWriter().utf(name)))
        writer.raw(part.raw or by_class.raw(_framed(ByteWriter().utf(name).i32(_BY_CLASS))).bytes())
    # Without any: default serializers, and classes of default serializers.
    writer.raw(type_.raw_defaults or 2 * ByteWriter().i64(OPTIONAL_MAP_MAGIC).i32(0).bytes())
    return SnapshotParser(writer.bytes(), "a snapshot of Kryo's serializer").read(0)[0]


def _pojo_snapshot(type_: PojoType) -> SerializerSnapshot:
    """Builds the snapshot of Flink's serializer of a POJO of which no subclasses are registered."""
    writer = ByteWriter().utf(POJO_SNAPSHOT).i32(2).utf(type_.class_name)
    writer.i64(OPTIONAL_MAP_MAGIC).i32(len(type_.fields))
    for field in type_.fields:
        declared = ByteWriter().utf(field.declared_in).utf(field.name)
        writer.utf(field.name).raw(_framed(declared)).raw(_framed(ByteWriter().raw(snapshot_of(field.type).raw)))
    writer.i64(OPTIONAL_MAP_MAGIC).i32(0).i64(OPTIONAL_MAP_MAGIC).i32(len(type_.other_subclasses))
    for name, subclass in type_.other_subclasses:
        writer.utf(name).raw(_framed(ByteWriter().utf(name)))
        writer.raw(_framed(ByteWriter().raw(snapshot_of(subclass).raw)))
    return SnapshotParser(writer.bytes(), "a snapshot of a POJO's serializer").read(0)[0]


def _framed(content: ByteWriter) -> bytes:
    data = content.bytes()
    return ByteWriter().boolean(True).i32(len(data)).raw(data).bytes()


def list_snapshot(element: SerializerSnapshot) -> SerializerSnapshot:
    """Builds the snapshot of Flink's list serializer."""
    return composite_snapshot(LIST_SNAPSHOT, 1, ListType(element.type), (element,))


def described_as(snapshot: SerializerSnapshot, type_: FlinkType) -> SerializerSnapshot:
    """Returns the snapshot of a state's value, in which collections are described as what they become."""
    if not _has_collection(type_):
        return snapshot
    match type_:
        case KryoCollectionType():
            return snapshot_of(type_.made if type_.kryo.for_five else type_.kryo)
        case ScalaType():
            return snapshot_of(type_.made)
        case TtlType(value):
            return ttl_snapshot(described_as(snapshot.nested[1], value))
        case ListType(element):
            # It may be of either of Flink's two list serializers.
            return with_nested(snapshot, (described_as(snapshot.nested[0], element),))
        case MapType(key, value):
            return map_snapshot(described_as(snapshot.nested[0], key), described_as(snapshot.nested[1], value))
        case TimerType(key, namespace):
            parts = zip(snapshot.nested, (key, namespace), strict=True)
            return with_nested(snapshot, tuple(described_as(one, part) for one, part in parts))
        case PojoType():
            described = [one for one in children(type_) if not isinstance(one, OpaqueType) or one.reason != MISSING]
            parts = zip(snapshot.nested, described, strict=True)
            return with_nested(snapshot, tuple(described_as(one, part) for one, part in parts))
        case TupleType() | RowType():
            # The flag in an entry of an interval join has no serializer of its own.
            fields_described = type_.fields[len(type_.fields) - len(snapshot.nested) :]
            parts = zip(snapshot.nested, fields_described, strict=True)
            return with_nested(snapshot, tuple(described_as(one, part) for one, part in parts))
    raise RefusedError(f"a collection inside of a {type_name(type_)} can't be described for another Flink")


def _has_collection(type_: FlinkType) -> bool:
    return any(isinstance(one, KryoCollectionType | ScalaType) for one in with_parts(type_))


def ttl_snapshot(value: SerializerSnapshot) -> SerializerSnapshot:
    """Builds the snapshot of Flink's serializer of values with a timestamp (`TtlSerializer`)."""
    return composite_snapshot(TTL_SNAPSHOT, 2, TtlType(value.type), (simple_snapshot(Scalar.LONG), value))
