"""Types in which no other types are: scalars, enums, values of fixed length, and what only foreign code understands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from flinkstate.classfiles.job_classes import JobClasses


class Scalar(Enum):
    """A value without parts; `label` is its Java name, `length` that of Flink's `getLength()` (None if it varies)."""

    BOOLEAN = ("Boolean", 1)
    BYTE = ("Byte", 1)
    SHORT = ("Short", 2)
    INTEGER = ("Integer", 4)
    LONG = ("Long", 8)
    FLOAT = ("Float", 4)
    DOUBLE = ("Double", 8)
    CHARACTER = ("Character", 2)
    STRING = ("String", None)
    BIG_INTEGER = ("BigInteger", None)
    BIG_DECIMAL = ("BigDecimal", None)
    DATE = ("Date", 8)
    SQL_DATE = ("java.sql.Date", 8)
    SQL_TIME = ("java.sql.Time", 8)
    SQL_TIMESTAMP = ("java.sql.Timestamp", 12)
    INSTANT = ("Instant", 12)
    LOCAL_DATE = ("LocalDate", 6)
    LOCAL_TIME = ("LocalTime", 7)
    LOCAL_DATE_TIME = ("LocalDateTime", 13)
    VOID = ("Void", 1)
    TUPLE0 = ("Tuple0", 1)
    VARIANT = ("Variant", None)
    BITMAP = ("Bitmap", None)
    BOOLEAN_VALUE = ("BooleanValue", 1)
    BYTE_VALUE = ("ByteValue", 1)
    SHORT_VALUE = ("ShortValue", 2)
    INT_VALUE = ("IntValue", 4)
    LONG_VALUE = ("LongValue", 8)
    FLOAT_VALUE = ("FloatValue", 4)
    DOUBLE_VALUE = ("DoubleValue", 8)
    CHAR_VALUE = ("CharValue", 2)
    STRING_VALUE = ("StringValue", None)
    NULL_VALUE = ("NullValue", 0)
    VOID_NAMESPACE = ("VoidNamespace", 1)
    TIME_WINDOW = ("TimeWindow", 16)
    GLOBAL_WINDOW = ("GlobalWindow", 1)
    UNIT = ("Unit", 1)
    NOTHING = ("Nothing", None)
    AVRO_NULL = ("null", None)
    AVRO_STRING = ("string", None)

    def __init__(self, label: str, length: int | None) -> None:
        self.label = label
        self.length = length

    @property
    def name_in_arrays(self) -> str:
        """The element type of Java's array of primitives, or of Strings."""
        return {"Integer": "int", "Character": "char", "String": "String"}.get(self.label, self.label.lower())


@dataclass(frozen=True, slots=True)
class EnumType:
    """i32 number of the constant: its index in `names`, or for Scala's enumerations its number in `ids`."""

    class_name: str
    names: tuple[str, ...]
    ids: tuple[int, ...] | None = None

    @property
    def name_of(self) -> dict[int, str]:
        """The constants' names by their numbers."""
        return dict(zip(range(len(self.names)) if self.ids is None else self.ids, self.names, strict=True))


class AvroType:
    """Values by Flink's Avro serializer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AvroFixedType(AvroType):
    """`size` bytes."""

    class_name: str
    size: int


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """A value that only foreign code understands: it can be copied but not split. `reason` says whose code it is."""

    class_name: str
    reason: str


@dataclass(frozen=True, slots=True)
class AvroOpaqueType(OpaqueType):
    """A value by Flink's Avro serializer of a class whose schema Avro can read, and this project can't."""

    schema: str


@dataclass(frozen=True, slots=True)
class KryoRegistration:
    """A class that has an id in the values of a Kryo serializer, and the job's own serializer for it, if it has one.

    `raw` is how a header says so.
    """

    class_name: str
    serializer: str | None = None
    raw: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class KryoType(OpaqueType):
    """A value that Kryo wrote, opaque to everything but `flinkstate.kryo`.

    `registrations` are in the order of their ids, the declared class first; `defaults` are the job's own serializers
    for classes and their subclasses, as (class, serializer). `classes` are those of the job, if they were given.
    `five` says whether Kryo 5 wrote the values, or Kryo 2, if that is known; `for_five` by which of the two they are
    to be read, if they are written for another Flink.
    """

    reason: str = "serialized by Kryo"
    registrations: tuple[KryoRegistration, ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    classes: JobClasses | None = None
    five: bool | None = None
    for_five: bool = True
    raw_defaults: bytes = field(default=b"", compare=False, repr=False)

    @property
    def own_serializer(self) -> str | None:
        """The job's own serializer by which Kryo writes this class; None if it is one that Kryo or Flink has."""
        return next((part.serializer for part in self.registrations if part.class_name == self.class_name), None)

    def of_the_job(self, other: KryoType) -> KryoType:
        """Returns what the job that has the other type makes of this class, unless it is known already."""
        if self.registrations:
            return self
        ids = {part.class_name: part for part in other.registrations if part.class_name != other.class_name}
        first = ids.pop(self.class_name, KryoRegistration(self.class_name))
        return replace(other, class_name=self.class_name, registrations=(first, *ids.values()), classes=None)


def simple_name(class_name: str) -> str:
    """Returns `Reading` for `com.acme.Reading`, `com.acme.Job$Reading` and Scala's object `com.acme.Reading$`."""
    return class_name.rstrip("$").replace("$", ".").rsplit(".", 1)[-1]
