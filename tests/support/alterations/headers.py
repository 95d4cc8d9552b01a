"""Headers of keyed state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flinkstate.keyed.header import KEYED_STATE_TYPE, VALUE_SERIALIZER, KeyedHeader, StateMeta
from flinkstate.keyed.state import StateKind
from flinkstate.metadata.metadata import (
    Operator,
)
from flinkstate.serializers.built_snapshots import map_snapshot
from flinkstate.serializers.snapshot_classes import TTL_SNAPSHOT
from tests.support.alterations.scene import (
    NotApplicableError,
    Place,
    Scene,
    harmful,
    harmless,
)


def _of_headers(scene: Scene, change: Callable[[KeyedHeader], KeyedHeader | None]) -> tuple[Operator, int]:
    """Changes the description in one subtask's file; its rows stay as they are, by the names of their states."""
    operator, task, _ = scene.handle()
    changed = False

    def of_one(header: KeyedHeader, index: int) -> KeyedHeader:
        nonlocal changed
        new = change(header) if index == task.index else None
        changed = changed or new is not None
        return new or header

    scene.change_headers_of_subtasks(operator, of_one)
    if not changed:
        raise NotApplicableError
    return operator, task.index


def _with_state(header: KeyedHeader, name: str, change: Callable[[StateMeta], StateMeta]) -> KeyedHeader:
    return replace(header, states=tuple(change(meta) if meta.name == name else meta for meta in header.states))


def _other_type(scene: Scene, header: KeyedHeader) -> StateMeta | None:
    """A map state's description with user keys and values exchanged."""
    others = []
    for meta in header.states:
        value = meta.serializer(VALUE_SERIALIZER)
        if meta.option(KEYED_STATE_TYPE) == "MAP" and value is not None and value.nested[0].raw != value.nested[1].raw:
            exchanged = map_snapshot(value.nested[1], value.nested[0])
            serializers = ((key, exchanged if key == VALUE_SERIALIZER else its) for key, its in meta.serializers)
            others.append(replace(meta, serializers=tuple(serializers)))
    return scene.random.choice(others) if others else None


def _with_other_type(
    scene: Scene, change: Callable[[KeyedHeader, StateMeta], KeyedHeader]
) -> tuple[Operator, int, str]:
    """Changes a subtask's header, told the description of one of its states with another type."""
    named: list[str] = []

    def of_header(header: KeyedHeader) -> KeyedHeader | None:
        other = _other_type(scene, header)
        if other is None:
            return None
        named.append(other.name)
        return change(header, other)

    return *_of_headers(scene, of_header), named[0]


@harmful
def a_state_described_as_another_type(scene: Scene) -> Place:
    operator, index, name = _with_other_type(
        scene, lambda header, other: _with_state(header, other.name, lambda _: other)
    )
    return Place((f"operator {operator.label}, subtask {index}", name))


@harmful
def a_state_described_twice(scene: Scene) -> Place:
    """First with another type, then as it is."""
    *_, name = _with_other_type(scene, lambda header, other: replace(header, states=(other, *header.states)))
    return Place((name,))


@harmful
def a_state_of_another_name(scene: Scene) -> Place:
    operator, task, handle = scene.handle()
    rows = scene.rows(operator)
    name = scene.choose([row.state for group in handle.range for row in rows[group]])

    def renamed(header: KeyedHeader) -> KeyedHeader:
        return _with_state(header, name, lambda meta: replace(meta, name=f"{name}2"))

    scene.replace_header(operator, task.index, renamed)
    return Place((f"{name}2", name))


@harmful
def a_description_gone(scene: Scene) -> Place:
    """Of a state that has rows: later ones take their ids."""
    operator, task, handle = scene.handle()
    rows = scene.rows(operator)
    name = scene.choose([row.state for group in handle.range for row in rows[group]])

    def without(header: KeyedHeader) -> KeyedHeader:
        return replace(header, states=tuple(meta for meta in header.states if meta.name != name))

    scene.replace_header(operator, task.index, without)
    return Place((name, operator.label))


@harmful
def time_to_live_gone_from_a_description(scene: Scene) -> Place:
    operator, task, _ = scene.handle()
    names = [meta.name for meta in scene.header(operator, task.index).states if _of_a_map_with_ttl(meta)]
    name = scene.choose(names)

    def without(meta: StateMeta) -> StateMeta:
        value = dict(meta.serializers)[VALUE_SERIALIZER]
        plain = map_snapshot(value.nested[0], value.nested[1].nested[1])
        return replace(meta, serializers=tuple((key, plain if its is value else its) for key, its in meta.serializers))

    scene.replace_header(operator, task.index, lambda header: _with_state(header, name, without))
    return Place((name,))


def _of_a_map_with_ttl(meta: StateMeta) -> bool:
    value = meta.serializer(VALUE_SERIALIZER)
    is_map = value is not None and meta.option(KEYED_STATE_TYPE) == "MAP"
    return is_map and value is not None and value.nested[1].class_name == TTL_SNAPSHOT


@harmful
def a_states_kind(scene: Scene) -> Place:
    """A value state described as a reducing one, a map as a value: the option alone."""
    operator, task, _ = scene.handle()
    states = [name for name, state in scene.states(operator).items() if state.kind is not StateKind.TIMERS]
    name = scene.choose(states)
    kind = "REDUCING" if scene.states(operator)[name].kind is StateKind.VALUE else "VALUE"

    def other(meta: StateMeta) -> StateMeta:
        return replace(meta, options=tuple((option, kind) for option, _ in meta.options))

    scene.replace_header(operator, task.index, lambda header: _with_state(header, name, other))
    return Place((name,))


@harmful
def ids_of_two_states_exchanged(scene: Scene) -> Place:
    """The descriptions in another order, the rows as they were."""
    operator, task, handle = scene.handle()
    here = {row.state for group in handle.range for row in scene.rows(operator)[group]}
    header = scene.header(operator, task.index)
    names = [meta.name for meta in header.states]
    one = scene.choose(sorted(here))
    other = scene.choose([name for name in names if name != one])

    def exchanged(header: KeyedHeader) -> KeyedHeader:
        states = {meta.name: meta for meta in header.states}
        swap = {one: other, other: one}
        return replace(header, states=tuple(states[swap.get(name, name)] for name in states))

    scene.replace_header(operator, task.index, exchanged)
    return Place((one, other, operator.label))


@harmful
def another_key_serializer(scene: Scene) -> Place:
    operator, task, _ = scene.handle()
    header = scene.header(operator, task.index)
    values = [meta.serializer(VALUE_SERIALIZER) for meta in header.states]
    key = scene.choose([one for one in values if one is not None and one.raw != header.key_serializer.raw])
    scene.replace_header(operator, task.index, lambda header: replace(header, key_serializer=key))
    return Place((operator.label,))


@harmful
def the_flag_of_compression(scene: Scene) -> Place:
    operator, task, _ = scene.handle()
    scene.replace_header(operator, task.index, lambda header: replace(header, compressed=not header.compressed))
    return Place((operator.label,))


@harmless
def states_described_in_another_order(scene: Scene) -> Place:
    operator, task, _ = scene.handle()

    def reversed_(header: KeyedHeader, index: int) -> KeyedHeader:
        return replace(header, states=header.states[::-1]) if index == task.index else header

    scene.change_headers_of_subtasks(operator, reversed_)
    return Place()
