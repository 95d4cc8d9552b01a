"""Catch-ups: what is converted since a base is, entry by entry, what a conversion of everything gives."""

from __future__ import annotations

import errno
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from flinkstate.errors import DamagedError, PlanError, RefusedError, RejectedError, TransientError, UsageError
from flinkstate.files.digests import hasher_of
from flinkstate.files.storage import Location
from flinkstate.keyed import native_difference
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.chunks import Chunk, FilePart
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.reading.reader import Savepoint
from flinkstate.rocksdb.difference import differing_rows
from flinkstate.rocksdb.pending_rows import PendingRows
from flinkstate.rocksdb.prefixes import EVERY_KEY, Prefixes
from flinkstate.rocksdb.scan import entries_of
from flinkstate.serializers.types import Scalar
from flinkstate.values.hash_codes import key_group_of
from flinkstate.writing import joined_files
from flinkstate.writing.heap_timers_writer import HeapTimersWriter
from flinkstate.writing.newer_files import NewerFilesWriter
from flinkstate.writing.operator_rewrite import Layout
from stateferry.basics.durations import now_ms
from stateferry.changes import changed_keys
from stateferry.changes.changed_keys import KeyList
from stateferry.cli import main, shared_steps
from stateferry.cli.engine import OpenWorkers
from stateferry.inventory import inventory
from stateferry.proof import catch_up as proof_of_catch_up
from stateferry.proof import changed_rows
from stateferry.proof import checks as checks_of_proof
from stateferry.proof.catch_up import ChangedResult, ChangedTask
from stateferry.proof.expected.check_result import Check
from stateferry.proof.keyed_check import KeyedTask
from stateferry.proof.keyed_result import Side
from stateferry.proof.metadata_check import compare_metadata
from stateferry.runs.catalog.publications import Control
from stateferry.runs.checks.separate_places import check_separate_places
from stateferry.runs.control.catching_up import why_not_later
from stateferry.runs.guards.expiry_guard import ClockContradictedError
from stateferry.runs.guards.lazy_choice import chosen_by_base
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.record.facts import HeldFiles, StagedAccounts
from stateferry.runs.record.run_list import find_run, runs_of
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import MigrateFacts, NewerRows, SnapshotFacts
from stateferry.runs.record.steps import Step
from stateferry.runs.report.file_digest import DigestTask
from stateferry.runs.report.report import Report
from stateferry.steps import tables
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.tables import PublishedFilesError
from stateferry.steps.workers import InProcess
from stateferry.tables.update import VanishedKeysError
from tests.flink.judge import raw_entries
from tests.savepoint.test_heap_timers import STRING, group
from tests.savepoint.test_heap_timers import handle as raw_timers
from tests.steps.test_nights_since import KEYS, NOW, at_work, changed, first_state, run
from tests.support.facts import kept_facts
from tests.support.in_process import without_spark
from tests.support.lazy_choices import choices_of, choosing_as
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState
from tests.support.native_nights import NightlyDatabase

pytestmark = pytest.mark.slow

NATIVE: dict[str, Any] = {"output_format": "native", "now": NOW}


def base(source: Path, folder: Path, number: int, **options: Any) -> tuple[Report, Run]:
    return run(source, folder, number, job="catch-up", **(NATIVE | options))


def with_a_base(folder: Path) -> NightlyDatabase:
    """A job whose first checkpoint has been migrated."""
    database = NightlyDatabase(folder / "job")
    database.flush(first_state())
    base(database.checkpoint(1), folder, 1)
    return database


def caught_up(source: Path, folder: Path, number: int, since: int, **options: Any) -> tuple[Report, Run]:
    return base(source, folder, number, since=f"catch-up-{since}", **options)


def whole(source: Path, folder: Path, number: int, **options: Any) -> Run:
    report, found = run(source, folder, number, job="whole", **(NATIVE | options))
    assert report.is_green
    return found


def entries(of: Run) -> Counter[Any]:
    return raw_entries(Path(of.staged.path if of.plan.rehearse else of.plan.target))


DROPPED = "main/other=1000000s:drop"
CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "without time to live": (False, {}),
    "under time to live": (True, {}),
    "keeping what has expired": (True, {"keep_expired": True}),
    "with the times to live of others": (True, {"state_ttls": [DROPPED, "main/mainState=1000000s:drop"]}),
}
AGED = (NOW - 2 * 10**9, NOW - 10**9, NOW - 5, NOW)


def found_in(of: Run) -> tuple[Any, ...]:
    """What the snapshot says of everything, but for ages of single entries, which may be gone."""
    facts = kept_facts(of, SnapshotFacts)
    assert facts.ages is not None
    ages = [(one.state, one.counted, one.expired, one.future, one.kept) for one in facts.ages.states]
    untold = [(one.state, one.counted) for one in facts.ages.untold]
    return facts.states, facts.met, ages, untold, facts.read, facts.lazy


