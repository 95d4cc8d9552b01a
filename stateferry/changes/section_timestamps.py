"""Finds what ages by itself in a state with time to live: a value, an entry of a map, each element of a list.

| state | what ages | its timestamp |
|---|---|---|
| ValueState, ReducingState, AggregatingState | the value | the first 8 bytes |
| MapState | each entry, which is a row | the 8 bytes behind the null flag |
| ListState | each element, with a delimiter between two of them | the first 8 bytes of the element |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.keyed.stored_maps import map_counts
from flinkstate.serializers.type_parts import opaque_parts
from flinkstate.serializers.types import TtlType
from flinkstate.serializers.walker import Positions, walk_list_state
from stateferry.changes.sections import STAMP, read_timestamps

_NULL_FLAG = 1


@dataclass(frozen=True, slots=True)
class ListElements:
    """The elements of a section's lists: row i has the next `counts[i]` of them, from start to end."""

    counts: Positions
    starts: Positions
    ends: Positions


@dataclass(frozen=True, slots=True)
class SectionTimestamps:
    """The timestamps in a section, one for each row, or of lists one for each element."""

    timestamps: Positions
    elements: ListElements | None


def why_no_timestamps(state: KeyedState) -> str | None:
    """The reason why the timestamps of a state with time to live can't be read, or None."""
    if state.asynchronous:
        return "it is asynchronous (V2) state"
    if state.kind is StateKind.LIST and state.value is not None and (opaque := opaque_parts(state.value)):
        return f"the end of its elements can't be found: {opaque[0].class_name} is {opaque[0].reason}"
    return None


def read_section_timestamps(section: Section, state: KeyedState) -> SectionTimestamps:
    """Reads all timestamps of a section of a state with time to live."""
    with section.locating():
        if state.kind is StateKind.LIST:
            elements = _elements(section, state)
            return SectionTimestamps(read_timestamps(section.data, elements.starts, elements.ends), elements)
        starts = section.value_starts + (_NULL_FLAG if state.kind is StateKind.MAP else 0)
        return SectionTimestamps(read_timestamps(section.data, starts, section.ends), None)


def _elements(section: Section, state: KeyedState) -> ListElements:
    assert state.value is not None
    # A list without elements has no bytes, not even a delimiter.
    filled = np.flatnonzero(section.ends > section.value_starts)
    starts, ends = section.value_starts[filled], section.ends[filled]
    if not len(filled):
        return ListElements(np.zeros(len(section), np.int64), starts, ends)
    found = walk_list_state(TtlType(state.value), section.data, starts, ends)
    counts = np.zeros(len(section), np.int64)
    counts[filled] = found.counts
    # Between two elements of a list there is a delimiter of one byte.
    element_ends = np.append(found.starts[1:] - 1, 0)
    element_ends[np.cumsum(found.counts) - 1] = ends
    return ListElements(counts, found.starts, element_ends)


def entries_of_maps(section: Section, state: KeyedState) -> Positions | None:
    """The number of entries of each map in a section of a `ValueState<Map>`; None if it isn't one."""
    if state.map_type is None:
        return None
    with section.locating():
        return map_counts(state.value, section.data, section.value_starts + STAMP, section.ends)
