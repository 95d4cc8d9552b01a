"""Compares operator state and raw state of a staged savepoint with its source.

Operator state is compared element by element, distributed over the subtasks as Flink's restore would distribute it. Raw
state is compared byte by byte. There is one task for each operator that has such state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.digests import new_hasher
from flinkstate.files.storage import Location
from flinkstate.keyed.header import StateMeta
from flinkstate.metadata.bytes_read import WHOLE, BytesRead
from flinkstate.metadata.metadata import KeyedHandle, Operator, OperatorHandle, Subtask
from flinkstate.metadata.operator_state import DistributionMode, OperatorStateShare, StatePartitions, redistribute
from flinkstate.metadata.streams import open_stream
from flinkstate.serializers.types import FlinkType
from flinkstate.writing.operator_file import OperatorHeader, content_of, located, parse_operator_header
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo, element_for_other_kryo
from stateferry.proof.keyed_result import Side
from stateferry.proof.plain.plain_elements import PlainElements

_READ = 4 << 20
_LARGEST_HEADER = 64 << 20
_ALL = -1  # in place of a subtask's index

_State = tuple[DistributionMode, tuple[bytes, ...]]
_States = dict[str, _State]
_Make = Callable[[bytes, int], bytes]


@dataclass(frozen=True, slots=True)
class CarriedResult:
    """The differences that a task found: the name of a state, or the kind of raw state, and what differs in it.

    `damage` says why `side` could not be read. `read` has the digests of the source's bytes. `plain` has what
    plain code says of elements that are rewritten, by state.
    """

    operator: str
    side: Side
    size: int
    damage: DamagedError | RefusedError | None
    differences: list[tuple[str, str]]
    read: BytesRead
    plain: dict[str, PlainElements] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CarriedTask:
    """Compares one operator in the source and in the staged savepoint.

    Operator states with these `elements` are compared with what Kryo 5 writes of the source's elements.
    """

    source: Location
    old: Operator
    staged: Location
    new: Operator
    elements: Mapping[str, FlinkType] = field(default_factory=dict)

    @property
    def operator(self) -> str:
        return self.old.hex_id

    @property
    def size(self) -> int:
        """The bytes of operator state and raw state in the source."""
        streams = (stream for subtask in self.old.subtasks for stream in _carried_streams(subtask))
        return sum(stream.size for stream in streams)

    def do(self) -> CarriedResult:
        """Reads both and returns the differences."""
        side, read = Side.SOURCE, BytesRead()
        damage: DamagedError | RefusedError | None = None
        differences: list[tuple[str, str]] = []
        rewritten = {name: _Rewritten(type_) for name, type_ in self.elements.items()}
        try:
            elements = _Elements(rewritten, is_result=False)
            expected = _expected(self.source, self.old, self.new.parallelism, read, elements)
            side = Side.STAGED
            found = _as_they_are(self.staged, self.new, BytesRead(), _Elements(rewritten, is_result=True))
            if self.new.parallelism != self.old.parallelism:
                expected, found = _unions_gathered(expected), _unions_gathered(found)
            differences += _differences(expected, found)
        except (DamagedError, RefusedError) as error:
            damage = error.with_traceback(None)
        plain = {name: one.plain for name, one in rewritten.items()}
        return CarriedResult(self.operator, side, self.size, damage, differences, read, plain)


def has_carried_state(operator: Operator) -> bool:
    """Whether the operator has operator state or raw state."""
    return any(_carried_streams(subtask) for subtask in operator.subtasks)


def _carried_streams(subtask: Subtask) -> tuple[Any, ...]:
    handles = (subtask.managed_operator, subtask.raw_operator, subtask.raw_keyed)
    return tuple(handle.stream for handle in handles if handle is not None)


@dataclass(frozen=True, slots=True)
class _Described:
    """A state's description, and which of the two lists in a header it is in.

    Flink reads the states of one list as lists, and those of the other list (broadcast state) as maps.
    """

    meta: StateMeta
    is_broadcast: bool

    def fits(self, other: _Described) -> bool:
        return self.is_broadcast == other.is_broadcast and self.meta.merged_with(other.meta) is not None


@dataclass(frozen=True, slots=True)
class _Subtask:
    """One subtask's content: digests of the elements of each state, descriptions of states, digests of raw state."""

    states: _States
    metas: tuple[_Described, ...]
    raw: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """The type of a state's elements that the other Kryo writes, and what plain code says of them."""

    type: FlinkType
    plain: PlainElements = field(default_factory=PlainElements)


@dataclass(frozen=True, slots=True)
class _File:
    metas: tuple[_Described, ...]
    elements: Mapping[int, bytes]

    def states(self, handle: OperatorHandle) -> _States:
        return {
            state.name: (state.mode, tuple(self.elements[offset] for offset in state.offsets))
            for state in handle.states
        }


