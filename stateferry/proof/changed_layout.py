"""Changed keys, and key groups that are read whole, in the layout of the result: its subtasks and max parallelism."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from flinkstate.files.storage import Location
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.hashing.key_groups import KeyGroupRange, key_group_prefix_bytes
from flinkstate.keyed.key_group_check import TIMER_TIMESTAMP
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.chunks import Chunk, FilePart
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.values.key_hashes import codes_of_rows
from stateferry.changes.operator_changes import OperatorChanges


@dataclass(frozen=True, slots=True)
class Databases:
    """An operator's databases in a result, by subtask, or those of them that have any of the key groups `within`."""

    folder: Location
    handles: Mapping[int, NativeHandle]
    within: KeyGroupRange | None = None

    def of(self, key_groups: KeyGroupRange) -> Databases:
        """Those with any of these key groups."""
        there = {n: one for n, one in self.handles.items() if not one.range.intersection(key_groups).is_empty}
        return Databases(self.folder, there, key_groups)

    def chunk(self, max_parallelism: int, keys: Iterable[Prefixes]) -> Chunk:
        """What has these keys."""
        prefix, wanted = key_group_prefix_bytes(max_parallelism), list(keys)
        groups: Collection[int] = self.within or range(max_parallelism)
        if not any(one.has_every_key for one in wanted):
            groups = frozenset(group for one in wanted for group in _key_groups(one, prefix))
        parts = (
            FilePart(subtask, handle, tuple(group for group in handle.range if group in groups))
            for subtask, handle in self.handles.items()
        )
        there = tuple(part for part in parts if part.key_groups)
        return Chunk(max_parallelism, there, sum(part.handle.size for part in there))


def _key_groups(keys: Prefixes, prefix: int) -> set[int]:
    groups = np.zeros(len(keys), np.int64)
    for byte in range(prefix):
        groups = groups << 8 | keys.keys[keys.bounds[:-1] + byte]
    return set(groups.tolist())


def in_result(keys: Mapping[str, Prefixes], conversion: OperatorChanges) -> dict[str, Prefixes]:
    """The keys of the source's states as the result has them; a new state has those of its legacy state."""
    found = {name: _hashed_anew(one, conversion.states[name], conversion) for name, one in keys.items()}
    return found | {
        rules.new_name: found[rules.legacy.name] for rules in conversion.rules if rules.legacy.name in found
    }


def _hashed_anew(keys: Prefixes, state: KeyedState, conversion: OperatorChanges) -> Prefixes:
    if keys.has_every_key or not conversion.changes_key_groups:
        return keys
    old, new = map(key_group_prefix_bytes, (conversion.old_max, conversion.new_max))
    starts, ends = keys.bounds[:-1], keys.bounds[1:]
    firsts = starts + old + (TIMER_TIMESTAMP if state.kind is StateKind.TIMERS else 0)
    groups = assign_to_key_groups(codes_of_rows(state.key, keys.keys, firsts, ends), conversion.new_max)
    return Prefixes.of(
        group.to_bytes(new, "big") + keys.keys[start:end].tobytes()
        for group, start, end in zip(groups.tolist(), (starts + old).tolist(), ends.tolist(), strict=True)
    )


@dataclass(frozen=True, slots=True)
class WholeGroups:
    """The key groups that are read whole, which have the same keys in the source and in the result."""

    source: frozenset[int]
    result: frozenset[int]

    @classmethod
    def of(cls, classes: Collection[int], divisor: int, conversion: OperatorChanges) -> WholeGroups:
        """Those whose numbers leave one of these remainders.

        A key's group is the remainder of its hash. So the divisor must be one of both max parallelisms.
        """
        source, result = (
            frozenset(group for group in range(size) if group % divisor in classes)
            for size in (conversion.old_max, conversion.new_max)
        )
        return cls(source, result)
