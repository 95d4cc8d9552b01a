"""States with values that one Flink's Kryo wrote become states as a job of the other Flink, with its Kryo, writes them.

A section of such a state is rewritten as a whole: what is by Kryo in its keys and values is written anew, and all else
stays. So are values by the serializers of flink-scala, which Flink 2 hasn't. What reads sections through
`ForOtherKryo` sees the source as a job of the other Flink would have written it.
The types of the states say which Flink that is (`KryoType.for_five`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain

import numpy as np

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import DamagedError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.header import KEY_SERIALIZER, VALUE_SERIALIZER, KeyedHeader, StateMeta
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.kryo.to_other_kryo import READ_BEHIND, Recoded, recoder
from flinkstate.scala.programs import ScalaProgram, compile_scala, compile_scala_list, scala_parts
from flinkstate.scala.rewriting import write_values
from flinkstate.serializers.built_snapshots import described_as, without_avro
from flinkstate.serializers.programs import WalkProgram, compile_values
from flinkstate.serializers.type_parts import kept_by_kryo, with_classes
from flinkstate.serializers.types import FlinkType, KryoType, ListType, MapType, NullableType, TimerType, TupleType
from flinkstate.writing.operator_file import OperatorHeader
from stateferry.changes.sections import copied, put_lengths
from stateferry.changes.upgrade.kryo_keys import (
    as_written,
    expect_rewritable_keys,
    has_other_hashes,
    is_by_kryo,
    key_type,
    rewritten_keys,
)
from stateferry.changes.upgrade.nullable_maps import (
    expect_maps,
    maps_with_objects,
    nullable_maps,
    with_made_maps,
)

_LENGTH = 4
_NULL_ROW = 1


def states_by_kryo(states: Mapping[str, KeyedState], job: JobClasses | None) -> dict[str, KeyedState]:
    """Returns the states, by name, that have keys, user keys or values with parts by Kryo."""
    return {
        name: state.with_classes_in_keys(job)
        for name, state in states.items()
        if not state.asynchronous and any(map(kept_by_kryo, _parts(state)))
    }


def by_kryo_2(kryo: KryoType) -> KryoType:
    return replace(kryo, five=False)


def all_by_kryo_2(state: KeyedState) -> KeyedState:
    return state.with_kryo(by_kryo_2)


def _parts(state: KeyedState) -> Iterator[FlinkType]:
    parts = (state.key, state.namespace, state.user_key, state.value)
    yield from (part for part in parts if part is not None)


def expect_rewritable(state: KeyedState) -> None:
    """Raises `RefusedError` if a state has keys or values by Kryo that can't be written anew."""
    if (keys := key_type(state)) is not None:
        expect_rewritable_keys(state, keys)
    if scala_parts(state.value):
        _scala_program(state)
    elif state.value is not None and is_by_kryo(state.value):
        expect_values(_stored_type(state), of_lists=state.kind is StateKind.LIST)


def expect_values(type_: FlinkType, *, of_lists: bool = False) -> None:
    """Raises `RefusedError` if values of a type, or lists of such, can't be written anew."""
    expect_maps(type_, of_lists=of_lists)
    if is_by_kryo(made := with_made_maps(type_)):
        recoder(compile_values(made, of_lists))


def _changes_values(state: KeyedState) -> bool:
    return state.value is not None and bool(kept_by_kryo(state.value) or scala_parts(state.value))


def rewrites_keys(state: KeyedState) -> bool:
    """Whether the stored keys of the state, with the user keys of a map, are written anew."""
    return key_type(state) is not None


