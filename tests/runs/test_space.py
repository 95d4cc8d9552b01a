"""Room for what will be written: an estimate that is near the truth, and a refusal that says how much is missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkstate.errors import PlanError
from flinkstate.files.storage import Location
from flinkstate.keyed.compression import Compression
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.runs.checks import space
from stateferry.runs.checks.plan_check import resolve
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.checks.space import Room, check_files, check_room, estimate, free_bytes, on_one_disk
from stateferry.runs.plan.plan_json import plan_of
from stateferry.steps.snapshot import count
from stateferry.steps.workers import InProcess
from tests.support.changes import conversion_of
from tests.support.rewriting import rewrite


def resolved(source: Path, ttl: int | None = None, **more: object) -> ResolvedPlan:
    state = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState", "ttl_ms": ttl}
    operators = [{"operator": "main", "states": [state]}]
    values = {"job": "j", "source": str(source), "target": f"{source}-target", "operators": operators, **more}
    plan = plan_of({**values, "now": 10**12, "keep_expired": ttl is not None})
    return resolve(plan, Savepoint.open(plan.source))


def sizes_in(plan: ResolvedPlan) -> Counter[tuple[str, str, int]]:
    """What the snapshot finds, by operator, state and key group."""
    return count(InProcess(), plan).inventory.sizes


def estimated(plan: ResolvedPlan, at_once: int = 1) -> Room:
    return estimate(plan, sizes_in(plan), at_once)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.name != "_metadata")


@pytest.mark.part
@pytest.mark.parametrize("ttl", [None, 30 * 86_400_000])
@pytest.mark.parametrize("migrated", [0.0, 0.5])
def test_the_estimate_is_near_what_is_written(tmp_path: Path, ttl: int | None, migrated: float) -> None:
    state = DemoState(
        keys=5000, entries=20, migrated=migrated, ttl=ttl, now=10**12, parallelism=3, max_parallelism=128, seed=7
    )
    write_demo_savepoint(str(tmp_path / "demo"), state)
    plan = resolved(tmp_path / "demo", ttl)
    room = estimated(plan)
    rewrite(
        plan.source, str(tmp_path / "new"), plan.layout, transforms={o.old.id: o.transform for o in plan.rewrites()}
    )
    truth = size_of(tmp_path / "new")
    assert truth > 1.3 * size_of(tmp_path / "demo")
    assert truth * 0.9 < room.bytes < truth * 1.15
    assert "main grows" in room.how


@pytest.mark.parametrize("native", [False, True])
def test_only_the_blobs_grow_wherever_they_lie_in_a_large_key_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    monkeypatch.setattr(space, "_SAMPLED_BYTES", 1 << 12)
    monkeypatch.setattr(space, "_MOST_PASSED", 1 << 16)
    # Rows that the job has made lie behind the blobs, and beside them are a flag and other states.
    state = DemoState(5000, 20, 0.7, None, 10**12, 1, 2, 7)
    write_demo_savepoint(str(tmp_path / "plain"), state)
    plain, layout = Savepoint.open(str(tmp_path / "plain")), Layout()
    if native:
        layout = Layout(native=frozenset(one.id for one in plain.keyed_operators()))
    rewrite(plain, str(tmp_path / "demo"), layout)
    plan = resolved(tmp_path / "demo", no_timers=True, output_format="canonical")
    rewrite(
        plan.source, str(tmp_path / "new"), plan.layout, transforms={o.old.id: o.transform for o in plan.rewrites()}
    )
    truth = size_of(tmp_path / "new")
    assert truth * 0.9 < estimated(plan).bytes < truth * 1.15


def test_before_the_source_is_read_nothing_is_taken_to_grow(tmp_path: Path) -> None:
    write_demo_savepoint(str(tmp_path / "demo"), DemoState(500, 20, 0.5, None, 10**12, 3, 128, 7))
    room = estimate(resolved(tmp_path / "demo"), {})
    assert (room.bytes, room.how) == (size_of(tmp_path / "demo"), "the sizes of all files")


def test_files_have_names_in_two_folders_of_one_disk(tmp_path: Path) -> None:
    one, other = (Location.of(str(tmp_path / name)) for name in ("one", "other"))
    assert on_one_disk(one, other)
    assert not on_one_disk(one, Location.of("/proc/self"))


@pytest.mark.matrix(most=5)
@pytest.mark.parametrize("compression", ["auto", "snappy", "stored", "none", "source"])
@pytest.mark.parametrize("found", [Compression.SNAPPY, Compression.STORED, Compression.NONE])
def test_the_estimate_knows_what_is_no_longer_compressed(tmp_path: Path, found: Compression, compression: str) -> None:
    write_demo_savepoint(str(tmp_path / "plain"), DemoState(5000, 20, 0.5, None, 10**12, 3, 128, 7))
    rewrite(Savepoint.open(str(tmp_path / "plain")), str(tmp_path / "demo"), Layout(compression=found))
    plan = resolved(tmp_path / "demo", compression=compression)
    room = estimated(plan)
    rewrite(
        plan.source, str(tmp_path / "new"), plan.layout, transforms={o.old.id: o.transform for o in plan.rewrites()}
    )
    truth = size_of(tmp_path / "new")
    is_packed = compression == "snappy" or (found is Compression.SNAPPY and compression in ("auto", "source"))
    assert truth * (1 if is_packed else 0.9) < room.bytes < truth * (6 if is_packed else 1.3)


def test_nothing_grows_where_nothing_is_converted(tmp_path: Path) -> None:
    state = DemoState(keys=0, entries=2, migrated=0, ttl=None, now=0, parallelism=3, max_parallelism=128, seed=7)
    write_demo_savepoint(str(tmp_path / "demo"), state)
    assert estimated(resolved(tmp_path / "demo")).bytes == size_of(tmp_path / "demo")


def test_free_space_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert (free_bytes(str(tmp_path / "a" / "b")) or 0) > 0
    assert free_bytes("s3://bucket/a") is None


def test_too_little_room_is_refused_for_all_of_a_disk_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    check_room({one: 500, two: 500, "s3://bucket/a": 10**18}, "guesses")
    with pytest.raises(
        PlanError, match=r"expected 1,001 bytes free for .*one and .*two, found 1,000: free some space"
    ) as caught:
        check_room({one: 500, two: 501}, "guesses")
    assert str(caught.value).endswith("estimated from guesses")


def test_the_estimate_knows_how_far_rocksdb_has_compressed_its_rows(tmp_path: Path) -> None:
    state = DemoState(20_000, 20, 0.5, None, 10**12, 3, 128, 7)
    write_demo_savepoint(str(tmp_path / "demo"), state)
    demo = Savepoint.open(str(tmp_path / "demo"))
    operators = frozenset(operator.id for operator in demo.keyed_operators())
    rewrite(demo, str(tmp_path / "native"), Layout(native=operators))
    assert size_of(tmp_path / "native") < 0.8 * size_of(tmp_path / "demo")
    canonical, native = (estimated(resolved(tmp_path / name, no_timers=True)).bytes for name in ("demo", "native"))
    assert 0.9 * canonical < native < 1.2 * canonical


def test_large_key_groups_that_are_not_in_order_need_room_once_more(tmp_path: Path) -> None:
    state = DemoState(5000, 20, 0.5, None, 10**12, 3, 16, 7)
    write_demo_savepoint(str(tmp_path / "demo"), state)
    more: dict[str, Any] = {"output_format": "native", "no_timers": True}
    assert estimated(resolved(tmp_path / "demo"), 2).merged == 0
    room = estimated(resolved(tmp_path / "demo", **more), 2)
    assert room.bytes / 16 * 1.5 < room.merged < room.bytes / 16 * 3
    assert estimated(resolved(tmp_path / "demo", **more), 1).merged < 0.6 * room.merged
    # At another max parallelism the key groups have other sizes.
    assert estimated(resolved(tmp_path / "demo", **more, max_parallelism=64), 1).merged < room.merged / 4
    assert estimated(resolved(tmp_path / "demo", **more), 100).merged > 0.9 * room.bytes
    # Rows of RocksDB's own files are in order where they stay.
    demo = Savepoint.open(str(tmp_path / "demo"))
    rewrite(demo, str(tmp_path / "native"), Layout(native=frozenset(one.id for one in demo.keyed_operators())))
    plan = resolved(tmp_path / "native", **more)
    assert estimated(plan, 2).merged > 0
    assert estimated(replace(plan, conversion=conversion_of(plan.source, plan.layout)), 2).merged == 0


@pytest.mark.parametrize("more", [{}, {"parallelism": 2}, {"max_parallelism": 96}, {"compression": "snappy"}])
def test_a_file_that_the_store_does_not_take_is_refused_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    write_demo_savepoint(str(tmp_path / "demo"), DemoState(5000, 20, 0.5, None, 10**12, 3, 128, 7))
    plan, target = resolved(tmp_path / "demo", **more), Location.of(str(tmp_path / "new"))
    sizes = sizes_in(plan)
    check_files(plan, target, sizes)
    size = estimated(plan).bytes if "compression" not in more else size_of(tmp_path / "demo")
    each = size // plan.layout.of(plan.operators[0].operator).parallelism
    monkeypatch.setattr(space, "most_bytes", lambda _: int(1.2 * each))
    check_files(plan, target, sizes)
    monkeypatch.setattr(space, "most_bytes", lambda _: each // 2)
    with pytest.raises(PlanError, match=r"that of a subtask of main would have about .*--parallelism"):
        check_files(plan, target, sizes)
    check_files(resolved(tmp_path / "demo", **more, output_format="native", no_timers=True), target, sizes)
