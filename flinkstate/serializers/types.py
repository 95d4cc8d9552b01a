"""The types whose values Flink's own serializers write, as a tree with one node for each serializer.

What several types have in common is in the class above them: `CollectionType`, `CountedType`, `MappingType`,
`SequenceType`, `AvroType`. So what shows values (as JSON, text, Arrow, a name) needs no case of its own for a type that
only writes other bytes. What reads or writes the bytes themselves needs one, unless a class above says how: the
elements of a `CountedType`, the parts of a `SequenceType`. `tests/values/test_every_type.py` asks each mechanism for
each type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal

from flinkstate.serializers.leaf_types import AvroFixedType as AvroFixedType
from flinkstate.serializers.leaf_types import AvroType as AvroType
from flinkstate.serializers.leaf_types import EnumType as EnumType
from flinkstate.serializers.leaf_types import KryoRegistration as KryoRegistration
from flinkstate.serializers.leaf_types import KryoType as KryoType
from flinkstate.serializers.leaf_types import OpaqueType as OpaqueType
from flinkstate.serializers.leaf_types import Scalar as Scalar
from flinkstate.serializers.leaf_types import simple_name as simple_name


@dataclass(frozen=True, slots=True)
class CollectionType:
    """Elements of one type."""

    element: FlinkType
    generic_name: ClassVar[str]


@dataclass(frozen=True, slots=True)
class CountedType(CollectionType):
    """An i32 count, and the elements one after another; each is behind a bool if `flag` has the bool's name."""

    flag: ClassVar[Literal["isNull", "isPresent"] | None] = None


@dataclass(frozen=True, slots=True)
class MappingType:
    """Entries, each with a key and a value."""

    key: FlinkType
    value: FlinkType
    generic_name: ClassVar[str]


class SequenceType(ABC):
    """Parts with names, one after another."""

    __slots__ = ()

    @property
    @abstractmethod
    def parts(self) -> tuple[tuple[str, FlinkType], ...]:
        """The parts' names and types."""


@dataclass(frozen=True, slots=True)
class ListType(CountedType):
    """`List<T>`."""

    generic_name = "List"


@dataclass(frozen=True, slots=True)
class SetType(CountedType):
    """`Set<T>`."""

    generic_name = "Set"
    flag = "isNull"


@dataclass(frozen=True, slots=True)
class MapType(MappingType):
    """`Map<K, V>`: i32 size, each entry as key, bool `isNull`, value unless null."""

    generic_name = "Map"


@dataclass(frozen=True, slots=True)
class PrimitiveArrayType(CountedType):
    """`long[]`, `byte[]`, `String[]`."""

    element: Scalar


@dataclass(frozen=True, slots=True)
class ArrayType(CountedType):
    """`T[]` of objects."""

    component_class: str
    flag = "isPresent"


@dataclass(frozen=True, slots=True)
class TraversableType(CountedType):
    """A Scala collection. `builder` is the Scala code to make one."""

    builder: str
    generic_name = "Traversable"
    flag = "isPresent"


@dataclass(frozen=True, slots=True)
class TupleType(SequenceType):
    """Fields one after another, none of them null: a tuple of Flink or a case class of Scala."""

    fields: tuple[FlinkType, ...]
    class_name: str

    @property
    def parts(self) -> tuple[tuple[str, FlinkType], ...]:
        return numbered(self.fields)


@dataclass(frozen=True, slots=True)
class CaseClassType(TupleType):
    """A case class of Scala, or a tuple of Scala's. `names` are those of its fields, which no savepoint says."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowType:
    """A bit mask of ceil((2 + n) / 8) bytes, then the fields that aren't null. Without a row kind the 2 is missing."""

    fields: tuple[FlinkType, ...]
    has_kind: bool
    generic_name: ClassVar[str] = "Row"


@dataclass(frozen=True, slots=True)
class PojoField:
    """A field of a POJO, and the class that declares it, if that is known: by a class file, and by a header."""

    name: str
    type: FlinkType
    declared_in: str = field(default="", compare=False, repr=False)
    described_in: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PojoType:
    """A flag byte, then for each field bool `isNull` and the value.

    The flag is 01 for null, 02 for the class itself, 04 + utf class for another subclass, 08 + byte tag for a
    registered subclass. Behind 04 and 08 is a whole value of the subclass's own serializer.
    """

    class_name: str
    fields: tuple[PojoField, ...]
    registered_subclasses: tuple[FlinkType, ...] = ()
    other_subclasses: tuple[tuple[str, FlinkType], ...] = ()

    @property
    def subclasses(self) -> tuple[FlinkType, ...]:
        """The serializers of all subclasses that the header describes."""
        return (*self.registered_subclasses, *(subclass for _, subclass in self.other_subclasses))


