"""The maps of a `ValueState<Map>`, however the job's serializer stores them.

- `MapSerializer`: i32 count, then each entry as key, bool `isNull`, value unless null. Keys and values may be by Kryo:
  see `kryo_parts.py`.
- `NullableSerializer` around it (Flink 2 with a `TypeHint`): bool `isNull`, then padding if null, else the map. Each
  key is behind a bool `isNull` of its own.
- Kryo (`HashMap`, and `Map` by a `TypeHint` in Flink 1): see `flinkstate/kryo/`.
- PojoSerializer, in a field of a POJO by any of these: see `pojo_fields.py`.
- Kryo, in a field of an object that is by Kryo as a whole.

`whole_maps` finds the entries of all of them in the form that `MapSerializer` writes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.kryo_parts import walk_kryo_entries
from flinkstate.keyed.pojo_fields import FieldSpans, find_field
from flinkstate.kryo.to_flink_maps import KryoReader
from flinkstate.serializers.type_parts import kept_by_kryo, object_of
from flinkstate.serializers.types import FlinkType, KryoMapType, KryoType, MapType, NullableType, PojoMapType, PojoType
from flinkstate.serializers.walker import Bytes, Flags, MapEntries, Positions, read_counts, walk_entries

# The flag that says whether the value is null.
_LEAST_ENTRY = 1


@dataclass(frozen=True, slots=True)
class WholeMaps:
    """The entries of many maps, and the bytes in which they are. A null map has no entries."""

    data: Bytes
    entries: MapEntries


def whole_maps(type_: FlinkType | None, data: Bytes, starts: Positions, ends: Positions) -> WholeMaps:
    """Finds the entries of maps that take up all bytes from each start to each end; `map_of` the type is a map."""
    match type_:
        case MapType():
            return WholeMaps(data, _whole_entries(type_, data, starts, ends))
        case NullableType(MapType() as map_, padding):
            return WholeMaps(data, _nullable_entries(map_, padding, data, starts, ends))
        case KryoMapType():
            return _kryo_maps(type_, data, starts, ends)
        case PojoMapType(pojo=KryoType()):
            return _maps_in_objects(type_, data, starts, ends)
        case PojoMapType():
            return _maps_in_pojos(type_, data, starts, ends)
    raise TypeError(f"not a map: {type_}")


def map_counts(type_: FlinkType | None, data: Bytes, starts: Positions, ends: Positions) -> Positions:
    """Returns the number of entries of each map, from what is before them; `map_of` the type is a map."""
    if isinstance(type_, KryoMapType | PojoMapType):
        return whole_maps(type_, data, starts, ends).entries.counts
    if not isinstance(type_, NullableType):
        return read_counts(data, starts, ends, _LEAST_ENTRY)
    there = ~_null_flags(data, starts, ends)
    counts = np.zeros(len(starts), np.int64)
    counts[there] = read_counts(data, starts[there] + 1, ends[there], _LEAST_ENTRY)
    return counts


def _whole_entries(type_: MapType, data: Bytes, starts: Positions, ends: Positions) -> MapEntries:
    if kept_by_kryo(type_):
        return walk_kryo_entries(type_, data, starts, ends)
    found = walk_entries(type_, data, starts, ends)
    _check_ends("the end of the map", found.stops, ends)
    return found


def _nullable_entries(type_: MapType, padding: int, data: Bytes, starts: Positions, ends: Positions) -> MapEntries:
    nulls = _null_flags(data, starts, ends)
    _check_ends("the end of a null map", (starts + 1 + padding)[nulls], ends[nulls])
    there = ~nulls
    found = _whole_entries(type_, data, starts[there] + 1, ends[there])
    counts = np.zeros(len(starts), np.int64)
    counts[there] = found.counts
    keys = found.starts
    if isinstance(type_.key, NullableType):
        for place in np.flatnonzero(data[keys] != 0)[:1]:
            raise RefusedError(f"at offset {keys[place]}: a map has a null key, which a MapState can't have")
        keys = keys + 1
    return MapEntries(counts, keys, found.key_ends, found.ends, ends)


@lru_cache(maxsize=64)
def _kryo_reader(type_: KryoMapType, field: str | None = None) -> KryoReader:
    return KryoReader(type_.kryo, type_.map, widen=type_.widen, field=field)


def _kryo_maps(
    type_: KryoMapType, data: Bytes, starts: Positions, ends: Positions, field: str | None = None
) -> WholeMaps:
    # The maps go into a buffer of their own, each behind four bytes for its length and without a key.
    heads = starts - 4
    made = _kryo_reader(type_, field).to_flink(data, heads, heads, ends, timestamps=False)
    return WholeMaps(made.data, made.entries)


def _maps_in_objects(type_: PojoMapType, data: Bytes, starts: Positions, ends: Positions) -> WholeMaps:
    assert isinstance(type_.map, KryoMapType)
    return _kryo_maps(type_.map, data, starts, ends, type_.field)


def objects_without_maps(
    type_: PojoMapType, data: Bytes, starts: Positions, ends: Positions
) -> tuple[Bytes, Positions]:
    """Returns objects by Kryo with null in the field of the map, one behind another, and where each ends."""
    assert isinstance(type_.map, KryoMapType)
    return _kryo_reader(type_.map, type_.field).without_maps(data, starts, ends)


def map_places(type_: FlinkType | None, data: Bytes, starts: Positions, ends: Positions) -> tuple[Positions, Positions]:
    """Returns where the maps are of values that take up all bytes from each start to each end.

    A map is the whole value, or in a field of a POJO; a null POJO and one with null in the field have none. An object
    by Kryo has its map at a place that depends on the rest of it, so there it is the object.
    """
    if not isinstance(type_, PojoMapType) or object_of(type_) is not None:
        return starts, ends
    spans = map_spans(type_, data, starts, ends)
    return spans.starts[spans.present], spans.ends[spans.present]


def map_spans(type_: PojoMapType, data: Bytes, starts: Positions, ends: Positions) -> FieldSpans:
    """Finds the maps in POJOs that take up all bytes from each start to each end."""
    assert isinstance(type_.pojo, PojoType)
    return find_field(type_.pojo, type_.field, data, starts, ends)


def _maps_in_pojos(type_: PojoMapType, data: Bytes, starts: Positions, ends: Positions) -> WholeMaps:
    spans = map_spans(type_, data, starts, ends)
    there = spans.present
    found = whole_maps(type_.map, data, spans.starts[there], spans.ends[there])
    counts = np.zeros(len(starts), np.int64)
    counts[there] = found.entries.counts
    return WholeMaps(found.data, replace(found.entries, counts=counts, stops=ends))


def _null_flags(data: Bytes, starts: Positions, ends: Positions) -> Flags:
    for empty in np.flatnonzero(starts >= ends)[:1]:
        raise DamagedError("a flag that says whether the map is null", "the end", offset=int(starts[empty]))
    flags = data[starts]
    for wrong in np.flatnonzero(flags > 1)[:1]:
        raise DamagedError("a null flag 0 or 1 before a map", f"{flags[wrong]}", offset=int(starts[wrong]))
    nulls: Flags = flags == 1
    return nulls


def _check_ends(expected: str, stops: Positions, ends: Positions) -> None:
    for place in np.flatnonzero(stops != ends)[:1]:
        found = f"{ends[place] - stops[place]} more bytes"
        raise DamagedError(expected, found, offset=int(stops[place]))
