"""Names of states in a plan are held against the keys of every state: a wrong one stops the run, a right one never."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RejectedError
from flinkstate.reading.reader import Savepoint
from stateferry.changes.rules import ContradictionsError
from stateferry.inventory.unnamed_flags import UnnamedFlagError
from stateferry.inventory.wrong_name_signs import MOST_NAMED
from stateferry.runs.checks.plan_check import resolve
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.guards.name_guard import WrongStateError
from stateferry.runs.guards.option_notes import option_notes
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.step_facts import FlaggedKeys, SnapshotFacts
from stateferry.steps import snapshot
from stateferry.steps.workers import InProcess
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

DAY = 86_400_000
NOW = 1_700_000_000_000
OLD, YOUNG = NOW - 31 * DAY, NOW - DAY
OTHER = "otherState"


def keys(name: str, count: int) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


def rows(*names: str, at: int = YOUNG) -> dict[str, dict[str, tuple[object, int]]]:
    return {key: {"a": (1, at), "b": (2, at)} for key in names}


def blobs(*names: str) -> dict[str, tuple[dict[str, object], int]]:
    return {key: ({"a": 7}, YOUNG) for key in names}


def flags(*names: str) -> dict[str, int]:
    return dict.fromkeys(names, YOUNG)


MOVED, COLD = keys("moved", 40), keys("cold", 60)
BEGUN = LegacyState(blobs(*COLD), rows(*MOVED), flags(*MOVED))


def resolved(folder: Path, state: LegacyState, *plans: dict[str, object], **options: object) -> ResolvedPlan:
    state.write(str(folder / "source"))
    states = [{"legacy": LEGACY, "new": NEW, "flag": FLAG, **given} for given in plans or ({},)]
    if state.ttl:
        states = [{**one, "ttl_ms": 30 * DAY} for one in states]
    values: dict[str, Any] = {"source": str(folder / "source"), "target": str(folder / "target"), "job": "orders"}
    operators = [{"operator": "main", "states": states}]
    plan = plan_of({**values, "home": str(folder / "home"), "now": NOW, "operators": operators, **options})
    return resolve(plan, Savepoint.open(plan.source))


def counted(folder: Path, state: LegacyState, *plans: dict[str, object], **options: object) -> SnapshotFacts:
    """What the snapshot step finds if it doesn't stop."""
    of = resolved(folder, state, *plans, **options)
    inventory = snapshot.count(InProcess(), of).inventory
    return snapshot.facts(of, inventory, snapshot.ages(of, inventory), option_notes(of, inventory))


def stopped(folder: Path, state: LegacyState, *plans: dict[str, object], **options: object) -> str:
    with pytest.raises(WrongStateError) as caught:
        counted(folder, state, *plans, **options)
    return str(caught.value)


def of_flags(facts: SnapshotFacts) -> FlaggedKeys:
    assert facts.flags is not None
    (found,) = facts.flags
    return found


def test_what_the_job_has_moved_is_counted_and_named(tmp_path: Path) -> None:
    emptied = keys("emptied", 2)
    state = replace(BEGUN, flags=flags(*MOVED, *emptied), rows=rows(*MOVED, "late"))
    found = of_flags(counted(tmp_path, state))
    assert (found.flagged, found.with_rows, found.without_rows, found.without_flag) == (42, 40, 2, 1)
    assert sorted(found.named_without_rows) == ['"emptied-0"', '"emptied-1"']
    assert found.line.startswith(
        "mainState: 42 keys are flagged by isMigratedState: 40 with rows in newMainState, 2 with none (such as"
    )
    assert found.line.endswith('1 key with rows has neither flag nor blob (such as "late")')
    met = counted(tmp_path / "again", state).met["main/mainState"].to_json()
    assert {name: met[name] for name in ("flagged", "flagged with rows", "flagged without rows")} == {
        "flagged": 42,
        "flagged with rows": 40,
        "flagged without rows": 2,
    }


def test_no_more_keys_are_named_than_people_read(tmp_path: Path) -> None:
    state = replace(BEGUN, flags=flags(*MOVED, *keys("emptied", 30)))
    found = of_flags(counted(tmp_path, state, accept_empty=0.5))
    assert (found.without_rows, len(set(found.named_without_rows))) == (30, MOST_NAMED)


