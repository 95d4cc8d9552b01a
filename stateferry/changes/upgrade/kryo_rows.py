"""The stored values of a state that Kryo wrote: what is before Kryo's bytes, what they mean, and how many entries."""

from __future__ import annotations

import contextlib

import numpy as np

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import KryoType
from flinkstate.values.kryo_class_names import MAPS
from flinkstate.values.kryo_jobs import collection_of
from flinkstate.values.kryo_map_places import MapPlaces, map_places
from flinkstate.values.kryo_references import KryoObject
from flinkstate.values.kryo_values import known_classes, read_kryo_part
from stateferry.changes.upgrade.section_rows import value_of

_STAMP = 8
# A class tag is a byte, unless the class is written by its name, or the tag is a longer number.
_BY_NAME, _LONG_TAG = 1, 0x80
_KINDS = (StateKind.VALUE, StateKind.MAP, StateKind.REDUCING, StateKind.AGGREGATING)
# Kryo writes no number of entries for the other maps.
_COUNTED = tuple(
    name for name in MAPS if not name.startswith(("java.util.Collections$Empty", "java.util.Collections$Single"))
)


def is_one_value(state: KeyedState) -> bool:
    """Whether each row of a state has one value, and Kryo wrote all of it."""
    return state.kind in _KINDS and isinstance(state.value, KryoType)


def head_of(state: KeyedState) -> int:
    """How many bytes a stored value has before what Kryo wrote: the flag of a row for null, and a timestamp."""
    return (1 if state.kind is StateKind.MAP else 0) + (_STAMP if state.ttl else 0)


def timestamp_of(state: KeyedState, value: bytes) -> int | None:
    end = head_of(state)
    return int.from_bytes(value[end - _STAMP : end], "big", signed=True) if state.ttl and len(value) >= end else None


def kryo_part(state: KeyedState, value: bytes) -> bytes | None:
    """What Kryo wrote of a stored value; None for the null of a row."""
    return None if state.kind is StateKind.MAP and value[:1] == b"\1" else value[head_of(state) :]


def read_value(state: KeyedState, value: bytes, five: bool) -> KryoObject | None:
    data, kryo = kryo_part(state, value), state.value
    assert isinstance(kryo, KryoType)
    if data is None:
        return None
    found, end = read_kryo_part(kryo, data, 0, len(data), five=five)
    if end != len(data):
        raise DamagedError("the end of a value that Kryo wrote", f"{len(data) - end} more bytes")
    return found


def map_of_value(state: KeyedState, value: bytes) -> MapPlaces | None:
    data, kryo = kryo_part(state, value), state.value
    assert isinstance(kryo, KryoType)
    return None if data is None else map_places(kryo, data)


def count_entries(section: Section, state: KeyedState, living: Flags | None = None) -> int:
    """Returns the number of entries in the values of a section, as Kryo 5 writes them; any other but null is one.

    Given `living`, only these rows count.
    """
    assert isinstance(state.value, KryoType)
    ids, _ = known_classes(state.value)
    short = {number + 2: name for number, name in ids.items() if number + 2 < _LONG_TAG}
    with_count = {tag for tag, name in short.items() if _form(name, state.value.classes) in _COUNTED}
    starts = section.value_starts + head_of(state)
    there = starts < section.ends
    if living is not None:
        there &= living
    tags = section.data[np.minimum(starts, len(section.data) - 1)]
    maps, longer = there & np.isin(tags, list(with_count)), there & ((tags == _BY_NAME) | (tags >= _LONG_TAG))
    others = int((there & ~maps & ~longer & (tags != 0)).sum())
    read = sum(_entries(state, value_of(section, row)) for row in np.flatnonzero(longer).tolist())
    return others + _counted(section.data, starts[maps] + 2) + read


def _form(class_name: str, job: JobClasses | None) -> str:
    """The class of the JDK as which Kryo writes a registered class; the class itself if that isn't known."""
    if job is not None and class_name in job.classes:
        with contextlib.suppress(RefusedError):
            return collection_of(class_name, job) or class_name
    return class_name


def _entries(state: KeyedState, value: bytes) -> int:
    found = read_value(state, value, True)
    return 0 if found is None else len(found.value) if found.form in _COUNTED else 1


def _counted(data: Bytes, starts: Positions) -> int:
    """The sum of the numbers of entries at these places: varints, each 1 more."""
    total, places, shift = -len(starts), starts, 0
    while len(places):
        found = data[places].astype(np.int64)
        total += int(((found & 0x7F) << shift).sum())
        places, shift = places[found >= 0x80] + 1, shift + 7
    return total
