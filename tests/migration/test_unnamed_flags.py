"""A flag that the plan doesn't name is found by the keys for which it is true; another Boolean state isn't."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar
from stateferry.changes.counts import StateSigns
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Rules
from stateferry.inventory.inventory import InventoryTask, inventory_tasks, total
from stateferry.inventory.unnamed_flags import UnnamedFlagError, looks_like_flag, unnamed_flag
from stateferry.inventory.wrong_name_signs import possible_flags, rivals_of
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

DAY = 86_400_000
NOW = 1_700_000_000_000


def keys(name: str, count: int) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


def state(
    *,
    moved: int = 0,
    stale: int = 0,
    emptied: int = 0,
    cold: int = 0,
    true_of_cold: int = 0,
    rows_alone: int = 0,
) -> LegacyState:
    """`moved` keys have flag and rows, `stale` ones a blob besides, `emptied` ones a flag alone, `cold` ones a blob."""
    with_rows = [*keys("moved", moved), *keys("stale", stale), *keys("rows", rows_alone)]
    with_blob = [*keys("stale", stale), *keys("cold", cold)]
    true = [*keys("moved", moved), *keys("stale", stale), *keys("emptied", emptied), *keys("cold", true_of_cold)]
    return LegacyState(
        blobs={key: ({"a": 1, "b": 2}, 0) for key in with_blob},
        rows={key: {"a": (3, 0), "c": (4, 0)} for key in with_rows},
        flags=dict.fromkeys(true, 0),
    )


def tasks(savepoint: Savepoint, flag: str | None = None, *, no_flag: bool = False, now: int = 0) -> list[InventoryTask]:
    operator = savepoint.operator("main")
    legacy = savepoint.state(operator, LEGACY)
    rules = Rules(legacy, NEW, flag, 30 * DAY if legacy.ttl else None, now, no_flag=no_flag)
    changes = replace(OperatorChanges.none(savepoint, operator), rules=(rules,))
    return inventory_tasks(savepoint, changes, target_bytes=512)


def asked(savepoint: Savepoint, flag: str | None = None, *, now: int = 0) -> UnnamedFlagError | None:
    taken = tasks(savepoint, flag, now=now)
    signs = total(task.take() for task in taken).signs
    (rules,) = taken[0].changes.rules
    flags = rivals_of(rules, taken[0].changes.states).flags
    return unnamed_flag(rules, "main", {name: counts for (_, _, name), counts in signs.items()}, flags)


def test_the_flag_is_found_and_the_question_has_the_figures(tmp_path: Path) -> None:
    found = asked(state(moved=1200, stale=2, emptied=5, cold=300).write(str(tmp_path / "a")))
    assert found is not None
    said = str(found)
    assert "state mainState of operator main: the plan names no flag state" in said
    assert "isMigratedState (ValueState<Boolean>) is true for 1,207 keys: 1,200 have rows in newMain" in said
    assert "2 have a blob (2 of them have rows, too), 5 have neither" in said
    assert "Plan again with --flag-state isMigratedState if this state marks the moved keys, or with --no-flag" in said


@pytest.mark.parametrize(
    ("made", "asks"),
    [
        (state(moved=1, cold=9), True),
        (state(moved=3, stale=2), True),
        # A blob that is left beside rows is no sign against it: these keys would be merged.
        (state(moved=2, stale=2, cold=5), True),
        (state(stale=40, cold=10), True),
        (state(stale=40, cold=90, true_of_cold=39), True),
        # As many for it as against it.
        (state(moved=2, stale=2, cold=8, true_of_cold=4), False),
        (state(moved=4, cold=8, true_of_cold=4), False),
        # It is true for each key with rows and a blob: of seven of these that isn't chance, of six it may be.
        (state(stale=7, cold=30, true_of_cold=15), True),
        (state(stale=6, cold=30, true_of_cold=15), False),
        (state(stale=40, cold=90, true_of_cold=90), False),
        # Some are true by chance: most of those keys have their blob.
        (state(moved=10, cold=90, true_of_cold=11, rows_alone=30), False),
        # A map that was empty is moved and leaves nothing; whose the rows are is open.
        (state(emptied=4, rows_alone=20, cold=3), False),
        (state(emptied=40, moved=2), True),
        (state(rows_alone=20, cold=3), False),
        (state(cold=9, true_of_cold=9), False),
    ],
)
def test_what_makes_a_flag(tmp_path: Path, made: LegacyState, asks: bool) -> None:
    assert (asked(made.write(str(tmp_path / "a"))) is not None) is asks


ALL = 40
LEGACY_STATE = KeyedState(LEGACY, StateKind.VALUE, Scalar.STRING, Scalar.VOID_NAMESPACE, None, None, False, False)


def looks_so(both: int, alone: int, true_of_both: int, true_of_alone: int, seen: int = 0) -> bool:
    """Of so many keys with a blob and rows, and so many with a blob alone, without those of the named flag `seen`."""
    named = seen > 0
    rules = Rules(LEGACY_STATE, NEW, "seen" if named else None, None, 0)
    signs = {
        "it": StateSigns(0, true_of_both + seen, true_of_alone, seen, true_of_both),
        "seen": StateSigns(seen, seen),
        NEW: StateSigns(both + seen, seen, both, seen),
        LEGACY: StateSigns(both + seen + alone, 0, both + seen),
    }
    return looks_like_flag("it", rules, signs)


@pytest.mark.parametrize("unflagged", [0, 1])
@pytest.mark.parametrize("seen", [0, 1, 20, 28, 36])
@pytest.mark.parametrize("alone", [0, 1, 5, 12, 60, 400])
def test_a_job_that_clears_no_blob_is_asked_about(alone: int, seen: int, unflagged: int) -> None:
    """How many keys aren't moved, how many the named flag marks of those that are, or whether one has no flag."""
    assert looks_so(ALL - seen + unflagged, alone, ALL - seen, 0, seen)


