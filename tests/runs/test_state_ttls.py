"""Times to live of states that a plan doesn't migrate: as people write them, and held against the savepoint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import PlanError, UsageError
from flinkstate.ttl import StateTtlConfig, StateVisibility, UpdateType
from stateferry.changes.rules import Rules
from stateferry.runs.checks.plan_check import open_source, resolve
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_json import plan_of, plan_of_json
from stateferry.runs.plan.state_ttls import StateTtlPlan, state_ttls_of

DAY = 86_400_000
GOLDEN = Path(__file__).parents[1] / "savepoints"
STATE = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState", "ttl_ms": "30d"}


def plan(tmp_path: Path, *state_ttls: object, source: str = "legacy-ttl-2.3-rocksdb", **more: Any) -> MigrationPlan:
    places = {"source": str(GOLDEN / source), "target": str(tmp_path / "new"), "home": str(tmp_path / "home")}
    operators = [{"operator": "main", "states": [STATE]}]
    return plan_of({"job": "job", **places, "operators": operators, "state_ttls": list(state_ttls), **more})


def resolved(tmp_path: Path, *state_ttls: object, **more: Any) -> ResolvedPlan:
    made = plan(tmp_path, *state_ttls, **more)
    return resolve(made, open_source(made))


def test_text_and_json_say_the_same() -> None:
    (one,) = state_ttls_of(["Source: a/b/state = 30d : drop-visible:OnReadAndWrite:returnexpiredifnotcleanedup"])
    assert one == StateTtlPlan(
        operator="Source: a/b",
        state="state",
        ttl_ms=30 * DAY,
        expired="drop-visible",
        update="OnReadAndWrite",
        visibility="ReturnExpiredIfNotCleanedUp",
    )
    assert one.drops
    assert one.config == StateTtlConfig(
        30 * DAY, UpdateType.ON_READ_AND_WRITE, StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
    )
    two = state_ttls_of(["a/b=1h:cleanupFullSnapshot\n c/d=2h; e/f=3h:keep\n"])
    assert [(one.operator, one.state, one.ttl_ms, one.cleanup_full_snapshot) for one in two] == [
        ("a", "b", 3_600_000, True),
        ("c", "d", 7_200_000, False),
        ("e", "f", 10_800_000, False),
    ]
    assert not any(one.drops for one in two)


def test_a_plan_keeps_them_and_without_them_it_is_another(tmp_path: Path) -> None:
    told = plan(tmp_path, "main/x=30d:drop", {"operator": "main", "state": "y", "ttl_ms": "1h"})
    again = plan_of_json(told.to_json())
    assert again.state_ttls == told.state_ttls
    assert again.fingerprint == told.fingerprint
    assert plan(tmp_path).fingerprint != told.fingerprint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("main=30d", "expected OPERATOR/STATE=DURATION"),
        ("main/x", "expected OPERATOR/STATE=DURATION"),
        ("/x=30d", "expected OPERATOR/STATE=DURATION"),
        ("main/x=", "expected a duration"),
        ("main/x=0", "expected a time to live above 0"),
        ("main/x=30d:gone", "expected keep, drop, "),
        ("main/x=30d:drop:keep", "expected one word about what becomes of expired entries"),
        ("main/x=30d:drop:ReturnExpiredIfNotCleanedUp", "say drop-visible if that is meant, or keep"),
        ("main/x=30d:drop-visible", "say ReturnExpiredIfNotCleanedUp as well, or drop"),
        ("main/x=Disabled", "under UpdateType.Disabled x has no time to live"),
        ("main/x=30d:disabled", "under UpdateType.Disabled x has no time to live"),
        ("main/x=30d;main/x=31d", "state_ttls: main/x is there more than once"),
    ],
)
def test_nonsense_is_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=re.escape(words)):
        plan(tmp_path, text)


def test_an_unknown_field_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="did you mean ttl_ms"):
        plan(tmp_path, {"operator": "main", "state": "x", "ttl_ms": 1, "ttl_m": 3})


@pytest.mark.parametrize(
    ("told", "source", "words"),
    [
        (
            "main/mainState=3d",
            "legacy-ttl-2.3-rocksdb",
            "state mainState of operator main has a time to live of 30d (--ttl) and one of 3d (--state-ttl): give the",
        ),
        (
            "main/newMainState=30d;main/mainState=30d:drop",
            "legacy-ttl-2.3-rocksdb",
            "--state-ttl tells mainState and newMainState of operator main, which this run makes one state: tell one",
        ),
        ("main/isMigratedState=3d", "legacy-ttl-2.3-rocksdb", "is a flag state of this run"),
        ("main/nope=3d", "legacy-ttl-2.3-rocksdb", "operator main has no keyed state 'nope'. There are: mainState"),
    ],
)
def test_what_the_savepoint_contradicts_is_refused_by_name(told: str, source: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=re.escape(words)):
        resolved(tmp_path, told, source=source)


def rules_of(tmp_path: Path, *state_ttls: object, **more: Any) -> Rules:
    ((rules,),) = (one.rules for one in resolved(tmp_path, *state_ttls, **more).operators)
    return rules


@pytest.mark.parametrize("state", ["mainState", "newMainState"])
def test_a_migrated_state_is_told_like_any_other(state: str, tmp_path: Path) -> None:
    assert (rules_of(tmp_path).drops_expired, rules_of(tmp_path).planned_ttl) == (True, None)
    # Without a word about expired entries they stay.
    visible = rules_of(tmp_path, f"main/{state}=30d:ReturnExpiredIfNotCleanedUp:OnReadAndWrite")
    assert visible.drops_expired is False
    assert visible.planned_ttl == StateTtlConfig(
        30 * DAY, UpdateType.ON_READ_AND_WRITE, StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
    )
    dropped = f"main/{state}=30d:ReturnExpiredIfNotCleanedUp:drop-visible"
    assert rules_of(tmp_path, dropped).drops_expired is True
    assert rules_of(tmp_path, f"main/{state}=30d", keep_expired=True).drops_expired is False
    with pytest.raises(PlanError, match="--keep-expired keeps what has expired, and its --state-ttl drops it"):
        resolved(tmp_path, f"main/{state}=30d:drop", keep_expired=True)


def test_in_reverse_expired_rows_go_or_the_run_is_refused(tmp_path: Path) -> None:
    state = {"legacy": "old", "new": "newMainState", "ttl_ms": "30d"}
    back: dict[str, Any] = {"reverse": True, "operators": [{"operator": "main", "states": [state]}]}
    with pytest.raises(PlanError, match="would live again: say drop or drop-visible"):
        resolved(tmp_path, "main/newMainState=30d:ReturnExpiredIfNotCleanedUp", **back)
    assert rules_of(tmp_path, "main/newMainState=30d:drop", **back).drops_expired is True


def test_a_migrated_state_without_time_to_live_is_told_none(tmp_path: Path) -> None:
    operators = [{"operator": "main", "states": [{**STATE, "ttl_ms": None}]}]
    with pytest.raises(PlanError, match=r"state mainState of operator main has no TTL .* --state-ttl tells one of 3d"):
        resolved(tmp_path, "main/mainState=3d", source="legacy-2.3-rocksdb", operators=operators)


def test_an_unknown_operator_and_a_state_without_time_to_live_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no operator has the id, uid or name 'nope'"):
        resolved(tmp_path, "nope/mainState=3d")
    without = {"legacy": "value-state", "new": "new"}
    operators = [{"operator": "kinds", "states": [without]}]
    with pytest.raises(PlanError, match=r"state map-state of operator .* has no TTL"):
        resolved(tmp_path, "kinds/map-state=3d", source="kinds-2.3-rocksdb", operators=operators)


def test_dropping_is_work_to_do_and_counting_is_none(tmp_path: Path) -> None:
    # As after a cut-over: the new state is there alone.
    done = {"legacy": "gone", "new": "map-state"}
    of = {"source": "kinds-ttl-1.20-hashmap", "operators": [{"operator": "kinds", "states": [done]}]}
    assert resolved(tmp_path, "kinds/list-state=3d", **of).nothing_to_do
    assert not resolved(tmp_path, "kinds/map-state=3d:drop", **of).nothing_to_do
