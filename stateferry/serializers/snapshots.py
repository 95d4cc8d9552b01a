"""Serializer snapshots: how Flink describes in a savepoint's headers the serializer that wrote a state.

| part | bytes |
|---|---|
| Snapshot | utf snapshot class, i32 version, body |
| simple body | empty (version 2: one utf) |
| composite body | i32 911108, i32 outer version, outer body, i32 1333245, i32 1, i32 n, n x Snapshot |
| optional map | i64 0x4f2c69a3d70, i32 n, n x (utf name, bool + i32 length + bytes, bool + i32 length + bytes) |

A body has no length. The extent of one that nobody here knows is found by trying where what must follow fits; the parts
of such a reading are kept as an `OpaqueType`. If more than one reading fits, the class is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from stateferry.binary import ByteReader, ByteWriter, decode_modified_utf8
from stateferry.errors import DamagedError, RefusedError
from stateferry.serializers.snapshot_classes import (
    COMPOSITE_CLASSES,
    ENUM_SNAPSHOT,
    KRYO_SNAPSHOT,
    MAP_SNAPSHOT,
    POJO_SNAPSHOT,
    SIMPLE_TYPES,
    TTL_SNAPSHOT,
)
from stateferry.serializers.types import (
    EnumType,
    FlinkType,
    MapType,
    OpaqueType,
    PojoField,
    PojoType,
    PrimitiveArrayType,
    Scalar,
    TtlType,
)

_OUTER_MAGIC = 911108
_NESTED_MAGIC = 1333245
OPTIONAL_MAP_MAGIC = 0x4F2C69A3D70
_LEAST_SNAPSHOT = 2 + 4  # an empty class name and a version
_COMPOSITE_VERSION = 3
_MOST_UNKNOWN_VERSION = 0x10000000  # less than any four characters of text

# What keeps a header that was made to be misread from filling the stack and the memory: types as deep as nobody writes
# them, and readings that unknown bodies leave open.
_MOST_LEVELS = 64
_MOST_READINGS = 1000
_MOST_READ_BYTES = 1 << 26
_MOST_UNKNOWN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SerializerSnapshot:
    """One serializer as a header describes it: `raw` is its very bytes, class name and version included."""

    class_name: str
    version: int
    type: FlinkType
    nested: tuple[SerializerSnapshot, ...]
    raw: bytes


Reading = tuple[SerializerSnapshot, int]


class SnapshotParser:
    """All readings of the snapshot at a position: one, unless an unknown body leaves open where it ends."""

    def __init__(self, data: bytes, file: str, *, limit: int | None = None, base: int = 0, level: int = 0) -> None:
        self.data = data
        self.file = file
        self.limit = len(data) if limit is None else limit
        self.base = base
        self._level = level
        self._read_bytes = 0
        self._unknown: set[str] = set()
        self._readings: dict[int, list[Reading]] = {}
        self._texts: dict[int, bool] = {}

    def reader(self, position: int) -> ByteReader:
        return ByteReader(self.data, self.file, position=position, limit=self.limit, base=self.base)

    def readings(self, position: int) -> list[Reading]:
        """Non-empty; raises `DamagedError` where nothing fits."""
        if position not in self._readings:
            if self._level == _MOST_LEVELS:
                raise self.reader(position).damaged(f"serializers nested at most {_MOST_LEVELS} deep", "more")
            self._level += 1
            try:
                self._readings[position] = self._read(position)
            finally:
                self._level -= 1
        return self._readings[position]

    def _read(self, position: int) -> list[Reading]:
        reader = self.reader(position)
        class_name = reader.utf("the class of a serializer snapshot")
        if not _looks_like_class(class_name):
            raise reader.damaged("the class of a serializer snapshot", repr(class_name), position=position)
        version_position = reader.position
        version = reader.i32(f"the version of {class_name}")
        if class_name in SIMPLE_TYPES:
            if version not in (2, 3):
                raise reader.damaged(f"version 2 or 3 of {class_name}", f"{version}", position=version_position)
            if version == 2:
                reader.utf("the name of a serializer class")
            return [self._done(position, reader.position, class_name, version, SIMPLE_TYPES[class_name])]
        if class_name in COMPOSITE_CLASSES:
            return self._composite(position, reader, class_name, version)
        if class_name == ENUM_SNAPSHOT:
            return [self._enum(position, reader, class_name, version)]
        if class_name == POJO_SNAPSHOT:
            return [self._pojo(position, reader, class_name, version)]
        if class_name == KRYO_SNAPSHOT:
            return [self._kryo(position, reader, class_name, version)]
        if not 0 <= version < _MOST_UNKNOWN_VERSION:
            expected = f"a version of {class_name} that is a small number"
            raise reader.damaged(expected, f"{version}", position=version_position)
        self._unknown.add(class_name)
        opaque = OpaqueType(class_name, "a serializer that is not one of Flink's own")
        return [
            self._done(position, end, class_name, version, opaque)
            for end in range(reader.position, min(self.limit, reader.position + _MOST_UNKNOWN_BYTES) + 1)
            if self._can_follow(end)
        ]

    def _done(
        self,
        start: int,
        end: int,
        class_name: str,
        version: int,
        type_: FlinkType,
        nested: tuple[SerializerSnapshot, ...] = (),
    ) -> Reading:
        self._read_bytes += end - start
        if self._read_bytes > _MOST_READ_BYTES:
            raise self._too_many_readings(start)
        return SerializerSnapshot(class_name, version, type_, nested, self.data[start:end]), end

    def _too_many_readings(self, position: int) -> RefusedError:
        classes = ", ".join(sorted(self._unknown)) or "none of them unknown"
        return RefusedError(
            f"{self.file}: too many ways to read the serializer snapshots at offset {self.base + position}, "
            f"because nothing says where the description of an unknown one ends: {classes}"
        )

    def _can_follow(self, end: int) -> bool:
        """Whether what stands at `end` may follow a snapshot: nothing, a text (a class, a name), or an i16 and that."""
        return end == self.limit or self._text_at(end) or self.limit == end + 2 or self._text_at(end + 2)

    def _text_at(self, position: int) -> bool:
        """Asked of every byte of an unknown body, once for each place where one may begin."""
        if position not in self._texts:
            self._texts[position] = self._is_text(position)
        return self._texts[position]

    def _is_text(self, position: int) -> bool:
        start = position + 2
        end = start + int.from_bytes(self.data[position:start], "big")
        if not start < end <= self.limit:
            return False
        try:
            return decode_modified_utf8(self.data[start:end]).isprintable()
        except ValueError:
            return False

    def _composite(self, start: int, reader: ByteReader, class_name: str, version: int) -> list[Reading]:
        known = COMPOSITE_CLASSES[class_name]
        if not 1 <= version <= _COMPOSITE_VERSION:
            expected = f"version 1 to {_COMPOSITE_VERSION} of {class_name}"
            raise reader.damaged(expected, f"{version}", position=reader.position - 4)
        if version == _COMPOSITE_VERSION:
            reader.expect_i32(_OUTER_MAGIC, "the magic number of a composite serializer snapshot")
            outer_version = reader.i32("the outer version")
        else:
            outer_version = version
        if not 1 <= outer_version <= known.outer_version:
            raise reader.damaged(
                f"outer version 1 to {known.outer_version} of {class_name}",
                f"{outer_version}",
                position=reader.position - 4,
            )
        outer = known.read_outer(reader, outer_version)
        reader.expect_i32(_NESTED_MAGIC, "the magic number of nested serializer snapshots")
        reader.expect_i32(1, "the version of nested serializer snapshots")
        count_position = reader.position
        count = reader.count("the number of nested serializer snapshots", _LEAST_SNAPSHOT)
        if known.arity is not None and count != known.arity:
            raise reader.damaged(f"{known.arity} nested serializers", f"{count}", position=count_position)
        readings = []
        for nested, end in self._sequence(reader.position, count):
            type_ = known.make(outer, tuple(part.type for part in nested))
            readings.append(self._done(start, end, class_name, version, type_, nested))
        return readings

    def _sequence(self, position: int, count: int) -> Iterator[tuple[tuple[SerializerSnapshot, ...], int]]:
        partial: list[tuple[tuple[SerializerSnapshot, ...], int]] = [((), position)]
        for _ in range(count):
            further = follow(partial, lambda at: self.readings(at), lambda done, one: (*done, one))
            partial = list(islice(further, _MOST_READINGS + 1))
            if len(partial) > _MOST_READINGS:
                raise self._too_many_readings(position)
        yield from partial

    def _expect_version(self, expected: int, reader: ByteReader, class_name: str, version: int) -> None:
        if version != expected:
            raise reader.damaged(f"version {expected} of {class_name}", f"{version}", position=reader.position - 4)

    def _enum(self, start: int, reader: ByteReader, class_name: str, version: int) -> Reading:
        self._expect_version(3, reader, class_name, version)
        enum_class = reader.utf("an enum class")
        names = tuple(reader.utf("an enum constant") for _ in range(reader.count("the number of enum constants", 2)))
        return self._done(start, reader.position, class_name, version, EnumType(enum_class, names))

    def _pojo(self, start: int, reader: ByteReader, class_name: str, version: int) -> Reading:
        self._expect_version(2, reader, class_name, version)
        pojo_class = reader.utf("a POJO class")
        fields, nested = [], []
        for name, snapshot in self._framed_snapshots(reader):
            fields.append(PojoField(name, snapshot.type if snapshot else _absent(name)))
            nested += [snapshot] if snapshot else []
        registered = [(name, snapshot) for name, snapshot in self._framed_snapshots(reader)]
        others = [(name, snapshot) for name, snapshot in self._framed_snapshots(reader)]
        type_ = PojoType(
            pojo_class,
            tuple(fields),
            tuple(snapshot.type if snapshot else _absent(name) for name, snapshot in registered),
            tuple((name, snapshot.type if snapshot else _absent(name)) for name, snapshot in others),
        )
        subclasses = [snapshot for _, snapshot in (*registered, *others) if snapshot]
        return self._done(start, reader.position, class_name, version, type_, (*nested, *subclasses))

    def _framed_snapshots(self, reader: ByteReader) -> Iterator[tuple[str, SerializerSnapshot | None]]:
        for name, _, value in optional_map(reader):
            if value is None:
                yield name, None
                continue
            start, end = value
            framed = SnapshotParser(self.data, self.file, limit=end, base=self.base, level=self._level)
            complete = [snapshot for snapshot, stop in framed.readings(start) if stop == end]
            if not complete:
                expected = f"a serializer snapshot for {name!r} of {end - start} bytes"
                raise reader.damaged(expected, "one that ends elsewhere", position=start)
            if len(complete) > 1:
                raise framed._too_many_readings(start)
            yield name, complete[0]

    def _kryo(self, start: int, reader: ByteReader, class_name: str, version: int) -> Reading:
        self._expect_version(2, reader, class_name, version)
        value_class = reader.utf("the class of a Kryo value")
        for _ in range(3):
            for _name, _key, _value in optional_map(reader):
                pass
        type_ = OpaqueType(value_class, "serialized by Kryo")
        return self._done(start, reader.position, class_name, version, type_)


Done = TypeVar("Done")
Part = TypeVar("Part")
Joined = TypeVar("Joined")


def follow(
    partial: list[tuple[Done, int]],
    readings: Callable[[int], list[tuple[Part, int]]],
    join: Callable[[Done, Part], Joined],
) -> Iterator[tuple[Joined, int]]:
    """Every way to go on from each partial reading; raises the first one's damage when there is none."""
    damage: DamagedError | None = None
    any_reading = False
    for done, position in partial:
        try:
            for part, end in readings(position):
                any_reading = True
                yield join(done, part), end
        except DamagedError as error:
            damage = damage or error
    if not any_reading and damage is not None:
        raise damage


