"""Runs whose result is for another Flink: what that would read wrongly stops them, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import PlanError, RefusedError
from flinkstate.reading.reader import Savepoint
from stateferry.runs.guards import other_flink
from stateferry.runs.plan.plan_json import plan_of
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import StateVerdict
from tests.steps.test_native_source import run

GOLDEN = Path(__file__).parents[1] / "savepoints"
KRYO = GOLDEN / "hint-hash-map-1.20-rocksdb"
OF_FLINK = GOLDEN / "legacy-1.20-hashmap"
PARTS = GOLDEN / "kryo-parts-1.20-rocksdb"
STATE = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState"}
MIGRATED: dict[str, Any] = {"operators": [{"operator": "main", "states": [STATE]}]}
ALONE: dict[str, Any] = {"operators": [], "parallelism": 3, "job": "totals"}
# Options of a migration, which the runs of these tests have.
ALONE |= {"nulls": "stop", "on_contradiction": "stop", "accept_expired": None}


def test_a_state_that_would_lose_entries_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"mainState: restores and is wrong: .* one of its entries") as refused:
        run(KRYO, tmp_path, to="flink-2", **ALONE)
    assert "Flink 2.3, for which the new savepoint is (--to flink-2)" in str(refused.value)
    assert "newMainState" not in str(refused.value)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("to", ["same", "flink-1.20"])
def test_the_same_flink_reads_it(to: str, tmp_path: Path) -> None:
    report, _ = run(KRYO, tmp_path, to=to, **ALONE)
    assert report.is_green


def test_a_map_that_is_migrated_is_no_obstacle_unless_it_stays(tmp_path: Path) -> None:
    report, _ = run(KRYO, tmp_path / "moved", to="flink-2.3", **MIGRATED)
    assert report.is_green
    with pytest.raises(RefusedError, match="mainState: restores and is wrong"):
        run(KRYO, tmp_path / "kept", to="flink-2.3", keep_legacy=True, **MIGRATED)


def test_another_operator_may_have_the_same_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(savepoint: Savepoint, asked: Asked) -> Iterator[StateVerdict]:
        for one in verdicts(savepoint, asked):
            yield from (one, replace(one, operator_id="0" * 32))

    monkeypatch.setattr(other_flink, "verdicts", twice)
    with pytest.raises(RefusedError, match="mainState: restores and is wrong"):
        run(KRYO, tmp_path, to="flink-2", **MIGRATED)


def test_values_that_stay_values_of_kryo_stop_the_run(tmp_path: Path) -> None:
    states = [{"legacy": f"old-{number}", "new": f"new-{number}"} for number in range(4)]
    operators = [{"operator": "075411a2d1ef617c7b2ad2770050b24f", "states": states}]
    with pytest.raises(RefusedError, match="new-0: values of UUID stay values of the Kryo that wrote them") as refused:
        run(PARTS, tmp_path, to="flink-2", on_contradiction="stop", nulls="stop", operators=operators)
    assert "old-" not in str(refused.value)


def test_states_by_flinks_own_serializers_are_carried_over(tmp_path: Path) -> None:
    report, _ = run(OF_FLINK, tmp_path, to="flink-2", **ALONE)
    assert report.is_green


def test_a_savepoint_of_flink_2_is_for_no_flink_1(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"is refused at the start: .* Flink 1\.20 reads versions up to 4"):
        run(GOLDEN / "legacy-2.3-rocksdb", tmp_path, to="flink-1.20", **ALONE)


def test_the_way_back_is_for_the_same_flink() -> None:
    with pytest.raises(PlanError, match="to and reverse: the way back is to the Flink that wrote the savepoint"):
        plan_of({"job": "totals", "source": "/in", "target": "/out", "to": "flink-2", "reverse": True, **MIGRATED})
