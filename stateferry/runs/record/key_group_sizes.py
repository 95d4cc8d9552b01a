"""How the bytes of keyed state are spread over key groups and subtasks, as facts of a run.

A savepoint may have 32,768 key groups and as many subtasks. Facts have at most `MOST_BINS` numbers of each: the sums of
neighbouring key groups, and the largest of neighbouring subtasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from stateferry.inventory.heavy_key import HeavyKey
from stateferry.runs.record.facts import RunFacts

MOST_BINS = 1024


@dataclass(frozen=True, slots=True)
class OperatorSizes:
    """The keyed state of one operator.

    `bytes` and `entries` are of each `per_bin` key groups; `by_subtask` and `entries_by_subtask` are those of the
    largest of each `subtasks_per_bin` subtasks. `fullest` are the largest key groups with their bytes. `idle` subtasks
    and `empty` key groups have no keyed state. Entries are left out if they were not counted. `raw` are the bytes of
    all entries as they are in memory, of which `heavy_key` has its own; it is the heaviest key of the key groups that
    weigh at least half of a subtask's fair share.
    """

    operator: str
    parallelism: int
    max_parallelism: int
    bytes: tuple[int, ...]
    by_subtask: tuple[int, ...]
    fullest: tuple[tuple[int, int], ...] = ()
    entries: tuple[int, ...] = ()
    entries_by_subtask: tuple[int, ...] = ()
    idle: int = 0
    empty: int = 0
    raw: int = 0
    heavy_key: HeavyKey | None = None

    @property
    def total(self) -> int:
        """The bytes of all key groups."""
        return sum(self.bytes)

    @property
    def per_bin(self) -> int:
        """How many neighbouring key groups make one number."""
        return _per_bin(self.max_parallelism)

    @property
    def subtasks_per_bin(self) -> int:
        """How many neighbouring subtasks make one number."""
        return _per_bin(self.parallelism)


@dataclass(frozen=True, slots=True)
class SourceSizes(RunFacts):
    """The key groups of the source."""

    name: ClassVar[str] = "source_key_groups"

    operators: tuple[OperatorSizes, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedSizes(RunFacts):
    """The key groups of the staged savepoint."""

    name: ClassVar[str] = "staged_key_groups"

    operators: tuple[OperatorSizes, ...] = ()


def bins(values: Sequence[int]) -> Iterable[Sequence[int]]:
    """The values in at most `MOST_BINS` groups of neighbours."""
    step = _per_bin(len(values))
    return (values[start : start + step] for start in range(0, len(values), step))


def _per_bin(values: int) -> int:
    return max(-(-values // MOST_BINS), 1)
