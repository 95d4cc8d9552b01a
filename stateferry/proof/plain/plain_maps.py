"""Reads the maps of a `ValueState<Map>` one entry at a time, however they are stored.

- Flink's MapSerializer: i32 count, then each entry as key, bool `isNull`, value unless null.
- Nullable: bool `isNull`, then padding if null, else the map. Each key may be behind a bool `isNull` of its own.
- Kryo: `flinkstate.values.kryo_reader` has the bytes. Keys and values by Kryo in the other two are bytes here, whose
  end is looked for by each Kryo: that by which the last entry ends where the map does has written them all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.type_parts import kept_by_kryo, with_kryo, with_opaque
from flinkstate.serializers.types import (
    FlinkType,
    KryoCollectionType,
    KryoMapType,
    KryoType,
    MapType,
    NullableType,
    OpaqueType,
    PojoMapType,
    PojoType,
    ScalaType,
    children,
)
from flinkstate.values.codec_parts import Decode, read_flag
from flinkstate.values.codecs import decoder, encode
from flinkstate.values.kryo_values import read_kryo_map
from stateferry.proof.plain.plain_objects import map_of_object


@dataclass(frozen=True, slots=True)
class MapEntry:
    """An entry of a map, and the bytes that Flink's own serializers write for it; a null value has none.

    `value_bytes` are what must be equal of the value (`content`).
    """

    user_key: Any
    user_key_bytes: bytes
    is_null: bool
    value: Any
    value_bytes: bytes


MapReader = Callable[[bytes, int], Iterator[MapEntry]]


def map_reader(stored: FlinkType | None, map_: MapType, *, told: bool = False) -> MapReader:
    """Returns what reads the map that takes up all bytes from a position on; `stored` is how it is stored.

    Of objects by Kryo with a map in a field, it reads the objects. If the type of the map has `told` which Kryo wrote
    what is in it, keys and values are objects, and else bytes.
    """
    if isinstance(stored, KryoMapType):
        return lambda data, position: _kryo_entries(stored.map, read_kryo_map(stored, data, position), told=told)
    if isinstance(stored, PojoMapType):
        return lambda data, position: _kryo_entries(map_, map_of_object(stored, data, position), told=told)
    if isinstance(stored, NullableType):
        return lambda data, position: _nullable_entries(stored, map_, data, position, told=told)
    return lambda data, position: _entries(map_, data, position, nullable_keys=False, told=told)


def content(type_: FlinkType, value: Any, written: bytes) -> bytes:
    """Returns what must be equal of a value: its bytes.

    Of a value that stays Kryo's, or has parts that do, it is all objects with their classes: names and objects that
    occurred in the rest of the map are written again there.
    """
    if value is None:
        return b""
    return as_objects(value) if kept_by_kryo(type_) else written


def as_objects(value: Any) -> bytes:
    """Returns all objects in a value with their classes."""
    return repr(value).encode("utf-8", "backslashreplace")


def _kryo_entries(map_: MapType, read: list[tuple[Any, Any]], *, told: bool) -> Iterator[MapEntry]:
    for user_key, value in read:
        by_kryo = value is None or kept_by_kryo(map_.value)
        written = content(map_.value, value, b"" if by_kryo else encode(map_.value, value))
        key = as_objects(user_key) if told and kept_by_kryo(map_.key) else encode(map_.key, user_key)
        yield MapEntry(user_key, key, value is None, value, written)


def _nullable_entries(
    stored: NullableType, map_: MapType, data: bytes, position: int, *, told: bool
) -> Iterator[MapEntry]:
    if read_flag(data, position, len(data), "a map's null flag"):
        _check_end(data, position + 1 + stored.padding)
        return
    nullable_keys = isinstance(children(stored.value)[0], NullableType)
    yield from _entries(map_, data, position + 1, nullable_keys=nullable_keys, told=told)


def _entries(map_: MapType, data: bytes, position: int, *, nullable_keys: bool, told: bool) -> Iterator[MapEntry]:
    if told or not is_copied(map_):
        yield from _entries_by(map_, data, position, nullable_keys=nullable_keys, five=None)
        return
    found: list[list[MapEntry]] = []
    failed: list[DamagedError | RefusedError] = []
    for five in (False, True):
        try:
            found.append(list(_entries_by(map_, data, position, nullable_keys=nullable_keys, five=five)))
        except (DamagedError, RefusedError) as error:
            failed.append(error)
    if not found:
        raise failed[-1]
    # Unlike values, texts of equal NaNs are equal.
    if repr(found[0]) != repr(found[-1]):
        raise RefusedError("Kryo 2 and Kryo 5 could both have written this map, and mean different ones")
    yield from found[0]


def _entries_by(
    map_: MapType, data: bytes, position: int, *, nullable_keys: bool, five: bool | None
) -> Iterator[MapEntry]:
    read_key, read_value = _part_reader(map_.key, five=five), _part_reader(map_.value, five=five)
    position, limit = position + 4, len(data)
    if limit < position:
        raise DamagedError("the size of a map", f"{limit} bytes")
    for _ in range(struct.unpack_from(">i", data, position - 4)[0]):
        if nullable_keys:
            position += 1
            if read_flag(data, position - 1, limit, "a map's key's null flag"):
                raise RefusedError("a map has a null key")
        user_key, end = read_key(data, position, limit)
        is_null = read_flag(data, end, limit, "a map entry's null flag")
        value, stop = (None, end + 1) if is_null else read_value(data, end + 1, limit)
        yield MapEntry(user_key, data[position:end], is_null, value, data[end + 1 : stop])
        position = stop
    _check_end(data, position)


def by_kryo(type_: FlinkType, *, five: bool | None, classes: JobClasses | None) -> FlinkType:
    """Returns the type, of which Kryo 5 (`five`) or 2 wrote what is by Kryo; objects may be of the job's classes.

    So a value by Kryo can be read inside of another one, where its end must be found.
    """
    return with_opaque(
        type_, lambda one: replace(one, five=five, classes=classes) if isinstance(one, KryoType) else one
    )


def written_by(type_: FlinkType, *, five: bool) -> FlinkType:
    """Returns the type, of which Kryo 5, or Kryo 2, wrote what is by Kryo."""
    return with_kryo(type_, lambda one: replace(one, five=five))


def by_one_kryo(type_: FlinkType, five: bool) -> FlinkType:
    """The type of a value in the savepoint of Flink 2 (`five`) or in that of Flink 1."""

    def known(part: OpaqueType) -> FlinkType:
        if isinstance(part, ScalaType) and five:
            return part.made
        if isinstance(part, KryoMapType):
            return by_one_kryo(part.map, five) if five else part
        if isinstance(part, KryoCollectionType):
            return by_one_kryo(part.made, five) if five else replace(part, kryo=replace(part.kryo, five=False))
        return replace(part, five=five) if isinstance(part, KryoType) else part

    return with_opaque(type_, known)


def is_copied(type_: FlinkType) -> bool:
    """Whether keys or values of the type, in a map by Flink's own serializer, are copied: they have parts by Kryo."""
    return bool(kept_by_kryo(type_))


def copied(type_: FlinkType, data: bytes) -> bytes | None:
    """Returns what a copied key or value is: its bytes, or None for what its serializer writes for null."""
    return None if data == _NULLS.get(type(type_)) else data


_NULLS: dict[type, bytes] = {KryoType: b"\0", PojoType: b"\1", NullableType: b"\1"}


def _part_reader(type_: FlinkType, *, five: bool | None) -> Decode:
    if five is None or not is_copied(type_):
        return decoder(type_)
    decode = decoder(written_by(type_, five=five))

    def read(data: bytes, start: int, limit: int) -> tuple[bytes | None, int]:
        _, end = decode(data, start, limit)
        return copied(type_, data[start:end]), end

    return read


def _check_end(data: bytes, position: int) -> None:
    if position != len(data):
        raise DamagedError("the end of a map", f"{len(data) - position} more bytes")
