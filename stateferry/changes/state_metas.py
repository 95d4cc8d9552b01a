"""The descriptions of the states that a run makes, in the header of a keyed file, from those of the source's states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flinkstate.errors import PlanError
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    StateMeta,
)
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.built_snapshots import map_snapshot, simple_snapshot, snapshot_of, ttl_snapshot
from flinkstate.serializers.snapshot_classes import TTL_SNAPSHOT
from flinkstate.serializers.snapshots import SerializerSnapshot, field_snapshot
from flinkstate.serializers.type_parts import map_of, object_of
from flinkstate.serializers.types import FlinkType, NullableType, OpaqueType, PojoMapType, Scalar


def new_state_meta(legacy: StateMeta, name: str, stored: FlinkType | None) -> StateMeta:
    """Returns the description of the map state that a `ValueState<Map>` becomes, from the parts of its own.

    `stored` is how the legacy state has its maps: what Kryo wrote is described by the type that is known of it.
    """
    return _made_of(legacy, name, StateKind.MAP, partial(_map_of_stamped, stored=stored))


def legacy_state_meta(new: StateMeta, name: str, old: SerializerSnapshot | None = None) -> StateMeta:
    """Returns the description of the `ValueState<Map>` that a map state becomes, from the parts of its own.

    `old` is the serializer of the old job's values, if its maps aren't by Flink's map serializer.
    """
    return _made_of(new, name, StateKind.VALUE, _stamped_map if old is None else lambda _: old)


def flag_state_meta(legacy: StateMeta, flag: KeyedState) -> StateMeta:
    """Returns the description of a flag state of the same namespaces as the legacy state."""
    namespace = legacy.serializer(NAMESPACE_SERIALIZER)
    if namespace is None:
        raise PlanError(f"state {legacy.name} has no serializer of namespaces")
    boolean = simple_snapshot(Scalar.BOOLEAN)
    return StateMeta(
        flag.name,
        BackendKind.KEY_VALUE,
        ((KEYED_STATE_TYPE, StateKind.VALUE.value),),
        ((VALUE_SERIALIZER, ttl_snapshot(boolean) if flag.ttl else boolean), (NAMESPACE_SERIALIZER, namespace)),
    )


def _made_of(
    source: StateMeta, name: str, kind: StateKind, turned: Callable[[SerializerSnapshot], SerializerSnapshot]
) -> StateMeta:
    """Returns the description of what another state becomes; `turned` makes the value's serializer of the other's."""
    value, namespace = source.serializer(VALUE_SERIALIZER), source.serializer(NAMESPACE_SERIALIZER)
    if value is None or namespace is None:
        raise PlanError(f"state {source.name} has no serializers of value and namespace")
    return StateMeta(
        name,
        BackendKind.KEY_VALUE,
        ((KEYED_STATE_TYPE, kind.value),),
        ((VALUE_SERIALIZER, turned(value)), (NAMESPACE_SERIALIZER, namespace)),
    )


def _map_of_stamped(value: SerializerSnapshot, stored: FlinkType | None) -> SerializerSnapshot:
    """Turns `Ttl<Map<K, V>>` into `Map<K, Ttl<V>>`; a map without time to live stays as it is."""
    if value.class_name != TTL_SNAPSHOT:
        return _described(value, stored)
    user_key, user_value = _described(value.nested[1], stored).nested
    return map_snapshot(user_key, ttl_snapshot(user_value))


def _described(value: SerializerSnapshot, stored: FlinkType | None) -> SerializerSnapshot:
    """Returns the map's own serializer, without those around it and around its keys that store null."""
    if isinstance(stored, PojoMapType) and object_of(stored) is None:
        return _described(field_snapshot(value, stored.field), stored.map)
    match value.type:
        case NullableType():
            key, user_value = value.nested[0].nested
            return map_snapshot(key.nested[0] if isinstance(key.type, NullableType) else key, user_value)
        case OpaqueType() if (map_ := map_of(stored)) is not None:
            return snapshot_of(map_)
    return value


def _stamped_map(value: SerializerSnapshot) -> SerializerSnapshot:
    """Turns `Map<K, Ttl<V>>` into `Ttl<Map<K, V>>`; a map without time to live stays as it is."""
    user_key, user_value = value.nested
    if user_value.class_name != TTL_SNAPSHOT:
        return value
    return ttl_snapshot(map_snapshot(user_key, user_value.nested[1]))