LEGAL: dict[str, tuple[LegacyState, dict[str, object]]] = {
    "the job has begun": (BEGUN, {}),
    "one key alone, whose map was emptied": (LegacyState(blobs(*COLD), flags=flags("emptied")), {}),
    "one of many": (replace(BEGUN, flags=flags(*MOVED, "emptied")), {}),
    "as many as are usual": (replace(BEGUN, flags=flags(*MOVED, *keys("emptied", 2))), {}),
    "not begun": (LegacyState(blobs(*COLD)), {}),
    "not begun, states not declared": (LegacyState(blobs(*COLD), lacks=frozenset({NEW, FLAG})), {}),
    "not begun, under another name": (LegacyState(blobs(*COLD), lacks=frozenset({NEW, FLAG})), {"new": "x"}),
    "no flag in the job": (replace(BEGUN, flags={}, has_flag_state=False), {"flag": None}),
    "the flags have expired": (replace(BEGUN, ttl=True, flags=dict.fromkeys(MOVED, OLD)), {}),
    "the rows have expired": (replace(BEGUN, ttl=True, rows=rows(*MOVED, at=OLD)), {}),
    "a map state of other keys' own": (replace(BEGUN, more_rows={OTHER: rows(*COLD, *MOVED[:10])}), {}),
    "a map state that has nothing": (replace(BEGUN, more_rows={OTHER: {}}), {}),
    "another legacy state": (replace(BEGUN, more_blobs={OTHER: blobs(*COLD, *MOVED)}), {}),
    "not begun, beside a map state that the job fills for other keys": (
        LegacyState(blobs(*COLD), more_rows={OTHER: rows(*MOVED)}),
        {},
    ),
    "another Boolean state": (replace(BEGUN, more_flags={OTHER: flags(*COLD, *MOVED[:20])}), {}),
    "a Boolean state that fits as well": (replace(BEGUN, more_flags={OTHER: flags(*MOVED)}), {}),
    "all moved": (replace(BEGUN, blobs={}), {}),
    "all moved, and a Boolean state of more keys": (
        replace(BEGUN, blobs={}, rows=rows(*MOVED, *COLD), more_flags={OTHER: flags(*MOVED, *COLD)}),
        {},
    ),
    "a Boolean state of all keys": (replace(BEGUN, more_flags={OTHER: flags(*MOVED, *COLD)}), {}),
    "some flags have expired, beside a Boolean state of all moved keys": (
        replace(
            BEGUN,
            ttl=True,
            flags={**flags(*MOVED[:20]), **dict.fromkeys(MOVED[20:], OLD)},
            more_flags={OTHER: flags(*MOVED)},
        ),
        {},
    ),
    "a Boolean state of keys that are new": (
        replace(BEGUN, rows=rows(*MOVED, *keys("new", 80)), more_flags={OTHER: flags(*keys("new", 80))}),
        {},
    ),
    "not begun, a map state of the same keys": (
        LegacyState(blobs(*COLD), more_rows={OTHER: rows(*COLD)}, lacks=frozenset({NEW})),
        {},
    ),
}


@pytest.mark.matrix(most=10)
@pytest.mark.parametrize("case", LEGAL)
def test_what_is_legal_stays_green(case: str, tmp_path: Path) -> None:
    state, given = LEGAL[case]
    counted(tmp_path, state, given)


def test_a_new_state_that_is_not_there_beside_real_flags(tmp_path: Path) -> None:
    said = stopped(tmp_path, BEGUN, {"new": "x"})
    assert '40 keys are flagged as moved by isMigratedState, such as "' in said
    assert """", but x isn't in the savepoint. newMainState, a MapState""" in said
    assert "has rows of 40 of the keys that lack them: did you mean --new-state newMainState?" in said
    assert said.endswith("allow it: --accept-empty 100%")
    counted(tmp_path / "meant", BEGUN, {"new": "x"}, accept_empty=1)


def test_a_single_flagged_key_is_enough_if_the_new_state_is_not_there(tmp_path: Path) -> None:
    state = LegacyState(blobs(*COLD), flags=flags("moved"), rows=rows("moved"), lacks=frozenset())
    assert "1 key is flagged as moved" in stopped(tmp_path, state, {"new": "x"})


def test_a_new_state_with_rows_of_no_flagged_key(tmp_path: Path) -> None:
    state = replace(BEGUN, more_rows={OTHER: rows(*COLD)})
    said = stopped(tmp_path, state, {"new": OTHER})
    assert "40 keys are flagged as moved by isMigratedState, such as " in said
    assert "otherState has rows of none of them. newMainState" in said
    assert "did you mean --new-state newMainState?" in said


