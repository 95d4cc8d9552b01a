"""What an upgrade by stock Flink lost, and a run puts back: jobs of real Flink that went on after the upgrade."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import PlanError, RefusedError
from flinkstate.keyed.state import StateKind
from flinkstate.reading.reader import Savepoint
from stateferry.basics.durations import now_ms
from tests.flink.harness import Line
from tests.flink.judge import Started, raw_entries, upgraded

pytestmark = [pytest.mark.flink, pytest.mark.timeout(900)]

Call = dict[str, object]
MAPS = ("longs", "doubles", "sorted", "linked", "concurrent", "mixed")
# Maps that are classes of the job and of a library.
OF_THE_JOB = ("lru", "gson")
# One whose constructor puts entries.
FILLED = "stats"
HOUR = 3_600_000
# More than 32 characters: Kryo 5 writes such a String in another way than Kryo 2.
_NAMES = ("a", "b", "a name of more than thirty-two characters", "ü", "")
KEYS = tuple(f"key {number}" for number in range(8))
ROWS = ("first", "second")
# What each key's job does after the upgrade: with the map that it reads, or with its other values.
UNTOUCHED, TOUCHED, ADDS, OVERWRITES, ADDS_LOST, REMOVES, CLEARS, UPDATES = KEYS


def _call(state: str, key: str, name: str, **more: object) -> Call:
    return {"state": state, "key": key, "name": name, **more}


def _filled(states: tuple[str, ...]) -> Iterator[Call]:
    for state in states:
        for index, key in enumerate(KEYS):
            numbers = {name: 1.5 + index + 10 * at for at, name in enumerate(_NAMES)}
            if state in (*MAPS, *OF_THE_JOB, FILLED, "lists"):
                yield _call(state, key, "update", numbers=numbers)
            elif state == "number":
                yield _call(state, key, "put", number=1.25 + index)
            for row in ROWS:
                if state == "rows":
                    yield _call(state, key, "put", user_key=row, number=2.25 + index)
                elif state == "maps":
                    yield _call(state, key, "update", row=row, numbers=numbers)


def _reading(states: tuple[str, ...]) -> Iterator[Call]:
    for state in states:
        for key in KEYS:
            if state not in ("rows", "maps"):
                yield _call(state, key, "value")
            for row in ROWS if state in ("rows", "maps") else ():
                yield _call(state, key, "value", **{"user_key" if state == "rows" else "row": row})


class Jobs:
    """Runs jobs with some states, in one version of Flink after another."""

    def __init__(self, started: Started, states: tuple[str, ...], backend: str = "rocksdb") -> None:
        self._started, self.states, self._backend = started, states, backend

    def do(self, version: str, savepoint: Path | None, calls: Iterator[Call] | list[Call], **more: object) -> Path:
        return self._run(version, savepoint, list(calls), **more)[0]

    def _run(self, version: str, savepoint: Path | None, calls: list[Call], **more: object) -> tuple[Path, list[Line]]:
        script = {"shape": "kryo", "backend": self._backend, "states": self.states, "calls": calls, **more}
        return self._started(version, False).job_side(script, savepoint)

    def read(self, version: str, savepoint: Path, **more: object) -> dict[tuple[str, str, str], Any]:
        """What the job reads, by state, key and row; nothing is missing in it."""
        calls = list(_reading(self.states))
        _, lines = self._run(version, savepoint, calls, **more)
        assert len(lines) == len(calls)
        return {
            (str(one["state"]), str(one["key"]), str(one.get("user_key") or one.get("row") or "")): line.get(
                "map", line.get("found")
            )
            for one, line in zip(calls, sorted(lines, key=lambda line: int(line["call"])), strict=True)
        }


def _gone_on(states: tuple[str, ...], lost: dict[tuple[str, str, str], set[str]]) -> Iterator[Call]:
    """What the job does after the upgrade; `lost` are the names of the entries that it doesn't see."""
    for state in states:
        for row in ROWS if state in ("rows", "maps") else ("",):
            at: dict[str, Any] = {"user_key": row} if state == "rows" else {"row": row} if row else {}
            if state in ("rows", "number"):
                yield _call(state, TOUCHED, "touch", **at)
                yield _call(state, OVERWRITES, "put", number=77.5, **at)
                continue
            if state != "sorted":  # The job has read null, and would clear the state.
                yield _call(state, TOUCHED, "touch", **at)
            yield _call(state, ADDS, "put", user_key="new", number=70.5, **at)
            mine = {key: lost[state, key, row] for key in KEYS}
            seen = {key: sorted(set(_NAMES) - mine[key]) for key in KEYS}
            for name in seen[OVERWRITES][:2]:
                yield _call(state, OVERWRITES, "put", user_key=name, number=71.5, **at)
            yield _call(state, ADDS_LOST, "put", user_key=min(mine[ADDS_LOST]), number=72.5, **at)
            for name in seen[REMOVES][:2]:
                yield _call(state, REMOVES, "remove", user_key=name, **at)
            if not seen[REMOVES]:
                yield _call(state, REMOVES, "put", user_key="another", number=73.5, **at)


