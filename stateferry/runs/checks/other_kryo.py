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
from flinkstate.serializers.type_parts import has_scala, kept_by_kryo, map_of, object_of, with_kryo, with_parts
from flinkstate.serializers.type_text import type_text
from flinkstate.serializers.types import (
    FlinkType,
    KryoCollectionType,
    KryoMapType,
    KryoType,
    MapType,
    PojoMapType,
    PojoType,
)
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
    states_by_kryo,
)
from stateferry.changes.upgrade.kryo_keys import as_written, key_type
from stateferry.look.kryo_maps import OF_FLINK_2
from stateferry.runs.checks.before_upgrade import find_before
from stateferry.runs.checks.declarations import Declarations
from stateferry.runs.checks.declared_collections import (
    declared_by_operator,
    declared_in_vain,
    declared_type,
)
from stateferry.runs.checks.declared_keys import as_declared, declared_key, key_of, keys_of
from stateferry.runs.checks.declared_scala import namespaces_from_scala
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
            rules=tuple(_as_written(rule, states.get(id_, {})) for rule in one.rules),
            by_kryo=states.get(id_, {}),
            elements=elements.get(id_, {}),
            before=before.get(id_),
            # Flink 1's RocksDB can't read files of Flink 2's.
            copies_nothing=is_back,
        )
        for id_, one in operators.items()
    }


def _as_written(rules: Rules, states: Mapping[str, KeyedState]) -> Rules:
    """The rules of a legacy state with the keys and maps that it has when it is migrated."""
    legacy, known = rules.legacy, states.get(rules.legacy.name)
    if known is None:
        return rules
    made = replace(legacy, key=as_written(known.key), value=_map_as_written(legacy.value, known.value))
    named = {name: one for name, one in states.items() if name in rules.names}
    return replace(rules, legacy=made, stored=legacy, by_kryo=named)


def _map_as_written(stored: FlinkType | None, rewritten: FlinkType | None) -> FlinkType | None:
    """Returns how maps are stored when the values around them are written anew."""
    if stored is None or rewritten is None:
        return stored
    made = as_written(rewritten)
    if isinstance(stored, PojoMapType):
        inner = rewritten
        if isinstance(rewritten, PojoType):
            inner = next(one.type for one in rewritten.fields if one.name == stored.field)
        map_ = _map_as_written(stored.map, inner)
        assert isinstance(made, PojoType | KryoType)
        assert map_ is not None
        return replace(stored, pojo=made, map=map_)
    if isinstance(stored, KryoMapType) and map_of(made) is None:
        map_ = as_written(stored.map)
        assert isinstance(map_, MapType)
        return replace(stored, map=map_)
    return made


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
    has_pojos = _has_pojos(source) if declared else False
    found = {}
    for operator in source.keyed_operators():
        gone = {one.legacy.name for one in rules.get(operator.id, ()) if not (stay or one.keeps_rest)}
        of_source = source.keyed_states(operator)
        states = {state.name: state for state in of_source if state.name not in gone}
        of_operator = of_operators.get(operator.id, {})
        migrated = [
            _to_migrate(one).with_classes(plan.job_classes)
            for one in rules.get(operator.id, ())
            if one.legacy.name in gone
        ]
        if of_operator:
            of_values = (*states.values(), *(() if back else migrated))
            values = [(state.name, state.value) for state in of_values if state.value is not None]
            values += _values(source, operator)
            values += () if back is not None else (one for state in of_source for one in keys_of(state))
            problems += declared_in_vain(of_operator, values, operator, back=back is not None)
        if back is not None:
            told = Declarations(operator, of_operator, plan.job_classes, problems)
            states = {name: back.state(one, told) for name, one in states.items()}
        by_kryo = states_by_kryo(states, plan.job_classes)
        if changes_line and of_flink_1:
            # Those with keys by Kryo know the job's classes.
            of_scala = {state.name: state for state in (*states.values(), *migrated) if _has_scala_parts(state)}
            by_kryo = of_scala | by_kryo
            by_kryo |= {state.name: state for state in migrated if state.value is not None}
            told = Declarations(operator, of_operator, plan.job_classes, has_pojos=has_pojos)
            by_kryo = {name: as_declared(all_by_kryo_2(state), told) for name, state in by_kryo.items()}
            problems += dict.fromkeys(told.problems)
            problems += namespaces_from_scala(of_source, operator)
        if by_kryo:
            found[operator.id] = by_kryo
            problems += _not_rewritable(operator, by_kryo.values(), line)
            problems += _not_migrated(plan, operator, rules.get(operator.id, ()), by_kryo)
    for operator in source.metadata.operators:
        of_others = {} if has_keyed_state(operator) else of_operators.get(operator.id, {})
        if of_others:
            problems += declared_in_vain(of_others, list(_values(source, operator)), operator, back=back is not None)
        problems += _keys_in_raw_state(source, operator, found.get(operator.id, {}).values())
    return found