@pytest.mark.parametrize(("emptied", "accepted", "stops"), [(3, None, True), (3, 0.05, True), (3, 0.07, False)])
def test_many_flagged_keys_without_rows(emptied: int, accepted: float | None, stops: bool, tmp_path: Path) -> None:
    state = replace(BEGUN, flags=flags(*MOVED, *keys("emptied", emptied)))
    if stops:
        said = stopped(tmp_path, state, accept_empty=accepted)
        assert "newMainState has no rows of 3 of them (6.9 %)" in said
        assert "--accept-empty 7%" in said
    else:
        counted(tmp_path, state, accept_empty=accepted)


def test_rows_of_a_few_flagged_keys_in_another_map_state(tmp_path: Path) -> None:
    """The new state was renamed in the midst of the migration, or names of two states that both follow the flag."""
    state = replace(BEGUN, rows=rows(*MOVED[:-1]), more_rows={OTHER: rows(MOVED[-1])})
    said = stopped(tmp_path, state)
    assert "newMainState has no rows of 1 of them" in said
    assert "otherState, a MapState of the same types, has rows of 1 of the keys" in said
    counted(tmp_path / "meant", state, accept_empty=0.05)


def test_a_map_state_that_has_rows_of_all_keys_in_the_place_of_the_new_one(tmp_path: Path) -> None:
    state = replace(BEGUN, more_rows={OTHER: rows(*COLD, *MOVED)})
    said = stopped(tmp_path, state, {"new": OTHER})
    assert "newMainState, a MapState of the same types, looks like the state to which the job moves its maps" in said
    assert "it has rows of 40 keys, 40 of them" in said
    assert "otherState has rows of 100 keys, 40 of them" in said


@pytest.mark.parametrize("given", [{"flag": None}, {"flag": None, "no_flag": True}, {"flag": "unknown"}])
def test_a_wrong_new_state_without_a_named_flag(given: dict[str, object], tmp_path: Path) -> None:
    said = stopped(tmp_path, BEGUN, {"new": "x", **given})
    assert "newMainState, a MapState of the same types, looks like the state to which the job moves its maps" in said
    assert "x isn't in the savepoint. Did you mean --new-state newMainState?" in said
    counted(tmp_path / "meant", BEGUN, {"new": "x", **given}, accept_empty=1)


def test_a_state_that_the_job_declares_and_has_not_filled_yet(tmp_path: Path) -> None:
    said = stopped(tmp_path, LegacyState(blobs(*COLD)), {"new": "x"})
    assert "looks like the state to which the job moves its maps: it has no rows yet. x isn't in the savepoint" in said


@pytest.mark.parametrize("given", [{}, {"flag": None}, {"flag": None, "no_flag": True}])
def test_a_map_state_of_other_use_before_the_job_has_begun(given: dict[str, object], tmp_path: Path) -> None:
    """The maps would be merged with what the job keeps there."""
    state = LegacyState(blobs(*COLD), more_rows={OTHER: rows(*COLD[:30])})
    counted(tmp_path / "right", state, given)
    said = stopped(tmp_path, state, {**given, "new": OTHER})
    assert "looks like the state to which the job moves its maps: it has no rows yet" in said
    assert "otherState has rows of 30 keys, 0 of them with a flag or without a blob" in said
    assert "Did you mean --new-state newMainState?" in said
    counted(tmp_path / "meant", state, {**given, "new": OTHER}, accept_empty=1)


@pytest.mark.parametrize("kryo", [None, 2, 5])
def test_a_wrong_legacy_state(kryo: int | None, tmp_path: Path) -> None:
    state = replace(BEGUN, kryo=kryo, more_blobs={OTHER: blobs(*keys("another", 9)), "emptyState": {}})
    said = stopped(tmp_path / "empty", state, {"legacy": "emptyState"})
    assert "mainState, a ValueState of such maps, looks like the state that is migrated: it has 60 blobs, 0" in said
    assert "emptyState has no entry. Did you mean --legacy-state mainState?" in said
    # Its keys were moved, if one believed the plan, and still have their blobs.
    state = replace(BEGUN, kryo=kryo, more_blobs={OTHER: blobs(*MOVED)})
    said = stopped(tmp_path / "full", state, {"legacy": OTHER})
    assert "otherState has 40 blobs, 40 of them of keys with a flag or rows. Did you mean --legacy-state" in said


