"""Runs on native savepoints and checkpoints: their result is that of the canonical savepoint of the same state."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import DamagedError, PlanError, RejectedError
from flinkstate.files.storage import Location
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import AbsoluteFile
from flinkstate.metadata.savepoint_properties import CANONICAL_SAVEPOINT
from flinkstate.reading.reader import Savepoint
from flinkstate.rocksdb.merge import Found
from flinkstate.rocksdb.scan import Scan
from stateferry.basics.durations import MAX_MILLISECONDS
from stateferry.basics.private_files import private_files
from stateferry.cli import main
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.plain import plain_rows
from stateferry.proof.plain.plain_rocksdb import PlainDatabase
from stateferry.proof.plain.plain_rows import PlainRows
from stateferry.runs.catalog.publications import Control
from stateferry.runs.checks.plan_check import lost_timers, open_source, planned, resolve
from stateferry.runs.record.facts import TimedFacts
from stateferry.runs.record.runs import Run
from stateferry.runs.record.steps import Step
from stateferry.runs.report import source_check
from stateferry.runs.report.report import Report
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import InProcess
from tests.rocksdb.goldens import SAVEPOINTS as SNAPSHOTS
from tests.rocksdb.goldens import contents, metadata_of, opened, roots_of
from tests.support.in_process import step_done_by
from tests.support.verified_runs import carried_out

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
        "nulls": "drop",
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
            return carried_out(RunAtWork(InProcess(), run, resolved, control, lease)), run
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


@pytest.mark.matrix(most=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [("native savepoint", "same layout"), *(("checkpoint", name) for name in OPTIONS)],
)
def test_the_result_is_that_of_the_canonical_savepoint(
    kind: str, options: str, canonical: dict[str, Path], tmp_path: Path
) -> None:
    source = placed(NATIVE[kind], tmp_path / "source")
    report, _ = run(source, tmp_path, **OPTIONS[options])
    assert {check.name: check.outcome for check in report.checks}[source_check.NAME] is Outcome.PASSED
    targets = [canonical[options], tmp_path / "target"]
    expected, found = (contents(Savepoint.open(str(target))) for target in targets)
    assert expected.total() > 300
    assert found == expected
    # Two jobs write the entries of a blob in different orders, so rows have different places.
    assert files(targets[1]) == files(targets[0])
    metadata = Savepoint.open(str(targets[1])).metadata
    assert metadata.properties == CANONICAL_SAVEPOINT


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
    with pytest.raises(DamagedError, match=r"if the files were moved, say where they are \(--files-from OLD=NEW"):
        run(metadata_of(golden).parent, tmp_path)
    report, _ = run(metadata_of(golden).parent, tmp_path, files_from=roots_of(golden))
    assert report.is_green


def test_timers_of_rocksdb_are_seen() -> None:
    assert not list(lost_timers(opened(SNAPSHOTS / "rounds-native-2.3-rocksdb")))
    assert len(list(lost_timers(opened(NATIVE["native savepoint"])))) == 1


def test_a_shared_file_that_vanished_is_named(tmp_path: Path) -> None:
    source = placed(NATIVE["checkpoint"], tmp_path / "source")
    native = Savepoint.open(str(source)).metadata.operators
    keyed = [subtask.native_keyed for operator in native for subtask in operator.subtasks if subtask.native_keyed]
    table = next(file.stream for file in keyed[0].files if file.name.endswith(".sst"))
    assert isinstance(table, AbsoluteFile)
    gone = Path(Location.of(table.uri).path)
    gone.unlink()
    with pytest.raises(DamagedError, match=f"a running job has removed it.*|{gone}"):
        run(source, tmp_path)
    assert not (tmp_path / "target").exists()


PLAIN = "RocksDB's files of the source read plainly"


def plain_check(report: Report) -> Check:
    (check,) = (check for check in report.checks if check.name == f"main: {PLAIN}")
    return check


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every state were too large to be read as a whole."""
    monkeypatch.setattr(plain_rows, "_READ_WHOLE", -1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SNAPSHOTS_OF_KINDS)
@pytest.mark.parametrize("whole", [True, False])
def test_plain_code_reads_what_the_scan_reads(name: str, whole: bool, request: pytest.FixtureRequest) -> None:
    if not whole:
        request.getfixturevalue("samples")
    source = opened(SNAPSHOTS / name)
    rows = 0
    for operator in source.keyed_operators():
        for file in source.open_files(operator):
            assert isinstance(file, NativeFile)
            read = PlainRows(source.folder, file, list(file.handle.range), 7)
            for key_group in file.handle.range:
                for section in file.sections(key_group):
                    read.see(section)
            read.end()
            check = read.result.check("plain", is_complete=True)
            assert check.outcome is Outcome.PASSED
            assert check.expected.startswith("all" if whole else "a sample")
            rows += sum(read.result.rows.values())
    # The drawn ranges depend on the folder's name, and may overlap.
    assert rows == contents(source).total() if whole else rows > 20