@pytest.mark.parametrize(
    ("both", "alone", "true_of_both", "true_of_alone", "asks"),
    [
        (45, 15, 5, 1, False),
        (45, 15, 23, 7, False),
        (45, 15, 42, 14, False),
        # A job has moved all keys and emptied some maps since, or the state is true for all: the keys are the same.
        (45, 15, 45, 15, True),
        (20, 40, 20, 40, False),
        (7, 30, 7, 15, True),
        (6, 30, 6, 15, False),
        (11, 89, 10, 30, True),
        (11, 89, 9, 30, False),
        (1000, 10_000, 962, 9_600, False),
        (1000, 10_000, 1000, 9_900, True),
        (3_000_000, 10_000_000, 2_850_001, 9_500_000, False),
        (3_000_000, 10_000_000, 2_850_001, 9_000_000, True),
    ],
)
def test_a_state_of_another_meaning_is_told_by_its_share(
    both: int, alone: int, true_of_both: int, true_of_alone: int, asks: bool
) -> None:
    assert looks_so(both, alone, true_of_both, true_of_alone) is asks


def test_only_true_counts(tmp_path: Path) -> None:
    moved = state(moved=20, cold=5)
    reversed_ = moved.with_changes(flags=dict.fromkeys(keys("cold", 5), 0), false_flags=moved.flags)
    assert asked(reversed_.write(str(tmp_path / "a"))) is None


def test_what_has_expired_counts_as_gone(tmp_path: Path) -> None:
    old, young = NOW - 31 * DAY, NOW - DAY
    made = LegacyState(
        blobs={"stale": ({"a": 1}, young), "expired-blob": ({"a": 1}, old), "cold": ({"a": 1}, young)},
        rows={key: {"a": (2, young)} for key in ("stale", "expired-blob", "expired-flag")} | {"x": {"a": (2, old)}},
        flags={"stale": young, "expired-blob": young, "expired-flag": old, "x": young},
        ttl=True,
    )
    savepoint = made.write(str(tmp_path / "a"))
    said = str(asked(savepoint, now=NOW))
    assert "1 have rows in newMainState and no blob in mainState, 1 have a blob (1 of them have rows, too)" in said
    again = made.with_changes(blobs={**made.blobs, "stale": ({"a": 1}, old)}).write(str(tmp_path / "b"))
    said = str(asked(again, now=NOW))
    assert "is true for 3 keys: 2 have rows in newMainState and no blob in mainState, 0 have a blob" in said
    # Nothing has expired yet at this time: the blobs are there.
    assert "2 have a blob (2 of them have rows, too)" in str(asked(again, now=old))


