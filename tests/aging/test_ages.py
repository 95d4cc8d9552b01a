"""`stateferry ages` counts what Flink wrote: each value, map entry and list element, with its own timestamp."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.inventory.ages import Ages
from stateferry.look.ages_forecast import Cleanup, forecast
from stateferry.look.histogram import classes
from tests.cli.test_cli import GOLDEN, expected
from tests.support.terminal import Line, Terminal

HOUR, DAY = 3_600_000, 86_400_000
NOW = 1_800_000_000_000
STAMPED = sorted(folder.parent.name for folder in GOLDEN.glob("*-ttl-*/expected.jsonl"))


def ages_of(terminal: Terminal, savepoint: Path, *more: object) -> dict[str, dict[str, Any]]:
    """The facts of each state, by operator and state."""
    found = json.loads(terminal.says("ages", savepoint, "--json", "--now", str(NOW), *map(str, more)))
    return {f"{one['operator']['id']}/{one['state']}": one for one in found["states"]}


def stamped(line: Line) -> list[int]:
    """The timestamps of all entries of a line that Flink's generator wrote."""
    stamp, value = line["timestamp"], line["value"]
    if isinstance(stamp, list):
        return stamp
    # A null map has no entries.
    return [stamp] * (1 if "user_key" in line else len(value or ()))


@pytest.mark.parametrize("case", STAMPED)
def test_each_entry_counts_with_its_own_timestamp(case: str, terminal: Terminal) -> None:
    by_state: dict[tuple[str, str], list[Line]] = {}
    for line in expected(GOLDEN / case):
        if "timestamp" in line and "value" in line:
            by_state.setdefault((line["operator"], line["state"]), []).append(line)
    found = ages_of(terminal, GOLDEN / case)
    assert found
    named = {one["state"]: one for one in found.values()}
    for (_, state), lines in by_state.items():
        one = named[state]
        has_maps = one["kind"] == "VALUE" and one["type"].startswith("Map<")
        times = [time for line in lines for time in (stamped(line) if has_maps else _plain(line))]
        assert one["entries"] == len(times), state
        assert one["keys"] == len({json.dumps([line["key"], line.get("namespace")]) for line in lines}), state
        if not times:
            continue
        assert one["future"] == len(_in_the_future(lines, has_maps)), state
        assert (one["youngest"], one["oldest"]) == (NOW - max(times), NOW - min(times)), state
        assert sum(it["entries"] for it in one["histogram"]) == len(times)


def _plain(line: Line) -> list[int]:
    stamp = line["timestamp"]
    return stamp if isinstance(stamp, list) else [stamp]


def _in_the_future(lines: list[Line], has_maps: bool) -> list[int]:
    """The timestamps in the future; one of a blob without entries doesn't count."""
    return [time for line in lines for time in _plain(line) if time > NOW and (not has_maps or line["value"])]