@dataclass(frozen=True, slots=True)
class _Elements:
    """The states whose elements are compared by what they must be in the result: of the source, what Kryo 5 writes.

    Compressed they are compared by their content, as the same content may be compressed to other bytes.
    """

    rewritten: Mapping[str, _Rewritten]
    is_result: bool

    def header(self, header: OperatorHeader) -> OperatorHeader:
        """Returns the header that the result must have."""
        if self.is_result or not self.rewritten:
            return header
        types = {state: one.type for state, one in self.rewritten.items()}
        return ForOtherKryo({}, types).header_of_elements(header)

    def make_of(self, state: str, file: str, *, is_compressed: bool) -> _Make | None:
        """Returns what makes the bytes to compare, of those of an element and where it begins; None: those bytes."""
        rewritten = self.rewritten.get(state)
        if rewritten is None or (self.is_result and not is_compressed):
            return None

        def make(data: bytes, offset: int) -> bytes:
            content = content_of(data, file, offset) if is_compressed else data
            if self.is_result:
                return content
            with located(file, offset, is_compressed=is_compressed):
                made = element_for_other_kryo(rewritten.type, content)
            rewritten.plain.see(rewritten.type, content, made)
            return made

        return make


def _read(folder: Location, handle: OperatorHandle, read: BytesRead, elements: _Elements) -> _File:
    file, name, size = open_stream(folder, handle.stream)
    with file:
        offsets = sorted({offset for state in handle.states for offset in state.offsets})
        bounds = [*offsets, size]
        if not 0 < bounds[0] <= _LARGEST_HEADER or (offsets and offsets[-1] >= size):
            raise DamagedError(f"offsets of elements inside the file's {size} bytes", f"{offsets[:10]}", file=name)
        data, hasher = bytes(file.read(bounds[0])), new_hasher()
        hasher.update(data)
        header = parse_operator_header(data, name)
        makes = {
            offset: make
            for state in handle.states
            if (make := elements.make_of(state.name, name, is_compressed=header.compressed)) is not None
            for offset in state.offsets
        }
        digests = {start: _digest(file, name, start, end, hasher, makes.get(start)) for start, end in pairwise(bounds)}
        read.note(handle.stream, WHOLE, hasher)
    header = elements.header(header)
    lists = (_Described(meta, is_broadcast=False) for meta in header.lists)
    return _File((*lists, *(_Described(meta, is_broadcast=True) for meta in header.broadcasts)), digests)


def _digest(file: Any, name: str, start: int, end: int, hasher: Any, make: _Make | None = None) -> bytes:
    """The digest of the bytes from start to end, which are added to `hasher` as well, or of what is made of them."""
    digest, position = blake2b(digest_size=16), start
    if make is not None:
        file.seek(start)
        data = bytes(file.read(end - start))
        hasher.update(data)
        digest.update(make(data, start))
        return digest.digest()
    file.seek(start)
    while position < end:
        portion = bytes(file.read(min(_READ, end - position)))
        if not portion:
            raise DamagedError(f"{end - position} more bytes", "the end", file=name, offset=position)
        digest.update(portion)
        hasher.update(portion)
        position += len(portion)
    return digest.digest()


def _as_they_are(folder: Location, operator: Operator, read: BytesRead, elements: _Elements) -> dict[int, _Subtask]:
    return {
        subtask.index: _as_it_is(folder, subtask, read, elements)
        for subtask in operator.subtasks
        if _carried_streams(subtask)
    }


def _as_it_is(folder: Location, subtask: Subtask, read: BytesRead, elements: _Elements) -> _Subtask:
    if subtask.managed_operator is None:
        return _Subtask({}, (), _raw(folder, subtask, read))
    file = _read(folder, subtask.managed_operator, read, elements)
    return _Subtask(file.states(subtask.managed_operator), file.metas, _raw(folder, subtask, read))


def _raw(folder: Location, subtask: Subtask, read: BytesRead) -> dict[str, object]:
    """Raw state by kind: the offsets of its parts, and a digest of all of it."""
    found: dict[str, object] = {}
    for kind, handle in (("raw operator state", subtask.raw_operator), ("raw keyed state", subtask.raw_keyed)):
        if handle is not None:
            file, name, size = open_stream(folder, handle.stream)
            hasher = new_hasher()
            with file:
                digest = _digest(file, name, 0, size, hasher)
            read.note(handle.stream, WHOLE, hasher)
            parts = (handle.range, handle.offsets) if isinstance(handle, KeyedHandle) else handle.states
            found[kind] = (parts, digest)
    return found


