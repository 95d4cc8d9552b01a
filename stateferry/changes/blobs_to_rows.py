"""The transform that makes map states of an operator's legacy maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flinkstate.errors import PlanError
from flinkstate.keyed.header import KeyedHeader
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.reading.group_sections import GroupSections
from flinkstate.serializers.walker import Positions
from flinkstate.writing.max_parallelism_change import Destination, GroupedEntries, grouped
from stateferry.changes import kernels
from stateferry.changes.counts import ConversionCounts
from stateferry.changes.lazy_blobs_and_flags import flags, left_blobs
from stateferry.changes.pojos_without_maps import pojos_without_maps
from stateferry.changes.rules import Rules, null_under_ttl
from stateferry.changes.sections import STAMP, Blobs, parse_blobs, parse_rows
from stateferry.changes.state_metas import flag_state_meta, new_state_meta
from stateferry.changes.who_wins import KeySets, dropped_nulls, entries_that_stay, key_sets_of, rows_that_stay


@dataclass(slots=True)
class BlobsToRows:
    """Migrates all legacy states of one operator that a plan names.

    `states` are all states of the operator by name. `counts` says for each legacy state what was done.
    """

    rules: Sequence[Rules]
    states: Mapping[str, KeyedState]
    counts: dict[str, ConversionCounts] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)

    def header(self, merged: KeyedHeader) -> KeyedHeader:
        """Returns the header with the new states, and without the legacy states and flags unless they are kept.

        If only some keys are moved, they are kept, and a flag state that isn't there yet is described too.
        """
        metas = {meta.name: meta for meta in merged.states}
        for rules in self.rules:
            new = new_state_meta(metas[rules.legacy.name], rules.new_name, rules.legacy.value)
            described = metas.setdefault(rules.new_name, new).merged_with(new)
            if described is None:
                raise PlanError(
                    f"state {rules.new_name} is in the savepoint, but not as {rules.legacy.type_name} "
                    f"{'with' if rules.legacy.ttl else 'without'} TTL, which {rules.legacy.name} would become"
                )
            metas[rules.new_name] = described
            if rules.lazy_cut is not None:
                flag = rules.lazy_cut.flag
                metas.setdefault(flag.name, flag_state_meta(metas[rules.legacy.name], flag))
        left_behind = {name for rules in self.rules for name in rules.left_behind}
        states = tuple(meta for meta in metas.values() if meta.name not in left_behind)
        self._ids = {meta.name: index for index, meta in enumerate(states)}
        return KeyedHeader(merged.compressed, merged.key_serializer, states)

    def entries(self, group: GroupSections, destination: Destination) -> Iterator[GroupedEntries]:
        """Yields the new entries of a key group: other states as they are, then those of each migrated state."""
        here = {state.name for state in group.states}
        touched = {name for rules in self.rules for name in rules.touched}
        if others := here - touched:
            for state, section in group.of(others):
                yield destination.send(section, state, self._ids[state.name])
        for rules in self.rules:
            counts = self.counts.setdefault(rules.legacy.name, ConversionCounts())
            if rules.lazy_cut is not None or rules.keeps_rest:
                group.keep()
            sets = key_sets_of(group, rules, self.states)
            yield from self._new_rows(rules, group, sets, destination, counts)
            if rules.lazy_cut is not None:
                yield from left_blobs(rules, group, sets, self._ids[rules.legacy.name], destination)
                flag_id = self._ids[rules.lazy_cut.flag.name]
                yield from flags(rules, rules.lazy_cut, group, sets, flag_id, destination, counts)
            elif rules.keeps_rest:
                yield from pojos_without_maps(rules, group, self._ids[rules.legacy.name], destination)

    def _new_rows(
        self,
        rules: Rules,
        group: GroupSections,
        sets: KeySets,
        destination: Destination,
        counts: ConversionCounts,
    ) -> Iterator[GroupedEntries]:
        new_id = self._ids[rules.new_name]
        for state, section in group.of((rules.new_name, rules.legacy.name)):
            if state.name == rules.new_name:
                kept = rows_that_stay(parse_rows(section, rules), rules, sets, counts)
                if len(kept) == len(section):
                    yield destination.send(section, state, new_id)
                elif len(kept):
                    yield destination.send_some(section, state, new_id, kept)
            else:
                targets = destination.key_groups(section, state)
                yield convert(section, rules, sets, new_id, targets, destination.prefix, counts)


def convert(
    section: Section,
    rules: Rules,
    sets: KeySets,
    new_id: int,
    targets: Positions,
    prefix: int,
    counts: ConversionCounts,
) -> GroupedEntries:
    """Returns the rows that a section of blobs becomes; `targets` are the key groups to which the blobs go."""
    blobs = parse_blobs(section, rules)
    keep = entries_that_stay(blobs, rules, sets, counts)
    stamped = rules.legacy.ttl
    null = null_under_ttl(rules.map_type.value) if stamped else b""
    if rules.leaves_out_nulls:
        nulls = keep & blobs.nulls()
        counts.nulls_dropped += dropped_nulls(int(nulls.sum()), rules)
        keep = keep & ~nulls
    order = np.argsort(targets, kind="stable")
    out = np.empty(_most_bytes(blobs, prefix, len(null or b"")) + kernels.SLACK, np.uint8)
    ends_of_rows, last_rows = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    null_bytes = np.array(bytearray(null or b""), np.uint8)
    written = kernels.write_rows(
        section.data, blobs.data, blobs.key_starts, blobs.key_ends, blobs.stamps, blobs.firsts, blobs.counts, order,
        targets, prefix, blobs.entries, blobs.flags, blobs.ends, keep, stamped, null_bytes, out, ends_of_rows,
        last_rows,
    )  # fmt: skip
    counts.rows_written += int(written)
    return grouped(new_id, out[: ends_of_rows[-1]], targets[order], ends_of_rows, last_rows)


def _most_bytes(blobs: Blobs, prefix: int, null: int) -> int:
    """Returns the most bytes that the rows of all entries can take, without looking at the entries.

    An estimate that is too large costs nothing, because memory that isn't written to isn't used.
    """
    stamp = STAMP + null if len(blobs.timestamps) else 0
    each = 8 + prefix + stamp + blobs.key_ends - blobs.key_starts
    of_entries = int(blobs.ends[-1] - blobs.entries[0]) if len(blobs.entries) else 0
    return int((blobs.counts * each).sum()) + of_entries
