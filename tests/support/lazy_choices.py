"""Lets a conversion of everything move the keys that another run has chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from stateferry.basics.state_ref import StateRef
from stateferry.changes.lazy_cut import Order, RankCounts
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import LazyChoice, SnapshotFacts


def choices_of(run: Run) -> tuple[LazyChoice, ...]:
    facts = run.facts(SnapshotFacts)
    return () if facts is None else facts.lazy or ()


@contextmanager
def choosing_as(base: Run) -> Iterator[None]:
    """Lazy runs move the keys of the ranks that the base has chosen, and count them anew."""

    def choose(_: object, ranks: Mapping[StateRef, RankCounts], *__: object) -> tuple[LazyChoice, ...]:
        return tuple(_counted(one, ranks[StateRef(one.operator, one.state)]) for one in choices_of(base))

    with patch("stateferry.steps.snapshot.choose", choose):
        yield


def _counted(choice: LazyChoice, ranks: RankCounts) -> LazyChoice:
    counted = list(zip(ranks.bins.tolist(), ranks.keys.tolist(), ranks.sizes.tolist(), strict=True))
    last = 1 << 64 if choice.last is None else choice.last
    moved = [one for one in counted if one[0] << (64 - Order(choice.order).bin_bits) <= last]
    return replace(
        choice,
        migrated=ranks.migrated,
        left=sum(keys for _, keys, _ in counted),
        moved=sum(keys for _, keys, _ in moved),
        bytes_left=sum(size for *_, size in counted),
        bytes_moved=sum(size for *_, size in moved),
    )
