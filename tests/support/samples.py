"""Small savepoints with a bit of every kind of keyed state, laid out here and written by our own writer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np

from flinkstate.hashing.key_groups import assign_to_key_group, key_group_prefix_bytes, ranges
from flinkstate.keyed.compression import Buffer, Compression
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.built_snapshots import composite_snapshot, map_snapshot, simple_snapshot, ttl_snapshot
from flinkstate.serializers.snapshot_classes import LIST_SNAPSHOT, TIMER_SNAPSHOT
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import ListType, MapType, Scalar, TimerType
from flinkstate.values import codecs
from flinkstate.writing.writer import SavepointWriter

UID = "main"
PROPERTIES = b"\xac\xed\x00\x05\x70"
STRING, LONG, BOOLEAN, VOID = (
    simple_snapshot(part) for part in (Scalar.STRING, Scalar.LONG, Scalar.BOOLEAN, Scalar.VOID_NAMESPACE)
)
BLOB = MapType(Scalar.STRING, Scalar.LONG)


def keyed_meta(name: str, kind: str, value: SerializerSnapshot) -> StateMeta:
    serializers = ((VALUE_SERIALIZER, value), (NAMESPACE_SERIALIZER, VOID))
    return StateMeta(name, BackendKind.KEY_VALUE, ((KEYED_STATE_TYPE, kind),), serializers)


def list_snapshot(element: SerializerSnapshot) -> SerializerSnapshot:
    return composite_snapshot(LIST_SNAPSHOT, 1, ListType(element.type), (element,))


def timer_snapshot(key: SerializerSnapshot, namespace: SerializerSnapshot) -> SerializerSnapshot:
    return composite_snapshot(TIMER_SNAPSHOT, 2, TimerType(key.type, namespace.type), (key, namespace))


def timers_meta(name: str, key: SerializerSnapshot) -> StateMeta:
    return StateMeta(name, BackendKind.PRIORITY_QUEUE, (), ((VALUE_SERIALIZER, timer_snapshot(key, VOID)),))


METAS = (
    keyed_meta("blob", "VALUE", ttl_snapshot(map_snapshot(STRING, LONG))),
    keyed_meta("counts", "MAP", map_snapshot(STRING, ttl_snapshot(LONG))),
    keyed_meta("flag", "VALUE", BOOLEAN),
    keyed_meta("names", "LIST", list_snapshot(STRING)),
    timers_meta("_timer_state/processing_user-timers", STRING),
)


def java_hash(text: str) -> int:
    code = 0
    for character in text:
        code = (31 * code + ord(character) + 2**31) % 2**32 - 2**31
    return code


@cache
def keys_of(key_group: int, max_parallelism: int, number: int) -> tuple[str, ...]:
    """Keys that belong to the key group."""
    names = (f"k{index}" for index in count())
    fitting = (name for name in names if assign_to_key_group(java_hash(name), max_parallelism) == key_group)
    return tuple(next(fitting) for _ in range(number))


def entry(key: bytes, value: bytes) -> bytes:
    return len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value


def together(rows: Iterable[bytes]) -> tuple[Buffer, int]:
    """Rows one behind the other, and where the last one begins."""
    rows = list(rows)
    return np.frombuffer(b"".join(rows), np.uint8), sum(map(len, rows[:-1]))


def stamp(time: int) -> bytes:
    return time.to_bytes(8, "big")


def sample_rows(key_group: int, max_parallelism: int, keys: int) -> dict[int, list[bytes]]:
    """The key group's rows by state, of the states of `METAS`."""
    rows: dict[int, list[bytes]] = {state: [] for state in range(len(METAS))}
    prefix = key_group.to_bytes(key_group_prefix_bytes(max_parallelism), "big")
    for number, name in enumerate(keys_of(key_group, max_parallelism, keys)):
        text, time = codecs.encode(Scalar.STRING, name), 1_700_000_000_000 + number
        key = prefix + text + b"\0"
        blob = codecs.encode(BLOB, [("a", number), ("é日😀", None), ("c", -1)][: number % 4])
        rows[0].append(entry(key, stamp(time) + blob))
        for part in range(number % 3):
            user_key = codecs.encode(Scalar.STRING, f"u{part}")
            rows[1].append(entry(key + user_key, b"\0" + stamp(time + part) + codecs.encode(Scalar.LONG, part - 1)))
        rows[2].append(entry(key, b"\1"))
        rows[3].append(
            entry(key, b",".join(codecs.encode(Scalar.STRING, f"n{part}") for part in range(1 + number % 2)))
        )
        rows[4].append(entry(prefix + (time ^ 1 << 63).to_bytes(8, "big") + text + b"\0", b""))
    return {state: some for state, some in rows.items() if some}


def write_sample(
    folder: Path,
    *,
    parallelism: int = 2,
    max_parallelism: int = 8,
    keys: int = 4,
    compressed: bool = False,
    compression: Compression = Compression.SOURCE,
    version: int = 6,
    empty: Iterable[int] = (),
) -> Savepoint:
    """A savepoint with so many keys in each key group but the `empty` ones."""
    header = KeyedHeader(compressed, STRING, METAS)
    writer, subtasks = SavepointWriter(str(folder)), []
    for index, key_groups in enumerate(ranges(max_parallelism, parallelism)):
        with writer.keyed_file(operator_id(UID).hex(), index, header, key_groups, compression) as file:
            for key_group in key_groups:
                if key_group not in empty:
                    for state, rows in sample_rows(key_group, max_parallelism, keys).items():
                        file.entries(key_group, state, *together(rows))
            subtasks.append(Subtask(index, managed_keyed=file.close()))
    known = UID if version >= 5 else None
    properties = PROPERTIES if version >= 4 else b""
    operator = Operator(operator_id(UID), parallelism, max_parallelism, known, known, subtasks=tuple(subtasks))
    writer.commit(Metadata(version, 7, (operator,), (), properties))
    return Savepoint.open(str(folder))


@dataclass(frozen=True)
class Extent:
    """The bytes of one entry; state ids and what else lies between entries have none."""

    state: int
    start: int
    end: int


def entry_extents(data: bytes, start: int, end: int) -> list[Extent]:
    """Of an uncompressed key group, by a plain reading of the format."""
    extents = []
    state, position = int.from_bytes(data[start : start + 2], "big"), start + 2
    while state != 0xFFFF:
        begin = position
        last = data[position + 4] & 0x80
        position += 4 + int.from_bytes(data[position : position + 4], "big")
        position += 4 + int.from_bytes(data[position : position + 4], "big")
        extents.append(Extent(state, begin, position))
        if last:
            state, position = int.from_bytes(data[position : position + 2], "big"), position + 2
    assert position == end
    return extents


def replaced(data: bytes, position: int, piece: bytes) -> bytes:
    return data[:position] + piece + data[position + len(piece) :]


def files_of(folder: Path) -> Mapping[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
