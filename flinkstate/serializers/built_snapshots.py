"""Builds snapshots of serializers, as Flink writes them into a header."""

from __future__ import annotations

from flinkstate.errors import RefusedError
from flinkstate.serializers.binary import ByteWriter
from flinkstate.serializers.snapshot_classes import (
    ARRAY_SNAPSHOT,
    KRYO_SNAPSHOT,
    LIST_SNAPSHOT,
    MAP_SNAPSHOT,
    NULLABLE_SNAPSHOT,
    SIMPLE_TYPES,
    TTL_SNAPSHOT,
    TUPLE_SNAPSHOT,
)
from flinkstate.serializers.snapshots import (
    COMPOSITE_VERSION,
    NESTED_MAGIC,
    OPTIONAL_MAP_MAGIC,
    OUTER_MAGIC,
    SerializerSnapshot,
    SnapshotParser,
)
from flinkstate.serializers.types import (
    ArrayType,
    FlinkType,
    ListType,
    MapType,
    NullableType,
    PrimitiveArrayType,
    Scalar,
    TtlType,
    TupleType,
    type_name,
)

# Classes that Kryo's serializer registers; without Avro on the class path it registers a stand-in.
_AVRO_ARRAY = "org.apache.avro.generic.GenericData$Array"
_KRYO_PARTS = "org.apache.flink.api.java.typeutils.runtime.kryo.Serializers$"
_TUPLES = "org.apache.flink.api.java.tuple.Tuple"
_BY_CLASS, _BY_SERIALIZER_CLASS = 0, 1


def snapshot_of(type_: FlinkType) -> SerializerSnapshot:
    """Builds the snapshot of a type, if nothing is in it that only its job knows."""
    match type_:
        case Scalar() | PrimitiveArrayType():
            return simple_snapshot(type_)
        case MapType(key, value):
            return map_snapshot(snapshot_of(key), snapshot_of(value))
        case ListType(element):
            return list_snapshot(snapshot_of(element))
        case ArrayType(element, component_class):
            component = ByteWriter().utf(component_class).bytes()
            return composite_snapshot(ARRAY_SNAPSHOT, 1, type_, (snapshot_of(element),), component)
        case TupleType(fields, class_name) if class_name.startswith(_TUPLES):
            nested = tuple(map(snapshot_of, fields))
            return composite_snapshot(TUPLE_SNAPSHOT, 2, type_, nested, ByteWriter().utf(class_name).bytes())
    raise RefusedError(
        f"a new state of type {type_name(type_)} can't be described: only types without parts, arrays, lists, maps "
        "and Flink's tuples. Let the job write a savepoint with the state, and copy that one with other entries"
    )


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

    def framed(content: ByteWriter) -> bytes:
        data = content.bytes()
        return ByteWriter().boolean(True).i32(len(data)).raw(data).bytes()

    writer = ByteWriter().utf(KRYO_SNAPSHOT).i32(2).utf(value_class).i64(OPTIONAL_MAP_MAGIC).i32(2)
    writer.utf(value_class).raw(framed(ByteWriter().utf(value_class)))
    writer.raw(framed(ByteWriter().utf(value_class).i32(_BY_CLASS)))
    dummy = ByteWriter().utf(_KRYO_PARTS + "DummyAvroRegisteredClass").i32(_BY_SERIALIZER_CLASS)
    dummy.utf(_KRYO_PARTS + "DummyAvroKryoSerializerClass")
    writer.utf(_AVRO_ARRAY).raw(framed(ByteWriter().utf(_AVRO_ARRAY))).raw(framed(dummy))
    for _ in ("default serializers", "classes of default serializers"):
        writer.i64(OPTIONAL_MAP_MAGIC).i32(0)
    return SnapshotParser(writer.bytes(), "a snapshot of Kryo's serializer").read(0)[0]


def list_snapshot(element: SerializerSnapshot) -> SerializerSnapshot:
    """Builds the snapshot of Flink's list serializer."""
    return composite_snapshot(LIST_SNAPSHOT, 1, ListType(element.type), (element,))


def ttl_snapshot(value: SerializerSnapshot) -> SerializerSnapshot:
    """Builds the snapshot of Flink's serializer of values with a timestamp (`TtlSerializer`)."""
    return composite_snapshot(TTL_SNAPSHOT, 2, TtlType(value.type), (simple_snapshot(Scalar.LONG), value))
