"""Reads and writes operator (non-keyed) state files, and distributes their elements to another number of subtasks.

| part | bytes |
|---|---|
| header | i32 version = 6, bool compressed, i16 n x StateMeta (lists), i16 m x StateMeta (broadcast) |
| header, before Flink 1.18 | i32 version = 5, without `compressed` |
| compressed | one framed snappy stream follows; a chunk begins wherever an offset points |
| elements | at the offsets of the handle; a broadcast state is one element: a map, i32 count and its entries |

Elements are opaque and never divided: each is the bytes from its offset to the next offset. Versions 1 to 4 are read
only to count the entries of broadcast states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import cramjam

from flinkstate.basics.closing import Closing
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.storage import Location
from flinkstate.keyed.compression import STREAM_START
from flinkstate.keyed.header import StateMeta, read_states, refuse_twins, write_state
from flinkstate.metadata.metadata import Operator, OperatorHandle, PartitionedState, Subtask
from flinkstate.metadata.operator_state import DistributionMode, OperatorStateShare, StatePartitions, redistribute
from flinkstate.metadata.streams import open_stream
from flinkstate.serializers.binary import ByteReader, ByteWriter
from flinkstate.serializers.snapshots import SnapshotParser
from flinkstate.serializers.types import FlinkType
from flinkstate.writing.undivided_elements import refuse_undivided
from flinkstate.writing.writer import SavepointWriter

VERSION = 6
_UNCOMPRESSED = 5
_COPY = 4 << 20
_LARGEST_HEADER = 64 << 20
# Of so many subtasks the files stay open.
_MOST_OPEN = 32
_START = 5  # the version, and whether the file is compressed


@dataclass(frozen=True, slots=True)
class OperatorHeader:
    """The parsed header of an operator state file: its list states (split and union) and its broadcast states."""

    compressed: bool
    lists: tuple[StateMeta, ...]
    broadcasts: tuple[StateMeta, ...]
    version: int = VERSION


def parse_operator_header(data: bytes, file: str) -> OperatorHeader:
    """Parses the header that fills `data`, together with the start of the snappy stream if the file is compressed."""
    reader = ByteReader(data, file)
    version = reader.i32("the version of an operator state file")
    if 1 <= version < _UNCOMPRESSED:
        raise RefusedError(
            f"{file}: operator state of version {version}, from before Flink 1.7: take one with a newer Flink"
        )
    if version not in (_UNCOMPRESSED, VERSION):
        raise reader.damaged(f"version {VERSION} of an operator state file", f"{version}", position=0)
    compressed = version == VERSION and reader.boolean("state compression")
    limit = len(data)
    if compressed:
        limit -= len(STREAM_START)
        if data[max(limit, 0) :] != STREAM_START:
            raise reader.damaged("the start of a snappy stream behind the header", "other bytes")
    parser = SnapshotParser(data, file, limit=limit)
    lists, position = read_states(parser, reader.position, lists=1)
    broadcasts, position = read_states(parser, position)
    if position != limit:
        raise reader.damaged(
            "a header that ends where the first element begins", "one that ends elsewhere", position=position
        )
    refuse_twins((*lists, *broadcasts), file)
    return OperatorHeader(compressed, lists, broadcasts, version)


def build_operator_header(header: OperatorHeader) -> bytes:
    """Returns the bytes of a header."""
    writer = ByteWriter().i32(header.version)
    if header.version == VERSION:
        writer.boolean(header.compressed)
    for states in (header.lists, header.broadcasts):
        writer.i16(len(states))
        for state in states:
            write_state(writer, state)
    return writer.raw(STREAM_START if header.compressed else b"").bytes()


class RewritesElements(Protocol):
    """Writes the elements of some operator states anew."""

    @property
    def elements(self) -> Mapping[str, FlinkType]:
        """The types of their elements."""

    def element(self, state: str, data: bytes) -> bytes:
        """Returns what an element of one of these states becomes."""

    def header_of_elements(self, header: OperatorHeader) -> OperatorHeader:
        """Returns a header that describes the other elements."""


class ElementFile(Closing):
    """One subtask's operator state file, open for reading; a context manager. A closed one opens itself when needed.

    With `rewrite` its elements are those that the states have then.
    """

    def __init__(self, folder: Location, handle: OperatorHandle, rewrite: RewritesElements | None = None) -> None:
        self._rewrite, self._open = rewrite, partial(open_stream, folder, handle.stream)
        file, self.name, size = self._open()
        self._file: Any = file
        try:
            offsets = sorted({offset for state in handle.states for offset in state.offsets})
            end = offsets[0] if offsets else size
            if not 0 < end <= min(size, _LARGEST_HEADER) or (offsets and offsets[-1] >= size):
                raise DamagedError(f"offsets inside the file's {size} bytes", f"{offsets}", file=self.name)
            header = parse_operator_header(bytes(file.read(end)), self.name)
            if header.compressed:
                refuse_undivided(file, self.name, handle)
            self.header = header if rewrite is None else rewrite.header_of_elements(header)
        except BaseException:
            self.close()
            raise
        self._ends = dict(pairwise([*offsets, size]))

    def close(self) -> None:
        """Closes the file until it is needed again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def element(self, state: str, offset: int) -> Iterator[bytes]:
        """Yields the bytes of the element of a state at an offset, in portions."""
        if self._rewrite is None or state not in self._rewrite.elements:
            yield from self._portions(offset)
            return
        content, is_compressed = self.whole_element(offset), self.header.compressed
        with located(self.name, offset, is_compressed=is_compressed):
            content = self._rewrite.element(state, content)
        yield _chunks_of(content) if is_compressed else content

    def _portions(self, offset: int) -> Iterator[bytes]:
        position, end = offset, self._ends[offset]
        if self._file is None:
            self._file, _, _ = self._open()
        self._file.seek(position)
        while position < end:
            portion = bytes(self._file.read(min(_COPY, end - position)))
            if not portion:
                raise DamagedError(f"{end - position} more bytes", "the end", file=self.name, offset=position)
            position += len(portion)
            yield portion

    def whole_element(self, offset: int) -> bytes:
        """Returns the bytes of the element at an offset as the serializer wrote them."""
        data = b"".join(self._portions(offset))
        return content_of(data, self.name, offset) if self.header.compressed else data


