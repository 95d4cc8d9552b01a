"""Writes a native savepoint or a checkpoint as a canonical savepoint with the same state.

Each subtask is a task of its own. Doing it again writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from stateferry.savepoint.file_names import METADATA
from stateferry.savepoint.key_group_file import WINDOW
from stateferry.savepoint.metadata import KeyedHandle, NativeHandle, Operator, Subtask
from stateferry.savepoint.native_file import NativeFile
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.savepoint_properties import CANONICAL_SAVEPOINT
from stateferry.savepoint.storage import Location
from stateferry.savepoint.writer import SavepointWriter


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copies one subtask's state into the folder `target`. `operator` comes without its subtasks."""

    source: Location
    target: str
    operator: Operator
    subtask: Subtask

    def copy(self) -> CopiedSubtask:
        """Writes the subtask's files."""
        writer, native = SavepointWriter(self.target), self.subtask.native_keyed
        carried = writer.carry_over(self.source, self.operator.hex_id, self.subtask, keyed=native is None)
        if native is not None:
            carried = replace(carried, native_keyed=None, managed_keyed=self._copy_rows(writer, native))
        return CopiedSubtask(self.operator.id, carried)

    def _copy_rows(self, writer: SavepointWriter, native: NativeHandle) -> KeyedHandle:
        operator, index, window = self.operator, self.subtask.index, np.empty(WINDOW, np.uint8)
        with (
            NativeFile(self.source, native, operator.max_parallelism, index, operator.label) as file,
            writer.keyed_file(operator.hex_id, index, file.header, native.range) as out,
        ):
            file.expect_canonical()
            for key_group in native.range:
                for section in file.sections(key_group, window):
                    last_start = int(section.starts[-1] - section.starts[0])
                    out.entries(key_group, section.state, section.raw, last_start)
            return out.close()


@dataclass(frozen=True, slots=True)
class CopiedSubtask:
    """A subtask with the handles of its copied files."""

    operator: bytes
    subtask: Subtask

    @property
    def size(self) -> int:
        """The bytes of its state."""
        return sum(stream.size for stream in self.subtask.streams())


def copy_tasks(source: Savepoint, target: Location) -> list[CopyTask]:
    """Returns a task for each subtask."""
    return [
        CopyTask(source.folder, target.shown, replace(operator, subtasks=()), subtask)
        for operator in source.metadata.operators
        for subtask in operator.subtasks
    ]


def complete(source: Savepoint, target: Location, copied: Iterable[CopiedSubtask]) -> None:
    """Writes `_metadata`, which makes the folder a savepoint."""
    subtasks = {(one.operator, one.subtask.index): one.subtask for one in copied}
    operators = tuple(
        replace(operator, subtasks=tuple(subtasks[operator.id, subtask.index] for subtask in operator.subtasks))
        for operator in source.metadata.operators
    )
    properties = CANONICAL_SAVEPOINT if source.metadata.properties else b""
    SavepointWriter(target.shown).commit(replace(source.metadata, operators=operators, properties=properties))


def is_complete(target: Location) -> bool:
    """Whether the folder has a copy, with its `_metadata`."""
    return target.child(METADATA).is_file()
