"""What is left of the POJOs whose maps are migrated: the same POJOs, with null in the field of the map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.stored_maps import map_spans, objects_without_maps
from flinkstate.reading.group_sections import GroupSections
from flinkstate.serializers.type_parts import object_of
from flinkstate.serializers.types import PojoMapType
from flinkstate.writing.max_parallelism_change import Destination, GroupedEntries
from stateferry.changes import kernels
from stateferry.changes.rules import Rules
from stateferry.changes.sections import STAMP, copied, live_blobs, put_lengths


def pojos_without_maps(
    rules: Rules, group: GroupSections, legacy_id: int, destination: Destination
) -> Iterator[GroupedEntries]:
    """Yields the POJOs without their maps; expired ones only if they are kept."""
    for state, section in group:
        if state.name == rules.legacy.name:
            alive = np.flatnonzero(live_blobs(section, rules))
            if len(alive):
                yield destination.send_some(without_maps(section, rules), state, legacy_id, alive)


def without_maps(section: Section, rules: Rules) -> Section:
    """Returns a section of POJOs with null in the field of the map."""
    type_, stamp = rules.legacy.value, STAMP if rules.legacy.ttl else 0
    assert isinstance(type_, PojoMapType)
    if object_of(type_) is not None:
        return _objects_without_maps(section, type_, stamp)
    with section.locating():
        spans = map_spans(type_, section.data, section.value_starts + stamp, section.ends)
    ends = np.cumsum(section.ends - section.starts - (spans.ends - spans.starts))
    starts = np.append(0, ends[:-1])
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    kernels.cut_values(
        section.data, section.starts, section.key_ends, section.ends, spans.flags, spans.starts, spans.ends, out, starts
    )
    return replace(section, data=out, starts=starts, key_ends=starts + (section.key_ends - section.starts), ends=ends)


def _objects_without_maps(section: Section, type_: PojoMapType, stamp: int) -> Section:
    """Returns a section of objects by Kryo: keys and timestamps as they are, then each object anew."""
    begins = section.value_starts + stamp
    with section.locating():
        made, made_ends = objects_without_maps(type_, section.data, begins, section.ends)
    count, heads = len(section), begins - section.starts
    starts, ends = np.empty(2 * count, np.int64), np.empty(2 * count, np.int64)
    starts[0::2], ends[0::2] = section.starts, begins
    ends[1::2] = made_ends + len(section.data)
    starts[1::2] = ends[1::2] - np.diff(made_ends, prepend=0)
    data, keys = np.concatenate((section.data, made)), section.key_ends - section.starts
    rows = copied(section, data, starts, ends, keys, slice(None, None, 2))
    put_lengths(rows.data, rows.key_ends, rows.ends - rows.starts - heads + stamp)
    return rows
