"""A list whose elements end elsewhere after an upgrade loses none of them in the same run."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import (
    CaseClassType,
    FlinkType,
    NullableType,
    OptionType,
    Scalar,
    ScalaType,
    TupleType,
)
from flinkstate.ttl import StateTtlConfig
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import PlannedTtl
from stateferry.runs.checks.planned_ttls import rewritten_lists

SAVEPOINT = Path(__file__).parents[1] / "savepoints" / "legacy-2.3-rocksdb"
LONG, STRING = Scalar.LONG, Scalar.STRING
PAIR = CaseClassType((STRING, LONG), "scala.Tuple2")


@pytest.mark.parametrize(
    ("source", "made", "is_refused"),
    [
        (OptionType(LONG), NullableType(LONG, 8), True),
        # The bytes are the same, so their ends are found.
        (PAIR, TupleType((STRING, LONG), "Tuple2"), False),
    ],
)
@pytest.mark.parametrize("drops", [False, True])
def test_elements_that_end_elsewhere(source: FlinkType, made: FlinkType, is_refused: bool, drops: bool) -> None:
    savepoint = Savepoint.open(str(SAVEPOINT))
    state = KeyedState("elements", StateKind.LIST, STRING, LONG, None, source, True, False)
    written = KeyedState("elements", StateKind.LIST, STRING, LONG, None, ScalaType.of(source, made), True, False)
    found = OperatorChanges.none(savepoint, savepoint.operator("main"))
    planned = PlannedTtl(state, StateTtlConfig(1000), 5000, drops)
    changes = OperatorChanges(
        found.operator, found.new_max, found.states, ttls=(planned,), by_kryo={"elements": written}
    )
    problems = list(rewritten_lists([changes]))
    assert bool(problems) == (is_refused and drops)
    assert all("leave drop out of its --state-ttl" in problem for problem in problems)
