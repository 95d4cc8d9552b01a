"""Jobs of Flink SQL and CEP go on from a result with the same answers; beside them a map is migrated."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from flinkstate.reading.reader import Savepoint
from stateferry.cli import main
from tests.flink import jars
from tests.flink.jars import VERSIONS
from tests.flink.table_jobs import results, run_job
from tests.support.in_process import without_spark

# A JVM that plans and runs all the queries takes a minute, and their jars are large.
pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.timeout(1800)]

HALF, ALL = "40", "80"
MIGRATION = ("--operator", "beside", "--legacy-state", "totals", "--new-state", "totals-map")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("job", "backend", "written_as"),
    [("sql", "rocksdb", "NATIVE"), ("sql", "hashmap", "CANONICAL"), ("cep", "rocksdb", "CANONICAL")],
)
def test_the_job_goes_on_with_right_answers(
    version: str, job: str, backend: str, written_as: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    without_spark(monkeypatch)
    kept = {"job": job, "backend": backend}
    _, expected = run_job(version, tmp_path, **kept, **{"from": "0", "to": ALL}, parallelism="2", format="CANONICAL")

    before = {"from": "0", "to": HALF, "parallelism": "2", "format": written_as}
    savepoint, first = run_job(version, tmp_path, **kept, **before)
    target = tmp_path / "new"
    places = ("--savepoint", str(savepoint), "--target", str(target), "--job", job)
    # Joins have no timers.
    native = ("--no-timers",) if written_as == "NATIVE" else ()
    all_operators = ",".join(f"{one.hex_id}=3" for one in Savepoint.open(str(savepoint)).keyed_operators())
    assert main(["run", *places, *MIGRATION, "--parallelism", all_operators, *native]) == 0

    after = {"from": HALF, "to": ALL, "parallelism": "3", "format": "CANONICAL", "migrated": "true"}
    _, rest = run_job(version, tmp_path, **kept, **after, savepoint=str(target))
    found = results(first + rest)
    assert found == results(expected)
    # The queries, what is beside them, and none without an answer.
    names = Counter(row.split(" ")[0] for row in found)
    assert len(names) == (15 if job == "sql" else 2)


def test_events_of_a_pattern_go_on_in_another_flink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    without_spark(monkeypatch)
    old, new = "1.20.0", "2.3.0"
    kept = {"job": "cep", "objects": "true", "backend": "rocksdb", "parallelism": "2", "format": "CANONICAL"}
    _, expected = run_job(old, tmp_path, **kept, **{"from": "0", "to": ALL})
    savepoint, first = run_job(old, tmp_path, **kept, **{"from": "0", "to": HALF})
    after = {"from": HALF, "to": ALL}
    # As it is, Flink 2 refuses it.
    with pytest.raises(RuntimeError, match=r"Missing value for the key|must not be incompatible"):
        run_job(new, tmp_path, **kept, **after, savepoint=str(savepoint))
    target = tmp_path / "new"
    job = jars.tables(new).made()[1]
    jar = shutil.move(shutil.make_archive(str(tmp_path / "job"), "zip", job), tmp_path / "job.jar")
    places = ("--savepoint", str(savepoint), "--target", str(target), "--job", "cep")
    assert main(["run", *places, "--to", "flink-2", "--classes", str(jar)]) == 0
    _, rest = run_job(new, tmp_path, **kept, **after, savepoint=str(target))
    found = results(first + rest)
    assert found == results(expected)
    # Some matches begin before the upgrade and end behind it.
    assert sum(results(rest).values()) > sum(results(run_job(new, tmp_path, **kept, **after)[1]).values())


def test_a_pattern_goes_on_as_it_is_in_another_flink(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `check` says of a pattern with events that Flink has the same serializer for."""
    old, new = "1.20.0", "2.3.0"
    kept = {"job": "cep", "backend": "rocksdb", "parallelism": "2", "format": "CANONICAL"}
    _, expected = run_job(old, tmp_path, **kept, **{"from": "0", "to": ALL})
    savepoint, first = run_job(old, tmp_path, **kept, **{"from": "0", "to": HALF})
    assert main(["check", str(savepoint), "--for", "flink-2.3"]) == 0
    assert "can't tell" not in capsys.readouterr().out
    after = {"from": HALF, "to": ALL}
    _, rest = run_job(new, tmp_path, **kept, **after, savepoint=str(savepoint))
    assert results(first + rest) == results(expected)
    assert sum(results(rest).values()) > sum(results(run_job(new, tmp_path, **kept, **after)[1]).values())
