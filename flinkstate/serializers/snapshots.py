"""Serializer snapshots: the descriptions of serializers in a savepoint's headers.

| part | bytes |
|---|---|
| Snapshot | utf snapshot class, i32 version, body |
| simple body | empty (version 2: one utf) |
| composite body | i32 911108, i32 outer version, outer body, i32 1333245, i32 1, i32 n, n x Snapshot |
| optional map | i64 0x4f2c69a3d70, i32 n, n x (utf name, bool + i32 length + bytes, bool + i32 length + bytes) |

A body has no length. The type of an unknown class is an `OpaqueType`. If its body doesn't say its end (`partly_known`),
what must follow shows it (`unknown_ends`). A header with more than one reading is refused by the name of the class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.binary import ByteReader
from flinkstate.serializers.partly_known import (
    COMPOSITE_VERSION,
    LEAST_SNAPSHOT,
    NESTED_MAGIC,
    OUTER_MAGIC,
    nested_in_unknown,
    unknown_reason,
)
from flinkstate.serializers.possible_starts import MOST_UNKNOWN_VERSION
from flinkstate.serializers.snapshot_classes import (
    COMPOSITE_CLASSES,
    ENUM_SNAPSHOT,
    KRYO_SNAPSHOT,
    PLAIN_CLASSES,
    POJO_SNAPSHOT,
    SIMPLE_TYPES,
    CompositeClass,
)
from flinkstate.serializers.types import (
    EnumType,
    FlinkType,
    KryoRegistration,
    KryoType,
    OpaqueType,
    PojoField,
    PojoType,
)
from flinkstate.serializers.unknown_ends import Head, Rest, Search, find_ends, ways_to_fill

OPTIONAL_MAP_MAGIC = 0x4F2C69A3D70

# Limits that no real header reaches. They keep a malicious one from filling the stack and the memory.
_MOST_LEVELS = 64
_MOST_SNAPSHOTS = 1 << 18
_MOST_COPIED = 1 << 26
_MOST_NAMES = 0xFFFF


@dataclass(frozen=True, slots=True)
class SerializerSnapshot:
    """One serializer as a header describes it; `raw` is all its bytes, with class name and version."""

    class_name: str
    version: int
    type: FlinkType
    nested: tuple[SerializerSnapshot, ...]
    raw: bytes


Reading = tuple[SerializerSnapshot, int]
# The names in a map of framed snapshots, each with the begin and end of its frame.
_Frames = list[tuple[str, tuple[int, int] | None, tuple[int, int] | None]]


class SnapshotParser:
    """Reads the snapshots of a header. When it meets the first unknown one, it finds the ends of all unknown ones."""

    def __init__(
        self,
        data: bytes,
        file: str,
        *,
        limit: int | None = None,
        base: int = 0,
        level: int = 0,
        search: Search | None = None,
    ) -> None:
        self.data = data
        self.file = file
        self.limit = len(data) if limit is None else limit
        self.base = base
        self._level = level
        self._search = search or Search(data, file, self.limit, base)
        self._ends: dict[int, int] = {}
        self._missing = 0
        self._rest = Rest()
        self._copied = 0
        self._snapshots = 0

    def reader(self, position: int) -> ByteReader:
        """Returns a reader of the header's bytes from a position on."""
        return ByteReader(self.data, self.file, position=position, limit=self.limit, base=self.base)

    def read(self, position: int, rest: Rest | None = None) -> Reading:
        """Returns the snapshot at a position, and where it ends.

        `rest` is what must follow it. By default that is nothing, so an unknown snapshot ends where the data ends.
        """
        self._rest = rest or Rest()
        self._missing = 0
        return self._read(position)

    def _read(self, position: int) -> Reading:
        if self._level == _MOST_LEVELS:
            raise self.reader(position).damaged(f"serializers nested at most {_MOST_LEVELS} deep", "more")
        self._level += 1
        reader = self.reader(position)
        class_name, version = self._class_and_version(reader)
        nested: tuple[SerializerSnapshot, ...] = ()
        type_: FlinkType
        if class_name in LEAF_READERS:
            type_ = LEAF_READERS[class_name](reader, class_name, version)
        elif class_name in COMPOSITE_CLASSES:
            known, outer, count = self._composite_head(reader, class_name, version)
            nested = self._nested(reader, count)
            type_ = known.make(outer, tuple(part.type for part in nested))
        elif class_name == POJO_SNAPSHOT:
            type_, nested = self._pojo(reader, class_name, version)
        else:
            type_ = OpaqueType(class_name, unknown_reason(class_name))
            inside = nested_in_unknown(reader, class_name, version, self._search.marks)
            nested = self._nested(reader, inside or 0)
            if inside is None:
                reader.position = self._end_of_unknown(reader.position, class_name)
        self._level -= 1
        return self._done(position, reader.position, class_name, version, type_, nested)

    def head(self, position: int) -> Head:
        """Reads the snapshot at a position without its nested ones, for the search of unknown ends."""
        reader = self.reader(position)
        class_name, version = self._class_and_version(reader)
        if class_name in LEAF_READERS:
            LEAF_READERS[class_name](reader, class_name, version)
            return Head(reader.position)
        if class_name in COMPOSITE_CLASSES:
            _, _, count = self._composite_head(reader, class_name, version)
            return Head(reader.position, count)
        if class_name == POJO_SNAPSHOT:
            _, *maps = _pojo_frames(reader, class_name, version)
            extents = [extent for frames in maps for _, _, extent in frames if extent is not None]
            ways = [self._ways_to_fill(*extent) for extent in extents]
            if 0 in ways:
                raise reader.damaged("a serializer snapshot in each frame", "none", position=extents[ways.index(0)][0])
            return Head(reader.position, ambiguous=2 in ways)
        inside = nested_in_unknown(reader, class_name, version, self._search.marks)
        return Head(reader.position, inside or 0, unknown=class_name if inside is None else None)

    def _class_and_version(self, reader: ByteReader) -> tuple[str, int]:
        position = reader.position
        class_name = reader.utf("the class of a serializer snapshot")
        if not _looks_like_class(class_name):
            raise reader.damaged("the class of a serializer snapshot", repr(class_name), position=position)
        version = reader.i32(f"the version of {class_name}")
        known = class_name in LEAF_READERS or class_name in COMPOSITE_CLASSES or class_name == POJO_SNAPSHOT
        if not known and not 0 <= version < MOST_UNKNOWN_VERSION:
            expected = f"a version of {class_name} that is a small number"
            raise reader.damaged(expected, f"{version}", position=reader.position - 4)
        return class_name, version

    def _done(
        self,
        start: int,
        end: int,
        class_name: str,
        version: int,
        type_: FlinkType,
        nested: tuple[SerializerSnapshot, ...],
    ) -> Reading:
        self._copied += end - start
        self._snapshots += 1
        if self._copied > _MOST_COPIED or self._snapshots > _MOST_SNAPSHOTS:
            raise RefusedError(
                f"{self.file}: the serializer snapshots up to offset {self.base + end} are more than can be kept in "
                f"memory: {self._snapshots} of {self._copied} bytes together, each with those nested in it (at most "
                f"{_MOST_SNAPSHOTS} of {_MOST_COPIED} bytes)"
            )
        return SerializerSnapshot(class_name, version, type_, nested, self.data[start:end]), end

    def _end_of_unknown(self, body: int, class_name: str) -> int:
        if body not in self._ends:
            self._ends.update(find_ends(self._search, self, body, self.limit, class_name, self._missing, self._rest))
        return self._ends[body]

    def _composite_head(self, reader: ByteReader, class_name: str, version: int) -> tuple[CompositeClass, Any, int]:
        known = COMPOSITE_CLASSES[class_name]
        if not 1 <= version <= COMPOSITE_VERSION:
            expected = f"version 1 to {COMPOSITE_VERSION} of {class_name}"
            raise reader.damaged(expected, f"{version}", position=reader.position - 4)
        if version == COMPOSITE_VERSION:
            reader.expect_i32(OUTER_MAGIC, "the magic number of a composite serializer snapshot")
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
        reader.expect_i32(NESTED_MAGIC, "the magic number of nested serializer snapshots")
        reader.expect_i32(1, "the version of nested serializer snapshots")
        count_position = reader.position
        count = reader.count("the number of nested serializer snapshots", LEAST_SNAPSHOT)
        if known.arity is not None and count != known.arity:
            raise reader.damaged(f"{known.arity} nested serializers", f"{count}", position=count_position)
        return known, outer, count

    def _nested(self, reader: ByteReader, count: int) -> tuple[SerializerSnapshot, ...]:
        nested = []
        self._missing += count
        for _ in range(count):
            self._missing -= 1
            snapshot, reader.position = self._read(reader.position)
            nested.append(snapshot)
        return tuple(nested)

    def _pojo(
        self, reader: ByteReader, class_name: str, version: int
    ) -> tuple[PojoType, tuple[SerializerSnapshot, ...]]:
        pojo_class, *maps = _pojo_frames(reader, class_name, version)
        fields, registered, others = (
            [(name, None if extent is None else self._framed(name, *extent), key) for name, key, extent in frames]
            for frames in maps
        )
        type_ = PojoType(
            pojo_class,
            tuple(
                PojoField(name, snapshot.type if snapshot else _absent(name), described_in=_declaring(reader, key))
                for name, snapshot, key in fields
            ),
            tuple(snapshot.type if snapshot else _absent(name) for name, snapshot, _ in registered),
            tuple((name, snapshot.type if snapshot else _absent(name)) for name, snapshot, _ in others),
        )
        return type_, tuple(snapshot for _, snapshot, _ in (*fields, *registered, *others) if snapshot)

    def _framed_parser(self, end: int, level: int) -> SnapshotParser:
        return SnapshotParser(self.data, self.file, limit=end, base=self.base, level=level, search=self._search)

    def _framed(self, name: str, start: int, end: int) -> SerializerSnapshot:
        framed = self._framed_parser(end, self._level)
        framed._copied, framed._snapshots = self._copied, self._snapshots
        snapshot, stop = framed.read(start)
        self._copied, self._snapshots = framed._copied, framed._snapshots
        if stop != end:
            expected = f"a serializer snapshot for {name!r} of {end - start} bytes"
            raise self.reader(start).damaged(expected, "one that ends elsewhere")
        return snapshot

    def _ways_to_fill(self, start: int, end: int) -> int:
        if self._level == _MOST_LEVELS:
            return 0
        framed = self._framed_parser(end, self._level + 1)
        return ways_to_fill(self._search, framed, start, end)