@dataclass(frozen=True, slots=True)
class ForOtherKryo:
    """A `Rewrite` of the keyed states `by_kryo`, and of the operator states with these `elements`.

    Of other states, `keys` says by which Kryo the keys are, if that is known.
    """

    by_kryo: Mapping[str, KeyedState]
    elements: Mapping[str, FlinkType] = field(default_factory=dict)
    keys: FlinkType | None = None

    @property
    def more_key_groups(self) -> frozenset[int]:
        return frozenset()

    @property
    def rehashes(self) -> bool:
        return any(map(has_other_hashes, self.by_kryo.values()))

    def element(self, state: str, data: bytes) -> bytes:
        return element_for_other_kryo(self.elements[state], data)

    def header(self, header: KeyedHeader) -> KeyedHeader:
        """Returns the header with the serializers that the states have then. Kryo's are described as before."""
        of_key = (described_as(header.key_serializer, known.key) for known in self.by_kryo.values())
        key = next(of_key, header.key_serializer)
        header = replace(header, key_serializer=key, states=tuple(self._described(meta) for meta in header.states))
        if not self._changes_kryo:
            return header
        states = tuple(map(_without_avro, header.states))
        return replace(header, key_serializer=without_avro(header.key_serializer), states=states)

    def header_of_elements(self, header: OperatorHeader) -> OperatorHeader:
        if not self._changes_kryo:
            return header
        lists = tuple(self._described_element(meta, is_broadcast=False) for meta in header.lists)
        broadcasts = tuple(self._described_element(meta, is_broadcast=True) for meta in header.broadcasts)
        return replace(header, lists=lists, broadcasts=broadcasts)

    def _described_element(self, meta: StateMeta, *, is_broadcast: bool) -> StateMeta:
        if (type_ := self.elements.get(meta.name)) is not None:
            key, value = key_and_value(type_) if is_broadcast else (type_, type_)
            # A list has one serializer, whatever its name.
            made = (
                (name, described_as(one, key if name == KEY_SERIALIZER else value)) for name, one in meta.serializers
            )
            meta = replace(meta, serializers=tuple(made))
        return _without_avro(meta)

    @property
    def _changes_kryo(self) -> bool:
        """Whether headers of one Flink are for the other: what flink-avro registers in one, the other can't read."""
        parts = [*chain.from_iterable(map(_parts, self.by_kryo.values())), *self.elements.values()]
        return any(map(scala_parts, parts)) or any(
            kryo.five is False or not kryo.for_five for part in parts for kryo in kept_by_kryo(part)
        )

    def _described(self, meta: StateMeta) -> StateMeta:
        known, value = self.by_kryo.get(meta.name), meta.serializer(VALUE_SERIALIZER)
        if known is None or value is None or not (_changes_values(known) or rewrites_keys(known)):
            return meta
        if known.value is None and known.kind is not StateKind.TIMERS:
            return meta  # of maps that are migrated only the keys are written anew
        made = described_as(value, _value_type(known))
        return replace(
            meta, serializers=tuple((name, made if name == VALUE_SERIALIZER else one) for name, one in meta.serializers)
        )

    def sections(
        self, key_group: int, found: Iterator[tuple[KeyedState, Section]]
    ) -> Iterator[tuple[KeyedState, Section]]:
        for state, section in found:
            yield self.state(state), self.section(state, section)

    def state(self, state: KeyedState) -> KeyedState:
        """Returns the state with the keys that it has then."""
        known = self.by_kryo.get(state.name)
        key = self.keys if known is None else as_written(known.key)
        return state if key is None else replace(state, key=key)

    def section(self, state: KeyedState, section: Section) -> Section:
        """Returns the section as the other Kryo writes it."""
        known = self.by_kryo.get(state.name)
        return section if known is None else for_other_kryo(section, known)

    def of_key_groups(self, key_groups: KeyGroupRange) -> ForOtherKryo:
        return self


def _without_avro(meta: StateMeta) -> StateMeta:
    return replace(meta, serializers=tuple((name, without_avro(one)) for name, one in meta.serializers))


def element_for_other_kryo(type_: FlinkType, data: bytes) -> bytes:
    """Returns an element of an operator state in which the other Kryo has written what one wrote."""
    raw, start = np.frombuffer(data + bytes(READ_BEHIND), np.uint8), np.zeros(1, np.int64)
    if scala_parts(type_):
        ends, kept = start + len(data), np.zeros(1, np.bool_)
        return write_values(compile_scala(type_), raw, start, ends, start, kept)[0].tobytes()
    kept = np.zeros(1, np.bool_)
    return _written(type_, raw.copy(), start, start + len(data), start, kept, followed=True).data.tobytes()


def _written(
    type_: FlinkType, data: Bytes, starts: Positions, ends: Positions, heads: Positions, kept: Flags, *,
    of_lists: bool = False, followed: bool = False,
) -> Recoded:  # fmt: skip
    """Returns values of a type, or lists of such, as the other Kryo writes them, each behind its head."""
    maps = None
    if maps_with_objects(type_):
        maps = nullable_maps(type_, data, starts, ends, heads, kept, of_lists=of_lists)
        if not is_by_kryo(type_ := with_made_maps(type_)):
            return maps
    writer = recoder(compile_values(type_, of_lists), followed=followed, of_lists=of_lists)
    if maps is None:
        return writer.recode(data, starts, ends, heads, kept)
    made_starts = np.append(0, maps.ends[:-1]) + heads
    with _placed_in_source(starts, made_starts):
        return writer.recode(maps.data, made_starts, maps.ends, heads, kept)


@contextmanager
def _placed_in_source(starts: Positions, made_starts: Positions) -> Iterator[None]:
    """Gives an error in a value that was made the place where the value that it was made of starts."""
    try:
        yield
    except (RefusedValueError, DamagedError) as error:
        if error.offset is None:
            raise
        start = int(starts[np.searchsorted(made_starts, error.offset, "right") - 1])
        raise (error.at(start) if isinstance(error, RefusedValueError) else error.located(offset=start)) from None


Change = Callable[[str, FlinkType], FlinkType]


