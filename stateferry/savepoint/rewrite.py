"""One savepoint out of another: the same content in another layout.

Keyed state is read and written section by section; at another max parallelism every keyed operator's keys are hashed
anew. Everything else is carried over byte for byte, and so is what can't be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np

from stateferry.errors import DamagedError, PlanError, RefusedError
from stateferry.key_groups import KeyGroupRange, range_for_operator_index
from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.header import KeyedHeader
from stateferry.savepoint.key_group_file import WINDOW, KeyGroupFile, Section
from stateferry.savepoint.metadata import Operator, Subtask
from stateferry.savepoint.operator_rescale import redistribute_files
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.scatter import Scatter, refuse_unstable
from stateferry.savepoint.state import keyed_states
from stateferry.savepoint.writer import KeyedFileWriter, SavepointWriter


@dataclass(frozen=True, slots=True)
class Layout:
    """What to change: parallelism by operator id, max parallelism and compression for all; None leaves it as it is."""

    parallelism: Mapping[bytes, int] = field(default_factory=dict)
    max_parallelism: int | None = None
    compressed: bool | None = None

    def parallelism_of(self, operator: Operator) -> int:
        return self.parallelism.get(operator.id, operator.parallelism)

    def max_parallelism_of(self, operator: Operator) -> int:
        return self.max_parallelism or operator.max_parallelism


Progress = Callable[[int], None]


def rewrite(source: Savepoint, target: str, layout: Layout, progress: Progress = lambda _: None) -> None:
    """Writes the source in the new layout; `progress` is told the bytes of keyed state as they are read."""
    for operator in source.metadata.operators:
        _check(operator, layout)
    headers = {operator.id: merged_header(source, operator, layout) for operator in source.keyed_operators()}
    writer = SavepointWriter(target)
    operators = tuple(
        _rewrite_operator(source, writer, operator, layout, headers.get(operator.id), progress)
        for operator in source.metadata.operators
    )
    writer.commit(replace(source.metadata, operators=operators))


def _check(operator: Operator, layout: Layout) -> None:
    parallelism, max_parallelism = layout.parallelism_of(operator), layout.max_parallelism_of(operator)
    if not 1 <= parallelism <= max_parallelism:
        raise PlanError(
            f"operator {operator.label}: parallelism {parallelism} does not fit max parallelism {max_parallelism}"
        )
    moves = (parallelism, max_parallelism) != (operator.parallelism, operator.max_parallelism)
    if not moves or operator.fully_finished or not has_state(operator):
        return
    if any(subtask.finished for subtask in operator.subtasks):
        raise RefusedError(
            f"operator {operator.label} has finished subtasks: Flink can't restore them in another layout"
        )
    if any(subtask.raw_keyed is not None for subtask in operator.subtasks):
        raise RefusedError(f"operator {operator.label} has raw keyed state, which only its own code can lay out anew")
    if parallelism != operator.parallelism and any(subtask.raw_operator is not None for subtask in operator.subtasks):
        raise RefusedError(
            f"operator {operator.label} has raw operator state, which only its own code can lay out anew"
        )


def has_state(operator: Operator) -> bool:
    return any(subtask.finished or subtask.streams() for subtask in operator.subtasks)


def merged_header(source: Savepoint, operator: Operator, layout: Layout) -> KeyedHeader:
    """One header for all new files: each state of any subtask once, in the order in which they first appear."""
    merged: KeyedHeader | None = None
    for file in source.open_files(operator):
        header = file.header
        if layout.max_parallelism_of(operator) != operator.max_parallelism:
            for state in keyed_states(header, file.name):
                refuse_unstable(state, operator.label)
        if merged is None:
            merged = header
            continue
        if header.key_serializer.raw != merged.key_serializer.raw:
            raise RefusedError(f"{file.name}: operator {operator.label} has other keys here than in another subtask")
        known = {meta.name: meta for meta in merged.states}
        for meta in header.states:
            if not known.setdefault(meta.name, meta).same_as(meta):
                raise RefusedError(
                    f"{file.name}: state {meta.name} of operator {operator.label} is described differently "
                    "in another subtask"
                )
        merged = KeyedHeader(merged.compressed or header.compressed, merged.key_serializer, tuple(known.values()))
    if merged is None:
        raise DamagedError("keyed state", "none", file=source.folder.shown)
    return merged if layout.compressed is None else replace(merged, compressed=layout.compressed)


def _rewrite_operator(
    source: Savepoint,
    writer: SavepointWriter,
    operator: Operator,
    layout: Layout,
    header: KeyedHeader | None,
    progress: Progress,
) -> Operator:
    parallelism, max_parallelism = layout.parallelism_of(operator), layout.max_parallelism_of(operator)
    changed = replace(operator, parallelism=parallelism, max_parallelism=max_parallelism)
    if parallelism == operator.parallelism or operator.fully_finished:
        subtasks = {
            subtask.index: writer.carry_over(source.folder, operator.hex_id, subtask, keyed=False)
            for subtask in operator.subtasks
        }
    else:
        subtasks = redistribute_files(source.folder, writer, operator, parallelism)
    if header is not None:
        with _Entries(source, operator, header, max_parallelism, progress) as entries:
            for index, key_groups in _ranges(operator, changed).items():
                with writer.keyed_file(operator.hex_id, index, header, key_groups) as out:
                    _write(out, key_groups, entries)
                    handle = out.close()
                subtasks[index] = replace(subtasks.get(index, Subtask(index)), managed_keyed=handle)
    return replace(changed, subtasks=tuple(subtasks.values()))


def _ranges(operator: Operator, changed: Operator) -> dict[int, KeyGroupRange]:
    """The key groups of each new file. An unchanged layout keeps the ranges that are there: a subtask without keyed
    state goes on without."""
    if (changed.parallelism, changed.max_parallelism) == (operator.parallelism, operator.max_parallelism):
        handles = ((subtask.index, subtask.managed_keyed) for subtask in operator.subtasks)
        return {index: handle.range for index, handle in handles if handle is not None}
    return {
        index: range_for_operator_index(changed.max_parallelism, changed.parallelism, index)
        for index in range(changed.parallelism)
    }


def _write(out: KeyedFileWriter, key_groups: KeyGroupRange, entries: _Entries) -> None:
    for key_group in key_groups:
        for state, data, last_start in entries.of(key_group):
            out.entries(key_group, state, data, last_start)


class _Entries:
    """An operator's entries by the key groups of the new layout; use as a context manager."""

    def __init__(
        self, source: Savepoint, operator: Operator, header: KeyedHeader, max_parallelism: int, progress: Progress
    ) -> None:
        self._source, self._operator, self._progress = source, operator, progress
        self._ids = {state.name: index for index, state in enumerate(header.states)}
        self._opened = ExitStack()
        self._files = source.open_all(operator, self._opened)
        self._window = np.empty(WINDOW, np.uint8)
        self._scatter: Scatter | None = None
        if max_parallelism != operator.max_parallelism:
            self._scatter = self._opened.enter_context(Scatter(operator.max_parallelism, max_parallelism))
            self._fill(self._scatter)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def of(self, key_group: int) -> Iterator[tuple[int, Buffer, int]]:
        """State id, entries, and where the last of these begins: all of a state before another."""
        if self._scatter is not None:
            yield from self._scatter.entries(key_group)
            return
        for file in self._files:
            if key_group in file.handle.range:
                for section, state in self._sections(file, key_group):
                    yield state, section.raw, int(section.starts[-1] - section.starts[0])

    def _sections(self, file: KeyGroupFile, key_group: int) -> Iterator[tuple[Section, int]]:
        ids = [self._ids[state.name] for state in file.header.states]
        for section in file.sections(key_group, self._window):
            yield section, ids[section.state]
        extent = file.extents.get(key_group)
        self._progress(extent.end - extent.start if extent else 0)

    def _fill(self, scatter: Scatter) -> None:
        for file in self._files:
            states = keyed_states(file.header, file.name)
            for key_group in file.handle.range:
                for section, state in self._sections(file, key_group):
                    scatter.add(section, state, states[section.state])
