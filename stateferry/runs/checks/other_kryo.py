"""Which states of the source have values by Kryo that the run writes as the Kryo of another Flink, as `--to` says.

In a savepoint of Flink 1 all values by Kryo are by Kryo 2. A job of Flink 2 that was upgraded may have values of both:
what it has not written since is still as Kryo 2 wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from flinkstate.errors import RefusedError
from flinkstate.keyed.header import VALUE_SERIALIZER
from flinkstate.keyed.heap_timers import are_timers
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.metadata.parse_metadata import HOW_TO_TAKE_ONE_WITH_ANY_FLINK
from flinkstate.reading.reader import Savepoint, has_keyed_state
from flinkstate.scala.programs import scala_parts
from flinkstate.serializers.type_parts import has_scala, with_kryo, with_parts
from flinkstate.serializers.types import FlinkType, KryoCollectionType
from flinkstate.writing.operator_file import OperatorHeader, read_operator_header, try_elements
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Rules
from stateferry.changes.upgrade.for_other_kryo import (
    Change,
    ForOtherKryo,
    all_by_kryo_2,
    by_kryo_2,
    elements_by_kryo,
    expect_rewritable,
    expect_values,
    rewrites_keys,
    states_by_kryo,
)
from stateferry.changes.upgrade.kryo_keys import as_written, has_other_hashes, key_type
from stateferry.look.kryo_maps import OF_FLINK_2
from stateferry.runs.checks.before_upgrade import find_before
from stateferry.runs.checks.declarations import Declarations
from stateferry.runs.checks.declared_collections import (
    declared_by_operator,
    declared_in_vain,
    declared_type,
)
from stateferry.runs.checks.declared_keys import as_declared, declared_key, key_of, keys_of
from stateferry.runs.checks.declared_scala import not_from_scala
from stateferry.runs.checks.way_back import WayBack, from_kryo_5, not_for_flink_1
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.upgrade_options import SAME_FLINK
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


def makes_for_flink_2(plan: MigrationPlan, source: Savepoint) -> bool:
    """Whether a job of Flink 2 is to read the result."""
    line = line_of(plan)
    return not _is_of_flink_1(source) if line is None else line is Line.TWO


def _is_of_flink_1(source: Savepoint) -> bool:
    """Whether Kryo 2 wrote all values by Kryo. A job of Flink 2 may have been upgraded, and have values of both."""
    return source.metadata.version < OF_FLINK_2


def with_other_kryo(
    plan: MigrationPlan, source: Savepoint, operators: Mapping[bytes, OperatorChanges], problems: list[str]
) -> dict[bytes, OperatorChanges]:
    """Adds what is written as another Kryo does to the changes, and a line to `problems` for what can't be."""
    rules = {id_: one.rules for id_, one in operators.items()}
    states, elements = _states(plan, source, rules, problems), _elements(plan, source, problems)
    is_back = is_way_back(plan, source)
    before = find_before(plan, source, states, rules, is_back, problems)
    return {
        id_: replace(
            one,
            rules=tuple(_with_new_key(rule, states.get(id_, {})) for rule in one.rules),
            by_kryo=states.get(id_, {}),
            elements=elements.get(id_, {}),
            before=before.get(id_),
            # Flink 1's RocksDB can't read files of Flink 2's.
            copies_nothing=is_back,
        )
        for id_, one in operators.items()
    }


def _with_new_key(rules: Rules, states: Mapping[str, KeyedState]) -> Rules:
    """The rules of a legacy state with the keys that it has when it is migrated."""
    known = states.get(rules.legacy.name)
    if known is None or not has_other_hashes(known):
        return rules
    return replace(rules, legacy=replace(rules.legacy, key=as_written(known.key)))


