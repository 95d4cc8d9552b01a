"""Runs that drop what has expired in states that they don't migrate, against what Flink's generator wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flinkstate.reading.reader import Savepoint
from flinkstate.ttl import StateTtlConfig
from flinkstate.writing.operator_rewrite import Copy, Layout
from stateferry.basics.durations import now_ms
from stateferry.changes.drop_expired import DropExpired
from stateferry.changes.rules import PlannedTtl
from stateferry.cli import main
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.proof.checks import validate
from stateferry.proof.expected.check_result import Outcome
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.report.report import Report
from tests.support.changes import conversion_of
from tests.support.legacy_states import LegacyState
from tests.support.rewriting import rewrite

pytestmark = pytest.mark.usefixtures("home")

DAY = 86_400_000
GOLDEN = Path(__file__).parents[1] / "savepoints"
NOW, TTL = 1_703_000_000_000, 20 * DAY
KINDS = GOLDEN / "kinds-ttl-1.20-hashmap"
LISTS = GOLDEN / "lists-ttl-2.3-rocksdb"
DROPPED, KEPT = ("map-state", "list-state", "aggregating-state"), "reducing-state"
STATES = ("--operator", "kinds", "--legacy-state", "value-state", "--new-state", "new", "--ttl", "20d")
DEMO = ("--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState", "--ttl", "30d")

Lines = dict[str, list[str]]


def ferry(source: Path, target: Path, *options: object) -> int:
    return main(["run", "--savepoint", str(source), "--target", str(target), *map(str, options)])


def lives(stamp: int) -> bool:
    return stamp + TTL > NOW


def living(line: dict[str, Any]) -> dict[str, Any] | None:
    """What must remain of a line."""
    stamps = line["timestamp"]
    if not isinstance(stamps, list):
        return line if lives(stamps) else None
    kept = [(value, stamp) for value, stamp in zip(line["value"], stamps, strict=True) if lives(stamp)]
    return {**line, "value": [one for one, _ in kept], "timestamp": [stamp for _, stamp in kept]} if kept else None


def by_state(lines: list[dict[str, Any]], *, key_groups: bool) -> Lines:
    found: Lines = {}
    for line in lines:
        left = {"operator"} if key_groups else {"operator", "key_group"}
        plain = {name: value for name, value in line.items() if name not in left}
        found.setdefault(line["state"], []).append(json.dumps(plain, sort_keys=True))
    return {state: sorted(texts) for state, texts in found.items()}


def written(source: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (source / "expected.jsonl").read_text("utf-8").splitlines()]


def dumped(
    savepoint: Path, operator: str, states: set[str], capsys: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    lines = []
    capsys.readouterr()
    for state in states:
        assert main(["dump", str(savepoint), "--operator", operator, "--state", state]) == 0
        lines += [{"state": state, **json.loads(line)} for line in capsys.readouterr().out.split("\n")[:-1]]
    return lines


TOLD = [part for name in DROPPED for part in ("--state-ttl", f"kinds/{name}=20d:drop")]
GIVEN = ("--now", NOW, "--clock-tolerance", "106751991000d")

FORTH = ("--keep-expired", "--nulls", "drop")


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--max-parallelism", "300", "--parallelism", "2")], ids=["same", "max-300"])
def test_a_lazy_run_and_the_way_back_drop_what_has_expired_in_other_states(
    more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lazy = ("--flag-state", "moved", "--lazy", "--share", "40%", *FORTH)
    assert ferry(KINDS, tmp_path / "lazy", *STATES, *GIVEN, *lazy, *TOLD, *more) == 0
    # The blobs of a part of the keys are rows now, those of the others are as they were.
    parts = dumped(tmp_path / "lazy", "kinds", {"value-state", "new", "moved"}, capsys)
    assert {line["state"] for line in parts} == {"value-state", "new", "moved"}
    assert ferry(KINDS, tmp_path / "whole", *STATES, *GIVEN, *FORTH) == 0
    back = ("--accept-expired", "100%", "--reverse")
    assert ferry(tmp_path / "whole", tmp_path / "back", *STATES, *GIVEN, *back, *TOLD, *more) == 0
    lines = [line for line in written(KINDS) if line["state"] != "value-state"]
    wanted = [line if line["state"] not in DROPPED else living(line) for line in lines]
    expected = by_state([line for line in wanted if line is not None], key_groups=not more)
    for result in ("lazy", "back"):
        assert by_state(dumped(tmp_path / result, "kinds", set(expected), capsys), key_groups=not more) == expected


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--max-parallelism", "300", "--parallelism", "2")], ids=["same", "max-300"])
def test_every_living_entry_stays_and_nothing_else(
    more: tuple[str, ...], tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [part for name in DROPPED for part in ("--state-ttl", f"kinds/{name}=20d:drop")]
    told += ["--state-ttl", f"kinds/{KEPT}=20d"]
    given = ("--now", NOW, "--clock-tolerance", "106751991000d", "--keep-expired", "--nulls", "drop")
    assert ferry(KINDS, tmp_path / "new", *STATES, *given, *told, *more) == 0
    lines = [line for line in written(KINDS) if line["state"] != "value-state"]
    wanted = [line if line["state"] not in DROPPED else living(line) for line in lines]
    expected = by_state([line for line in wanted if line is not None], key_groups=not more)
    # Some have expired, some lists in part and some as a whole, and timers stay.
    assert len(expected["list-state"]) < len([line for line in lines if line["state"] == "list-state"])
    found = by_state(dumped(tmp_path / "new", "kinds", set(expected), capsys), key_groups=not more)
    assert found == expected
    (run,) = (Run.open(one.folder) for one in runs_of(str(home)))
    report = Report.read(run.report)
    checks = {check.name: check for check in report.checks}
    for name in DROPPED:
        assert checks[f"{Savepoint.open(str(KINDS)).operator('kinds').label}/{name}: living entries"].outcome.value
    assert report.is_green
    counted = report.facts["migrate"]["counts"]["list-state"]
    stamps = [stamp for line in lines if line["state"] == "list-state" for stamp in line["timestamp"]]
    assert counted["rows read"] == len(stamps)
    assert counted["rows expired"] == sum(not lives(stamp) for stamp in stamps)
    ages = {one["state"]: one for one in report.facts["snapshot"]["ages"]["states"]}
    assert ages["list-state"]["counted"] == len(stamps)
    # What is only counted stays, and says so.
    assert (ages[KEPT]["kept"], ages["list-state"]["kept"]) == (True, False)
    assert ages[KEPT]["expired"] > 0
    assert ages["list-state"]["expired"] == counted["rows expired"]


def told_of(savepoint: Savepoint, ttl: int = TTL) -> tuple[bytes, tuple[PlannedTtl, ...]]:
    (operator,) = savepoint.keyed_operators()
    states = [state for state in savepoint.keyed_states(operator) if state.ttl]
    return operator.id, tuple(PlannedTtl(state, StateTtlConfig(ttl), NOW, drops=True) for state in states)


@pytest.mark.parametrize("source", [KINDS, LISTS], ids=["kinds", "lists"])
def test_the_validation_finds_an_entry_too_many_and_one_too_few(source: Path, tmp_path: Path) -> None:
    opened = Savepoint.open(str(source))
    id_, told = told_of(opened)
    _, others = told_of(opened, TTL + 2 * DAY)

    def failed(name: str, dropped: tuple[PlannedTtl, ...]) -> set[str]:
        transforms = {id_: DropExpired(Copy(), dropped)} if dropped else {}
        rewrite(opened, str(tmp_path / name), Layout(), transforms=transforms)
        staged = Savepoint.open(str(tmp_path / name))
        checks = validate(opened, staged, conversion_of(opened, ttls={id_: told}))
        return {check.name.split(": ")[-1] for check in checks if check.outcome is Outcome.FAILED}

    assert failed("right", told) == set()
    everything = {"living entries", "content", "no expired row", "sample read plainly"}
    assert failed("nothing dropped", ()) == everything
    assert failed("too few dropped", others) == everything
    _, more = told_of(opened, TTL - 2 * DAY)
    assert failed("too many dropped", more) == everything - {"no expired row"}


@pytest.mark.slow
def test_a_wrong_time_to_live_stops_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The job has moved half of the 500 keys in the last three days.
    write_demo_savepoint(str(tmp_path / "source"), DemoState(500, 3, 0.5, 30 * DAY, now_ms(), 2, 128, 1))
    given = (*DEMO, "--no-flag-state", "--accept-expired", "90%")
    assert ferry(tmp_path / "source", tmp_path / "new", *DEMO, "--no-flag-state", "--state-ttl",
                 "main/isMigratedState=12h:drop") == 1  # fmt: skip
    error = capsys.readouterr().err
    assert "state isMigratedState of operator main" in error
    assert "would expire under a time to live of 12h" in error
    assert "(--state-ttl)" in error
    assert not (tmp_path / "new").exists()
    promise = "main/isMigratedState=1d:keep:cleanupFullSnapshot"
    assert ferry(tmp_path / "source", tmp_path / "new", *given, "--state-ttl", promise) == 1
    assert "is said to be cleaned up in full snapshots (cleanupFullSnapshot), but it has an entry" in (
        capsys.readouterr().err
    )
    kept = "main/isMigratedState=12h;main/isMigratedState=13h"
    assert ferry(tmp_path / "source", tmp_path / "new", *given, "--state-ttl", kept) == 2


def ended_at_30_days() -> LegacyState:
    """Maps of a job with a time to live of 30 days, a twentieth of them rows by now."""
    stamps = {f"k{number}": NOW - 30 * DAY * number // 600 for number in range(600)}
    blobs = {key: ({"a": 1}, stamp) for key, stamp in stamps.items()}
    rows = {f"moved {key}": {"a": (1, stamp)} for key, stamp in list(stamps.items())[::20]}
    return LegacyState(blobs, rows, dict.fromkeys(rows, NOW), ttl=True)


FULL = (*DEMO[:6], "--flag-state", "isMigratedState", "--now", NOW)


@pytest.mark.slow
def test_a_time_to_live_that_the_ages_contradict_is_a_note(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended_at_30_days().write(str(tmp_path / "source"))
    assert ferry(tmp_path / "source", tmp_path / "new", *FULL, "--ttl", "25d") == 0
    note = "note: 100 entries of mainState of main (16.6 %) expire under --ttl 25d, but the ages end all at once at 29"
    assert note in capsys.readouterr().out
    (run,) = (Run.open(one.folder) for one in runs_of(str(home)))
    (said,) = [note for note in Report.read(run.report).notes if "mainState of main" in note]
    assert "which suggests a time to live of 30d (or that the job has run for no longer): if that is the job's" in said
    for ttl in ("30d", "40d"):
        assert ferry(tmp_path / "source", tmp_path / ttl, *FULL, "--ttl", ttl, "--job", ttl) == 0
        assert "the ages end" not in capsys.readouterr().out


@pytest.mark.slow
def test_under_visible_expiry_a_migrated_state_loses_nothing_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended_at_30_days().write(str(tmp_path / "source"))
    visible = "main/mainState=25d:ReturnExpiredIfNotCleanedUp"
    given = (*FULL, "--ttl", "25d")
    assert ferry(tmp_path / "source", tmp_path / "all", *given, "--state-ttl", visible) == 0
    assert "expired (16.6 %) under a time to live of 25d, kept all the same" in capsys.readouterr().out
    everything = dumped(tmp_path / "all", "main", {"newMainState"}, capsys)
    assert len(everything) == 630
    dropping = (*given, "--job", "drops", "--state-ttl", f"{visible}:drop-visible")
    assert ferry(tmp_path / "source", tmp_path / "some", *dropping) == 0
    said = capsys.readouterr().out
    assert (
        "note: 100 expired entries of mainState of main go, which the job could still have read (drop-visible)" in said
    )
    assert "note: 5 expired entries of newMainState of main go, which the job could still" in said
    assert len(dumped(tmp_path / "some", "main", {"newMainState"}, capsys)) == 525
    cleaned = (*given, "--job", "cleaned", "--state-ttl", "main/mainState=25d:drop:cleanupFullSnapshot")
    assert ferry(tmp_path / "source", tmp_path / "cleaned", *cleaned) == 1
    assert "is said to be cleaned up in full snapshots (cleanupFullSnapshot), but it has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ttl", "words"),
    [
        (True, "mainState of main has a time to live, isMigratedState has none: a flag stays when all rows of its key"),
        (
            False,
            "isMigratedState of main has a time to live, mainState has none: in the job a flag that has expired no",
        ),
    ],
)
def test_a_flag_that_ages_otherwise_than_its_map_is_a_note(
    ttl: bool, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = LegacyState({"a": ({"x": 1}, NOW)}, {"b": {"x": (1, NOW)}}, {"b": NOW}, ttl=ttl, flag_ttl=not ttl)
    state.write(str(tmp_path / "source"))
    given = (*FULL, *(("--ttl", "30d") if ttl else ()))
    assert ferry(tmp_path / "source", tmp_path / "new", *given) == 0
    assert f"note: {words}" in capsys.readouterr().out
