"""The transform of a run in reverse: rows of an operator's map states become blobs of `ValueState<Map>` again.

All rows of a key become one blob. In Flink's savepoints they are neighbours, but the keys needn't be sorted, and in a
savepoint that Stateferry has written the rows that were there before and those of a key's blob lie apart. So a state
whose rows of a key group don't fit into one section is read twice. First it finds the keys whose rows lie apart. Then
it writes each other key as soon as its rows end, and those at last. In memory are one section, the rows of one key, and
the rows that lie apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkstate.errors import PlanError
from flinkstate.keyed.header import KeyedHeader
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.kryo.writing import kryo_form
from flinkstate.reading.group_sections import GroupSections
from flinkstate.serializers.types import KryoMapType, MapType
from flinkstate.writing.max_parallelism_change import Destination, GroupedEntries
from stateferry.changes.counts import ConversionCounts
from stateferry.changes.key_hashes import NO_HASHES, members
from stateferry.changes.row_spans import NULLABLE, BlobForm, RowSpans, blobs_of, together
from stateferry.changes.rules import Rules, RulesBack, null_under_ttl
from stateferry.changes.sections import parse_rows
from stateferry.changes.state_metas import legacy_state_meta
from stateferry.changes.who_wins import NO_KEYS, rows_that_stay


def legacy_state(name: str, new: KeyedState) -> KeyedState:
    """Returns the `ValueState<Map>` that a map state becomes."""
    if new.user_key is None or new.value is None:
        raise PlanError(f"state {new.name} is not a MapState")
    map_ = MapType(new.user_key, new.value)
    return KeyedState(name, StateKind.VALUE, new.key, new.namespace, None, map_, new.ttl, False)


def form_of(rules: RulesBack) -> BlobForm:
    """Returns how the maps are written; raises `RefusedError` if they can't be."""
    if rules.old_form is None:
        return None
    if isinstance(rules.legacy.value, KryoMapType):
        return kryo_form(rules.legacy.value, five=rules.old_form.kryo_5)
    return NULLABLE


@dataclass(slots=True)
class RowsToBlobs:
    """Turns the map states of one operator that a plan names into `ValueState<Map>`, and leaves out their flags.

    `counts` says for each legacy state what was done.
    """

    rules: Sequence[RulesBack]
    counts: dict[str, ConversionCounts] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)

    def header(self, merged: KeyedHeader) -> KeyedHeader:
        """Returns the header with the legacy states, and without the new states and the flags."""
        metas = {meta.name: meta for meta in merged.states}
        for rules in self.rules:
            old = rules.old_form.serializer if rules.old_form is not None else None
            made = legacy_state_meta(metas[rules.new_name], rules.legacy.name, old)
            described = metas.setdefault(rules.legacy.name, made).merged_with(made)
            if described is None:
                raise PlanError(
                    f"state {rules.legacy.name} is in the savepoint, but not as {rules.legacy.type_name} "
                    f"{'with' if rules.legacy.ttl else 'without'} TTL, which {rules.new_name} would become"
                )
            metas[rules.legacy.name] = described
        left_behind = {name for rules in self.rules for name in rules.left_behind}
        states = tuple(meta for meta in metas.values() if meta.name not in left_behind)
        self._ids = {meta.name: index for index, meta in enumerate(states)}
        return KeyedHeader(merged.compressed, merged.key_serializer, states)

    def entries(self, group: GroupSections, destination: Destination) -> Iterator[GroupedEntries]:
        """Yields the new entries of a key group: other states as they are, then the blobs of each legacy state.

        Blobs that the savepoint still has are left out. The snapshot step has stopped the run if it has any and the
        plan doesn't say so.
        """
        here = {state.name for state in group.states}
        group.keep()
        touched = {name for rules in self.rules for name in rules.touched}
        if here - touched:
            for state, section in group:
                if state.name not in touched:
                    yield destination.send(section, state, self._ids[state.name])
        for rules in self.rules:
            if rules.new_name in here:
                yield from self._blobs(rules, group, destination)

    def _blobs(self, rules: RulesBack, group: GroupSections, destination: Destination) -> Iterator[GroupedEntries]:
        counts = self.counts.setdefault(rules.legacy.name, ConversionCounts())
        state_id, stamped, form = self._ids[rules.legacy.name], rules.legacy.ttl, form_of(rules)

        def made(rows: RowSpans) -> GroupedEntries:
            return blobs_of(rows, state_id, destination.prefix, stamped, counts, form)

        scattered = _scattered_keys(group, rules)
        complete = CompleteKeys(scattered)
        for state, section in group:
            if state.name == rules.new_name:
                rows = _rows(state, section, rules, destination, counts)
                yield from map(made, [rows] if scattered is None else complete.add(rows))
        yield from map(made, complete.rest())