def _lost(old: dict[tuple[str, str, str], Any], seen: dict[tuple[str, str, str], Any]) -> dict[Any, set[str]]:
    return {place: set(map_) - set(seen[place] or ()) for place, map_ in old.items() if isinstance(map_, dict)}


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_it_is_as_if_nothing_had_been_lost(backend: str, started: Started, tmp_path: Path) -> None:
    """The same job of Flink 1.20, which misreads nothing, says what each entry must be."""
    jobs = Jobs(started, (*MAPS, *OF_THE_JOB, "number", "rows", "maps"), backend)
    old = jobs.do("1.20.0", None, _filled(jobs.states))
    whole, seen = jobs.read("1.20.0", old), jobs.read("2.3.0", old)
    lost = _lost(whole, seen)
    assert {len(names) for (state, _, _), names in lost.items() if state != "sorted"} == {1}
    calls = list(_gone_on(jobs.states, lost))
    right, wrong = (jobs.do(version, old, calls) for version in ("1.20.0", "2.3.0"))
    expected = jobs.read("1.20.0", right)
    assert jobs.read("2.3.0", wrong) != expected
    new = upgraded(wrong, tmp_path, with_classes=True, before=str(old), restore_lost=True)
    assert jobs.read("2.3.0", new) == expected


@pytest.mark.full
def test_what_a_constructor_puts_may_be_in_the_place_of_what_was_lost(started: Started, tmp_path: Path) -> None:
    jobs = Jobs(started, (FILLED,))
    old = jobs.do("1.20.0", None, _filled(jobs.states))
    whole, seen = jobs.read("1.20.0", old), jobs.read("2.3.0", old)
    assert any(read[name] == "0.0" != whole[place][name] for place, read in seen.items() for name in read)
    now = jobs.do("2.3.0", old, [_call(FILLED, TOUCHED, "touch")])
    with pytest.raises(RefusedError, match=r"the constructor of stateferry\.flink\.pojo\.Stats may put entries itself"):
        upgraded(now, tmp_path, with_classes=True, before=str(old), restore_lost=True)


@pytest.mark.full
def test_a_newer_savepoint_of_the_old_job_is_refused(started: Started, tmp_path: Path) -> None:
    """The old job went on after the savepoint from which the upgraded job was restored."""
    jobs = Jobs(started, ("longs",))
    old = jobs.do("1.20.0", None, _filled(jobs.states))
    newer = jobs.do("1.20.0", old, [_call("longs", ADDS, "put", user_key="new", number=70.5)])
    now = jobs.do("2.3.0", old, [_call("longs", TOUCHED, "touch")])
    with pytest.raises(PlanError, match="is newer than the savepoint from which the upgraded job was restored"):
        upgraded(now, tmp_path, before=str(newer), restore_lost=True)
    later = jobs.do("2.3.0", now, [_call("longs", TOUCHED, "touch")])
    with pytest.raises(RefusedError, match="Kryo 5 has not written this value"):
        upgraded(later, tmp_path, before=str(jobs.do("1.20.0", old, [_call("longs", UNTOUCHED, "clear")])))
    upgraded(later, tmp_path, before=str(old), restore_lost=True)


