"""Substitute keys, by which a job decides itself which subtask gets a record.

A substitute is the smallest number (or the text of it) that Flink routes to a subtask. A job that keys its stream by
substitutes can give each subtask its share, whatever its own keys are. Its own key then becomes a part of the state.
`Substitutes` says which one each of the job's keys gets: the heaviest keys have subtasks of their own choice, all
others share what is left, by their hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from flinkstate.errors import RefusedError, UsageError
from flinkstate.hashing.hash_map import string_hash
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.hashing.key_groups import check_layout
from flinkstate.serializers.types import FlinkType, Scalar
from stateferry.look.balance.java_literals import java_literal
from stateferry.look.balance.key_weights import KeyWeights
from stateferry.look.balance.layouts import KeyGroupLayout, LayoutSearch, Loads

# Types of keys, as the command line and Java name them.
TYPES = {"Integer": Scalar.INTEGER, "Long": Scalar.LONG, "String": Scalar.STRING}
# The tables of more subtasks would be too long for one Java class.
MOST_SUBTASKS = 1024
# A key that weighs less than this share of what a subtask should get needs no place of its own.
_PINNED_FROM = 1 / 64
_AT_ONCE = 1 << 12

Key = int | str


def rebalanced_keys(layout: KeyGroupLayout, type_: Scalar = Scalar.INTEGER) -> tuple[Key, ...]:
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

    `pinned` are the heaviest keys, as Java literals, with their subtasks. Another key gets the first subtask whose last
    hash (`last_hashes`) is no less than the key's murmur hash. If the hash of the job's keys isn't known, `own_type` is
    None, there are none of both, and the loads aren't known. `own_loads` are those of the job's keys by themselves.
    """

    layout: KeyGroupLayout
    type: Scalar
    keys: tuple[Key, ...]
    own_type: FlinkType | None
    pinned: tuple[tuple[str, int], ...]
    last_hashes: tuple[int, ...]
    loads: Loads | None
    own_loads: Loads | None

    @property
    def partition_to_key(self) -> dict[int, Key]:
        """The substitute of each subtask."""
        return dict(enumerate(self.keys))

    @property
    def key_to_partition(self) -> dict[Key, int]:
        """The subtask to which Flink routes each substitute."""
        return {key: subtask for subtask, key in enumerate(self.keys)}


def substitutes(weights: KeyWeights, layout: KeyGroupLayout, type_: Scalar) -> Substitutes:
    """Returns the substitutes of a layout, and how the measured keys are spread over them.

    As many of the heaviest keys as help get subtasks of their own choice. Raises an error if the keys by themselves are
    spread better.
    """
    if layout.parallelism > MOST_SUBTASKS:
        raise UsageError(
            f"expected a parallelism of at most {MOST_SUBTASKS} for substitutes, found {layout.parallelism}"
        )
    keys = rebalanced_keys(layout, type_)
    if weights.why_fixed is not None:
        return Substitutes(layout, type_, keys, None, (), (), None, None)
    heavy = list(_heavy(weights, layout))
    numbers = sorted({0, len(heavy), *(1 << power for power in range(len(heavy).bit_length()))})
    spreads = [_Spread.of(weights, layout, heavy[:number]) for number in numbers]
    best = min(spreads, key=lambda spread: round(spread.loads.worst_over_mean, 2))
    own = LayoutSearch(weights).loads(layout)
    if best.loads.worst > own.worst:
        raise RefusedError(
            f"substitutes would make {weights.operator.label} less even at parallelism {layout.parallelism} and max "
            f"parallelism {layout.max_parallelism}: worst over mean {best.loads.worst_over_mean:.2f} instead of "
            f"{own.worst_over_mean:.2f}. Leave the job's keys as they are"
        )
    return Substitutes(layout, type_, keys, weights.key, best.pinned, best.last_hashes, best.loads, own)


def _heavy(weights: KeyWeights, layout: KeyGroupLayout) -> Iterator[tuple[str, int, int]]:
    """Yields the keys that are worth a place of their own, as a Java literal, with their place and their weight."""
    places = {int(identity): place for place, identity in enumerate(weights.keys.identities)}
    least = weights.total / layout.parallelism * _PINNED_FROM
    for key in weights.heaviest:
        place = places.get(key.identity)
        literal = None if key.text is None else java_literal(weights.key, json.loads(key.text))
        if literal is not None and place is not None and key.weight >= max(least, 1):
            yield literal, place, key.weight


@dataclass(frozen=True, slots=True, eq=False)
class _Spread:
    """Which subtasks some heavy keys get, which hashes of the others each subtask gets, and the loads then."""

    pinned: tuple[tuple[str, int], ...]
    last_hashes: tuple[int, ...]
    loads: Loads

    @classmethod
    def of(cls, weights: KeyWeights, layout: KeyGroupLayout, heavy: Sequence[tuple[str, int, int]]) -> _Spread:
        own_weights = weights.key_weights
        loads, pinned = np.zeros(layout.parallelism), []
        is_pinned = np.zeros(len(own_weights), np.bool_)
        for literal, place, weight in heavy:
            subtask = int(loads.argmin())
            pinned.append((literal, subtask))
            loads[subtask] += weight
            is_pinned[place] = True
        last = _last_hashes(np.maximum(weights.total / layout.parallelism - loads, 0))
        rest = np.searchsorted(last, weights.keys.hashes[~is_pinned])
        loads += np.bincount(rest, own_weights[~is_pinned], layout.parallelism)
        return cls(tuple(pinned), tuple(last.tolist()), Loads(layout, np.rint(loads).astype(np.int64)))


def _last_hashes(room: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """Divides the murmur hashes, which have 31 bits, in proportion to the room that the subtasks have."""
    shares = np.cumsum(room if room.any() else np.ones(len(room)))
    last: npt.NDArray[np.int32] = (np.rint(shares / shares[-1] * 2**31) - 1).astype(np.int32)
    return last