def test_nothing_is_looked_at_where_there_is_nothing_to_ask(tmp_path: Path) -> None:
    savepoint = state(moved=20, cold=5).write(str(tmp_path / "a"))
    watched = [
        rivals_of(task.changes.rules[0], task.changes.states).flags
        for task in (tasks(savepoint, FLAG)[0], tasks(savepoint, no_flag=True)[0], tasks(savepoint)[0])
    ]
    assert watched == [frozenset(), frozenset(), frozenset({FLAG})]
    assert not total(task.take() for task in tasks(savepoint, no_flag=True)).signs


def test_a_flag_by_a_name_that_the_savepoint_lacks(tmp_path: Path) -> None:
    said = str(asked(state(moved=20, cold=5).write(str(tmp_path / "a")), "isMigrated"))
    assert "main: the savepoint has no flag state isMigrated, but the job seems to mark" in said


def test_the_likeliest_flag_comes_first(tmp_path: Path) -> None:
    """It marks more of the moved keys; of two that mark as many, the one that marks fewer others."""
    made = state(moved=40, cold=30)
    moved, cold = keys("moved", 40), keys("cold", 30)
    others = {"a": moved[:9], "b": [*moved, *cold[:3]], "c": moved[:39], "d": moved[:39] + cold[:2]}
    more = {name: dict.fromkeys(of, 0) for name, of in others.items()}
    said = str(asked(made.with_changes(more_flags=more).write(str(tmp_path / "a"))))
    options = ("--flag-state isMigratedState, the likeliest", *(f"--flag-state {name}" for name in "bcda"))
    places = [said.index(option) for option in options]
    assert places == sorted(places)


def test_the_whole_savepoint_decides_not_one_part_of_it(tmp_path: Path) -> None:
    """In some key groups all true keys are moved ones, in the savepoint most aren't."""
    savepoint = state(moved=40, cold=60, true_of_cold=60).write(str(tmp_path / "a"))
    signs = [task.take().signs for task in tasks(savepoint)]
    assert len(signs) >= 3
    assert asked(savepoint) is None


@pytest.mark.part
@pytest.mark.parametrize(
    "golden", sorted((Path(__file__).parents[1] / "savepoints").glob("legacy-*")), ids=lambda it: it.name
)
def test_the_flags_of_flinks_own_savepoints(golden: Path) -> None:
    """By their figures in what the savepoints are known to hold."""
    keys_of: dict[str, set[str]] = {LEGACY: set(), NEW: set(), FLAG: set()}
    for line in (golden / "expected.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["state"] != FLAG or entry["value"]:
            keys_of[entry["state"]].add(json.dumps(entry["key"]))
    flagged, moved = keys_of[FLAG], (keys_of[FLAG] & keys_of[NEW]) - keys_of[LEGACY]
    said = str(asked(Savepoint.open(str(golden))))
    assert f"{FLAG} (ValueState<Boolean>) is true for {len(flagged)} keys: {len(moved)} have rows" in said
    assert f"{len(flagged & keys_of[LEGACY])} have a blob" in said


def test_a_state_of_other_namespaces_is_no_flag(tmp_path: Path) -> None:
    savepoint = state(moved=2).write(str(tmp_path / "a"))
    states = {one.name: one for one in savepoint.keyed_states(savepoint.operator("main"))}
    assert possible_flags(states[LEGACY], states) == {FLAG}
    other = {**states, FLAG: replace(states[FLAG], namespace=Scalar.STRING)}
    assert possible_flags(states[LEGACY], other) == set()
