"""Snapshots that are built from a type alone are those that Flink wrote for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkstate.errors import RefusedError
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.built_snapshots import snapshot_of
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import type_name

GOLDEN = Path(__file__).parents[1] / "savepoints"
SAVEPOINTS = ("scalars-2.3-rocksdb", "arrays-1.20-hashmap", "composites-2.3-rocksdb", "composites-ttl-1.20-hashmap")


def with_nested(snapshot: SerializerSnapshot) -> Iterator[SerializerSnapshot]:
    yield snapshot
    for part in snapshot.nested:
        yield from with_nested(part)


def snapshots(savepoint: Path) -> Iterator[SerializerSnapshot]:
    opened = Savepoint.open(str(savepoint))
    for operator in opened.keyed_operators():
        for file in opened.open_files(operator):
            for state in file.header.states:
                for _, snapshot in state.serializers:
                    yield from with_nested(snapshot)


@pytest.mark.parametrize("savepoint", SAVEPOINTS)
def test_they_have_the_same_bytes(savepoint: str) -> None:
    built = set()
    for snapshot in snapshots(GOLDEN / savepoint):
        try:
            again = snapshot_of(snapshot.type)
        except RefusedError:
            continue
        assert (again.raw, again.type, again.class_name) == (snapshot.raw, snapshot.type, snapshot.class_name)
        built.add(type_name(snapshot.type))
    if savepoint.startswith("composites"):
        assert {"Tuple1<String>", "Map<Tuple2<Integer,String>,List<Double>>"} <= built
    if savepoint.startswith("arrays"):
        assert {"Long[]", "String[]", "long[]", "Tuple2<Long,String>[]"} <= built
