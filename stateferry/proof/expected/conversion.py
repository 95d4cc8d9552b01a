"""What a plan makes of a savepoint; the validation compares the staged savepoint with that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType
from flinkstate.writing.operator_rewrite import Layout
from stateferry.changes.rules import PlannedTtl, Rules
from stateferry.changes.upgrade.before_upgrade import BeforeUpgrade


@dataclass(frozen=True, slots=True)
class OperatorConversion:
    """What one operator's keyed state becomes; `states` are all keyed states of the source, by name.

    `aging` are those that aren't migrated and lose what has expired, `by_kryo` those that become Kryo 5's. `before` is
    what these were before an upgrade.
    """

    rules: tuple[Rules, ...]
    states: Mapping[str, KeyedState]
    keep_legacy: bool
    old_max: int
    new_max: int
    aging: tuple[PlannedTtl, ...] = ()
    by_kryo: Mapping[str, KeyedState] = field(default_factory=dict)
    before: BeforeUpgrade | None = None

    def of_key_groups(self, key_groups: KeyGroupRange) -> OperatorConversion:
        """What a task needs that reads these key groups."""
        return self if self.before is None else replace(self, before=self.before.of_key_groups(key_groups))

    @property
    def aging_states(self) -> dict[str, PlannedTtl]:
        """The states that aren't migrated and lose what has expired, by name."""
        return {one.state.name: one for one in self.aging}

    @property
    def changes_key_groups(self) -> bool:
        """Whether max parallelism changes, so that keys get other key groups."""
        return self.old_max != self.new_max

    @property
    def reverses(self) -> bool:
        """Whether rows become blobs."""
        return any(rules.reverse for rules in self.rules)

    @property
    def new_states(self) -> dict[str, KeyedState]:
        """The states that are made, by name: the new states or, in reverse, the legacy states."""
        return {rules.made_name: rules.legacy if rules.reverse else new_state(rules) for rules in self.rules}

    @property
    def entry_states(self) -> dict[str, KeyedState]:
        """Map states whose rows are the entries of the states that are made, by the names of these."""
        return {rules.made_name: new_state(rules) for rules in self.rules}

    @property
    def left_behind(self) -> set[str]:
        """The names of states that the new savepoint doesn't have."""
        if self.keep_legacy:
            return set()
        whole = [rules for rules in self.rules if rules.lazy_cut is None and not rules.keeps_rest]
        return {
            name
            for rules in whole
            for name in (rules.new_name if rules.reverse else rules.legacy.name, rules.flag_name)
            if name is not None
        }

    @property
    def flags(self) -> dict[str, KeyedState]:
        """The flag states that a lazy run sets, by name."""
        return {rules.lazy_cut.flag.name: rules.lazy_cut.flag for rules in self.rules if rules.lazy_cut is not None}

    @property
    def divided(self) -> set[str]:
        """The names of legacy states and flags of which a lazy run changes a part."""
        return {rules.legacy.name for rules in self.rules if rules.lazy_cut is not None} | self.flags.keys()

    @property
    def rests(self) -> set[str]:
        """The names of legacy states that stay as POJOs without their maps."""
        return {rules.legacy.name for rules in self.rules if rules.keeps_rest}

    @property
    def is_lazy(self) -> bool:
        """Whether some keys stay in their blobs."""
        return bool(self.flags)

    def of_staged(self) -> OperatorConversion:
        """What a run that moves all keys would make of the new savepoint."""
        rules = tuple(replace(one, lazy_cut=None) for one in self.rules)
        return OperatorConversion(rules, self.expected_states, False, self.new_max, self.new_max)

    @property
    def expected_states(self) -> dict[str, KeyedState]:
        """All states that the new savepoint must have, by name."""
        behind = self.left_behind
        carried = {name: state for name, state in self.states.items() if name not in behind}
        return carried | self.flags | self.new_states


def new_state(rules: Rules) -> KeyedState:
    """The map state that a legacy state becomes."""
    legacy, map_ = rules.legacy, rules.map_type
    return KeyedState(
        rules.new_name, StateKind.MAP, legacy.key, legacy.namespace, map_.key, map_.value, legacy.ttl, False
    )


@dataclass(frozen=True, slots=True)
class Conversion:
    """What becomes of the whole savepoint: its layout, and the rules of legacy states by operator id.

    `aging` are, by operator id, the states that aren't migrated and lose what has expired, `by_kryo` those that become
    Kryo 5's. `version` is that of `_metadata`, unless it is the source's; `elements` are the types of
    operator states that become Kryo 5's. `before` are, by operator id, the operators before an upgrade.
    """

    layout: Layout = field(default_factory=Layout)
    rules: Mapping[bytes, tuple[Rules, ...]] = field(default_factory=dict)
    keep_legacy: bool = False
    aging: Mapping[bytes, tuple[PlannedTtl, ...]] = field(default_factory=dict)
    by_kryo: Mapping[bytes, Mapping[str, KeyedState]] = field(default_factory=dict)
    version: int | None = None
    elements: Mapping[bytes, Mapping[str, FlinkType]] = field(default_factory=dict)
    before: Mapping[bytes, BeforeUpgrade] = field(default_factory=dict)

    def of(self, source: Savepoint, operator: Operator) -> OperatorConversion:
        """What becomes of one operator."""
        states = {state.name: state for state in source.keyed_states(operator)}
        new = self.layout.of(operator)
        rules = tuple(self.rules.get(operator.id, ()))
        aging = tuple(self.aging.get(operator.id, ()))
        by_kryo = self.by_kryo.get(operator.id, {})
        return OperatorConversion(
            rules, states, self.keep_legacy, operator.max_parallelism, new.max_parallelism, aging, by_kryo,
            self.before.get(operator.id),
        )  # fmt: skip
