"""Moving entries to the key groups of another max parallelism, in bounded memory.

Entries are gathered until a run is full, then brought into the order of their new key groups and put on a scratch
file; a new key group is read back run by run, so that entries keep the order they came in.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stateferry import kernels
from stateferry.errors import DamagedError, RefusedError
from stateferry.java_hash import hash_codes, unstable_reason
from stateferry.key_group_arrays import assign_to_key_groups
from stateferry.key_groups import key_group_prefix_bytes
from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.key_group_file import Section
from stateferry.savepoint.state import KeyedState, StateKind
from stateferry.types import OpaqueType, type_name
from stateferry.walker import Positions, skip_each

RUN = 64 << 20
_TIMER_TIMESTAMP = 8


def refuse_unstable(state: KeyedState, operator: str) -> None:
    """Refuses a key whose new key group can't be told from its bytes."""
    if isinstance(state.namespace, OpaqueType) and state.kind is StateKind.TIMERS:
        raise RefusedError(f"operator {operator}: the elements of {state.name} can't be read: {state.namespace.reason}")
    if reason := unstable_reason(state.key):
        raise RefusedError(
            f"operator {operator}: its keys ({type_name(state.key)}) can't move to another max parallelism: {reason}"
        )


def new_key_groups(section: Section, state: KeyedState, old_max: int, new_max: int) -> Positions:
    """The key group of each entry at the new max parallelism, once its present one has proved that the hash is
    right."""
    before_key = section.file.prefix + (_TIMER_TIMESTAMP if state.kind is StateKind.TIMERS else 0)
    starts = section.key_starts + before_key
    with section.locating():
        ends = skip_each(state.key, section.data, starts, section.key_ends)
        codes = hash_codes(state.key, section.data, starts, ends)
        present = assign_to_key_groups(codes, old_max)
        wrong = np.flatnonzero(present != section.key_group)
        if len(wrong):
            found = int(present[wrong[0]])
            raise DamagedError(
                f"keys whose hash leads to key group {section.key_group} of {old_max}",
                f"a key of {state.name} whose hash leads to {found}",
                offset=int(starts[wrong[0]]),
            )
    groups: Positions = assign_to_key_groups(codes, new_max).astype(np.int64)
    return groups


@dataclass(frozen=True, slots=True)
class _Run:
    """Entries of one state in the order of their new key groups, on the scratch file from `base` on: those of
    `groups[i]` from `starts[i]` to `starts[i + 1]`, the last of them from `last_starts[i]`."""

    state: int
    base: int
    groups: Positions
    starts: Positions
    last_starts: Positions


# Entries, where they begin, their keys end and they end, and their new key groups.
_Gathered = tuple[Buffer, Positions, Positions, Positions, Positions]


class Scatter:
    """Takes sections in, gives the entries of new key groups out; use as a context manager."""

    def __init__(self, old_max: int, new_max: int, scratch: str | None = None) -> None:
        self._old_max, self._new_max = old_max, new_max
        self._new_prefix = key_group_prefix_bytes(new_max)
        self._file: Any = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115  closed by __exit__
        self._written = 0
        self._runs: list[_Run] = []
        self._gathered: dict[int, list[_Gathered]] = {}
        self._size = 0

    def __enter__(self) -> Scatter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, section: Section, state_id: int, state: KeyedState) -> None:
        targets = new_key_groups(section, state, self._old_max, self._new_max)
        begin = int(section.starts[0])
        relative = (section.starts - begin, section.key_ends - begin, section.ends - begin)
        self._gathered.setdefault(state_id, []).append((section.raw.copy(), *relative, targets))
        self._size += len(section.raw)
        if self._size >= RUN:
            self._end_runs()

    def _end_runs(self) -> None:
        """States share the budget, since a key group has some of each."""
        for state, gathered in self._gathered.items():
            self._runs.append(self._write_run(state, gathered))
        self._gathered, self._size = {}, 0

    def _write_run(self, state: int, gathered: list[_Gathered]) -> _Run:
        old_prefix = key_group_prefix_bytes(self._old_max)
        bases = np.cumsum([0, *(len(part[0]) for part in gathered)])
        data = np.concatenate([part[0] for part in gathered])
        starts, key_ends, ends = (
            np.concatenate([part[column] + base for part, base in zip(gathered, bases, strict=False)])
            for column in (1, 2, 3)
        )
        targets = np.concatenate([part[4] for part in gathered])
        order = np.argsort(targets, kind="stable")
        sizes = (ends - starts)[order] + (self._new_prefix - old_prefix)
        out_ends = np.cumsum(sizes)
        out = np.empty(int(out_ends[-1]), np.uint8)
        kernels.copy_entries(data, starts, key_ends, ends, targets, order, old_prefix, self._new_prefix, out)
        groups, first = np.unique(targets[order], return_index=True)
        last = np.append(first[1:], len(order)) - 1
        bounds = np.append(out_ends[first] - sizes[first], out_ends[-1])
        base = self._written
        self._file.write(out.data)
        self._written += len(out)
        return _Run(state, base, groups, bounds, out_ends[last] - sizes[last])

    def entries(self, key_group: int) -> Iterator[tuple[int, Buffer, int]]:
        """State id, entries and where the last of them begins: the key group's, each state's in one go."""
        self._end_runs()
        pieces = []
        for run in self._runs:
            at = int(np.searchsorted(run.groups, key_group))
            if at < len(run.groups) and run.groups[at] == key_group:
                pieces.append((run.state, run, at))
        for state, run, at in sorted(pieces, key=lambda piece: piece[0]):
            start, end = int(run.starts[at]), int(run.starts[at + 1])
            self._file.seek(run.base + start)
            entries = np.frombuffer(self._file.read(end - start), np.uint8)
            yield state, entries, int(run.last_starts[at]) - start
