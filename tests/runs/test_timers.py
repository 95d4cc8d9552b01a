"""What a source shows of the timers of its job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from flinkstate.metadata.metadata import Metadata
from flinkstate.reading.reader import Savepoint
from stateferry.runs.guards.timer_guard import LostTimersError, check_timers
from stateferry.runs.guards.timers import are_in_native_savepoints, shown_timers
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.facts import ShownTimers
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts, StateSize
from tests.rocksdb.goldens import SAVEPOINTS, opened

CANONICAL = Path(__file__).parents[1] / "savepoints" / "legacy-2.3-rocksdb"


def metadata_of(name: str) -> Metadata:
    return opened(SAVEPOINTS / name).metadata


def test_only_a_checkpoint_of_rocksdb_shows_where_timers_are() -> None:
    checkpoint = metadata_of("rounds-checkpoint-2.3-rocksdb")
    assert shown_timers(checkpoint) == ShownTimers(in_native_savepoints=True)
    assert shown_timers(metadata_of("rounds-native-2.3-rocksdb")) is None
    assert shown_timers(Savepoint.open(str(CANONICAL)).metadata) is None
    operators = [
        replace(one, subtasks=tuple(replace(each, raw_keyed=cast(Any, each.native_keyed)) for each in one.subtasks))
        for one in checkpoint.operators
    ]
    with_raw = replace(checkpoint, operators=tuple(operators))
    assert shown_timers(with_raw) == ShownTimers(in_native_savepoints=False)
    assert shown_timers(metadata_of("rounds-heap-timers-2.3-rocksdb")) == ShownTimers(in_native_savepoints=False)


@pytest.mark.parametrize("newest", [True, False])
def test_the_newest_green_run_that_shows_it_counts(newest: bool, tmp_path: Path) -> None:
    def run(number: int, shown: bool | None, state: RunState = RunState.VERIFIED) -> None:
        of = {"operators": [{"operator": "main", "states": [{"legacy": "a", "new": "b"}]}], "run_id": f"{number}"}
        values: dict[str, object] = {"job": "orders", "source": "/in", "target": "/out", "home": str(tmp_path)}
        made = Run.create(plan_of(values | of), number)
        made.enter(RunState.RUNNING, number)
        made.enter(state, number, "red" if state is RunState.FAILED else "")
        if shown is not None:
            made.keep(ShownTimers(shown))

    assert not are_in_native_savepoints(str(tmp_path), "orders")
    run(1, not newest)
    run(2, newest)
    run(3, None)
    run(4, not newest, RunState.FAILED)
    assert are_in_native_savepoints(str(tmp_path), "orders") is newest


TIMER_STATE = "main/_timer_state/event_user-timers"
NATIVE_WITHOUT = "rounds-legacy-ttl-native-2.3-rocksdb"


@pytest.mark.parametrize(
    ("name", "before", "is_red"),
    [
        (NATIVE_WITHOUT, {TIMER_STATE: 7, "main/mainState": 3}, True),
        (NATIVE_WITHOUT, {TIMER_STATE: 0, "main/mainState": 3}, False),
        (NATIVE_WITHOUT, {"other/_timer_state/event_user-timers": 7}, False),
        (NATIVE_WITHOUT, None, False),
        ("rounds-legacy-ttl-checkpoint-2.3-rocksdb", {TIMER_STATE: 7}, False),
    ],
    ids=["had timers", "had none", "another operator had some", "no run before", "a checkpoint has them"],
)
def test_timers_that_were_there_before_must_not_be_missing(
    name: str, before: dict[str, int] | None, is_red: bool, tmp_path: Path
) -> None:
    of = {"operators": [{"operator": "main", "states": [{"legacy": "a", "new": "b"}]}], "no_timers": True}
    values: dict[str, object] = {"job": "orders", "source": "/in", "target": "/out", "home": str(tmp_path), **of}
    if before is not None:
        for number, found in enumerate((before, {TIMER_STATE: 99})):
            made = Run.create(plan_of({**values, "run_id": f"run-{number}"}), number)
            made.enter(RunState.RUNNING, number)
            made.enter(*((RunState.VERIFIED, number) if number == 0 else (RunState.FAILED, number, "red")))
            made.keep(SnapshotFacts(states={state: StateSize(count, 1) for state, count in found.items()}))
    now = plan_of({**values, "run_id": "now"})
    source = opened(SAVEPOINTS / name)
    if not is_red:
        check_timers(now, source)
        return
    with pytest.raises(LostTimersError, match=r"operator main has no state of timers.*run run-0 .* found 7 timers"):
        check_timers(now, source)
    check_timers(now.model_copy(update={"now_from": "backfill"}), source)
