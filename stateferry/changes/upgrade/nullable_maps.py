"""Maps, lists and sets by Kryo 2 become those that Flink 2 writes: with POJOs, enums and objects by Kryo in them, too.

| part | bytes |
|---|---|
| null map, list or set | `01` |
| other one | `00`, i32 number of entries or elements, the entries or elements |
| entry of a map | bool whether the key is null, the key, bool whether the value is null, the value |
| element | bool whether it is null, the element |

`to_other_kryo.py` writes those of numbers and texts in one pass, anywhere in a value. Those with objects are found here
by a walk through the value, read as a migration reads maps, and put in their places. What is by Kryo in them is by
Kryo 2 still: `to_other_kryo.py` writes it then, wherever it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.errors import DamagedError
from flinkstate.kryo.to_flink_maps import KryoReader
from flinkstate.kryo.to_other_kryo import READ_BEHIND, Recoded, Recoder, kryo_of, recoder
from flinkstate.serializers.programs import compile_values
from flinkstate.serializers.type_parts import opaque_parts, with_opaque, with_parts
from flinkstate.serializers.types import (
    ArrayType,
    EnumType,
    FlinkType,
    KryoCollectionType,
    KryoMapType,
    KryoType,
    MapType,
    NullableType,
    OpaqueType,
    PojoType,
    PrimitiveArrayType,
    Scalar,
    TtlType,
)
from stateferry.changes import kernels

_LENGTH, _STAMP = 4, 8


def has_objects(made: FlinkType) -> bool:
    """Whether there are POJOs, enums, objects by Kryo or arrays of objects in a collection of Flink's own."""
    return any(
        isinstance(part, PojoType | EnumType | KryoType | ArrayType) or part == PrimitiveArrayType(Scalar.STRING)
        for part in with_parts(made)
    )


def maps_with_objects(type_: FlinkType) -> tuple[OpaqueType, ...]:
    """Returns the maps, lists and sets in values of a type that have objects in them, and the maps to migrate."""
    return tuple(one for one in opaque_parts(type_) if _made_of(one) is not None)


def _made_of(part: OpaqueType) -> MapType | NullableType | None:
    """Returns what is made of a map, list or set that is found by a walk; None for all else."""
    if isinstance(part, KryoMapType):
        return part.map
    if isinstance(part, KryoCollectionType) and part.kryo.for_five:
        return part.made if has_objects(part.made) else None
    return None


def with_made_maps(type_: FlinkType) -> FlinkType:
    """Returns the type of values whose maps are nullable ones, in which objects by Kryo are still by Kryo 2."""
    return with_opaque(type_, lambda part: _made_of(part) or part)


def expect_maps(type_: FlinkType, *, of_lists: bool) -> None:
    """Refuses maps, lists and sets that objects of Kryo can't become, or that can't be found in their values."""
    for one in (maps := maps_with_objects(type_)):
        _reader_of(one)
    if maps and _whole(type_, of_lists) is None:
        _finder_of(type_, of_lists)


def nullable_maps(
    type_: FlinkType, data: Bytes, starts: Positions, ends: Positions, heads: Positions, kept: Flags, *, of_lists: bool
) -> Recoded:
    """Returns values of a type, or lists of such, with their maps by Kryo as nullable ones, each behind its head.

    Values that are `kept` stay as they are.
    """
    begin = int(starts[0] - heads[0])
    pieces, firsts, stops, made = [data[begin : int(ends[-1])]], list[Positions](), list[Positions](), list[Positions]()
    shift = len(pieces[0])
    for part, first, stop in _parts_in(type_, data, starts[~kept], ends[~kept], of_lists=of_lists):
        before = first - _LENGTH
        maps = _reader_of(part).to_flink(data, before, before, stop, timestamps=False)
        firsts.append(first)
        stops.append(stop)
        made.append(np.stack((maps.key_ends + _LENGTH, maps.ends)) + shift)
        pieces.append(maps.data)
        shift += len(maps.data)
    order = np.argsort(np.concatenate(firsts), kind="stable")
    places = np.stack((np.concatenate(firsts), np.concatenate(stops))) - begin
    replaced = np.concatenate((places, np.hstack(made)))[:, order]
    return _spliced(np.concatenate(pieces), starts - begin, ends - begin, heads, replaced)


def _spliced(data: Bytes, starts: Positions, ends: Positions, heads: Positions, replaced: Positions) -> Recoded:
    """Returns the values with other ranges of `data` in the place of some.

    `replaced` has, in their order, where each range begins and ends, and where what comes there begins and ends.
    """
    counts = np.bincount(np.searchsorted(starts, replaced[0], side="right") - 1, minlength=len(starts))
    # Of each value: what is before the first range, then for each what comes there and what is behind it.
    sizes = 2 * counts + 1
    begins = np.cumsum(sizes) - sizes
    places = 2 * np.arange(len(replaced[0])) + 1 + np.repeat(np.arange(len(starts)), counts)
    range_starts, range_ends = np.empty(int(sizes.sum()), np.int64), np.empty(int(sizes.sum()), np.int64)
    range_starts[begins], range_ends[begins + sizes - 1] = starts - heads, ends
    range_ends[places - 1], range_starts[places + 1] = replaced[0], replaced[1]
    range_starts[places], range_ends[places] = replaced[2], replaced[3]
    size, offsets = int((range_ends - range_starts).sum()), np.empty(len(range_starts), np.int64)
    out = np.zeros(size + READ_BEHIND, np.uint8)[:size]
    kernels.copy_ranges(data, range_starts, range_ends, offsets, out)
    return Recoded(out, np.append(offsets[begins[1:]], size))


def _parts_in(
    type_: FlinkType, data: Bytes, starts: Positions, ends: Positions, *, of_lists: bool
) -> Iterator[tuple[OpaqueType, Positions, Positions]]:
    """Yields the maps with objects in values, by their types: where each begins and ends."""
    if (whole := _whole(type_, of_lists)) is not None:
        part, before = whole
        for short in np.flatnonzero(ends - starts < before)[:1].tolist():
            raise DamagedError("a timestamp of 8 bytes", f"{ends[short] - starts[short]}", offset=int(starts[short]))
        yield part, starts + before, ends
        return
    found = _finder_of(type_, of_lists).parts(data, starts, ends)
    places: dict[OpaqueType, list[int]] = {}
    for place, part in compile_values(type_, of_lists).opaque:
        if _made_of(part) is not None:
            places.setdefault(part, []).append(place)
    for part, of_part in places.items():
        chosen = found[np.isin(found[:, 0], of_part)]
        yield part, chosen[:, 1].copy(), chosen[:, 2].copy()


def _whole(type_: FlinkType, of_lists: bool) -> tuple[OpaqueType, int] | None:
    """Returns the map, list or set that needn't be found in a value, as only a timestamp is before it; its size."""
    part, before = (type_.value, _STAMP) if isinstance(type_, TtlType) else (type_, 0)
    return (part, before) if isinstance(part, OpaqueType) and _made_of(part) is not None and not of_lists else None


def _finder_of(type_: FlinkType, of_lists: bool) -> Recoder:
    """Returns what finds the parts by Kryo in values: by the same program, but that all is Kryo's."""
    return recoder(compile_values(with_opaque(type_, kryo_of), of_lists))


@lru_cache(maxsize=64)
def _reader_of(map_: OpaqueType) -> KryoReader:
    """Returns what reads the maps, lists or sets; refuses a type that objects of Kryo can't become."""
    kryo, made = kryo_of(map_), _made_of(map_)
    assert made is not None
    return KryoReader(kryo, made, widen=isinstance(map_, KryoMapType) and map_.widen)