# The random chains of tests/flink/test_random_catch_ups.py have the likes of the others.
@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(
    "case",
    [
        "under time to live",
        "with the times to live of others",
        *(pytest.param(case, marks=pytest.mark.full) for case in ("without time to live", "keeping what has expired")),
    ],
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_chain_of_catch_ups_is_as_a_conversion_of_everything(
    seed: int, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job moves keys itself, and has a state of the same types that isn't migrated."""
    chosen, database = random.Random(seed), NightlyDatabase(tmp_path / "job")
    ttl, options = CASES[case]
    if ttl:
        monkeypatch.setattr(proof_of_catch_up, "_MOST_WHOLE", 0)
    of_state: dict[str, Any] = {"state": {"ttl_ms": 10**9} if ttl else {}, "accept_empty": 1.0, "nulls": "drop"}
    of_state |= options
    database.state = database.state.with_changes(more_rows={"other": {}})
    first = first_state(ttl=ttl, more_rows={"other": {"key-1": {"u": (1, NOW)}, "key-2": {"u": (1, AGED[0])}}})
    database.flush(first)
    report, _ = base(database.checkpoint(0), tmp_path, 0, **of_state)
    assert report.is_green, report.failed
    for number in range(1, 4):
        for _ in range(chosen.randrange(3)):
            state = changed(database.state, chosen, chosen.randrange(1, 12))
            back = [key for key in first_state().blobs if key not in {*state.blobs, *state.rows}]
            blobs, others = dict(state.blobs), [f"key-{chosen.randrange(60)}" for _ in range(20)]
            for key in chosen.sample(back, len(back) // 2):
                blobs[key] = {"u1": chosen.choice((None, 7))}, chosen.choice(AGED)
            rivals = {key: {"u": (chosen.randrange(9), chosen.choice(AGED))} for key in others}
            database.flush(state.with_changes(blobs=blobs, more_rows={"other": rivals}))
            if chosen.random() < 0.4:
                database.compact(chosen.randrange(4))
        source = database.checkpoint(number)
        report, since = caught_up(source, tmp_path, number, number - 1, **of_state)
        assert report.is_green, report.failed
        everything = whole(source, tmp_path, number, **of_state)
        assert entries(since) == entries(everything)
        assert found_in(since) == found_in(everything)
        newer = kept_facts(since, MigrateFacts)
        assert newer.newer is not None
        assert f"main/{NEW}" in newer.newer


def two(folder: Path, *, keys: int = 6, **of_first: Any) -> tuple[Path, Path]:
    """Two checkpoints, between which some keys got other maps, one is new and one is gone."""
    database = NightlyDatabase(folder / "job")
    database.flush(first_state(**of_first))
    first = database.checkpoint(1)
    blobs = dict(database.state.blobs)
    for number in range(keys):
        blobs[f"key-{number}"] = ({"u0": -1 - number, "u7": 7}, NOW)
    del blobs["key-9"]
    blobs["new"] = ({"u": 1}, NOW)
    database.flush(database.state.with_changes(blobs=blobs))
    return first, database.checkpoint(2)


def base_and_later(folder: Path, **options: Any) -> Path:
    """The later one of two checkpoints; the other has been migrated, as the base."""
    first, second = two(folder)
    base(first, folder, 1, **options)
    return second


def test_what_is_published_has_the_files_of_its_base_and_newer_ones(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    of_base = base(first, tmp_path, 1)[1]
    report, since = caught_up(second, tmp_path, 2, 1, rehearse=False)
    assert report.is_green
    assert entries(since) == entries(whole(second, tmp_path, 2))
    listed = next(check for check in report.checks if check.name == "main: changed keys listed")
    assert listed.actual == "8 keys, as 1 file came or went"
    newer = kept_facts(since, MigrateFacts)
    # Six keys of five entries became two entries each, of which one is new; one key of five went, and one came.
    assert newer.newer == {f"main/{NEW}": NewerRows(6 * 2 + 1, 6 * 4 + 5)}
    handle = Savepoint.open(str(tmp_path / "target")).metadata.operators[0].subtasks[0].native_keyed
    assert handle is not None
    before = {one.stat().st_ino for one in Path(of_base.staged.path).iterdir()}
    tables = [one.stream.name for one in handle.files if one.name.endswith(".sst")]
    linked = [name for name in tables if (tmp_path / "target" / name).stat().st_ino in before]
    assert (len(tables), len(linked)) == (2, 1)


@pytest.mark.full
def test_several_maps_of_an_operator_are_caught_up_with(tmp_path: Path) -> None:
    """Two legacy states that share a flag."""
    database = NightlyDatabase(tmp_path / "job", LegacyState(more_blobs={"second": {}}))
    names = [{"legacy": LEGACY, "new": NEW, "flag": FLAG}, {"legacy": "second", "new": "newSecond", "flag": FLAG}]
    options: dict[str, Any] = {"operators": [{"operator": "main", "states": names}], "accept_empty": 1.0}
    seconds = {f"key-{number}": ({"v": number}, NOW) for number in range(0, 400, 3)}
    database.flush(first_state(more_blobs={"second": seconds}))
    base(database.checkpoint(1), tmp_path, 1, **options)
    chosen = random.Random(5)
    for number in (2, 3):
        state = changed(database.state, chosen, 9)
        moved = {key: blob for key, blob in seconds.items() if key not in state.flags}
        moved |= {f"late-{number}": ({"v": 1}, NOW), "key-3": ({"v": -number}, NOW)}
        database.flush(state.with_changes(more_blobs={"second": moved}))
        source = database.checkpoint(number)
        report, since = caught_up(source, tmp_path, number, number - 1, **options)
        assert report.is_green, report.failed
        assert entries(since) == entries(whole(source, tmp_path, number, **options))


LAZY: dict[str, Any] = {"lazy": True, "share": 0.3}
LAZILY: dict[str, tuple[LegacyState, dict[str, Any]]] = {
    "by a hash": (first_state(), LAZY),
    "the largest first, under time to live": (first_state(ttl=True), {**LAZY, "largest_first": True}),
    "with more key groups, and a flag under time to live": (
        first_state(ttl=True), {**LAZY, "max_parallelism": 300, "parallelism": 2},
    ),
    "with a flag state that the job lacks": (first_state(has_flag_state=False), LAZY),
    "keeping what has expired": (first_state(ttl=True, flag_ttl=False), {**LAZY, "keep_expired": True}),
}  # fmt: skip


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("joined_from", [7, 1])
@pytest.mark.parametrize("case", LAZILY)
def test_lazy_runs_are_caught_up_with(
    case: str, joined_from: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job moves keys itself, clears flags, gets maps of keys that are moved, and takes back what was gone."""
    monkeypatch.setattr("flinkstate.writing.newer_files.JOINED_FROM", joined_from)
    state, options = LAZILY[case]
    of_state: dict[str, Any] = {"state": {"ttl_ms": 10**9} if state.ttl else {}, "accept_empty": 1.0, **options}
    chosen, database = random.Random(case), NightlyDatabase(tmp_path / "job", state.with_changes(blobs={}))
    database.flush(state)
    report, of_base = base(database.checkpoint(0), tmp_path, 0, **of_state)
    assert report.is_green, report.failed
    for number in range(1, 5):
        database.flush(changed_by_the_job(database.state, chosen))
        if number == 2:
            database.compact(chosen.randrange(3 if state.has_flag_state else 2))
        source = database.checkpoint(number)
        report, since = caught_up(source, tmp_path, number, number - 1, **of_state, rehearse=number < 4)
        assert report.is_green, report.failed
        with choosing_as(of_base):
            everything = whole(source, tmp_path, number, **of_state)
        assert entries(since) == entries(everything)
        assert found_in(since) == found_in(everything)
        one, all_ = ({check.name: check for check in Report.read(of.report).checks} for of in (since, everything))
        for name in (f"main/{LEGACY}: blobs of the keys that are not moved", f"main/{FLAG}: flags"):
            assert one[name] == all_[name]
        assert since.facts(StagedAccounts) == everything.facts(StagedAccounts)
    assert 100 < Counter(name for _, name, *_ in entries(since))[LEGACY] < KEYS


def changed_by_the_job(before: LegacyState, chosen: random.Random) -> LegacyState:
    state = changed(before, chosen, 30)
    blobs, rows, flags = dict(state.blobs), dict(state.rows), dict(state.flags)
    gone = [key for key in first_state().blobs if key not in {*blobs, *rows}]
    blobs |= {key: ({"again": chosen.randrange(9)}, chosen.choice(AGED)) for key in gone[: len(gone) // 2]}
    # Half moved: a flag and a map, a flag that is gone, rows beside a map.
    for key in chosen.sample(sorted(flags), min(len(flags), 3)):
        blobs[key] = {"late": 1}, chosen.choice(AGED)
    for key in chosen.sample(sorted(flags), min(len(flags), 2)):
        del flags[key]
    rows |= {key: {"u1": (7, NOW)} for key in chosen.sample(sorted(blobs), 3)}
    if not state.has_flag_state:
        flags = {}
    return state.with_changes(blobs=blobs, rows=rows, flags=flags)


@pytest.mark.full
def test_what_fits_into_a_budget_is_what_did_when_the_base_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two(tmp_path)
    base(first, tmp_path, 0, **LAZY)
    budget = {"lazy": True, "budget_ms": 1}
    with monkeypatch.context() as patch:
        patch.setattr("stateferry.steps.snapshot.measured_rate", lambda _: 5_000_000.0)
        of_base = base(first, tmp_path, 1, **budget)[1]
    report, since = caught_up(second, tmp_path, 2, 1, rehearse=False, **budget)
    assert report.is_green
    (chosen,), (kept,) = choices_of(of_base), choices_of(since)
    assert 0 < chosen.moved < chosen.left
    assert kept.last == chosen.last
    with choosing_as(of_base):
        assert entries(since) == entries(whole(second, tmp_path, 2, **LAZY))


def test_a_catch_up_that_moves_other_keys_than_its_base_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two(tmp_path, keys=40)
    base(first, tmp_path, 1, **LAZY)

    def others(*of: Any) -> tuple[Any, ...]:
        return tuple(replace(one, last=1 << 63) for one in chosen_by_base(*of))

    monkeypatch.setattr("stateferry.steps.snapshot.chosen_by_base", others)
    with pytest.raises(RejectedError, match="changed keys as they were"):
        caught_up(second, tmp_path, 2, 1, **LAZY)


LAYOUTS: dict[str, dict[str, Any]] = {
    "more subtasks": {"parallelism": 5},
    "more key groups": {"max_parallelism": 300},
    "fewer key groups, and more subtasks": {"max_parallelism": 48, "parallelism": 3},
}


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_base_in_another_layout_is_caught_up_with(layout: dict[str, Any], tmp_path: Path) -> None:
    first, second = two(tmp_path, keys=40)
    of_base = base(first, tmp_path, 1, **layout)[1]
    report, since = caught_up(second, tmp_path, 2, 1, rehearse=False, **layout)
    assert report.is_green
    assert entries(since) == entries(whole(second, tmp_path, 2, **layout))
    newer = kept_facts(since, MigrateFacts)
    assert of_base.facts(MigrateFacts) is not None
    # Forty keys of five entries became two entries each, of which one is new; one key of five went, and one came.
    assert newer.newer == {f"main/{NEW}": NewerRows(40 * 2 + 1 - 2, 40 * 4 + 5 - 4)}
    assert newer.layout is not None
    (operator,) = Savepoint.open(str(tmp_path / "target")).metadata.operators
    of_layout = operator.parallelism, operator.max_parallelism
    assert of_layout == (layout.get("parallelism", 1), layout.get("max_parallelism", 128))
    assert not Path(since.exchange.path).exists()


@pytest.mark.full
def test_on_another_disk_the_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two(tmp_path)
    of_base = base(first, tmp_path, 1)[1]

    def link(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("os.link", link)
    _, since = caught_up(second, tmp_path, 2, 1, rehearse=False)
    before = {one.stat().st_ino for one in Path(of_base.staged.path).iterdir()}
    assert before.isdisjoint(one.stat().st_ino for one in (tmp_path / "target").iterdir())
    assert entries(since) == entries(whole(second, tmp_path, 2))


def test_a_catch_up_needs_no_room_for_files_that_only_get_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = base_and_later(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    assert caught_up(second, tmp_path, 2, 1)[0].is_green
    assert caught_up(second, tmp_path, 3, 1, rehearse=False)[0].is_green
    monkeypatch.setattr("stateferry.steps.guards.on_one_disk", lambda *_: False)
    with pytest.raises(PlanError, match=r"bytes free for .*, found 0: free some space"):
        caught_up(second, tmp_path, 4, 1)
    monkeypatch.undo()
    assert not list((tmp_path / "home" / "runs").glob("*/catch-up-4/staged/*"))


def test_what_expires_meanwhile_stays_and_no_more_goes(tmp_path: Path) -> None:
    first, second = two(tmp_path, ttl=True)
    of_state: dict[str, Any] = {"state": {"ttl_ms": 10}, "now": NOW + 5}
    base(first, tmp_path, 1, **of_state)
    values = {key: value for key, value in of_state.items() if key != "now"}
    report, since = caught_up(second, tmp_path, 2, 1, now=NOW + 5, **values)
    assert report.is_green
    with pytest.raises(PlanError, match="a catch-up has the now of its base"):
        caught_up(second, tmp_path, 3, 1, now=NOW + 50, **values)
    assert entries(since) == entries(whole(second, tmp_path, 2, **of_state))


@pytest.mark.parametrize(
    ("contradiction", "blobs", "rows", "flags"),
    [
        pytest.param("rows", {"hot": ({"u": 2}, NOW - 100)}, {"hot": {"u": (1, NOW - 900)}}, {}, id="a row"),
        pytest.param("rows", {"hot": ({"u": 2}, NOW - 100)}, {}, {"hot": NOW - 900}, id="a flag"),
        pytest.param(
            "blob", {"hot": ({"u": 2}, NOW - 900)}, {"hot": {"v": (1, NOW - 100)}}, {"hot": NOW - 100}, id="a map"
        ),
    ],
)
def test_a_catch_up_is_refused_once_what_won_over_something_younger_has_expired(
    contradiction: str, blobs: Any, rows: Any, flags: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a later now a conversion of everything would keep the younger entry, of a key that hasn't changed."""
    of_state: dict[str, Any] = {"state": {"ttl_ms": 1000}, "on_contradiction": contradiction, "accept_empty": 1.0}
    first = LegacyState({"key": ({"u": 1}, NOW), **blobs}, rows, flags, ttl=True)
    database = NightlyDatabase(tmp_path / "job")
    database.flush(first)
    report, _ = base(database.checkpoint(1), tmp_path, 1, **of_state)
    assert report.is_green, report.failed
    for number in (2, 3, 4):
        state = first.with_changes(blobs={**first.blobs, "key": ({"u": number}, NOW + 90)})
        database.flush(state)
        source, later = database.checkpoint(number), NOW + (99 if number < 4 else 100)
        monkeypatch.setattr("stateferry.steps.snapshot.now_ms", lambda later=later: later, raising=False)
        if number < 4:
            report, found = caught_up(source, tmp_path, number, number - 1, **of_state)
            assert report.is_green
            # Nobody stops the job for one that would be refused.
            for hours, why in ((3, False), (1, True)):
                before = NOW + 100 - hours * 3_600_000
                monkeypatch.setattr("stateferry.runs.control.catching_up.now_ms", lambda before=before: before)
                assert bool(why_not_later(found)) == why
        else:
            with pytest.raises(RefusedError, match="leave --since out"):
                caught_up(source, tmp_path, number, number - 1, **of_state)
            as_it_was, as_it_is = (
                entries(whole(source, tmp_path, one, **of_state, now=now)) for one, now in ((8, NOW), (9, later))
            )
            assert as_it_is - as_it_was


@pytest.mark.full
def test_a_base_may_have_maps_that_become_no_rows(tmp_path: Path) -> None:
    of_state: dict[str, Any] = {"state": {"ttl_ms": 10**9}, "accept_empty": 1.0}
    database = NightlyDatabase(tmp_path / "job", LegacyState(ttl=True))
    database.flush(LegacyState({"empty": ({}, NOW)}, ttl=True))
    assert base(database.checkpoint(1), tmp_path, 1, **of_state)[0].is_green
    database.flush(database.state.with_changes(blobs={**database.state.blobs, "key": ({"u": 1}, NOW)}))
    source = database.checkpoint(2)
    report, since = caught_up(source, tmp_path, 2, 1, **of_state)
    assert report.is_green, report.failed
    assert entries(since) == entries(whole(source, tmp_path, 2, **of_state))


@pytest.mark.full
def test_timestamps_since_the_base_are_no_contradiction_but_those_of_the_future_are(tmp_path: Path) -> None:
    of_state: dict[str, Any] = {"state": {"ttl_ms": 10**12}}
    database = NightlyDatabase(tmp_path / "job")
    database.flush(first_state(ttl=True))
    base(database.checkpoint(1), tmp_path, 1, **of_state)
    day = 86_400_000
    for number, stamp in ((2, NOW + day), (3, now_ms() + day)):
        blobs = {**database.state.blobs, f"key-{number}": ({"u": number}, stamp)}
        database.flush(database.state.with_changes(blobs=blobs))
        source = database.checkpoint(number)
        if stamp < now_ms():
            assert caught_up(source, tmp_path, number, 1, **of_state)[0].is_green
        else:
            with pytest.raises(ClockContradictedError, match="later than what counts as now"):
                caught_up(source, tmp_path, number, 1, **of_state)


def without_one(keys: Prefixes) -> Prefixes:
    """The list of changed keys without its first one."""
    return Prefixes(keys.keys, keys.bounds[1:]) if len(keys) else keys


def converted_short(patch: pytest.MonkeyPatch) -> None:
    """The conversion forgets a key."""
    found = changed_keys.read_changed_keys

    def short(file: Location) -> Any:
        return {of: {state: without_one(keys) for state, keys in lists.items()} for of, lists in found(file).items()}

    patch.setattr("stateferry.steps.catch_up.read_changed_keys", short)


def listed_short(patch: pytest.MonkeyPatch) -> None:
    """The snapshot and the conversion forget a key, as both have it from the same place."""
    found = native_difference.ChangedFiles.changed

    def changed(self: Any, groups: Any) -> Any:
        return {state: without_one(keys) for state, keys in (found(self, groups) or {}).items()}

    patch.setattr(native_difference.ChangedFiles, "changed", changed)


def a_file_less(patch: pytest.MonkeyPatch) -> None:
    """The snapshot and the conversion don't see the newest file."""
    tables = NativeFile.tables

    def older(self: NativeFile, state: int) -> Iterator[Any]:
        files = self.database.families[self.header.states[state].name].files
        for table in tables(self, state):
            if len(files) == 1 or table.live.number != max(files):
                yield table

    patch.setattr(NativeFile, "tables", older)


def validated_short(patch: pytest.MonkeyPatch) -> None:
    """The validation forgets a key."""
    found = changed_rows.changed_rows

    def short(*of: Any) -> Any:
        made = found(*of)
        made.keys = {state: without_one(keys) for state, keys in (made.keys or {}).items()}
        return made

    patch.setattr("stateferry.proof.catch_up.changed_rows", short)


def entries_short(patch: pytest.MonkeyPatch) -> None:
    """Whoever lists rows or entries of files, all get one less."""

    def short(every: Any) -> Any:
        def fewer(*of: Any) -> Iterator[Any]:
            for data, starts, ends in every(*of):
                yield data, starts[1:], ends[1:]

        return fewer

    patch.setattr(native_difference, "differing_rows", short(differing_rows))
    patch.setattr(changed_rows, "entries_of", short(entries_of))


def no_changes(patch: pytest.MonkeyPatch) -> None:
    """Two files that differ count as the same for everyone, so that no list has any key of them."""
    patch.setattr(native_difference, "_what", lambda table: (table.identity, table.live.level, ""))
    patch.setattr(
        native_difference.ChangedFiles, "changed", lambda self, groups: {n: Prefixes.of(()) for n in range(3)}
    )
    patch.setattr(changed_rows, "_keys_of", lambda *_: iter(()))
    # The key groups that are read whole hold a changed key.
    patch.setattr(checks_of_proof, "sampled_groups", lambda *_: frozenset(range(128)))


def no_changes_in_large_groups(patch: pytest.MonkeyPatch) -> None:
    """As above; in place of key groups, keys that aren't listed are read: here all of them."""
    sampled = proof_of_catch_up.sampled_groups
    no_changes(patch)
    patch.setattr(checks_of_proof, "sampled_groups", sampled)
    patch.setattr(proof_of_catch_up, "_MOST_WHOLE", 0)
    patch.setattr(changed_rows, "_MOST_OF_SAMPLE", 10_000)
    patch.setattr(changed_rows, "_BLOCKS_OF_SAMPLE", 10_000)


ALTERED = {
    "changed keys listed": (converted_short, listed_short, a_file_less, validated_short, entries_short),
    "read whole": (no_changes,),
    "changed keys as they are": (no_changes_in_large_groups,),
}


@pytest.mark.matrix(most=4)
@pytest.mark.parametrize("options", [{}, LAZY], ids=["all", "lazy"])
@pytest.mark.parametrize("most", [10.0, 0.0], ids=["lists", "reads-all"])
@pytest.mark.parametrize(
    ("check", "alter"), [(check, alter) for check, several in ALTERED.items() for alter in several]
)
def test_a_wrong_list_of_changed_keys_is_found(
    check: str,
    alter: Callable[[pytest.MonkeyPatch], None],
    most: float,
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The validation lists the keys of few files that came or went, or reads all rows; it needs no list then."""
    if not most and alter is validated_short:
        return
    second = base_and_later(tmp_path, **options)
    with monkeypatch.context() as patch:
        patch.setattr(changed_rows, "_MOST_LISTED", most)
        alter(patch)
        with pytest.raises(RejectedError, match="nothing is published"):
            caught_up(second, tmp_path, 2, 1, **options)
    since = find_run(str(tmp_path / "home"), "catch-up", "catch-up-2")
    failed = [one.name for one in Report.read(since.report).failed]
    assert any(check in name for name in failed), failed
    # The same command, with nothing altered, writes it again.
    report, _ = caught_up(second, tmp_path, 3, 1, **options)
    assert report.is_green


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_row_of_another_key_in_a_newer_file_is_found(
    parallelism: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hide what the base has, in a key group that isn't read whole."""
    second = base_and_later(tmp_path, parallelism=parallelism)
    write, hidden = NewerFilesWriter.write, list[bytes]()

    def hiding(self: NewerFilesWriter, state: int, wanted: PendingRows, there: PendingRows) -> None:
        if wanted.rows and not hidden:
            data = wanted.in_order().data
            with NativeFile(self._base.folder, self._base.handle, 128, 0) as file:
                listed = there.in_order().data[: there.bytes].tobytes()
                rows = [
                    section.data[begin:end].tobytes()
                    for section in file.sections(int(data[4]))
                    if section.state == state
                    for begin, end in zip(section.starts.tolist(), section.ends.tolist(), strict=True)
                ]
            hidden.append(next(row for row in rows if row not in listed))
            there.add(np.frombuffer(hidden[0], np.uint8))
        write(self, state, wanted, there)

    monkeypatch.setattr(checks_of_proof, "sampled_groups", lambda *_: frozenset([5]))
    monkeypatch.setattr(NewerFilesWriter, "write", hiding)
    with pytest.raises(RejectedError, match="nothing is published"):
        caught_up(second, tmp_path, 2, 1, parallelism=parallelism)
    since = find_run(str(tmp_path / "home"), "catch-up", "catch-up-2")
    (failed,) = Report.read(since.report).failed
    assert failed.name.endswith("above the base")
    assert hidden[0][4:12].hex() in failed.actual


def test_damage_in_a_newer_file_makes_the_report_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = base_and_later(tmp_path)
    close = NewerFilesWriter.close

    def damaging(self: NewerFilesWriter) -> NativeHandle:
        handle = close(self)
        newest = max((file for file in handle.files if file.name.endswith(".sst")), key=lambda file: file.name)
        path = Path(self._files.location(newest.name).path)
        data = bytearray(path.read_bytes())
        data[3] ^= 1
        path.write_bytes(data)
        return handle

    monkeypatch.setattr(NewerFilesWriter, "close", damaging)
    with pytest.raises(RejectedError, match="nothing is published"):
        caught_up(second, tmp_path, 2, 1)
    since = find_run(str(tmp_path / "home"), "catch-up", "catch-up-2")
    failed = [one.name for one in Report.read(since.report).failed]
    assert [name for name in failed if name.endswith("above the base")]


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("which", [b"key-", b"key-9"], ids=["all", "one that vanished"])
def test_changed_keys_that_are_hashed_to_other_key_groups_are_found(
    which: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conversion and the validation have their key groups in the result from the same function."""
    second = base_and_later(tmp_path, max_parallelism=300)
    hashed_anew = changed_keys._hashed_anew

    def wrong(*of: Any) -> Prefixes:
        found = hashed_anew(*of)
        keys = (found.keys[start:end].tobytes() for start, end in pairwise(found.bounds.tolist()))
        return Prefixes.of(bytes((1 - key[0], *key[1:])) if which in key else key for key in keys)

    monkeypatch.setattr(changed_keys, "_hashed_anew", wrong)
    with pytest.raises(RejectedError, match="changed keys as they were"):
        caught_up(second, tmp_path, 2, 1, max_parallelism=300)


def test_key_groups_that_are_read_whole_may_lie_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = base_and_later(tmp_path)
    monkeypatch.setattr(checks_of_proof, "sampled_groups", lambda *_: frozenset([1, 2, 40, 127]))
    report, _ = caught_up(second, tmp_path, 2, 1)
    plainly = [check.actual for check in report.checks if "of the result read plainly" in check.name]
    assert plainly == ["the same rows"]


@pytest.mark.full
def test_of_very_large_key_groups_some_keys_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = base_and_later(tmp_path)
    monkeypatch.setattr(proof_of_catch_up, "_MOST_WHOLE", 1)
    report, since = caught_up(second, tmp_path, 2, 1)
    assert report.is_green
    actual = [check.actual for check in report.checks if "changed keys listed" in check.name]
    assert [
        re.fullmatch(r"(\d+) keys, as \d+ files? came or went, and (\d+) others that .*", one) for one in actual
    ] != [None]
    assert not [check for check in report.checks if "read whole" in check.name]
    assert entries(since) == entries(whole(second, tmp_path, 2))


@pytest.mark.full
def test_a_large_key_group_does_not_stop_catch_ups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it could have a key of more than a fair share, a conversion of everything looks for that key."""
    monkeypatch.setattr(inventory, "heavy_groups", lambda *_: frozenset(range(128)))
    second = base_and_later(tmp_path)
    report, since = caught_up(second, tmp_path, 2, 1)
    assert report.is_green
    assert entries(since) == entries(whole(second, tmp_path, 2))


def test_a_list_of_changed_keys_is_read_as_it_was_written(tmp_path: Path) -> None:
    """A subtask's list is in parts, by key groups."""
    file = Location.of(str(tmp_path / "changed-keys"))
    lists = {
        ("ab", 1, 4): {"of two words": Prefixes.of([b"4d", b"4c"]), "other": Prefixes.of([]), "timers": EVERY_KEY},
        ("ab", 1, 0): {"of two words": Prefixes.of([]), "other": Prefixes.of([b"0long"]), "timers": EVERY_KEY},
        ("ab", 1, 16): {"of two words": Prefixes.of([b"5"]), "other": Prefixes.of([b"6", b"7"]), "timers": EVERY_KEY},
        ("ab", 0, 0): {"of two words": Prefixes.of([]), "other": Prefixes.of([])},
    }
    changed_keys.write_changed_keys(file, lists)
    expected: dict[tuple[str, int], dict[str, list[bytes]]] = {
        ("ab", 0): {"of two words": [], "other": []},
        ("ab", 1): {"of two words": [b"4c", b"4d", b"5"], "other": [b"0long", b"6", b"7"], "timers": [b""]},
    }
    for of, of_states in changed_keys.read_changed_keys(file).items():
        assert {state: KeyList.of(keys) for state, keys in of_states.items()} == {
            state: KeyList.of(Prefixes.of(keys)) for state, keys in expected.pop(of).items()
        }
    assert expected == {}
    data = bytearray(file.read())
    data[-1] ^= 1
    for content in (bytes(data), bytes(data[:-1]), b""):
        file.write_atomically(content)
        with pytest.raises(DamagedError, match="list of changed keys"):
            changed_keys.read_changed_keys(file)


def test_what_the_validation_has_read_stands_for_the_whole_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = base_and_later(tmp_path)
    done, do = list[tuple[ChangedTask, ChangedResult]](), ChangedTask.do

    def noted(task: ChangedTask) -> ChangedResult:
        done.append((task, do(task)))
        return done[-1][1]

    monkeypatch.setattr(ChangedTask, "do", noted)
    caught_up(second, tmp_path, 2, 1)
    ((task, result),) = done
    folder, handle = task.source.folder, task.source.handle
    chunk = Chunk(128, (FilePart(0, handle, tuple(handle.range)),), handle.size)
    read = KeyedTask(Side.SOURCE, folder, task.operator, chunk, task.conversion, False).do().read
    assert read is not None
    expected, found = read.files[handle.meta.name], result.read.files[handle.meta.name]
    rows = {part: digest for part, digest in found.items() if part >= 0}
    assert rows == {part: digest for part, digest in expected.items() if part >= 0 and part not in task.whole}
    assert len(rows) > 100
    # What the base had of the changed keys was sampled when it was validated.
    assert [bool(one.samples) for one in (*result.after, *result.before)] == [True, True, False, False]
    assert result.size == 0


def test_a_base_that_was_altered_is_found(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    of_base = base(first, tmp_path, 1)[1]
    table = next(one for one in Path(of_base.staged.path).iterdir() if one.name.endswith(".sst"))
    data = bytearray(table.read_bytes())
    data[100] ^= 1
    table.write_bytes(data)
    with pytest.raises(DamagedError, match="bytes that were validated"):
        caught_up(second, tmp_path, 2, 1)


@pytest.mark.full
def test_a_catch_up_without_tables_is_a_base(tmp_path: Path) -> None:
    """Its application does all steps up to the validation at once, and lets the next run have the job."""
    second = base_and_later(tmp_path)
    made = without_tables(second, tmp_path, 2, 1)
    assert made.state is RunState.STAGED
    assert not made.has_done(Step.TABLES)
    with Control(made.plan.catalog_uri) as control:
        assert control.why_not_free("catch-up", "another") == ""
    report, since = caught_up(second, tmp_path, 3, 2, rehearse=False)
    assert report.is_green
    assert entries(since) == entries(whole(second, tmp_path, 3))


def test_keys_that_vanish_before_catch_ups_without_tables_are_noticed_before_the_publication(tmp_path: Path) -> None:
    """The tables have the keys of the last run that wrote them, and not of a catch-up that the DAG has made."""
    database = with_a_base(tmp_path)
    few = {key: blob for key, blob in database.state.blobs.items() if key < "key-2"}
    database.flush(database.state.with_changes(blobs=few))
    without_tables(database.checkpoint(2), tmp_path, 2, 1)
    database.flush(database.state.with_changes(blobs={**few, "key-1": ({"u": 5}, NOW)}))
    with pytest.raises(VanishedKeysError, match="are gone, more than the"):
        caught_up(database.checkpoint(3), tmp_path, 3, 2, rehearse=False)
    assert not (tmp_path / "target" / "_metadata").exists()


@pytest.mark.full
def test_few_changed_keys_in_several_catch_ups_need_no_look_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = with_a_base(tmp_path)
    for number in (2, 3):
        database.flush(database.state.with_changes(blobs={**database.state.blobs, "key-1": ({"u": number}, NOW)}))
        without_tables(database.checkpoint(number), tmp_path, number, number - 1)
    database.flush(database.state.with_changes(blobs={**database.state.blobs, "key-1": ({"u": 9}, NOW)}))
    monkeypatch.setattr("stateferry.steps.migrate._check_known_keys", stopped)
    report, _ = caught_up(database.checkpoint(4), tmp_path, 4, 3, rehearse=False)
    assert report.is_green


def without_tables(source: Path, folder: Path, number: int, since: int) -> Run:
    """A catch-up as the DAG makes it while the job runs."""
    with at_work(source, folder, number, "catch-up", NATIVE | {"since": f"catch-up-{since}"}) as work:
        made = work.run
    opened = cast("OpenWorkers", lambda *_: nullcontext(InProcess()))
    assert shared_steps.main(opened, ["--run", made.folder.shown]) == 0
    return made


def refused(tmp_path: Path, second: Path, what: str, **options: Any) -> None:
    number = 2 + len(list((tmp_path / "home" / "runs" / "catch-up").iterdir()))
    with pytest.raises((RefusedError, PlanError), match=what):
        caught_up(second, tmp_path, number, 1, **options)
    assert not (tmp_path / "home" / "runs" / "catch-up" / f"catch-up-{number}" / "staged").exists()
    assert not (tmp_path / "target").exists()


def test_what_cannot_be_caught_up_with_is_refused_by_name(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    base(first, tmp_path, 1)
    refused(tmp_path, second, "since and files_from", files_from=f"{first}={second}")
    refused(tmp_path, second, "its plan has another parallelism: leave --since out", parallelism=2)
    refused(tmp_path, second, "give format native as well", output_format="canonical")
    refused(tmp_path, second, "its plan has another nulls: leave --since out", nulls="keep")
    for file in first.iterdir():
        file.unlink()
    refused(tmp_path, second, "isn't there any more as it was")


def test_a_base_is_a_green_rehearsal_with_native_files(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    run(first, tmp_path, 1, job="catch-up", now=NOW)
    refused(tmp_path, second, "its plan has another output_format")


def two_with_timers(folder: Path) -> tuple[Path, Path]:
    """Two checkpoints with fifty timers on the heap, of which one is another in the second."""
    sources = two(folder)
    for number, source in enumerate(sources):
        found = Savepoint.open(str(source)).metadata
        (operator,) = found.operators
        (subtask,) = operator.subtasks
        assert subtask.native_keyed is not None
        timers: list[list[tuple[bytes, int]]] = [[] for _ in range(128)]
        for key in (f"key-{number + one}" for one in range(50)):
            timers[key_group_of(Scalar.STRING, key, 128) or 0].append((bytes([len(key) + 1]) + key.encode() + b"\0", 7))
        raw = raw_timers(*(group(("user-timers", some, some[:1]), key=STRING) for some in timers))
        subtask = replace(subtask, native_keyed=replace(subtask.native_keyed, timers=raw))
        found = replace(found, operators=(replace(operator, subtasks=(subtask,)),))
        (source / METADATA).write_bytes(build_metadata(found))
    return sources


def test_timers_in_another_place_than_in_the_source_are_found(tmp_path: Path) -> None:
    """The same timers in RocksDB's files would be lost: a job looks for them on the heap alone."""
    source = Savepoint.open(str(two_with_timers(tmp_path)[0])).metadata
    (operator,) = source.operators
    (subtask,) = operator.subtasks
    assert subtask.native_keyed is not None
    moved = replace(subtask, native_keyed=replace(subtask.native_keyed, timers=None))
    layout = Layout(native=frozenset([operator.id]))
    for there, found in ((subtask, []), (moved, [("on the heap", "in RocksDB")])):
        staged = replace(source, operators=(replace(operator, subtasks=(there,)),))
        differences = compare_metadata(source, staged, layout)
        assert [(one.expected, one.found) for one in differences if "timers" in one.what] == found


def test_a_timer_less_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two_with_timers(tmp_path)
    base(first, tmp_path, 1)
    add = HeapTimersWriter.add

    def short(self: HeapTimersWriter, state: int, rows: Any) -> None:
        if b"key-50" not in rows.tobytes():
            add(self, state, rows)

    monkeypatch.setattr(HeapTimersWriter, "add", short)
    with pytest.raises(RejectedError, match="event_user-timers: carried over"):
        caught_up(second, tmp_path, 2, 1)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(
    "layout",
    [
        {},
        *(pytest.param(one, marks=pytest.mark.full) for one in (LAYOUTS["more subtasks"], LAYOUTS["more key groups"])),
        LAYOUTS["fewer key groups, and more subtasks"],
    ],
    ids=["the same layout", *LAYOUTS],
)
def test_timers_on_the_heap_are_carried_whole(layout: dict[str, Any], tmp_path: Path) -> None:
    """They are in no file of RocksDB's, so all of them are written each time."""
    sources = two_with_timers(tmp_path)
    assert base(sources[0], tmp_path, 1, **layout)[0].is_green
    report, since = caught_up(sources[1], tmp_path, 2, 1, **layout)
    assert report.is_green
    assert entries(since) == entries(whole(sources[1], tmp_path, 2, **layout))
    of_timers = [key for _, state, key, _ in entries(since) if "event_user-timers" in state]
    assert len(of_timers) == 50
    assert sum(b"key-50" in key for key in of_timers) == 1
    (operator,) = Savepoint.open(since.staged.path).metadata.operators
    assert all(one.native_keyed is not None and one.native_keyed.timers is not None for one in operator.subtasks)


def level_0(of: Run) -> set[int]:
    """How many newer files the states of a result have."""
    (operator,) = Savepoint.open(of.staged.path).metadata.operators
    found = set[int]()
    for subtask in operator.subtasks:
        assert subtask.native_keyed is not None
        with NativeFile(of.staged, subtask.native_keyed, operator.max_parallelism, subtask.index) as file:
            found |= {len(family.of_level(0)) for family in file.database.families.values()}
    return found


@pytest.mark.parametrize("parallelism", [1, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize("joined_from", [1, 2])
def test_many_newer_files_become_one(
    joined_from: int, parallelism: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that were changed again since, deleted, and put back, are as the job has them."""
    monkeypatch.setattr("flinkstate.writing.newer_files.JOINED_FROM", joined_from)
    database, chosen = NightlyDatabase(tmp_path / "job"), random.Random(joined_from)
    database.flush(first_state())
    options = {"parallelism": parallelism}
    base(database.checkpoint(1), tmp_path, 1, **options)
    before, most = database.state, set[int]()
    for number in range(2, 7):
        again = before.with_changes(blobs=dict(before.blobs), rows=dict(before.rows), flags=dict(before.flags))
        database.flush(changed(again if number == 4 else database.state, chosen, 40))
        source = database.checkpoint(number)
        report, run = caught_up(source, tmp_path, number, number - 1, **options)
        assert report.is_green
        assert entries(run) == entries(whole(source, tmp_path, number, **options))
        most |= level_0(run)
        joined = next(check.actual for check in report.checks if check.name == "main: above the base")
        assert ("newer file" in joined) == (number > joined_from + 1 and not (number - joined_from) % joined_from)
    assert max(most) == joined_from
    # While the job stands still, nothing is joined.
    final = caught_up(source, tmp_path, 7, 6, **options, rehearse=False)[1]
    assert entries(final) == entries(whole(source, tmp_path, 7, **options))


def test_files_that_are_too_large_to_be_joined_stay_and_their_number_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flinkstate.writing.newer_files.JOINED_FROM", 1)
    monkeypatch.setattr("flinkstate.writing.newer_files._MOST_OF_KEY_GROUP", 10)
    monkeypatch.setattr("stateferry.steps.base_run.MOST_NEWER", 3)
    database, chosen = NightlyDatabase(tmp_path / "job"), random.Random(5)
    database.flush(first_state())
    base(database.checkpoint(1), tmp_path, 1)
    for number in (2, 3):
        database.flush(changed(database.state, chosen, 40))
        report, run = caught_up(database.checkpoint(number), tmp_path, number, number - 1)
        assert report.is_green
    assert max(level_0(run)) == 2
    database.flush(changed(database.state, chosen, 40))
    source = database.checkpoint(4)
    with pytest.raises(RefusedError, match=r"2 catch-ups lie above its first base, which are too large to be joined"):
        caught_up(source, tmp_path, 4, 3)
    # The run while the job stands still has room for its own.
    final = caught_up(source, tmp_path, 5, 3, rehearse=False)[1]
    assert max(level_0(final)) == 3
    assert entries(final) == entries(whole(source, tmp_path, 5))


def joined_short(patch: pytest.MonkeyPatch) -> None:
    """A row that an older newer file put, or deleted, isn't in the one that takes its place."""
    keys_in = joined_files.keys_in

    def short(*of: Any, **without: Any) -> set[bytes]:
        return set(sorted(keys_in(*of, **without))[1:])

    patch.setattr(joined_files, "keys_in", short)


def test_a_row_that_was_lost_when_files_were_joined_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flinkstate.writing.newer_files.JOINED_FROM", 1)
    source = two_and_a_third(tmp_path)
    joined_short(monkeypatch)
    with pytest.raises(RejectedError, match="nothing is published"):
        caught_up(source, tmp_path, 3, 2)
    since = find_run(str(tmp_path / "home"), "catch-up", "catch-up-3")
    failed = {check.name: check.actual for check in Report.read(since.report).failed}
    assert "rows of keys that aren't listed aren't as the base has them" in failed["main: above the base"]


def test_a_file_that_was_altered_before_it_is_joined_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flinkstate.writing.newer_files.JOINED_FROM", 1)
    source, _ = two_and_a_third(tmp_path), two_and_a_third(tmp_path / "twin", other=70_002)
    newest, twin = (
        max(Path(find_run(str(folder / "home"), "catch-up", "catch-up-2").staged.path).glob("*.sst"))
        for folder in (tmp_path, tmp_path / "twin")
    )
    assert newest.stat().st_size == twin.stat().st_size
    assert newest.read_bytes() != twin.read_bytes()
    newest.write_bytes(twin.read_bytes())
    with pytest.raises(DamagedError, match="that were validated"):
        caught_up(source, tmp_path, 3, 2)


def two_and_a_third(folder: Path, *, other: int = 70_001) -> Path:
    """A base and a catch-up with it; returns a later snapshot, in which one of their keys has changed again."""
    database = with_a_base(folder)
    state = changed(database.state, random.Random(7), 40)
    database.flush(state.with_changes(blobs={**state.blobs, "other": ({"u": other}, NOW)}))
    caught_up(database.checkpoint(2), folder, 2, 1)
    key = min(database.state.blobs)
    database.flush(database.state.with_changes(blobs={**database.state.blobs, key: ({"u": 1}, NOW)}))
    return database.checkpoint(3)


def test_files_of_the_base_s_savepoint_that_are_gone_are_named(tmp_path: Path) -> None:
    database = with_a_base(tmp_path)
    database.flush(database.state.with_changes(blobs={"key-1": ({"u": 1}, NOW)}))
    before = [database.path_of(file) for file in database.files]
    database.compact()
    source = database.checkpoint(2)
    for path in before:
        path.unlink()
    refused(tmp_path, source, r"can.t be told\. Leave --since out")


def test_a_catch_up_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = base_and_later(tmp_path)
    for place in ("stateferry.steps.catch_up.newer_rows", "stateferry.steps.validate._report"):
        with monkeypatch.context() as patch:
            patch.setattr(place, stopped)
            with pytest.raises(TransientError, match="stopped"):
                caught_up(second, tmp_path, 2, 1, rehearse=False)
    report, since = caught_up(second, tmp_path, 2, 1, rehearse=False)
    assert report.is_green
    assert entries(since) == entries(whole(second, tmp_path, 2))


def stopped(*_: object) -> None:
    raise TransientError("stopped")


def test_another_state_than_the_base_s_is_noticed_before_the_publication(tmp_path: Path) -> None:
    """Only changed keys can have vanished; if they are many, all keys that the tables know are looked for."""
    database = with_a_base(tmp_path)
    few = {key: blob for key, blob in database.state.blobs.items() if key < "key-2"}
    database.flush(database.state.with_changes(blobs=few))
    with pytest.raises(VanishedKeysError, match="are gone, more than the"):
        caught_up(database.checkpoint(2), tmp_path, 2, 1, rehearse=False)
    assert not (tmp_path / "target" / "_metadata").exists()


def test_a_run_after_the_base_may_have_left_other_keys_in_the_tables(tmp_path: Path) -> None:
    few, every = NightlyDatabase(tmp_path / "few"), NightlyDatabase(tmp_path / "every")
    blobs = {key: blob for key, blob in first_state().blobs.items() if key < "key-2"}
    few.flush(first_state().with_changes(blobs=blobs))
    base(few.checkpoint(1), tmp_path, 1)
    every.flush(first_state())
    base(every.checkpoint(1), tmp_path, 2, rehearse=False, target=str(tmp_path / "every-target"))
    few.flush(few.state.with_changes(blobs={**blobs, "key-1": ({"u": 5}, NOW)}))
    with pytest.raises(VanishedKeysError, match="are gone, more than the"):
        caught_up(few.checkpoint(2), tmp_path, 3, 1, rehearse=False)
    assert not (tmp_path / "target" / "_metadata").exists()


@pytest.mark.full
def test_what_is_left_of_a_catch_up_needs_its_base_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base was removed: the tables follow, the same command has nothing to do, and the result can be verified."""
    without_spark(monkeypatch)
    first, second = two(tmp_path)
    command = [
        *("--target", str(tmp_path / "target"), "--home", str(tmp_path / "home"), "--format", "native", "--no-timers"),
        *("--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG),
        *("--job", "catch-up"),
    ]
    assert main(["run", "--savepoint", str(first), "--rehearse", *command]) == 0
    (of_base,) = runs_of(str(tmp_path / "home"), "catch-up")
    again = ["run", "--savepoint", str(second), "--since", of_base.run_id, *command]
    with monkeypatch.context() as patch:
        patch.setattr("stateferry.steps.tables._written", stopped)
        assert main(again) == 75
    of_base.remove()
    assert main(again) == 0
    assert main(again) == 0
    newest = runs_of(str(tmp_path / "home"), "catch-up")[0].run_id
    named = ["--home", str(tmp_path / "home"), "--job", "catch-up"]
    assert main(["verify", str(second), str(tmp_path / "target"), "--run", newest, *named]) == 0
    other = [str(tmp_path / "other") if one == str(tmp_path / "target") else one for one in again]
    assert main(other) == 2


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A base and a catch-up, whose files were read right before the job is stopped; returns the final source."""
    database = with_a_base(tmp_path)
    for number in (2, 3):
        database.flush(database.state.with_changes(blobs={**database.state.blobs, f"new-{number}": ({"u": 1}, NOW)}))
        source = database.checkpoint(number)
        if number == 2:
            caught_up(source, tmp_path, 2, 1)
    return source


def hashed(patch: pytest.MonkeyPatch) -> list[str]:
    """The files whose bytes are digested from now on."""
    names: list[str] = []
    taken, hasher = DigestTask.take, hasher_of

    def take(self: DigestTask) -> Any:
        names.append(Path(self.stream.name).name)
        return taken(self)

    def of(file: Any) -> Any:
        names.append("taken over")
        return hasher(file)

    patch.setattr(DigestTask, "take", take)
    patch.setattr("flinkstate.writing.newer_files.hasher_of", of)
    return names


def check_when_read(patch: pytest.MonkeyPatch, final: Callable[[], tuple[Report, Run]]) -> list[str]:
    """Of a final catch-up: files that were read right before are read again only after the publication.

    Returns the files whose bytes are digested, also from then on.
    """
    names = hashed(patch)
    published: list[list[str]] = []
    check = tables._check_published

    def then(work: RunAtWork) -> tuple[Check]:
        published.append(list(names))
        return check(work)

    patch.setattr(tables, "_check_published", then)
    report, since = final()
    assert report.is_green, report.failed
    # The newer file of the last catch-up, which that had only written.
    assert names.count("taken over") == 1
    held = kept_facts(since, HeldFiles)
    assert len(held.files) == 2
    (before,) = published
    assert not set(held.files) & set(before)
    assert set(held.files) < set(names), "they are read once more after the publication"
    return names


def test_files_that_were_read_right_before_are_not_read_again_until_they_are_published(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = check_when_read(monkeypatch, lambda: caught_up(chain, tmp_path, 3, 2, rehearse=False))
    # An hour later they are read before, too.
    monkeypatch.setattr("stateferry.runs.record.facts._HELD_MS", -1)
    names.clear()
    _, late = caught_up(chain, tmp_path, 4, 2, rehearse=False, target=str(tmp_path / "late"))
    assert names.count("taken over") == 2
    held = kept_facts(late, HeldFiles)
    # By the publication and by the tables.
    assert {names.count(name) for name in held.files} == {2}


def written_to(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


@pytest.mark.full
def test_a_file_that_was_written_to_before_it_is_taken_over_is_found(chain: Path, tmp_path: Path) -> None:
    staged = find_run(str(tmp_path / "home"), "catch-up", "catch-up-2").staged
    written_to(next(one for one in Path(staged.path).iterdir() if one.name.endswith(".sst")))
    with pytest.raises(DamagedError, match="bytes that were validated"):
        caught_up(chain, tmp_path, 3, 2, rehearse=False)


def test_a_file_that_was_written_to_before_the_publication_is_found(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = check_separate_places

    def then(plan: MigrationPlan) -> None:
        written_to(held_file(tmp_path))
        check(plan)

    monkeypatch.setattr("stateferry.steps.cut_over.check_separate_places", then)
    with pytest.raises(RejectedError, match="not those that were validated, so nothing"):
        caught_up(chain, tmp_path, 3, 2, rehearse=False)
    assert not (tmp_path / "target" / "_metadata").exists()


def held_file(tmp_path: Path) -> Path:
    held = kept_facts(find_run(str(tmp_path / "home"), "catch-up", "catch-up-3"), HeldFiles)
    return tmp_path / "target" / next(iter(held.files))


def rot(path: Path) -> None:
    """As on a disk that gives back other bytes, beyond what the validation reads of the file."""
    times, data = path.stat(), bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_file_that_has_rotted_behind_its_identity_raises_the_alarm(chain: Path, tmp_path: Path) -> None:
    staged = find_run(str(tmp_path / "home"), "catch-up", "catch-up-2").staged
    path = next(one for one in Path(staged.path).iterdir() if one.name.endswith(".sst"))
    rot(path)
    with pytest.raises((PublishedFilesError, DamagedError, RejectedError)):
        caught_up(chain, tmp_path, 3, 2, rehearse=False)


def test_a_base_that_was_removed_is_named_with_what_to_do(tmp_path: Path) -> None:
    second = base_and_later(tmp_path)
    with pytest.raises(UsageError, match=r"has no run 'gone'.*; if it was removed, leave --since out"):
        base(second, tmp_path, 2, since="gone")