def _states(
    plan: MigrationPlan, source: Savepoint, rules: Mapping[bytes, Sequence[Rules]], problems: list[str]
) -> dict[bytes, dict[str, KeyedState]]:
    """Returns the states to rewrite, by operator id and name."""
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
    of_operators, stay = declared_by_operator(declared if changes_line else {}, source), plan.keep_legacy or plan.lazy
    back = WayBack.of(plan, source) if line is Line.ONE else None
    found = {}
    for operator in source.keyed_operators():
        gone = {one.legacy.name for one in rules.get(operator.id, ()) if not (stay or one.keeps_rest)}
        of_source = source.keyed_states(operator)
        states = {state.name: state for state in of_source if state.name not in gone}
        of_operator = of_operators.get(operator.id, {})
        if of_operator:
            values = [(state.name, state.value) for state in states.values() if state.value is not None]
            values += _values(source, operator)
            values += () if back is not None else (one for state in of_source for one in keys_of(state))
            problems += declared_in_vain(of_operator, values, operator, back=back is not None)
        if back is not None:
            told = Declarations(operator, of_operator, plan.job_classes, problems)
            states = {name: back.state(one, told) for name, one in states.items()}
        by_kryo = states_by_kryo(states, plan.job_classes)
        if changes_line and of_flink_1:
            # Those with keys by Kryo know the job's classes.
            of_scala = {
                name: state
                for name, state in states.items()
                if any(map(has_scala, (state.key, state.user_key, state.value)))
            }
            by_kryo = of_scala | by_kryo
            # Of maps that are migrated and don't stay, only the keys.
            keys_alone = (replace(state, value=None) for state in of_source if state.name in gone)
            by_kryo |= {state.name: state for state in keys_alone if has_scala(state.key)}
            told = Declarations(operator, of_operator, plan.job_classes)
            by_kryo = {name: as_declared(all_by_kryo_2(state), told) for name, state in by_kryo.items()}
            problems += dict.fromkeys(told.problems)
            legacies = (one.legacy for one in rules.get(operator.id, ()))
            problems += not_from_scala(states.values(), legacies, operator, lazy=plan.lazy)
        if by_kryo:
            found[operator.id] = by_kryo
            problems += _not_rewritable(operator, by_kryo.values(), line)
            migrated = {one.legacy.name for one in rules.get(operator.id, ())}
            of_migrated = [by_kryo[name] for name in sorted(by_kryo.keys() & migrated)]
            problems += (*_changed_twice(operator, of_migrated), *_ranked_otherwise(plan, operator, of_migrated))
    for operator in source.metadata.operators:
        of_others = {} if has_keyed_state(operator) else of_operators.get(operator.id, {})
        if of_others:
            problems += declared_in_vain(of_others, list(_values(source, operator)), operator, back=back is not None)
        problems += _keys_in_raw_state(source, operator, found.get(operator.id, {}).values())
    return found


def _keys_in_raw_state(source: Savepoint, operator: Operator, by_kryo: Iterable[KeyedState]) -> Iterator[str]:
    """Yields a problem if the operator's raw keyed state may have keys or namespaces by Kryo: it is copied as it is.

    Where the states don't say of which type the keys are, timers say it that can be read.
    """
    raw = next((one.raw_keyed for one in operator.subtasks if one.raw_keyed is not None), None)
    if raw is None:
        return
    changes_keys = any(key_type(state) not in (None, state.user_key) for state in by_kryo)
    if changes_keys or not (has_keyed_state(operator) or are_timers(source.folder, raw)):
        yield (
            f"operator {operator.label} has raw keyed state, such as timers on the heap in a checkpoint or in a "
            "savepoint from before Flink 1.13, whose keys or namespaces may be by Kryo: they would stay as they are. "
            f"Canonical savepoints have timers as a state; {HOW_TO_TAKE_ONE_WITH_ANY_FLINK}"
        )


def _ranked_otherwise(plan: MigrationPlan, operator: Operator, states: Iterable[KeyedState]) -> Iterator[str]:
    """Yields a problem for each state whose keys have other ranks in the savepoint than among the rewritten bytes.

    A lazy run's snapshot ranks the former, and the writers the latter.
    """
    for state in states if plan.lazy else ():
        if rewrites_keys(state) or plan.largest_first:
            what, option = ("keys", "--lazy") if rewrites_keys(state) else ("sizes", "--largest-first")
            yield (
                f"state {state.name} of operator {operator.label}: a lazy run goes by {what} that --to changes: leave "
                f"{option} out, or migrate the result in another run"
            )


