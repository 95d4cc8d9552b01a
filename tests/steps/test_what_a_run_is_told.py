"""What a person tells a run of time to live, order and types is held against the savepoint, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint
from stateferry.cli import main
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

pytestmark = pytest.mark.usefixtures("home")

DAY = 86_400_000
NOW = 100 * DAY
OLD, YOUNG = NOW - 40 * DAY, NOW - DAY


def ran(state: LegacyState, folder: Path, *options: object) -> int:
    """The exit code of a run that gives its result the name `out`."""
    savepoint = folder / "in"
    if not savepoint.exists():
        state.write(str(savepoint))
    states = ("--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--job", "orders")
    command = ["run", "--savepoint", savepoint, "--target", folder / "out", *states, *options]
    return main([str(part) for part in command])


def rows(folder: Path) -> dict[tuple[object, object], object]:
    """What the new state has, as a job sees it under a time to live of 30 days."""
    savepoint = Savepoint.open(str(folder / "out"))
    operator = savepoint.operator("main")
    (state,) = (one for one in savepoint.keyed_states(operator) if one.name == NEW)
    found = read_entries(savepoint, operator, state)
    return {(one.key, one.user_key): one.value for one in found if one.timestamp == YOUNG}


# Each has a living entry that a job with NeverReturnExpired sees, and something expired that would win over it.
HIDDEN = {
    "an expired row": LegacyState({"c": ({"x": 5, "y": 6}, YOUNG)}, {"c": {"x": (7, OLD)}}, ttl=True),
    "an expired flag": LegacyState({"c": ({"x": 5, "y": 6}, YOUNG)}, flags={"c": OLD}, ttl=True),
}
AGING = ("--flag-state", FLAG, "--ttl", "30d", "--now", NOW, "--accept-expired", "100%", "--accept-empty", "100%")


@pytest.mark.parametrize("told", [("--keep-expired",), ("--state-ttl", f"main/{LEGACY}=30d")], ids=" ".join)
@pytest.mark.parametrize("name", HIDDEN)
def test_nothing_that_a_job_does_not_see_wins_over_what_it_sees(
    name: str, told: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rule in ((), ("--on-contradiction", "rows")):
        assert ran(HIDDEN[name], tmp_path, *AGING, *told, *rule) == 1
        assert "would give way to rows or flags that have expired and stay" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    drop = () if told == ("--keep-expired",) else ("--state-ttl", f"main/{LEGACY}=30d:drop")
    assert ran(HIDDEN[name], tmp_path, *AGING, *drop) == 0
    assert rows(tmp_path) == {("c", "x"): 5, ("c", "y"): 6}


def test_what_a_job_still_sees_counts(tmp_path: Path) -> None:
    told = ("--state-ttl", f"main/{LEGACY}=30d:ReturnExpiredIfNotCleanedUp")
    assert ran(HIDDEN["an expired row"], tmp_path, *AGING, *told) == 0
    # The row, which has expired, has won over x.
    assert rows(tmp_path) == {("c", "y"): 6}


def test_expired_entries_that_win_over_nothing_are_kept(tmp_path: Path) -> None:
    state = LegacyState(
        {"b": ({"x": 1}, OLD), "c": ({"x": 5}, YOUNG)}, {"b": {"x": (2, OLD)}, "c": {"y": (3, OLD)}}, ttl=True
    )
    assert ran(state, tmp_path, *AGING, "--keep-expired") == 0
    assert rows(tmp_path) == {("c", "x"): 5}


def test_a_living_row_counts_beside_an_expired_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its flag the blob would replace all rows of the key."""
    state = LegacyState({"c": ({"x": 5}, YOUNG)}, {"c": {"x": (7, YOUNG)}}, flags={"c": OLD}, ttl=True)
    assert ran(state, tmp_path, *AGING, "--keep-expired", "--on-contradiction", "blob") == 1
    assert "2 living entries" not in capsys.readouterr().err
    assert ran(state, tmp_path, *AGING) == 0
    assert rows(tmp_path) == {("c", "x"): 7}


def test_a_time_to_live_by_the_name_of_a_state_that_was_migrated_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = LegacyState(rows={"c": {"x": (7, YOUNG)}}, ttl=True, lacks=frozenset({LEGACY, FLAG}))
    for name in (LEGACY, NEW):
        assert ran(state, tmp_path, "--ttl", "30d", "--now", NOW, "--state-ttl", f"main/{name}=30d") == 0
        assert "already migrated" in capsys.readouterr().out


@pytest.mark.parametrize("option", [("--as", "Map<String, String>"), ("--as", "Map<Integer, Integer>", "--widen")])
def test_a_run_in_reverse_takes_no_type(
    option: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = LegacyState(rows={"c": {"x": (7, 0)}}, lacks=frozenset({LEGACY, FLAG}))
    assert ran(state, tmp_path, "--reverse", *option) == 2
    assert "and reverse: " in capsys.readouterr().err


def test_blobs_that_a_run_in_reverse_drops_are_not_said_to_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = LegacyState({"u": ({"x": 1}, 0)}, {"c": {"x": (7, 0)}}, flags={"c": 0})
    assert ran(state, tmp_path, "--flag-state", FLAG, "--reverse", "--drop-legacy-blobs") == 0
    assert "no blob left over in the source" not in capsys.readouterr().out


def test_a_lazy_upgrade_does_not_go_by_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kryo 5 needs a byte more than Kryo 2 for some texts, so that the savepoint's sizes aren't those that are cut."""
    state = LegacyState({f"k{number}": ({"x" * 40: number}, 0) for number in range(20)}, kryo=2)
    options = ("--flag-state", FLAG, "--lazy", "--share", "30%", "--to", "flink-2")
    assert ran(state, tmp_path, *options, "--largest-first") == 2
    assert "leave --largest-first out" in capsys.readouterr().err


def test_a_lazy_result_is_verified_by_the_run_that_made_it(tmp_path: Path) -> None:
    first = LegacyState({f"k{number}": ({"x": number}, 0) for number in range(40)})
    options = ("--flag-state", FLAG, "--lazy")
    assert ran(first, tmp_path, *options, "--share", "30%") == 0
    later = tmp_path / "later"
    first.with_changes(checkpoint_id=2).write(str(later / "in"))
    states = ("--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--job", "orders", *options)
    rehearsal = ["run", "--savepoint", later / "in", "--target", tmp_path / "out", *states, "--rehearse"]
    assert main([str(part) for part in [*rehearsal, "--share", "60%"]]) == 0
    assert main(["verify", str(tmp_path / "in"), str(tmp_path / "out"), *states, "--share", "30%"]) == 0
