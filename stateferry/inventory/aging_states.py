"""Counts the ages in states with time to live that aren't migrated, while the inventory reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.ttl import MAX_LONG
from stateferry.basics.state_ref import StateRef
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import PlannedTtl
from stateferry.changes.section_timestamps import read_section_timestamps, why_no_timestamps
from stateferry.inventory.ages import Ages


class AgesCollector(Protocol):
    """Where ages are collected: see `Inventory`."""

    ages: dict[tuple[str, str, str], Ages]
    promised: dict[StateRef, int]
    unread: set[StateRef]


@dataclass(frozen=True, slots=True)
class AgingState:
    """A state with time to live that isn't migrated; `planned` is its time to live if the plan gives one."""

    state: KeyedState
    now: int
    planned: PlannedTtl | None

    def count(self, section: Section, operator: str, found: AgesCollector) -> None:
        """Counts the ages of a section. What can't be read is refused only if the plan gives it a time to live."""
        try:
            stamps = read_section_timestamps(section, self.state)
        except (DamagedError, RefusedError):
            if self.planned is not None:
                raise
            found.unread.add(StateRef(operator, self.state.name))
            return
        ttl = MAX_LONG if self.planned is None else self.planned.config.time_to_live
        ages = found.ages.setdefault((operator, self.state.name, self.state.name), Ages())
        ages.count(stamps.timestamps, np.ones_like(stamps.timestamps), ttl, self.now)
        if self.planned is None or not self.planned.config.cleanup_full_snapshot:
            return
        covered = stamps.timestamps
        if stamps.elements is not None:
            # Flink looks at the elements of a list only up to the first one that is alive.
            counts = stamps.elements.counts
            covered = covered[(np.cumsum(counts) - counts)[counts > 0]]
        if len(covered):
            key, oldest = StateRef(operator, self.state.name), self.now - int(covered.min())
            found.promised[key] = max(oldest, found.promised.get(key, oldest))


def aging_states(changes: OperatorChanges, now: int) -> dict[str, AgingState]:
    """The states with time to live that aren't migrated, if their timestamps can be read."""
    migrated = {name for one in changes.rules for name in one.names}
    by_name = {one.state.name: one for one in changes.ttls}
    return {
        name: AgingState(state, now, by_name.get(name))
        for name, state in changes.states.items()
        if state.ttl and name not in migrated and why_no_timestamps(state) is None
    }