def _has_pojos(source: Savepoint) -> bool:
    """Whether Flink's own serializer writes POJOs of the keyed state, and so all POJOs of the job."""
    states = (state for operator in source.keyed_operators() for state in source.keyed_states(operator))
    types = (type_ for state in states for type_ in (state.key, state.user_key, state.value) if type_ is not None)
    return any(isinstance(part, PojoType) for type_ in types for part in with_parts(type_))


def _has_scala_parts(state: KeyedState) -> bool:
    return any(map(has_scala, (state.key, state.user_key, state.value)))


def _not_migrated(
    plan: MigrationPlan, operator: Operator, rules: Sequence[Rules], by_kryo: Mapping[str, KeyedState]
) -> Iterator[str]:
    for one in rules:
        if (known := by_kryo.get(one.legacy.name)) is not None:
            yield from _changed_twice(operator, one, known)
            yield from _ranked_otherwise(plan, operator, known)


def _to_migrate(rules: Rules) -> KeyedState:
    """A legacy state of which nothing stays but rows; without values if nothing in its maps is written anew."""
    legacy, value = rules.legacy, rules.legacy.value
    if object_of(value) is not None or not (kept_by_kryo(rules.map_type) or has_scala(rules.map_type)):
        return replace(legacy, value=None)
    if isinstance(value, PojoMapType):
        assert isinstance(value.pojo, PojoType)
        parts = (replace(one, type=value.map) if one.name == value.field else one for one in value.pojo.fields)
        value = replace(value.pojo, fields=tuple(parts))
    return replace(legacy, value=value)


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


def _ranked_otherwise(plan: MigrationPlan, operator: Operator, state: KeyedState) -> Iterator[str]:
    """Yields a problem if values have other ranks than those that are written anew, which plain code doesn't know."""
    if plan.lazy and plan.largest_first and state.value and (kept_by_kryo(state.value) or has_scala(state.value)):
        yield (
            f"state {state.name} of operator {operator.label}: a lazy run goes by sizes that --to changes: leave "
            "--largest-first out, or migrate the result in another run"
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
    has_pojos = _has_pojos(source) if of_operators else False
    for operator in source.metadata.operators:
        told = Declarations(operator, of_operators.get(operator.id, {}), plan.job_classes, has_pojos=has_pojos)
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


def _changed_twice(operator: Operator, rules: Rules, state: KeyedState) -> Iterator[str]:
    """Yields a problem if what stays of a migrated state gets another serializer, by which its maps aren't read."""
    collections = [one for one in with_parts(state.value) if isinstance(one, KryoCollectionType)] if state.value else []
    where = f"state {rules.legacy.name} of operator {operator.label} is migrated, and what stays of it (--keep-legacy, "
    if not all(one.kryo.for_five for one in collections):
        yield (
            f"{where}--lazy or --rest keep) would get another serializer in the same run: leave --to out, and give the "
            "result to another run with --to alone"
        )
    elif collections and (made := map_of(_map_as_written(rules.legacy.value, state.value))) is not None:
        told, found = type_text(made), type_text(rules.map_type)
        if told != found:
            yield f"{where}--lazy or --rest keep) is a {told} by --declared, but its maps are {found}: say the same"


def _not_rewritable(operator: Operator, states: Iterable[KeyedState], line: Line) -> Iterator[str]:
    for state in states:
        try:
            expect_rewritable(state)
        except RefusedError as error:
            yield f"state {state.name} of operator {operator.label} can't be written for Flink {line.number}: {error}"