@pytest.mark.matrix(most=3)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("wrong", ["a value", "no rows", "one row too few"])
def test_a_scan_that_reads_wrongly_is_found(
    wrong: str, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The scan makes the same mistake in all steps."""
    if not whole:
        request.getfixturevalue("samples")
    read = Scan.read

    def wrongly(scan: Scan, high: int, out: Any, at: int, rows: Any) -> Found:
        found = read(scan, high, out, at, rows)
        if wrong == "a value":
            last = rows[2][: found.rows] - 1
            # A byte of 0 or 1 may be a flag.
            out[last[out[last] > 1]] ^= 2
        elif wrong == "no rows":
            return Found(0, at, found.needed)
        elif found.rows > 1 and not found.needed:
            return Found(found.rows - 1, int(rows[2][found.rows - 2]), 0)
        return found

    monkeypatch.setattr(Scan, "read", wrongly)
    with pytest.raises(RejectedError, match="read plainly"):
        run(placed(NATIVE["checkpoint"], tmp_path / "source"), tmp_path)
    report = Report.read(Location.of(str(tmp_path / "home/runs/main/one/report.json")))
    check = plain_check(report)
    assert check.outcome is Outcome.FAILED
    assert re.search(r"subtask \d, state .*State, key .*: expected .*, found .*", check.samples[0])
    assert check.key_groups


def test_a_sample_without_rows_cannot_tell(samples: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlainDatabase, "draw", lambda *_: None)
    report, _ = run(placed(NATIVE["checkpoint"], tmp_path / "source"), tmp_path)
    check = plain_check(report)
    assert check.outcome is Outcome.COULD_NOT_TELL
    assert "no row was drawn of" in check.actual


@pytest.mark.full
@pytest.mark.spark
def test_verify_reads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, folder = NATIVE["checkpoint"], metadata_of(NATIVE["checkpoint"]).parent
    run(folder, tmp_path, files_from=roots_of(source), parallelism=2)
    arguments = ["verify", str(folder), str(tmp_path / "target"), "--operator", "main", "--now", str(NOW)]
    arguments += ["--legacy-state", "mainState", "--new-state", "newMainState", "--flag-state", "isMigratedState"]
    arguments += ["--ttl", f"{10**11}ms", "--nulls", "drop", "--on-contradiction", "rows"]
    arguments += [part for old, new in roots_of(source).items() for part in ("--files-from", f"{old}={new}")]
    assert main([*arguments, "--parallelism", "2"]) == 0
    assert PLAIN in capsys.readouterr().out
    assert main([*arguments, "--parallelism", "3"]) == 1


@pytest.fixture
def after_snapshot(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Has something happen to the source when the snapshot is done."""

    def arrange(happens: Callable[[], None]) -> None:
        def done(do: Callable[[RunAtWork], TimedFacts], work: RunAtWork) -> TimedFacts:
            facts = do(work)
            happens()
            return facts

        step_done_by(monkeypatch, Step.SNAPSHOT, done)

    return arrange


@pytest.mark.slow
def test_a_source_that_changes_after_the_snapshot_is_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_snapshot: Callable[[Callable[[], None]], None]
) -> None:
    read = Scan.read

    def changed(scan: Scan, high: int, out: Any, at: int, rows: Any) -> Found:
        found = read(scan, high, out, at, rows)
        last = rows[2][: found.rows] - 1
        out[last[out[last] > 1]] ^= 2
        return found

    after_snapshot(lambda: monkeypatch.setattr(Scan, "read", changed))
    with pytest.raises(RejectedError, match=r"the source changed since the snapshot, in \d+ places.*key group"):
        run(placed(NATIVE["checkpoint"], tmp_path / "source"), tmp_path)


@pytest.mark.parametrize("kind", NATIVE)
def test_a_file_that_vanishes_during_a_run_is_named(
    kind: str, tmp_path: Path, after_snapshot: Callable[[Callable[[], None]], None]
) -> None:
    source = placed(NATIVE[kind], tmp_path / "source")
    (table, *_) = sorted((tmp_path / "source").rglob("*"), key=lambda path: (not is_table(path), path.name))
    after_snapshot(table.unlink)
    what = "have the job retain more checkpoints" if kind == "checkpoint" else "a file"
    with pytest.raises(DamagedError, match=f"{table}.*{what}"):
        run(source, tmp_path)
    assert not (tmp_path / "target" / METADATA).exists()


def is_table(path: Path) -> bool:
    # The magic number of an SST file, at its end.
    return path.is_file() and path.read_bytes()[-8:] == bytes.fromhex("f7cff485b741e288")
