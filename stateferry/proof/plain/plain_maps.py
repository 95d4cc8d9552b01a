"""Reads the maps of a `ValueState<Map>` one entry at a time, however they are stored.

- Flink's MapSerializer: i32 count, then each entry as key, bool `isNull`, value unless null.
- Nullable: bool `isNull`, then padding if null, else the map. Each key may be behind a bool `isNull` of its own.
- Kryo: `flinkstate.values.kryo_reader` has the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.types import FlinkType, KryoMapType, MapType, NullableType, children
from flinkstate.values.codec_parts import read_flag
from flinkstate.values.codecs import decoder, encode
from flinkstate.values.kryo_values import read_kryo_map


@dataclass(frozen=True, slots=True)
class MapEntry:
    """An entry of a map, and the bytes that Flink's own serializers write for it; a null value has none."""

    user_key: Any
    user_key_bytes: bytes
    is_null: bool
    value: Any
    value_bytes: bytes


MapReader = Callable[[bytes, int], Iterator[MapEntry]]


def map_reader(stored: FlinkType | None, map_: MapType) -> MapReader:
    """Returns what reads the map that takes up all bytes from a position on; `stored` is how it is stored."""
    if isinstance(stored, KryoMapType):
        return lambda data, position: _kryo_entries(stored, data, position)
    if isinstance(stored, NullableType):
        return lambda data, position: _nullable_entries(stored, map_, data, position)
    return lambda data, position: _entries(map_, data, position, nullable_keys=False)


def _kryo_entries(stored: KryoMapType, data: bytes, position: int) -> Iterator[MapEntry]:
    map_ = stored.map
    for user_key, value in read_kryo_map(stored, data, position):
        written = b"" if value is None else encode(map_.value, value)
        yield MapEntry(user_key, encode(map_.key, user_key), value is None, value, written)


def _nullable_entries(stored: NullableType, map_: MapType, data: bytes, position: int) -> Iterator[MapEntry]:
    if read_flag(data, position, len(data), "a map's null flag"):
        _check_end(data, position + 1 + stored.padding)
        return
    nullable_keys = isinstance(children(stored.value)[0], NullableType)
    yield from _entries(map_, data, position + 1, nullable_keys=nullable_keys)


def _entries(map_: MapType, data: bytes, position: int, *, nullable_keys: bool) -> Iterator[MapEntry]:
    read_key, read_value = decoder(map_.key), decoder(map_.value)
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


def _check_end(data: bytes, position: int) -> None:
    if position != len(data):
        raise DamagedError("the end of a map", f"{len(data) - position} more bytes")
