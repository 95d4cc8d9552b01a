"""What a run makes of a savepoint's state: what is asked, by names, types and times to live.

The writers and the validation go by the same. It holds no code that rewrites an entry: how each kind of change is
written stands in `rewrites.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType
from flinkstate.writing.operator_rewrite import Layout
from stateferry.basics.state_ref import StateRef
from stateferry.changes.rules import PlannedTtl, Rules
from stateferry.changes.upgrade.before_upgrade import BeforeUpgrade
from stateferry.changes.upgrade.kryo_keys import as_written, has_other_hashes


@dataclass(frozen=True, slots=True)
class OperatorChanges:
    """What becomes of one operator; `states` are all its keyed states in the source, by name.

    `rules` are for each legacy state that is there, `ttls` for states that aren't migrated and have a time to live in
    the plan. Keyed states `by_kryo` and operator states with these `elements` are written as the Kryo of another Flink
    does; `before` is what they were before an upgrade. With `copies_nothing` no file of RocksDB's is copied as it is.
    `keys` is the type of the keys, with the Kryo that wrote them, if these keep their bytes and are hashed anew.
    """

    operator: Operator
    new_max: int
    states: Mapping[str, KeyedState]
    rules: tuple[Rules, ...] = ()
    ttls: tuple[PlannedTtl, ...] = ()
    by_kryo: Mapping[str, KeyedState] = field(default_factory=dict)
    elements: Mapping[str, FlinkType] = field(default_factory=dict)
    before: BeforeUpgrade | None = None
    copies_nothing: bool = False
    keys: FlinkType | None = None

    @classmethod
    def none(cls, source: Savepoint, operator: Operator, layout: Layout | None = None) -> OperatorChanges:
        """No change but that of the layout."""
        states = {state.name: state for state in source.keyed_states(operator)}
        return cls(operator, (layout or Layout()).of(operator).max_parallelism, states)

    def of_key_groups(self, key_groups: KeyGroupRange) -> OperatorChanges:
        """What a task needs that reads these key groups."""
        before = None if self.before is None else self.before.of_key_groups(key_groups)
        # Its files, and its coordinator's state, take megabytes in a large job.
        bare = replace(self.operator, subtasks=(), coordinator=None)
        return replace(self, operator=bare, before=before)

    @property
    def writes_rows(self) -> bool:
        """Whether keyed state is written anew row by row; else RocksDB's files may be copied as they are."""
        return bool(self.states) and bool(self.rules or self.by_kryo or self.copies_nothing)

    def ref(self, state: str) -> StateRef:
        """Which state this is of all of the savepoint."""
        return StateRef(self.operator.hex_id, state)

    @property
    def old_max(self) -> int:
        return self.operator.max_parallelism

    @property
    def rehashes(self) -> bool:
        """Whether keys become others, whose hashes are others than those in the source, which aren't known."""
        return any(map(has_other_hashes, self.by_kryo.values()))

    @property
    def changes_key_groups(self) -> bool:
        """Whether keys get other key groups, by another max parallelism or another hash."""
        return self.rehashes or self.old_max != self.new_max

    @property
    def aging(self) -> dict[str, PlannedTtl]:
        """The states that aren't migrated and lose what has expired, by name."""
        return {one.state.name: one for one in self.ttls if one.drops}

    @property
    def made(self) -> dict[str, KeyedState]:
        """The states that are made, by name: the new states or, in reverse, the legacy states."""
        return {rules.made_name: rules.made for rules in self.rules}

    @property
    def left_behind(self) -> set[str]:
        """The names of states that the new savepoint doesn't have."""
        return {name for rules in self.rules for name in rules.left_behind}

    @property
    def flags(self) -> dict[str, KeyedState]:
        """The flag states that a lazy run sets, by name."""
        return {rules.lazy_cut.flag.name: rules.lazy_cut.flag for rules in self.rules if rules.lazy_cut is not None}

    @property
    def touched(self) -> set[str]:
        """The names of the states that don't stay as they are, or with what has expired left out alone."""
        return {name for rules in self.rules for name in rules.touched}

    @property
    def pojos_without_maps(self) -> set[str]:
        """The names of legacy states that stay as POJOs without their maps."""
        return {rules.legacy.name for rules in self.rules if rules.keeps_rest}

    def of_staged(self) -> OperatorChanges:
        """What a run that moves all keys would make of the new savepoint."""
        rules = tuple(replace(one, lazy_cut=None, keep_legacy=False) for one in self.rules)
        staged = replace(self.operator, max_parallelism=self.new_max)
        return OperatorChanges(staged, self.new_max, self.expected_states, rules)

    @property
    def expected_states(self) -> dict[str, KeyedState]:
        """All states that the new savepoint must have, by name."""
        behind = self.left_behind
        carried = {name: self.written(state) for name, state in self.states.items() if name not in behind}
        return carried | self.flags | self.made

    def written(self, state: KeyedState) -> KeyedState:
        """The state with the keys that it is to have, if these are hashed anew."""
        known = self.by_kryo.get(state.name) if self.changes_key_groups else None
        key = self.keys if known is None else as_written(known.key)
        return state if key is None else replace(state, key=key)


@dataclass(frozen=True, slots=True)
class Conversion:
    """What becomes of a whole savepoint: its layout, its operators by id, and the version of its `_metadata`."""

    layout: Layout
    operators: Mapping[bytes, OperatorChanges]
    version: int

    def of(self, operator: Operator) -> OperatorChanges:
        """What becomes of one operator."""
        return self.operators[operator.id]