def test_a_flag_that_is_set_for_no_moved_key_beside_one_that_is(tmp_path: Path) -> None:
    state = replace(BEGUN, more_flags={"emptyFlag": {}})
    with pytest.raises(UnnamedFlagError, match="emptyFlag is set for no key with rows in newMainState, but the job"):
        counted(tmp_path, state, {"flag": "emptyFlag"})


def test_a_flag_that_is_set_for_fewer_moved_keys_than_another_one(tmp_path: Path) -> None:
    """The job's own flag would be dropped, or blobs that it has left behind would be merged with their rows."""
    state = replace(BEGUN, more_flags={"seen": flags(MOVED[0])})
    counted(tmp_path / "right", state)
    said = stopped(tmp_path / "fewer", state, {"flag": "seen"})
    assert "isMigratedState, a Boolean state, looks like the flag: it is true for 40 keys with rows in " in said
    assert "seen is true for 1 key with rows. Did you mean --flag-state isMigratedState?" in said
    counted(tmp_path / "meant", state, {"flag": "seen"}, accept_empty=1)
    left = keys("left", 5)
    state = replace(
        state,
        blobs=blobs(*COLD, *left),
        rows=rows(*MOVED, *left),
        flags=flags(*MOVED[1:], *left),
    )
    said = stopped(tmp_path / "merged", state, {"flag": "seen"})
    assert "44 keys with rows in newMainState, 5 of them with a blob and without seen, which would be merged" in said
    assert stopped(tmp_path / "lazy", state, {"flag": "seen"}, lazy=True, share=0.5) == said


LEFT_ALL = replace(BEGUN, blobs=blobs(*COLD, *MOVED))


@pytest.mark.parametrize(
    ("flag", "options"),
    [
        (None, {}),
        ("wasMoved", {}),
        ("wasMoved", {"lazy": True, "share": 0.5}),
        (None, {"reverse": True, "drop_legacy_blobs": True}),
        ("wasMoved", {"reverse": True, "drop_legacy_blobs": True}),
    ],
)
def test_a_job_that_never_clears_its_blobs(flag: str | None, options: dict[str, object], tmp_path: Path) -> None:
    """No flag, or a wrong one: what the job has removed since would come back from the blobs."""
    with pytest.raises(UnnamedFlagError, match="40 have a blob \\(40 of them have rows, too\\)"):
        counted(tmp_path, LEFT_ALL, {"flag": flag}, **options)
    # The right name asks about the blobs instead, and --no-flag-state about nothing.
    right = tmp_path / "right"
    if "reverse" not in options:
        with pytest.raises(ContradictionsError):
            counted(right, LEFT_ALL, **options)
    else:
        counted(right, LEFT_ALL, **options)
    if "lazy" not in options:
        counted(tmp_path / "none", LEFT_ALL, {"flag": None, "no_flag": True}, **options)


def test_the_maps_of_most_moved_keys_were_emptied_and_no_blob_was_cleared(tmp_path: Path) -> None:
    """Most keys of the flag look as if they weren't moved. It is true for each with rows and a blob, not for others."""
    state = replace(BEGUN, blobs=blobs(*COLD, *MOVED), rows=rows(*MOVED[:10]))
    with pytest.raises(UnnamedFlagError, match="40 have a blob \\(10 of them have rows, too\\)"):
        counted(tmp_path, state, {"flag": None})


@pytest.mark.parametrize(("seen", "merged"), [(MOVED[:10], 30), ([MOVED[0], *COLD[:3]], 39)])
def test_another_flag_of_a_job_that_never_clears_its_blobs(seen: list[str], merged: int, tmp_path: Path) -> None:
    state = replace(LEFT_ALL, more_flags={"seen": flags(*seen)})
    said = stopped(tmp_path, state, {"flag": "seen"}, on_contradiction="rows", accept_empty=0.9)
    assert f"{merged} of them with a blob and without seen, which would be merged" in said
    counted(tmp_path / "right", state, on_contradiction="rows")


def test_a_flag_of_keys_without_rows_of_a_job_that_never_clears_its_blobs(tmp_path: Path) -> None:
    state = replace(LEFT_ALL, more_flags={"seen": flags(*COLD)})
    with pytest.raises(UnnamedFlagError, match="seen is set for no key with rows"):
        counted(tmp_path, state, {"flag": "seen"}, on_contradiction="rows", accept_empty=1)


