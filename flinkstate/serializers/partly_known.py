"""Snapshots of serializers whose values aren't known, but which say where they end.

These are the serializers of Flink SQL, those of CEP but for its events, and composite ones of whomever that add nothing
of their own.

| class | body |
|---|---|
| composite, which adds nothing | i32 911108, i32 outer version, nested |
| RowDataSerializer | i32 n, n objects that Java has serialized, nested: n |
| ExternalSerializer | i32 911108, i32 outer version, an object that Java has serialized, bool, nested |
| nested | i32 1333245, i32 1, i32 n, n x Snapshot |

A Java object has no length, but what is nested behind it begins with a mark that is in no description of a type.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from flinkstate.serializers.binary import ByteReader

OUTER_MAGIC = 911108
NESTED_MAGIC = 1333245
COMPOSITE_VERSION = 3
LEAST_SNAPSHOT = 2 + 4  # an empty class name and a version

_MARK = NESTED_MAGIC.to_bytes(4, "big") + (1).to_bytes(4, "big")
_OUTER_MARK = OUTER_MAGIC.to_bytes(4, "big")
_JAVA_STREAM = bytes.fromhex("aced0005")
_TABLE = "org.apache.flink.table."
_TYPES = _TABLE + "runtime.typeutils."
_CEP = "org.apache.flink.cep.nfa."
_ROW_DATA = _TYPES + "RowDataSerializer$RowDataSerializerSnapshot"
_EXTERNAL = _TYPES + "ExternalSerializer$ExternalSerializerSnapshot"

# Bodies without nested snapshots, by class and version: how long they are.
_LENGTHS = {
    **{
        (name, 3): 0
        for name in (
            _TYPES + "StringDataSerializer$StringDataSerializerSnapshot",
            *(
                f"{_TABLE}runtime.operators.window.{window}$Serializer${window}SerializerSnapshot"
                for window in ("TimeWindow", "CountWindow", "GlobalWindow")
            ),
            _TABLE + "runtime.operators.sink.SortedLongSerializer$SortedLongSerializerSnapshot",
            _TABLE + "dataview.NullSerializer$NullSerializerSnapshot",
            _CEP + "DeweyNumber$DeweyNumberSerializer$DeweyNumberSerializerSnapshot",
        )
    },
    (_TYPES + "DecimalDataSerializer$DecimalSerializerSnapshot", 3): 8,  # precision, scale
    (_TYPES + "TimestampDataSerializer$TimestampDataSerializerSnapshot", 1): 4,  # precision
    (_TYPES + "BinaryRowDataSerializer$BinaryRowDataSerializerSnapshot", 3): 4,  # the number of fields
}
# Composite snapshots that add one flag from an outer version on.
_FLAG_SINCE = {
    _TYPES + "LinkedListSerializer$LinkedListSerializerSnapshot": 3,
    _CEP + "NFAStateSerializerSnapshot": 2,
}


def unknown_reason(class_name: str) -> str:
    """Says why the values of a serializer that isn't known are not read."""
    if class_name.startswith("org.apache.flink."):
        return "a serializer of Flink that Stateferry doesn't read"
    return "a serializer that is not one of Flink's own"


class NestedMarks:
    """Where the marks of nested snapshots are in a header, found in one pass at the first question."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._found: array[int] | None = None

    def behind(self, position: int) -> int | None:
        """Returns the place of the first mark from a position on."""
        if self._found is None:
            self._found = array("q")
            at = self._data.find(_MARK)
            while at >= 0:
                self._found.append(at)
                at = self._data.find(_MARK, at + 1)
        index = bisect_left(self._found, position)
        return self._found[index] if index < len(self._found) else None


def nested_in_unknown(reader: ByteReader, class_name: str, version: int, marks: NestedMarks) -> int | None:
    """Moves the reader to what is nested in the snapshot of an unknown class, and returns how many snapshots that is.

    The reader is at the body. Returns None, and leaves the reader there, if the body doesn't say where it ends.
    """
    length = _LENGTHS.get((class_name, version))
    if length is not None:
        reader.take(length, f"the body of {class_name}")
        return 0
    mark = _mark_of(reader, class_name, version, marks)
    if mark is None or mark + len(_MARK) + 4 > reader.limit or reader.data[mark : mark + len(_MARK)] != _MARK:
        return None
    begin = mark + len(_MARK) + 4
    count = _i32(reader, begin - 4)
    if not 0 <= count <= (reader.limit - begin) // LEAST_SNAPSHOT:
        return None
    if class_name == _ROW_DATA and count != _i32(reader, reader.position):
        return None
    reader.position = begin
    return count


def _mark_of(reader: ByteReader, class_name: str, version: int, marks: NestedMarks) -> int | None:
    """Returns where the mark of the nested snapshots must be, from the beginning of the body."""
    data, position = reader.data, reader.position
    if version != COMPOSITE_VERSION:
        return None
    if class_name == _ROW_DATA:
        mark = marks.behind(position + 4)
        is_row = mark == position + 4 or data[position + 4 : position + 8] == _JAVA_STREAM
        return mark if is_row else None
    if data[position : position + 4] != _OUTER_MARK:
        return None
    if class_name == _EXTERNAL:
        return marks.behind(position + 8) if data[position + 8 : position + 12] == _JAVA_STREAM else None
    has_flag = _i32(reader, position + 4) >= _FLAG_SINCE.get(class_name, 1 << 31)
    return position + 8 + has_flag


def _i32(reader: ByteReader, position: int) -> int:
    return int.from_bytes(reader.data[position : position + 4], "big", signed=True)
