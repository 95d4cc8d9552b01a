"""Substitute keys, by which a job decides itself which subtask gets a record.

A substitute is the smallest number (or the text of it) that Flink routes to a subtask. A job that keys its stream by
substitutes can give each subtask its share, whatever its own keys are. Its own key then becomes a part of the state.
`Substitutes` says which one each of the job's keys gets: the heaviest keys have subtasks of their own choice, all
others share what is left, by their hash.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import numpy as np
import numpy.typing as npt

from stateferry.balance.key_weights import KeyWeights
from stateferry.balance.layouts import Layout, Loads
from stateferry.errors import UsageError
from stateferry.hashing.hash_map import string_hash
from stateferry.key_group_arrays import assign_to_key_groups
from stateferry.key_groups import check_layout
from stateferry.serializers.types import Scalar

# Types of keys, as the command line and Java name them.
TYPES = {"Integer": Scalar.INTEGER, "Long": Scalar.LONG, "String": Scalar.STRING}
# The tables of more subtasks would be too long for one Java class.
MOST_SUBTASKS = 1024
# A key that weighs less than this share of what a subtask should get needs no place of its own.
_PINNED_FROM = 1 / 64
_AT_ONCE = 1 << 12

Key = int | str


@lru_cache(maxsize=16)
def rebalanced_keys(layout: Layout, type_: Scalar = Scalar.INTEGER) -> tuple[Key, ...]:
    """Returns for each subtask the smallest non-negative number that is routed to it, as a key of this type."""
    check_layout(layout.max_parallelism, layout.parallelism)
    found = np.full(layout.parallelism, -1, np.int64)
    for first in count(0, _AT_ONCE):
        numbers = np.arange(first, first + _AT_ONCE)
        # The hash code of a non-negative Long below 2^31 is that of the Integer.
        codes = numbers if type_ is not Scalar.STRING else [string_hash(str(number)) for number in numbers]
        groups = assign_to_key_groups(np.array(codes, np.int64).astype(np.int32), layout.max_parallelism)
        subtasks, places = np.unique(groups.astype(np.int64) * layout.parallelism // layout.max_parallelism, True)
        new = found[subtasks] < 0
        found[subtasks[new]] = numbers[places[new]]
        if (found >= 0).all():
            return tuple(str(number) if type_ is Scalar.STRING else number for number in found.tolist())
    raise AssertionError("every subtask has a key")


@dataclass(frozen=True, slots=True, eq=False)
class Substitutes:
    """For each subtask its substitute, and which subtask each of the job's keys gets.

    `pinned` has the subtasks of the heaviest keys. Another key gets the first subtask whose last hash (`last_hashes`)
    is no less than the key's murmur hash.
    If the job's keys aren't Integer, Long or String, both are empty, and the loads aren't known.
    """

    layout: Layout
    type: Scalar
    keys: tuple[Key, ...]
    own_type: Scalar | None
    pinned: dict[Key, int]
    last_hashes: tuple[int, ...]
    loads: Loads | None


def substitutes(weights: KeyWeights, layout: Layout, type_: Scalar) -> Substitutes:
    """Returns the substitutes of a layout, and how the measured keys are spread over them."""
    if layout.parallelism > MOST_SUBTASKS:
        raise UsageError(
            f"expected a parallelism of at most {MOST_SUBTASKS} for substitutes, found {layout.parallelism}"
        )
    keys = rebalanced_keys(layout, type_)
    own = weights.key if isinstance(weights.key, Scalar) and weights.key in TYPES.values() else None
    if own is None:
        return Substitutes(layout, type_, keys, None, {}, (), None)
    own_weights = weights.key_weights
    places = {int(identity): place for place, identity in enumerate(weights.keys.identities)}
    fair = weights.total / layout.parallelism
    loads = np.zeros(layout.parallelism)
    pinned: dict[Key, int] = {}
    is_pinned = np.zeros(len(own_weights), np.bool_)
    for key in weights.heaviest:
        place = places.get(key.identity)
        if key.text is not None and place is not None and own_weights[place] >= fair * _PINNED_FROM:
            subtask = int(loads.argmin())
            pinned[json.loads(key.text)] = subtask
            loads[subtask] += own_weights[place]
            is_pinned[place] = True
    last = _last_hashes(np.maximum(fair - loads, 0))
    rest = np.searchsorted(last, weights.keys.hashes[~is_pinned])
    loads += np.bincount(rest, own_weights[~is_pinned], layout.parallelism)
    return Substitutes(
        layout, type_, keys, own, pinned, tuple(last.tolist()), Loads(layout, np.rint(loads).astype(np.int64))
    )


def _last_hashes(room: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """Divides the murmur hashes, which have 31 bits, in proportion to the room that the subtasks have."""
    shares = np.cumsum(room if room.any() else np.ones(len(room)))
    last: npt.NDArray[np.int32] = (np.rint(shares / shares[-1] * 2**31) - 1).astype(np.int32)
    return last
