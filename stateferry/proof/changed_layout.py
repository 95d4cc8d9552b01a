"""Changed keys, and key groups that are read whole, in the layout of the result: its subtasks and max parallelism."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange, key_group_prefix_bytes
from flinkstate.metadata.chunks import Chunk, FilePart
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.rocksdb.prefixes import Prefixes
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
        parts = []
        for subtask, handle in self.handles.items():
            if there := [group for group in handle.range if group in groups]:
                # With those between them: a scan that skips key groups begins anew, and reads the files' indexes again.
                parts.append(FilePart(subtask, handle, tuple(range(there[0], there[-1] + 1))))
        return Chunk(max_parallelism, tuple(parts), sum(part.handle.size for part in parts))


def _key_groups(keys: Prefixes, prefix: int) -> set[int]:
    groups = np.zeros(len(keys), np.int64)
    for byte in range(prefix):
        groups = groups << 8 | keys.keys[keys.bounds[:-1] + byte]
    return set(groups.tolist())


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
