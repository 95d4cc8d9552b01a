"""How the old job stores a legacy state, by a savepoint of that job: what a run in reverse gives back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from flinkstate.errors import RefusedError
from flinkstate.keyed.header import VALUE_SERIALIZER
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.kryo.class_finder import map_type_of
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.kryo.places_in_maps import ROOT
from flinkstate.kryo.writing import WRITTEN_AS, kryo_form
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import map_of
from flinkstate.serializers.types import KryoMapType, KryoType, MapType, NullableType, type_name
from stateferry.changes.rules import OldForm
from stateferry.look.kryo_maps import OF_FLINK_2
from stateferry.runs.checks.kryo_maps import first_maps
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.planned_states import StatePlan
from stateferry.runs.record.run_list import readable_runs
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts

# A MapState has no order, so a map may lose it. One without entries doesn't come back.
_WRITTEN = frozenset({*WRITTEN_AS.values(), "java.util.Collections$EmptyMap", "null"})


def old_state(
    plan: MigrationPlan, operator: Operator, name: str, made: KeyedState, *, of_flink_2: bool
) -> tuple[KeyedState, OldForm] | None:
    """Returns the state that rows become, with its form; None if it is a map by Flink's map serializer.

    `made` is the state that they become without a savepoint to go by. `of_flink_2` says which Flink the rows are of.
    """
    assert plan.like is not None
    source = Savepoint.open(plan.like, files_from=plan.files_from)
    there = next((one for one in source.metadata.operators if one.id == operator.id), None)
    header = source.keyed_header(there) if there is not None else None
    states = {one.name: one for one in source.keyed_states(there)} if there is not None else {}
    old = states.get(name)
    if there is None or header is None or old is None or old.kind is not StateKind.VALUE:
        raise RefusedError(f"{source.folder.shown} has no ValueState {name} of operator {operator.label}: name another")
    serializer = next(meta for meta in header.states if meta.name == name).serializer(VALUE_SERIALIZER)
    assert serializer is not None
    where = f"state {name} of operator {operator.label}"
    five = source.metadata.version >= OF_FLINK_2
    if replace(old, value=made.value) != made:
        raise RefusedError(f"{where} has another key, namespace or TTL in {source.folder.shown} than the rows")
    if five != of_flink_2 and not isinstance(old.value, MapType):
        one, other = (f"Flink {2 if two else 1}" for two in (five, of_flink_2))
        raise RefusedError(
            f"{where} can't go back to the old job: {source.folder.shown} is of {one} and the savepoint with the rows "
            f"of {other}, which stores such maps otherwise: name a savepoint that the old job has taken in {other}"
        )
    if isinstance(old.value, KryoType):
        assert made.map_type is not None
        type_ = KryoMapType(old.value.class_name, old.value.reason, old.value, made.map_type)
        try:
            kryo_form(type_, five=five)
            first = first_maps(source, there, old, old.value)
            for found in (first, *_all_maps(plan, name, operator)):
                _expect_same(found, made)
            if first.kryo.get("5") and not five:
                raise RefusedError(
                    "some are by Kryo 5 although _metadata is of Flink 1, so it isn't known which Kryo reads them"
                )
        except RefusedError as error:
            raise RefusedError(f"{where} can't go back to the old job, whose maps are by Kryo: {error}") from None
        return replace(made, value=type_), OldForm(serializer, five)
    if map_of(old.value) != made.map_type:
        of_old = type_name(old.value) if old.value is not None else "another type"
        raise RefusedError(f"{where} is a {of_old} in {source.folder.shown}; the rows become a {made.type_name}")
    if not isinstance(old.value, NullableType):
        return None
    if not _has_nullable_keys(old.value):
        raise RefusedError(
            f"{where} can't go back to the old job: its maps in {source.folder.shown} are nullable, but not of "
            "nullable keys, as Flink 2 makes them, and only such are written"
        )
    return replace(made, value=old.value), OldForm(serializer, five)


def _has_nullable_keys(stored: NullableType) -> bool:
    """Whether a flag stands before each key of a nullable map. Flink 2 writes it, and a job's own type may not."""
    return isinstance(stored.value, MapType) and isinstance(stored.value.key, NullableType)


def how_declared(plan: MigrationPlan, state: StatePlan, operator: Operator) -> Iterator[str]:
    """Yields a problem if a run of the job has migrated the state, and the old job didn't declare it by Types.MAP."""
    names = _names(operator, state.legacy)
    for run, facts in _migrations(plan):
        if names & facts.declared_otherwise:
            yield (
                f"the old job doesn't declare {state.legacy} of operator {operator.label} by Types.MAP: so that it "
                f"gets its maps back as it reads them, name a savepoint of it: --like {run.plan.source}"
            )
            return


def _names(operator: Operator, legacy: str) -> set[tuple[str, str]]:
    """What runs call the state: a savepoint before version 5 knows operators by their ids alone."""
    return {(name, legacy) for name in (operator.label, operator.hex_id)}


def _migrations(plan: MigrationPlan) -> Iterator[tuple[Run, SnapshotFacts]]:
    """Yields the published migrations of the job, the newest first, with what their sources hold."""
    for run in readable_runs(plan.home, plan.job, (RunState.PUBLISHED,)):
        facts = None if run.plan.reverse else run.facts(SnapshotFacts)
        if facts is not None:
            yield run, facts


def _all_maps(plan: MigrationPlan, legacy: str, operator: Operator) -> tuple[FoundClasses, ...]:
    """Returns the classes in all maps that the newest migration has read of the state; nothing if there was none."""
    names = _names(operator, legacy)
    maps = (one for _, facts in _migrations(plan) for one in facts.kryo or ())
    return tuple(islice((one.classes for one in maps if (one.operator, one.state) in names), 1))


def _expect_same(found: FoundClasses, made: KeyedState) -> None:
    """Refuses rows of another type than the old job's maps have, and maps of other classes than are written."""
    if not found.entries:
        return
    if (of_old := map_type_of(found)) != made.map_type:
        raise RefusedError(f"they are {type_name(of_old)}, and the rows become {made.type_name}")
    if other := next((one for one in found.classes[ROOT] if one not in _WRITTEN), None):
        raise RefusedError(
            f"some of them are {other}, and only a HashMap or LinkedHashMap is written: what else there is in a map "
            "of another class isn't in the rows"
        )
