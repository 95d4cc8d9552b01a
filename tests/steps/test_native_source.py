"""Runs on native savepoints and checkpoints: their result is that of the canonical savepoint of the same state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from stateferry.durations import MAX_MILLISECONDS
from stateferry.errors import DamagedError, PlanError
from stateferry.private_files import private_files
from stateferry.runs import source_check
from stateferry.runs.plan_check import lost_timers, open_source, planned, resolve
from stateferry.runs.publications import Control
from stateferry.runs.report import Report
from stateferry.runs.runs import Run
from stateferry.savepoint.file_names import METADATA
from stateferry.savepoint.metadata import AbsoluteFile, build_metadata
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.savepoint_properties import CANONICAL_SAVEPOINT
from stateferry.savepoint.storage import Location
from stateferry.steps.pipeline import Pipeline
from stateferry.steps.workers import InProcess
from stateferry.validation.check_result import Outcome
from tests.rocksdb.goldens import SAVEPOINTS as SNAPSHOTS
from tests.rocksdb.goldens import contents, metadata_of, opened, roots_of

GOLDEN = Path(__file__).parents[1] / "savepoints"
CANONICAL = GOLDEN / "legacy-ttl-2.3-rocksdb"
NATIVE = {
    "native savepoint": SNAPSHOTS / "rounds-legacy-ttl-native-2.3-rocksdb",
    "checkpoint": SNAPSHOTS / "rounds-legacy-ttl-checkpoint-2.3-rocksdb",
}
SNAPSHOTS_OF_KINDS = ("rounds-2-to-3-2.3-rocksdb", "rounds-3-to-2-1.20-rocksdb", "rounds-native-1.20-rocksdb")
LEGACY = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState", "ttl_ms": 10**11}
NOW = 1_704_067_200_000


def placed(golden: Path, folder: Path) -> Path:
    """A copy of the golden snapshot, with the absolute addresses that its files have there."""
    shutil.copytree(golden, folder)
    metadata = metadata_of(folder)
    metadata.write_bytes(build_metadata(opened(folder).metadata))
    return metadata.parent


def run(source: Path, folder: Path, **options: Any) -> tuple[Report, Run]:
    values = {
        "source": str(source),
        "home": str(folder / "home"),
        "target": str(folder / "target"),
        "now": NOW,
        "run_id": "one",
        "no_timers": True,
        "drop_unrepresentable_nulls": True,
        "on_contradiction": "rows",
        "accept_expired": 1.0,
        "clock_tolerance_ms": MAX_MILLISECONDS,
        "operators": [{"operator": "main", "states": [LEGACY]}],
    }
    plan = planned(values | options)
    resolved = resolve(plan, open_source(plan))
    run = Run.create(plan, 1)
    with Control(plan.catalog_uri) as control:
        lease = control.acquire(plan.job, plan.run_id)
        try:
            return Pipeline(InProcess(), run, resolved, control, lease).carry_out(), run
        finally:
            control.release(lease)


@pytest.mark.slow
def test_who_may_read_the_source_may_read_the_result(tmp_path: Path) -> None:
    source = placed(NATIVE["native savepoint"], tmp_path / "source")
    for file in (source, *source.iterdir()):
        file.chmod(0o755 if file.is_dir() else 0o644)
    with private_files():
        run(source, tmp_path)
    modes = {oct(file.stat().st_mode & 0o777) for file in (tmp_path / "target").iterdir()}
    assert (modes, oct((tmp_path / "target").stat().st_mode & 0o777)) == ({"0o644"}, "0o755")
    assert not (tmp_path / "home" / "runs" / "main" / "one" / "canonical").exists()


def files(target: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in target.iterdir() if file.name != METADATA}


OPTIONS: dict[str, dict[str, Any]] = {
    "same layout": {},
    "other parallelism": {"parallelism": 2},
    "other max parallelism": {"max_parallelism": 300},
}


@pytest.fixture(scope="module")
def canonical(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The results of the canonical savepoint, by the name of the options."""
    folders = {name: tmp_path_factory.mktemp("canonical") for name in OPTIONS}
    for name, folder in folders.items():
        run(CANONICAL, folder, **OPTIONS[name])
    return {name: folder / "target" for name, folder in folders.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [("native savepoint", "same layout"), *(("checkpoint", name) for name in OPTIONS)],
)
def test_the_result_is_that_of_the_canonical_savepoint(
    kind: str, options: str, canonical: dict[str, Path], tmp_path: Path
) -> None:
    source = placed(NATIVE[kind], tmp_path / "source")
    report, native = run(source, tmp_path, **OPTIONS[options])
    assert {check.name: check.outcome for check in report.checks}[source_check.NAME] is Outcome.PASSED
    targets = [canonical[options], tmp_path / "target"]
    expected, found = (contents(Savepoint.open(str(target))) for target in targets)
    assert expected.total() > 300
    assert found == expected
    # Two jobs write the entries of a blob in different orders, so rows have different places.
    assert files(targets[1]) == files(targets[0])
    metadata = Savepoint.open(str(targets[1])).metadata
    assert metadata.properties == CANONICAL_SAVEPOINT
    assert not native.canonical.exists()


def test_of_a_native_savepoint_without_timers_a_plan_must_say_that_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"operator main has no state of timers .*--no-timers"):
        run(placed(NATIVE["native savepoint"], tmp_path / "source"), tmp_path, no_timers=False)
    assert not (tmp_path / "home").exists()


@pytest.mark.slow
def test_a_checkpoint_has_all_timers(tmp_path: Path) -> None:
    report, _ = run(placed(NATIVE["checkpoint"], tmp_path / "source"), tmp_path, no_timers=False)
    assert report.is_green


@pytest.mark.slow
def test_a_checkpoint_that_was_moved(tmp_path: Path) -> None:
    golden = NATIVE["checkpoint"]
    with pytest.raises(DamagedError, match=r"run, inspect and dump find them with --files-from OLD=NEW"):
        run(metadata_of(golden).parent, tmp_path)
    report, _ = run(metadata_of(golden).parent, tmp_path, files_from=roots_of(golden))
    assert report.is_green


def test_timers_of_rocksdb_are_seen() -> None:
    assert not list(lost_timers(opened(SNAPSHOTS / "rounds-native-2.3-rocksdb")))
    assert len(list(lost_timers(opened(NATIVE["native savepoint"])))) == 1


def test_a_shared_file_that_vanished_is_named(tmp_path: Path) -> None:
    source = placed(NATIVE["checkpoint"], tmp_path / "source")
    native = Savepoint.open(str(source), native=True).metadata.operators
    keyed = [subtask.native_keyed for operator in native for subtask in operator.subtasks if subtask.native_keyed]
    table = next(file.stream for file in keyed[0].files if file.name.endswith(".sst"))
    assert isinstance(table, AbsoluteFile)
    gone = Path(Location.of(table.uri).path)
    gone.unlink()
    with pytest.raises(DamagedError, match=f"a running job has removed it.*|{gone}"):
        run(source, tmp_path)
    assert not (tmp_path / "target").exists()
