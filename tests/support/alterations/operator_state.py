"""State of no key, and state that an operator writes by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flinkstate.keyed.header import VALUE_SERIALIZER, StateMeta
from flinkstate.metadata.metadata import (
    Operator,
    OperatorHandle,
    PartitionedState,
    Subtask,
)
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.writing.operator_file import OperatorHeader, build_operator_header, parse_operator_header
from tests.support.alterations.scene import (
    Elements,
    NotApplicableError,
    Place,
    Scene,
    flipped,
    harmful,
)


def _elements(scene: Scene, handle: OperatorHandle) -> Elements:
    data = scene.content(handle.stream)
    offsets = sorted({offset for state in handle.states for offset in state.offsets})
    header = parse_operator_header(data[: offsets[0]] if offsets else data, "a file")
    ends = dict(zip(offsets, [*offsets[1:], len(data)], strict=True))
    states = [
        (state.name, state.mode, [data[offset : ends[offset]] for offset in state.offsets]) for state in handle.states
    ]
    return Elements(header.compressed, list(header.lists), list(header.broadcasts), states)


def _handle_of(scene: Scene, elements: Elements, like: OperatorHandle) -> OperatorHandle:
    header = OperatorHeader(elements.compressed, tuple(elements.lists), tuple(elements.broadcasts))
    data, states = build_operator_header(header), []
    for name, mode, parts in elements.states:
        offsets = []
        for part in parts:
            offsets.append(len(data))
            data += part
        states.append(PartitionedState(name, mode, tuple(offsets)))
    return OperatorHandle(tuple(states), scene.stored(data, like.stream))


def _of_elements(scene: Scene, change: Callable[[Elements], str | None]) -> Place:
    """Changes the state of no key of one subtask; `change` says of which state."""
    tasks = [(one, task) for one in scene.metadata.operators for task in one.subtasks if task.managed_operator]
    if not tasks:
        raise NotApplicableError
    for operator, task in scene.random.sample(tasks, len(tasks)):
        assert task.managed_operator is not None
        elements = _elements(scene, task.managed_operator)
        name = change(elements)
        if name is not None:
            _store_elements(scene, operator, task, elements)
            return Place((name,))
    raise NotApplicableError


def _store_elements(scene: Scene, operator: Operator, task: Subtask, elements: Elements) -> None:
    assert task.managed_operator is not None
    handle = _handle_of(scene, elements, task.managed_operator)
    scene.replace_subtask(operator, task.index, lambda one: replace(one, managed_operator=handle))


@harmful
def a_bit_of_an_element(scene: Scene) -> Place:
    def change(elements: Elements) -> str | None:
        some = [(name, parts) for name, _, parts in elements.states if any(parts)]
        if not some:
            return None
        name, parts = scene.choose(some)
        at = scene.choose([at for at, part in enumerate(parts) if part])
        parts[at] = flipped(parts[at], scene.random.randrange(len(parts[at])), scene.random.randrange(8))
        return name

    return _of_elements(scene, change)


@harmful
def an_element_gone(scene: Scene) -> Place:
    def change(elements: Elements) -> str | None:
        some = [(name, parts) for name, _, parts in elements.states if parts]
        if not some:
            return None
        name, parts = scene.choose(some)
        parts.pop(scene.random.randrange(len(parts)))
        return name

    return _of_elements(scene, change)


@harmful
def an_element_twice(scene: Scene) -> Place:
    def change(elements: Elements) -> str | None:
        some = [(n, parts) for n, mode, parts in elements.states if parts and mode is not DistributionMode.BROADCAST]
        if not some:
            return None
        name, parts = scene.choose(some)
        parts.append(scene.choose(parts))
        return name

    return _of_elements(scene, change)


@harmful
def an_element_in_another_subtask(scene: Scene) -> Place:
    tasks = [
        (one, task, other)
        for one in scene.metadata.operators
        for task in one.subtasks
        for other in one.subtasks
        if task.managed_operator and other.managed_operator and task.index != other.index
    ]
    operator, task, other = scene.choose(tasks)
    assert task.managed_operator is not None
    assert other.managed_operator is not None
    mine, theirs = (_elements(scene, one) for one in (task.managed_operator, other.managed_operator))
    lists = [
        (name, parts, its)
        for name, mode, parts in mine.states
        for its_name, _, its in theirs.states
        if parts and name == its_name and mode is not DistributionMode.BROADCAST
    ]
    name, parts, its = scene.choose(lists)
    its.append(parts.pop(scene.random.randrange(len(parts))))
    _store_elements(scene, operator, task, mine)
    _store_elements(scene, operator, other, theirs)
    return Place((name,))


@harmful
def an_offset_of_an_element(scene: Scene) -> Place:
    tasks = [
        (one, task)
        for one in scene.metadata.operators
        for task in one.subtasks
        if task.managed_operator and any(state.offsets for state in task.managed_operator.states)
    ]
    operator, task = scene.choose(tasks)
    handle = task.managed_operator
    assert handle is not None
    at = scene.choose([at for at, state in enumerate(handle.states) if state.offsets])
    state = handle.states[at]
    number = scene.random.randrange(len(state.offsets))
    offsets = tuple(offset + (place == number) for place, offset in enumerate(state.offsets))
    states = (*handle.states[:at], replace(state, offsets=offsets), *handle.states[at + 1 :])
    scene.replace_subtask(
        operator, task.index, lambda one: replace(one, managed_operator=replace(handle, states=states))
    )
    return Place((state.name, operator.label))


@harmful
def elements_in_another_order(scene: Scene) -> Place:
    def change(elements: Elements) -> str | None:
        some = [(name, parts) for name, _, parts in elements.states if len(set(parts)) > 1]
        if not some:
            return None
        name, parts = scene.choose(some)
        before = list(parts)
        while parts == before:
            scene.random.shuffle(parts)
        return name

    return _of_elements(scene, change)


@harmful
def a_mode_of_distribution(scene: Scene) -> Place:
    def change(elements: Elements) -> str | None:
        some = [at for at, (_, _, parts) in enumerate(elements.states) if parts]
        if not some:
            return None
        at = scene.choose(some)
        name, mode, parts = elements.states[at]
        other = scene.choose([one for one in DistributionMode if one is not mode])
        elements.states[at] = (name, other, parts)
        return name

    return _of_elements(scene, change)


def _moved(scene: Scene, section: list[StateMeta], other: list[StateMeta]) -> str | None:
    """The name of a description that has gone from one section to the end of the other."""
    if not section:
        return None
    other.append(section.pop(scene.random.randrange(len(section))))
    return other[-1].name


@harmful
def a_broadcast_state_described_among_the_lists(scene: Scene) -> Place:
    return _of_elements(scene, lambda elements: _moved(scene, elements.broadcasts, elements.lists))


@harmful
def a_list_described_among_the_broadcast_states(scene: Scene) -> Place:
    return _of_elements(scene, lambda elements: _moved(scene, elements.lists, elements.broadcasts))


@harmful
def a_list_described_as_another_type(scene: Scene) -> Place:
    def change(elements: Elements) -> str | None:
        pairs = [
            (at, other)
            for at, meta in enumerate(elements.lists)
            for other in elements.lists
            if dict(meta.serializers)[VALUE_SERIALIZER].raw != dict(other.serializers)[VALUE_SERIALIZER].raw
        ]
        if not pairs:
            return None
        at, other = scene.choose(pairs)
        elements.lists[at] = replace(elements.lists[at], serializers=other.serializers)
        return elements.lists[at].name

    return _of_elements(scene, change)


@harmful
def a_list_described_twice(scene: Scene) -> Place:
    def change(elements: Elements) -> str | None:
        if len(elements.lists) < 2:
            return None
        one, other = scene.random.sample(elements.lists, 2)
        elements.lists.insert(0, replace(one, serializers=other.serializers))
        return one.name

    return _of_elements(scene, change)


@harmful
def an_operator_state_of_another_name(scene: Scene) -> Place:
    def change(elements: Elements) -> str | None:
        some = [at for at, (_, _, parts) in enumerate(elements.states) if parts]
        if not some:
            return None
        at = scene.choose(some)
        name, mode, parts = elements.states[at]
        elements.states[at] = (f"{name}2", mode, parts)
        return name

    return _of_elements(scene, change)


@harmful
def operator_state_of_a_subtask_gone(scene: Scene) -> Place:
    tasks = [
        (one, task)
        for one in scene.metadata.operators
        for task in one.subtasks
        if task.managed_operator and any(state.offsets for state in task.managed_operator.states)
    ]
    operator, task = scene.choose(tasks)
    scene.replace_subtask(operator, task.index, lambda one: replace(one, managed_operator=None))
    return Place((f"subtask {task.index}", "all subtasks"))


def _raw(scene: Scene) -> tuple[Operator, Subtask, bool]:
    """An operator and a subtask with raw state, and whether it is keyed."""
    found = [
        (one, task, is_keyed)
        for one in scene.metadata.operators
        for task in one.subtasks
        for is_keyed in (False, True)
        if (task.raw_keyed if is_keyed else task.raw_operator) is not None
    ]
    return scene.choose(found)


@harmful
def a_bit_of_raw_state(scene: Scene) -> Place:
    operator, task, is_keyed = _raw(scene)
    handle = task.raw_keyed if is_keyed else task.raw_operator
    assert handle is not None
    data = scene.content(handle.stream)
    other = flipped(data, scene.random.randrange(len(data)), scene.random.randrange(8))
    stream = scene.stored(other, handle.stream)

    def changed(one: Subtask) -> Subtask:
        if is_keyed:
            assert one.raw_keyed is not None
            return replace(one, raw_keyed=replace(one.raw_keyed, stream=stream))
        assert one.raw_operator is not None
        return replace(one, raw_operator=replace(one.raw_operator, stream=stream))

    scene.replace_subtask(operator, task.index, changed)
    return Place((f"subtask {task.index}",))


@harmful
def raw_state_gone(scene: Scene) -> Place:
    operator, task, is_keyed = _raw(scene)

    def without(one: Subtask) -> Subtask:
        return replace(one, raw_keyed=None) if is_keyed else replace(one, raw_operator=None)

    scene.replace_subtask(operator, task.index, without)
    return Place((f"subtask {task.index}",))
