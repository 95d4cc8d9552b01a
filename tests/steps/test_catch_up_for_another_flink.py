"""Catch-ups whose result is for another Flink: only changed keys are written by its Kryo."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RefusedError, RejectedError, TransientError
from flinkstate.keyed.header import KeyedHeader
from flinkstate.reading.reader import Savepoint
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.serializers.built_snapshots import kryo_snapshot, map_snapshot, simple_snapshot
from flinkstate.serializers.types import Scalar
from flinkstate.values.hash_codes import key_group_of
from stateferry.cli import main
from stateferry.proof.expected.check_result import Check
from stateferry.runs.catalog.publications import Control
from stateferry.runs.record.facts import HeldFiles, TablesProblem
from stateferry.runs.record.run_list import find_run
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.step_facts import MigrateFacts, NewerRows
from stateferry.runs.report.report import Report
from stateferry.runs.report.report_text import tables_line
from stateferry.steps import tables
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.tables import PublishedFilesError
from tests.steps.test_catch_up import (
    base,
    caught_up,
    check_when_read,
    converted_short,
    entries,
    listed_short,
    no_changes,
    refused,
    rot,
    whole,
)
from tests.steps.test_keys_by_both_kryos import BY_2, BY_5
from tests.steps.test_nights_since import NOW, changed, first_state, run
from tests.support.facts import kept_facts
from tests.support.in_process import do_step
from tests.support.legacy_states import LEGACY, LegacyState
from tests.support.native_nights import NightlyDatabase
from tests.support.samples import keyed_meta

pytestmark = pytest.mark.slow

ALONE: dict[str, Any] = {"operators": [], "on_contradiction": "stop", "accept_expired": None, "to": "flink-2"}
WIDER: dict[str, Any] = {"parallelism": 3, "max_parallelism": 300}
KEPT: dict[str, Any] = {"to": "flink-2", "keep_legacy": True}
CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "alone": (False, ALONE),
    "alone, under time to live": (True, ALONE),
    "alone, with what has expired left out": (True, ALONE | {"state_ttls": [f"main/{LEGACY}=1000000s:drop"]}),
    "alone, in another layout": (False, ALONE | WIDER),
    "with a migration": (False, {"to": "flink-2"}),
    "with a migration that keeps the maps": (True, KEPT | {"state": {"ttl_ms": 10**9}}),
    "with a migration that keeps the maps, in another layout": (False, KEPT | WIDER),
}

IN_A_SAMPLE = ("alone, in another layout", "with a migration that keeps the maps")


def of_flink_1(folder: Path, *, ttl: bool = False) -> NightlyDatabase:
    """A job of Flink 1, whose maps are by Kryo 2."""
    database = NightlyDatabase(folder / "job", version=4)
    database.state = database.state.with_changes(kryo=2, ttl=ttl)
    database.flush(first_state(kryo=2, ttl=ttl))
    return database


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in IN_A_SAMPLE else pytest.mark.full) for case in CASES]
)
def test_a_chain_is_as_an_upgrade_of_everything(case: str, tmp_path: Path) -> None:
    ttl, options = CASES[case]
    options |= {} if options.get("operators") == [] else {"accept_empty": 1.0}
    chosen, database = random.Random(case), of_flink_1(tmp_path, ttl=ttl)
    report, _ = base(database.checkpoint(0), tmp_path, 0, **options)
    assert report.is_green, report.failed
    for number in (1, 2, 3):
        database.flush(changed(database.state, chosen, 9))
        if number == 2:
            database.compact(0)
        source = database.checkpoint(number)
        report, since = caught_up(source, tmp_path, number, number - 1, **options)
        assert report.is_green, report.failed
        everything = whole(source, tmp_path, number, **options)
        assert entries(since) == entries(everything)
        versions = [Savepoint.open(one.staged.shown).metadata.version for one in (since, everything)]
        assert versions[0] == versions[1]


def test_values_of_both_kryos_are_told_apart(tmp_path: Path) -> None:
    """A job that was upgraded without Stateferry has written some of its maps since."""
    database = NightlyDatabase(tmp_path / "job")
    by_2 = frozenset(f"key-{number}" for number in range(300))
    database.state = database.state.with_changes(kryo=5)
    database.flush(first_state(kryo=5, other_kryo=by_2))
    base(database.checkpoint(1), tmp_path, 1, **ALONE)
    state = changed(database.state, random.Random(3), 30)
    database.flush(state.with_changes(other_kryo=by_2 - {f"key-{number}" for number in range(0, 300, 7)}))
    second = database.checkpoint(2)
    report, since = caught_up(second, tmp_path, 2, 1, **ALONE)
    assert report.is_green
    assert entries(since) == entries(whole(second, tmp_path, 2, **ALONE))


# The same UUID by each Kryo, as in `test_keys_by_both_kryos.py`.
GROUP = key_group_of(Scalar.STRING, "a", 128) or 0
ROW_BY_2, ROW_BY_5 = (bytes([GROUP]) + b"\2a\0" + key for key in (BY_2, BY_5))


@dataclass(frozen=True)
class ByUuid(LegacyState):
    """A job that was upgraded in place, with one map, whose user keys are by Kryo; its rows as they are stored."""

    stored: Mapping[bytes, int] = field(default_factory=dict)

    @property
    def _states(self) -> list[str]:
        return ["counts"]

    def _header(self) -> KeyedHeader:
        value = map_snapshot(kryo_snapshot("java.util.UUID"), simple_snapshot(Scalar.LONG))
        return KeyedHeader(False, simple_snapshot(Scalar.STRING), (keyed_meta("counts", "MAP", value),))

    def _entries(self) -> dict[int, dict[int, list[bytes]]]:
        rows = [struct.pack(">i", len(key)) + key + struct.pack(">ixq", 9, n) for key, n in self.stored.items()]
        return {GROUP: {0: rows}}


@pytest.mark.parametrize("stays", [False, True], ids=["it has gone again", "it is there"])
def test_a_key_by_the_other_kryo_is_looked_at_too(stays: bool, tmp_path: Path) -> None:
    """The job doesn't find a key that the earlier Kryo has written, and makes another one beside it."""
    before = ByUuid(stored={ROW_BY_2: 4})
    database = NightlyDatabase(tmp_path / "job", ByUuid())
    database.flush(before)
    base(database.checkpoint(1), tmp_path, 1, **ALONE)
    database.flush(ByUuid(stored={ROW_BY_2: 4, ROW_BY_5: 5}))
    if stays:
        with pytest.raises(RefusedError, match=r"counts.*1 keys become the same bytes"):
            caught_up(database.checkpoint(2), tmp_path, 2, 1, **ALONE)
        return
    database.flush(before)
    second = database.checkpoint(2)
    report, since = caught_up(second, tmp_path, 2, 1, **ALONE)
    assert report.is_green
    assert entries(since) == entries(whole(second, tmp_path, 2, **ALONE))