def _expect_version(expected: int, reader: ByteReader, class_name: str, version: int) -> None:
    if version != expected:
        raise reader.damaged(f"version {expected} of {class_name}", f"{version}", position=reader.position - 4)


def _simple(reader: ByteReader, class_name: str, version: int) -> FlinkType:
    if version not in (2, 3):
        raise reader.damaged(f"version 2 or 3 of {class_name}", f"{version}", position=reader.position - 4)
    if version == 2:
        reader.utf("the name of a serializer class")
    return SIMPLE_TYPES[class_name]


def _enum(reader: ByteReader, class_name: str, version: int) -> FlinkType:
    _expect_version(3, reader, class_name, version)
    enum_class = reader.utf("an enum class")
    count_position = reader.position
    count = reader.count("the number of enum constants", 2)
    if count > _MOST_NAMES:
        raise reader.damaged(f"at most {_MOST_NAMES} enum constants", f"{count}", position=count_position)
    return EnumType(enum_class, tuple(reader.utf("an enum constant") for _ in range(count)))


def _kryo(reader: ByteReader, class_name: str, version: int) -> FlinkType:
    _expect_version(2, reader, class_name, version)
    value_class = reader.utf("the class of a Kryo value")
    start = reader.position + 12
    registrations = []
    for name, _, value in optional_map(reader):
        raw = bytes(reader.data[start : reader.position])
        registrations.append(KryoRegistration(name, _own_serializer(reader, value), raw))
        start = reader.position
    start = reader.position
    instances = [(name, "an instance") for name, _, _ in optional_map(reader)]
    classes = [(name, _default_serializer(reader, value)) for name, _, value in optional_map(reader)]
    raw_defaults = bytes(reader.data[start : reader.position])
    defaults = (*instances, *classes)
    return KryoType(value_class, "serialized by Kryo", tuple(registrations), defaults, raw_defaults=raw_defaults)


