"""What a lazy run writes beside the rows: the blobs of the keys that it doesn't move, and flags.

A flag is set for each key that the run moves. Under time to live it has the timestamp of the key's blob, so it expires
with the rows. All other flags stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from flinkstate.keyed import kernels
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.reading.group_sections import GroupSections
from flinkstate.serializers.walker import Flags, Positions
from flinkstate.writing.max_parallelism_change import Destination, GroupedEntries, grouped
from stateferry.changes.counts import ConversionCounts
from stateferry.changes.key_hashes import members
from stateferry.changes.lazy_cut import LazyCut
from stateferry.changes.rules import Rules
from stateferry.changes.sections import STAMP, keys_of, live_blobs, moved_blobs
from stateferry.changes.who_wins import KeySets

_LENGTH = 4


def left_blobs(
    rules: Rules, group: GroupSections, sets: KeySets, legacy_id: int, destination: Destination
) -> Iterator[GroupedEntries]:
    """Yields the blobs of keys that aren't moved; expired ones only if they are kept."""
    for state, section in group:
        if state.name == rules.legacy.name:
            moved = moved_blobs(section, rules) | _among(section, sets.contradictory)
            left = np.flatnonzero(live_blobs(section, rules) & ~moved)
            if len(left):
                yield destination.send_some(section, state, legacy_id, left)


def flags(
    rules: Rules,
    cut: LazyCut,
    group: GroupSections,
    sets: KeySets,
    flag_id: int,
    destination: Destination,
    counts: ConversionCounts,
) -> Iterator[GroupedEntries]:
    """Yields the flags of a key group: first those that stay, then those of the keys that are moved."""
    for state, section in group:
        if state.name == cut.flag.name:
            stay = np.flatnonzero(~_among(section, sets.moved))
            if len(stay):
                yield destination.send_some(section, state, flag_id, stay)
    for state, section in group:
        if state.name == rules.legacy.name:
            moved = live_blobs(section, rules) & moved_blobs(section, rules)
            new = np.flatnonzero(moved & ~_among(section, sets.contradictory))
            if len(new):
                counts.flags_written += len(new)
                yield _set_flags(rules, cut.flag, section, new, flag_id, destination)


def _among(section: Section, keys: pa.Array) -> Flags:
    if len(keys) == 0:
        return np.zeros(len(section), np.bool_)
    return members(keys_of(section, np.ones(len(section), np.bool_)), keys)


def _set_flags(
    rules: Rules, flag: KeyedState, section: Section, new: Positions, flag_id: int, destination: Destination
) -> GroupedEntries:
    """Makes entries of the flag state for the blobs `new` of a section.

    A blob's entry begins as the flag's does, with the key and, under time to live, the timestamp. So it is copied up to
    there, and the length and the value are written over it.
    """
    length = STAMP + 1 if flag.ttl else 1
    data = section.data
    if flag.ttl and not rules.legacy.ttl:
        # Then a flag may be longer than the blob, behind which the buffer may end.
        data = np.append(data, np.zeros(length, np.uint8))
    targets = destination.key_groups(section, rules.legacy)
    order = new[np.argsort(targets[new], kind="stable")]
    old_prefix, new_prefix = section.file.prefix, destination.prefix
    sizes = (section.value_starts - section.starts)[order] + length + (new_prefix - old_prefix)
    ends = np.cumsum(sizes)
    out = np.empty(int(ends[-1]), np.uint8)
    kernels.copy_entries(data, section.starts, section.key_ends, targets, order, sizes, old_prefix, new_prefix, out)
    values = ends - length
    out[(values - _LENGTH)[:, None] + np.arange(_LENGTH)] = np.frombuffer(length.to_bytes(_LENGTH, "big"), np.uint8)
    if flag.ttl and not rules.legacy.ttl:
        out[values[:, None] + np.arange(STAMP)] = np.frombuffer(rules.now.to_bytes(STAMP, "big", signed=True), np.uint8)
    out[ends - 1] = 1
    return grouped(flag_id, out, targets[order], ends, ends - sizes)