def optional_map(reader: ByteReader) -> Iterator[tuple[str, tuple[int, int] | None, tuple[int, int] | None]]:
    """Names with the extents of their framed keys and values."""
    start = reader.position
    if reader.i64("the header of an optional map") != OPTIONAL_MAP_MAGIC:
        raise reader.damaged(f"the header of an optional map {OPTIONAL_MAP_MAGIC:#x}", "another", position=start)
    for _ in range(reader.count("the size of an optional map", 4)):
        name = reader.utf("a name in an optional map")
        yield name, _frame(reader), _frame(reader)


def _frame(reader: ByteReader) -> tuple[int, int] | None:
    if not reader.boolean("the presence of a frame"):
        return None
    length = reader.i32("the length of a frame")
    start = reader.position
    reader.take(length, "a frame")
    return start, start + length


def _absent(name: str) -> OpaqueType:
    return OpaqueType(name, "its class or serializer was missing when the savepoint was written")


def _looks_like_class(text: str) -> bool:
    return text != "" and text.isprintable() and not any(character.isspace() for character in text)


def composite_snapshot(
    class_name: str, outer_version: int, type_: FlinkType, nested: tuple[SerializerSnapshot, ...]
) -> SerializerSnapshot:
    writer = ByteWriter().utf(class_name).i32(_COMPOSITE_VERSION).i32(_OUTER_MAGIC).i32(outer_version)
    writer.i32(_NESTED_MAGIC).i32(1).i32(len(nested))
    for snapshot in nested:
        writer.raw(snapshot.raw)
    return SerializerSnapshot(class_name, 3, type_, nested, writer.bytes())


def simple_snapshot(type_: Scalar | PrimitiveArrayType) -> SerializerSnapshot:
    class_name = next(name for name, known in SIMPLE_TYPES.items() if known == type_)
    return SerializerSnapshot(class_name, 3, type_, (), ByteWriter().utf(class_name).i32(3).bytes())


def map_snapshot(key: SerializerSnapshot, value: SerializerSnapshot) -> SerializerSnapshot:
    return composite_snapshot(MAP_SNAPSHOT, 1, MapType(key.type, value.type), (key, value))


def ttl_snapshot(value: SerializerSnapshot) -> SerializerSnapshot:
    return composite_snapshot(TTL_SNAPSHOT, 2, TtlType(value.type), (simple_snapshot(Scalar.LONG), value))
