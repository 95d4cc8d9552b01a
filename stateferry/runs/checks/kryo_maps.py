"""What the maps of a legacy state by Kryo are: what the plan says, or else what the first of them show.

No header says of which classes the keys and values of such a map are, but each object bears its class. What is found
here holds for some maps; the snapshot reads all of them as such, and refuses the run at the first object of another
class.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.keyed.stored_maps import map_places
from flinkstate.kryo.class_finder import ClassFinder, map_type_of
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.kryo.to_flink_maps import of_the_job
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import object_field
from flinkstate.serializers.type_text import parse_map_type, type_text
from flinkstate.serializers.types import KryoMapType, KryoType, MapType
from stateferry.runs.checks.field_of_pojo import map_in_field, with_map
from stateferry.runs.checks.other_kryo import makes_for_flink_2
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.planned_states import StatePlan
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.runs import Run

_ENOUGH_ENTRIES = 10_000
_MOST_BYTES = 1 << 30
_TIMESTAMP = 8


def with_known_map(
    state: StatePlan, states: Mapping[str, KeyedState], source: Savepoint, operator: Operator, plan: MigrationPlan
) -> KeyedState:
    """Returns the legacy state with its maps, in a field of it if the plan says so; by Kryo with the type they have."""
    job = plan.job_classes
    legacy = states[state.legacy].with_classes(job)
    kryo = map_in_field(state, legacy)
    if not isinstance(kryo, KryoType) or legacy.kind is not StateKind.VALUE:
        return with_map(state, legacy, kryo)
    if state.map_type is not None:
        map_ = parse_map_type(state.map_type)
    else:
        try:
            map_ = proposed(first_maps(source, operator, with_map(state, legacy, kryo), kryo))
        except RefusedError as error:
            of_rows = _type_of_rows(states.get(state.new)) or _type_in_base(state, operator, plan)
            if of_rows is None:
                raise RefusedError(
                    f"state {legacy.name} of operator {operator.label} can't be migrated: its maps are by Kryo, "
                    f"and the first of them don't show one type: {error}"
                ) from None
            map_ = of_rows
    map_ = of_the_job(map_, kryo, of_flink_2=makes_for_flink_2(plan, source))
    return with_map(state, legacy, KryoMapType(kryo.class_name, kryo.reason, kryo, map_, state.widen))


def map_contradiction(state: StatePlan, legacy: KeyedState, operator: Operator) -> Iterator[str]:
    """Yields a problem if the plan says another type of a map that the savepoint describes."""
    if state.map_type is not None and legacy.map_type is not None and state.map_type != type_text(legacy.map_type):
        yield (
            f"state {legacy.name} of operator {operator.label} is a {type_text(legacy.map_type)}, as the savepoint "
            f"says, not a {state.map_type}: leave --as out"
        )


def _type_of_rows(new: KeyedState | None) -> MapType | None:
    if new is None or new.user_key is None or new.value is None:
        return None
    return MapType(new.user_key, new.value)


def _type_in_base(state: StatePlan, operator: Operator, plan: MigrationPlan) -> MapType | None:
    """The type that the maps have in the result of the run that the plan catches up with, if it does and that is there.

    A job may clear all its maps while it runs. That must not stop a cut-over.
    """
    base = None if plan.since is None else Run.if_there(run_folder(plan.home, plan.job, plan.since))
    if base is None or not base.staged_metadata.is_file():
        return None
    staged = Savepoint.open(base.staged.shown)
    there = next((one for one in staged.metadata.operators if one.id == operator.id), None)
    states = {} if there is None else {one.name: one for one in staged.keyed_states(there)}
    return _type_of_rows(states.get(state.new))


def first_maps(source: Savepoint, operator: Operator, legacy: KeyedState, kryo: KryoType) -> FoundClasses:
    """Returns the classes in the first maps: enough of them to show a type if there are such in the first GiB."""
    finder, read = ClassFinder(kryo, object_field(legacy.value)), 0
    for file in source.open_files(operator):
        ids = {number for number, state in enumerate(file.header.states) if state.name == legacy.name}
        for key_group in file.handle.range:
            for section in file.sections_of(key_group, ids):
                with section.locating():
                    starts = section.value_starts + (_TIMESTAMP if legacy.ttl else 0)
                    finder.add(section.data, *map_places(legacy.value, section.data, starts, section.ends))
                read += 0 if file.has_places else int((section.ends - section.starts).sum())
                if finder.entries >= _ENOUGH_ENTRIES and _show_type(found := finder.found()):
                    return found
            # What is read of other states in a canonical file takes its time too.
            read += file.size_of(key_group) if file.has_places else 0
            if read > _MOST_BYTES:
                return finder.found()
    return finder.found()


def _show_type(found: FoundClasses) -> bool:
    """Whether no more maps need to be looked at. Perhaps all values were null so far."""
    try:
        map_type_of(found)
    except RefusedError:
        return bool(found.foreign)
    return True


def proposed(found: FoundClasses) -> MapType:
    """Returns the type that all maps have, or raises `RefusedError` with the reason and what can be done."""
    try:
        return map_type_of(found)
    except RefusedError as error:
        if found.foreign:
            raise
        try:
            wide = type_text(map_type_of(found, widen=True))
        except RefusedError:
            raise RefusedError(
                f"{error}. If you know the type of all maps, give it, such as --as 'Map<String, Long>'"
            ) from None
        raise RefusedError(f"{error}. To make all of them the widest, give --as {shlex.quote(wide)} --widen") from None
