"""Who wins if a job has migrated some keys itself: which blobs become rows, and which rows stay.

Flags, blobs and rows are those of the savepoint that have not expired:

| flag | blob | rows | what the new state gets |
|---|---|---|---|
| set | - | any | the rows |
| - | there | none | the blob's entries |
| - | there | some | the rows, and those entries of the blob whose user key has no row |
| set | there | any | a contradiction: the plan's rule chooses the blob's entries (`blob`) or the rows (`rows`) |
| - | - | some | the rows |

All contradictions are counted. Every entry of a blob inherits the blob's timestamp. A lazy run moves only the keys that
are chosen, and those with a contradiction, which its rule settles. The blobs of the others stay as they are.

The functions here work on one key group at a time. They keep 16 bytes for each key with a flag, a blob or rows, and for
each row of a key that has a blob.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.reading.group_sections import GroupSections
from flinkstate.serializers.types import type_name
from flinkstate.serializers.walker import Flags, Positions
from stateferry.basics.quantities import noun
from stateferry.changes.counts import StateCounts
from stateferry.changes.key_hashes import NO_HASHES, members
from stateferry.changes.rules import Contradiction, ContradictionsError, Nulls, NullsCannotBeKeptError, Rules
from stateferry.changes.sections import (
    Blobs,
    MapRows,
    is_live,
    keys_of,
    live_blob_keys,
    live_blobs,
    moved_blobs,
    parse_rows,
    set_flag_keys,
)


@dataclass(frozen=True, slots=True)
class KeySets:
    """Keys of one key group. `contradictory` have a flag and a blob, `superseding` are rows that win.

    `both` are the keys with a blob and rows, without those of a contradiction. `moved` are the keys that a lazy run
    moves; it is empty if the run isn't lazy.
    """

    contradictory: pa.Array
    superseding: pa.Array
    both: pa.Array
    moved: pa.Array


NO_KEYS = KeySets(NO_HASHES, NO_HASHES, NO_HASHES, NO_HASHES)


def key_sets_of(group: GroupSections, rules: Rules, states: Mapping[str, KeyedState]) -> KeySets:
    """Returns the key sets of a key group, which will be read again; without flags and rows it isn't read for this.

    `states` are all states of the operator by name.
    """
    here = {state.name for state in group.states}
    if not rules.takes_blobs or rules.legacy.name not in here or not here & {rules.new_name, rules.flag_name}:
        return NO_KEYS
    group.keep()
    return key_sets(group, rules, states.get(rules.flag_name) if rules.flag_name else None)


def key_sets(group: Iterable[tuple[KeyedState, Section]], rules: Rules, flag: KeyedState | None) -> KeySets:
    """Finds the keys that have a blob and also a flag or rows, in one key group or several.

    `flag` is the flag state if the savepoint has it. `group` may be iterated twice.
    """
    flagged, with_rows, blobs, moved = [NO_HASHES], [NO_HASHES], [NO_HASHES], [NO_HASHES]
    for state, section in group:
        if flag is not None and state.name == rules.flag_name:
            flagged.append(set_flag_keys(section, flag, rules))
        elif state.name == rules.new_name:
            with_rows.append(parse_rows(section, rules).live_keys())
        elif state.name == rules.legacy.name:
            blobs.append(live_blob_keys(section, rules))
            if rules.lazy_cut is not None:
                moved.append(keys_of(section, live_blobs(section, rules) & moved_blobs(section, rules)))
    all_blobs = pa.concat_arrays(blobs)
    contradictory = all_blobs.filter(pa.array(members(all_blobs, pa.concat_arrays(flagged))))
    both = all_blobs.filter(pa.array(members(all_blobs, pa.concat_arrays(with_rows))))
    both = both.filter(pa.array(~members(both, contradictory)))
    superseding = [NO_HASHES]
    if len(both):
        for state, section in group:
            if state.name == rules.new_name:
                rows = parse_rows(section, rules)
                superseding.append(rows.pairs().filter(pa.array(members(rows.keys(), both) & rows.live)))
    all_moved = pa.concat_arrays(moved)
    all_moved = all_moved.filter(pa.array(~members(all_moved, contradictory)))
    return KeySets(contradictory, pa.concat_arrays(superseding), both, all_moved)


def rows_that_stay(rows: MapRows, rules: Rules, sets: KeySets, counts: StateCounts) -> Positions:
    """Returns the indices of the rows that stay, and counts what happened."""
    keep = rows.live
    counts.rows_read += len(keep)
    counts.rows_expired += int((~keep).sum())
    _count_future(rows.timestamps, rules, counts)
    if rules.on_contradiction is Contradiction.BLOB:
        replaced = members(rows.keys(), sets.contradictory) & keep
        counts.rows_replaced_by_a_blob += int(replaced.sum())
        keep = keep & ~replaced
    kept: Positions = np.flatnonzero(keep)
    counts.rows_kept += len(kept)
    return kept


def entries_that_stay(blobs: Blobs, rules: Rules, sets: KeySets, counts: StateCounts) -> Flags:
    """Whether each entry of the blobs becomes a row; counts what happened."""
    live = is_live(blobs.timestamps, rules, len(blobs.counts))
    counts.blobs += len(blobs.counts)
    counts.blob_entries += len(blobs.entries)
    counts.empty_maps += int((live & (blobs.counts == 0)).sum())
    counts.blobs_expired += int((~live).sum())
    counts.blob_entries_expired += int(blobs.counts[~live].sum())
    _count_future(blobs.timestamps, rules, counts)
    left = live & ~moved_blobs(blobs.section, rules) if rules.lazy_cut is not None else np.zeros(len(live), np.bool_)
    if left.any() and len(sets.contradictory):
        left &= ~members(blobs.keys(), sets.contradictory)
    counts.blobs_left += int(left.sum())
    counts.blob_entries_left += int(blobs.counts[left].sum())
    live = live & ~left & _against_flags(blobs, live, rules, sets, counts)
    keep = blobs.per_entry(live)
    if len(sets.superseding):
        superseded = members(blobs.pairs(), sets.superseding) & keep
        counts.blob_entries_superseded += int(superseded.sum())
        keep = keep & ~superseded
    return keep


def _against_flags(blobs: Blobs, live: Flags, rules: Rules, sets: KeySets, counts: StateCounts) -> Flags:
    """Returns which blobs stay in spite of the flags of their keys."""
    if len(sets.contradictory) == 0:
        return live
    contradictory = members(blobs.keys(), sets.contradictory) & live
    counts.contradictions += int(contradictory.sum())
    if rules.on_contradiction is Contradiction.BLOB:
        return live
    if rules.on_contradiction is Contradiction.STOP and contradictory.any():
        met = int(contradictory.sum())
        raise ContradictionsError(
            f"state {rules.legacy.name}: {met} {noun(met, 'key')} of key group {blobs.section.key_group} "
            f"{noun(met, 'is', 'are')} flagged as migrated and still {noun(met, 'has', 'have')} a blob. Plan again "
            "with --on-contradiction blob or --on-contradiction rows"
        )
    counts.blob_entries_dropped_for_rows += int(blobs.counts[contradictory].sum())
    return live & ~contradictory


def _count_future(timestamps: Positions, rules: Rules, counts: StateCounts) -> None:
    counts.timestamps_in_the_future += int((timestamps > rules.now).sum())


def dropped_nulls(nulls: int, rules: Rules) -> int:
    """Returns how many nulls are dropped, or refuses them if the plan doesn't drop them."""
    if nulls and rules.nulls is not Nulls.DROP:
        raise NullsCannotBeKeptError(
            f"state {rules.legacy.name}: {nulls} {noun(nulls, 'entry has', 'entries have')} a null value, which a "
            f"MapState of {type_name(rules.map_type.value)} with time to live can't hold. Plan again with "
            "--nulls drop to leave such entries out, or make the value nullable in both jobs"
        )
    return nulls
