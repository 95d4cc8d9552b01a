"""What the snapshot counts of a section of maps: what the migration would meet, their classes, times and ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.stored_maps import map_places
from flinkstate.kryo.class_finder import ClassFinder
from stateferry.changes.counts import InventoryCounts
from stateferry.changes.key_hashes import members
from stateferry.changes.lazy_cut import Order, RankCounts
from stateferry.changes.rules import Contradiction, Rules
from stateferry.changes.sections import STAMP, Blobs, keys_of, live_blobs, parse_blobs
from stateferry.changes.who_wins import KeySets, entries_that_stay
from stateferry.inventory.ages import Integers
from stateferry.inventory.blob_times import BlobTimes
from stateferry.inventory.equal_keys import refuse_equal_keys


def examine(
    section: Section, rules: Rules, sets: KeySets, met: InventoryCounts, aged: Callable[[Integers, Integers], None]
) -> Blobs:
    """Counts what the conversion would meet, and where that would refuse something counts it instead."""
    blobs = parse_blobs(section, rules)
    aged(blobs.timestamps, blobs.counts)
    stops = rules.on_contradiction is Contradiction.STOP
    keep = entries_that_stay(blobs, replace(rules, on_contradiction=Contradiction.ROWS) if stops else rules, sets, met)
    if len(sets.contradictory):
        empty = live_blobs(section, rules) & (blobs.counts == 0)
        met.empty_contradictions += int((members(blobs.keys(), sets.contradictory) & empty).sum())
    refuse_equal_keys(blobs, keep, rules)
    if not rules.writes_nulls:
        met.unwritable_nulls += int((keep & blobs.nulls()).sum())
    return blobs


def find_classes(section: Section, rules: Rules, finder: ClassFinder) -> None:
    starts = section.value_starts + (STAMP if rules.legacy.ttl else 0)
    with section.locating():
        finder.add(section.data, *map_places(rules.in_source.value, section.data, starts, section.ends))


def note_times(blobs: Blobs, rules: Rules, times: BlobTimes) -> None:
    """Keeps the blobs' timestamps, unless a null that can't be kept counts only as long as its blob is alive."""
    if not rules.writes_nulls and blobs.nulls().any():
        times.give_up()
    else:
        times.note(blobs.timestamps, blobs.counts)


def rank(section: Section, rules: Rules, sets: KeySets, order: Order, ranks: RankCounts) -> None:
    """Counts the keys that a lazy run may move: those with a living blob, and no contradiction."""
    left = live_blobs(section, rules)
    if len(sets.contradictory):
        left &= ~members(keys_of(section, np.ones(len(section), np.bool_)), sets.contradictory)
    starts, ends = (section.key_starts + section.file.prefix)[left], section.key_ends[left]
    sizes = (section.ends - section.value_starts)[left]
    ranks.count(order, order.ranks(section.data, starts, ends, sizes), sizes)