def _expected(
    folder: Location, old: Operator, parallelism: int, read: BytesRead, elements: _Elements
) -> dict[int, _Subtask]:
    """The content that each new subtask must have."""
    there = _as_they_are(folder, old, read, elements)
    if parallelism == old.parallelism:
        return there
    metas = tuple(meta for subtask in there.values() for meta in subtask.metas)
    shares: list[list[OperatorStateShare[int]]] = [[] for _ in range(old.parallelism)]
    for subtask in old.subtasks:
        if subtask.managed_operator is not None:
            # The redistribution gets numbers of elements; the digests replace them afterwards.
            states = {
                state.name: StatePartitions(state.mode, tuple(range(len(state.offsets))))
                for state in subtask.managed_operator.states
            }
            shares[subtask.index].append(OperatorStateShare(subtask.index, states))
    dealt_out = {
        index: _Subtask(_dealt_out(share, there), metas, {})
        for index, share in enumerate(redistribute(shares, parallelism))
    }
    unions = _unions_gathered(there)[_ALL]
    return {**dealt_out, _ALL: unions}


def _dealt_out(shares: list[OperatorStateShare[int]], there: Mapping[int, _Subtask]) -> _States:
    """The states of a new subtask's shares, without union lists."""
    states: _States = {}
    for share in shares:
        for name, partitions in share.states.items():
            if partitions.mode is not DistributionMode.UNION:
                digests = there[share.handle].states[name][1]
                before = states.get(name, (partitions.mode, ()))[1]
                states[name] = (partitions.mode, (*before, *(digests[number] for number in partitions.offsets)))
    return states


def _unions_gathered(subtasks: Mapping[int, _Subtask]) -> dict[int, _Subtask]:
    """Moves union lists to one additional subtask: a restore gathers them from all subtasks, whichever have them."""
    gathered: _States = {}
    others: dict[int, _Subtask] = {}
    metas: list[_Described] = []
    for index, subtask in sorted(subtasks.items()):
        of_union = {name for name, (mode, _) in subtask.states.items() if mode is DistributionMode.UNION}
        for name in of_union:
            mode, elements = subtask.states[name]
            gathered[name] = (mode, (*gathered.get(name, (mode, ()))[1], *elements))
        metas += subtask.metas
        others[index] = replace(
            subtask, states={name: subtask.states[name] for name in subtask.states.keys() - of_union}
        )
    return {**others, _ALL: _Subtask(gathered, tuple(metas), {})}


def _differences(expected: Mapping[int, _Subtask], found: Mapping[int, _Subtask]) -> Iterator[tuple[str, str]]:
    """Yields the name of a state, or the kind of raw state, with each difference in it."""
    nothing = _Subtask({}, (), {})
    for index in sorted(expected.keys() | found.keys()):
        one, other = expected.get(index, nothing), found.get(index, nothing)
        where = "all subtasks" if index == _ALL else f"subtask {index}"
        for name in sorted(one.states.keys() | other.states.keys()):
            yield from ((name, f"{where}: {text}") for text in _state(one.states.get(name), other.states.get(name)))
        for kind in sorted(one.raw.keys() | other.raw.keys()):
            if one.raw.get(kind) != other.raw.get(kind):
                yield kind, f"{where}: other bytes than in the source"
        yield from ((name, f"{where}: described differently") for name in _redescribed(one, other))


def _state(expected: _State | None, found: _State | None) -> Iterator[str]:
    mode, elements = expected or (None, ())
    found_mode, found_elements = found or (None, ())
    if None not in (mode, found_mode) and mode is not found_mode:
        yield f"expected mode {mode}, found {found_mode}"
    if len(elements) != len(found_elements):
        yield f"expected {len(elements)} elements, found {len(found_elements)}"
        return
    different = [number for number, pair in enumerate(zip(elements, found_elements, strict=True)) if pair[0] != pair[1]]
    if different and sorted(elements) == sorted(found_elements):
        yield f"elements in another order from element {different[0]} on"
    elif different:
        yield f"other bytes in element {', '.join(map(str, different[:10]))} of {len(elements)}"


def _redescribed(expected: _Subtask, found: _Subtask) -> Iterator[str]:
    """Names of states whose description has changed so that a restore would misread them, or not find them."""
    before: dict[str, list[_Described]] = {}
    for described in expected.metas:
        before.setdefault(described.meta.name, []).append(described)
    there = {described.meta.name for described in found.metas}
    for described in found.metas:
        of_source = before.get(described.meta.name, [])
        if not of_source or not all(map(described.fits, of_source)):
            yield described.meta.name
    for name, (_, elements) in found.states.items():
        if elements and name not in there:
            yield name