def content_of(chunks: bytes, file: str, offset: int) -> bytes:
    """Returns the content of a compressed element."""
    try:
        return bytes(cramjam.snappy.decompress(STREAM_START + chunks))
    except cramjam.DecompressionError as error:
        raise DamagedError("a snappy chunk", str(error), file=file, offset=offset) from None


def _chunks_of(content: bytes) -> bytes:
    return bytes(cramjam.snappy.compress(content))[len(STREAM_START) :]


def read_operator_header(folder: Location, handle: OperatorHandle) -> OperatorHeader:
    """Returns what an operator state file says of its states."""
    with ElementFile(folder, handle) as file:
        return file.header


def broadcast_entries(folder: Location, handle: OperatorHandle) -> dict[str, int]:
    """Returns the number of entries of each broadcast state in the file."""
    offsets = {
        state.name: state.offsets[0]
        for state in handle.states
        if state.mode is DistributionMode.BROADCAST and state.offsets
    }
    if not offsets:
        return {}
    file, name, size = open_stream(folder, handle.stream)
    with file:
        compressed = _is_compressed(file, name)
        return {state: _count(file, name, size, offset, compressed) for state, offset in offsets.items()}


def _is_compressed(file: Any, name: str) -> bool:
    reader = ByteReader(bytes(file.read(_START)), name)
    version = reader.i32("the version of an operator state file")
    if not 1 <= version <= VERSION:
        raise reader.damaged(f"a version from 1 to {VERSION} of an operator state file", f"{version}", position=0)
    return version == VERSION and reader.boolean("operator state compression")


def _count(file: Any, name: str, size: int, offset: int, compressed: bool) -> int:
    if not _START <= offset < size:
        raise DamagedError(f"an offset of a broadcast state from {_START} to {size - 1}", f"{offset}", file=name)
    file.seek(offset)
    if compressed:
        return _checked(_chunk(file, name, offset), name, offset, None)
    return _checked(bytes(file.read(4)), name, offset, size - offset - 4)


def _checked(data: bytes, name: str, offset: int, room: int | None) -> int:
    reader = ByteReader(data, name, base=offset)
    count = reader.i32("the size of a broadcast state")
    if count < 0 or (room is not None and count > room):
        raise reader.damaged("the size of a broadcast state that fits into the file", f"{count}", position=0)
    return count


def _chunk(file: Any, name: str, offset: int) -> bytes:
    head = bytes(file.read(4))
    length = int.from_bytes(head[1:4], "little")
    if len(head) < 4 or head[0] not in (0, 1):
        raise DamagedError("a snappy chunk with content", head.hex() or "the end", file=name, offset=offset)
    try:
        return bytes(cramjam.snappy.decompress(STREAM_START + head + bytes(file.read(length))))
    except cramjam.DecompressionError as error:
        raise DamagedError("a snappy chunk", str(error), file=name, offset=offset) from None


@contextmanager
def located(file: str, offset: int, *, is_compressed: bool = False) -> Iterator[None]:
    """Gives an error whose offset is a position in an element its place in the file.

    In a compressed file that place is the beginning of the element, and the text says where inside.
    """
    try:
        yield
    except DamagedError as error:
        inside, found = error.offset or 0, error.found
        if is_compressed:
            inside, found = 0, f"{found} (byte {inside} of the uncompressed element)"
        raise DamagedError(error.expected, found, file=file, offset=offset + inside) from None
    except RefusedError as error:
        raise RefusedError(f"{error} (in an element of operator state: {file}, offset {offset})") from None


