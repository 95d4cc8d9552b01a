"""All keys in one key group: they don't show how the job hashes rows, nor which operators can't run in parallel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.types import FlinkType, RowType, Scalar, TupleType
from flinkstate.writing.operator_rewrite import Layout, _refuse_unstable
from stateferry.runs.checks.wanted_layout import kept

LONG = Scalar.LONG
ROW = RowType((LONG,), True)


def _state(key: FlinkType) -> KeyedState:
    return KeyedState("s", StateKind.VALUE, key, LONG, None, LONG, False, False)


def _operator(max_parallelism: int, name: str = "main") -> Operator:
    return Operator(operator_id(name), 1, max_parallelism, name, name)


@pytest.mark.parametrize("key", [ROW, TupleType((ROW, LONG), "org.apache.flink.api.java.tuple.Tuple2")])
def test_rows_as_keys(key: FlinkType) -> None:
    with pytest.raises(RefusedError, match="all are in one key group"):
        _refuse_unstable(_state(key), _operator(1))
    _refuse_unstable(_state(key), _operator(2))
    _refuse_unstable(_state(LONG), _operator(1))


@pytest.mark.parametrize(("parallelisms", "wanted", "notes"), [((1, 1), 128, 1), ((1, 1), None, 0), ((8, 8), 128, 0)])
def test_a_whole_job_with_one(parallelisms: tuple[int, ...], wanted: int | None, notes: int) -> None:
    plan: Any = SimpleNamespace(max_parallelism=wanted, rescales_only=False, parallelism=None)
    source: Savepoint = SimpleNamespace(metadata=SimpleNamespace(operators=tuple(map(_operator, parallelisms, "ab"))))  # type: ignore[assignment]
    found = list(kept(plan, source, Layout({}, wanted)))
    assert len(found) == notes
    assert all("windowAll" in note for note in found)
