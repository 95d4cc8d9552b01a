"""What a plan asks of each operator of its source, and how each gets into the new savepoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flinkstate.metadata.metadata import Metadata
from flinkstate.metadata.savepoint_properties import in_version
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout, OperatorRewrite
from stateferry.changes import rewrites
from stateferry.changes.lazy_cut import LazyCut, Order
from stateferry.changes.operator_changes import Conversion, OperatorChanges
from stateferry.changes.rules import Rules
from stateferry.runs.checks.named_flag import flag_of
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.planned_states import StatePlan
from stateferry.runs.record.step_facts import LazyChoice


@dataclass(frozen=True, slots=True)
class ResolvedPlan:
    """A plan, its source, and what the plan makes of it.

    `migrated_before` are the states that an earlier cut-over has migrated, with their operators.
    """

    plan: MigrationPlan
    source: Savepoint
    conversion: Conversion
    migrated_before: tuple[tuple[OperatorChanges, StatePlan], ...] = ()

    @property
    def layout(self) -> Layout:
        """The layout that the plan asks for."""
        return self.conversion.layout

    @property
    def changes(self) -> tuple[OperatorChanges, ...]:
        """What becomes of each operator of the source."""
        return tuple(self.conversion.operators.values())

    @property
    def operators(self) -> tuple[OperatorChanges, ...]:
        """What becomes of the operators that the plan names, in its order."""
        return tuple(self.conversion.of(self.source.operator(wanted.operator)) for wanted in self.plan.operators)

    @property
    def migrations(self) -> Iterator[tuple[OperatorChanges, Rules]]:
        """Each legacy state that is there, by its rules, with its operator."""
        return ((one, rules) for one in self.operators for rules in one.rules)

    def moving(self, choices: Sequence[LazyChoice]) -> ResolvedPlan:
        """The same plan, moving only the keys that the snapshot of a lazy run has chosen; without choices all keys."""
        by_state = {(one.operator, one.state): one for one in choices}
        changed = {
            one.operator.id: _moving(one, by_state, {state.legacy: state for state in wanted.states})
            for one, wanted in zip(self.operators, self.plan.operators, strict=True)
        }
        operators = {**self.conversion.operators, **changed}
        return replace(self, conversion=replace(self.conversion, operators=operators))

    @property
    def nothing_to_do(self) -> bool:
        """Whether the source is already migrated, and in the layout of the plan."""
        if any(one.rules or one.aging or one.by_kryo or one.elements for one in self.changes):
            return False
        if self.conversion.version != self.source.metadata.version:
            return False
        of_layout = all(self.layout.of(operator) == operator for operator in self.source.metadata.operators)
        return of_layout and not any(
            operator.id in self.layout.native and subtask.managed_keyed is not None
            for operator in self.source.metadata.operators
            for subtask in operator.subtasks
        )

    @property
    def described(self) -> Metadata:
        """The source's `_metadata` in the version of the Flink for which the result is."""
        return in_version(self.source.metadata, self.conversion.version)

    @property
    def what_was_done_before(self) -> str:
        """Says which states an earlier cut-over has migrated."""
        return "; ".join(
            f"{state.legacy} of {one.operator.label} is already migrated: the savepoint has {state.new} alone"
            for one, state in self.migrated_before
        )

    def rewrites(self) -> list[OperatorRewrite]:
        """How each operator gets into the new savepoint; raises an error for what can't be done."""
        return [rewrites.prepare(one, self.source, self.layout) for one in self.changes]


def _moving(
    changes: OperatorChanges, choices: Mapping[tuple[str, str], LazyChoice], plans: Mapping[str, StatePlan]
) -> OperatorChanges:
    """The same, moving only what a lazy run has chosen; `plans` are by legacy state."""
    found = []
    for rules in changes.rules:
        choice, cut = choices.get((changes.operator.hex_id, rules.legacy.name)), None
        if choice is not None and choice.last is not None:
            # Only lazy runs have choices. The plans of others may name a state that is not in the source.
            flag = flag_of(plans[rules.legacy.name], changes.states)
            # It has the keys that the legacy state has when it is migrated.
            flag = None if flag is None else replace(flag, key=rules.legacy.key)
            cut = None if flag is None else LazyCut(Order(choice.order), choice.last, flag)
        found.append(replace(rules, lazy_cut=cut))
    return replace(changes, rules=tuple(found))
