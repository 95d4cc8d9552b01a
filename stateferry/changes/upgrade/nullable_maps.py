"""Maps, lists and sets by Kryo 2 become those that Flink 2 writes: with POJOs, enums and objects by Kryo in them, too.

| part | bytes |
|---|---|
| null map, list or set | `01` |
| other one | `00`, i32 number of entries or elements, the entries or elements |
| entry of a map | `00`, key, bool whether the value is null, value |
| element | bool whether it is null, the element |

`to_other_kryo.py` writes those of numbers and texts in one pass, anywhere in a value. Those with objects are read here
as a migration reads maps, and get the flags that nullable ones have.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from flinkstate.basics.array_types import Positions
from flinkstate.errors import RefusedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.kryo.places_in_maps import zeros_of_null
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.kryo.to_flink_maps import NULL_MAP, TIMESTAMP, FlinkMaps, KryoReader
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import (
    EnumType,
    FlinkType,
    KryoCollectionType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoType,
    SetType,
    TtlType,
    type_name,
)
from stateferry.changes.sections import copied, put_lengths

_LENGTH, _COUNT = 4, 4
_NOT_NULL, _NULL = 0, 1


def has_objects(made: FlinkType) -> bool:
    """Whether there are POJOs, enums or objects by Kryo in a collection of Flink's own."""
    return any(isinstance(part, PojoType | EnumType | KryoType) for part in with_parts(made))


def map_with_objects(state: KeyedState) -> KryoCollectionType | None:
    """Returns the map, list or set that the state's values are, if it has objects in it; refuses it elsewhere."""
    if state.value is None:
        return None
    found = [one for one in with_parts(state.value) if isinstance(one, KryoCollectionType) and has_objects(one.made)]
    if not found:
        return None
    if not found[0].kryo.for_five:
        raise RefusedError(f"a {type_name(found[0].made)} with POJOs, enums or objects by Kryo in it stays Flink 2's")
    if state.kind is not StateKind.VALUE or found[0] is not state.value:
        raise RefusedError(
            f"a {type_name(found[0].made)} is made of a {found[0].class_name} by Kryo only where it is the whole value "
            "of a ValueState"
        )
    return found[0]


def with_made_maps(state: KeyedState, map_: KryoCollectionType) -> KeyedState:
    """Returns the state as it is when its maps are nullable ones, in which objects by Kryo are still by Kryo 2."""
    return replace(state, value=map_.made)


def nullable_maps(section: Section, state: KeyedState, map_: KryoCollectionType) -> Section:
    """Returns the section with its maps by Kryo as nullable ones."""
    ttl = isinstance(state.stored_value, TtlType)
    maps = reader_of(map_).to_flink(section.data, section.starts, section.key_ends, section.ends, timestamps=ttl)
    expect_keys(maps, section, map_)
    begins = maps.key_ends + _LENGTH + (TIMESTAMP if ttl else 0)
    data = np.append(maps.data, np.array([_NOT_NULL, _NULL], np.uint8))
    starts, ends, firsts = _ranges(maps, begins, len(maps.data))
    made = copied(section, data, starts, ends, maps.key_ends - maps.starts, firsts)
    put_lengths(made.data, made.key_ends, made.ends - made.key_ends - _LENGTH)
    return made


def expect_keys(maps: FlinkMaps, section: Section, map_: KryoCollectionType) -> None:
    """Refuses a null key, which Flink 2 would say by the flag before it."""
    plain = _plain(map_)
    zeros = zeros_of_null(plain.key) if isinstance(plain, MapType) else 0
    if not zeros:
        return
    starts = maps.entries.starts[maps.entries.key_ends - maps.entries.starts == zeros]
    found = ~maps.data[starts[:, None] + np.arange(zeros)].any(axis=1)
    for start in starts[found][:1].tolist():
        row = int(np.searchsorted(maps.ends, start, side="right"))
        raise RefusedValueError(
            "a map with a null key: in a map with POJOs, enums or objects by Kryo that can't be written for Flink 2",
            int(section.starts[row]),
        )


def _ranges(maps: FlinkMaps, begins: Positions, flags: int) -> tuple[Positions, Positions, Positions]:
    """Returns which bytes follow one another, and which of these ranges is the first of each map, list or set.

    These are what is before it, its flag, its count, and for each entry a flag and the entry. Elements have their flags
    already: of a list or a set the third range is all that follows.
    """
    null = (maps.kinds & NULL_MAP).astype(np.bool_)
    counts, entries = maps.entries.counts, maps.entries
    sizes = np.where(null, 2, 3 + 2 * counts)
    firsts = np.cumsum(sizes) - sizes
    starts = np.full(int(sizes.sum()), flags + _NOT_NULL, np.int64)
    starts[firsts], starts[firsts + 1] = maps.starts, np.where(null, flags + _NULL, flags + _NOT_NULL)
    ends = starts + 1
    ends[firsts] = begins
    with_count = firsts[~null] + 2
    starts[with_count] = begins[~null]
    ends[with_count] = np.where(counts > 0, begins + _COUNT, maps.ends)[~null]
    before = np.repeat(np.cumsum(counts) - counts, counts)
    of_entries = np.repeat(firsts + 4, counts) + 2 * (np.arange(len(before)) - before)
    starts[of_entries], ends[of_entries] = entries.starts, entries.ends
    return starts, ends, firsts


@lru_cache(maxsize=16)
def reader_of(map_: KryoCollectionType) -> KryoReader:
    """Returns what reads the maps, lists or sets; refuses a type that objects of Kryo can't become."""
    return KryoReader(map_.kryo, _plain(map_), stays_map=True)


def _plain(map_: KryoCollectionType) -> MapType | ListType | SetType:
    """The type of the maps without flags for null keys, of the lists, or of the sets."""
    match map_.made.value:
        case MapType(NullableType(key), value):
            return MapType(key, value)
        case ListType() | SetType() as made:
            return made
    raise RefusedError(f"a {type_name(map_.made)} isn't made of a {map_.class_name} by Kryo")