def test_another_flag_of_keys_whose_blobs_the_job_has_cleared(tmp_path: Path) -> None:
    """It is true for as many keys that look moved, and the job's own for all whose blobs are left."""
    cleared, left = MOVED[:10], MOVED[10:]
    state = replace(BEGUN, blobs=blobs(*COLD, *left), more_flags={"seen": flags(*cleared)})
    assert "30 of them with a blob and without seen" in stopped(tmp_path, state, {"flag": "seen"})


@pytest.mark.parametrize(
    ("cold", "seen", "late"),
    [(0, None, 0), (12, None, 1), (0, 36, 0), (1, 20, 1), (5, 36, 0), (12, 1, 1), (12, 36, 0)],
)
def test_few_keys_are_left_that_the_job_has_not_moved(cold: int, seen: int | None, late: int, tmp_path: Path) -> None:
    """No flag is named, or one that is true for so many of the 40 moved keys; a key may have got its map later."""
    others = keys("late", late)
    state = replace(BEGUN, blobs=blobs(*COLD[:cold], *MOVED, *others), rows=rows(*MOVED, *others))
    if seen is None:
        with pytest.raises(UnnamedFlagError, match=r"isMigratedState .* is true for 40 keys"):
            counted(tmp_path, state, {"flag": None})
    else:
        state = replace(state, more_flags={"seen": flags(*MOVED[:seen])})
        said = stopped(tmp_path, state, {"flag": "seen"}, on_contradiction="rows")
        assert f"{40 - seen} of them with a blob" in said


def test_the_maps_of_most_moved_keys_were_emptied_and_one_key_got_its_map_later(tmp_path: Path) -> None:
    state = replace(BEGUN, blobs=blobs(*COLD, *MOVED, "late"), rows=rows(*MOVED[:10], "late"))
    with pytest.raises(UnnamedFlagError, match="40 have a blob \\(10 of them have rows, too\\)"):
        counted(tmp_path, state, {"flag": None})


HONEST: dict[str, LegacyState] = {
    "it is true for some of the keys, most of which have rows": LegacyState(
        blobs(*COLD), rows(*COLD[:45]), more_flags={OTHER: flags(*COLD[::10])}
    ),
    "it is true for half of the keys, most of which have rows": LegacyState(
        blobs(*COLD), rows(*COLD[:45]), more_flags={OTHER: flags(*COLD[::2])}
    ),
    "the job has moved nothing": LegacyState(blobs(*COLD), more_flags={OTHER: flags(*COLD[:40])}),
    "the new state is of another use": LegacyState(
        blobs(*COLD), rows(*COLD[:20]), more_flags={OTHER: flags(*COLD[10:50])}
    ),
    "it is true for all keys": LegacyState(blobs(*COLD), rows(*COLD[:20]), more_flags={OTHER: flags(*COLD)}),
    "it is true for all keys but those with rows": LegacyState(
        blobs(*COLD), rows(*COLD[:20]), more_flags={OTHER: flags(*COLD[20:])}
    ),
    "it is true for the few keys with rows by chance": LegacyState(
        blobs(*COLD), rows(*COLD[:3]), more_flags={OTHER: flags(*COLD[:30])}
    ),
    "moved without a flag, true for each second key": LegacyState(
        blobs(*COLD), rows(*MOVED), more_flags={OTHER: flags(*COLD[::2], *MOVED[::2])}
    ),
}


@pytest.mark.parametrize("case", HONEST)
def test_a_boolean_state_of_another_meaning_asks_nothing(case: str, tmp_path: Path) -> None:
    counted(tmp_path, HONEST[case].with_changes(has_flag_state=False), {"flag": None})


def test_the_right_flag_beside_a_boolean_state_of_all_keys(tmp_path: Path) -> None:
    """Some keys have rows and a blob and no flag: the rule for them is the one for keys that aren't moved yet."""
    state = replace(BEGUN, rows=rows(*MOVED, *COLD[:5]), more_flags={"seen": flags(*MOVED, *COLD)})
    assert of_flags(counted(tmp_path / "cleared", state)).flagged == 40
    left = replace(state, blobs=blobs(*MOVED, *COLD))
    counted(tmp_path / "left", left, on_contradiction="rows")


