"""Operators, subtasks and key groups in `_metadata`, and what else stands there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.metadata.metadata import (
    InlineBytes,
    Operator,
    Subtask,
)
from tests.support.alterations.scene import (
    NotApplicableError,
    Place,
    Scene,
    flipped,
    harmful,
    harmless,
)


def _with_another_offset(scene: Scene, another: Callable[[int], int]) -> Place:
    operator, task, handle = scene.handle()
    offsets = list(handle.offsets)
    at = scene.choose([at for at, offset in enumerate(offsets) if offset])
    offsets[at] = another(offsets[at])
    scene.replace_handle(operator, task.index, replace(handle, offsets=tuple(offsets)))
    return Place((operator.label,), handle.range.start + at)


@harmful
def an_offset_become_none(scene: Scene) -> Place:
    return _with_another_offset(scene, lambda _: 0)


@harmful
def an_offset_a_little_off(scene: Scene) -> Place:
    return _with_another_offset(scene, lambda offset: offset + scene.choose([1, -1, 2, -2, 7]))


@harmful
def two_offsets_exchanged(scene: Scene) -> Place:
    operator, task, handle = scene.handle()
    there = [at for at, offset in enumerate(handle.offsets) if offset]
    one = scene.choose(there)
    other = scene.choose([at for at in there if at != one])
    offsets = list(handle.offsets)
    offsets[one], offsets[other] = offsets[other], offsets[one]
    scene.replace_handle(operator, task.index, replace(handle, offsets=tuple(offsets)))
    return Place((operator.label,), handle.range.start + one)


@harmful
def a_range_of_key_groups(scene: Scene) -> Place:
    operator, task, handle = scene.handle()
    range_ = handle.range
    if len(range_) == operator.max_parallelism:
        raise NotApplicableError
    by = 1 if range_.end + 1 < operator.max_parallelism else -1
    moved = KeyGroupRange(range_.start + by, range_.end + by)
    scene.replace_handle(operator, task.index, replace(handle, range=moved))
    return Place((operator.label,))


@harmful
def keyed_state_of_a_subtask_gone(scene: Scene) -> Place:
    operator, task, _ = scene.handle()
    scene.replace_handle(operator, task.index, None)
    return Place((f"subtask {task.index}",))


@harmful
def two_subtasks_exchanged(scene: Scene) -> Place:
    operator = scene.choose([one for one in scene.metadata.operators if len(_with_state_of_any_kind(one)) > 1])
    one, other = scene.random.sample(_with_state_of_any_kind(operator), 2)
    if _content_of(scene, one) == _content_of(scene, other):
        raise NotApplicableError
    exchanged = {one.index: replace(other, index=one.index), other.index: replace(one, index=other.index)}
    subtasks = tuple(exchanged.get(task.index, task) for task in operator.subtasks)
    scene.change_operator(operator, lambda it: replace(it, subtasks=subtasks))
    return Place((operator.label,))


def _with_state_of_any_kind(operator: Operator) -> list[Subtask]:
    return [task for task in operator.subtasks if task.streams()]


def _content_of(scene: Scene, task: Subtask) -> list[object]:
    states = task.managed_operator.states if task.managed_operator else ()
    return [states, *(scene.content(stream) for stream in task.streams())]


@harmful
def an_operators_parallelism(scene: Scene) -> Place:
    operator = scene.choose([one for one in scene.metadata.operators if one.parallelism < one.max_parallelism])
    scene.change_operator(operator, lambda one: replace(one, parallelism=one.parallelism + 1))
    return Place((operator.label,))


@harmful
def an_operators_name(scene: Scene) -> Place:
    operator = scene.choose([one for one in scene.metadata.operators if one.name])
    scene.change_operator(operator, lambda one: replace(one, name=f"{one.name}2"))
    return Place((operator.label,))


@harmful
def an_operators_max_parallelism(scene: Scene) -> Place:
    operator = scene.choose(scene.metadata.operators)
    scene.change_operator(operator, lambda one: replace(one, max_parallelism=one.max_parallelism * 2))
    return Place((operator.label,))


@harmful
def an_operator_gone(scene: Scene) -> Place:
    operator = scene.choose([one for one in scene.metadata.operators if _with_state_of_any_kind(one)])
    others = tuple(one for one in scene.metadata.operators if one.id != operator.id)
    scene.write_metadata(replace(scene.metadata, operators=others))
    return Place((operator.label,))


@harmful
def an_operator_of_another_id(scene: Scene) -> Place:
    operator = scene.choose([one for one in scene.metadata.operators if _with_state_of_any_kind(one)])
    id_ = flipped(operator.id, scene.random.randrange(16), scene.random.randrange(8))
    scene.change_operator(operator, lambda one: replace(one, id=id_, uid=None))
    return Place((operator.label,))


@harmful
def a_subtask_finished(scene: Scene) -> Place:
    operator = scene.choose([one for one in scene.metadata.operators if _with_state_of_any_kind(one)])
    task = scene.choose(_with_state_of_any_kind(operator))
    scene.replace_subtask(operator, task.index, lambda one: Subtask(one.index, finished=True))
    return Place((operator.label,))


@harmful
def a_coordinators_state(scene: Scene) -> Place:
    operator = scene.choose([one for one in scene.metadata.operators if one.coordinator is not None])
    data = operator.coordinator.data if operator.coordinator else b""
    other = flipped(data, scene.random.randrange(len(data)), scene.random.randrange(8)) if data else b"\0"
    scene.change_operator(operator, lambda one: replace(one, coordinator=InlineBytes("another", other)))
    return Place((operator.label,))


@harmful
def a_coordinators_state_gone(scene: Scene) -> Place:
    operator = scene.choose([one for one in scene.metadata.operators if one.coordinator is not None])
    scene.change_operator(operator, lambda one: replace(one, coordinator=None))
    return Place((operator.label,))


@harmful
def the_checkpoint_id(scene: Scene) -> Place:
    metadata = scene.metadata
    scene.write_metadata(replace(metadata, checkpoint_id=metadata.checkpoint_id + scene.random.randrange(1, 1000)))
    return Place(("checkpoint id",))


@harmful
def a_master_state_more(scene: Scene) -> Place:
    metadata = scene.metadata
    scene.write_metadata(replace(metadata, master_states=(*metadata.master_states, b"of a hook")))
    return Place(("master states",))


@harmful
def the_properties(scene: Scene) -> Place:
    metadata = scene.metadata
    if not metadata.properties:
        raise NotApplicableError
    at = scene.random.randrange(len(metadata.properties))
    properties = flipped(metadata.properties, at, scene.random.randrange(8))
    scene.write_metadata(replace(metadata, properties=properties))
    return Place(("properties",))


@harmful
def metadata_cut_short(scene: Scene) -> Place:
    file = scene.folder / "_metadata"
    data = file.read_bytes()
    file.write_bytes(data[: scene.random.randrange(len(data) // 2)])
    return Place(("_metadata",))


@harmless
def operators_and_subtasks_in_another_order(scene: Scene) -> Place:
    operators = [replace(one, subtasks=one.subtasks[::-1]) for one in scene.metadata.operators]
    scene.random.shuffle(operators)
    scene.write_metadata(replace(scene.metadata, operators=tuple(operators)))
    return Place()