def test_a_sampled_key_by_the_other_kryo_is_looked_at_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job of Flink 1 has removed it, and that of Flink 2 has written it since; both before the base."""
    monkeypatch.setattr("stateferry.proof.catch_up._MOST_WHOLE", 0)
    opaque = ROW_BY_2[: -len(BY_2)] + b"\1\0com.acme.Opaqu" + bytes([ord("e") | 0x80]) + b"\1"
    monkeypatch.setattr("stateferry.proof.catch_up.some_keys", lambda *_: {"counts": Prefixes.of([ROW_BY_2, opaque])})
    database = NightlyDatabase(tmp_path / "job", ByUuid(stored={ROW_BY_2: 4}))
    database.flush(ByUuid(stored={ROW_BY_5: 5}))
    base(database.checkpoint(1), tmp_path, 1, **ALONE)
    other = ROW_BY_5[:-1] + b"\7"
    database.flush(ByUuid(stored={ROW_BY_5: 5, other: 6}))
    second = database.checkpoint(2)
    report, since = caught_up(second, tmp_path, 2, 1, **ALONE)
    assert report.is_green, report.failed
    assert entries(since) == entries(whole(second, tmp_path, 2, **ALONE))


def two(folder: Path) -> tuple[Path, Path]:
    database = of_flink_1(folder)
    first = database.checkpoint(1)
    blobs = {key: blob for key, blob in database.state.blobs.items() if key != "key-9"}
    blobs |= {f"key-{number}": ({"u": -number}, NOW) for number in range(6)}
    database.flush(database.state.with_changes(blobs=blobs))
    return first, database.checkpoint(2)


def test_only_changed_keys_are_written(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    base(first, tmp_path, 1, **ALONE)
    report, since = caught_up(second, tmp_path, 2, 1, rehearse=False, **ALONE)
    assert report.is_green
    assert entries(since) == entries(whole(second, tmp_path, 2, **ALONE))
    facts = kept_facts(since, MigrateFacts)
    assert facts.newer is not None
    newer = {name.rpartition("/")[2]: of for name, of in facts.newer.items() if of.put or of.deleted}
    assert newer == {LEGACY: NewerRows(6, 1)}
    assert (tmp_path / "target" / "_metadata").exists()


def test_a_night_for_another_flink_catches_up(tmp_path: Path) -> None:
    for number, source in enumerate(two(tmp_path)):
        options = ALONE | {"output_format": "native", "full_every": 4}
        report, night = run(source, tmp_path, number, **options)
        assert report.is_green
    assert night.plan.since == "nights-0"
    assert entries(night) == entries(whole(source, tmp_path, 2, **ALONE))


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("alter", [converted_short, listed_short, no_changes])
def test_a_wrong_list_of_changed_keys_is_found(
    alter: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two(tmp_path)
    base(first, tmp_path, 1, **ALONE)
    with monkeypatch.context() as patch:
        alter(patch)
        with pytest.raises(RejectedError, match="nothing is published"):
            caught_up(second, tmp_path, 2, 1, **ALONE)
    assert caught_up(second, tmp_path, 3, 1, **ALONE)[0].is_green


def test_files_that_are_held_are_read_once_more_when_they_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There are no tables, but the step that would write them."""
    first, second = two(tmp_path)
    base(first, tmp_path, 1, **ALONE)
    caught_up(second, tmp_path, 2, 1, **ALONE)
    check_when_read(monkeypatch, lambda: caught_up(second, tmp_path, 3, 2, rehearse=False, **ALONE))
    report = Report.read(find_run(str(tmp_path / "home"), "catch-up", "catch-up-3").report)
    assert [check.name for check in report.tables] == ["published files"]
    assert not report.tables_pending
    assert tables_line(report) == "tables: there are none; the published files are as validated"
    rotten = tmp_path / "rotten"
    rots_when_published(monkeypatch, rotten)
    with pytest.raises(PublishedFilesError, match=r"is published, but the files in .* are not those that were"):
        caught_up(second, tmp_path, 4, 2, rehearse=False, target=str(rotten), **ALONE)
    one = find_run(str(tmp_path / "home"), "catch-up", "catch-up-4")
    problem = one.facts(TablesProblem)
    assert (one.state, problem is not None and problem.published_differs) == (RunState.PUBLISHED, True)

    home = ["--home", str(tmp_path / "home")]
    for command in (["report", one.folder.shown], ["status", *home]):
        capsys.readouterr()
        assert main(command) == (command[0] == "report")
        said = capsys.readouterr().out
        assert "is published, but the files in" in said
        assert "pending" not in said

    # The alarm stays until the files have been read again.
    monkeypatch.setattr(tables, "_check_published", is_away)
    assert do_step("tables", "--run", one.folder.shown) != 0
    assert one.facts(TablesProblem) == problem


