"""Rows of keyed state, timers among them."""

from __future__ import annotations

import struct
from dataclasses import replace

from flinkstate.keyed.state import KeyedState, StateKind
from tests.support.alterations.scene import (
    Place,
    Scene,
    flipped,
    harmful,
    harmless,
)
from tests.support.saboteur import Groups, Row


def _counts(state: KeyedState, row: Row) -> bool:
    """Whether every byte of the value does: what lies behind a null is nobody's."""
    return bool(row.value) and not (state.kind is StateKind.MAP and row.value[0] == 1)


def _in_key_group(row: Row, group: int, width: int) -> Row:
    """By the number in front of its key, of so many bytes."""
    return replace(row, key=group.to_bytes(width, "big") + row.key[width:])


@harmful
def a_bit_of_a_value(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator, _counts)
    at = scene.random.randrange(len(row.value))
    value = flipped(row.value, at, scene.random.randrange(8))
    scene.replace_row(operator, group, place, replace(row, value=value))
    return Place((row.state,), group)


@harmful
def a_bit_of_a_key(scene: Scene) -> Place:
    operator = scene.keyed()
    before = scene.prefix(operator)
    group, place, row = scene.row(operator, lambda state, row: len(row.key) > before)
    key = flipped(row.key, scene.random.randrange(before, len(row.key)), scene.random.randrange(8))
    scene.replace_row(operator, group, place, replace(row, key=key))
    return Place((row.state,), group)


@harmful
def the_last_byte_of_a_user_key(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator, lambda state, row: state.kind is StateKind.MAP)
    scene.replace_row(operator, group, place, replace(row, key=flipped(row.key, -1, scene.random.randrange(4))))
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
def a_row_twice(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator)
    scene.change_rows(operator, lambda groups: groups[group].insert(place, row))
    return Place((row.state,), group)


@harmful
def a_row_in_the_place_of_another_one_of_its_state(scene: Scene) -> Place:
    """So that there are as many rows as before, and one key twice."""
    operator = scene.keyed()
    group, place, row = scene.row(operator)
    others = [at for at, one in enumerate(scene.rows(operator)[group]) if one.state == row.state and at != place]
    scene.replace_row(operator, group, scene.choose(others), row)
    return Place((f"{row.state}, key",), group)


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
        groups[other].append(_in_key_group(row, other, width))

    scene.change_rows(operator, change)
    return Place((row.state,), other)


@harmful
def a_row_with_another_key_groups_number(scene: Scene) -> Place:
    operator = scene.keyed()
    group, place, row = scene.row(operator)
    width = scene.prefix(operator)
    other = (group + 1) % operator.max_parallelism
    scene.replace_row(operator, group, place, _in_key_group(row, other, width))
    return Place((row.state,), group)


@harmful
def two_key_groups_exchanged(scene: Scene) -> Place:
    operator = scene.keyed()
    one, _, row = scene.row(operator)
    other = scene.choose([group for group, rows in scene.rows(operator).items() if rows and group != one])
    width = scene.prefix(operator)

    def change(groups: Groups) -> None:
        moved = {to: [_in_key_group(row, to, width) for row in groups[of]] for of, to in ((one, other), (other, one))}
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
    scene.replace_row(operator, group, place, replace(row, key=flipped(row.key, at, scene.random.randrange(7))))
    return Place((row.state,), group)


@harmless
def rows_in_another_order(scene: Scene) -> Place:
    operator = scene.keyed()

    def change(groups: Groups) -> None:
        for rows in groups.values():
            scene.random.shuffle(rows)

    scene.change_rows(operator, change)
    return Place()