def test_a_told_time_to_live_counts_what_has_expired_as_flink_does(terminal: Terminal) -> None:
    case = GOLDEN / "lists-ttl-2.3-rocksdb"
    times = [time for line in expected(case) if line["state"] == "list-0-String" for time in line["timestamp"]]
    middle = sorted(times)[len(times) // 2]
    found = ages_of(terminal, case, "--state-ttl", f"values/list-0-String={NOW - middle}ms")
    one = next(one for one in found.values() if one["state"] == "list-0-String")
    # Flink's rule: expired if timestamp + time to live <= now.
    assert one["expired"] == sum(time <= middle for time in times)
    assert one["ttl"]["given"] == NOW - middle


def test_native_files_have_ages_too(terminal: Terminal) -> None:
    found = ages_of(terminal, GOLDEN.parent / "rocksdb" / "snapshots" / "rounds-legacy-ttl-native-2.3-rocksdb")
    assert any(one["entries"] for one in found.values())


def test_an_old_savepoint_counts_from_its_youngest_timestamp(tmp_path: Path, terminal: Terminal) -> None:
    taken = NOW - 400 * DAY
    write_demo_savepoint(str(tmp_path / "demo"), DemoState(300, 3, 0, 30 * DAY, taken, 2, 128, 1))
    found = json.loads(terminal.says("ages", tmp_path / "demo", "--json"))
    assert found["now_is_youngest_timestamp"]
    assert taken - DAY < found["now"] <= taken
    main = next(one for one in found["states"] if one["state"] == "mainState")
    assert main["youngest"] == 0
    assert main["ttl"] == {"given": None, "at_least": main["oldest"], "suggested": 30 * DAY, "update": None}
    assert main["expired"] == pytest.approx(sum(it["entries"] for it in main["histogram"]) * 0.05, rel=0.5)
    days = main["forecast"]["days"]
    assert [day["day"] for day in days] == list(range(1, 8))
    assert days[-1]["expired"] == main["expired"] + sum(day["expires"] for day in days)
    text = terminal.says("ages", tmp_path / "demo")
    assert "(its youngest timestamp)" in text
    assert "that suggests 30d" in text


def test_a_key_whose_rows_go_on_in_the_next_section_counts_once(tmp_path: Path, terminal: Terminal) -> None:
    write_demo_savepoint(str(tmp_path / "demo"), DemoState(3, 60_000, 1, 30 * DAY, NOW, 1, 128, 1))
    rows = next(one for one in ages_of(terminal, tmp_path / "demo").values() if one["state"] == "newMainState")
    assert (rows["entries"], rows["keys"]) == (180_000, 3)


def test_what_goes_when_is_counted_from_the_ages() -> None:
    ages = Ages()
    # One entry for each hour of 80 days.
    stamps = NOW - np.arange(80 * 24, dtype=np.int64) * HOUR - HOUR // 2
    ages.count(stamps, np.ones_like(stamps), 2**63 - 1, NOW)
    # They are entries of 80 maps.
    ahead = forecast(ages, 80, 40 * DAY, 5)
    assert ahead.expired == pytest.approx(40 * 24, abs=3)
    assert [day.expires for day in ahead.days] == pytest.approx([24] * 5, abs=4)
    # Those that expired more than 30 days ago.
    assert ahead.overdue == pytest.approx(10 * 24, abs=12)
    assert ahead.days[-1].compacted == pytest.approx(15 * 24, abs=12)
    assert ahead.accesses == 80 // 5
    # Of a job with settings of its own: those that expired more than 5 days ago, and none for their age alone.
    own = forecast(ages, 80, 40 * DAY, 5, Cleanup(10, 5 * DAY))
    assert (own.expired, own.accesses) == (ahead.expired, 80 // 10)
    assert own.overdue == pytest.approx(35 * 24, abs=12)
    never = forecast(ages, None, 40 * DAY, 5, Cleanup(compaction=0))
    assert never.accesses is None
    assert (never.overdue, [day.compacted for day in never.days]) == (0, [0] * 5)
    found = classes(ages)
    assert sum(one.entries for one in found) == ages.entries
    assert [one.least for one in found[1:]] == [one.below for one in found[:-1]]


def test_nothing_older_than_the_oldest_and_all_older_than_the_youngest() -> None:
    ages = Ages()
    assert ages.older_than(1) == 0
    stamps = np.array([NOW - DAY, NOW - 2 * DAY, NOW + HOUR], np.int64)
    ages.count(stamps, np.ones_like(stamps), 2**63 - 1, NOW)
    assert [ages.older_than(age) for age in (1, 2 * DAY, 2 * DAY + 1)] == [2, 1, 0]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("main/nope=3d", "has no keyed state 'nope'"),
        ("nope/mainState=3d", "no operator has the id, uid or name 'nope'"),
        ("mainState=3d", "expected OPERATOR/STATE=DURATION"),
        ("main/mainState=0d", "expected a time to live above 0"),
        ("main/mainState=soon", "expected a duration"),
        ("main/mainState=3d:maybe", "found 'maybe'"),
        ("main/mainState=3d;main/mainState=4d", "has more than one --state-ttl"),
    ],
)
def test_nonsense_is_refused_by_name(told: str, words: str, terminal: Terminal) -> None:
    code, error = terminal.fails("ages", GOLDEN / "legacy-ttl-2.3-rocksdb", "--state-ttl", told)
    assert code == 2
    assert words in error


def test_a_state_without_time_to_live_is_refused_by_name(terminal: Terminal) -> None:
    code, error = terminal.fails("ages", GOLDEN / "legacy-2.3-rocksdb", "--state-ttl", "main/mainState=3d")
    assert code == 2
    assert "state mainState of operator main has no time to live" in error
    assert "no keyed state has a time to live" in terminal.says("ages", GOLDEN / "legacy-2.3-rocksdb")
    for option, value in (("--days", "-1"), ("--days", "400"), ("--now", "-5"), ("--now", "9" * 30)):
        assert terminal.fails("ages", GOLDEN / "legacy-2.3-rocksdb", option, value)[0] == 2


def test_the_jobs_own_cleanup_is_in_the_forecast(tmp_path: Path, terminal: Terminal) -> None:
    write_demo_savepoint(str(tmp_path / "demo"), DemoState(300, 3, 0, 30 * DAY, NOW, 2, 128, 1))
    own = ("--cleanup-size", "1", "--compaction-period", "7d", "--now", str(NOW))
    text = terminal.says("ages", tmp_path / "demo", *own)
    assert "each access looks at all entries of 1 key, so a round takes" in text
    assert "each file is after 7d at the latest" in text
    assert "processing time" in text
    found = json.loads(terminal.says("ages", tmp_path / "demo", *own, "--json"))
    assert found["cleanup"] == {"size": 1, "compaction_period": 7 * DAY}
    assert "which may be never" in terminal.says("ages", tmp_path / "demo", *own, "--compaction-period", "0")
    code, error = terminal.fails("ages", tmp_path / "demo", "--cleanup-size", "0")
    assert (code, "at least 1 key" in error) == (2, True)