_NOT_NAMED = "one that the header doesn't name"


def _inside(reader: ByteReader, extent: tuple[int, int]) -> ByteReader:
    return ByteReader(reader.data, reader.file, position=extent[0], limit=extent[1], base=reader.base)


def _own_serializer(reader: ByteReader, extent: tuple[int, int] | None) -> str | None:
    """Reads whether the job gave a serializer for a registration: utf class, i32 0 no, 1 its class, 2 an instance."""
    if extent is None:
        return "one that was missing"
    frame = _inside(reader, extent)
    try:
        frame.utf("a registered class")
        given = frame.i32("how a serializer is given")
        return (None, frame.utf("a serializer") if given == 1 else "an instance")[given != 0]
    except DamagedError:
        return _NOT_NAMED


def _text_in(reader: ByteReader, extent: tuple[int, int], what: str, otherwise: str) -> str:
    """Reads the text at the start of a frame; `otherwise` if none can be read there."""
    try:
        return _inside(reader, extent).utf(what)
    except DamagedError:
        return otherwise


def _default_serializer(reader: ByteReader, extent: tuple[int, int] | None) -> str:
    return "one that was missing" if extent is None else _text_in(reader, extent, "a serializer", _NOT_NAMED)


def _declaring(reader: ByteReader, extent: tuple[int, int] | None) -> str:
    """Reads which class declares a field: utf class, utf field; "" if the header doesn't say it."""
    return "" if extent is None else _text_in(reader, extent, "the class that declares a field", "")


