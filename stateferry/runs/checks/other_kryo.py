"""Which states of the source have values by Kryo 2 that the run writes as Kryo 5 does, because `--to` says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType, simple_name
from flinkstate.writing.operator_file import OperatorHeader, read_operator_header, try_elements
from stateferry.changes.for_kryo_5 import ForKryo5, elements_by_kryo, recoders_of, states_by_kryo
from stateferry.changes.rules import Rules
from stateferry.look.kryo_maps import OF_FLINK_2
from stateferry.runs.checks.declared_collections import as_declared, interfaces_in, told_by_operator, told_in_vain
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


def find_elements_by_kryo(
    plan: MigrationPlan, source: Savepoint, problems: list[str]
) -> dict[bytes, dict[str, FlinkType]]:
    """Returns the types of the operator states to rewrite by operator id and name, and adds a line for what can't be.

    All their elements are written once, to see whether they can be: operator state is small.
    """
    found: dict[bytes, dict[str, FlinkType]] = {}
    if not crosses_to_flink_2(plan, source):
        return found
    for operator in source.metadata.operators:
        for subtask in operator.subtasks:
            if (handle := subtask.managed_operator) is None:
                continue
            header = read_operator_header(source.folder, handle)
            if by_kryo := elements_by_kryo(header, plan.job_classes):
                problems += _not_rewritable_elements(operator, header, by_kryo)
                found[operator.id] = {**by_kryo, **found.get(operator.id, {})}
        if operator.id in found and not problems:
            try_elements(source.folder, operator, ForKryo5({}, found[operator.id]))
    return found


def _not_rewritable_elements(
    operator: Operator, header: OperatorHeader, by_kryo: Mapping[str, FlinkType]
) -> Iterator[str]:
    for name, type_ in by_kryo.items():
        where = f"operator state {name} of operator {operator.label}"
        if header.compressed:
            yield f"{where} is compressed, and has values by Kryo: take a savepoint without compression"
        for one in interfaces_in(type_):
            yield (
                f"{where}: Flink 2 may have a serializer of its own for the {simple_name(one.class_name)} by Kryo in "
                "it, which is not rewritten in operator state"
            )


def _not_rewritable(operator: Operator, states: Iterable[KeyedState]) -> Iterator[str]:
    for state in states:
        try:
            recoders_of(state)
        except RefusedError as error:
            yield f"state {state.name} of operator {operator.label} can't be written for Flink 2: {error}"
