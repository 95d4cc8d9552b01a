"""The header of a keyed state file: it says which serializers wrote the state that follows.

| field | type |
|---|---|
| version | i32 = 6 |
| key group compression | bool (snappy) |
| key serializer | i32 2, Snapshot |
| states | i16 n, n x StateMeta |

StateMeta: utf name, i32 kind, i32 n x (utf option, utf value), i32 n x (utf serializer key, i32 2, Snapshot). A
state's id is its position in the list. The ids of a state differ between files, its name doesn't.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.binary import ByteReader, ByteWriter
from flinkstate.serializers.possible_starts import SNAPSHOT_VERSION, read_key
from flinkstate.serializers.snapshot_merge import merge_snapshots
from flinkstate.serializers.snapshots import SerializerSnapshot, SnapshotParser
from flinkstate.serializers.unknown_ends import Rest

VERSION = 6
KEYED_STATE_TYPE = "KEYED_STATE_TYPE"
KEY_SERIALIZER = "KEY_SERIALIZER"
VALUE_SERIALIZER = "VALUE_SERIALIZER"
NAMESPACE_SERIALIZER = "NAMESPACE_SERIALIZER"
USER_KEY_SERIALIZER = "USER_KEY_SERIALIZER"


class BackendKind(IntEnum):
    """The kinds of state that Flink's backends write, by their numbers in a header."""

    KEY_VALUE = 0
    OPERATOR = 1
    BROADCAST = 2
    PRIORITY_QUEUE = 3
    KEY_VALUE_V2 = 4


@dataclass(frozen=True, slots=True)
class StateMeta:
    """The description of one state in a header."""

    name: str
    kind: BackendKind
    options: tuple[tuple[str, str], ...]
    serializers: tuple[tuple[str, SerializerSnapshot], ...]

    def option(self, key: str) -> str | None:
        """Returns the value of an option, or None."""
        return dict(self.options).get(key)

    def serializer(self, key: str) -> SerializerSnapshot | None:
        """Returns the serializer snapshot with this key, or None."""
        return dict(self.serializers).get(key)

    def merged_with(self, other: StateMeta) -> StateMeta | None:
        """Returns one description for both states, or None if they differ.

        The order of options and serializers is that of a hash map and has no meaning.
        """
        mine, theirs = dict(self.serializers), dict(other.serializers)
        if (self.name, self.kind, dict(self.options)) != (other.name, other.kind, dict(other.options)) or (
            mine.keys() != theirs.keys()
        ):
            return None
        merged = [(key, merge_snapshots(snapshot, theirs[key])) for key, snapshot in self.serializers]
        serializers = tuple((key, snapshot) for key, snapshot in merged if snapshot is not None)
        return replace(self, serializers=serializers) if len(serializers) == len(merged) else None


@dataclass(frozen=True, slots=True)
class KeyedHeader:
    """A parsed header. A state's id is its position in `states`."""

    compressed: bool
    key_serializer: SerializerSnapshot
    states: tuple[StateMeta, ...]

    def merged_with(self, other: KeyedHeader, file: str) -> KeyedHeader:
        """Returns one header for the entries of both files: each state once, in the order of first appearance.

        `file` names the file of the other header, for messages.
        """
        key_serializer = merge_snapshots(self.key_serializer, other.key_serializer)
        if key_serializer is None:
            raise RefusedError(f"{file}: its keys have another description than in another subtask")
        states = {meta.name: meta for meta in self.states}
        for meta in other.states:
            merged = meta.merged_with(states[meta.name]) if meta.name in states else meta
            if merged is None:
                raise RefusedError(f"{file}: state {meta.name} has another description than in another subtask")
            states[meta.name] = merged
        return KeyedHeader(self.compressed or other.compressed, key_serializer, tuple(states.values()))


def parse_header(data: bytes, file: str, *, end: int) -> tuple[KeyedHeader, int]:
    """Returns the header at the start of `data`, and `end`, where it must end: the first key group begins there."""
    reader = ByteReader(data, file, limit=end)
    start = reader.position
    version = reader.i32("the version of a keyed state file")
    if version in (1, 2, 3, 4, 5):
        raise RefusedError(
            f"{file}: keyed state of version {version}, from before Flink 1.7: take a savepoint with a newer Flink"
        )
    if version != VERSION:
        raise reader.damaged(f"version {VERSION} of a keyed state file", f"{version}", position=start)
    compressed = reader.boolean("key group compression")
    parser = SnapshotParser(data, file, limit=end)
    reader.expect_i32(SNAPSHOT_VERSION, "the version before a serializer snapshot")
    key_serializer, position = parser.read(reader.position, Rest(lists=1))
    states, position = read_states(parser, position)
    if position != end:
        raise reader.damaged(
            "a header that ends where the first key group begins", "one that ends elsewhere", position=position
        )
    refuse_twins(states, file)
    return KeyedHeader(compressed, key_serializer, states), end


def refuse_twins(states: Iterable[StateMeta], file: str) -> None:
    """Raises if a header describes a state twice: Flink keeps one description and may meet rows of the other."""
    seen: set[str] = set()
    for state in states:
        if state.name in seen:
            raise DamagedError("a header that describes each state once", f"{state.name} twice", file=file)
        seen.add(state.name)


def read_states(parser: SnapshotParser, position: int, *, lists: int = 0) -> tuple[tuple[StateMeta, ...], int]:
    """Reads a list of states and returns it with its end. `lists` more lists follow it."""
    reader = parser.reader(position)
    count = reader.i16("the number of states")
    if count < 0:
        raise reader.damaged("the number of states", f"{count}", position=position)
    states = []
    for further in reversed(range(count)):
        states.append(_state(parser, reader, Rest(states=further, lists=lists)))
    return tuple(states), reader.position


def _state(parser: SnapshotParser, reader: ByteReader, rest: Rest) -> StateMeta:
    name = reader.utf("a state's name")
    kind_at = reader.position
    kind = reader.i32("a state's kind")
    if kind not in BackendKind._value2member_map_:
        raise reader.damaged("a kind of state from 0 to 4", f"{kind}", position=kind_at)
    options = []
    for _ in range(reader.count("the number of options", 4)):
        option = reader.utf("an option")
        options.append((option, reader.utf("an option's value")))
    count = reader.count("the number of serializers", 2 + 4 + 6)
    serializers = []
    for further in reversed(range(count)):
        key = read_key(reader)
        snapshot, reader.position = parser.read(reader.position, replace(rest, serializers=further))
        serializers.append((key, snapshot))
    return StateMeta(name, BackendKind(kind), tuple(options), tuple(serializers))


def build_header(header: KeyedHeader) -> bytes:
    """Returns the bytes of a header."""
    writer = ByteWriter().i32(VERSION).boolean(header.compressed)
    writer.i32(SNAPSHOT_VERSION).raw(header.key_serializer.raw).i16(len(header.states))
    for state in header.states:
        write_state(writer, state)
    return writer.bytes()


def write_state(writer: ByteWriter, state: StateMeta) -> None:
    """Writes the description of one state."""
    writer.utf(state.name).i32(state.kind).i32(len(state.options))
    for option, value in state.options:
        writer.utf(option).utf(value)
    writer.i32(len(state.serializers))
    for key, snapshot in state.serializers:
        writer.utf(key).i32(SNAPSHOT_VERSION).raw(snapshot.raw)
