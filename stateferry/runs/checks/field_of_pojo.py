"""Checks the field that a plan names, and gives the legacy state the type of the map in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flinkstate.basics.did_you_mean import there_are
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.keyed.state import KeyedState, StateKind, without_end
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo.classes import class_table
from flinkstate.kryo.map_fields import map_fields
from flinkstate.kryo.subclasses import is_a
from flinkstate.metadata.metadata import Operator
from flinkstate.serializers.type_parts import map_of, with_classes
from flinkstate.serializers.type_text import parse_map_type
from flinkstate.serializers.types import FlinkType, KryoType, PojoMapType, PojoType, simple_name, type_name
from stateferry.runs.checks.field_contradictions import other_map
from stateferry.runs.plan.planned_states import StatePlan


def field_problems(state: StatePlan, legacy: KeyedState, operator: Operator, job: JobClasses | None) -> Iterator[str]:
    """Yields why the map can't be taken out of the field that the plan names; `job` are the job's classes."""
    if state.field is None:
        return
    where = f"state {legacy.name} of operator {operator.label}"
    pojo = legacy.value
    if state.map_type is not None and isinstance(pojo, KryoType | PojoType):
        told = parse_map_type(state.map_type)
        yield from (f"{where}: {why}" for why in other_map(told, pojo.class_name, state.field, job, widen=state.widen))
    if legacy.kind is StateKind.VALUE and isinstance(pojo, KryoType):
        yield from (f"{where}: {why}" for why in _problems_of_object(pojo, state.field, job))
        return
    if legacy.kind is not StateKind.VALUE or not isinstance(pojo, PojoType):
        kind = f"a ValueState<{legacy.type_name}>" if legacy.kind is StateKind.VALUE else f"{legacy.kind.value} state"
        yield f"{where} is {kind}, not a ValueState of a POJO as Flink's own serializer writes it: leave --field out"
        return
    fields = {field.name: field.type for field in pojo.fields}
    if state.field not in fields:
        yield f"{where}: {pojo.class_name} has no field {state.field!r}. {there_are(state.field, fields)}"
        return
    type_ = fields[state.field]
    if map_of(type_) is None and not isinstance(type_, KryoType):
        maps = ", ".join(map_fields(with_classes(pojo, job))) or "none"
        yield (
            f"{where}: field {state.field} is a {type_name(type_)}, not a map. Fields of {pojo.class_name} that are "
            f"maps: {maps}"
        )
        return
    for field in pojo.fields:
        if not isinstance(field.type, KryoType) and (opaque := without_end(field.type)):
            yield (
                f"{where} can't be migrated: field {field.name} of {pojo.class_name} has a part whose end can't be "
                f"found: {opaque[0].class_name} ({opaque[0].reason})"
            )


def _problems_of_object(kryo: KryoType, field: str, job: JobClasses | None) -> Iterator[str]:
    """Yields why the map can't be taken out of objects that Kryo wrote as a whole."""
    whole = f"Kryo wrote the objects of {kryo.class_name} as a whole"
    if job is None:
        yield f"{whole}, so their fields are in the class alone: give the job's jar, --classes job.jar"
        return
    table = class_table(replace(kryo, classes=job))
    own = {known.name for known in table.known if known.name in table.job.parts}
    own = {known.name for known in table.known if known.name in own and is_a(known, kryo.class_name, job)}
    if not own:
        reason = table.job.reasons.get(kryo.class_name, "the jars don't have it")
        yield f"{whole}, and they can't be read: {reason}"
        return
    parts = {part.name: part for name in sorted(own) for part in table.job.parts[name]}
    if field not in parts:
        yield f"{kryo.class_name} has no field {field!r}. {there_are(field, parts)}"
    elif (part := parts[field]).kind != codes.TAGGED_PART:
        named = simple_name(part.class_name) if part.class_name else "number"
        is_map = part.class_name in table.job.collections
        why = "of a final class: a map in such a field isn't taken out" if is_map else f"a {named}, not a map"
        yield f"field {field} of {kryo.class_name} is {why}"


def map_in_field(state: StatePlan, legacy: KeyedState) -> FlinkType | None:
    """Returns the type of the field that the plan names; without one, the type of the values.

    In an object that Kryo wrote as a whole, that is the serializer of the object.
    """
    if state.field is None or not isinstance(legacy.value, PojoType):
        return legacy.value
    return next(field.type for field in legacy.value.fields if field.name == state.field)


def with_map(state: StatePlan, legacy: KeyedState, map_: FlinkType | None) -> KeyedState:
    """Returns the legacy state with the map that its values are, or have in the field."""
    if state.field is None or not isinstance(legacy.value, PojoType | KryoType) or map_ is None:
        return replace(legacy, value=map_)
    pojo = legacy.value
    return replace(legacy, value=PojoMapType(pojo.class_name, "a map in a field", pojo, state.field, map_))
