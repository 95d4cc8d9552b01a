"""The savepoints that a plan names beside its source: one that changes between two steps publishes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from flinkstate.metadata.file_names import METADATA
from stateferry.basics.exit_codes import REJECTED
from tests.steps.test_lost_entries import BEFORE, UPGRADED
from tests.support.in_process import do_step, do_steps
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

BETWEEN = ("migrate", "rescale")
STATES = [{"legacy": LEGACY, "new": NEW, "flag": FLAG}]


def plan(folder: Path, **options: Any) -> str:
    values = {
        "job": "orders",
        "run_id": "one",
        "now": 0,
        "home": str(folder / "home"),
        "target": str(folder / "target"),
    }
    file = folder / "plan.json"
    file.write_text(json.dumps(values | options))
    return str(file)


def says_no(folder: Path, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert do_step("validate", "--plan", named) == REJECTED
    assert "the source changed since the snapshot, in 1 place; the first is --" in capsys.readouterr().err
    assert do_step("cut_over", "--plan", named) != 0
    assert not (folder / "target" / METADATA).exists()


def test_an_entry_that_is_put_back_has_changed_since_it_was_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old"
    shutil.copytree(BEFORE, old)
    options = {"source": str(UPGRADED), "before": str(old), "restore_lost": True, "to": "flink-2", "operators": []}
    named = plan(tmp_path, **options)
    assert do_step("snapshot", "--plan", named) == 0
    # A String of Kryo's has the highest bit in its last letter; behind it is the number's class, and the number.
    name, changed = b"m9zqj\xec", 0
    for file in old.iterdir():
        raw = bytearray(file.read_bytes())
        if (at := raw.find(name)) >= 0:
            raw[at + len(name) + 2] ^= 1
            file.write_bytes(raw)
            changed += 1
    assert changed == 1
    do_steps(BETWEEN, "--plan", named)
    says_no(tmp_path, named, capsys)


def test_the_old_job_stores_its_maps_otherwise_than_at_the_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new_job, old = LegacyState(rows={"key": {"a": (1, 0)}}, lacks=frozenset({LEGACY})), tmp_path / "old"
    new_job.write(str(tmp_path / "new"))
    LegacyState(blobs={"key": ({"a": 1}, 0)}, kryo=5).write(str(old))
    options = {"source": str(tmp_path / "new"), "like": str(old), "reverse": True}
    named = plan(tmp_path, **options, operators=[{"operator": "main", "states": STATES}])
    assert do_step("snapshot", "--plan", named) == 0
    shutil.rmtree(old)
    LegacyState(blobs={"key": ({"a": 1}, 0)}).write(str(old))
    do_steps(BETWEEN, "--plan", named)
    says_no(tmp_path, named, capsys)
