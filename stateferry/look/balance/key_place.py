"""Finds where a key belongs: its key group, its subtask and the bytes of the key group, in this and other layouts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flinkstate.errors import RefusedError, UsageError
from flinkstate.hashing.java_hash import hash_codes, unstable_reason
from flinkstate.hashing.key_groups import (
    KeyGroupRange,
    assign_to_key_group,
    check_layout,
    operator_index_for_key_group,
    range_for_operator_index,
)
from flinkstate.keyed.key_group_check import hash_is_certain, key_offset, why_not_shown
from flinkstate.keyed.keyed_file import WINDOW, KeyedFile, Section
from flinkstate.metadata.key_group_extents import SubtaskFile, key_group_extents
from flinkstate.metadata.metadata import Operator
from flinkstate.metadata.streams import stream_name
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType, type_name
from flinkstate.values.value_of_text import bytes_of_text


@dataclass(frozen=True, slots=True)
class KeyGroupBytes:
    """Where a key group is: `size` bytes from `offset` of the file; RocksDB's own files have no such place (None)."""

    file: str
    offset: int | None
    size: int | None


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """The key group and the subtask of a key in a layout, and the bytes of the key group, if the savepoint has them."""

    parallelism: int
    max_parallelism: int
    key_group: int
    bytes: KeyGroupBytes | None

    @property
    def subtask(self) -> int:
        return operator_index_for_key_group(self.max_parallelism, self.parallelism, self.key_group)

    @property
    def key_groups(self) -> KeyGroupRange:
        """The key groups of the subtask."""
        return range_for_operator_index(self.max_parallelism, self.parallelism, self.subtask)


@dataclass(frozen=True, slots=True)
class StateRows:
    """What a state has of a key: rows, with their bytes (uncompressed, as `inspect` counts them)."""

    state: str
    rows: int
    bytes: int


class KeyFinder:
    """Answers where a key of an operator is."""

    def __init__(self, savepoint: Savepoint, operator: Operator, text: str) -> None:
        self._savepoint, self.operator = savepoint, operator
        self.type = _key_type(savepoint, operator)
        self.data = bytes_of_text(self.type, text)
        self.unstable = unstable_reason(self.type)

    @property
    def hash_code(self) -> int | None:
        """The key's `hashCode`, or None if it doesn't follow from its bytes."""
        if self.unstable is not None:
            return None
        data = np.frombuffer(self.data, np.uint8)
        return int(hash_codes(self.type, data, np.array([0]), np.array([len(data)]))[0])

    @property
    def is_certain(self) -> bool:
        """Whether the key's bytes alone say its hash: a Row is hashed else by a job that sets its fields by name."""
        return hash_is_certain(self.type)

    def place(self, found_in: int | None = None) -> KeyPlace:
        """Returns the key's place in the savepoint; `found_in` is the key group in which it was found, if it was."""
        operator, code, key_group = self.operator, self.hash_code, found_in
        if key_group is None and code is None:
            raise RefusedError(
                f"the key group of a {type_name(self.type)} isn't known: {self.unstable}; "
                "--look searches the savepoint for the key's bytes"
            )
        if key_group is None:
            assert code is not None
            key_group = assign_to_key_group(code, operator.max_parallelism)
        return KeyPlace(operator.parallelism, operator.max_parallelism, key_group, self._bytes_of(key_group))

    def place_in(self, today: KeyPlace, parallelism: int, max_parallelism: int) -> KeyPlace:
        """Returns the key's place in another layout."""
        check_layout(max_parallelism, parallelism)
        if max_parallelism == today.max_parallelism:
            return KeyPlace(parallelism, max_parallelism, today.key_group, today.bytes)
        code, unshown = self.hash_code, why_not_shown(self.type, today.max_parallelism)
        if code is None or unshown:
            raise RefusedError(
                f"the key group of a {type_name(self.type)} at another max parallelism isn't known: "
                f"{self.unstable or unshown}"
            )
        if today.key_group != assign_to_key_group(code, today.max_parallelism):
            raise RefusedError(
                f"the key group of this {type_name(self.type)} at another max parallelism isn't known: it is in key "
                f"group {today.key_group}, where its hash by position doesn't lead; the job sets its fields by name, "
                "or Flink 1.12 wrote this"
            )
        return KeyPlace(parallelism, max_parallelism, assign_to_key_group(code, max_parallelism), None)

    def rows(self) -> tuple[int | None, tuple[StateRows, ...]]:
        """Reads what each state has of the key, and the key group that it is in (None if no state has the key).

        This reads one key group, or all if the key's bytes don't say its hash.
        """
        code, wanted = self.hash_code, None
        if code is not None and self.is_certain:
            wanted = assign_to_key_group(code, self.operator.max_parallelism)
        found: dict[str, StateRows] = {}
        found_in: int | None = None
        for file in self._savepoint.open_files(self.operator):
            for key_group in file.extents if wanted is None else [wanted]:
                for name, rows, size in self._rows_in(file, key_group):
                    before = found.get(name, StateRows(name, 0, 0))
                    found[name] = StateRows(name, before.rows + rows, before.bytes + size)
                    found_in = key_group
        return found_in, tuple(found.values())

    def _rows_in(self, file: KeyedFile, key_group: int) -> Iterator[tuple[str, int, int]]:
        states = file.header.states
        offsets = [key_offset(file.header, state, file.prefix) for state in range(len(states))]
        for section in file.sections(key_group, np.empty(WINDOW, np.uint8)):
            offset = offsets[section.state]
            if offset is not None:
                same = self._is_key(section, offset)
                if same.any():
                    size = int((section.ends - section.starts)[same].sum())
                    yield states[section.state].name, int(same.sum()), size

    def _is_key(self, section: Section, offset: int) -> np.typing.NDArray[np.bool_]:
        """Whether each entry has the key. A value's bytes say where it ends, so no other key begins with the same."""
        key = np.frombuffer(self.data, np.uint8)
        starts = section.starts + offset
        same = starts + len(key) <= section.key_ends
        for position, byte in enumerate(key):
            rows = np.flatnonzero(same)
            if not len(rows):
                break
            same[rows] = section.data[starts[rows] + position] == byte
        return same

    def _bytes_of(self, key_group: int) -> KeyGroupBytes | None:
        folder = self._savepoint.folder
        for subtask in self.operator.subtasks:
            native, handle = subtask.native_keyed, subtask.managed_keyed
            if native is not None and key_group in native.range:
                return KeyGroupBytes(stream_name(folder, native.meta), None, None)
            if handle is not None and key_group in handle.range:
                name = stream_name(folder, handle.stream)
                file = SubtaskFile(subtask.index, name, handle.range, handle.offsets, handle.stream.size)
                for extent in key_group_extents(file):
                    if extent.key_group == key_group:
                        return KeyGroupBytes(name, extent.start, extent.end - extent.start)
        return None


def _key_type(savepoint: Savepoint, operator: Operator) -> FlinkType:
    for file in savepoint.open_files(operator):
        return file.header.key_serializer.type
    raise UsageError(f"operator {operator.label} has no keyed state, so no key has a place in it")