@pytest.mark.parametrize(("state", "number"), [(LEFT_ALL, 40), (BEGUN, 0)])
def test_keys_that_are_merged_are_noted(state: LegacyState, number: int, tmp_path: Path) -> None:
    notes = counted(tmp_path, state.with_changes(has_flag_state=False, flags={}), {"flag": None}).notes
    said = [
        note for note in notes if note.startswith(f"{number} keys of mainState of main have a blob, and rows in new")
    ]
    assert len(said) == (number > 0) == len(notes)


@pytest.mark.parametrize(("empty", "said"), [(40, "; 40 of these maps are empty"), (1, "; 1 of these"), (0, "")])
def test_empty_blobs_of_flagged_keys(empty: int, said: str, tmp_path: Path) -> None:
    """How some jobs clear a map: with the rule for blobs these keys would lose their rows."""
    emptied: dict[str, tuple[dict[str, object], int]] = {key: ({}, YOUNG) for key in MOVED[:empty]}
    state = replace(BEGUN, blobs={**blobs(*COLD, *MOVED), **emptied})
    with pytest.raises(ContradictionsError) as caught:
        counted(tmp_path, state)
    assert said in str(caught.value)
    assert ("empty" in str(caught.value)) == bool(said)
    notes = counted(tmp_path / "blob", state, on_contradiction="blob").notes
    assert [f"{empty} of " in note and "--on-contradiction rows" in note for note in notes] == [True] * bool(said)
    assert not counted(tmp_path / "rows", state, on_contradiction="rows").notes


def two_states() -> tuple[LegacyState, dict[str, object], dict[str, object]]:
    """Two legacy states, whose maps the job has moved of different keys, each with a flag of its own."""
    mine, others = MOVED[:25], MOVED[15:]
    state = LegacyState(
        blobs(*COLD),
        rows(*mine),
        flags(*mine),
        more_blobs={"secondLegacy": blobs(*COLD)},
        more_rows={"secondNew": rows(*others)},
        more_flags={"secondFlag": flags(*others)},
    )
    return state, {}, {"legacy": "secondLegacy", "new": "secondNew", "flag": "secondFlag"}


def test_two_states_of_one_operator_are_green_as_they_are(tmp_path: Path) -> None:
    state, one, other = two_states()
    facts = counted(tmp_path, state, one, other)
    assert [(found.flagged, found.without_rows) for found in facts.flags or ()] == [(25, 0), (25, 0)]


@pytest.mark.parametrize("exchanged", ["new", "flag"])
def test_two_states_that_are_exchanged(exchanged: str, tmp_path: Path) -> None:
    state, one, other = two_states()
    names = {"new": (NEW, "secondNew"), "flag": (FLAG, "secondFlag")}[exchanged]
    with pytest.raises(RejectedError) as caught:
        counted(tmp_path, state, {**one, exchanged: names[1]}, {**other, exchanged: names[0]})
    assert "flagged" in str(caught.value)
    assert isinstance(caught.value, WrongStateError)


def test_two_states_that_are_exchanged_by_few_keys(tmp_path: Path) -> None:
    """Less than the usual share of the keys has rows in one of the two alone."""
    mine, others = MOVED[:-1], MOVED[1:]
    state, one, other = two_states()
    state = replace(
        state,
        rows=rows(*mine),
        flags=flags(*mine),
        more_rows={"secondNew": rows(*others)},
        more_flags={"secondFlag": flags(*others)},
    )
    said = stopped(tmp_path, state, {**one, "new": "secondNew"}, {**other, "new": NEW})
    assert said.startswith("operator main: mainState and secondLegacy seem to be exchanged: of their flagged keys 76 ")
    assert "and 78 the other way round" in said


def test_a_shared_flag_of_two_states(tmp_path: Path) -> None:
    """Keys have maps in one of the two states alone, so many flagged keys have no rows in either new state."""
    state, one, other = two_states()
    state = replace(state, flags=flags(*MOVED), more_flags={})
    shared = {**other, "flag": FLAG}
    facts = counted(tmp_path, state, one, shared)
    assert [(found.without_rows, found.for_another) for found in facts.flags or ()] == [(15, 15), (15, 15)]
    assert "15 with none, 15 of them with rows in another state of this flag" in (facts.flags or ())[0].line
    # A name that has none of them is wrong all the same.
    empty = replace(state, more_rows={**state.more_rows, OTHER: {}})
    assert "otherState has rows of none of them" in stopped(tmp_path / "empty", empty, one, {**shared, "new": OTHER})


