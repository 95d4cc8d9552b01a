"""Kinds of alterations of a result, each drawn at random: what a faulty tool, disk or hand could do to it.

`HARMFUL` change what Flink would restore, or whether it restores at all; `HARMLESS` don't.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TypeVar

import cramjam

from stateferry.key_groups import KeyGroupRange
from stateferry.operator_state import DistributionMode
from stateferry.savepoint.header import KEYED_STATE_TYPE, VALUE_SERIALIZER, KeyedHeader, StateMeta
from stateferry.savepoint.metadata import (
    InlineBytes,
    KeyedHandle,
    Operator,
    OperatorHandle,
    PartitionedState,
    RelativeFile,
    Subtask,
)
from stateferry.savepoint.operator_rescale import OperatorHeader, build_operator_header, parse_operator_header
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.state import KeyedState, StateKind
from stateferry.serializers.snapshots import map_snapshot
from tests.saboteur import Groups, Row, Saboteur

T = TypeVar("T")


class NotApplicableError(Exception):
    """The savepoint has nothing of the kind."""


@dataclass(frozen=True)
class Place:
    """Where it was done: failed checks have to name the key group, or one of the words at least."""

    words: tuple[str, ...] = ()
    key_group: int | None = None


class Scene(Saboteur):
    """A copy of a result, and what there is in it to choose from."""

    def __init__(self, savepoint: Path, copy: Path, random: Random) -> None:
        super().__init__(savepoint, copy)
        self.random = random
        self._opened = Savepoint.open(str(copy))

    def choose(self, some: Sequence[T]) -> T:
        if not some:
            raise NotApplicableError
        return self.random.choice(some)

    def keyed(self) -> Operator:
        return self.choose([one for one in self.metadata.operators if any(task.managed_keyed for task in one.subtasks)])

    def states(self, operator: Operator) -> dict[str, KeyedState]:
        return {state.name: state for state in self._opened.keyed_states(operator)}

    def row(
        self, operator: Operator, wanted: Callable[[KeyedState, Row], bool] = lambda state, row: True
    ) -> tuple[int, int, Row]:
        """A row's key group, its place in it and the row itself."""
        states = self.states(operator)
        found = [
            (group, place, row)
            for group, rows in self.rows_of(operator).items()
            for place, row in enumerate(rows)
            if wanted(states[row.state], row)
        ]
        return self.choose(found)

    def rows_of(self, operator: Operator) -> Groups:
        return self.rows(operator)

    def replace_row(self, operator: Operator, group: int, place: int, row: Row | None) -> None:
        def change(groups: Groups) -> None:
            groups[group][place : place + 1] = [] if row is None else [row]

        self.change_rows(operator, change)

    def handle(self, operator: Operator) -> tuple[Subtask, KeyedHandle]:
        """One with data."""
        some = [
            (task, task.managed_keyed)
            for task in operator.subtasks
            if task.managed_keyed is not None and any(task.managed_keyed.offsets)
        ]
        return self.choose(some)

    def replace_subtask(self, operator: Operator, index: int, change: Callable[[Subtask], Subtask]) -> None:
        def changed(one: Operator) -> Operator:
            subtasks = (change(task) if task.index == index else task for task in one.subtasks)
            return replace(one, subtasks=tuple(subtasks))

        self.change_operator(operator, changed)

    def replace_handle(self, operator: Operator, index: int, handle: KeyedHandle | None) -> None:
        self.replace_subtask(operator, index, lambda task: replace(task, managed_keyed=handle))

    def prefix(self, operator: Operator) -> int:
        return 1 if operator.max_parallelism <= 128 else 2


@dataclass
class Elements:
    """An operator state file taken apart: descriptions, and each state's elements in their order."""

    compressed: bool
    lists: list[StateMeta]
    broadcasts: list[StateMeta]
    states: list[tuple[str, DistributionMode, list[bytes]]]


Change = Callable[[Scene], Place]
HARMFUL: dict[str, Change] = {}
HARMLESS: dict[str, Change] = {}


def harmful(change: Change) -> Change:
    HARMFUL[change.__name__.replace("_", " ")] = change
    return change


