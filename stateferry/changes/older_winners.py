"""What gives way to something older: under time to live the winner expires first, so who wins depends on the time.

An entry of a blob gives way to the row with its user key and, by the rule `rows`, to its key's flag: to the younger one
of the two. By the rule `blob`, a row of a flagged key with a blob gives way as long as both of these are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkstate.keyed.state import KeyedState
from flinkstate.reading.group_sections import GroupSections
from flinkstate.serializers.walker import Flags, Positions
from flinkstate.ttl import MAX_LONG, MIN_LONG, expired_array
from stateferry.changes.counts import InventoryCounts
from stateferry.changes.key_hashes import NO_HASHES, members
from stateferry.changes.rules import Contradiction, Rules
from stateferry.changes.sections import (
    keys_of,
    live_blobs,
    parse_blobs,
    parse_rows,
    read_timestamps,
    set_flags,
)
from stateferry.changes.who_wins import KeySets

# Timestamps of winners and of losers, and which of these give way to a row alone.
_Pairs = tuple[Positions, Positions, Flags]


def count_older_winners(
    group: GroupSections, rules: Rules, sets: KeySets, states: Mapping[str, KeyedState], met: InventoryCounts
) -> int | None:
    """Counts what gives way to something older; returns when the first of these winners expires, if there is one."""
    seen = rules if rules.drops_expired else rules.as_seen_by_the_job
    if seen is None or seen.ttl is None or not rules.legacy.ttl or not (len(sets.contradictory) or len(sets.both)):
        return None
    oldest = []
    for winners, losers, to_a_row in _pairs(group, rules, sets, states.get(rules.flag_name or "")):
        older = (winners != MIN_LONG) & (winners < losers) & ~expired_array(losers, seen.ttl, seen.now)
        met.older_rows_that_win += int((older & to_a_row).sum())
        if rules.keep_expired:
            met.outlived += int((older & expired_array(winners, seen.ttl, seen.now)).sum())
        oldest += [int(winners[older].min())] if older.any() else []
    return min(oldest) + seen.ttl if oldest else None


@dataclass(slots=True)
class _Times:
    """Timestamps by key."""

    keys: list[pa.Array] = field(default_factory=lambda: [NO_HASHES])
    times: list[Positions] = field(default_factory=lambda: [np.empty(0, np.int64)])

    def add(self, keys: pa.Array, times: Positions, chosen: Flags) -> None:
        """Adds those that are chosen."""
        self.keys.append(keys.filter(pa.array(chosen)))
        self.times.append(times[chosen])

    def of(self, keys: pa.Array) -> Positions:
        """The timestamps of these keys; `MIN_LONG` for those without one."""
        places = pc.index_in(keys, value_set=pa.concat_arrays(self.keys)).fill_null(-1)
        # The last one is that of keys which aren't there.
        found: Positions = np.concatenate([*self.times, [MIN_LONG]])[places.to_numpy(zero_copy_only=False)]
        return found


def _pairs(group: GroupSections, rules: Rules, sets: KeySets, flag: KeyedState | None) -> Iterator[_Pairs]:
    """What wins in a key group, and what may give way to it; nothing gives way to `MIN_LONG`."""
    rows, flags = _rows_and_flags(group, rules, sets, flag)
    blob_wins, until = rules.on_contradiction is Contradiction.BLOB, _Times()
    for state, section in group:
        if state.name == rules.legacy.name:
            blobs, live = parse_blobs(section, rules), live_blobs(section, rules)
            keys, stamps = blobs.keys(), blobs.timestamps
            flagged = members(keys, sets.contradictory)
            by_flag = np.where(flagged, flags.of(keys), MIN_LONG)
            if blob_wins:
                until.add(keys, np.minimum(by_flag, stamps), live & flagged)
                live &= ~flagged
            entries, counts = blobs.per_entry(live), blobs.counts
            winners = np.maximum(rows.of(blobs.pairs()), np.repeat(by_flag, counts))
            yield winners[entries], np.repeat(stamps, counts)[entries], blobs.per_entry(~flagged)[entries]
    for state, section in group:
        if blob_wins and state.name == rules.new_name:
            found = parse_rows(section, rules)
            winners, is_live = until.of(found.keys()), found.live
            yield winners[is_live], found.timestamps[is_live], np.zeros(int(is_live.sum()), np.bool_)


def _rows_and_flags(
    group: GroupSections, rules: Rules, sets: KeySets, flag: KeyedState | None
) -> tuple[_Times, _Times]:
    """The rows that may win, by key and user key, and the flags that are set, by key."""
    rows, flags = _Times(), _Times()
    for state, section in group:
        if state.name == rules.new_name:
            found = parse_rows(section, rules)
            with_blob = members(found.keys(), pa.concat_arrays([sets.both, sets.contradictory]))
            rows.add(found.pairs(), found.timestamps, found.live & with_blob)
        elif flag is not None and state.name == flag.name:
            times = np.full(len(section), MAX_LONG)
            if flag.ttl:
                times = read_timestamps(section.data, section.value_starts, section.ends)
            flags.add(keys_of(section, np.ones(len(section), np.bool_)), times, set_flags(section, flag, rules))
    return rows, flags