class CompleteKeys:
    """Takes the rows of a key group section by section, and returns those of each key when it has them all.

    `scattered` are the keys whose rows lie apart, as 16 bytes each; their rows come at last.
    """

    def __init__(self, scattered: pa.Array | None) -> None:
        self._scattered_keys = NO_HASHES if scattered is None else scattered
        self._open: list[RowSpans] = []
        self._scattered: list[RowSpans] = []

    def add(self, rows: RowSpans) -> Iterator[RowSpans]:
        """Takes the rows of the next section; yields those of keys that are complete."""
        if not len(rows):
            return
        firsts, keys = rows.runs()
        lengths = np.diff(firsts, append=len(rows))
        run, last = np.repeat(np.arange(len(firsts)), lengths), len(firsts) - 1
        is_scattered = members(keys, self._scattered_keys)
        whole = np.repeat(~is_scattered, lengths)
        if is_scattered.any():
            self._scattered.append(rows.where(~whole).copied())
        if self._open and not _same_key(self._open[-1], rows):
            yield from self._closed()
        if self._open:
            self._open.append(rows.where(run == 0).copied())
            whole &= run > 0
            if last > 0:
                yield from self._closed()
        if not self._open and not is_scattered[last]:
            # The next section may go on with this key.
            self._open.append(rows.where(run == last).copied())
            whole &= run < last
        if whole.any():
            yield rows.where(whole)

    def rest(self) -> Iterator[RowSpans]:
        """Yields the rows that are left after the last section."""
        yield from self._closed()
        if self._scattered:
            yield together(self._scattered)

    def _closed(self) -> Iterator[RowSpans]:
        if self._open:
            yield together(self._open)
        self._open = []


def _same_key(one: RowSpans, other: RowSpans) -> bool:
    mine = one.data[one.starts[-1] : one.key_ends[-1]]
    return bool(np.array_equal(mine, other.data[other.starts[0] : other.key_ends[0]]))


def _scattered_keys(group: GroupSections, rules: Rules) -> pa.Array | None:
    """Returns the keys whose rows lie apart, as 16 bytes each; None if all rows are in one section."""
    hashes, before = [NO_HASHES], NO_HASHES
    sections = 0
    for state, section in group:
        if state.name != rules.new_name:
            continue
        sections += 1
        if sections == 1 and section.last:
            continue
        rows = parse_rows(section, rules)
        kept = np.flatnonzero(rows.live)
        _, keys = RowSpans.of(rows, kept, np.zeros(len(kept), np.int64), None).runs()
        if len(keys):
            # A run that goes on from the section before is no other run.
            hashes.append(keys[1:] if before.equals(keys[:1]) else keys)
            before = keys[-1:]
    if sections <= 1:
        return None
    counted = pc.value_counts(pa.concat_arrays(hashes))
    return counted.field("values").filter(pc.greater(counted.field("counts"), 1))


def _rows(
    state: KeyedState, section: Section, rules: Rules, destination: Destination, counts: ConversionCounts
) -> RowSpans:
    """Returns the rows of a section that are alive."""
    rows = parse_rows(section, rules)
    kept = rows_that_stay(rows, rules, NO_KEYS, counts)
    targets = destination.key_groups(section, state)[kept]
    return RowSpans.of(rows, kept, targets, null_under_ttl(rules.map_type.value) if rules.legacy.ttl else None)