@pytest.mark.parametrize("given", [{}, {"new": OTHER}])
def test_in_reverse(given: dict[str, object], tmp_path: Path) -> None:
    state = replace(BEGUN, blobs={}, more_rows={OTHER: rows(*COLD)}, lacks=frozenset({LEGACY}))
    if given:
        assert "otherState has rows of none of them" in stopped(tmp_path, state, given, reverse=True)
    else:
        counted(tmp_path, state, given, reverse=True)


def test_in_reverse_the_old_state_may_still_be_declared(tmp_path: Path) -> None:
    state = replace(BEGUN, blobs={}, flags={}, has_flag_state=False)
    said = stopped(tmp_path, state, {"legacy": "x", "flag": None}, reverse=True)
    assert "mainState, a ValueState of such maps, looks like" in said


def test_in_reverse_a_state_with_the_maps_that_are_not_moved_yet_is_the_old_one(tmp_path: Path) -> None:
    assert "Did you mean --legacy-state mainState?" in stopped(tmp_path, BEGUN, {"legacy": "x"}, reverse=True)
    other = LegacyState(rows=rows(*MOVED), more_blobs={OTHER: blobs(*COLD, MOVED[0])}, lacks=frozenset({LEGACY}))
    counted(tmp_path / "other", other, {"flag": None}, reverse=True)


def test_in_reverse_keys_that_are_left_out_altogether_are_noted(tmp_path: Path) -> None:
    state = replace(BEGUN, blobs=blobs(*COLD, *MOVED[:5]), flags={}, has_flag_state=False)
    facts = counted(tmp_path, state, {"flag": None}, reverse=True, drop_legacy_blobs=True)
    (note,) = facts.notes
    assert note.startswith("60 keys of mainState of main have a blob, and no rows in newMainState: the run leaves out")
    state = replace(state, blobs=blobs(*MOVED[:5]))
    assert not counted(tmp_path / "moved", state, {"flag": None}, reverse=True, drop_legacy_blobs=True).notes


@pytest.mark.parametrize(
    ("state", "options", "said"),
    [
        (
            LegacyState(blobs(*COLD), more_blobs={OTHER: blobs(*MOVED)}, has_flag_state=False),
            {},
            (
                "otherState of main is a ValueState of such maps, too, and stays as it is: this run makes newMainState "
                "of mainState alone"
            ),
        ),
        (
            LegacyState(rows=rows(*COLD), more_rows={OTHER: rows(*COLD)}, has_flag_state=False),
            {"reverse": True},
            (
                "otherState of main is a MapState of such maps, too, and stays as it is: this run makes mainState of "
                "newMainState alone"
            ),
        ),
        (
            LegacyState(
                blobs(*COLD), more_rows={OTHER: rows(*COLD), "more": rows(*COLD)}, lacks=frozenset({NEW, FLAG})
            ),
            {},
            (
                "newMainState isn't in the savepoint, and more and otherState of main have the types that it will "
                "have: if the new job calls its state so, it starts without the maps of mainState"
            ),
        ),
    ],
)
def test_states_that_may_have_been_meant_are_noted(
    state: LegacyState, options: dict[str, object], said: str, tmp_path: Path
) -> None:
    assert counted(tmp_path, state, {"flag": None}, **options).notes == (said,)


def test_a_lazy_run_counts_as_well(tmp_path: Path) -> None:
    assert "x isn't in the savepoint" in stopped(tmp_path, BEGUN, {"new": "x"}, lazy=True, share=0.5)
    assert of_flags(counted(tmp_path / "right", BEGUN, lazy=True, share=0.5)).flagged == 40


@pytest.mark.parametrize("rule", ["blob", "rows"])
def test_flagged_keys_with_a_blob_and_no_rows(rule: str, tmp_path: Path) -> None:
    """With the rule for rows they would get nothing; their blobs count with the other one."""
    state = replace(BEGUN, blobs=blobs(*COLD), flags=flags(*MOVED, *COLD[:20]))
    if rule == "rows":
        assert "no rows of 20 of them" in stopped(tmp_path, state, on_contradiction=rule)
    else:
        assert of_flags(counted(tmp_path, state, on_contradiction=rule)).without_rows == 0


def test_a_share_that_nobody_needed_is_noted(tmp_path: Path) -> None:
    assert any(
        note.startswith("--accept-empty had no effect") for note in counted(tmp_path, BEGUN, accept_empty=1).notes
    )
