"""Savepoints of real Flink, rewritten in other layouts and restored in a running job of real Flink."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.errors import RefusedError
from flinkstate.hashing.key_groups import KeyGroupRange, range_for_operator_index
from flinkstate.keyed.compression import Compression
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from tests.flink.harness import FlinkHarness, by_state
from tests.flink.jars import VERSIONS
from tests.flink.jobs import Job
from tests.flink.judge import (
    Change,
    Make,
    all_dumped,
    check_restored,
    dealt,
    described_states,
    handles,
    key_groups,
    plain,
    raw_entries,
    rewritten,
    with_parallelism,
)
from tests.flink.scenarios import BACKENDS, COVERING, SCENARIOS, Case
from tests.support.rewriting import rewrite

pytestmark = pytest.mark.flink
Flink = Callable[[str], FlinkHarness]

IDENTITY = Change()
CHANGES: Mapping[str, Change] = {
    "fewer-subtasks": Change(parallelism=2),
    "more-subtasks": Change(parallelism=7),
    "one-subtask": Change(parallelism=1),
    "compressed": Change(compression=Compression.SNAPPY),
    "stored": Change(compression=Compression.STORED),
    "uncompressed": Change(compression=Compression.NONE),
    "max-256": Change(max_parallelism=256),
    "max-300-more-subtasks": Change(parallelism=5, max_parallelism=300),
    "max-100-fewer-subtasks-compressed": Change(parallelism=2, max_parallelism=100, compression=Compression.SNAPPY),
    "max-300-stored": Change(max_parallelism=300, compression=Compression.STORED),
    "max-128-more-subtasks": Change(parallelism=6, max_parallelism=128),
    "max-4096-uncompressed": Change(max_parallelism=4096, compression=Compression.NONE),
}
# Each in every layout; the others in one, taken in turn.
_EVERY_LAYOUT = (
    *("legacy-string-long", "legacy-string-long-ttl", "legacy-wide", "legacy-wider", "legacy-snappy"),
    *("legacy-files-and-inlined", "kinds-ttl", "kinds-in-windows-ttl", "kinds-in-strings", "windows"),
    *("operator-state", "several-operators", "sparse", "empty"),
)
_KEPT_MAX_PARALLELISM = tuple(name for name, change in CHANGES.items() if change.max_parallelism is None)
_NEW_MAX_PARALLELISM = tuple(name for name, change in CHANGES.items() if change.max_parallelism is not None)


def has_pojo_keys(job: Job) -> bool:
    """Or such as Scala's, whose hash is their own code as well."""
    return any(operator.key is not None and re.match("Address|Scala", operator.key) for operator in job.operators)


def _pairs() -> Mapping[str, tuple[Case, Change]]:
    out = {}
    for i, (name, case) in enumerate(COVERING.items()):
        if case.scenario in ("finished", "raw-state"):
            continue
        layouts = _KEPT_MAX_PARALLELISM if has_pojo_keys(case.job) else tuple(CHANGES)
        if case.scenario not in _EVERY_LAYOUT:
            new = () if has_pojo_keys(case.job) else (_NEW_MAX_PARALLELISM[i % len(_NEW_MAX_PARALLELISM)],)
            layouts = new or (_KEPT_MAX_PARALLELISM[i % len(_KEPT_MAX_PARALLELISM)],)
        out.update({f"{name}-{layout}": (case, CHANGES[layout]) for layout in layouts})
    return out


PAIRS = _pairs()
_COVERING_OF = {(case.version, case.scenario): case for case in COVERING.values()}
_THERE_AND_BACK = [
    name
    for name, case in COVERING.items()
    if case.version == VERSIONS[0] and case.scenario.startswith(("key-", "kinds")) and not has_pojo_keys(case.job)
]