def rewrite_files(
    source: Location, writer: SavepointWriter, operator: Operator, rewrite: RewritesElements
) -> dict[int, Subtask]:
    """Writes the operator's state with other elements; each stays in its subtask, and other files are copied."""
    found = {}
    for subtask in operator.subtasks:
        rest = writer.carry_over(source, operator.hex_id, replace(subtask, managed_operator=None))
        handle = subtask.managed_operator
        if handle is not None:
            states = {state.name: StatePartitions(state.mode, state.offsets) for state in handle.states}
            with ElementFile(source, handle, rewrite) as file:
                share, files = OperatorStateShare(subtask.index, states), {subtask.index: file}
                rest = replace(rest, managed_operator=_merge(writer, operator, subtask.index, [share], files))
        found[subtask.index] = rest
    return found


def try_elements(source: Location, operator: Operator, rewrite: RewritesElements) -> None:
    """Writes all elements anew, and nothing anywhere; raises the error of the first that can't be."""
    for subtask in operator.subtasks:
        if (handle := subtask.managed_operator) is not None:
            with ElementFile(source, handle, rewrite) as file:
                for state in handle.states:
                    for offset in state.offsets if state.name in rewrite.elements else ():
                        for _ in file.element(state.name, offset):
                            pass


def redistribute_files(
    source: Location,
    writer: SavepointWriter,
    operator: Operator,
    parallelism: int,
    rewrite: RewritesElements | None = None,
) -> dict[int, Subtask]:
    """Writes the operator's state for a new number of subtasks, distributed as Flink's restore would distribute it."""
    shares: list[list[OperatorStateShare[int]]] = [[] for _ in range(operator.parallelism)]
    with ExitStack() as opened:
        files: dict[int, ElementFile] = {}
        for subtask in operator.subtasks:
            if subtask.managed_operator is not None:
                handle = subtask.managed_operator
                file = files[subtask.index] = opened.enter_context(ElementFile(source, handle, rewrite))
                if len(files) > _MOST_OPEN:
                    file.close()
                states = {state.name: StatePartitions(state.mode, state.offsets) for state in handle.states}
                shares[subtask.index].append(OperatorStateShare(subtask.index, states))
        new_shares = redistribute(shares, parallelism)
        return {
            index: Subtask(index, managed_operator=_merge(writer, operator, index, to_write, files))
            for index, to_write in enumerate(_unions_once(new_shares))
        }


def _unions_once(subtasks: list[list[OperatorStateShare[int]]]) -> list[list[OperatorStateShare[int]]]:
    """Returns what to write for each subtask, with each element of a union list in one file only.

    A restore gathers a union list from all files, whatever the parallelism. An element that is in every file would be
    restored many times. The elements stay in the order of the old subtasks.
    """
    last = len(subtasks) - 1
    return [
        [
            OperatorStateShare(
                share.handle,
                {
                    name: state
                    if state.mode is not DistributionMode.UNION or min(share.handle, last) == index
                    else StatePartitions(state.mode, ())
                    for name, state in share.states.items()
                },
            )
            for share in shares
        ]
        for index, shares in enumerate(subtasks)
    ]


def _merge(
    writer: SavepointWriter,
    operator: Operator,
    index: int,
    shares: list[OperatorStateShare[int]],
    files: dict[int, ElementFile],
) -> OperatorHandle | None:
    """Writes one new file with the elements of all shares; returns None if there are no shares."""
    if not shares:
        return None
    header = _merged_header([files[share.handle] for share in shares], operator)
    states: dict[str, StatePartitions] = {}
    with writer.operator_file(operator.hex_id, index) as out:
        out.write(build_operator_header(header))
        for share in shares:
            for name, partitions in share.states.items():
                offsets = []
                for offset in partitions.offsets:
                    offsets.append(out.position)
                    for portion in files[share.handle].element(name, offset):
                        out.write(portion)
                before = states.get(name, StatePartitions(partitions.mode, ()))
                states[name] = StatePartitions(partitions.mode, (*before.offsets, *offsets))
            if len(files) > _MOST_OPEN:
                files[share.handle].close()
        return OperatorHandle(
            tuple(PartitionedState(name, partitions.mode, partitions.offsets) for name, partitions in states.items()),
            out.written(),
        )


def _merged_header(files: list[ElementFile], operator: Operator) -> OperatorHeader:
    lists: dict[str, StateMeta] = {}
    broadcasts: dict[str, StateMeta] = {}
    for file in files:
        if file.header.version != files[0].header.version:
            raise RefusedError(
                f"{file.name}: operator {operator.label} has operator state of two versions of Flink, which one file "
                "can't hold: keep its parallelism"
            )
        if file.header.compressed != files[0].header.compressed:
            raise RefusedError(
                f"{file.name}: operator {operator.label} has compressed operator state in some subtasks and "
                "uncompressed in others, which one file can't hold: keep its parallelism"
            )
        for merged, states in ((lists, file.header.lists), (broadcasts, file.header.broadcasts)):
            for state in states:
                described = state.merged_with(merged.get(state.name, state))
                if described is None:
                    raise RefusedError(
                        f"{file.name}: operator state {state.name} has another description in another subtask, so "
                        "they can't be in one file: keep the operator's parallelism"
                    )
                merged[state.name] = described
    first = files[0].header
    return OperatorHeader(first.compressed, tuple(lists.values()), tuple(broadcasts.values()), first.version)