def test_the_last_step_without_tables_needs_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two(tmp_path)
    base(first, tmp_path, 1, **ALONE)
    with monkeypatch.context() as patch:
        patch.setattr(tables, "_check_published", is_away)
        with pytest.raises(TransientError):
            caught_up(second, tmp_path, 2, 1, rehearse=False, **ALONE)
    one = find_run(str(tmp_path / "home"), "catch-up", "catch-up-2")
    shutil.rmtree(second)
    assert do_step("tables", "--run", one.folder.shown) == 0
    assert not Report.read(one.report).tables_pending
    with Control(one.plan.catalog_uri) as control:
        assert not control.are_tables_pending("catch-up", "catch-up-2")


def is_away(_: RunAtWork) -> tuple[Check]:
    raise TransientError("the disk is away")


def rots_when_published(patch: pytest.MonkeyPatch, target: Path) -> None:
    """A file changes behind its identity."""
    check = tables._check_published

    def then(work: RunAtWork) -> tuple[Check]:
        held = kept_facts(work.run, HeldFiles)
        rot(target / next(iter(held.files)))
        return check(work)

    patch.setattr(tables, "_check_published", then)


def test_what_cannot_be_caught_up_with_is_refused_by_name(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    base(first, tmp_path, 1, **ALONE)
    refused(tmp_path, second, "since and before: a catch-up isn't tried with before", **ALONE, before=str(first))
    refused(tmp_path, second, "its plan has another .*operators, to", accept_empty=1.0)


def test_a_value_that_cannot_be_written_is_refused_as_in_any_run(tmp_path: Path) -> None:
    """To convert everything would not help."""
    database = of_flink_1(tmp_path)
    base(database.checkpoint(1), tmp_path, 1, **ALONE)
    opaque = b"\1\0com.acme.Opaqu" + bytes([ord("e") | 0x80]) + b"\1\0"
    database.flush(database.state.with_changes(blobs={**database.state.blobs, "key-1": ({"u": opaque}, NOW)}))
    with pytest.raises(RefusedError, match=r"key-1.*com\.acme\.Opaque") as caught:
        caught_up(database.checkpoint(2), tmp_path, 2, 1, **ALONE)
    assert "since" not in str(caught.value)
