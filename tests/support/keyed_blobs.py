"""A savepoint of operator `main` with a ValueState<Map<String,Long>>, for any keys and layout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flinkstate.hashing.key_groups import key_group_prefix_bytes, ranges
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.reading.reader import operator_id
from flinkstate.serializers.built_snapshots import map_snapshot, simple_snapshot
from flinkstate.serializers.types import MapType, Scalar
from flinkstate.values import hash_codes
from flinkstate.values.codecs import encode
from flinkstate.writing.writer import SavepointWriter

STATE = "totals"
BLOB = MapType(Scalar.STRING, Scalar.LONG)


def key_group_of(key_type: Scalar, key: Any, max_parallelism: int) -> int:
    key_group = hash_codes.key_group_of(key_type, key, max_parallelism)
    assert key_group is not None
    return key_group


def write_blobs(
    folder: Path, sizes: Mapping[Any, int], parallelism: int, max_parallelism: int, key_type: Scalar = Scalar.INTEGER
) -> Path:
    """Writes a map for each key, with so many entries."""
    groups: dict[int, list[bytes]] = {}
    for key, entries in sizes.items():
        group = key_group_of(key_type, key, max_parallelism)
        raw = group.to_bytes(key_group_prefix_bytes(max_parallelism), "big") + encode(key_type, key) + b"\0"
        blob = encode(BLOB, [(f"item{number:05d}", number) for number in range(entries)])
        groups.setdefault(group, []).append(_counted(raw) + _counted(blob))
    text = simple_snapshot(Scalar.STRING)
    serializers = (
        (VALUE_SERIALIZER, map_snapshot(text, simple_snapshot(Scalar.LONG))),
        (NAMESPACE_SERIALIZER, simple_snapshot(Scalar.VOID_NAMESPACE)),
    )
    meta = StateMeta(STATE, BackendKind.KEY_VALUE, ((KEYED_STATE_TYPE, "VALUE"),), serializers)
    header = KeyedHeader(False, simple_snapshot(key_type), (meta,))
    writer, id_ = SavepointWriter(str(folder)), operator_id("main")
    subtasks = []
    for index, owned in enumerate(ranges(max_parallelism, parallelism)):
        with writer.keyed_file(id_.hex(), index, header, owned) as file:
            for group in owned:
                if found := groups.get(group):
                    data = np.frombuffer(b"".join(found), np.uint8).copy()
                    file.entries(group, 0, data, len(data) - len(found[-1]))
            subtasks.append(Subtask(index, managed_keyed=file.close()))
    operator = Operator(id_, parallelism, max_parallelism, "main", "main", subtasks=tuple(subtasks))
    writer.commit(Metadata(6, 1, (operator,), properties=b"\xac\xed\x00\x05\x70"))
    return folder


def _counted(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
