"""The types in a keyed state's keys and values, without the wrappers of time to live, list and map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    USER_KEY_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.keyed.user_keys import why_no_user_key
from flinkstate.kryo.map_fields import map_fields
from flinkstate.serializers.type_parts import (
    fixed_length,
    kept_by_kryo,
    map_of,
    may_be_of_fixed_length,
    opaque_parts,
    with_classes,
    with_kryo,
)
from flinkstate.serializers.types import (
    FlinkType,
    KryoMapType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    PojoMapType,
    TimerType,
    TtlType,
    type_name,
)


class StateKind(Enum):
    """The kinds of keyed state, by Flink's names in headers; TIMERS is Stateferry's own name."""

    VALUE = "VALUE"
    LIST = "LIST"
    MAP = "MAP"
    REDUCING = "REDUCING"
    AGGREGATING = "AGGREGATING"
    TIMERS = "TIMERS"


@dataclass(frozen=True, slots=True)
class KeyedState:
    """A keyed state of an operator.

    `value` is the type of one value in the job's code: of a map's entry, a list's element or an aggregation's
    accumulator. Timers have no value. Only maps have a `user_key`.
    """

    name: str
    kind: StateKind
    key: FlinkType
    namespace: FlinkType
    user_key: FlinkType | None
    value: FlinkType | None
    ttl: bool
    asynchronous: bool

    @property
    def has_suffixes(self) -> bool:
        """Whether key and namespace are each followed by their length, as Flink does if both vary in length.

        Raises `RefusedError` if only a serializer's own code knows whether they do.
        """
        parts = {"key": self.key, "namespace": self.namespace}
        if self.kind is StateKind.TIMERS or any(fixed_length(part) is not None for part in parts.values()):
            return False
        for place, part in parts.items():
            if may_be_of_fixed_length(part):
                unknown = opaque_parts(part)[0]
                raise RefusedError(
                    f"state {self.name}: its {place} has {unknown.class_name}, {unknown.reason}, so where its keys end "
                    "isn't known"
                )
        return True

    @property
    def stored_value(self) -> FlinkType | None:
        """The type of a value as it is stored: under time to live with its timestamp."""
        return TtlType(self.value) if self.ttl and self.value is not None else self.value

    @property
    def map_type(self) -> MapType | None:
        """The map that each value of a ValueState is, however it is stored; None if it isn't a map."""
        return map_of(self.value) if self.kind is StateKind.VALUE else None

    def with_classes(self, job: JobClasses | None) -> KeyedState:
        """Returns the state, of whose values what is by Kryo may be of the job's classes."""
        return self if self.value is None else replace(self, value=with_classes(self.value, job))

    def with_classes_in_keys(self, job: JobClasses | None) -> KeyedState:
        """As `with_classes`, for keys and user keys too."""
        user_key = None if self.user_key is None else with_classes(self.user_key, job)
        return replace(self.with_classes(job), key=with_classes(self.key, job), user_key=user_key)

    @property
    def for_kryo_5(self) -> bool:
        """Whether what is by Kryo in the state is written for Kryo 5, and not for Kryo 2."""
        parts = (self.key, self.namespace, self.user_key, self.value)
        return all(one.for_five for part in parts if part is not None for one in kept_by_kryo(part))

    def with_kryo(self, change: Callable[[KryoType], KryoType]) -> KeyedState:
        """Returns the state with other serializers by Kryo in its keys, namespaces, user keys and values."""
        user_key, value = (None if one is None else with_kryo(one, change) for one in (self.user_key, self.value))
        key, namespace = with_kryo(self.key, change), with_kryo(self.namespace, change)
        return replace(self, key=key, namespace=namespace, user_key=user_key, value=value)

    @property
    def type_name(self) -> str:
        """The type of the state's values as a Java developer writes it; a timer's key and namespace."""
        value = type_name(self.value) if self.value is not None else ""
        match self.kind:
            case StateKind.MAP:
                return f"Map<{type_name(self.user_key) if self.user_key else '?'},{value}>"
            case StateKind.LIST:
                return f"List<{value}>"
            case StateKind.TIMERS:
                return f"Timer<{type_name(self.key)},{type_name(self.namespace)}>"
            case _:
                return value

    @property
    def why_not_migratable(self) -> str | None:
        """The reason why it can't be migrated; None for a `ValueState<Map>` whose entries can become rows."""
        if (reason := self.why_not_split) is not None or self.map_type is None:
            return reason
        return why_no_user_key(self.map_type.key, self._classes_of_maps)

    @property
    def why_not_split(self) -> str | None:
        """The reason why there are no blobs that can be split into entries; None for a `ValueState<Map>` with such."""
        if self.asynchronous:
            return "asynchronous (V2) state"
        if self.kind is StateKind.MAP:
            return "already a MapState"
        if self.kind is StateKind.TIMERS:
            return "timers"
        if self.kind is not StateKind.VALUE:
            return f"{self.kind.value} state, not a ValueState"
        if opaque := (*without_end(self.key), *opaque_parts(self.namespace)):
            return f"its key or namespace has a part whose end can't be found: {_named(opaque)}"
        if kept_by_kryo(self.key) and self.has_suffixes:
            return "its keys are by Kryo, and its namespaces vary in length"
        if isinstance(self.value, OpaqueType) and self.map_type is None:
            return f"its value is {self.value.class_name}, {self.value.reason}{_by_field(map_fields(self.value))}"
        if self.map_type is None:
            return f"a ValueState<{self.type_name}>, not of a map{_by_field(map_fields(self.value))}"
        if opaque := self._without_end:
            return f"its entries have a part whose end can't be found: {_named(opaque)}"
        return None

    @property
    def _classes_of_maps(self) -> JobClasses | None:
        """The job's classes by which its maps by Kryo are read."""
        match self.value:
            case (
                KryoMapType(kryo=kryo) | PojoMapType(pojo=KryoType() as kryo) | PojoMapType(map=KryoMapType(kryo=kryo))
            ):
                return kryo.classes
        return None

    @property
    def _without_end(self) -> tuple[OpaqueType, ...]:
        """The parts of the map whose end can't be found."""
        map_ = self.map_type
        if map_ is None:
            return ()
        match self.value:
            case KryoMapType() | PojoMapType(pojo=KryoType()) | PojoMapType(map=KryoMapType()):
                return tuple(part for part in opaque_parts(map_) if not isinstance(part, KryoType))
            case MapType() | NullableType() | PojoMapType(map=MapType() | NullableType()):
                return (*without_end(map_.key), *without_end(map_.value))
        return opaque_parts(map_)