@pytest.mark.matrix(most=6)
@pytest.mark.parametrize("name", COVERING)
def test_unchanged_everything_is_the_same_to_the_byte(name: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    case = COVERING[name]
    source = made(case.version, case.job)
    target = rewritten(source, case.job, IDENTITY, tmp_path / "same")
    assert raw_entries(target) == raw_entries(source.path)
    assert handles(target) == handles(source.path)
    if "subclass" not in case.scenario:
        # Each subtask describes the subclasses that it met; a rewrite has all subtasks describe all of them.
        assert described_states(target) == described_states(source.path)
    check_restored(flink(case.version), target, case.job, source, moved=False)


@pytest.mark.matrix(most=6)
@pytest.mark.parametrize("name", PAIRS)
def test_another_layout_holds_the_same_in_a_running_job(name: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    case, change = PAIRS[name]
    source = made(case.version, case.job)
    target = rewritten(source, case.job, change, tmp_path / "rewritten")
    _check_ranges(target, change)
    if change.max_parallelism is None:
        assert raw_entries(target) == raw_entries(source.path)
    started = change.job(case.job)
    restored = check_restored(flink(case.version), target, started, source, moved=change.max_parallelism is not None)
    if change.max_parallelism is not None and not re.search("kryo|subclass", case.scenario):
        # A timer that lies in another key group of the same subtask would fire all the same.
        assert key_groups(all_dumped(target, case.job)) == key_groups(restored.lines)
    if any(operator.operator_states for operator in case.job.operators):
        unchanged = replace(change, max_parallelism=None).job(case.job)
        original = flink(case.version).restore(source.path, unchanged)
        assert dealt(restored) == dealt(original)


def _check_ranges(savepoint: Path, change: Change) -> None:
    ranges = _ranges(savepoint)
    for operator in Savepoint.open(str(savepoint)).keyed_operators():
        assert change.max_parallelism in (None, operator.max_parallelism)
        assert change.parallelism in (None, operator.parallelism)
        for index in range(operator.parallelism):
            expected = range_for_operator_index(operator.max_parallelism, operator.parallelism, index)
            assert ranges.pop((operator.hex_id, index)) == expected
    assert ranges == {}


def _ranges(savepoint: Path) -> dict[tuple[str, int], KeyGroupRange]:
    """The key groups of each subtask's file, by its operator."""
    return {
        (operator.hex_id, task.index): task.managed_keyed.range
        for operator in Savepoint.open(str(savepoint)).metadata.operators
        for task in operator.subtasks
        if task.managed_keyed is not None
    }


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_dumped_is_what_flink_restored_in_every_key_group(
    version: str, backend: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    """At another max parallelism Flink tells the key group of each key."""
    for scenario in ("legacy-string-long-ttl", "kinds-in-windows-ttl"):
        job = replace(SCENARIOS[scenario], backend=backend)
        change = Change(parallelism=4, max_parallelism=300)
        target = rewritten(made(version, job), job, change, tmp_path / scenario)
        restored = flink(version).restore(target, change.job(job))
        found = by_state(all_dumped(target, job))
        assert plain(found, key_groups=True) == plain(by_state(restored.lines), key_groups=True)


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("scenario", ["legacy-string-long-ttl", "kinds", "operator-state", "windows"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_of_yet_another_parallelism_finds_the_same(
    version: str, scenario: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    """Then Flink cuts the files along its own ranges, and deals out operator state once more."""
    case = _COVERING_OF[version, scenario]
    source = made(version, case.job)
    for i, change in enumerate((Change(parallelism=5), Change(parallelism=2, max_parallelism=300))):
        target = rewritten(source, case.job, change, tmp_path / str(i))
        for parallelism in (1, 4):
            started = with_parallelism(change.job(case.job), parallelism)
            check_restored(flink(version), target, started, source, moved=change.max_parallelism is not None)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_that_sets_no_max_parallelism_adopts_the_new_one(
    version: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    case = _COVERING_OF[version, "legacy-default-max"]
    source = made(version, case.job)
    target = rewritten(source, case.job, Change(max_parallelism=777), tmp_path / "rewritten")
    check_restored(flink(version), target, case.job, source, moved=True)


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_as_many_subtasks_as_key_groups(version: str, backend: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    small = replace(SCENARIOS["kinds"], max_parallelism=8, backend=backend)
    source = made(version, small)
    for i, change in enumerate((Change(parallelism=8), Change(parallelism=11, max_parallelism=11))):
        target = rewritten(source, small, change, tmp_path / str(i))
        _check_ranges(target, change)
        check_restored(flink(version), target, change.job(small), source, moved=i > 0)


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("name", _THERE_AND_BACK)
def test_there_and_back_is_the_same_to_the_byte(name: str, made: Make, tmp_path: Path) -> None:
    """Every key comes back to the key group that Flink had put it in."""
    case = COVERING[name]
    source = made(case.version, case.job)
    assert case.job.max_parallelism is not None
    there = rewritten(source, case.job, Change(parallelism=4, max_parallelism=300), tmp_path / "there")
    assert raw_entries(there) != raw_entries(source.path)
    back = tmp_path / "back"
    home = Change(parallelism=case.job.parallelism, max_parallelism=case.job.max_parallelism)
    rewrite(Savepoint.open(str(there)), str(back), home.layout(case.job))
    assert raw_entries(back) == raw_entries(source.path)
    assert _ranges(back) == _ranges(source.path)


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize(
    "scenario", ["legacy-string-long-ttl", "legacy-tuple-pojo", "kinds-in-windows", "operator-state"]
)
@pytest.mark.parametrize("change", [IDENTITY, Change(parallelism=4, max_parallelism=300)], ids=["same", "max-300"])
@pytest.mark.parametrize("backends", [BACKENDS, BACKENDS[::-1]], ids="-to-".join)
def test_a_later_flink_and_the_other_backend_restore_it(
    backends: tuple[str, str], change: Change, scenario: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    job = SCENARIOS[scenario]
    moved = change.max_parallelism is not None
    for version, later in (("1.20.0", "2.3.0"), ("1.20.0", "1.20.0"), ("2.3.0", "2.3.0")):
        source = made(version, replace(job, backend=backends[0]))
        target = rewritten(source, job, change, tmp_path / f"{version}-{later}")
        started = replace(change.job(job), backend=backends[1])
        check_restored(flink(later), target, started, source, moved=moved)


@pytest.mark.parametrize("scenario", ["legacy-pojo-list-ttl", "key-Address"])
@pytest.mark.parametrize("version", VERSIONS)
def test_keys_whose_hash_is_their_own_code_keep_their_max_parallelism(
    version: str, scenario: str, made: Make, tmp_path: Path
) -> None:
    case = _COVERING_OF[version, scenario]
    for max_parallelism in (100, 256):
        with pytest.raises(
            RefusedError, match=r"\(Address\).*another max parallelism.*pojo\.Address is that class's own"
        ):
            rewritten(made(version, case.job), case.job, Change(max_parallelism=max_parallelism), tmp_path / "refused")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_finished_subtasks_keep_their_layout(version: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    case = _COVERING_OF[version, "finished"]
    source = made(version, case.job)
    with pytest.raises(RefusedError, match="has finished subtasks: Flink can't restore them in another layout"):
        rewritten(source, case.job, Change(parallelism=2), tmp_path / "refused")
    assert list(tmp_path.iterdir()) == []
    # An operator beside it may change.
    opened = Savepoint.open(str(source.path))
    main = opened.operator("main")
    rewrite(opened, str(tmp_path / "rewritten"), Layout({main.id: 5}))
    operators = tuple(
        replace(operator, parallelism=5) if operator.uid == "main" else operator for operator in case.job.operators
    )
    job = replace(case.job, operators=operators)
    check_restored(flink(version), tmp_path / "rewritten", job, source, moved=False)


@pytest.mark.parametrize("version", VERSIONS)
def test_raw_state_keeps_its_layout(version: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    case = _COVERING_OF[version, "raw-state"]
    source = made(version, case.job)
    assert {line["state"] for line in source.lines} > {"raw-keyed", "raw-operator"}
    opened = Savepoint.open(str(source.path))
    keyed, plain_, main = (opened.operator(uid) for uid in ("keyed", "plain", "main"))
    for layout, refusal in (
        (Layout({keyed.id: 2}), f"{keyed.label} has raw keyed state"),
        (Layout(max_parallelism=256), f"{keyed.label} has raw keyed state"),
        (Layout({plain_.id: 2}), f"{plain_.label} has raw operator state"),
    ):
        with pytest.raises(
            RefusedError, match=f"operator {refusal}, which only the operator itself can distribute: keep its"
        ):
            rewrite(opened, str(tmp_path / "refused"), layout)
    assert list(tmp_path.iterdir()) == []
    # An operator beside them may change; and Flink itself deals raw state out to other subtasks.
    rewrite(opened, str(tmp_path / "rewritten"), Layout({main.id: 5}))
    for parallelism in (case.job.parallelism, 2):
        job = with_parallelism(case.job, parallelism)
        check_restored(flink(version), tmp_path / "rewritten", job, source, moved=False)


@pytest.mark.parametrize("version", VERSIONS)
def test_compressed_operator_state_is_dealt_out_too(version: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    job = replace(SCENARIOS["operator-state"], snappy=True, inline_threshold=0)
    source = made(version, job)
    for change in (
        IDENTITY,
        Change(parallelism=2),
        Change(parallelism=5, max_parallelism=300, compression=Compression.NONE),
    ):
        target = rewritten(source, job, change, tmp_path / f"to-{change.parallelism}")
        started = change.job(job)
        restored = check_restored(flink(version), target, started, source, moved=change.max_parallelism is not None)
        original = flink(version).restore(source.path, replace(started, max_parallelism=job.max_parallelism))
        assert dealt(restored) == dealt(original)
