"""Native savepoints that Stateferry wrote: real Flink restores them, and goes on with them by itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.files.storage import Location
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import AbsoluteFile, NativeHandle, RelativeFile
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from stateferry.runs.control.claimable import claimable_metadata
from tests.flink.harness import FlinkError, FlinkHarness, Made
from tests.flink.jars import VERSIONS
from tests.flink.jobs import Job, Timers
from tests.flink.judge import Change, Make, all_dumped, check_restored, dealt, key_groups
from tests.flink.scenarios import COVERING, SCENARIOS, Case
from tests.flink.test_rewrite import has_pojo_keys
from tests.support.rewriting import rewrite

pytestmark = pytest.mark.flink
Flink = Callable[[str], FlinkHarness]

CHANGES: Mapping[str, Change] = {
    "same": Change(),
    "fewer-subtasks": Change(parallelism=2),
    "more-subtasks": Change(parallelism=7),
    "max-256": Change(max_parallelism=256),
    "max-100-fewer-subtasks": Change(parallelism=2, max_parallelism=100),
    "max-4096": Change(max_parallelism=4096),
}


def _pairs() -> dict[str, tuple[Case, Change]]:
    """Each case in one layout, taken in turn."""
    out = {}
    for i, (name, case) in enumerate(COVERING.items()):
        # What has finished or is raw keeps its layout; a POJO's hash is its own code.
        fixed = case.scenario in ("finished", "raw-state")
        possible = [one for one in CHANGES if not (has_pojo_keys(case.job) and CHANGES[one].max_parallelism)]
        layout = "same" if fixed else possible[i % len(possible)]
        out[f"{name}-{layout}"] = case, CHANGES[layout]
    return out


PAIRS = _pairs()
# What a plain run of the tests tries.
_TRIED = ("kinds-ttl", "windows", "lists-ttl", "legacy-wide", "operator-state")


def _marked(names: Iterable[str]) -> list[Any]:
    tried = [next(name for name, (case, _) in PAIRS.items() if case.scenario == scenario) for scenario in _TRIED]
    return [pytest.param(name, marks=() if name in tried else pytest.mark.full) for name in names]


LATER = [pytest.param(VERSIONS[0]), pytest.param(VERSIONS[1], marks=pytest.mark.full)]


def written(made: Made, job: Job, change: Change, target: Path) -> Path:
    source = Savepoint.open(str(made.path))
    native = frozenset(operator.id for operator in source.metadata.operators)
    rewrite(source, str(target), replace(change.layout(job), native=native))
    return target


def on_rocksdb(job: Job) -> Job:
    """The job with RocksDB, in which its timers lie as well."""
    settings = {name: value for name, value in job.settings.items() if "timer-service" not in name}
    return replace(job, backend="rocksdb", settings=settings)


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("name", _marked(PAIRS))
def test_a_running_job_finds_every_entry(name: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    case, change = PAIRS[name]
    source = made(case.version, case.job)
    target = written(source, case.job, change, tmp_path / "native")
    _expect_native(target)
    started = on_rocksdb(change.job(case.job))
    moved = change.max_parallelism is not None
    restored = check_restored(flink(case.version), target, started, source, moved=moved)
    if moved and "kryo" not in case.scenario and "subclass" not in case.scenario:
        assert key_groups(all_dumped(target, case.job)) == key_groups(restored.lines)
    if any(operator.operator_states for operator in case.job.operators):
        unchanged = on_rocksdb(replace(change, max_parallelism=None).job(case.job))
        assert dealt(restored) == dealt(flink(case.version).restore(source.path, unchanged))


def _expect_native(savepoint: Path) -> None:
    """Every file is beside `_metadata`, and none is shared: a job that claimed such files couldn't be restored."""
    opened = Savepoint.open(str(savepoint))
    for operator in opened.keyed_operators():
        for task in operator.subtasks:
            assert task.managed_keyed is None
            if isinstance(handle := task.native_keyed, NativeHandle):
                assert handle.shared == ()
                assert all(isinstance(file.stream, RelativeFile) for file in handle.private)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("claim", [True, False], ids=["claimed", "not-claimed"])
