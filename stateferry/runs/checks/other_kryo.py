"""Which states of the source have values by Kryo 2 that the run writes as Kryo 5 does, because `--to` says so.

In a savepoint of Flink 1 all values by Kryo are. A job of Flink 2 that was upgraded may have values of both: what it
has not written since is still as Kryo 2 wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import (
    FlinkType,
    KryoCollectionType,
    KryoType,
    simple_name,
    with_opaque,
    with_parts,
)
from flinkstate.writing.operator_file import OperatorHeader, read_operator_header, try_elements
from stateferry.changes.rules import Rules
from stateferry.changes.upgrade.for_kryo_5 import ForKryo5, elements_by_kryo, expect_rewritable, states_by_kryo
from stateferry.look.kryo_maps import OF_FLINK_2
from stateferry.runs.checks.declared_collections import (
    as_declared,
    declared_by_operator,
    declared_in_vain,
    interfaces_in,
)
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.run_options import SAME_FLINK
from stateferry.verdict.versions import Line, target_of

# The version of `_metadata` that Flink 2 writes. Flink 1 refuses it, so that it can't misread what Kryo 5 has written.
METADATA_OF_FLINK_2 = 6


def is_for_flink_2(plan: MigrationPlan) -> bool:
    """Whether the plan says that the result is for Flink 2."""
    return plan.to != SAME_FLINK and target_of(plan.to) is Line.TWO


def makes_for_flink_2(plan: MigrationPlan, source: Savepoint) -> bool:
    """Whether a job of Flink 2 is to read the result."""
    return is_for_flink_2(plan) or not _is_of_flink_1(source)


def _is_of_flink_1(source: Savepoint) -> bool:
    """Whether Kryo 2 wrote all values by Kryo. A job of Flink 2 may have been upgraded, and have values of both."""
    return source.metadata.version < OF_FLINK_2


def _by_kryo_2(type_: FlinkType) -> FlinkType:
    return with_opaque(type_, lambda part: replace(part, five=False) if isinstance(part, KryoType) else part)


def all_by_kryo_2(state: KeyedState) -> KeyedState:
    user_key, value = (None if part is None else _by_kryo_2(part) for part in (state.user_key, state.value))
    return replace(state, key=_by_kryo_2(state.key), user_key=user_key, value=value)


def find_states_by_kryo(
    plan: MigrationPlan, source: Savepoint, rules: Mapping[bytes, Iterable[Rules]], problems: list[str]
) -> dict[bytes, dict[str, KeyedState]]:
    """Returns the states to rewrite by operator id and name, and adds a line to `problems` for what can't be.

    `rules` are those of migrated states.
    """
    declared, of_flink_1 = plan.declared or {}, _is_of_flink_1(source)
    if not (is_for_flink_2(plan) and of_flink_1):
        problems += (
            f"--declared {name} is for a savepoint of Flink 1 and --to flink-2: leave it out" for name in declared
        )
    if not is_for_flink_2(plan):
        return {}
    of_operators, stay = declared_by_operator(declared if of_flink_1 else {}, source), plan.keep_legacy or plan.lazy
    found = {}
    for operator in source.keyed_operators():
        gone = {one.legacy.name for one in rules.get(operator.id, ()) if not (stay or one.keeps_rest)}
        states = {state.name: state for state in source.keyed_states(operator) if state.name not in gone}
        by_kryo, of_operator = states_by_kryo(states, plan.job_classes), of_operators.get(operator.id, {})
        problems += declared_in_vain(of_operator, by_kryo.values(), operator)
        if by_kryo and of_flink_1:
            by_kryo = {
                name: as_declared(all_by_kryo_2(state), of_operator, plan.job_classes, operator, problems)
                for name, state in by_kryo.items()
            }
        if by_kryo:
            found[operator.id] = by_kryo
            problems += _not_rewritable(operator, by_kryo.values())
            problems += _other_rests(operator, by_kryo, rules.get(operator.id, ()))
    keyed = {operator.id for operator in source.keyed_operators()}
    for operator in source.metadata.operators:
        if operator.id not in keyed:
            problems += declared_in_vain(of_operators.get(operator.id, {}), (), operator)
    return found


def _other_rests(operator: Operator, by_kryo: Mapping[str, KeyedState], rules: Iterable[Rules]) -> Iterator[str]:
    """Yields a problem for each POJO that stays without its map, and has fields that Flink 2 doesn't give to Kryo."""
    for one in rules:
        state = by_kryo.get(one.legacy.name)
        if not one.keeps_rest or state is None or state.value is None:
            continue
        if any(isinstance(part, KryoCollectionType) for part in with_parts(state.value)):
            yield (
                f"state {one.legacy.name} of operator {operator.label}: one run can't both take the map out of its "
                "POJOs and write their fields as Flink 2 does: take it out by a run without --to, and write the "
                "result of that by another one with --to flink-2; or give rest drop"
            )


def find_elements_by_kryo(
    plan: MigrationPlan, source: Savepoint, problems: list[str]
) -> dict[bytes, dict[str, FlinkType]]:
    """Returns the types of the operator states to rewrite by operator id and name, and adds a line for what can't be.

    All their elements are written once, to see whether they can be: operator state is small.
    """
    found: dict[bytes, dict[str, FlinkType]] = {}
    # A job of Flink 2 has read all operator state at its start, and written it anew.
    if not (is_for_flink_2(plan) and _is_of_flink_1(source)):
        return found
    for operator in source.metadata.operators:
        for subtask in operator.subtasks:
            if (handle := subtask.managed_operator) is None:
                continue
            header = read_operator_header(source.folder, handle)
            by_kryo = {name: _by_kryo_2(type_) for name, type_ in elements_by_kryo(header, plan.job_classes).items()}
            if by_kryo:
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
            expect_rewritable(state)
        except RefusedError as error:
            yield f"state {state.name} of operator {operator.label} can't be written for Flink 2: {error}"
