"""Leaves out what has expired of states that aren't migrated, as Flink's cleanup in a full snapshot does.

A value or an entry of a map goes with its row. ListElements of a list go one by one, and with the last one its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flinkstate.keyed.header import KeyedHeader
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.reading.group_sections import GroupSections
from flinkstate.serializers.walker import Flags, Positions
from flinkstate.writing.max_parallelism_change import Destination, GroupedEntries
from flinkstate.writing.operator_rewrite import Transform
from stateferry.changes.counts import ConversionCounts
from stateferry.changes.rules import PlannedTtl
from stateferry.changes.section_timestamps import ListElements, read_section_timestamps
from stateferry.changes.sections import copied, put_lengths

_LENGTH = 4


@dataclass(slots=True)
class DropExpired:
    """Wraps a transform, so that what has expired of the states `planned` is left out.

    `counts` says for each of them, and for each that the other transform counts, what was done.
    """

    inner: Transform
    planned: Sequence[PlannedTtl]
    counts: dict[str, ConversionCounts] = field(default_factory=dict)

    def header(self, merged: KeyedHeader) -> KeyedHeader:
        return self.inner.header(merged)

    def entries(self, group: GroupSections, destination: Destination) -> Iterator[GroupedEntries]:
        planned = {one.state.name: one for one in self.planned}
        living = _LivingOnly(destination.old_max, destination.new_max, destination.rehashes, planned, self.counts)
        return self.inner.entries(group, living)


@dataclass(frozen=True, slots=True)
class _LivingOnly(Destination):
    """Sends of some states only what is alive. A transform sends each section of a state that it doesn't touch once."""

    planned: Mapping[str, PlannedTtl]
    counts: dict[str, ConversionCounts]

    def send(self, section: Section, state: KeyedState, state_id: int) -> GroupedEntries:
        planned = self.planned.get(state.name)
        living = section if planned is None else self._living(section, planned)
        if living is None:
            nothing = np.empty(0, np.int64)
            return GroupedEntries(state_id, np.empty(0, np.uint8), nothing, np.zeros(1, np.int64), nothing)
        # `super()` without arguments doesn't work in a dataclass with slots.
        return Destination.send(self, living, state, state_id)

    def _living(self, section: Section, planned: PlannedTtl) -> Section | None:
        stamps = read_section_timestamps(section, planned.state)
        living = ~planned.config.have_expired(stamps.timestamps, planned.now)
        counts = self.counts.setdefault(planned.state.name, ConversionCounts())
        kept = int(living.sum())
        counts.rows_read += len(living)
        counts.rows_expired += len(living) - kept
        counts.rows_kept += kept
        return section if kept == len(living) else with_living(section, living, stamps.elements)


def counts_of(transform: Transform) -> Mapping[str, ConversionCounts]:
    """What a transform has counted, by state."""
    if isinstance(transform, DropExpired):
        return {**counts_of(transform.inner), **transform.counts}
    counts: Mapping[str, ConversionCounts] = getattr(transform, "counts", {})
    return counts


def with_living(section: Section, living: Flags, elements: ListElements | None) -> Section | None:
    """Returns a section of its own with what is alive; None if that is nothing."""
    if elements is None:
        rows = np.flatnonzero(living)
        starts, ends, headers = section.starts[rows], section.ends[rows], np.arange(len(rows))
    else:
        rows, starts, ends, headers = _parts_of_lists(section, living, elements)
    if not len(rows):
        return None
    made = copied(section, section.data, starts, ends, (section.key_ends - section.starts)[rows], headers)
    if elements is not None:
        put_lengths(made.data, made.key_ends, made.ends - made.key_ends - _LENGTH)
    return made


def _parts_of_lists(
    section: Section, living: Flags, elements: ListElements
) -> tuple[Positions, Positions, Positions, Positions]:
    """Returns the rows that stay, the parts of the data that make them up, and which part each row begins with.

    A row begins with its key and the length of its value. Each element but the first one has its delimiter before it.
    """
    owners = np.repeat(np.arange(len(section)), elements.counts)[living]
    rows, firsts = np.unique(owners, return_index=True)
    is_first = np.zeros(len(owners), np.bool_)
    is_first[firsts] = True
    order = np.argsort(np.concatenate((rows, owners)), kind="stable")
    starts = np.concatenate((section.starts[rows], elements.starts[living] - ~is_first))[order]
    ends = np.concatenate((section.value_starts[rows], elements.ends[living]))[order]
    return rows, starts, ends, firsts + np.arange(len(rows))