def elements_by_kryo(
    header: OperatorHeader, job: JobClasses | None, change: Change, of_keys: Change
) -> dict[str, FlinkType]:
    """Returns the types of elements with parts by Kryo, by operator state, as `change` makes them of a name and a type.

    A broadcast state is one list of entries, of which it changes the values, and `of_keys` the keys.
    """
    found: dict[str, FlinkType] = {}
    for meta in (*header.lists, *header.broadcasts):
        types = tuple(with_classes(one.type, job) for _, one in meta.serializers)
        if meta in header.lists:
            type_ = change(meta.name, types[0])
        else:
            key, value = _in_order(meta, types)
            type_ = ListType(TupleType((of_keys(meta.name, key), change(meta.name, value)), "an entry"))
        if is_by_kryo(type_) or scala_parts(type_):
            found[meta.name] = type_
    return found


def key_and_value(type_: FlinkType) -> tuple[FlinkType, ...]:
    """Returns the types of the entries of a broadcast state."""
    assert isinstance(type_, ListType)
    assert isinstance(type_.element, TupleType)
    return type_.element.fields


def _in_order(meta: StateMeta, types: tuple[FlinkType, ...]) -> tuple[FlinkType, ...]:
    """The key's type before the value's."""
    by_name = dict(zip((name for name, _ in meta.serializers), types, strict=True))
    return by_name[KEY_SERIALIZER], by_name[VALUE_SERIALIZER]


def for_other_kryo(section: Section, state: KeyedState) -> Section:
    """Returns a section of its own in which the other Kryo has written what one wrote in the section."""
    if not len(section):
        return section
    of_keys = key_type(state)
    with section.locating():
        if of_keys is None:
            return _with_values(section, state, section.value_starts - section.starts)
        keys = rewritten_keys(section, state, of_keys)
        values = replace(section, starts=section.key_ends)
        if _changes_values(state):
            values = _with_values(section, state, np.full(len(section), _LENGTH, np.int64))
    return _joined(section, keys, values)


def values_by_kryo_5(section: Section, state: KeyedState) -> Flags:
    """Whether Kryo 5 can have written each value of a section."""
    by_kryo_5 = recoder(_value_program(state)).by_kryo_5(section.data, section.value_starts, section.ends)
    return by_kryo_5 | _null_rows(section, state)


def _null_rows(section: Section, state: KeyedState) -> Flags:
    """Which rows of a MapState are null: Flink 1 leaves the serializer's null behind their flag, which nobody reads."""
    if state.kind is not StateKind.MAP:
        return np.zeros(len(section), np.bool_)
    flags = section.data[np.minimum(section.value_starts, len(section.data) - 1)]
    nulls: Flags = (section.value_starts < section.ends) & (flags == _NULL_ROW)
    return nulls


def _with_values(section: Section, state: KeyedState, heads: Positions) -> Section:
    """Rewrites the values, each with the bytes before it, of which the last four are its length."""
    data, begins, ends, kept = section.data, section.value_starts, section.ends, _null_rows(section, state)
    if scala_parts(state.value):
        made = Recoded(*write_values(_scala_program(state), data, begins, ends, heads, kept))
    else:
        of_lists = state.kind is StateKind.LIST
        made = _written(_stored_type(state), data, begins, ends, heads, kept, of_lists=of_lists)
    starts = np.append(0, made.ends[:-1])
    key_ends = starts + heads - _LENGTH
    put_lengths(made.data, key_ends, made.ends - key_ends - _LENGTH)
    return replace(section, data=made.data, starts=starts, key_ends=key_ends, ends=made.ends)


def _joined(section: Section, keys: Recoded, values: Section) -> Section:
    """Puts each key before its value."""
    data = np.concatenate((keys.data, values.data))
    count, begins = len(section), np.append(0, keys.ends[:-1])
    starts, ends = np.empty(2 * count, np.int64), np.empty(2 * count, np.int64)
    starts[0::2], ends[0::2] = begins, keys.ends
    starts[1::2], ends[1::2] = values.starts + len(keys.data), values.ends + len(keys.data)
    return copied(section, data, starts, ends, keys.ends - begins, slice(None, None, 2))


def _value_type(state: KeyedState) -> FlinkType:
    """The type of the serializer by which a header describes the state's values."""
    stored = state.stored_value
    if state.kind is StateKind.TIMERS:
        return TimerType(state.key, state.namespace)
    assert stored is not None
    if state.kind is StateKind.LIST:
        return ListType(stored)
    return stored if state.user_key is None else MapType(state.user_key, stored)


def _scala_program(state: KeyedState) -> ScalaProgram:
    stored = state.stored_value
    assert stored is not None
    if state.kind is StateKind.LIST:
        return compile_scala_list(stored)
    return compile_scala(NullableType(stored, 0) if state.kind is StateKind.MAP else stored)


@lru_cache(maxsize=64)
def _value_program(state: KeyedState) -> WalkProgram:
    return compile_values(_stored_type(state), state.kind is StateKind.LIST)


def _stored_type(state: KeyedState) -> FlinkType:
    """The type of what is stored as a value; of a list, of each element."""
    stored = state.stored_value
    assert stored is not None
    # A map's entry has a flag for null before its value.
    return NullableType(stored, 0) if state.kind is StateKind.MAP else stored