def test_rows_that_are_gone_come_back_only_if_that_is_wanted(started: Started, tmp_path: Path) -> None:
    """A job that clears a key whose map it has read, without the entry that it didn't see."""
    jobs = Jobs(started, (*MAPS, "number", "rows", "maps"))
    old = jobs.do("1.20.0", None, _filled(jobs.states))
    whole, seen = jobs.read("1.20.0", old), jobs.read("2.3.0", old)
    calls = [_call(state, key, "clear") for state in (*MAPS, "number") for key in (CLEARS, UPDATES)]
    calls += [_call("rows", key, "remove", user_key="first") for key in (CLEARS, UPDATES)]
    calls += [_call("maps", key, "clear", row="second") for key in (CLEARS, UPDATES)]
    left = jobs.do("2.3.0", old, [*calls, *(_call(state, UPDATES, "update", numbers={"z": 1.0}) for state in MAPS)])
    without = upgraded(left, tmp_path / "without", before=str(old), restore_lost=True)
    found = jobs.read("2.3.0", without)
    gone = [(state, CLEARS, {"rows": "first", "maps": "second"}.get(state, "")) for state in jobs.states]
    assert [found[place] for place in gone] == [None] * len(gone)
    new = upgraded(left, tmp_path / "with", before=str(old), restore_lost=True, restore_keys=True)
    found, lost = jobs.read("2.3.0", new), _lost(whole, seen)
    for place in gone:
        # Of a map the job has read the other entries, and cleared them. It has read each number, though another one.
        assert found[place] == ({name: whole[place][name] for name in lost[place]} if place in lost else None)
    # What the job has not read, and written over all the same.
    for state in MAPS:
        names = lost[state, UPDATES, ""]
        assert found[state, UPDATES, ""] == {"z": found[state, UPDATES, ""]["z"]} | {
            name: whole[state, UPDATES, ""][name] for name in names
        }


_TTL_STATES = (*MAPS, "number", "rows", "maps")


def test_what_has_expired_stays_away(started: Started, tmp_path: Path) -> None:
    """Rows of early keys have expired by now; Flink has removed some of them, and others were written again."""
    jobs, day = Jobs(started, _TTL_STATES), 24 * HOUR
    calls = list(_filled(jobs.states))
    early = [one for one in calls if one["key"] in KEYS[:4]]
    wait = _call("longs", KEYS[0], "wait", value=3000)
    begin = now_ms()
    old = jobs.do("1.20.0", None, [*early, wait, *(one for one in calls if one["key"] not in KEYS[:4])], ttl_millis=day)
    stamps = sorted(_timestamps(old))
    assert begin <= stamps[0]
    now = next(after for one, after in pairwise(stamps) if after - one > 1500) - 500 + HOUR
    whole, seen = (jobs.read(version, old, ttl_millis=day) for version in ("1.20.0", "2.3.0"))
    lost = _lost(whole, seen)
    script = list(_gone_on(jobs.states, lost))
    wrong = jobs.do("2.3.0", old, script, ttl_millis=day)
    right = jobs.do("1.20.0", old, script, ttl_millis=day)
    # With a time to live of nothing, Flink finds that the first key has expired, and removes it.
    expiring = [_call(state, UNTOUCHED, "value") for state in (*MAPS, "number")]
    wrong, right = (
        jobs.do(version, left, expiring, ttl_millis=1) for version, left in (("2.3.0", wrong), ("1.20.0", right))
    )
    ttls = tuple(f"main/{state}={HOUR}ms" for state in jobs.states)
    new = upgraded(wrong, tmp_path, before=str(old), restore_lost=True, restore_keys=True, state_ttls=ttls, now=now)
    found, expected = jobs.read("2.3.0", new, ttl_millis=day), jobs.read("1.20.0", right, ttl_millis=day)
    broken = jobs.read("2.3.0", wrong, ttl_millis=day)
    written = {(str(one["state"]), str(one["key"])) for one in script if one["key"] in KEYS[:4]}
    # A value that a job has read and written without a change has the bytes that it had, if it isn't a map.
    as_it_was = {(state, TOUCHED) for state in ("rows", "number")}
    for place in (one for one in found if one[:2] in written - as_it_was):
        # Early keys have nothing put back: what the upgraded job has written stays as it is.
        assert found[place] == broken[place], place
    for place in (one for one in found if one[1] in KEYS[4:]):
        assert found[place] == expected[place], place
    assert {found[state, UNTOUCHED, ""] is None for state in (*MAPS, "number")} == {True}
    # What is put back as a whole row has the timestamp from before the upgrade; maps keep the one that they have.
    assert set(_timestamps(new)) <= set(stamps) | set(_timestamps(wrong))


def _timestamps(savepoint: Path) -> list[int]:
    source = Savepoint.open(str(savepoint))
    (operator,) = source.keyed_operators()
    kinds = {state.name: state.kind for state in source.keyed_states(operator)}
    return [
        int.from_bytes(value[at : at + 8], "big")
        for (_, state, _, value), count in raw_entries(savepoint).items()
        for at in [1 if kinds[state] is StateKind.MAP else 0] * count
    ]


