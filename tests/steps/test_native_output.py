"""Runs whose result is native: the same state as in a canonical result, as RocksDB's own files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import AbsoluteFile, StreamHandle
from flinkstate.metadata.savepoint_properties import NATIVE_SAVEPOINT
from flinkstate.metadata.streams import open_stream
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from stateferry.runs.checks.plan_check import native_operators
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.guards.option_notes import option_notes
from stateferry.runs.plan.plan_json import plan_of
from stateferry.steps.new_files import digests_of
from tests.rocksdb.goldens import SAVEPOINTS as SNAPSHOTS
from tests.rocksdb.goldens import contents, metadata_of
from tests.steps.test_native_source import CANONICAL, GOLDEN, NATIVE, placed, run
from tests.support.changes import conversion_of
from tests.support.in_process import do_step
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState
from tests.support.rewriting import rewrite

SOURCES = {"canonical": CANONICAL, **NATIVE}
LAYOUTS: dict[str, dict[str, Any]] = {
    "same": {},
    "parallelism 2": {"parallelism": 2},
    "max parallelism 300": {"max_parallelism": 300},
}


def placed_source(name: str, folder: Path) -> Path:
    return CANONICAL if name == "canonical" else placed(SOURCES[name], folder)


@pytest.mark.slow
@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("source", SOURCES)
def test_the_state_of_a_canonical_result(source: str, layout: str, tmp_path: Path) -> None:
    placed_at = placed_source(source, tmp_path / "source")
    results = {}
    for format_ in ("canonical", "native"):
        report, _ = run(placed_at, tmp_path / format_, output_format=format_, **LAYOUTS[layout])
        assert report.is_green
        results[format_] = Savepoint.open(str(tmp_path / format_ / "target"))
        assert results[format_].format == format_
        read_plainly = any("RocksDB's files of the result read plainly" in check.name for check in report.checks)
        assert read_plainly == (format_ == "native")
    assert contents(results["native"]) == contents(results["canonical"])
    assert results["native"].metadata.properties == NATIVE_SAVEPOINT


@pytest.mark.slow
def test_a_rehearsal_leaves_a_whole_native_savepoint_in_its_folder(tmp_path: Path) -> None:
    results: list[dict[str, bytes]] = []
    for options in ({"rehearse": True}, {}):
        _, done = run(CANONICAL, tmp_path / f"{len(results)}", output_format="native", **options)
        folder = done.staged.path if options else str(tmp_path / "1" / "target")
        results.append({file.name: file.read_bytes() for file in Path(folder).iterdir()})
    assert any(name.endswith(".sst") for name in results[0])
    assert results[0] == results[1]


@pytest.mark.parametrize("golden", ["rounds-2-to-3-2.3-rocksdb", "rounds-checkpoint-1.20-rocksdb"])
def test_an_untouched_operator_travels_as_its_files_are(golden: str, tmp_path: Path) -> None:
    source = Savepoint.open(str(metadata_of(placed(SNAPSHOTS / golden, tmp_path / "source"))))
    ids = frozenset(operator.id for operator in source.keyed_operators())
    staged = rewrite(source, str(tmp_path / "target"), Layout(native=ids))
    target = Savepoint.open(str(tmp_path / "target"))
    count = 0
    for operator in source.keyed_operators():
        for old, new in zip(operator.subtasks, target.operator(operator.hex_id).subtasks, strict=True):
            assert old.native_keyed is not None
            assert new.native_keyed is not None
            assert new.native_keyed.shared == ()
            assert content(source, old.native_keyed.meta) == content(target, new.native_keyed.meta)
            for one, other in zip(old.native_keyed.files, new.native_keyed.files, strict=True):
                assert one.name == other.name
                assert not isinstance(other.stream, AbsoluteFile)
                assert content(source, one.stream) == content(target, other.stream)
                count += 1
    assert count > 10
    assert digests_of(staged.files).files.keys() == {file.name for file in (tmp_path / "target").iterdir()} - {METADATA}
    assert contents(target) == contents(source)


def content(savepoint: Savepoint, stream: StreamHandle) -> bytes:
    file, _, size = open_stream(savepoint.folder, stream)
    with file:
        return bytes(file.read(size))


def test_an_operator_of_a_canonical_savepoint_with_timers_stays_canonical(tmp_path: Path) -> None:
    """Nothing says whether its job looks for timers in RocksDB."""
    states = [{"legacy": "mainState", "new": "newMainState"}]
    values: dict[str, object] = {
        "job": "x",
        "output_format": "native",
        "operators": [{"operator": "x", "states": states}],
    }
    for golden, becomes_native in (("kinds-2.3-rocksdb", False), ("several-operators-2.3-hashmap", True)):
        places = {"source": str(GOLDEN / golden), "home": str(tmp_path), "target": "/nowhere"}
        plan = plan_of(values | places)
        source = Savepoint.open(plan.source)
        ids = {operator.id for operator in source.keyed_operators()}
        assert native_operators(plan, source) == (ids if becomes_native else set())
        assert native_operators(plan_of(values | places | {"output_format": "canonical"}), source) == frozenset()
        conversion = conversion_of(source, Layout(native=native_operators(plan, source)))
        notes = option_notes(ResolvedPlan(plan.model_copy(update={"operators": ()}), source, conversion))
        assert any("--format native: the keyed state of kinds" in note for note in notes) != becomes_native


def damaged(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 4] ^= 1
    file.write_bytes(data)


@pytest.mark.matrix(most=2)
@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".sst", "-CURRENT", "-MANIFEST-000001", "-meta"])
def test_a_staged_file_that_is_damaged_is_never_published(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LegacyState(blobs={f"key {number}": ({"a": number}, 0) for number in range(50)}).write(str(tmp_path / "source"))
    plan = {
        "job": "orders",
        "run_id": "first",
        "now": 0,
        "source": str(tmp_path / "source"),
        "target": str(tmp_path / "target"),
        "home": str(tmp_path / "home"),
        "output_format": "native",
        "operators": [{"operator": "main", "states": [{"legacy": LEGACY, "new": NEW, "flag": FLAG}]}],
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))

    def do(step: str) -> int:
        return do_step(step, "--plan", str(tmp_path / "plan.json"))

    for step in ("snapshot", "migrate", "rescale"):
        assert do(step) == 0
    file = next(file for file in sorted((tmp_path / "target").iterdir()) if file.name.endswith(suffix))
    whole = file.read_bytes()
    damaged(file)
    assert do("validate") == 1
    assert "failed its checks, so nothing is published" in capsys.readouterr().err
    for step in ("migrate", "rescale", "validate"):
        assert do(step) == 0
    assert file.read_bytes() == whole
    damaged(file)
    assert do("cut_over") == 1
    assert "are not those that were validated" in capsys.readouterr().err
    assert not (tmp_path / "target" / METADATA).exists()
    for step in ("migrate", "rescale", "validate", "cut_over"):
        assert do(step) == 0
    assert Savepoint.open(str(tmp_path / "target")).format == "native"
