"""The header of a keyed state file: which serializers wrote what follows.

| field | type |
|---|---|
| version | i32 = 6 |
| key group compression | bool (snappy) |
| key serializer | i32 2, Snapshot |
| states | i16 n, n x StateMeta |

StateMeta: utf name, i32 kind, i32 n x (utf option, utf value), i32 n x (utf serializer key, i32 2, Snapshot). A
state's id is its place in the list; ids differ between files, names don't.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from stateferry.binary import ByteReader, ByteWriter
from stateferry.errors import DamagedError, RefusedError
from stateferry.serializers.snapshot_merge import merge_snapshots
from stateferry.serializers.snapshots import SerializerSnapshot, SnapshotParser, follow
from stateferry.serializers.types import opaque_parts

VERSION = 6
SNAPSHOT_VERSION = 2
KEYED_STATE_TYPE = "KEYED_STATE_TYPE"
VALUE_SERIALIZER = "VALUE_SERIALIZER"
NAMESPACE_SERIALIZER = "NAMESPACE_SERIALIZER"
USER_KEY_SERIALIZER = "USER_KEY_SERIALIZER"


class BackendKind(IntEnum):
    KEY_VALUE = 0
    OPERATOR = 1
    BROADCAST = 2
    PRIORITY_QUEUE = 3
    KEY_VALUE_V2 = 4


@dataclass(frozen=True, slots=True)
class StateMeta:
    name: str
    kind: BackendKind
    options: tuple[tuple[str, str], ...]
    serializers: tuple[tuple[str, SerializerSnapshot], ...]

    def option(self, key: str) -> str | None:
        return dict(self.options).get(key)

    def serializer(self, key: str) -> SerializerSnapshot | None:
        return dict(self.serializers).get(key)

    def merged_with(self, other: StateMeta) -> StateMeta | None:
        """One description for what both describe, or None if that differs. The order of options and serializers is a
        hash map's and says nothing."""
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
    compressed: bool
    key_serializer: SerializerSnapshot
    states: tuple[StateMeta, ...]

    def merged_with(self, other: KeyedHeader, file: str) -> KeyedHeader:
        """One header for the entries of both: each state once, in the order in which they first appear. `file` is where
        the other one is from."""
        key_serializer = merge_snapshots(self.key_serializer, other.key_serializer)
        if key_serializer is None:
            raise RefusedError(f"{file}: its keys are described differently than in another subtask")
        states = {meta.name: meta for meta in self.states}
        for meta in other.states:
            merged = meta.merged_with(states[meta.name]) if meta.name in states else meta
            if merged is None:
                raise RefusedError(f"{file}: state {meta.name} is described differently than in another subtask")
            states[meta.name] = merged
        return KeyedHeader(self.compressed or other.compressed, key_serializer, tuple(states.values()))


def parse_header(data: bytes, file: str, *, end: int | None) -> tuple[KeyedHeader, int]:
    """The header at the start of `data` and where it ends: at `end` when that is known (where the first key group
    begins)."""
    limit = len(data) if end is None else end
    reader = ByteReader(data, file, limit=limit)
    start = reader.position
    version = reader.i32("the version of a keyed state file")
    if version in (1, 2, 3, 4, 5):
        raise RefusedError(
            f"{file}: keyed state of version {version}, from before Flink 1.11: take a savepoint with a newer Flink"
        )
    if version != VERSION:
        raise reader.damaged(f"version {VERSION} of a keyed state file", f"{version}", position=start)
    compressed = reader.boolean("key group compression")
    parser = SnapshotParser(data, file, limit=limit)
    keys = _versioned_snapshot(parser, reader.position)
    complete = [
        (KeyedHeader(compressed, key, states), stop)
        for (key, states), stop in follow(
            [(key, position) for key, position in keys],
            lambda at: read_states(parser, at),
            lambda key, states: (key, states),
        )
        if end is None or stop == end
    ]
    if len(complete) == 1:
        return complete[0]
    if not complete:
        raise DamagedError(
            "a header that ends where the first key group begins", "one that ends elsewhere", file=file, offset=end
        )
    unknown = {name for header, _ in complete for name in _opaque_classes(header)}
    raise RefusedError(
        f"{file}: the header can be read in more than one way, because nothing here knows the serializer snapshots of "
        f"{', '.join(sorted(unknown))}"
    )


def _opaque_classes(header: KeyedHeader) -> set[str]:
    snapshots = [header.key_serializer, *(snapshot for state in header.states for _, snapshot in state.serializers)]
    return {part.class_name for snapshot in snapshots for part in opaque_parts(snapshot.type)}


def _versioned_snapshot(parser: SnapshotParser, position: int) -> list[tuple[SerializerSnapshot, int]]:
    reader = parser.reader(position)
    reader.expect_i32(SNAPSHOT_VERSION, "the version before a serializer snapshot")
    return parser.readings(reader.position)


def read_states(parser: SnapshotParser, position: int) -> list[tuple[tuple[StateMeta, ...], int]]:
    reader = parser.reader(position)
    count = reader.i16("the number of states")
    if count < 0:
        raise reader.damaged("the number of states", f"{count}", position=position)
    partial: list[tuple[tuple[StateMeta, ...], int]] = [((), reader.position)]
    for _ in range(count):
        partial = list(follow(partial, lambda at: _state(parser, at), lambda done, one: (*done, one)))
    return partial


def _state(parser: SnapshotParser, position: int) -> list[tuple[StateMeta, int]]:
    reader = parser.reader(position)
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
    partial: list[tuple[tuple[tuple[str, SerializerSnapshot], ...], int]] = [((), reader.position)]
    for _ in range(count):
        partial = list(follow(partial, lambda at: _serializer(parser, at), lambda done, one: (*done, one)))
    return [(StateMeta(name, BackendKind(kind), tuple(options), serializers), end) for serializers, end in partial]


def _serializer(parser: SnapshotParser, position: int) -> list[tuple[tuple[str, SerializerSnapshot], int]]:
    reader = parser.reader(position)
    key = reader.utf("the key of a serializer")
    return [((key, snapshot), end) for snapshot, end in _versioned_snapshot(parser, reader.position)]


def build_header(header: KeyedHeader) -> bytes:
    writer = ByteWriter().i32(VERSION).boolean(header.compressed)
    writer.i32(SNAPSHOT_VERSION).raw(header.key_serializer.raw).i16(len(header.states))
    for state in header.states:
        write_state(writer, state)
    return writer.bytes()


def write_state(writer: ByteWriter, state: StateMeta) -> None:
    writer.utf(state.name).i32(state.kind).i32(len(state.options))
    for option, value in state.options:
        writer.utf(option).utf(value)
    writer.i32(len(state.serializers))
    for key, snapshot in state.serializers:
        writer.utf(key).i32(SNAPSHOT_VERSION).raw(snapshot.raw)
