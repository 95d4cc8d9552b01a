"""Which states of the source have values by Kryo that the run writes as the Kryo of another Flink, as `--to` says.

In a savepoint of Flink 1 all values by Kryo are by Kryo 2. A job of Flink 2 that was upgraded may have values of both:
what it has not written since is still as Kryo 2 wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType, KryoType, kept_by_kryo, simple_name, with_kryo
from flinkstate.writing.operator_file import OperatorHeader, read_operator_header, try_elements
from stateferry.changes.rules import Rules
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo, elements_by_kryo, expect_rewritable, states_by_kryo
from stateferry.look.kryo_maps import OF_FLINK_2
from stateferry.runs.checks.declared_collections import as_declared, interfaces_in, told_by_operator, told_in_vain
from stateferry.runs.checks.way_back import WayBack, from_kryo_5, not_for_flink_1
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.run_options import SAME_FLINK
from stateferry.verdict.versions import Line, target_of

# The version of `_metadata` that each Flink writes. Flink 1 refuses that of Flink 2, and so never misreads Kryo 5.
_METADATA = {Line.ONE: 4, Line.TWO: 6}


def line_of(plan: MigrationPlan) -> Line | None:
    """The Flink for which the result is, None if it is that of the source."""
    return None if plan.to == SAME_FLINK else target_of(plan.to)


def is_way_back(plan: MigrationPlan, source: Savepoint) -> bool:
    """Whether a savepoint of Flink 2 is written for Flink 1."""
    return line_of(plan) is Line.ONE and not _is_of_flink_1(source)


def metadata_version(plan: MigrationPlan, source: Savepoint, *, rewrites: bool) -> int:
    """The version of `_metadata` in the result; `rewrites` says that states are written for another Kryo.

    Flink 2 reads those of Flink 1, but Flink 1 none of Flink 2.
    """
    line = line_of(plan)
    return _METADATA[line] if line is not None and (rewrites or is_way_back(plan, source)) else source.metadata.version


def _is_of_flink_1(source: Savepoint) -> bool:
    """Whether Kryo 2 wrote all values by Kryo. A job of Flink 2 may have been upgraded, and have values of both."""
    return source.metadata.version < OF_FLINK_2


def _by_kryo_2(kryo: KryoType) -> KryoType:
    return replace(kryo, five=False)


def all_by_kryo_2(state: KeyedState) -> KeyedState:
    return state.with_kryo(_by_kryo_2)


def find_states_by_kryo(
    plan: MigrationPlan, source: Savepoint, rules: Mapping[bytes, Iterable[Rules]], problems: list[str]
) -> dict[bytes, dict[str, KeyedState]]:
    """Returns the states to rewrite by operator id and name, and adds a line to `problems` for what can't be.

    `rules` are those of migrated states.
    """
    line, declared, of_flink_1 = line_of(plan), plan.declared or {}, _is_of_flink_1(source)
    changes_line = line is not None and (line is Line.ONE) != of_flink_1
    if not changes_line:
        problems += (
            f"--declared {name} is for a savepoint of one Flink and --to of the other: leave it out"
            for name in declared
        )
    if plan.all_by_kryo_5 and not is_way_back(plan, source):
        problems.append("--all-by-kryo-5 is for a savepoint of Flink 2 and --to flink-1.20: leave it out")
    if line is None or (of_flink_1 and not changes_line):
        return {}
    told, stay = told_by_operator(declared if changes_line else {}, source), plan.keep_legacy or plan.lazy
    back = WayBack.of(plan, source) if line is Line.ONE else None
    found = {}
    for operator in source.keyed_operators():
        gone = {one.legacy.name for one in rules.get(operator.id, ()) if not (stay or one.keeps_rest)}
        states = {state.name: state for state in source.keyed_states(operator) if state.name not in gone}
        of_operator = told.get(operator.id, {})
        problems += told_in_vain(of_operator, states.values(), operator, back=back is not None)
        if back is not None:
            states = {name: back.state(one, of_operator, operator, problems) for name, one in states.items()}
        by_kryo = states_by_kryo(states, plan.job_classes)
        if changes_line and of_flink_1:
            by_kryo = {
                name: as_declared(all_by_kryo_2(state), of_operator, plan.job_classes, operator, problems)
                for name, state in by_kryo.items()
            }
        if by_kryo:
            found[operator.id] = by_kryo
            problems += _not_rewritable(operator, by_kryo.values(), line)
    keyed = {operator.id for operator in source.keyed_operators()}
    for operator in source.metadata.operators:
        if operator.id not in keyed:
            problems += told_in_vain(told.get(operator.id, {}), (), operator)
    return found


def find_elements_by_kryo(
    plan: MigrationPlan, source: Savepoint, problems: list[str]
) -> dict[bytes, dict[str, FlinkType]]:
    """Returns the types of the operator states to rewrite by operator id and name, and adds a line for what can't be.

    All their elements are written once, to see whether they can be: operator state is small.
    """
    found: dict[bytes, dict[str, FlinkType]] = {}
    line, of_flink_1 = line_of(plan), _is_of_flink_1(source)
    # A job of Flink 2 has read all operator state at its start, and written it anew.
    if line is None or (line is Line.ONE) == of_flink_1:
        return found
    for operator in source.metadata.operators:
        for subtask in operator.subtasks:
            if (handle := subtask.managed_operator) is None:
                continue
            header = read_operator_header(source.folder, handle)
            by_kryo = {
                name: with_kryo(type_, _by_kryo_2) if of_flink_1 else from_kryo_5(type_)
                for name, type_ in elements_by_kryo(header, plan.job_classes).items()
            }
            if not of_flink_1:
                problems += _not_for_flink_1(operator, header)
            if by_kryo:
                problems += _not_rewritable_elements(operator, header, by_kryo)
                found[operator.id] = {**by_kryo, **found.get(operator.id, {})}
        if operator.id in found and not problems:
            try_elements(source.folder, operator, ForOtherKryo({}, found[operator.id]))
    return found


def _not_rewritable_elements(
    operator: Operator, header: OperatorHeader, by_kryo: Mapping[str, FlinkType]
) -> Iterator[str]:
    for name, type_ in by_kryo.items():
        where = f"operator state {name} of operator {operator.label}"
        if header.compressed:
            yield f"{where} is compressed, and has values by Kryo: take a savepoint without compression"
        for one in interfaces_in(type_) if any(kryo.for_five for kryo in kept_by_kryo(type_)) else ():
            yield (
                f"{where}: Flink 2 may have a serializer of its own for the {simple_name(one.class_name)} by Kryo in "
                "it, which is not rewritten in operator state"
            )


def _not_for_flink_1(operator: Operator, header: OperatorHeader) -> Iterator[str]:
    for meta in (*header.lists, *header.broadcasts):
        for _, one in meta.serializers:
            yield from (
                f"operator state {meta.name} of operator {operator.label}: {problem}"
                for problem in not_for_flink_1(one.type)
            )


def _not_rewritable(operator: Operator, states: Iterable[KeyedState], line: Line) -> Iterator[str]:
    for state in states:
        try:
            expect_rewritable(state)
        except RefusedError as error:
            yield f"state {state.name} of operator {operator.label} can't be written for Flink {line.number}: {error}"
