"""The steps of a run as applications of their own, given to spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.storage import Location
from flinkstate.reading.reader import Savepoint
from stateferry.basics.exit_codes import INTERRUPTED
from stateferry.inventory.inventory import take
from stateferry.runs.checks.plan_check import resolve
from stateferry.runs.plan.plan_json import plan_of_json
from stateferry.runs.record.live_progress import LiveProgress
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import FACTS_OF, SnapshotFacts, TablesFacts
from stateferry.runs.record.steps import Step
from stateferry.spark_jobs import installed_code
from stateferry.spark_jobs.session import LOOPBACK, session
from stateferry.spark_jobs.startup.head_start import HeadStart
from stateferry.spark_jobs.workers import SparkWorkers
from stateferry.steps import snapshot, tables
from stateferry.steps.workers import Measure
from tests.support.facts import kept_facts
from tests.support.in_process import do_step, interrupted
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

pytestmark = pytest.mark.spark

JOBS = Path(__file__).parents[2] / "spark_jobs"
STEPS = ("snapshot", "migrate", "rescale", "validate", "cut_over")
STATE = LegacyState(blobs={"cold": ({"a": 1, "b": 2}, 0)}, rows={"hot": {"a": (5, 0)}}, flags={"hot": 0})


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan's file, for a run that nothing has been done of."""
    STATE.write(str(tmp_path / "source"))
    state = {"legacy": LEGACY, "new": NEW, "flag": FLAG}
    values = {
        "job": "orders",
        "run_id": "first",
        "now": 0,
        "source": str(tmp_path / "source"),
        "target": str(tmp_path / "target"),
        "home": str(tmp_path / "home"),
        "operators": [{"operator": "main", "states": [state]}],
    }
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(values))
    return file


def the_run(plan: Path) -> Run:
    return Run.open(Location.of(str(plan.parent / "home" / "runs" / "orders" / "first")))


Do = Callable[..., int]


@pytest.fixture
def do(spark: SparkSession) -> Do:
    """Does a step as an application of its own, on the tests' session."""
    return partial(do_step, workers=SparkWorkers(spark.sparkContext))


def test_step_after_step_publishes(do: Do, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = plan.parent / "target"
    assert do("rescale", "--plan", str(plan)) == 1
    assert "rescale comes after snapshot, migrate: do that first" in capsys.readouterr().err
    for step in STEPS[:-1]:
        assert do(step, "--plan", str(plan)) == 0
        assert not (target / "_metadata").exists()
    run = the_run(plan)
    assert run.state.value == "verified"
    facts = {step: run.stored(FACTS_OF[step]) for step in Step if run.has_done(step)}
    # What is done is not done again, whatever way the run is named.
    assert do("snapshot", "--run", run.folder.path) == 0
    assert {step: run.stored(FACTS_OF[step]) for step in facts} == facts
    assert do("cut_over", "--run", run.folder.path) == 0
    assert run.state.value == "published"
    opened = Savepoint.open(str(target))
    assert [state.name for state in opened.keyed_states(opened.operator("main"))] == [NEW]
    capsys.readouterr()
    assert do("tables", "--run", run.folder.path) == 0
    for step in (*STEPS, "tables"):
        capsys.readouterr()
        assert do(step, "--plan", str(plan)) == 0
        assert "nothing to do: run first is published" in capsys.readouterr().out


def test_the_tables_follow_after_the_publication(do: Do, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    for step in STEPS[:-1]:
        assert do(step, "--plan", str(plan)) == 0
    assert do("tables", "--plan", str(plan)) == 1
    run = the_run(plan)
    with monkeypatch.context() as patch:
        patch.setattr(tables, "_advance", interrupted)
        assert do("cut_over", "--plan", str(plan)) == 0
        assert (plan.parent / "target" / "_metadata").exists()
        assert do("tables", "--plan", str(plan)) == INTERRUPTED
        assert run.facts(TablesFacts) is None
    assert do("tables", "--plan", str(plan)) == 0
    facts = kept_facts(run, TablesFacts)
    assert facts.moved
    assert [change.state.value for change in run.changes()][-2:] == ["verified", "published"]


def test_a_rehearsal_has_nothing_to_cut_over_to(do: Do, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"rehearse": True}))
    for step in ("snapshot", "migrate", "rescale", "validate", "tables"):
        assert do(step, "--plan", str(plan)) == 0
    assert do("cut_over", "--plan", str(plan)) == 1
    assert "is a rehearsal" in capsys.readouterr().err
    assert not (plan.parent / "target").exists()


