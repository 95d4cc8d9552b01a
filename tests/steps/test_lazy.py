"""Lazy runs move a part of the keys: what they write for these and for the others, night after night."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import PlanError
from flinkstate.hashing.key_groups import key_group_prefix_bytes
from flinkstate.keyed.keyed_file import WINDOW
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar
from flinkstate.values.codecs import decode
from stateferry.changes.rules import ContradictionsError
from stateferry.cli import main
from stateferry.proof.expected.check_result import Outcome
from stateferry.runs.checks.plan_check import resolve
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import MigrateFacts, RescaleFacts, SnapshotFacts, ValidateFacts
from stateferry.runs.record.steps import Step
from stateferry.steps import validate
from stateferry.steps.workers import InProcess
from tests.support.facts import kept_facts
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState
from tests.support.verified_runs import do_steps, plan_for, verified

pytestmark = pytest.mark.usefixtures("home")

DAY = 86_400_000
NOW = 100 * DAY
TTL = 30 * DAY
KEYS = [f"key-{number}" for number in range(40)]
Content = dict[str, dict[str, dict[bytes, bytes]]]


def blobs(*, ttl: bool = False) -> dict[str, tuple[Mapping[str, object], int]]:
    """A blob for each key, of different sizes; without time to live the timestamps aren't written."""
    return {
        key: ({f"{part}": number for part in range(number % 9)}, NOW - number * DAY // 2)
        for number, key in enumerate(KEYS)
    }


UNTOUCHED = LegacyState(blobs=blobs())
AGING = LegacyState(blobs=blobs(), ttl=True)


def begun(state: LegacyState) -> LegacyState:
    """The job has moved ten keys, two of which have lost their flags; one more has a flag that is false."""
    moved, left = KEYS[:10], KEYS[10:]
    rows = {key: {f"{part}": (100 + part, NOW - DAY) for part in range(3)} for key in moved}
    return replace(
        state,
        blobs={key: state.blobs[key] for key in left},
        # One has a row already, which wins over its blob.
        rows=rows | {left[5]: {"0": (-1, NOW - DAY)}},
        flags=dict.fromkeys(moved[2:], NOW - DAY),
        false_flags={left[0]: NOW - DAY},
    )


def content(savepoint: Path) -> Content:
    """The bytes of all entries of `main`, by state and key; below these by the bytes behind the key."""
    opened = Savepoint.open(str(savepoint))
    operator = opened.operator("main")
    found: Content = {state.name: {} for state in opened.keyed_states(operator)}
    for file in opened.open_files(operator):
        names = [state.name for state in file.header.states]
        for key_group in file.handle.range:
            for section in file.sections(key_group):
                data = section.data.tobytes()
                for start, key_end, end in zip(section.starts, section.key_ends, section.ends, strict=True):
                    at = start + 4 + key_group_prefix_bytes(operator.max_parallelism)
                    key, stop = decode(Scalar.STRING, data[at:key_end], 0)
                    own = found[names[section.state]].setdefault(str(key), {})
                    own[data[at + stop : key_end]] = data[key_end + 4 : end]
    return found


AGING_OPTIONS: dict[str, object] = {"ttl_ms": TTL, "accept_expired": 1.0}
OF_THE_JOB = ("--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--job", "orders", "--now", f"{NOW}")


def lazily(source: Path, target: Path, **options: object) -> Run:
    return verified(source, target, now=NOW, lazy=True, **options)


def run_command(source: Path, target: Path, *options: str) -> int:
    command = ["run", "--savepoint", source, "--target", target, *OF_THE_JOB, "--flag-state", FLAG, *options]
    return main([str(part) for part in command])


def is_alive(state: LegacyState, key: str) -> bool:
    return not state.ttl or state.blobs[key][1] + TTL > NOW


def moved_keys(before: Content, after: Content) -> set[str]:
    return before[LEGACY].keys() - after.get(LEGACY, {}).keys()


def stamp(state: LegacyState, timestamp: int) -> bytes:
    return timestamp.to_bytes(8, "big") if state.ttl else b""


CASES: dict[str, tuple[LegacyState, dict[str, object]]] = {
    "untouched": (UNTOUCHED, {}),
    "begun": (begun(UNTOUCHED), {}),
    "aging": (AGING, AGING_OPTIONS),
    "begun and aging": (begun(AGING), AGING_OPTIONS),
    "without a flag state": (replace(AGING, has_flag_state=False), AGING_OPTIONS),
}


# The flag has time to live and the map has none, or the other way round.
OTHER_FLAGS: dict[str, tuple[LegacyState, dict[str, object]]] = {
    "a flag with time to live": (replace(begun(UNTOUCHED), flag_ttl=True), {}),
    "a flag without time to live": (replace(begun(AGING), flag_ttl=False), AGING_OPTIONS),
}


@pytest.mark.parametrize("case", OTHER_FLAGS)
def test_the_flag_of_a_moved_key_is_stamped_as_the_flag_state_says(case: str, tmp_path: Path) -> None:
    state, options = OTHER_FLAGS[case]
    state.write(str(tmp_path / "source"))
    lazily(tmp_path / "source", tmp_path / "new", share=0.5, **options)
    before, after = content(tmp_path / "source"), content(tmp_path / "new")
    set_now = after[FLAG].keys() & state.blobs.keys() & moved_keys(before, after)
    assert set_now
    for key in set_now:
        (value,) = after[FLAG][key].values()
        assert value == (NOW.to_bytes(8, "big") if state.flag_ttl else b"") + b"\1"


@pytest.mark.matrix
@pytest.mark.parametrize("largest_first", [False, True], ids=["hash", "largest"])
@pytest.mark.parametrize("case", CASES)
def test_a_moved_key_has_rows_and_a_flag_and_another_is_as_it_was(
    case: str, largest_first: bool, tmp_path: Path
) -> None:
    state, options = CASES[case]
    state.write(str(tmp_path / "source"))
    lazily(tmp_path / "source", tmp_path / "new", share=0.5, largest_first=largest_first, **options)
    before, after = content(tmp_path / "source"), content(tmp_path / "new")
    assert after.keys() == {LEGACY, NEW, FLAG}
    gone = moved_keys(before, after)
    expired = {key for key in state.blobs if not is_alive(state, key)}
    moved = gone - expired
    assert expired <= gone
    every = len(state.blobs) - len(expired) + len(before[NEW].keys() - state.blobs.keys())
    assert len(moved) == every // 2
    for key in state.blobs.keys() - moved:
        if key not in expired:
            assert after[LEGACY][key] == before[LEGACY][key]
        assert [after[name].get(key) for name in (NEW, FLAG)] == [before.get(name, {}).get(key) for name in (NEW, FLAG)]
    for key in moved:
        map_, timestamp = state.blobs[key]
        old = before[NEW].get(key, {})
        own = {_user_key(name): b"\0" + stamp(state, timestamp) + _long(value) for name, value in map_.items()}
        assert after[NEW].get(key, {}) == own | old
        assert after[FLAG][key] == {b"\0": stamp(state, timestamp) + b"\1"}
    for key in before[NEW].keys() - state.blobs.keys():
        assert after[NEW][key] == before[NEW][key]
        assert after[FLAG].get(key) == before[FLAG].get(key)
    if largest_first:
        sizes = {key: len(state.blobs[key][0]) for key in state.blobs if is_alive(state, key)}
        assert min(sizes[key] for key in moved) >= max(sizes[key] for key in sizes.keys() - moved)


def _user_key(name: str) -> bytes:
    return b"\0" + bytes([len(name) + 1]) + name.encode()


def _long(value: object) -> bytes:
    return int(str(value)).to_bytes(8, "big", signed=True)


@pytest.mark.parametrize(
    ("case", "nights"), [("begun", 3), pytest.param("without a flag state", 4, marks=pytest.mark.full)]
)
def test_night_after_night_comes_to_the_same_as_one_run(case: str, nights: int, tmp_path: Path) -> None:
    state, options = CASES[case]
    state.write(str(tmp_path / "0"))
    last, left = tmp_path / "0", [len(state.blobs)]
    for night in range(1, nights + 1):
        # A key whose map is empty has a flag and no rows.
        lazily(last, tmp_path / f"{night}", share=0.3, largest_first=night % 2 == 0, accept_empty=0.2, **options)
        last = tmp_path / f"{night}"
        left.append(len(content(last).get(LEGACY, {})))
    assert left == sorted(set(left), reverse=True)
    assert left[-1] == 0
    # When nothing is left, the old state and the flag go.
    assert content(last).keys() == {NEW}
    verified(tmp_path / "0", tmp_path / "at once", now=NOW, **options)
    assert content(last) == content(tmp_path / "at once")


@pytest.mark.parametrize("rule", ["blob", "rows"])
def test_keys_that_contradict_themselves_are_settled_first(rule: str, tmp_path: Path) -> None:
    contradicting = dict.fromkeys(KEYS[:6], 0)
    rows = {key: {"0": (-1, 0), "x": (-2, 0)} for key in contradicting}
    replace(UNTOUCHED, flags=contradicting, rows=rows).write(str(tmp_path / "source"))
    with pytest.raises(ContradictionsError):
        lazily(tmp_path / "source", tmp_path / "stopped", share=0.2)
    lazily(tmp_path / "source", tmp_path / "new", share=0.2, on_contradiction=rule)
    before, after = content(tmp_path / "source"), content(tmp_path / "new")
    assert contradicting.keys() <= moved_keys(before, after)
    assert len(moved_keys(before, after)) == len(contradicting) + 8
    for key in contradicting:
        assert after[FLAG][key] == before[FLAG][key]
        blob = {_user_key(name): b"\0" + _long(value) for name, value in UNTOUCHED.blobs[key][0].items()}
        assert after[NEW].get(key, {}) == (blob if rule == "blob" else before[NEW][key])


@pytest.mark.matrix
@pytest.mark.parametrize("told", ["as-legacy", "with", "without"])
@pytest.mark.parametrize("legacy_ttl", [False, True])
def test_a_flag_state_that_is_missing_is_made_as_the_plan_says(told: str, legacy_ttl: bool, tmp_path: Path) -> None:
    state = replace(AGING if legacy_ttl else UNTOUCHED, has_flag_state=False)
    state.write(str(tmp_path / "source"))
    options = AGING_OPTIONS if legacy_ttl else {}
    lazily(tmp_path / "source", tmp_path / "new", share=0.5, flag_ttl=told, **options)
    opened = Savepoint.open(str(tmp_path / "new"))
    (flag,) = (one for one in opened.keyed_states(opened.operator("main")) if one.name == FLAG)
    stamped = {"with": True, "without": False}.get(told, legacy_ttl)
    assert (flag.ttl, flag.value) == (stamped, Scalar.BOOLEAN)
    flags = content(tmp_path / "new")[FLAG]
    assert flags
    for key, values in flags.items():
        timestamp = state.blobs[key][1] if legacy_ttl else NOW
        assert values == {b"\0": (timestamp.to_bytes(8, "big") if stamped else b"") + b"\1"}


@pytest.mark.matrix
@pytest.mark.parametrize(
    "layout",
    [{"max_parallelism": 300}, {"output_format": "native"}, {"parallelism": 3}],
    ids=lambda one: next(iter(one)),
)
@pytest.mark.parametrize("case", ["begun and aging", "without a flag state", *OTHER_FLAGS])
def test_another_layout_changes_nothing_else(case: str, layout: dict[str, object], tmp_path: Path) -> None:
    state, options = (CASES | OTHER_FLAGS)[case]
    state.write(str(tmp_path / "source"))
    lazily(tmp_path / "source", tmp_path / "new", share=0.5, **options)
    lazily(tmp_path / "source", tmp_path / "other", share=0.5, **layout, **options)
    assert content(tmp_path / "other") == content(tmp_path / "new")


@pytest.mark.slow
def test_one_command_after_another_moves_all_keys_and_the_tables_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    UNTOUCHED.write(str(tmp_path / "0"))
    assert run_command(tmp_path / "0", tmp_path / "1", "--lazy", "--budget", "60s") == 1
    assert "has no earlier run whose rates would tell" in capsys.readouterr().err
    assert run_command(tmp_path / "0", tmp_path / "1", "--lazy", "--share", "30%") == 0
    assert "lazy: mainState: 12 of 40 keys with a blob are moved" in capsys.readouterr().out
    flagged = content(tmp_path / "1")[FLAG]
    assert len(flagged) == 12
    # The state is so small that any budget is enough for it; the least budget moves the least part.
    assert run_command(tmp_path / "1", tmp_path / "2", "--lazy", "--budget", "1ms") == 0
    assert len(flagged) < len(content(tmp_path / "2")[FLAG]) < 40
    page = runs_of(str(tmp_path / "home"), "orders")[0].folder.child("report.html").read().decode()
    drawn = page.split("Keys moved so far")[1].split("</section>")[0]
    assert "12 moved by Stateferry, 0 by the job, 28 left" in drawn
    assert drawn.count("<rect") == 6
    # A run without lazy finishes what lazy runs have begun.
    assert run_command(tmp_path / "2", tmp_path / "3") == 0
    verified(tmp_path / "0", tmp_path / "at once", now=NOW, job="other")
    assert content(tmp_path / "3") == content(tmp_path / "at once")


@pytest.mark.full
@pytest.mark.slow
def test_maps_larger_than_what_is_read_at_once_are_moved_or_left_and_come_back(tmp_path: Path) -> None:
    maps = {key: {f"{part:0120}": part for part in range(80_000)} for key in ("one", "two")}
    assert WINDOW < 80_000 * 120
    small = {f"key-{number}": {"a": number} for number in range(4)}
    UNTOUCHED.with_changes(blobs={key: (map_, 0) for key, map_ in (maps | small).items()}).write(str(tmp_path / "0"))
    lazily(tmp_path / "0", tmp_path / "1", share=0.17, largest_first=True)
    before, after = content(tmp_path / "0"), content(tmp_path / "1")
    (moved,) = moved_keys(before, after)
    (left,) = maps.keys() - {moved}
    assert len(after[NEW][moved]) == len(maps[moved])
    assert after[LEGACY][left] == before[LEGACY][left]
    verified(tmp_path / "1", tmp_path / "2", now=NOW)
    verified(tmp_path / "2", tmp_path / "3", now=NOW, reverse=True)
    assert content(tmp_path / "3")[LEGACY] == before[LEGACY]


def test_a_step_that_is_tried_again_moves_the_same_keys(tmp_path: Path) -> None:
    UNTOUCHED.write(str(tmp_path / "source"))
    run = lazily(tmp_path / "source", tmp_path / "new", share=0.3)
    facts = kept_facts(run, SnapshotFacts)
    assert facts.lazy is not None
    (choice,) = facts.lazy
    assert (choice.left, choice.moved, choice.migrated) == (40, 12, 0)
    before = content(tmp_path / "new")
    shutil.rmtree(tmp_path / "new")
    run.forget(MigrateFacts, RescaleFacts, ValidateFacts)
    do_steps(run, (Step.MIGRATE, Step.RESCALE, Step.VALIDATE))
    assert content(tmp_path / "new") == before


NONSENSE: dict[str, tuple[dict[str, object], str]] = {
    "no share": ({"lazy": True}, "expected a share or a budget, found neither"),
    "both": ({"lazy": True, "share": "1%", "budget_ms": "1s"}, "expected a share or a budget, found both"),
    "a share of nothing": ({"lazy": True, "share": "0"}, "share: expected greater than 0"),
    "too large a share": ({"lazy": True, "share": "101%"}, "at most 100%"),
    "no budget": ({"lazy": True, "budget_ms": "0s"}, "budget_ms: expected greater than or equal to 1"),
    "not lazy": ({"share": "30%"}, "share: only a lazy run"),
    "no order": ({"largest_first": True}, "largest_first: only a lazy run"),
    "no new flag": ({"flag_ttl": "with"}, "flag_ttl: only a lazy run"),
    "keeping all": ({"lazy": True, "share": "1%", "keep_legacy": True}, "lazy and keep_legacy exclude each other"),
    "another flag": ({"lazy": True, "share": "1%", "flag_ttl": "with"}, "is in the savepoint, without TTL"),
    "no flag": ({"lazy": True, "share": "1%", "flag": None}, "has no flag"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    options, said = NONSENSE[case]
    UNTOUCHED.write(str(tmp_path / "source"))
    with pytest.raises(PlanError) as refused:
        resolve(plan_for(tmp_path / "source", tmp_path / "new", **options), Savepoint.open(str(tmp_path / "source")))
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_states_that_share_a_flag_cannot_be_moved_in_part(tmp_path: Path) -> None:
    states = [{"legacy": f"old {number}", "new": f"new {number}", "flag": FLAG} for number in range(2)]
    with pytest.raises(PlanError, match="is of several states"):
        plan_of(
            {
                "source": str(tmp_path / "a"),
                "target": str(tmp_path / "b"),
                "job": "orders",
                "lazy": True,
                "share": 0.3,
                "operators": [{"operator": "main", "states": states}],
            }
        )


@dataclass
class Altered:
    """What an alteration changes in a moved or an unmoved key, and the check that finds it."""

    change: Callable[[LegacyState, str, str], LegacyState]
    check: str


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


# Of the result of a lazy run: `moved` is a key that it has moved, `left` one that it has not.
ALTERATIONS = {
    "a blob is lost": Altered(lambda s, moved, left: replace(s, blobs=_without(s.blobs, left)), "not moved"),
    "a blob is altered": Altered(
        lambda s, moved, left: replace(s, blobs=dict(s.blobs) | {left: ({"0": 7}, 0)}), "not moved"
    ),
    "a blob came back": Altered(
        lambda s, moved, left: replace(s, blobs=dict(s.blobs) | {moved: ({"0": 7}, 0)}), "not moved"
    ),
    "a flag is lost": Altered(lambda s, moved, left: replace(s, flags=_without(s.flags, moved)), "flags"),
    "a flag is false": Altered(
        lambda s, moved, left: replace(s, flags=_without(s.flags, moved), false_flags={moved: 0}), "flags"
    ),
    "a flag too many": Altered(lambda s, moved, left: replace(s, flags=dict(s.flags) | {left: 0}), "flags"),
    "a row is lost": Altered(lambda s, moved, left: replace(s, rows=_without(s.rows, moved)), "rows"),
    "a row too many": Altered(lambda s, moved, left: replace(s, rows=dict(s.rows) | {left: {"0": (7, 0)}}), "rows"),
}


@pytest.mark.matrix(most=3)
@pytest.mark.parametrize("alteration", ["nothing", *ALTERATIONS])
def test_the_validation_finds_what_is_wrong(alteration: str, tmp_path: Path) -> None:
    UNTOUCHED.write(str(tmp_path / "source"))
    run = lazily(tmp_path / "source", tmp_path / "new", share=0.5)
    flagged = content(tmp_path / "new")[FLAG].keys()
    full = {key: map_ for key, (map_, _) in UNTOUCHED.blobs.items()}
    result = replace(
        UNTOUCHED,
        blobs={key: blob for key, blob in UNTOUCHED.blobs.items() if key not in flagged},
        rows={key: {name: (value, 0) for name, value in full[key].items()} for key in flagged},
        flags=dict.fromkeys(flagged, 0),
    )
    moved = next(key for key in KEYS if key in flagged and full[key])
    left = next(key for key in KEYS if key not in flagged and full[key])
    if alteration in ALTERATIONS:
        result = ALTERATIONS[alteration].change(result, moved, left)
    result.write(str(tmp_path / "altered"))
    facts = kept_facts(run, SnapshotFacts)
    resolved = resolve(run.plan, Savepoint.open(run.plan.source)).moving(facts.lazy or ())
    checks = validate.check(InProcess(), resolved, str(tmp_path / "altered"))
    failed = [check for check in checks if check.outcome is Outcome.FAILED]
    if alteration not in ALTERATIONS:
        assert failed == []
    else:
        assert any(check.name.endswith(ALTERATIONS[alteration].check) for check in failed)
        assert any("read plainly" in check.name for check in failed)
        # The wrong key is named.
        assert any(moved in text or left in text for check in failed for text in check.samples)


def test_a_share_counts_a_key_whose_rows_fill_several_sections_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flinkstate.reading.group_sections.WINDOW", 4096)
    rows = {"large": {f"{part:05}": (part, 0) for part in range(1000)}}
    LegacyState({f"key {one}": ({"a": 1}, 0) for one in range(10)}, rows, {"large": 0}).write(str(tmp_path / "old"))
    run = lazily(tmp_path / "old", tmp_path / "target", share=0.5)
    facts = kept_facts(run, SnapshotFacts)
    assert facts.lazy is not None
    assert [(one.migrated, one.left, one.moved) for one in facts.lazy] == [(1, 10, 6)]