# Snapshots without nested ones, by class; each reader reads the body to its end.
LEAF_READERS: dict[str, Callable[[ByteReader, str, int], FlinkType]] = {
    **dict.fromkeys(SIMPLE_TYPES, _simple),
    ENUM_SNAPSHOT: _enum,
    KRYO_SNAPSHOT: _kryo,
    **PLAIN_CLASSES,
}


def _pojo_frames(reader: ByteReader, class_name: str, version: int) -> tuple[str, _Frames, _Frames, _Frames]:
    """Returns the POJO's class, and the frames of its fields, its registered and its other subclasses."""
    _expect_version(2, reader, class_name, version)
    pojo_class = reader.utf("a POJO class")
    fields, registered, others = (list(optional_map(reader)) for _ in range(3))
    return pojo_class, fields, registered, others


def optional_map(reader: ByteReader) -> Iterator[tuple[str, tuple[int, int] | None, tuple[int, int] | None]]:
    """Yields the names of an optional map, each with the extents of its framed key and value."""
    start = reader.position
    if reader.i64("the header of an optional map") != OPTIONAL_MAP_MAGIC:
        raise reader.damaged(f"the header of an optional map {OPTIONAL_MAP_MAGIC:#x}", "another", position=start)
    count_position = reader.position
    count = reader.count("the size of an optional map", 4)
    if count > _MOST_NAMES:
        raise reader.damaged(f"an optional map of at most {_MOST_NAMES} names", f"{count}", position=count_position)
    for _ in range(count):
        name = reader.utf("a name in an optional map")
        yield name, _frame(reader), _frame(reader)


def _frame(reader: ByteReader) -> tuple[int, int] | None:
    if not reader.boolean("the presence of a frame"):
        return None
    length = reader.i32("the length of a frame")
    start = reader.position
    reader.take(length, "a frame")
    return start, start + length


MISSING = "its class or serializer was missing when the savepoint was written"


def _absent(name: str) -> OpaqueType:
    return OpaqueType(name, MISSING)


def field_snapshot(pojo: SerializerSnapshot, field: str) -> SerializerSnapshot:
    """Returns the snapshot of a field's serializer, from that of a POJO which has the field."""
    assert isinstance(pojo.type, PojoType)
    described = [one.name for one in pojo.type.fields if one.type != _absent(one.name)]
    return pojo.nested[described.index(field)]


def _looks_like_class(text: str) -> bool:
    return text != "" and text.isprintable() and " " not in text
