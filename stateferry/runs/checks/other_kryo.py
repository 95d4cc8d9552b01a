"""Which states of the source have values by Kryo 2 that the run writes as Kryo 5 does, because `--to` says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from stateferry.changes.for_kryo_5 import recoders_of, states_by_kryo
from stateferry.changes.rules import Rules
from stateferry.look.kryo_maps import OF_FLINK_2
from stateferry.runs.checks.declared_collections import as_declared, told_by_operator, told_in_vain
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.run_options import SAME_FLINK
from stateferry.verdict.versions import Line, target_of

# The version of `_metadata` that Flink 2 writes. Flink 1 refuses it, so that it can't misread what Kryo 5 has written.
METADATA_OF_FLINK_2 = 6


def crosses_to_flink_2(plan: MigrationPlan, source: Savepoint) -> bool:
    """Whether the source is of Flink 1, and the result is for Flink 2."""
    return plan.to != SAME_FLINK and target_of(plan.to) is Line.TWO and source.metadata.version < OF_FLINK_2


def find_states_by_kryo(
    plan: MigrationPlan, source: Savepoint, rules: Mapping[bytes, Iterable[Rules]], problems: list[str]
) -> dict[bytes, dict[str, KeyedState]]:
    """Returns the states to rewrite by operator id and name, and adds a line to `problems` for what can't be.

    `rules` are those of migrated states.
    """
    declared = plan.declared or {}
    if not crosses_to_flink_2(plan, source):
        problems += (
            f"--declared {name} is for a savepoint of Flink 1 and --to flink-2: leave it out" for name in declared
        )
        return {}
    told, stay = told_by_operator(declared, source), plan.keep_legacy or plan.lazy
    found = {}
    for operator in source.keyed_operators():
        gone = {one.legacy.name for one in rules.get(operator.id, ()) if not (stay or one.keeps_rest)}
        states = {state.name: state for state in source.keyed_states(operator) if state.name not in gone}
        by_kryo, of_operator = states_by_kryo(states, plan.job_classes), told.get(operator.id, {})
        problems += told_in_vain(of_operator, by_kryo.values(), operator)
        if by_kryo:
            made = [as_declared(state, of_operator, plan.job_classes, operator, problems) for state in by_kryo.values()]
            found[operator.id] = {state.name: state for state in made}
            problems += _not_rewritable(operator, made)
    return found


def _not_rewritable(operator: Operator, states: Iterable[KeyedState]) -> Iterator[str]:
    for state in states:
        try:
            recoders_of(state)
        except RefusedError as error:
            yield f"state {state.name} of operator {operator.label} can't be written for Flink 2: {error}"
