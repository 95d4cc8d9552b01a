"""Counts what a savepoint holds: entries, bytes and key groups of every state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from flinkstate.basics.array_types import Positions
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import DamagedError
from flinkstate.keyed.compression import Compression
from flinkstate.keyed.keyed_file import WINDOW, KeyedFile, Section
from flinkstate.keyed.state import KeyedState
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.metadata.metadata import Operator
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.reading.reader import Savepoint, has_native_state
from flinkstate.serializers.types import FlinkType
from flinkstate.writing.operator_file import broadcast_entries
from stateferry.look.blob_sizes import BlobCount, BlobSizes
from stateferry.look.kryo_count import KryoCount, is_kryo


@dataclass(frozen=True, slots=True)
class LargestKeyGroup:
    """The key group with the most bytes of a state."""

    key_group: int
    entries: int
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class StateSurvey:
    """Counts of a keyed state, by key group.

    An entry is one row of the file; a ValueState has one for each key. Its bytes are those of key, value and their two
    lengths, uncompressed.
    """

    state: KeyedState
    entries_of_group: Positions
    bytes_of_group: Positions
    # Of a state that can be migrated, if it has blobs.
    blobs: BlobSizes | None
    # Of a state by Kryo, whose type is what was found in all values.
    maps: FoundClasses | None = None
    why_not_maps: str | None = None

    @property
    def why_not_migratable(self) -> str | None:
        """The reason why the state can't be migrated, or None."""
        reason = self.state.why_not_migratable
        return reason if reason is None or self.why_not_maps is None else f"{reason}: {self.why_not_maps}"

    @property
    def entries(self) -> int:
        return int(self.entries_of_group.sum())

    @property
    def bytes(self) -> int:
        return int(self.bytes_of_group.sum())

    @property
    def empty_key_groups(self) -> int:
        """The number of key groups without entries."""
        return int((self.entries_of_group == 0).sum())

    @property
    def largest_key_group(self) -> LargestKeyGroup | None:
        """The key group with the most bytes, or None if the state has no entries."""
        group = int(self.bytes_of_group.argmax())
        if self.entries_of_group[group] == 0:
            return None
        return LargestKeyGroup(group, int(self.entries_of_group[group]), int(self.bytes_of_group[group]))


@dataclass(frozen=True, slots=True)
class KeyedSurvey:
    """Counts of all keyed states of an operator, and how its files have key groups: `none`, `stored` or `snappy`.

    A framed file counts as stored if its largest key groups begin so.
    """

    key: FlinkType
    states: tuple[StateSurvey, ...]
    compressions: frozenset[Compression]


@dataclass(frozen=True, slots=True)
class OperatorStateSurvey:
    """An operator state: how many elements a list has in all subtasks, or how many entries a broadcast map has.

    A broadcast map is the same in all subtasks and counts once.
    """

    name: str
    mode: DistributionMode
    elements: int


@dataclass(frozen=True, slots=True)
class OperatorSurvey:
    """What an operator's state holds."""

    operator: Operator
    keyed: KeyedSurvey | None
    operator_states: tuple[OperatorStateSurvey, ...]

    @property
    def raw_bytes(self) -> int:
        """The bytes of raw state, whose content only the operator itself understands."""
        handles = [handle for task in self.operator.subtasks for handle in (task.raw_operator, task.raw_keyed)]
        return sum(handle.stream.size for handle in handles if handle is not None)

    @property
    def coordinator_bytes(self) -> int:
        """The bytes of a source's coordinator state."""
        return self.operator.coordinator.size if self.operator.coordinator is not None else 0

    @property
    def finished_subtasks(self) -> int:
        """The number of subtasks that have finished."""
        if self.operator.fully_finished:
            return self.operator.parallelism
        return sum(subtask.finished for subtask in self.operator.subtasks)


def survey(
    savepoint: Savepoint, bytes_read: Callable[[int], None] = lambda count: None, job: JobClasses | None = None
) -> tuple[OperatorSurvey, ...]:
    """Reads all keyed state once and counts it; `bytes_read` gets the size of each part that has been read.

    Values by Kryo may have objects of the job's classes, if these are given.
    """
    return tuple(_survey_operator(savepoint, operator, bytes_read, job) for operator in savepoint.metadata.operators)


