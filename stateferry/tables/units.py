"""Splits a chunk into units: a few key groups that are read twice, once for the keys and once for the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from flinkstate.files.storage import Location
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.keyed_file import ENTRY_POSITIONS, MOST_HELD, WINDOW, KeyedFile, Section
from flinkstate.keyed.keyed_files import open_keyed
from flinkstate.keyed.native_file import NativeFile
from flinkstate.keyed.state import KeyedState, keyed_states
from flinkstate.metadata.chunks import Chunk
from flinkstate.rocksdb.prefixes import Prefixes
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo

Found = list[tuple[KeyedState, Section]]


class Unit:
    """Some key groups of a file, which can be iterated several times.

    They are read once if all of them fit into `room`, else at each iteration.
    """

    def __init__(
        self,
        file: KeyedFile,
        key_groups: list[int],
        states: tuple[KeyedState, ...],
        room: Buffer,
        rewrite: ForOtherKryo,
    ) -> None:
        self._file, self._states, self._room, self._rewrite = file, states, room, rewrite
        self._sizes = {key_group: file.size_of(key_group) for key_group in key_groups}
        self._kept: Found | None = None

    def __iter__(self) -> Iterator[tuple[KeyedState, Section]]:
        if self._kept is None:
            self._kept = self._keep()
        for state, section in self._kept or self._read():
            yield self._rewrite.state(state), self._rewrite.section(state, section)

    def _read(self) -> Iterator[tuple[KeyedState, Section]]:
        for key_group in self._sizes:
            for section in self._file.sections(key_group, self._room[:WINDOW]):
                yield self._states[section.state], section

    def _keep(self) -> Found:
        """Returns all sections, if they fit into the room together; else nothing."""
        if self._file.header.compressed or sum(self._sizes.values()) > len(self._room):
            return []
        found: Found = []
        free = self._room
        most_entries = (MOST_HELD - sum(self._sizes.values())) // ENTRY_POSITIONS
        for key_group, size in self._sizes.items():
            before: Section | None = None
            used = size if self._file.has_places else 0
            for section in self._file.sections(key_group, free[:size] if self._file.has_places else free):
                most_entries -= len(section)
                if most_entries < 0 or (before is not None and not section.lies_with(before)):
                    return []
                before = section
                used = max(used, int(section.ends[-1]))
                found.append((self._states[section.state], section.with_own_positions()))
            free = free[used:]
        return found


def units(
    folder: Location,
    chunk: Chunk,
    changed: Mapping[int, Mapping[int, Prefixes]] | None = None,
    by_kryo: Mapping[str, KeyedState] | None = None,
) -> Iterator[Unit]:
    """Yields the units of a chunk, each valid until the next one is asked for.

    Given the keys that have `changed`, by subtask and state id, only these are read. States `by_kryo` are written for
    another Flink.
    """
    rewrite = ForOtherKryo(by_kryo or {})
    for part in chunk.parts:
        with open_keyed(folder, part.handle, chunk.max_parallelism, part.subtask, wanted=part.key_groups) as file:
            if changed is not None and isinstance(file, NativeFile):
                file.only = changed[part.subtask]
            states = keyed_states(file.header, file.name)
            room = _room(file, part.key_groups)
            unit: list[int] = []
            size = 0
            for key_group in part.key_groups:
                size += file.size_of(key_group)
                if unit and size > WINDOW:
                    yield Unit(file, unit, states, room, rewrite)
                    unit, size = [], file.size_of(key_group)
                unit.append(key_group)
            if unit:
                yield Unit(file, unit, states, room, rewrite)


def _room(file: KeyedFile, key_groups: Iterable[int]) -> Buffer:
    """Returns a buffer for the largest of those key groups that may be kept."""
    sizes = [] if file.header.compressed else [file.size_of(key_group) for key_group in key_groups]
    return np.empty(max([WINDOW, *(size for size in sizes if size <= MOST_HELD)]), np.uint8)
