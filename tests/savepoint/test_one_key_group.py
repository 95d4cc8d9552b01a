"""All keys in one key group: they don't show how the job hashes rows, nor which operators can't run in parallel."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import flinkstate
from flinkstate import NewState
from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.types import FlinkType, KryoType, RowType, Scalar, TupleType
from flinkstate.values.java_values import RowValue
from flinkstate.writing.operator_rewrite import Layout, _refuse_unstable
from stateferry.look.balance.key_place import KeyFinder
from stateferry.look.balance.key_weights import measure_keys
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
    _refuse_unstable(_state(KryoType("java.util.UUID", five=True)), _operator(1))


def test_no_place_and_no_advice_for_rows(tmp_path: Path) -> None:
    """A run would refuse another max parallelism."""
    entries = [{"key": RowValue((f"k{number}",)), "value": number} for number in range(9)]
    key = RowType((Scalar.STRING,), True)
    flinkstate.write(str(tmp_path), "main", key, [NewState("s", "VALUE", LONG, entries=entries)], max_parallelism=1)
    savepoint = Savepoint.open(str(tmp_path))
    operator = savepoint.operator("main")
    finder = KeyFinder(savepoint, operator, '["k1"]')
    today = finder.place()
    assert finder.place_in(today, 1, 1) == today
    with pytest.raises(RefusedError, match="isn't known: all are in one key group"):
        finder.place_in(today, 4, 128)
    weights = measure_keys(savepoint, operator, "bytes")
    assert weights is not None
    assert "all are in one key group" in (weights.why_fixed or "")


@pytest.mark.parametrize(("parallelisms", "wanted", "notes"), [((1, 1), 128, 1), ((1, 1), None, 0), ((8, 8), 128, 0)])
def test_a_whole_job_with_one(parallelisms: tuple[int, ...], wanted: int | None, notes: int) -> None:
    plan: Any = SimpleNamespace(max_parallelism=wanted, rescales_only=False, parallelism=None)
    source: Savepoint = SimpleNamespace(metadata=SimpleNamespace(operators=tuple(map(_operator, parallelisms, "ab"))))  # type: ignore[assignment]
    found = list(kept(plan, source, Layout({}, wanted)))
    assert len(found) == notes
    assert all("windowAll" in note for note in found)