def test_where_nobody_can_tell_the_run_stops(started: Started, tmp_path: Path) -> None:
    """Maps with lists: Flink 2 mixes up keys and values, and may write what nobody has written."""
    jobs = Jobs(started, ("lists", "longs", "number"))
    old = jobs.do("1.20.0", None, _filled(jobs.states))
    left = jobs.do("2.3.0", old, [_call("lists", ADDS, "put", user_key="new", number=1.0)])
    with pytest.raises(RefusedError, match='state lists, key "key 2": what Flink 2 has read of it can\'t be told'):
        upgraded(left, tmp_path / "refused", before=str(old), restore_lost=True)
    assert not (tmp_path / "refused" / "new").exists()
    # What is untouched is saved all the same, also numbers that both Kryos could have written.
    with pytest.raises(RefusedError, match=r"state number, .*could both have written"):
        upgraded(left, tmp_path / "without")
    new = upgraded(left, tmp_path / "saved", before=str(old))
    whole, found = jobs.read("1.20.0", old), jobs.read("2.3.0", new)
    assert {place for place in whole if whole[place] != found[place]} == {("lists", ADDS, "")}


@pytest.mark.full
@pytest.mark.parametrize("layout", [{"max_parallelism": 256}, {"output_format": "native"}])
def test_it_goes_with_other_layouts_and_formats(layout: dict[str, Any], started: Started, tmp_path: Path) -> None:
    jobs = Jobs(started, ("longs", "maps"))
    old = jobs.do("1.20.0", None, _filled(jobs.states))
    lost = _lost(jobs.read("1.20.0", old), jobs.read("2.3.0", old))
    left = jobs.do("2.3.0", old, [*_gone_on(jobs.states, lost), _call("longs", CLEARS, "clear")])
    right = jobs.do("1.20.0", old, [*_gone_on(jobs.states, lost), _call("longs", CLEARS, "clear")])
    new = upgraded(left, tmp_path, before=str(old), restore_lost=True, restore_keys=True, **layout)
    found = jobs.read("2.3.0", new, max_parallelism=layout.get("max_parallelism", 128))
    expected = jobs.read("1.20.0", right)
    (name,) = lost["longs", CLEARS, ""]
    assert set(found.pop(("longs", CLEARS, ""))) == {name}
    del expected["longs", CLEARS, ""]
    assert found == expected


def test_a_list_to_which_the_job_has_added_elements(started: Started, tmp_path: Path) -> None:
    """RocksDB puts what Kryo 5 writes behind what Kryo 2 wrote. Each part is read by the Kryo that wrote it."""
    jobs = Jobs(started, ("list", "longs"))
    numbers = [1.5, 2.25]
    filled = [_call("list", key, "add", number=number) for key in KEYS for number in numbers]
    old = jobs.do("1.20.0", None, [*_filled(("longs",)), *filled])
    left = jobs.do("2.3.0", old, [_call("list", ADDS, "add", number=4.5)])
    new = upgraded(left, tmp_path, before=str(old), restore_lost=True)
    found, wrong = jobs.read("2.3.0", new), jobs.read("2.3.0", left)
    assert found["list", ADDS, ""] == "[1.5, 2.25, 4.5]"
    assert found["list", UNTOUCHED, ""] == "[1.5, 2.25]"
    assert wrong["list", ADDS, ""] != found["list", ADDS, ""]


def test_rows_of_which_nobody_can_tell_may_stay_gone(started: Started, tmp_path: Path) -> None:
    jobs = Jobs(started, ("lists", "longs"))
    old = jobs.do("1.20.0", None, _filled(jobs.states))
    left = jobs.do("2.3.0", old, [_call("lists", CLEARS, "clear")])
    new = upgraded(left, tmp_path / "gone", before=str(old), restore_lost=True)
    whole, found = jobs.read("1.20.0", old), jobs.read("2.3.0", new)
    assert {place for place in whole if whole[place] != found[place]} == {("lists", CLEARS, "")}
    with pytest.raises(RefusedError, match='state lists, key "key 6": what Flink 2 has read of it can\'t be told'):
        upgraded(left, tmp_path / "back", before=str(old), restore_lost=True, restore_keys=True)


def test_a_null_key_under_a_comparator_of_the_job(started: Started, tmp_path: Path) -> None:
    jobs = Jobs(started, ("by text",))
    numbers = {"a": 1.0, "null": 2.0, "z": 3.0}
    old = jobs.do("1.20.0", None, [_call("by text", key, "update", numbers=numbers) for key in KEYS])
    expected = {("by text", key, ""): {"a": "1", "null": "2", "z": "3"} for key in KEYS}
    assert jobs.read("1.20.0", old) == expected
    new = upgraded(old, tmp_path, with_classes=True)
    assert jobs.read("2.3.0", new) == expected
    assert jobs.read("2.3.0", old) != expected
