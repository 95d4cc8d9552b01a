"""Finds rows of the staged savepoint whose keys are equal: Flink would keep only one row of each key.

The accounts don't see them where the source has as many: its rows may become equal when keys are written anew. Rows
of RocksDB's own files needn't be looked at: the newest hides the others there, so that they are missed as rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from flinkstate.keyed.keyed_file import Section
from flinkstate.reading.group_sections import GroupSections
from stateferry.proof.expected.content import Hashes
from stateferry.proof.expected.sample_text import MOST_SAMPLES

# Of a key group with more rows of a state, those are compared whose hashes begin with zeros.
_MOST_HASHES = 8 << 20


class _Seen:
    """The hashes of the rows of one state of one key group."""

    def __init__(self) -> None:
        self._hashes: list[Hashes] = []
        self._count, self._zeros = 0, 0

    def meet(self, hashes: Hashes) -> None:
        self._hashes.append(self._chosen(hashes))
        self._count += len(self._hashes[-1])
        while self._count > _MOST_HASHES:
            self._zeros += 1
            self._hashes = [self._chosen(some) for some in self._hashes]
            self._count = sum(map(len, self._hashes))

    def _chosen(self, hashes: Hashes) -> Hashes:
        return hashes[hashes >> np.uint64(64 - self._zeros) == 0] if self._zeros else hashes

    def equal(self) -> Hashes:
        """The hashes that more than one row has."""
        together: Hashes = np.sort(np.concatenate(self._hashes))
        found: Hashes = together[1:][together[1:] == together[:-1]]
        return found


@dataclass(slots=True)
class EqualRows:
    """How many rows have the key of another one, by state and key group, and some of them as texts."""

    counts: dict[str, Counter[int]] = field(default_factory=dict)
    samples: list[tuple[int, str]] = field(default_factory=list)
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def meet(self, state: str, hashes: Hashes) -> None:
        """Notes rows of the key group at hand by the hashes of their keys, with namespaces and user keys."""
        self._seen.setdefault(state, _Seen()).meet(hashes)

    def settle(self, group: GroupSections, hashes_of: Callable[[str, Section], Hashes]) -> None:
        """Compares the rows of a key group with each other, and reads it again if some seem to be equal."""
        seen, self._seen = self._seen, {}
        equal = {state: found for state, one in seen.items() if len(found := one.equal())}
        rows: Counter[tuple[str, bytes]] = Counter()
        for state, section in group if equal else ():
            if state.name not in equal:
                continue
            for row in np.flatnonzero(np.isin(hashes_of(state.name, section), equal[state.name])).tolist():
                key = section.data[section.key_starts[row] : section.key_ends[row]].tobytes()
                rows[state.name, key] += 1
                if rows[state.name, key] == 2 and len(self.samples) < MOST_SAMPLES:
                    self.samples.append((section.key_group, f"{state.name}, key {section.key_text(row)}"))
        for (state_name, _), count in rows.items():
            if count > 1:
                self.counts.setdefault(state_name, Counter())[group.key_group] += count - 1

    def take(self, other: EqualRows) -> None:
        """Adds what another task has found."""
        for state, groups in other.counts.items():
            self.counts.setdefault(state, Counter()).update(groups)
        self.samples = [*self.samples, *other.samples][:MOST_SAMPLES]