@dataclass(frozen=True, slots=True)
class NullableType:
    """bool `isNull`, then `padding` bytes if null, else the value."""

    value: FlinkType
    padding: int


@dataclass(frozen=True, slots=True)
class OptionType:
    """Scala's `Option`: bool `isSome`, then the value if it is one."""

    value: FlinkType
    generic_name: ClassVar[str] = "Option"


FLINK_EITHER, SCALA_EITHER, SCALA_TRY = "org.apache.flink.types.Either", "scala.util.Either", "scala.util.Try"
JOINED_ELEMENT = "org.apache.flink.streaming.api.datastream.CoGroupedStreams$TaggedUnion"
_SIDES = {SCALA_TRY: ("success", "failure"), JOINED_ELEMENT: ("one", "two")}


@dataclass(frozen=True, slots=True)
class EitherType:
    """u8 1 if it is the left side, else `right_tag`, then the value of that side.

    It is an `Either` of Flink or Scala, a Scala `Try`, or what a join or `coGroup` in windows has of its two inputs.
    """

    left: FlinkType
    right: FlinkType
    class_name: str = FLINK_EITHER

    @property
    def sides(self) -> tuple[str, str]:
        """The names of the left and the right side."""
        return _SIDES.get(self.class_name, ("left", "right"))

    @property
    def right_tag(self) -> int:
        return 2 if self.class_name == JOINED_ELEMENT else 0


@dataclass(frozen=True, slots=True)
class AvroArrayType(CollectionType, AvroType):
    """Blocks, each a varint count (low 7 bits first) and that many elements; a block with count 0 ends the array."""

    generic_name = "array"


@dataclass(frozen=True, slots=True)
class AvroMapType(MappingType, AvroType):
    """Blocks as in an array; each element is a string and a value."""

    key: FlinkType = field(init=False, default=Scalar.AVRO_STRING)
    value: FlinkType
    generic_name = "map"


@dataclass(frozen=True, slots=True)
class AvroBranch:
    """A branch of a union, or a field of a record."""

    name: str
    type: FlinkType


@dataclass(frozen=True, slots=True)
class AvroUnionType(AvroType):
    """i32 index of the branch, then its value."""

    branches: tuple[AvroBranch, ...]
    generic_name: ClassVar[str] = "union"

    @property
    def nullable(self) -> FlinkType | None:
        """The type of the other branch, if the union has two branches and one is null; else None."""
        others = [branch.type for branch in self.branches if branch.type is not Scalar.AVRO_NULL]
        return others[0] if len(others) == 1 and len(self.branches) == 2 else None


@dataclass(frozen=True, slots=True)
class AvroRecordType(SequenceType, AvroType):
    """Fields one after another, in the order of the schema; of a whole value also its Java class and the schema."""

    class_name: str
    fields: tuple[AvroBranch, ...]
    java_class: str | None = field(default=None, compare=False, repr=False)
    schema: str | None = field(default=None, compare=False, repr=False)

    @property
    def parts(self) -> tuple[tuple[str, FlinkType], ...]:
        return tuple((part.name, part.type) for part in self.fields)


@dataclass(frozen=True, slots=True)
class TtlType(SequenceType):
    """i64 last access in milliseconds, then the value."""

    value: FlinkType
    generic_name: ClassVar[str] = "Ttl"

    @property
    def parts(self) -> tuple[tuple[str, FlinkType], ...]:
        return ("timestamp", Scalar.LONG), ("value", self.value)


@dataclass(frozen=True, slots=True)
class TimerType(SequenceType):
    """i64 timestamp with the sign bit flipped, key, namespace."""

    key: FlinkType
    namespace: FlinkType
    generic_name: ClassVar[str] = "Timer"

    @property
    def parts(self) -> tuple[tuple[str, FlinkType], ...]:
        return ("timestamp", Scalar.LONG), ("key", self.key), ("namespace", self.namespace)


