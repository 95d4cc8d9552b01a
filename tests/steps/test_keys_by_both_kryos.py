"""A job that was upgraded in place may have a key twice, by the Kryo of each Flink: one of its rows would be lost."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flinkstate.errors import PlanError, RefusedError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.reader import operator_id
from flinkstate.serializers.built_snapshots import kryo_snapshot, simple_snapshot
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import Scalar
from flinkstate.writing.writer import SavepointWriter
from tests.savepoint.test_heap_timers import group, handle
from tests.steps.test_for_another_flink import ALONE
from tests.steps.test_native_source import run

# The same UUID by each Kryo: two numbers as short as they are, or eight bytes each.
BY_2, BY_5 = bytes.fromhex("54010204"), b"\x54\1" + struct.pack("<qq", 1, 2)
OTHER_BY_5 = b"\x54\1" + struct.pack("<qq", 1, 3)
GROUP = 5


def savepoint(target: Path, *keys: bytes) -> Path:
    """A savepoint of Flink 2 whose state has these keys by Kryo, as it stores them."""
    metas = (
        StateMeta(
            "counts", BackendKind.KEY_VALUE, ((KEYED_STATE_TYPE, "VALUE"),),
            (
                (VALUE_SERIALIZER, simple_snapshot(Scalar.LONG)),
                (NAMESPACE_SERIALIZER, simple_snapshot(Scalar.VOID_NAMESPACE)),
            ),
        ),
    )  # fmt: skip
    writer, id_ = SavepointWriter(str(target)), operator_id("main")
    with writer.keyed_file(id_.hex(), 0, KeyedHeader(False, kryo_snapshot("java.util.UUID"), metas),
                           KeyGroupRange(0, 127)) as file:  # fmt: skip
        rows = [_sized(bytes([GROUP]) + key + b"\0") + _sized(struct.pack(">q", 7)) for key in keys]
        data = np.frombuffer(b"".join(rows), np.uint8).copy()
        file.entries(GROUP, 0, data, len(data) - len(rows[-1]))
        subtask = Subtask(0, managed_keyed=file.close())
    operator = Operator(id_, 1, 128, "main", "main", subtasks=(subtask,))
    writer.commit(Metadata(6, 1, (operator,), properties=b"\xac\xed\x00\x05\x70"))
    return target


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_a_key_by_both_kryos_stops_the_run(tmp_path: Path) -> None:
    plan: dict[str, Any] = {"to": "flink-2", **ALONE}
    report, _ = run(savepoint(tmp_path / "once", BY_2, OTHER_BY_5), tmp_path / "green", **plan)
    assert report.is_green
    twice = savepoint(tmp_path / "twice", BY_2, BY_5)
    with pytest.raises(RefusedError, match=r"counts.*key group 5.*the same bytes"):
        run(twice, tmp_path / "red", **plan)
    assert not (tmp_path / "red" / "target").exists()


def with_raw_state(source: Path, version: int, key: SerializerSnapshot, *, is_alone: bool = False) -> Path:
    """Adds timers on the heap with such keys, as a checkpoint has them; `is_alone`: there is no other keyed state."""
    found = parse_metadata((source / METADATA).read_bytes(), METADATA)
    (operator,) = found.operators
    (subtask,) = operator.subtasks
    raw = handle(group(("timers", [], []), key=key), *[None] * 127)
    subtask = replace(subtask, raw_keyed=raw, managed_keyed=None if is_alone else subtask.managed_keyed)
    changed = replace(found, version=version, operators=(replace(operator, subtasks=(subtask,)),))
    (source / METADATA).write_bytes(build_metadata(changed))
    return source


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize(("version", "to"), [(4, "flink-2"), (6, "flink-2"), (6, "flink-1.20")])
def test_keys_in_raw_state_stop_the_run(version: int, to: str, is_alone: bool, tmp_path: Path) -> None:
    uuids = kryo_snapshot("java.util.UUID")
    source = with_raw_state(savepoint(tmp_path / "source", BY_2), version, uuids, is_alone=is_alone)
    with pytest.raises(PlanError, match=r"has raw keyed state.* flink savepoint --type canonical"):
        run(source, tmp_path, **{"to": to, **ALONE, "parallelism": None})
    assert not (tmp_path / "target").exists()


def test_timers_that_can_be_read_have_nothing_by_kryo(tmp_path: Path) -> None:
    source = with_raw_state(savepoint(tmp_path / "source", BY_2), 4, simple_snapshot(Scalar.LONG), is_alone=True)
    report, _ = run(source, tmp_path, **{"to": "flink-2", **ALONE, "parallelism": None})
    assert report.is_green
