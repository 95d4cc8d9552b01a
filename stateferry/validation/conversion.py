"""What a plan makes of a savepoint; the validation compares the staged savepoint with that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stateferry.migration.rules import Rules
from stateferry.savepoint.metadata import Operator
from stateferry.savepoint.operator_rewrite import Layout
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.state import KeyedState, StateKind


@dataclass(frozen=True, slots=True)
class OperatorConversion:
    """What one operator's keyed state becomes; `states` are all keyed states of the source, by name."""

    rules: tuple[Rules, ...]
    states: Mapping[str, KeyedState]
    keep_legacy: bool
    old_max: int
    new_max: int

    @property
    def changes_key_groups(self) -> bool:
        """Whether max parallelism changes, so that keys get other key groups."""
        return self.old_max != self.new_max

    @property
    def new_states(self) -> dict[str, KeyedState]:
        """The new states by name."""
        return {rules.new_name: new_state(rules) for rules in self.rules}

    @property
    def left_behind(self) -> set[str]:
        """The names of states that the new savepoint doesn't have."""
        if self.keep_legacy:
            return set()
        flags = {rules.flag_name for rules in self.rules if rules.flag_name}
        return flags | {rules.legacy.name for rules in self.rules}

    @property
    def expected_states(self) -> dict[str, KeyedState]:
        """All states that the new savepoint must have, by name."""
        carried = {name: state for name, state in self.states.items() if name not in self.left_behind}
        return carried | self.new_states


def new_state(rules: Rules) -> KeyedState:
    """The map state that a legacy state becomes."""
    legacy, map_ = rules.legacy, rules.map_type
    return KeyedState(
        rules.new_name, StateKind.MAP, legacy.key, legacy.namespace, map_.key, map_.value, legacy.ttl, False
    )


@dataclass(frozen=True, slots=True)
class Conversion:
    """What becomes of the whole savepoint: its layout, and the rules of legacy states by operator id."""

    layout: Layout = field(default_factory=Layout)
    rules: Mapping[bytes, tuple[Rules, ...]] = field(default_factory=dict)
    keep_legacy: bool = False

    def of(self, source: Savepoint, operator: Operator) -> OperatorConversion:
        """What becomes of one operator."""
        states = {state.name: state for state in source.keyed_states(operator)}
        new = self.layout.of(operator)
        rules = tuple(self.rules.get(operator.id, ()))
        return OperatorConversion(rules, states, self.keep_legacy, operator.max_parallelism, new.max_parallelism)
