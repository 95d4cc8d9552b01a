"""A run with `--classes` on Spark: its workers read objects of the job's classes as this process does."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flinkstate.reading.reader import Savepoint
from stateferry.cli import main
from tests.kryo.kept import kept
from tests.rocksdb.goldens import contents
from tests.steps import test_kept_values, test_native_source

pytestmark = pytest.mark.spark


@pytest.mark.full
@pytest.mark.parametrize("further", [(), ("--max-parallelism", "300")])
def test_a_run_on_spark_makes_what_one_without_it_makes(
    further: tuple[str, ...], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SparkSession.getActiveSession() is spark
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    source, one = tmp_path / "source", kept("2.3.0")["things of keys"]
    test_kept_values.write(source, one)
    states = ["--operator", "main", "--legacy-state", "totals", "--new-state", "entries"]
    command = ["run", "--savepoint", str(source), "--target", str(tmp_path / "target"), *states]
    assert main([*command, "--classes", str(test_kept_values.JAR), *further]) == 0
    options = test_kept_values.wanted(classes=[str(test_kept_values.JAR)])
    if further:
        options["max_parallelism"] = 300
    report, _ = test_native_source.run(source, tmp_path / "alone", **options)
    assert report.is_green
    on_spark, alone = (contents(Savepoint.open(str(tmp_path / name))) for name in ("target", "alone/target"))
    assert on_spark == alone
    test_kept_values.assert_rows(tmp_path / "target", one)
