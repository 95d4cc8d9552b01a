"""What is damaged after the snapshot has read it, while keys go to key groups of another max parallelism."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_jobs import cut_over, migrate, rescale, snapshot, staging_job, validate
from spark_jobs.tasks import run_tasks
from stateferry.savepoint.reader import Savepoint
from tests.legacy_states import NEW, LegacyState
from tests.spark.test_steps import in_this_process, plan, the_run

__all__ = ["plan"]

pytestmark = pytest.mark.spark

MANY = LegacyState(blobs={f"key {number}": ({"a": number, "b": None}, 0) for number in range(300)})
DAMAGED = 3


@pytest.fixture
def migrated(spark: SparkSession, plan: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plan of a run that has come as far as the rescale step, from max parallelism 128 to 256."""
    in_this_process(spark, monkeypatch)
    values = json.loads(plan.read_text())
    (source := plan.parent / "many").mkdir()
    MANY.write(str(source))
    plan.write_text(json.dumps(values | {"source": str(source), "max_parallelism": 256}))
    for module in (snapshot, migrate):
        assert module.main(["--plan", str(plan)]) == 0
    return plan


def ends_well(plan: Path) -> None:
    """Once the bytes are as they were, the same command mends it."""
    for module in (rescale, validate, cut_over):
        assert module.main(["--plan", str(plan)]) == 0
    assert not the_run(plan).folder.child("exchange").exists()
    target = Savepoint.open(str(plan.parent / "target"))
    assert target.operator("main").max_parallelism == 256
    assert [state.name for state in target.keyed_states(target.operator("main"))] == [NEW]


def test_a_source_that_is_damaged_after_the_snapshot(migrated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = migrated.parent / "many"
    handle = Savepoint.open(str(source)).operator("main").subtasks[0].managed_keyed
    assert handle is not None
    key_group = next(number for number in range(60, 128) if handle.offsets[number])
    # Behind the state's number: the length of the key group's first key.
    place = handle.offsets[key_group] + 2
    data = next(file for file in source.iterdir() if file.name != "_metadata")
    whole = data.read_bytes()
    for damaged, said in (
        (whole[:place] + b"\xff" * 4 + whole[place + 4 :], rf"{data}, key group {key_group}, offset {place}: expected"),
        (whole[:place], f"{data}: expected {len(whole)} bytes, as _metadata says, found {place}"),
    ):
        data.write_bytes(damaged)
        assert rescale.main(["--plan", str(migrated)]) == DAMAGED
        assert re.search(said, capsys.readouterr().err)
        assert the_run(migrated).state.value == "failed"
    data.write_bytes(whole)
    ends_well(migrated)


@pytest.mark.parametrize("cut", [0, 100, -1])
def test_what_is_on_its_way_and_is_cut(
    migrated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cut: int
) -> None:
    def cut_it(file: Path) -> None:
        file.write_bytes(file.read_bytes()[:cut])

    with monkeypatch.context() as patch:
        sent = damaging(patch, migrated, cut_it)
        assert rescale.main(["--plan", str(migrated)]) == DAMAGED
    assert re.search(rf"{sent[0]}, offset \d+: expected .*, found", capsys.readouterr().err)
    ends_well(migrated)


def test_what_is_on_its_way_and_says_something_else_is_found_by_the_validation(
    migrated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def change_it(file: Path) -> None:
        # The last byte before the index: of a value.
        content = bytearray(file.read_bytes())
        index = len(content) - 8 - 40 * int.from_bytes(content[-8:], "little")
        content[index - 1] ^= 1
        file.write_bytes(content)

    with monkeypatch.context() as patch:
        damaging(patch, migrated, change_it)
        assert rescale.main(["--plan", str(migrated)]) == 0
    assert validate.main(["--plan", str(migrated)]) == 1
    assert "is not what it should be: main/newMainState: content" in capsys.readouterr().err
    assert not (migrated.parent / "target" / "_metadata").exists()
    ends_well(migrated)


def damaging(patch: pytest.MonkeyPatch, plan: Path, damage: Callable[[Path], object]) -> list[Path]:
    """Between those who send and those who receive; the file appears in the list."""
    damaged: list[Path] = []

    def sabotaged(spark: SparkContext, step: str, *rest: Any) -> list[Any]:
        done: list[Any] = run_tasks(spark, step, *rest)
        if step == "rescale: send":
            damaged.extend(Path(the_run(plan).folder.path).glob("exchange/0/*"))
            damage(damaged[0])
        return done

    patch.setattr(staging_job, "run_tasks", sabotaged)
    return damaged
