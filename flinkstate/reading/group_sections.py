"""The sections of one key group, kept in memory where they fit, because a migration reads them twice."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

import numpy as np

from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.keyed_file import ENTRY_POSITIONS, MOST_ENTRIES, MOST_HELD, WINDOW, KeyedFile, Section
from flinkstate.keyed.state import KeyedState

# Puts other sections in the place of those of a key group.
Rewriting = Callable[[int, Iterator[tuple[KeyedState, Section]]], Iterator[tuple[KeyedState, Section]]]


class GroupSections:
    """One key group of a file, which can be iterated several times. A key group that fits into the window is read once.

    Nothing else may be read by the same window or file in the meantime. A caller that will iterate twice calls `keep`
    first: then the key group is read once if it takes less than 128 MiB.
    """

    def __init__(
        self,
        file: KeyedFile,
        key_group: int,
        states: tuple[KeyedState, ...],
        window: Buffer,
        see: Callable[[Section], None] | None = None,
        rewrite: Rewriting | None = None,
    ) -> None:
        """`see` gets each section when it is read; `rewrite` gets all of them each time when they are iterated."""
        self.file, self.key_group, self.states, self._window, self._see = file, key_group, states, window, see
        self._rewrite = rewrite
        self._in_memory: list[Section] | None = None
        self._has_room = False

    def keep(self) -> None:
        """Has the key group's bytes stay in memory, unless it is compressed or too large."""
        size = self.file.size_of(self.key_group)
        if not self._has_room and self._in_memory is None and not self.file.header.compressed and size <= MOST_HELD:
            if size > len(self._window):
                self._window = np.empty(size, np.uint8)
            elif self.file.has_places:
                self._window = self._window[:size]
            self._has_room = True

    def __iter__(self) -> Iterator[tuple[KeyedState, Section]]:
        return self._rewritten(self.unchanged())

    def of(self, states: Container[str]) -> Iterator[tuple[KeyedState, Section]]:
        """Yields the sections of these states alone."""
        return self._rewritten((state, section) for state, section in self.unchanged() if state.name in states)

    def _rewritten(self, found: Iterator[tuple[KeyedState, Section]]) -> Iterator[tuple[KeyedState, Section]]:
        return found if self._rewrite is None else self._rewrite(self.key_group, found)

    def unchanged(self) -> Iterator[tuple[KeyedState, Section]]:
        """Yields the sections as they are in the file."""
        for section in self._read() if self._in_memory is None else self._in_memory:
            yield self.states[section.state], section

    def _read(self) -> Iterator[Section]:
        sections: list[Section] = []
        entries, together = 0, True
        for section in self._portions():
            if self._see is not None:
                self._see(section)
            entries += len(section)
            together = together and self._may_stay(entries) and section.lies_with(sections[0] if sections else section)
            sections = [*sections, section.with_own_positions() if self._has_room else section] if together else []
            yield section
        self._in_memory = sections if together else None

    def _portions(self) -> Iterator[Section]:
        """Yields the sections in parts: what is made of a section takes several times its memory."""
        for section in self.file.sections(self.key_group, self._window):
            yield from section.parts(WINDOW)

    def _may_stay(self, entries: int) -> bool:
        return len(self._window) + entries * ENTRY_POSITIONS <= MOST_HELD if self._has_room else entries <= MOST_ENTRIES
