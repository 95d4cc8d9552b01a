"""Distributes operator (non-keyed) state to another number of subtasks, on metadata alone.

The rules are those of Flink's `RoundRobinOperatorStateRepartitioner`: a split list is merged and distributed evenly in
its order, a union list goes whole to every subtask, broadcast state is copied. At unchanged parallelism all state stays
where it is, but union lists go to every subtask, and subtasks without broadcast state get a copy of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from flinkstate.hashing.hash_map import order_of_compute_if_absent, order_of_put
from flinkstate.hashing.key_groups import check_parallelism


class DistributionMode(Enum):
    """How operator state is distributed; the value is the byte in `_metadata`."""

    SPLIT_DISTRIBUTE = 0
    UNION = 1
    BROADCAST = 2

    @property
    def label(self) -> str:
        """The name for people: SPLIT, UNION or BROADCAST."""
        return self.name.removesuffix("_DISTRIBUTE")


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """Where the items of one state begin in an operator state file, and how they are distributed."""

    mode: DistributionMode
    offsets: tuple[int, ...]


Handle = TypeVar("Handle", bound=Hashable)


@dataclass(frozen=True, slots=True)
class OperatorStateShare(Generic[Handle]):
    """What a subtask reads from one operator state file: the items of each state.

    `handle` stands for the file: equal handles are the same file.
    """

    handle: Handle
    states: Mapping[str, StatePartitions]


# What a subtask will read, by file, while this is collected.
_Shares = dict[Handle, dict[str, StatePartitions]]
# Where a state is: subtask, file and items, in the order of the subtasks.
_Locations = list[tuple[int, Handle, StatePartitions]]


def redistribute(
    subtasks: Sequence[Sequence[OperatorStateShare[Handle]]], new_parallelism: int
) -> list[list[OperatorStateShare[Handle]]]:
    """Returns the shares of the new subtasks, from those of the old ones (a sequence for each, empty if it has none).

    Shares are in the order of the old files, so that items that stay together stay in order.
    """
    check_parallelism(new_parallelism, "parallelism")
    check_parallelism(len(subtasks), "old parallelism")
    union = _locations(subtasks, DistributionMode.UNION)
    broadcast = _locations(subtasks, DistributionMode.BROADCAST)
    shares: list[_Shares[Handle]]
    if new_parallelism == len(subtasks):
        shares = [_own_shares(subtask) for subtask in subtasks]
        _copy_union(union, shares)
        _copy_broadcast(_held_by_some_only(broadcast, new_parallelism), shares)
    else:
        shares = [{} for _ in range(new_parallelism)]
        _deal_out_split(_locations(subtasks, DistributionMode.SPLIT_DISTRIBUTE), shares)
        _copy_union(union, shares)
        _copy_broadcast(broadcast, shares)
    order = list(dict.fromkeys(share.handle for subtask in subtasks for share in subtask))
    rank = {handle: position for position, handle in enumerate(order)}
    return [
        [OperatorStateShare(handle, share[handle]) for handle in sorted(share, key=rank.__getitem__)]
        for share in shares
    ]


def _own_shares(subtask: Sequence[OperatorStateShare[Handle]]) -> _Shares[Handle]:
    own: _Shares[Handle] = {}
    for share in subtask:
        own.setdefault(share.handle, {}).update(share.states)
    return own


def _locations(
    subtasks: Sequence[Sequence[OperatorStateShare[Handle]]], mode: DistributionMode
) -> dict[str, _Locations[Handle]]:
    """Returns where the states of one mode are, in Flink's order, which decides which subtask gets an odd item."""
    locations: dict[str, _Locations[Handle]] = {}
    lookups: list[str] = []
    for index, subtask in enumerate(subtasks):
        for share in subtask:
            for name in order_of_put(list(share.states), len(share.states)):
                partitions = share.states[name]
                if partitions.mode is mode:
                    lookups.append(name)
                    locations.setdefault(name, []).append((index, share.handle, partitions))
    return {name: locations[name] for name in order_of_compute_if_absent(lookups)}


def _held_by_some_only(broadcast: Mapping[str, _Locations[Handle]], parallelism: int) -> dict[str, _Locations[Handle]]:
    """Returns the broadcast states that some subtasks don't have, for instance because they have finished."""
    return {
        name: locations
        for name, locations in broadcast.items()
        if len({subtask for subtask, _, _ in locations}) < parallelism
    }


def _deal_out_split(split: Mapping[str, _Locations[Handle]], shares: list[_Shares[Handle]]) -> None:
    """Distributes each state evenly; the next state begins at the subtask that would have got the next odd item."""
    parallelism = len(shares)
    first_subtask = 0
    for name, locations in split.items():
        least, odd = divmod(sum(len(partitions.offsets) for _, _, partitions in locations), parallelism)
        location, position = 0, 0
        for turn in range(parallelism):
            missing = least + (1 if turn < odd else 0)
            states_by_handle = shares[(first_subtask + turn) % parallelism]
            while missing > 0:
                _, handle, partitions = locations[location]
                taken = partitions.offsets[position : position + missing]
                position += len(taken)
                missing -= len(taken)
                if position == len(partitions.offsets):
                    location, position = location + 1, 0
                states_by_handle.setdefault(handle, {})[name] = StatePartitions(partitions.mode, taken)
        first_subtask = (first_subtask + odd) % parallelism


def _copy_union(union: Mapping[str, _Locations[Handle]], shares: list[_Shares[Handle]]) -> None:
    for share in shares:
        for name, locations in union.items():
            for _, handle, partitions in locations:
                share.setdefault(handle, {})[name] = partitions


def _copy_broadcast(broadcast: Mapping[str, _Locations[Handle]], shares: list[_Shares[Handle]]) -> None:
    """Gives every subtask a copy. All copies are equal; taking them in turns spreads the reads over the files."""
    for subtask, share in enumerate(shares):
        for name, locations in broadcast.items():
            _, handle, partitions = locations[subtask % len(locations)]
            share.setdefault(handle, {})[name] = partitions
