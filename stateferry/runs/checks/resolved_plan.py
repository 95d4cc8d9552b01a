"""What a plan asks of each operator of its source, and how each gets into the new savepoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Metadata, Operator
from flinkstate.metadata.savepoint_properties import in_version
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType
from flinkstate.writing.operator_rewrite import Copy, Layout, OperatorRewrite, Rewrite, Transform
from stateferry.changes.blobs_to_rows import BlobsToRows
from stateferry.changes.drop_expired import DropExpired
from stateferry.changes.lazy_cut import LazyCut, Order
from stateferry.changes.rows_to_blobs import RowsToBlobs
from stateferry.changes.rules import PlannedTtl, Rules
from stateferry.changes.upgrade.before_upgrade import BeforeUpgrade
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo
from stateferry.changes.upgrade.restore_lost import WithLosses
from stateferry.runs.checks.lazy_flag import flag_of
from stateferry.runs.checks.other_kryo import is_way_back, metadata_version
from stateferry.runs.checks.wanted_layout import wanted_layout
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.planned_states import StatePlan
from stateferry.runs.record.step_facts import LazyChoice


@dataclass(frozen=True, slots=True)
class ResolvedOperator:
    """What the plan asks of one operator.

    `rules` are for each legacy state that is there. `migrated_before` are the states that an earlier cut-over has
    migrated. `states` are all keyed states of the operator by name.
    """

    operator: Operator
    states: dict[str, KeyedState]
    rules: tuple[Rules, ...]
    migrated_before: tuple[StatePlan, ...]

    def moving(self, choices: Mapping[tuple[str, str], LazyChoice], plans: Mapping[str, StatePlan]) -> ResolvedOperator:
        """The same, moving only what a lazy run has chosen; `plans` are by legacy state."""
        return replace(self, rules=tuple(self._moving(rules, choices, plans) for rules in self.rules))

    def _moving(
        self, rules: Rules, choices: Mapping[tuple[str, str], LazyChoice], plans: Mapping[str, StatePlan]
    ) -> Rules:
        choice = choices.get((self.operator.hex_id, rules.legacy.name))
        if choice is None or choice.last is None:
            return replace(rules, lazy_cut=None)
        # Only lazy runs have choices. The plans of others may name a state that is not in the source.
        flag = flag_of(plans[rules.legacy.name], self.states)
        if flag is None:
            return replace(rules, lazy_cut=None)
        return replace(rules, lazy_cut=LazyCut(Order(choice.order), choice.last, flag))

    def migrated(self) -> Iterator[tuple[str, Rules]]:
        """Yields the name of each state that takes part in a migration, with its rules."""
        for rules in self.rules:
            yield rules.legacy.name, rules
            yield rules.new_name, rules
            if rules.flag_name is not None:
                yield rules.flag_name, rules


@dataclass(frozen=True, slots=True)
class ResolvedPlan:
    """A plan, its source, and what the plan asks of each operator.

    `native` are the ids of the operators whose keyed state is written as RocksDB's own files. `ttls` are, by operator
    id, the states that aren't migrated and have a time to live in the plan; `by_kryo` those that the run writes as the
    Kryo of another Flink does, `elements` the types of such operator states. `before` are the operators before an
    upgrade. `layout` is what the plan asks for.
    """

    plan: MigrationPlan
    source: Savepoint
    operators: tuple[ResolvedOperator, ...]
    native: frozenset[bytes] = frozenset()
    ttls: Mapping[bytes, tuple[PlannedTtl, ...]] = field(default_factory=dict)
    by_kryo: Mapping[bytes, Mapping[str, KeyedState]] = field(default_factory=dict)
    elements: Mapping[bytes, Mapping[str, FlinkType]] = field(default_factory=dict)
    before: Mapping[bytes, BeforeUpgrade] = field(default_factory=dict)
    # The one that follows from the others: to find it takes a look at every subtask.
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        migrated = [one.operator for one in self.operators]
        object.__setattr__(self, "layout", wanted_layout(self.plan, self.source, migrated, self.native))

    def moving(self, choices: Sequence[LazyChoice]) -> ResolvedPlan:
        """The same plan, moving only the keys that the snapshot of a lazy run has chosen; without choices all keys."""
        by_state = {(one.operator, one.state): one for one in choices}
        operators = (
            one.moving(by_state, {state.legacy: state for state in wanted.states})
            for one, wanted in zip(self.operators, self.plan.operators, strict=True)
        )
        return replace(self, operators=tuple(operators))

    @property
    def nothing_to_do(self) -> bool:
        """Whether the source is already migrated, and in the layout of the plan."""
        if any(one.rules for one in self.operators) or any(self.dropping.values()):
            return False
        if self.by_kryo or self.elements or self.described.version != self.source.metadata.version:
            return False
        of_layout = all(self.layout.of(operator) == operator for operator in self.source.metadata.operators)
        return of_layout and not any(
            operator.id in self.native and subtask.managed_keyed is not None
            for operator in self.source.metadata.operators
            for subtask in operator.subtasks
        )

    @property
    def dropping(self) -> dict[bytes, tuple[PlannedTtl, ...]]:
        """The states that aren't migrated and lose what has expired, by operator id."""
        return {id_: tuple(one for one in ttls if one.drops) for id_, ttls in self.ttls.items()}

    @property
    def described(self) -> Metadata:
        """The source's `_metadata` in the version of the Flink for which the result is."""
        version = metadata_version(self.plan, self.source, rewrites=bool(self.by_kryo or self.elements))
        return in_version(self.source.metadata, version)

    @property
    def what_was_done_before(self) -> str:
        """Says which states an earlier cut-over has migrated."""
        return "; ".join(
            f"{state.legacy} of {one.operator.label} is already migrated: the savepoint has {state.new} alone"
            for one in self.operators
            for state in one.migrated_before
        )

    def rewrites(self) -> list[OperatorRewrite]:
        """How each operator gets into the new savepoint; raises an error for what can't be done."""
        transforms: dict[bytes, Transform] = {
            one.operator.id: self._transform(one) for one in self.operators if one.rules
        }
        for id_, ttls in self.dropping.items():
            if ttls:
                transforms[id_] = DropExpired(transforms.get(id_, Copy()), ttls)
        by_kryo: dict[bytes, Rewrite] = {}
        ids = self.by_kryo.keys() | self.elements.keys()
        if is_way_back(self.plan, self.source):
            # Flink 1's RocksDB can't read files of Flink 2's, so none is copied.
            ids |= {operator.id for operator in self.source.keyed_operators()}
        for id_ in ids:
            rewrite = ForOtherKryo(self.by_kryo.get(id_, {}), self.elements.get(id_, {}))
            before = self.before.get(id_)
            by_kryo[id_] = rewrite if before is None else WithLosses(rewrite, before)
        return [
            OperatorRewrite.prepare(
                self.source, operator, self.layout, transforms.get(operator.id), by_kryo.get(operator.id)
            )
            for operator in self.source.metadata.operators
        ]

    def _transform(self, one: ResolvedOperator) -> BlobsToRows | RowsToBlobs:
        if self.plan.reverse:
            return RowsToBlobs(one.rules)
        return BlobsToRows(one.rules, one.states, self.plan.keep_legacy)