def harmless(change: Change) -> Change:
    HARMLESS[change.__name__.replace("_", " ")] = change
    return change


# Rows of keyed state, timers among them.


def _flipped(data: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


def _counts(state: KeyedState, row: Row) -> bool:
    """Whether every byte of the value does: what lies behind a null is nobody's."""
    return bool(row.value) and not (state.kind is StateKind.MAP and row.value[0] == 1)


@harmful
def a_bit_of_a_value(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator, _counts)
    at = scene.random.randrange(len(row.value))
    value = _flipped(row.value, at, scene.random.randrange(8))
    scene.replace_row(operator, group, place, replace(row, value=value))
    return Place((row.state,), group)


@harmful
def a_bit_of_a_key(scene: Scene) -> Place:
    operator = scene.keyed()
    before = scene.prefix(operator)
    group, place, row = scene.row(operator, lambda state, row: len(row.key) > before)
    key = _flipped(row.key, scene.random.randrange(before, len(row.key)), scene.random.randrange(8))
    scene.replace_row(operator, group, place, replace(row, key=key))
    return Place((row.state,), group)


@harmful
def the_last_byte_of_a_user_key(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator, lambda state, row: state.kind is StateKind.MAP)
    scene.replace_row(operator, group, place, replace(row, key=_flipped(row.key, -1, scene.random.randrange(4))))
    return Place((row.state,), group)


@harmful
def a_timestamp(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(
        operator, lambda state, row: state.ttl and state.kind is StateKind.MAP and len(row.value) > 9
    )
    (stamp,) = struct.unpack_from(">q", row.value, 1)
    moved = stamp + scene.choose([1, -1, 1000, -1000, 86_400_000])
    scene.replace_row(
        operator, group, place, replace(row, value=row.value[:1] + struct.pack(">q", moved) + row.value[9:])
    )
    return Place((row.state,), group)


@harmful
def a_value_become_null(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator, lambda state, row: state.kind is StateKind.MAP and row.value[:1] == b"\0")
    scene.replace_row(operator, group, place, replace(row, value=b"\1"))
    return Place((row.state,), group)


@harmful
def a_row_gone(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator)
    scene.replace_row(operator, group, place, None)
    return Place((row.state,), group)


@harmful
def all_rows_of_a_key_group_gone(scene: Scene) -> Place:
    operator = scene.keyed()
    group, _, _ = scene.row(operator)
    scene.change_rows(operator, lambda groups: groups[group].clear())
    return Place((), group)


@harmful
def a_row_in_another_key_group(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator)
    other = (group + scene.random.randrange(1, operator.max_parallelism)) % operator.max_parallelism
    width = scene.prefix(operator)

    def change(groups: Groups) -> None:
        del groups[group][place]
        groups[other].append(replace(row, key=other.to_bytes(width, "big") + row.key[width:]))

    scene.change_rows(operator, change)
    return Place((row.state,), other)


@harmful
def a_row_with_another_key_groups_number(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator)
    width = scene.prefix(operator)
    other = (group + 1) % operator.max_parallelism
    scene.replace_row(operator, group, place, replace(row, key=other.to_bytes(width, "big") + row.key[width:]))
    return Place((row.state,), group)


@harmful
def two_key_groups_exchanged(scene: Scene) -> Place:
    operator = scene.keyed()
    one, _, row = scene.row(operator)
    other = scene.choose([group for group, rows in scene.rows(operator).items() if rows and group != one])
    width = scene.prefix(operator)

    def change(groups: Groups) -> None:
        moved = {
            to: [replace(row, key=to.to_bytes(width, "big") + row.key[width:]) for row in groups[of]]
            for of, to in ((one, other), (other, one))
        }
        groups.update(moved)

    scene.change_rows(operator, change)
    return Place((row.state,), one)


@harmful
def values_of_two_rows_exchanged(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator)
    others = [
        (its_group, its_place, its)
        for its_group, rows in scene.rows(operator).items()
        for its_place, its in enumerate(rows)
        if its.state == row.state and its.value != row.value and its.value[:1] == row.value[:1]
    ]
    other_group, other_place, other = scene.choose(others)

    def change(groups: Groups) -> None:
        groups[group][place] = replace(row, value=other.value)
        groups[other_group][other_place] = replace(other, value=row.value)

    scene.change_rows(operator, change)
    return Place((row.state,), group)


@harmful
def a_row_in_another_state(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator)
    other = scene.choose([name for name in scene.states(operator) if name != row.state])
    scene.replace_row(operator, group, place, replace(row, state=other))
    return Place((row.state, other), group)


@harmful
def a_timer_at_another_time(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator, lambda state, row: state.kind is StateKind.TIMERS)
    at = scene.prefix(operator) + scene.random.randrange(8)
    scene.replace_row(operator, group, place, replace(row, key=_flipped(row.key, at, scene.random.randrange(7))))
    return Place((row.state,), group)


@harmless
def rows_in_another_order(scene: Scene) -> Place:
    operator = scene.keyed()

    def change(groups: Groups) -> None:
        for rows in groups.values():
            scene.random.shuffle(rows)

    scene.change_rows(operator, change)
    return Place()


# Headers of keyed state.


def _of_headers(scene: Scene, change: Callable[[KeyedHeader], KeyedHeader | None]) -> tuple[Operator, int]:
    """Changes the description in one subtask's file; its rows stay as they are, by the names of their states."""
    operator = scene.keyed()
    task, _ = scene.handle(operator)
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


def _other_type(scene: Scene, header: KeyedHeader) -> tuple[StateMeta, StateMeta] | None:
    """A map state, and its description with user keys and values exchanged."""
    pairs = []
    for meta in header.states:
        value = meta.serializer(VALUE_SERIALIZER)
        if meta.option(KEYED_STATE_TYPE) == "MAP" and value is not None and value.nested[0].raw != value.nested[1].raw:
            exchanged = map_snapshot(value.nested[1], value.nested[0])
            serializers = ((key, exchanged if key == VALUE_SERIALIZER else its) for key, its in meta.serializers)
            pairs.append((meta, replace(meta, serializers=tuple(serializers))))
    return scene.random.choice(pairs) if pairs else None


@harmful
def a_state_described_as_another_type(scene: Scene) -> Place:
    named: list[str] = []

    def change(header: KeyedHeader) -> KeyedHeader | None:
        found = _other_type(scene, header)
        if found is None:
            return None
        named.append(found[0].name)
        return _with_state(header, found[0].name, lambda _: found[1])

    operator, index = _of_headers(scene, change)
    return Place((f"operator {operator.label}, subtask {index}", *named))


@harmful
def a_state_described_twice(scene: Scene) -> Place:
    """First with another type, then as it is."""
    named: list[str] = []

    def change(header: KeyedHeader) -> KeyedHeader | None:
        found = _other_type(scene, header)
        if found is None:
            return None
        named.append(found[0].name)
        return replace(header, states=(found[1], *header.states))

    _of_headers(scene, change)
    return Place(tuple(named))


@harmful
def a_state_of_another_name(scene: Scene) -> Place:
    operator = scene.keyed()
    task, handle = scene.handle(operator)
    rows = scene.rows(operator)
    name = scene.choose([row.state for group in handle.range for row in rows[group]])

    def renamed(header: KeyedHeader) -> KeyedHeader:
        return _with_state(header, name, lambda meta: replace(meta, name=f"{name}2"))

    scene.replace_header(operator, task.index, renamed)
    return Place((f"{name}2", name))


@harmful
def a_states_kind(scene: Scene) -> Place:
    """A value state described as a reducing one, a map as a value: the option alone."""
    operator = scene.keyed()
    task, _ = scene.handle(operator)
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
    operator = scene.keyed()
    task, handle = scene.handle(operator)
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
    operator = scene.keyed()
    task, _ = scene.handle(operator)
    header = scene.header(operator, task.index)
    values = [meta.serializer(VALUE_SERIALIZER) for meta in header.states]
    key = scene.choose([one for one in values if one is not None and one.raw != header.key_serializer.raw])
    scene.replace_header(operator, task.index, lambda header: replace(header, key_serializer=key))
    return Place((operator.label,))


@harmful
def the_flag_of_compression(scene: Scene) -> Place:
    operator = scene.keyed()
    task, _ = scene.handle(operator)
    scene.replace_header(operator, task.index, lambda header: replace(header, compressed=not header.compressed))
    return Place((operator.label,))


@harmless
def states_described_in_another_order(scene: Scene) -> Place:
    operator = scene.keyed()
    task, _ = scene.handle(operator)

    def reversed_(header: KeyedHeader, index: int) -> KeyedHeader:
        return replace(header, states=header.states[::-1]) if index == task.index else header

    scene.change_headers_of_subtasks(operator, reversed_)
    return Place()


# Compressed key groups, files and inlined state.


@harmful
def a_bit_of_a_compressed_key_group(scene: Scene) -> Place:
    operator = scene.keyed()
    task, handle = scene.handle(operator)
    if not scene.header(operator, task.index).compressed:
        raise NotApplicableError
    data = scene.content(handle.stream)
    at = scene.random.randrange(min(offset for offset in handle.offsets if offset), len(data))
    stream = scene.stored(_flipped(data, at, scene.random.randrange(8)), handle.stream)
    scene.replace_handle(operator, task.index, replace(handle, stream=stream))
    return Place((operator.label,))


@harmless
def key_groups_compressed_in_other_blocks(scene: Scene) -> Place:
    operator = scene.keyed()
    task, handle = scene.handle(operator)
    if not scene.header(operator, task.index).compressed:
        raise NotApplicableError
    data, offsets = scene.content(handle.stream), [offset for offset in handle.offsets if offset]
    ends = dict(zip(sorted(offsets), [*sorted(offsets)[1:], len(data)], strict=True))
    out, at = data[: min(offsets)], []
    for offset in handle.offsets:
        at.append(len(out) if offset else 0)
        if offset:
            plain = bytes(cramjam.snappy.decompress(data[offset : ends[offset]]))
            halves = [
                bytes(cramjam.snappy.compress(part)) for part in (plain[: len(plain) // 2], plain[len(plain) // 2 :])
            ]
            out += halves[0] + halves[1]
    stream = scene.stored(out, handle.stream)
    scene.replace_handle(operator, task.index, replace(handle, offsets=tuple(at), stream=stream))
    return Place()


def _file(scene: Scene) -> tuple[Operator, RelativeFile]:
    """Any file, of keyed state or of others."""
    files = [
        (operator, stream)
        for operator in scene.metadata.operators
        for task in operator.subtasks
        for stream in task.streams()
        if isinstance(stream, RelativeFile)
    ]
    return scene.choose(files)


@harmful
def a_file_cut_short(scene: Scene) -> Place:
    operator, file = _file(scene)
    path = scene.folder / file.path
    path.write_bytes(path.read_bytes()[: -scene.random.randrange(1, 20)])
    return Place((operator.label,))


@harmful
def a_file_gone(scene: Scene) -> Place:
    operator, file = _file(scene)
    (scene.folder / file.path).unlink()
    return Place((operator.label,))


@harmful
def keyed_state_cut_short_and_its_size_with_it(scene: Scene) -> Place:
    operator = scene.keyed()
    task, handle = scene.handle(operator)
    data = scene.content(handle.stream)
    stream = scene.stored(data[: -scene.random.randrange(1, 20)], handle.stream)
    scene.replace_handle(operator, task.index, replace(handle, stream=stream))
    return Place((operator.label,))


@harmful
def the_files_of_two_subtasks_exchanged(scene: Scene) -> Place:
    operator = scene.keyed()
    one, handle = scene.handle(operator)
    other, its = scene.choose(
        [
            (task, task.managed_keyed)
            for task in operator.subtasks
            if task.index != one.index and task.managed_keyed and any(task.managed_keyed.offsets)
        ]
    )
    scene.replace_handle(operator, one.index, replace(handle, stream=its.stream))
    scene.replace_handle(operator, other.index, replace(its, stream=handle.stream))
    return Place((operator.label,))


@harmless
def a_file_inlined(scene: Scene) -> Place:
    operator = scene.keyed()
    task, handle = scene.handle(operator)
    if isinstance(handle.stream, RelativeFile):
        stream: InlineBytes | RelativeFile = InlineBytes("elsewhere", scene.content(handle.stream))
    else:
        (scene.folder / "a-file").write_bytes(scene.content(handle.stream))
        stream = RelativeFile("a-file", len(scene.content(handle.stream)))
    scene.replace_handle(operator, task.index, replace(handle, stream=stream))
    return Place()


# Key groups and subtasks in `_metadata`.


@harmful
def an_offset_become_none(scene: Scene) -> Place:
    operator = scene.keyed()
    task, handle = scene.handle(operator)
    at = scene.choose([at for at, offset in enumerate(handle.offsets) if offset])
    offsets = tuple(0 if place == at else offset for place, offset in enumerate(handle.offsets))
    scene.replace_handle(operator, task.index, replace(handle, offsets=offsets))
    return Place((operator.label,), handle.range.start + at)


@harmful
def an_offset_a_little_off(scene: Scene) -> Place:
    operator = scene.keyed()
    task, handle = scene.handle(operator)
    at = scene.choose([at for at, offset in enumerate(handle.offsets) if offset])
    by = scene.choose([1, -1, 2, -2, 7])
    offsets = tuple(offset + by if place == at else offset for place, offset in enumerate(handle.offsets))
    scene.replace_handle(operator, task.index, replace(handle, offsets=offsets))
    return Place((operator.label,), handle.range.start + at)


@harmful
def two_offsets_exchanged(scene: Scene) -> Place:
    operator = scene.keyed()
    task, handle = scene.handle(operator)
    there = [at for at, offset in enumerate(handle.offsets) if offset]
    one = scene.choose(there)
    other = scene.choose([at for at in there if at != one])
    offsets = list(handle.offsets)
    offsets[one], offsets[other] = offsets[other], offsets[one]
    scene.replace_handle(operator, task.index, replace(handle, offsets=tuple(offsets)))
    return Place((operator.label,), handle.range.start + one)


@harmful
def a_range_of_key_groups(scene: Scene) -> Place:
    operator = scene.keyed()
    task, handle = scene.handle(operator)
    range_ = handle.range
    if range_.end + 1 >= operator.max_parallelism:
        raise NotApplicableError
    moved = KeyGroupRange(range_.start + 1, range_.end + 1)
    scene.replace_handle(operator, task.index, replace(handle, range=moved))
    return Place((operator.label,))


@harmful
def keyed_state_of_a_subtask_gone(scene: Scene) -> Place:
    operator = scene.keyed()
    task, _ = scene.handle(operator)
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
    id_ = _flipped(operator.id, scene.random.randrange(16), scene.random.randrange(8))
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
    other = _flipped(data, scene.random.randrange(len(data)), scene.random.randrange(8)) if data else b"\0"
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
    properties = _flipped(metadata.properties, at, scene.random.randrange(8))
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


# State of no key.


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
        parts[at] = _flipped(parts[at], scene.random.randrange(len(parts[at])), scene.random.randrange(8))
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


@harmful
def a_broadcast_state_described_among_the_lists(scene: Scene) -> Place:
    def change(elements: Elements) -> str | None:
        if not elements.broadcasts:
            return None
        moved = elements.broadcasts.pop(scene.random.randrange(len(elements.broadcasts)))
        elements.lists.append(moved)
        return moved.name

    return _of_elements(scene, change)


@harmful
def a_list_described_among_the_broadcast_states(scene: Scene) -> Place:
    def change(elements: Elements) -> str | None:
        if not elements.lists:
            return None
        moved = elements.lists.pop(scene.random.randrange(len(elements.lists)))
        elements.broadcasts.append(moved)
        return moved.name

    return _of_elements(scene, change)


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


# State that an operator writes by itself.


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
    other = _flipped(data, scene.random.randrange(len(data)), scene.random.randrange(8))
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