def _elements(plan: MigrationPlan, source: Savepoint, problems: list[str]) -> dict[bytes, dict[str, FlinkType]]:
    """Returns the types of the operator states to rewrite, by operator id and name.

    All their elements are written once, to see whether they can be: operator state is small.
    """
    found: dict[bytes, dict[str, FlinkType]] = {}
    line, of_flink_1 = line_of(plan), _is_of_flink_1(source)
    # A job of Flink 2 has read all operator state at its start, and written it anew.
    if line is None or (line is Line.ONE) == of_flink_1:
        return found
    of_operators = declared_by_operator(plan.declared or {}, source)
    back = None if of_flink_1 else WayBack.of(plan, source)
    for operator in source.metadata.operators:
        told = Declarations(operator, of_operators.get(operator.id, {}), plan.job_classes)
        these, (change, of_keys) = told.problems, _as_declared(back, told)
        for header in operator_headers(source, operator):
            by_kryo = {
                name: with_kryo(type_, by_kryo_2) if of_flink_1 else from_kryo_5(type_)
                for name, type_ in elements_by_kryo(header, plan.job_classes, change, of_keys).items()
            }
            these += _not_for_flink_1(operator, header, by_kryo) if back else ()
            these += _not_written(operator, by_kryo, line)
            if by_kryo:
                found[operator.id] = {**by_kryo, **found.get(operator.id, {})}
        problems += dict.fromkeys(these)
        if operator.id in found and not problems:
            try_elements(source.folder, operator, ForOtherKryo({}, found[operator.id]))
    return found


def _as_declared(back: WayBack | None, declared: Declarations) -> tuple[Change, Change]:
    """Returns what makes of an operator state's type, and of the type of a broadcast state's keys, what it then is."""

    def change(name: str, type_: FlinkType) -> FlinkType:
        if back is not None:
            return back.type(type_, name, declared)
        return declared_type(with_kryo(type_, by_kryo_2), name, declared)

    def of_keys(name: str, type_: FlinkType) -> FlinkType:
        if back is not None:
            return type_
        return declared_key(with_kryo(type_, by_kryo_2), key_of(name), declared)

    return change, of_keys


def operator_headers(source: Savepoint, operator: Operator) -> Iterator[OperatorHeader]:
    """Yields what the operator state of each subtask is described by."""
    for subtask in operator.subtasks:
        if subtask.managed_operator is not None:
            yield read_operator_header(source.folder, subtask.managed_operator)


def _values(source: Savepoint, operator: Operator) -> Iterator[tuple[str, FlinkType]]:
    """Yields the operator states' names and types of elements, of broadcast states those of keys and values."""
    for header in operator_headers(source, operator):
        for meta in header.lists:
            yield from ((meta.name, one.type) for _, one in meta.serializers)
        for meta in header.broadcasts:
            for name, one in meta.serializers:
                yield meta.name if name == VALUE_SERIALIZER else key_of(meta.name), one.type


def _not_for_flink_1(operator: Operator, header: OperatorHeader, by_kryo: Mapping[str, FlinkType]) -> Iterator[str]:
    for meta in (*header.lists, *header.broadcasts):
        where = f"operator state {meta.name} of operator {operator.label}"
        types = [by_kryo[meta.name]] if meta.name in by_kryo else [one.type for _, one in meta.serializers]
        yield from (f"{where}: {problem}" for type_ in types for problem in not_for_flink_1(type_))


def _not_written(operator: Operator, by_kryo: Mapping[str, FlinkType], line: Line) -> Iterator[str]:
    for name, type_ in by_kryo.items():
        try:
            if not scala_parts(type_):
                expect_values(type_)
        except RefusedError as error:
            where = f"operator state {name} of operator {operator.label}"
            yield f"{where} can't be written for Flink {line.number}: {error}"


def _changed_twice(operator: Operator, states: Iterable[KeyedState]) -> Iterator[str]:
    """Yields the migrated states that stay with another serializer: their maps would be read as what they become."""
    for state in states:
        if state.value is not None and any(isinstance(one, KryoCollectionType) for one in with_parts(state.value)):
            yield (
                f"state {state.name} of operator {operator.label} is migrated, and what stays of it (--keep-legacy, "
                "--lazy or --rest keep) would get another serializer in the same run: leave --to out, and give the "
                "result to another run with --to alone"
            )


def _not_rewritable(operator: Operator, states: Iterable[KeyedState], line: Line) -> Iterator[str]:
    for state in states:
        try:
            expect_rewritable(state)
        except RefusedError as error:
            yield f"state {state.name} of operator {operator.label} can't be written for Flink {line.number}: {error}"
