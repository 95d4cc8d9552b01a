"""The POJOs without their maps, as the new savepoint must have them.

They are made in another way than by the conversion, which copies what is before and behind each map: here the bytes of
all maps are marked, and those that aren't marked stay.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.stored_maps import map_spans, objects_without_maps
from flinkstate.serializers.type_parts import object_of
from flinkstate.serializers.types import PojoMapType
from flinkstate.serializers.walker import Positions
from stateferry.changes.rules import Rules
from stateferry.proof.expected.content import Entries, plain_entries

_TIMESTAMP = 8
_IS_NULL = 1


def expected_pojos(section: Section, rules: Rules, groups: Positions) -> Entries:
    """The entries of a section of POJOs, with null in the field of the map."""
    type_ = rules.legacy.value
    assert isinstance(type_, PojoMapType)
    if object_of(type_) is not None:
        return _expected_objects(section, type_, rules, groups)
    spans = map_spans(type_, section.data, section.value_starts + (_TIMESTAMP if rules.legacy.ttl else 0), section.ends)
    entries = plain_entries(section, groups)
    begin, end = (int(section.starts[0]), int(section.ends[-1])) if len(section) else (0, 0)
    steps = np.zeros(end - begin + 1, np.int8)
    maps = spans.present
    steps[spans.starts[maps] - begin] += 1
    steps[spans.ends[maps] - begin] -= 1
    in_map = np.cumsum(steps, dtype=np.int8)[:-1] != 0
    data = section.data[begin:end].copy()
    data[spans.flags[maps] - begin] = _IS_NULL
    gone = spans.ends - spans.starts
    before = np.cumsum(gone) - gone
    starts, ends = entries.value_starts - begin - before, entries.value_ends - begin - before - gone
    return replace(entries, data=data[~in_map], value_starts=starts, value_ends=ends)


def _expected_objects(section: Section, type_: PojoMapType, rules: Rules, groups: Positions) -> Entries:
    """The objects that Kryo wrote, without their maps, by the code of the conversion: plain code reads a sample."""
    entries, stamp = plain_entries(section, groups), _TIMESTAMP if rules.legacy.ttl else 0
    begins = section.value_starts
    made, ends = objects_without_maps(type_, section.data, begins + stamp, section.ends)
    sizes = np.diff(ends, prepend=0)
    data = made[: int(ends[-1])] if len(ends) else made[:0]
    if stamp:
        stamps = section.data[begins[:, None] + np.arange(stamp)]
        data = np.insert(data, np.repeat(ends - sizes, stamp), stamps.ravel())
        sizes, ends = sizes + stamp, ends + stamp * np.arange(1, len(ends) + 1)
    return replace(entries, data=data, value_starts=ends - sizes, value_ends=ends)