@dataclass(frozen=True, slots=True)
class DeclaredKryoType(KryoType):
    """A value by Kryo of which people say what it is, though Flink needn't know: no class may differ, at any depth."""

    declared: MapType | ListType | SetType = field(kw_only=True)

    @classmethod
    def of(cls, kryo: KryoType, declared: MapType | ListType | SetType) -> DeclaredKryoType:
        return cls(**{one.name: getattr(kryo, one.name) for one in fields(KryoType)}, declared=declared)


@dataclass(frozen=True, slots=True)
class KryoMapType(OpaqueType):
    """A map by Kryo, of whose keys and values it is known what they are. No header says that; the values do.

    With `widen` its numbers may be of narrower types: each becomes one of the wider type that `map` has.
    """

    kryo: KryoType
    map: MapType
    widen: bool = False


@dataclass(frozen=True, slots=True)
class KryoCollectionType(OpaqueType):
    """A collection by Kryo that Flink 2 writes with serializers of its own (`made`), because its job declares it so."""

    kryo: KryoType
    made: NullableType

    @classmethod
    def of(cls, kryo: KryoType, made: NullableType) -> KryoCollectionType:
        return cls(kryo.class_name, kryo.reason, kryo, made)


@dataclass(frozen=True, slots=True)
class ScalaType(OpaqueType):
    """A value by the serializers of flink-scala (`source`) that becomes one by Flink's own (`made`)."""

    source: FlinkType
    made: FlinkType

    @classmethod
    def of(cls, source: FlinkType, made: FlinkType) -> ScalaType:
        return cls(type_name(source), "by serializers of flink-scala", source, made)


@dataclass(frozen=True, slots=True)
class PojoMapType(OpaqueType):
    """A POJO of which the map in a field is meant, as a whole value; `map` is the field's type.

    A POJO that is null, and one with null in the field, are a map without entries. It may be an object that Kryo wrote
    as a whole, with the map.
    """

    pojo: PojoType | KryoType
    field: str
    map: FlinkType


# The class above them too, as what has a count is often treated alike.
_Counted = CountedType | ListType | SetType | PrimitiveArrayType | ArrayType | TraversableType
_OfAvro = AvroFixedType | AvroArrayType | AvroMapType | AvroUnionType | AvroRecordType
_OfFields = TupleType | CaseClassType | RowType | PojoType
_OfOne = NullableType | OptionType | EitherType | TtlType | TimerType
FlinkType = Scalar | EnumType | _Counted | MapType | _OfFields | _OfOne | _OfAvro | OpaqueType


def numbered(fields: tuple[FlinkType, ...]) -> tuple[tuple[str, FlinkType], ...]:
    """Returns the fields with the names f0, f1 and so on."""
    return tuple((f"f{number}", part) for number, part in enumerate(fields))


def type_name(type_: FlinkType) -> str:
    """Returns the type as a Java developer writes it, without packages: `Map<String,Tuple2<Long,Double>>`."""
    match type_:
        case Scalar():
            return type_.label
        case PrimitiveArrayType(element):
            return f"{element.name_in_arrays}[]"
        case ArrayType(element):
            return f"{type_name(element)}[]"
        case TupleType(parts, class_name):
            return f"{simple_name(class_name)}{_in_brackets(parts)}"
        case KryoMapType() | PojoMapType():
            return type_name(type_.map)
        case PojoType() | EnumType() | OpaqueType() | AvroFixedType() | AvroRecordType():
            return simple_name(type_.class_name)
        case NullableType(value):
            return type_name(value)
        case EitherType(left, right, class_name):
            return f"{simple_name(class_name)}{_in_brackets((left,) if class_name == SCALA_TRY else (left, right))}"
        case AvroMapType(value):
            return f"map<{type_name(value)}>"
        case _:
            return f"{type_.generic_name}{_in_brackets(children(type_))}"


def _in_brackets(types: tuple[FlinkType, ...]) -> str:
    return f"<{','.join(map(type_name, types))}>"


def children(type_: FlinkType) -> tuple[FlinkType, ...]:
    """Returns the types that a value of this type may contain directly."""
    if isinstance(type_, Scalar):
        return ()
    return tuple(_types_in(getattr(type_, part.name) for part in fields(type_)))


def _types_in(parts: Iterable[object]) -> Iterator[FlinkType]:
    for part in parts:
        if isinstance(part, FlinkType):
            yield part
        elif isinstance(part, PojoField | AvroBranch):
            yield part.type
        elif isinstance(part, tuple):
            yield from _types_in(part)
