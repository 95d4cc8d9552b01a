"""Values without parts."""

from __future__ import annotations

from enum import Enum


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