def test_steps_must_agree_on_run_and_time(do: Do, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads(plan.read_text())
    plan.write_text(json.dumps({name: value for name, value in values.items() if name not in ("run_id", "now")}))
    assert do("snapshot", "--plan", str(plan)) == 2
    assert "now and run_id missing" in capsys.readouterr().err
    assert do("snapshot", "--plan", str(plan.parent / "none.json")) == 2
    assert not (plan.parent / "home").exists()


def test_spark_submit_runs_a_step(plan: Path) -> None:
    spark_home = Path(pyspark.__file__).parent
    submit = [str(spark_home / "bin" / "spark-submit"), "--master", "local[1]"]
    submit += ["--conf", f"spark.driver.bindAddress={LOOPBACK}", "--conf", f"spark.driver.host={LOOPBACK}"]
    submit += ["--conf", "spark.ui.enabled=false"]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": LOOPBACK,
    }
    command = [*submit, str(JOBS / "snapshot.py"), "--plan", str(plan)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "snapshot of run first is done" in done.stdout
    run = the_run(plan)
    assert [step for step in Step if run.has_done(step)] == [Step.SNAPSHOT]
    facts = kept_facts(run, SnapshotFacts)
    assert facts.states["main/mainState"].entries == 1


def test_the_librarys_errors_come_back_as_what_they_are(spark: SparkSession) -> None:
    def damaged(number: int) -> int:
        if number == 1:
            raise DamagedError("an end", "none", file="f", key_group=3)
        return number

    with pytest.raises(DamagedError, match="f, key group 3: expected an end, found none") as raised:
        list(SparkWorkers(spark.sparkContext).do("test", [0, 1], damaged))
    assert (raised.value.file, raised.value.key_group) == ("f", 3)


def test_workers_with_other_code_than_the_driver_refuse(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = SparkWorkers(spark.sparkContext)
    # Of a worker, which may have been started before somebody edited the sources.
    (own,) = workers.do("test", [False], lambda is_local: installed_code.own_code(is_local=is_local))
    monkeypatch.setattr(installed_code, "own_code", lambda **_: own)
    assert list(workers.do("test", [-1, 2], abs)) == [1, 2]
    monkeypatch.setattr(installed_code, "own_code", lambda **_: ("another", *own[1:]))
    with pytest.raises(RefusedError, match="install the same on all machines"):
        list(workers.do("test", [-1, 2], abs))


def test_progress_counts_tasks_and_their_work(spark: SparkSession) -> None:
    heard: list[LiveProgress] = []
    tenths: Measure[int] = Measure("B", lambda tenfold: tenfold // 10)
    workers = SparkWorkers(spark.sparkContext, heard.append)
    for count in (3, 2):
        answers = list(workers.do("count", range(count), lambda number: number * 10, tenths))
        assert answers == [number * 10 for number in range(count)]
        last = heard[-1]
        assert (last.done, last.total, last.unit, last.ended) == (count, count, "B", True)
        assert last.amount == sum(range(count))
    # A step that is done says so once, whatever ran under its name before.
    assert sum(progress.ended for progress in heard) == 2


def tenfold(number: int) -> int:
    return number * 10


def test_what_a_head_start_has_done_is_not_done_again_but_counts(spark: SparkSession) -> None:
    heard: list[LiveProgress] = []
    tens: Measure[int] = Measure("B", lambda tenfold: tenfold // 10)
    work = [0, 1, 2]
    known: list[dict[int, int]] = [{}, {1: 70}, {0: 50, 1: 60, 2: 70}]
    for done in known:
        head_start = HeadStart("rest", work, tenfold)
        head_start._facts, head_start.seconds = done, 50.0
        workers = SparkWorkers(spark.sparkContext, heard.append, head_start)
        assert list(workers.do("another step", work, lambda number: number * 10, tens)) == [0, 10, 20]
        began, began_ahead = workers.begin("another step"), workers.begin("rest")
        assert time.monotonic() - began_ahead > 50
        assert began - began_ahead == pytest.approx(50, abs=5)
        answers = list(workers.do("rest", work, tenfold, tens))
        assert answers == [done.get(number, number * 10) for number in range(3)]
        last = heard[-1]
        assert (last.done, last.total, last.amount, last.ended) == (3, 3, sum(answers) // 10, True)
        assert last.seconds > 50
        # Other work of the same step has no head start.
        assert list(workers.do("rest", [3, 4, 5], tenfold, tens)) == [30, 40, 50]
        assert list(workers.do("rest", work, lambda number: number * 20, tens)) == [0, 20, 40]


def test_an_inventory_taken_ahead_of_spark_is_part_of_the_whole(spark: SparkSession, plan: Path) -> None:
    values = plan_of_json(plan.read_bytes(), str(plan)).model_copy(update={"chunk_bytes": 1})
    resolved = resolve(values, Savepoint.open(values.source))
    heard: list[LiveProgress] = []
    undisturbed = snapshot.count(SparkWorkers(spark.sparkContext), resolved)
    work = snapshot.inventory_work(resolved, 2)
    assert len(work) == 2
    head_start = HeadStart("snapshot", work, take)
    head_start.start()
    while not head_start._facts:
        time.sleep(0.001)
    workers = SparkWorkers(spark.sparkContext, heard.append, head_start)
    seconds = time.monotonic() - workers.begin("snapshot")
    assert snapshot.count(workers, resolved) == undisturbed
    assert seconds > 0
    assert 0 < head_start.seconds < heard[-1].seconds
    assert (heard[-1].done, heard[-1].amount) == (len(work), undisturbed.inventory.sizes.total())


def test_what_goes_wrong_ahead_of_spark_is_said_by_the_step(spark: SparkSession, plan: Path) -> None:
    values = plan_of_json(plan.read_bytes(), str(plan))
    resolved = resolve(values, Savepoint.open(values.source))
    (file,) = (plan.parent / "source").glob("*keyed*")
    file.write_bytes(file.read_bytes()[:-40] + b"\xff" * 40)
    work = snapshot.inventory_work(resolved, 2)
    head_start = HeadStart("snapshot", work, take)
    head_start.start()
    head_start._thread.join()
    assert len(head_start.facts_of(work, take)) < len(work)
    with pytest.raises(DamagedError, match=file.name):
        snapshot.count(SparkWorkers(spark.sparkContext, head_start=head_start), resolved)


def test_a_session_is_the_one_there_is(spark: SparkSession) -> None:
    with session("another") as found:
        assert found is spark.sparkContext
    # Whoever found it leaves it running.
    assert spark.range(3).count() == 3
