"""Runs that put back what an upgrade lost, by the savepoint from before it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import DamagedError, PlanError, RefusedError, RejectedError
from flinkstate.keyed.header import VALUE_SERIALIZER, BackendKind, StateMeta
from flinkstate.keyed.keyed_file import KeyedFile, Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.metadata import InlineBytes, OperatorHandle, PartitionedState
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.built_snapshots import kryo_snapshot, simple_snapshot
from flinkstate.serializers.types import PojoType, Scalar
from flinkstate.values.codecs import codec
from flinkstate.writing.operator_file import OperatorHeader, build_operator_header
from stateferry.changes.counts import LossCounts
from stateferry.changes.upgrade.flat_maps import FlatLosses
from stateferry.changes.upgrade.for_other_kryo import states_by_kryo
from stateferry.changes.upgrade.lost_entries import Fate
from stateferry.changes.upgrade.restore_lost import WithLosses
from stateferry.cli import main
from stateferry.proof.expected.check_result import Outcome
from stateferry.runs.checks.before_upgrade import hold_against, nothing_in_common
from stateferry.runs.guards.all_losses import _key as shown_key
from stateferry.runs.guards.all_losses import all_losses
from stateferry.runs.guards.lost_values import expect_same_job
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.step_facts import SnapshotFacts
from tests.steps.test_for_another_flink import ALONE as RESCALED
from tests.steps.test_for_another_flink import GOLDEN, MIGRATED
from tests.steps.test_native_source import run

BEFORE, UPGRADED = GOLDEN / "hint-hash-map-1.20-rocksdb", GOLDEN / "upgraded-hint-hash-map-2.3-rocksdb"
AGED, UPGRADED_AGED = GOLDEN / "hint-hash-map-ttl-1.20-rocksdb", GOLDEN / "upgraded-hint-hash-map-ttl-2.3-rocksdb"
DAY = 86_400_000
ALONE: dict[str, Any] = {name: value for name, value in RESCALED.items() if name != "parallelism"} | {"to": "flink-2"}


def _kept(home: Any) -> SnapshotFacts:
    found = home.facts(SnapshotFacts)
    assert isinstance(found, SnapshotFacts)
    return found


def test_a_key_is_shown_without_the_lengths_behind_its_parts() -> None:
    state = KeyedState(
        "s", StateKind.MAP, Scalar.STRING, Scalar.STRING, Scalar.STRING, Scalar.LONG, ttl=False, asynchronous=False
    )
    long = "c" * 300
    key, namespace, user_key = (codec(Scalar.STRING).encode(text) for text in ("ab", long, "d"))
    # As Flink writes them: of less than 256 bytes the length is one byte.
    stored = key + b"\3" + namespace + len(namespace).to_bytes(2, "little") + user_key
    assert shown_key(stored, state) == {"key": "ab", "namespace": long, "user_key": "d"}


def test_what_was_lost_is_put_back(tmp_path: Path) -> None:
    """The upgraded job has written a part of the maps anew without reading them."""
    report, made = run(UPGRADED, tmp_path, before=str(BEFORE), restore_lost=True, **ALONE)
    assert report.is_green
    by_name = {check.name: check for check in report.checks}
    entries = by_name["main/mainState: entries with those that the upgrade lost"]
    assert entries.expected.startswith("115 = 113 in the source + 2 put back (of the others before the upgrade 1 over")
    assert entries.actual == "115"
    assert by_name["main/mainState: sample read plainly"].outcome is Outcome.PASSED
    assert [note for note in _kept(made).notes if "2 lost" in note and "2 put back" in note]
    assert not [note for note in _kept(made).notes if "not compared" in note]


def test_without_a_word_nothing_is_put_back(tmp_path: Path) -> None:
    report, made = run(UPGRADED, tmp_path, before=str(BEFORE), **ALONE)
    assert report.is_green
    assert not [check for check in report.checks if "the upgrade lost" in check.name]
    (note,) = [note for note in _kept(made).notes if "2 lost" in note]
    assert note.endswith("--restore-lost puts back what is lost")


def test_the_time_to_live_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"state mainState of operator main has TTL, .*--state-ttl main/mainState=30d"):
        run(UPGRADED_AGED, tmp_path, before=str(AGED), restore_lost=True, **ALONE)
    told = {"state_ttls": ("main/mainState=30d",)}
    report, made = run(UPGRADED_AGED, tmp_path / "told", before=str(AGED), restore_lost=True, **ALONE, **told)
    assert report.is_green
    counts = (_kept(made).losses or {})["main/mainState"]
    assert (counts.rows, counts.found, counts.equal, counts.overwritten, counts.removed) == (17, 17, 9, 3, 5)


def test_what_has_expired_may_be_left_out_as_well(tmp_path: Path) -> None:
    dropping = {"state_ttls": ("main/mainState=3650d:drop",), "now": _between(UPGRADED_AGED) + 3650 * DAY}
    report, _ = run(UPGRADED_AGED, tmp_path, before=str(AGED), restore_lost=True, **ALONE, **dropping)
    assert report.is_green
    by_name = {check.name: check for check in report.checks}
    entries = by_name["main/mainState: entries with those that the upgrade lost"]
    assert 0 < int(entries.actual) < sum(len(map_ or ()) for map_ in _maps(UPGRADED_AGED).values())


def _between(savepoint: Path) -> int:
    """A moment between the first and the last timestamp."""
    with (savepoint / "expected.jsonl").open(encoding="ascii") as file:
        lines = [json.loads(line) for line in file]
    stamps = sorted(line["timestamp"] for line in lines if line["state"] == "mainState")
    return int(stamps[len(stamps) // 2])


def _without_a_key(before: FlatLosses) -> bytes:
    """A fault: the first entry that is there is left out."""
    entries = dict(before.now.entries) | {one.key: one.old for one in before.losses if one.fate is Fate.LOST}
    return before.now.with_entries(list(entries.items())[1:])


def test_plain_code_sees_a_fault_in_what_both_sides_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlatLosses, "put_back", _without_a_key)
    with pytest.raises(RejectedError) as refused:
        run(UPGRADED, tmp_path, before=str(BEFORE), restore_lost=True, **ALONE)
    assert "main/mainState: sample read plainly" in str(refused.value)
    assert "main/mainState: entries with those that the upgrade lost" in str(refused.value)


def test_a_result_in_which_nothing_was_put_back_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unchanged(self: WithLosses, key_group: int, found: Any) -> Any:
        return self.rewrite.sections(key_group, found)

    monkeypatch.setattr(WithLosses, "sections", unchanged)
    with pytest.raises(RejectedError) as refused:
        run(UPGRADED, tmp_path, before=str(BEFORE), restore_lost=True, **ALONE)
    for check in ("carried over, written by Kryo 5", "sample read plainly", "entries with those that the upgrade lost"):
        assert f"main/mainState: {check}" in str(refused.value)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (AGED, "with time to live .*keys String.*: that is of another job"),
        (GOLDEN / "kryo-1.20-rocksdb", "have no keyed state by Kryo in common|of another job"),
        (UPGRADED, "is of Flink 2: give the savepoint of Flink 1"),
    ],
)
def test_the_savepoint_of_another_job_is_refused(before: Path, why: str, tmp_path: Path) -> None:
    with pytest.raises((PlanError, RefusedError), match=why):
        run(UPGRADED, tmp_path, before=str(before), **ALONE)
    assert not (tmp_path / "target").exists()


def test_a_savepoint_with_other_bytes_is_refused(tmp_path: Path) -> None:
    """The same job, but not the savepoint from which it was upgraded: one letter of a String is another."""
    other = tmp_path / "other"
    shutil.copytree(BEFORE, other)
    changed = 0
    for file in other.iterdir():
        raw = file.read_bytes()
        if file.name != "expected.jsonl" and b"\x03\x01" in raw:
            file.write_bytes(raw.replace(b"polygenelubricant", b"polygenelubricanT"))
            changed += raw != file.read_bytes()
    assert changed
    with pytest.raises(RefusedError, match=r"state mainState, key .*: Kryo 5 has not written this value, .*--before"):
        run(UPGRADED, tmp_path, before=str(other), **ALONE)


@pytest.mark.parametrize(
    ("where", "flips", "why"),
    [
        ("number of the state", 1, "expected 1 bytes of the length of a String, found 0 bytes"),
        ("number of the state", 2, r"expected a Boolean: 0 or 1, found \d+"),
        ("namespace", 2, "expected a VoidNamespace: 00, found 02"),
    ],
)
def test_a_byte_by_which_rows_would_not_be_found_is_damage(where: str, flips: int, why: str, tmp_path: Path) -> None:
    """Without a checksum the rows would be those of another state, or of other keys, and nothing of them lost."""
    other = tmp_path / "other"
    shutil.copytree(BEFORE, other)
    old = Savepoint.open(str(BEFORE))
    (operator,) = old.keyed_operators()
    file, section = next((file, one) for file in old.open_files(operator) for one in rows_of_main_state_alone(file))
    before_it, behind_the_key = int(section.starts[0]) - 1, int(section.key_ends[0]) - 1
    at = section.base + (before_it if where == "number of the state" else behind_the_key)
    damaged = other / Path(file.name).name
    raw = bytearray(damaged.read_bytes())
    assert raw[at] == 0
    raw[at] = flips
    damaged.write_bytes(raw)
    assert main(["check", str(UPGRADED), "--for", "flink-2", "--before", str(other)]) == 3
    for restore_lost in (False, True):
        with pytest.raises(DamagedError, match=rf"{damaged}, key group {section.key_group}, offset \d+: {why}"):
            run(UPGRADED, tmp_path / str(restore_lost), before=str(other), restore_lost=restore_lost, **ALONE)
        assert not (tmp_path / str(restore_lost) / "target").exists()


def rows_of_main_state_alone(file: KeyedFile) -> Iterator[Section]:
    """Yields the sections of key groups that have rows of the first state and of no other."""
    for key_group in file.handle.range:
        found = {section.state: section for section in file.sections(key_group) if len(section)}
        if found.keys() == {0}:
            yield found[0]


def test_a_newer_savepoint_than_the_one_that_was_restored_is_refused() -> None:
    """A job counts its checkpoints on from the savepoint from which it was restored."""
    source, old = Savepoint.open(str(UPGRADED)), Savepoint.open(str(BEFORE))
    for number, why in ((1, None), (2, "is newer than the savepoint .* it is checkpoint 2 .* is checkpoint 2 of the")):
        other = Savepoint(old.folder, replace(old.metadata, checkpoint_id=number))
        found, problems = hold_against(other, source, {}, {}, 0, None)
        assert len(problems) == (why is not None)
        assert why is None or re.search(why, problems[0])
        assert "in common" in next(nothing_in_common(other, source, {}, found))


def test_another_max_parallelism_or_another_operator_is_refused() -> None:
    source, old = Savepoint.open(str(UPGRADED)), Savepoint.open(str(BEFORE))
    by_kryo = {
        operator.id: states_by_kryo({state.name: state for state in source.keyed_states(operator)}, None)
        for operator in source.keyed_operators()
    }
    for change, why in (
        ({"max_parallelism": 64}, "operator main has max parallelism 128, in .* 64: the two can't be compared"),
        ({"id": b"0" * 16}, "have no keyed state by Kryo in common: it has no keyed state of operator main"),
    ):
        operators = tuple(replace(operator, **change) for operator in old.metadata.operators)
        other = Savepoint(old.folder, replace(old.metadata, operators=operators))
        found, problems = hold_against(other, source, by_kryo, {}, 0, None)
        (problem,) = problems or nothing_in_common(other, source, by_kryo, found)
        assert found == {}
        assert re.search(why, problem), problem


def test_a_pojo_with_other_fields_is_not_compared() -> None:
    old, source = (
        Savepoint.open(str(GOLDEN / f"in-pojos-{name}")) for name in ("1.20-rocksdb", "upgraded-2.3-rocksdb")
    )
    (operator,) = source.keyed_operators()
    states = states_by_kryo({state.name: state for state in source.keyed_states(operator)}, None)
    name, state = next((name, one) for name, one in states.items() if isinstance(one.value, PojoType))
    assert isinstance(state.value, PojoType)
    more = (*state.value.fields, replace(state.value.fields[0], name="newer"))
    evolved = {name: replace(state, value=replace(state.value, fields=more))}
    for now, problem in ((states, None), (evolved, f"state {name} of operator .* has other fields")):
        _, problems = hold_against(old, source, {operator.id: now}, {}, 0, None)
        found = [one for one in problems if f"state {name} " in one and "fields" in one]
        assert bool(found) == (problem is not None), problems
        assert problem is None or re.search(problem, found[0])


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        (LossCounts(rows=9, gone=9), "none of its keys is in the savepoint"),
        (LossCounts(rows=9, found=5, lost=5), "no value, and no entry of a map, is as it was"),
        (LossCounts(rows=9, found=5, lost=5, agreeing=1), ""),
        (LossCounts(rows=9, found=5, equal=5), ""),
        (LossCounts(rows=9, found=9), ""),
        (LossCounts(rows=9, found=9, agreeing=9, unread=4, lost=5), "4 rows of its savepoint have .* stateferry wrote"),
        (LossCounts(rows=9, found=8, agreeing=8, unread=1, gone=1), "1 row of its savepoint have .* stateferry wrote"),
        (LossCounts(rows=9, found=9, agreeing=9, unread=4, lost=5, misread=1), ""),
        (LossCounts(rows=9, found=9, agreeing=9, unread=9), ""),
    ],
)
def test_savepoints_with_nothing_in_common_are_refused(counts: LossCounts, why: str) -> None:
    with pytest.raises(RefusedError, match=f"/old .*{why}") if why else nullcontext():
        expect_same_job("/old", [counts])


def test_the_upgraded_job_may_have_another_parallelism(tmp_path: Path) -> None:
    _, made = run(UPGRADED, tmp_path / "wide", **(ALONE | {"to": "same", "parallelism": 7}))
    report, repaired = run(Path(made.plan.target), tmp_path, before=str(BEFORE), restore_lost=True, **ALONE)
    assert report.is_green
    counts = (_kept(repaired).losses or {})["main/mainState"]
    assert (counts.rows, counts.found, counts.equal, counts.put_back) == (17, 17, 9, 2)


def test_a_savepoint_of_flink_1_has_lost_nothing(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is of Flink 1, so no upgrade has lost anything of it"):
        run(BEFORE, tmp_path, before=str(BEFORE), **ALONE)


def test_the_way_back_comes_after_it(tmp_path: Path) -> None:
    back: dict[str, Any] = {**ALONE, "to": "flink-1.20", "all_by_kryo_5": True}
    with pytest.raises(PlanError, match=r"is put back into values by Kryo 5.* give its result to --to flink-1\.20"):
        run(UPGRADED, tmp_path, before=str(BEFORE), **back)
    assert not (tmp_path / "target").exists()
    _, repaired = run(UPGRADED, tmp_path / "repaired", before=str(BEFORE), restore_lost=True, **ALONE)
    report, made = run(Path(repaired.plan.target), tmp_path / "back", **back)
    assert report.is_green, report
    assert Savepoint.open(made.plan.target).metadata.version == 4


def test_a_migration_comes_after_it(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="state mainState of operator main is migrated in the same run"):
        run(UPGRADED, tmp_path, before=str(BEFORE), to="flink-2", **MIGRATED)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"before": "/old"}, "before: only a run for Flink 2"),
        ({"restore_lost": True, "to": "flink-2"}, "restore_lost: it isn't known what the upgrade lost"),
        ({"restore_keys": True, "to": "flink-2", "before": "/old"}, "restore_keys: only a run with restore_lost"),
    ],
)
def test_options_that_need_others(given: dict[str, Any], why: str) -> None:
    plan = {"job": "totals", "source": "/in", "target": "/out", "operators": [], "parallelism": 2}
    with pytest.raises(PlanError, match=why):
        plan_of(plan | given)


def test_check_lists_what_was_lost(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["check", str(UPGRADED), "--for", "flink-2", "--before", str(BEFORE)]
    assert main([*wanted, "--json"]) == 1
    losses = json.loads(capsys.readouterr().out)["losses"]
    (state,) = losses["states"]
    assert (state["operator"], state["state"], losses["not_compared"]) == ("main", "mainState", [])
    assert {name: state["counts"][name] for name in ("rows", "found", "equal", "lost", "overwritten", "removed")} == {
        "rows": 17, "found": 17, "equal": 9, "lost": 2, "overwritten": 1, "removed": 7,
    }  # fmt: skip
    lost = {
        (row["key"], one["entry"], one["value"]) for row in state["rows"] for one in row["lost"] if one["is"] == "lost"
    }
    before, now = (_maps(folder) for folder in (BEFORE, UPGRADED))
    assert {name for _, name, _ in lost} == {"\u01b8C锻*谦Letuj", "m9zqjl"}
    for key, name, value in lost:
        assert (before[key][name], name in now[key]) == (value, False)
    assert main(wanted) == 1
    text = capsys.readouterr().out
    assert "main/mainState: of the entries from before the upgrade: 2 lost, 1 overwritten since, 7 removed" in text
    assert '"m9zqjl": 2692175372867254701 lost' in text


def _maps(savepoint: Path) -> dict[str, dict[str, int | None]]:
    with (savepoint / "expected.jsonl").open(encoding="ascii") as file:
        lines = [json.loads(line) for line in file]
    return {line["key"]: line["value"] for line in lines if line["state"] == "mainState"}


def test_check_refuses_a_time_to_live_of_no_state(capsys: pytest.CaptureFixture[str]) -> None:
    told = ["--before", str(AGED), "--state-ttl", "main/mainStat=30d"]
    assert main(["check", str(UPGRADED_AGED), "--for", "flink-2", *told]) == 2
    assert "no state 'mainStat' by Kryo with time to live. Did you mean mainState" in capsys.readouterr().err


def test_check_names_what_it_cannot_compare(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(UPGRADED), "--for", "flink-2", "--before", str(AGED)]) == 3
    assert "that is of another job" in capsys.readouterr().err
    assert main(["check", str(UPGRADED), "--for", "flink-2", "--state-ttl", "main/mainState=1d"]) == 2
    assert "give --before as well" in capsys.readouterr().err


def test_check_cannot_tell_of_what_it_does_not_compare() -> None:
    source, old = Savepoint.open(str(UPGRADED)), Savepoint.open(str(BEFORE))
    (main_now,), (main_old,) = source.keyed_operators(), old.keyed_operators()
    by_kryo = StateMeta("tags", BackendKind.OPERATOR, (), ((VALUE_SERIALIZER, kryo_snapshot("java.util.UUID")),))
    plain = replace(by_kryo, name="counts", serializers=((VALUE_SERIALIZER, simple_snapshot(Scalar.LONG)),))
    header = build_operator_header(OperatorHeader(False, (by_kryo, plain), ()))
    first, *rest = main_old.subtasks
    states = (PartitionedState("tags", DistributionMode.SPLIT_DISTRIBUTE, (len(header),)),)
    handle = OperatorHandle(states, InlineBytes("operator state", header + b"\0"))
    with_tags = replace(main_old, subtasks=(replace(first, managed_operator=handle), *rest))
    other: dict[str, Any] = {"id": b"0" * 16, "name": None, "uid": None}
    for now, before, why in (
        ((main_now,), (main_old,), None),
        ((main_now, replace(main_now, **other)), (main_old,), "has keyed state by Kryo, and no keyed state in"),
        ((main_now,), (main_old, replace(main_old, **other)), r"has keyed state by Kryo in .* \(mainState\), and none"),
        ((main_now,), (with_tags,), r"operator state tags of operator main is by Kryo in .*, and isn't there any more"),
    ):
        wanted = Savepoint(source.folder, replace(source.metadata, operators=now))
        held = Savepoint(old.folder, replace(old.metadata, operators=before))
        found = all_losses(wanted, held, (), 0, None).not_compared
        assert len(found) == (why is not None), found
        assert why is None or re.search(why, found[0]), found