def _by_field(fields: tuple[str, ...]) -> str:
    """Says how a map in a field can be migrated, if there is one."""
    if not fields:
        return ""
    what = "a map in a field" if len(fields) == 1 else "maps in fields"
    return f"; it has {what}: --field {' or '.join(fields)}"


def without_end(part: FlinkType) -> tuple[OpaqueType, ...]:
    """Returns what in a value has no end that can be found. What Kryo's own serializers wrote has one."""
    return tuple(
        replace(one, reason=f"serialized by Kryo with {one.own_serializer}") if isinstance(one, KryoType) else one
        for one in opaque_parts(part)
        if not isinstance(one, KryoType) or one.own_serializer is not None
    )


def _named(parts: tuple[OpaqueType, ...]) -> str:
    return "; ".join(dict.fromkeys(f"{part.class_name} ({part.reason})" for part in parts))


def keyed_states(header: KeyedHeader, file: str) -> tuple[KeyedState, ...]:
    """Returns the states of a header, in the order of their ids."""
    return tuple(_keyed_state(header, meta, file) for meta in header.states)


def _keyed_state(header: KeyedHeader, meta: StateMeta, file: str) -> KeyedState:
    value = _type_of(meta, VALUE_SERIALIZER, file)
    key = header.key_serializer.type
    if meta.kind is BackendKind.PRIORITY_QUEUE:
        return _timers(meta, key, value)
    kind = _kind(meta, file)
    namespace = _type_of(meta, NAMESPACE_SERIALIZER, file)
    user_key = None
    ttl = False
    asynchronous = meta.kind is BackendKind.KEY_VALUE_V2
    if asynchronous:
        # Asynchronous state describes the types of user key and value by themselves, without a map or list around them.
        user_key = _type_of(meta, USER_KEY_SERIALIZER, file) if kind is StateKind.MAP else None
    elif kind is StateKind.MAP:
        if not isinstance(value, MapType):
            raise DamagedError(f"a map serializer for MapState {meta.name}", type_name(value), file=file)
        user_key, value = value.key, value.value
    elif kind is StateKind.LIST:
        if not isinstance(value, ListType):
            raise DamagedError(f"a list serializer for ListState {meta.name}", type_name(value), file=file)
        value = value.element
    if isinstance(value, TtlType):
        ttl, value = True, value.value
    return KeyedState(meta.name, kind, key, namespace, user_key, value, ttl, asynchronous)


def _timers(meta: StateMeta, key: FlinkType, timer: FlinkType) -> KeyedState:
    if not isinstance(timer, TimerType):
        # A priority queue that an operator defines itself: its elements can be copied, but not read.
        opaque = (
            timer if isinstance(timer, OpaqueType) else OpaqueType(type_name(timer), "not Flink's timer serializer")
        )
        return KeyedState(meta.name, StateKind.TIMERS, key, opaque, None, None, False, False)
    return KeyedState(meta.name, StateKind.TIMERS, key, timer.namespace, None, None, False, False)


def _kind(meta: StateMeta, file: str) -> StateKind:
    if meta.kind not in (BackendKind.KEY_VALUE, BackendKind.KEY_VALUE_V2):
        raise DamagedError("a keyed state", f"{meta.name} of kind {meta.kind.name}", file=file)
    named = meta.option(KEYED_STATE_TYPE)
    if named == "FOLDING":
        raise RefusedError(
            f"{file}: state {meta.name} is a FoldingState, which Flink has removed and Stateferry doesn't read: let "
            "the job move it to an AggregatingState under its present Flink, and take a savepoint without it"
        )
    if named not in StateKind.__members__ or named == "TIMERS":
        raise DamagedError(
            f"the kind of state {meta.name}: VALUE, LIST, MAP, REDUCING or AGGREGATING", f"{named}", file=file
        )
    return StateKind(named)


def _type_of(meta: StateMeta, serializer: str, file: str) -> FlinkType:
    snapshot = meta.serializer(serializer)
    if snapshot is None:
        raise DamagedError(f"a {serializer} of state {meta.name}", "none", file=file)
    return snapshot.type
