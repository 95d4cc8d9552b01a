"""What alterations are made of: a copy of a result, what to choose from in it, and the two sorts of kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TypeVar

from flinkstate.keyed.header import StateMeta
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import (
    KeyedHandle,
    Operator,
    Subtask,
)
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.reading.reader import Savepoint
from tests.support.saboteur import Groups, Row, Saboteur

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

    def handle(self) -> tuple[Operator, Subtask, KeyedHandle]:
        """One with data, of an operator with keyed state."""
        operator = self.keyed()
        some = [
            (operator, task, task.managed_keyed)
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


def flipped(data: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)