@pytest.mark.parametrize("version", LATER)
def test_the_job_goes_on_and_rescales_by_itself(
    version: str, claim: bool, made: Make, flink: Flink, tmp_path: Path
) -> None:
    job = SCENARIOS["kinds-ttl"]
    # Timers that are due would fire on the way.
    operators = tuple(replace(o, timers=o.timers and Timers(event=2, far=1)) for o in job.operators)
    job = replace(job, operators=operators)
    source = made(version, job)
    target = written(source, job, Change(parallelism=2), tmp_path / "native")
    settings = {"execution.checkpointing.incremental": "true"}
    going_on = Change(parallelism=2).job(replace(job, settings=settings, inline_threshold=0))
    path = target
    for parallelism, ingest in ((2, "false"), (3, "false"), (1, "true"), (2, "false")):
        changed = replace(
            Change(parallelism=parallelism).job(going_on),
            settings={**settings, "state.backend.rocksdb.use-ingest-db-restore-mode": ingest},
        )
        path = flink(version).carry(path, changed, format_="CHECKPOINT", claim=claim)
        opened = Savepoint.open(str(path))
        assert opened.format == "native"
    check_restored(flink(version), path, Change(parallelism=2).job(job), source, moved=False)


@pytest.mark.parametrize("version", LATER)
def test_a_job_that_claims_links_uses_their_tables_and_leaves_the_target(
    version: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    """Its first checkpoint has the tables where they are, which one of a job that claims the target itself hasn't."""
    job = SCENARIOS["kinds-ttl"]
    operators = tuple(replace(o, timers=o.timers and Timers(event=2, far=1)) for o in job.operators)
    settings = {"execution.checkpointing.incremental": "true"}
    source = made(version, replace(job, operators=operators))
    job = replace(job, operators=operators, settings=settings, inline_threshold=0)
    target = written(source, job, Change(), tmp_path / "native")
    before = {file.name: file.read_bytes() for file in target.iterdir()}
    own = tmp_path / "own"
    shutil.copytree(target, own)
    assert _tables(flink(version).carry(own, job, format_="CHECKPOINT", claim=True), own) == set()

    links = tmp_path / "native-claimable"
    shutil.copytree(target, links, copy_function=os.link)
    metadata = claimable_metadata(Savepoint.open(str(target)).metadata, Location.of(str(links)))
    (links / METADATA).unlink()
    (links / METADATA).write_bytes(build_metadata(metadata))
    path = flink(version).carry(links, job, format_="CHECKPOINT", claim=True)
    used = _tables(path, links)
    assert used == {name for name in before if name.endswith(".sst")}
    assert all((links / name).samefile(target / name) for name in used)
    # The job goes on with these files, and does so after a rescale, too.
    for parallelism in (3, 2):
        changed = Change(parallelism=parallelism).job(job)
        path = flink(version).carry(path, changed, format_="CHECKPOINT", claim=True)
    check_restored(flink(version), path, Change(parallelism=2).job(job), source, moved=False)
    assert {file.name: file.read_bytes() for file in target.iterdir()} == before


def _tables(checkpoint: Path, folder: Path) -> set[str]:
    """The names of the files in the folder that the checkpoint uses."""
    streams = [
        stream
        for operator in Savepoint.open(str(checkpoint)).metadata.operators
        for subtask in operator.subtasks
        for stream in subtask.streams()
    ]
    places = [Path(one.uri.removeprefix("file:")) for one in streams if isinstance(one, AbsoluteFile)]
    return {place.name for place in places if place.parent == folder}


@pytest.mark.parametrize("version", LATER)
def test_operators_may_differ(version: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    job = replace(SCENARIOS["several-operators"], backend="rocksdb")
    source = made(version, job)
    opened = Savepoint.open(str(source.path))
    first, *others = opened.keyed_operators()
    assert others
    rewrite(opened, str(tmp_path / "mixed"), Layout(native=frozenset([first.id])))
    check_restored(flink(version), tmp_path / "mixed", job, source, moved=False)


@pytest.mark.parametrize("version", LATER)
def test_a_job_on_the_heap_says_that_it_cant_restore_it(version: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    job = SCENARIOS["legacy-string-long"]
    target = written(made(version, job), job, Change(), tmp_path / "native")
    with pytest.raises(FlinkError, match="Unexpected state handle type"):
        flink(version).restore(target, replace(job, backend="hashmap"))
