"""Finds a key that weighs more than a subtask's fair share, while the state is read for something else.

The fair share is what each subtask would have if all had the same. All entries of a key are in one key group, so such a
key can only be in a key group that weighs as much. There are few of these, and none in most savepoints; the keys of all
other key groups aren't looked at.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flinkstate.keyed.key_group_check import key_offset
from flinkstate.keyed.keyed_file import KeyedFile, Section
from flinkstate.metadata.key_group_extents import PlacedState, key_group_extents
from flinkstate.serializers.type_parts import opaque_parts
from flinkstate.serializers.walker import Positions, skip_runs
from flinkstate.values.codecs import decode_whole
from flinkstate.values.value_json import json_text
from stateferry.changes.key_hashes import Hashes, key_lanes
from stateferry.inventory.heavy_key import HeavyKey

# Of a key group with more keys the heaviest so many are kept. Each of the others weighs less than that part of it.
_MOST_KEYS = 1 << 16
_MOST_NAMED = 4


def heavy_groups(placed: Iterable[PlacedState], parallelism: int) -> frozenset[int]:
    """The key groups that may have a key of more than a fair share, if the state is spread over so many subtasks.

    A compressed key group may hold more than its bytes in the file say, so those of half a fair share count.
    """
    extents = [extent for one in placed for extent in key_group_extents(one.file)]
    total = sum(extent.end - extent.start for extent in extents)
    if parallelism == 1:
        return frozenset()
    return frozenset(one.key_group for one in extents if 2 * (one.end - one.start) * parallelism > total)


class KeysOfGroup:
    """The bytes of each key of one key group."""

    def __init__(self, file: KeyedFile) -> None:
        self._key = file.header.key_serializer.type
        states = range(len(file.header.states))
        self._offsets = [key_offset(file.header, state, file.prefix) for state in states]
        self._is_known = not opaque_parts(self._key)
        self._identities: Hashes = np.empty(0, np.uint64)
        self._bytes: Positions = np.empty(0, np.int64)
        self._named: dict[int, bytes] = {}

    def meet(self, section: Section) -> None:
        """Adds the entries of a section."""
        offset = self._offsets[section.state]
        if offset is None or not self._is_known:
            return
        starts = section.starts + offset
        with section.locating():
            firsts, ends = skip_runs(self._key, section.data, starts, section.key_ends)
        places = np.searchsorted(starts, firsts)
        sizes = np.diff(np.append(section.starts[places], section.ends[-1]))
        identities, _ = key_lanes(section.data, firsts, ends)
        for place in np.argsort(-sizes, kind="stable")[:_MOST_NAMED]:
            self._named.setdefault(int(identities[place]), section.data[firsts[place] : ends[place]].tobytes())
        found, which = np.unique(np.append(self._identities, identities), return_inverse=True)
        summed = np.zeros(len(found), np.int64)
        np.add.at(summed, which, np.append(self._bytes, sizes))
        kept = np.argsort(-summed, kind="stable")[:_MOST_KEYS]
        self._identities, self._bytes = found[kept], summed[kept]

    def heaviest(self, key_group: int) -> HeavyKey | None:
        """The heaviest key; None if there is none, or keys can't be told apart."""
        if not len(self._bytes):
            return None
        data = self._named.get(int(self._identities[0]))
        text = None if data is None else json_text(self._key)(decode_whole(self._key, data))
        return HeavyKey(int(self._bytes[0]), key_group, text)
