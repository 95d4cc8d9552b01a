"""What is said of what flink-cep keeps beside the events of a pattern."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.snapshots import SerializerSnapshot
from stateferry.verdict import unknown
from stateferry.verdict.journey import Part, Place
from tests.flink.table_jobs import SAVEPOINTS

_STATE = "nfaStateName"


@pytest.mark.parametrize("case", ["cep-1.20-hashmap", "cep-objects-1.20-rocksdb", "cep-2.3-rocksdb"])
def test_both_lines_have_the_same(case: str) -> None:
    for snapshot in _snapshots(case):
        assert unknown.finding_of(Part(Place.VALUE, snapshot.type, (snapshot,))) is None


def test_another_description_is_not_known() -> None:
    snapshot = next(
        one for one in _snapshots("cep-1.20-hashmap") if one.class_name.endswith("NFAStateSerializerSnapshot")
    )
    older = replace(snapshot, raw=snapshot.raw[:-1])
    finding = unknown.finding_of(Part(Place.VALUE, snapshot.type, (older,)))
    assert finding is not None
    assert snapshot.class_name in finding.reason


def _snapshots(case: str) -> list[SerializerSnapshot]:
    """The serializers of the pattern's own states, with those in them."""
    savepoint = Savepoint.open(str(SAVEPOINTS / case))
    found = []
    for operator in savepoint.keyed_operators():
        header = savepoint.keyed_header(operator)
        assert header is not None
        if any(meta.name == _STATE for meta in header.states):
            for meta in header.states:
                found += [snapshot for _, snapshot in meta.serializers]
    assert found
    return found