def bytes_to_read(savepoint: Savepoint) -> int:
    """Returns how many bytes `survey` will read."""
    operators = savepoint.metadata.operators
    return sum(placed.file.size for operator in operators for placed in savepoint.placed(operator))


def _survey_operator(
    savepoint: Savepoint, operator: Operator, bytes_read: Callable[[int], None], job: JobClasses | None
) -> OperatorSurvey:
    keyed: _KeyedCount | None = None
    for file in savepoint.open_files(operator):
        if keyed is None:
            states = {state.name: state.with_classes(job) for state in savepoint.keyed_states(operator)}
            keyed = _KeyedCount(file.header.key_serializer.type, operator.max_parallelism, states)
            is_native = has_native_state(operator)
            keyed.kryo = {name: KryoCount(state) for name, state in states.items() if is_kryo(state)}
            keyed.blobs = {
                name: BlobCount(state, is_native)
                for name, state in states.items()
                if state.why_not_split is None or name in keyed.kryo
            }
        keyed.count(file, bytes_read)
    return OperatorSurvey(operator, keyed.survey() if keyed else None, _operator_states(savepoint, operator))


@dataclass(slots=True)
class _KeyedCount:
    key: FlinkType
    max_parallelism: int
    states: dict[str, KeyedState]
    # Entries and bytes of each state, by key group.
    counts: dict[str, Positions] = field(default_factory=dict)
    subtasks: dict[int, int] = field(default_factory=dict)
    compressions: set[Compression] = field(default_factory=set)
    blobs: dict[str, BlobCount] = field(default_factory=dict)
    kryo: dict[str, KryoCount] = field(default_factory=dict)

    def count(self, file: KeyedFile, bytes_read: Callable[[int], None]) -> None:
        for name in self.states:
            self.counts.setdefault(name, np.zeros((2, self.max_parallelism), np.int64))
        names = [state.name for state in file.header.states]
        window = np.empty(WINDOW, np.uint8)
        bytes_read(file.header_end)
        if file.compression is not None:
            self.compressions.add(file.compression)
        for key_group, extent in file.extents.items():
            self._once(key_group, file)
            read = 0
            for section in file.sections(key_group, window):
                name = names[section.state]
                self.counts[name][:, key_group] += (len(section), len(section.raw))
                if name in self.blobs:
                    entries = self.kryo[name].add(section) if name in self.kryo else None
                    self.blobs[name].add(section, entries)
                if file.has_places:
                    read += (step := _end(section) - read)
                    bytes_read(step)
            bytes_read(extent.end - extent.start - read)

    def _once(self, key_group: int, file: KeyedFile) -> None:
        here = file.subtask_file.subtask
        other = self.subtasks.setdefault(key_group, here)
        if other != here:
            found = f"this one in subtasks {other} and {here}"
            raise DamagedError("each key group in one subtask", found, file=file.name, key_group=key_group)

    def survey(self) -> KeyedSurvey:
        blobs = {name: count.sizes() for name, count in self.blobs.items()}
        surveys = []
        for name, state in self.states.items():
            entries, sizes = self.counts[name]
            if name not in self.kryo:
                surveys.append(StateSurvey(state, entries, sizes, blobs.get(name)))
                continue
            known, maps, why_not = self.kryo[name].result()
            of_maps = blobs[name] if known.map_type is not None else None
            surveys.append(StateSurvey(known, entries, sizes, of_maps, maps, why_not))
        return KeyedSurvey(self.key, tuple(surveys), frozenset(self.compressions))


def _end(section: Section) -> int:
    """Returns where an uncompressed section ends, from the start of its key group."""
    return section.base + int(section.ends[-1]) - section.extent.start


def _operator_states(savepoint: Savepoint, operator: Operator) -> tuple[OperatorStateSurvey, ...]:
    states: dict[str, OperatorStateSurvey] = {}
    for subtask in sorted(operator.subtasks, key=lambda subtask: subtask.index):
        handle = subtask.managed_operator
        if handle is None:
            continue
        maps = broadcast_entries(savepoint.folder, handle)
        for state in handle.states:
            before = states.get(state.name)
            if before is None or state.mode is not DistributionMode.BROADCAST:
                counted = maps.get(state.name, len(state.offsets))
                elements = counted + (before.elements if before else 0)
                states[state.name] = OperatorStateSurvey(state.name, state.mode, elements)
    return tuple(states.values())
