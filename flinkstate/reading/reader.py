"""Opens a savepoint for reading: finds its operators by id, uid or name, and their keyed states."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache

import mmh3

from flinkstate.basics.did_you_mean import there_are
from flinkstate.errors import DamagedError, RefusedError, UsageError
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import UPPER_BOUND_MAX_PARALLELISM, KeyGroupRange, range_for_operator_index
from flinkstate.keyed.compression import Compression
from flinkstate.keyed.header import KeyedHeader
from flinkstate.keyed.heap_timers import are_timers
from flinkstate.keyed.keyed_file import KeyedFile
from flinkstate.keyed.keyed_files import open_keyed, subtask_file_of
from flinkstate.keyed.state import KeyedState, keyed_states
from flinkstate.metadata.file_names import METADATA, complete_savepoints
from flinkstate.metadata.key_group_extents import PlacedState
from flinkstate.metadata.metadata import KeyedHandle, Metadata, NativeHandle, Operator, Subtask, without_empty_handles
from flinkstate.metadata.moved_files import check_stores, with_moved_files
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.metadata.savepoint_properties import is_canonical, is_savepoint

_FILES_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint that is open for reading."""

    folder: Location
    metadata: Metadata
    # Names of the keyed state files whose layout has been checked.
    _of_known_layout: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    # What the files of all subtasks of an operator say of its states.
    _headers: dict[bytes, KeyedHeader] = field(default_factory=dict, init=False, repr=False, compare=False)
    _subtasks: dict[bytes, tuple[Subtask, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _compressions: dict[bytes, Compression] = field(default_factory=dict, init=False, repr=False, compare=False)
    # Where key groups are, by operator and subtask.
    _placed: dict[tuple[bytes, int], PlacedState] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def open(cls, name: str, *, files_from: Mapping[str, str] | None = None, places: Sequence[str] = ()) -> Savepoint:
        """Opens the savepoint at a path or URI, which may also name its `_metadata`.

        `files_from` has the new beginnings, by the old ones, of absolute addresses that `_metadata` has of files that
        were moved. Files are read from the savepoint's own store, from those new beginnings, and from `places`.
        """
        location = Location.of(name)
        folder = location.parent if location.name == METADATA and not location.is_folder() else location
        file = folder.child(METADATA)
        content = file.read_if_there()
        if content is None:
            if not folder.exists():
                raise UsageError(f"there is no savepoint at {folder.shown}: no such folder")
            raise DamagedError("a savepoint: a folder with a complete _metadata", _instead(folder), file=folder.shown)
        return cls(folder, metadata_of(folder, content, files_from=files_from, places=places))

    @property
    def format(self) -> str:
        """How keyed state is stored: "native" if any of it is in RocksDB's own files, else "canonical"."""
        return "native" if any(map(has_native_state, self.metadata.operators)) else "canonical"

    @property
    def taken_as(self) -> str:
        """What it was taken as, in words. A checkpoint may have canonical files."""
        if not is_savepoint(self.metadata):
            return "checkpoint"
        return "canonical savepoint" if is_canonical(self.metadata) else "native savepoint"

    def operator(self, name: str) -> Operator:
        """Returns the operator with this id, this uid or this name (if only one has it), tried in that order."""
        operators, as_id, of_uid = self.metadata.operators, name.lower(), operator_id(name)
        for operator in operators:
            if operator.hex_id == as_id:
                return operator
        for operator in operators:
            if operator.uid == name or operator.id == of_uid:
                return operator
        named = [operator for operator in operators if operator.name == name]
        if len(named) == 1:
            return named[0]
        listed = "; ".join(_described(operator) for operator in operators)
        if named:
            raise UsageError(
                f"{len(named)} operators have the name {name!r}: give the id or uid of one. There are: {listed}"
            )
        known = [text for one in operators for text in (one.uid, one.name, one.hex_id) if text]
        raise UsageError(f"no operator has the id, uid or name {name!r}. {there_are(name, known, listed)}")

    def shortest_name(self, operator: Operator) -> str:
        """What `operator` finds this operator by: its label, if no other has that, else its id."""
        alike = [one for one in self.metadata.operators if operator.label in (one.uid, one.name)]
        return operator.label if len(alike) == 1 else operator.hex_id

    def keyed_operators(self) -> tuple[Operator, ...]:
        """Returns the operators that have keyed state."""
        return tuple(operator for operator in self.metadata.operators if has_keyed_state(operator))

    def open_files(self, operator: Operator) -> Iterator[KeyedFile]:
        """Yields the operator's keyed state files by subtask, each open until the next one is asked for.

        The first time, the layout of each file is checked.
        """
        for subtask, handle in _keyed(operator):
            with open_keyed(self.folder, handle, operator.max_parallelism, subtask) as file:
                self._check_layout(file)
                yield file

    def _check_layout(self, file: KeyedFile) -> None:
        if file.name not in self._of_known_layout:
            file.expect_known_layout()
            self._of_known_layout.add(file.name)

    def headers(self, operator: Operator) -> list[tuple[int, str, KeyedHeader]]:
        """Returns what each of the operator's keyed state files says of its states: subtask, name of the file, header.

        An object store is asked for many files at a time, because each answer takes long.
        """
        keyed = _keyed(operator)
        if self.folder.is_local or len(keyed) < 2:
            return [self._header(operator, *one) for one in keyed]
        with ThreadPoolExecutor(min(len(keyed), _FILES_AT_ONCE), "headers") as threads:
            return list(threads.map(lambda one: self._header(operator, *one), keyed))

    def _header(
        self, operator: Operator, subtask: int, handle: KeyedHandle | NativeHandle
    ) -> tuple[int, str, KeyedHeader]:
        try:
            with open_keyed(self.folder, handle, operator.max_parallelism, subtask) as file:
                self._check_layout(file)
                return subtask, file.name, file.header
        except RefusedError as error:
            raise RefusedError(f"operator {operator.label}: {error}") from None

    def placed(self, operator: Operator) -> tuple[PlacedState, ...]:
        """Returns the operator's keyed state by subtask, with the place of each key group."""
        found = []
        for subtask, handle in _keyed(operator):
            known = self._placed.get((operator.id, subtask))
            if known is None or known.handle != handle:
                # This takes long for RocksDB's own files, whose MANIFEST it reads.
                file = subtask_file_of(self.folder, handle, operator.max_parallelism, subtask)
                known = self._placed[operator.id, subtask] = PlacedState(handle, file)
            found.append(known)
        return tuple(found)

    def open_with(self, operator: Operator, key_groups: KeyGroupRange) -> Generator[KeyedFile]:
        """Yields the files with any of these key groups, in the groups' order, each open until the next one.

        There may be more of them than a process may have open.
        """
        for subtask, handle in sorted(_keyed(operator), key=lambda one: one[1].range.start):
            wanted = list(handle.range.intersection(key_groups))
            if wanted:
                with open_keyed(self.folder, handle, operator.max_parallelism, subtask, wanted=wanted) as file:
                    yield file

    def keyed_header(self, operator: Operator) -> KeyedHeader | None:
        """Returns the header of all subtasks' states. The files of some may lack a state that was first used late."""
        if operator.id in self._headers:
            return self._headers[operator.id]
        merged: KeyedHeader | None = None
        for _, name, header in self.headers(operator):
            merged = header if merged is None else merged.merged_with(header, name)
        # An operator with some of its subtasks alone may lack states that the others have.
        if merged is not None and self._has_all_subtasks(operator):
            self._headers[operator.id] = merged
        return merged

    def _has_all_subtasks(self, operator: Operator) -> bool:
        if not self._subtasks:
            self._subtasks.update((one.id, one.subtasks) for one in self.metadata.operators)
        return self._subtasks.get(operator.id) == operator.subtasks

    def compression(self, operator: Operator) -> Compression:
        """How the operator's key groups are written: stored if the largest files with frames are, else snappy."""
        header = self.keyed_header(operator)
        if header is None or not header.compressed:
            return Compression.NONE
        if operator.id not in self._compressions:
            largest = sorted(_keyed(operator), key=lambda one: one[1].size, reverse=True)[:_FILES_AT_ONCE]
            with ExitStack() as opened:
                files = [
                    opened.enter_context(open_keyed(self.folder, handle, operator.max_parallelism, subtask))
                    for subtask, handle in largest
                ]
                found = {file.compression for file in files}
            is_stored = Compression.STORED in found and Compression.SNAPPY not in found
            self._compressions[operator.id] = Compression.STORED if is_stored else Compression.SNAPPY
        return self._compressions[operator.id]

    def keyed_states(self, operator: Operator) -> tuple[KeyedState, ...]:
        """Returns the operator's keyed states, in the order of the ids in `keyed_header`."""
        header = self.keyed_header(operator)
        return keyed_states(header, self.folder.shown) if header is not None else ()

    def state(self, operator: Operator, name: str) -> KeyedState:
        """Returns the operator's keyed state with this name."""
        states = self.keyed_states(operator)
        for state in states:
            if state.name == name:
                return state
        known = [state.name for state in states]
        raise UsageError(f"operator {operator.label} has no keyed state {name!r}. {there_are(name, known)}")


def _instead(place: Location) -> str:
    """What is found at a place without `_metadata`: often it is the folder in which a job's savepoints are."""
    if place.is_file():
        return "a file"
    newest = max(((at, one.shown) for at, one in complete_savepoints(place)), default=None)
    return "a folder without one" + (f": it holds savepoints, of which the newest is {newest[1]}" if newest else "")


def metadata_of(
    folder: Location, data: bytes, files_from: Mapping[str, str] | None = None, places: Sequence[str] = ()
) -> Metadata:
    """Returns what a snapshot consists of, from the bytes of its `_metadata`, as `Savepoint.open` gives it."""
    file = folder.child(METADATA).shown
    metadata = without_empty_handles(parse_metadata(data, file))
    metadata = with_moved_files(metadata, files_from) if files_from else metadata
    check_stores(metadata, file, (folder.shown, *(files_from or {}).values(), *places))
    for operator in metadata.operators:
        _check_operator(operator, file)
    return replace(metadata, operators=tuple(_with_timers(folder, operator) for operator in metadata.operators))


def _check_operator(operator: Operator, file: str) -> None:
    """Checks facts that `_metadata` states twice: the id against the uid, key groups against the parallelism."""
    if operator.uid is not None and operator.id != operator_id(operator.uid):
        expected = f"the id {operator_id(operator.uid).hex()} of the operator with uid {operator.uid!r}"
        raise DamagedError(expected, operator.hex_id, file=file)
    for subtask in operator.subtasks:
        handles = [handle for handle in (subtask.keyed, subtask.raw_keyed) if handle is not None]
        if not handles:
            continue
        own = _own_range(operator.max_parallelism, operator.parallelism, subtask.index)
        for handle in handles:
            if handle.range != own:
                raise DamagedError(
                    f"the key groups {own} of subtask {subtask.index} (of {operator.parallelism}, operator "
                    f"{operator.label}, max parallelism {operator.max_parallelism})",
                    f"{handle.range}",
                    file=file,
                )


# The operators of a job have the same ranges.
_own_range = lru_cache(UPPER_BOUND_MAX_PARALLELISM)(range_for_operator_index)


def _with_timers(folder: Location, operator: Operator) -> Operator:
    """Returns the operator with its raw keyed state as timers, if it is that, and each subtask has a database.

    What one subtask has is what all have, so only one is looked at.
    """
    raw = [subtask for subtask in operator.subtasks if subtask.raw_keyed is not None]
    first = next((subtask.raw_keyed for subtask in raw), None)
    if first is None or any(task.native_keyed is None for task in raw) or not are_timers(folder, first):
        return operator
    subtasks = (
        replace(subtask, native_keyed=replace(subtask.native_keyed, timers=subtask.raw_keyed), raw_keyed=None)
        if subtask.native_keyed is not None
        else subtask
        for subtask in operator.subtasks
    )
    return replace(operator, subtasks=tuple(subtasks))


def has_keyed_state(operator: Operator) -> bool:
    """Whether any subtask of the operator has managed keyed state."""
    return any(subtask.keyed is not None for subtask in operator.subtasks)


def _keyed(operator: Operator) -> list[tuple[int, KeyedHandle | NativeHandle]]:
    """Returns the handles of keyed state with the subtasks that have any, in their order."""
    found = [(subtask.index, subtask.keyed) for subtask in operator.subtasks]
    return sorted(((index, handle) for index, handle in found if handle is not None), key=lambda one: one[0])


def has_native_state(operator: Operator) -> bool:
    """Whether any subtask of the operator has keyed state as RocksDB's own files."""
    return any(subtask.native_keyed is not None for subtask in operator.subtasks)


def operator_id(uid: str) -> bytes:
    """The id that Flink derives from a uid: Guava's murmur3_128 of its UTF-8 text."""
    return mmh3.hash_bytes(uid.encode("utf-8", "replace"), 0, x64arch=True)


def _described(operator: Operator) -> str:
    named = [f"uid {operator.uid!r}"] if operator.uid else []
    named += [f"name {operator.name!r}"] if operator.name else []
    return f"{operator.hex_id} ({', '.join(named)})" if named else operator.hex_id
