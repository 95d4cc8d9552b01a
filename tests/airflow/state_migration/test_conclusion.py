"""How a run ended, as its last task tells it."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.observability import stats

from flinkstate.errors import UsageError
from stateferry.airflow.dag_runs.dag_run import fail_if_refused
from stateferry.airflow.requests.planning import Occasion
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.tasks import conclusion
from stateferry.airflow.tasks.conclusion import Conclude, send_metrics
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.catalog.publications import Control
from stateferry.runs.predict.prediction import PARTS, predicted_after
from stateferry.runs.record.facts import TablesProblem
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts, StateSize, TablesFacts
from stateferry.runs.report.report import Report, SavepointDigests
from stateferry.tables.counts import TableCounts
from tests.airflow.state_migration.savepoints import planned_run
from tests.airflow.state_migration.test_approval import context
from tests.airflow.state_migration.test_steps import TaskInstance
from tests.support.records import record_of


def a_run(occasion: Occasion, request: MigrationRequest, **seconds: float) -> Run:
    run = planned_run(request, occasion)
    for at, state in enumerate((RunState.RUNNING, RunState.VERIFIED)):
        run.enter(state, at)
    run.keep(SnapshotFacts(states={"main/mainState": StateSize(1, 1000)}, seconds=1.0, ended_at=0))
    kinds = {kind.name: kind for kind in PARTS}
    for part, taken in seconds.items():
        run.keep(kinds[part](seconds=taken, ended_at=0))
    return run


@pytest.mark.usefixtures("home")
def test_each_part_of_a_cut_over_is_told_beside_what_was_predicted(
    occasion: Occasion, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(Occasion("a rehearsal", occasion.as_of), MigrationRequest().rehearsal(), take_savepoint=2.0)
    run = a_run(Occasion("later", occasion.as_of), MigrationRequest(), take_savepoint=3.0, start_job=4.0)
    run.enter(RunState.PUBLISHED, 3)
    told_to = context(run)
    told_of: list[tuple[str, ...]] = []
    monkeypatch.setattr(conclusion, "tell", lambda _, *said: told_of.append(said))
    said = Conclude(task_id="conclude").execute(told_to)
    assert told_of == [("done", "demo", "cut over demo: published, steps 8.0 s")]
    assert told_to["ti"].said["note"] == "cut over demo: published, steps 8.0 s"
    assert said["times"] == {
        "take_savepoint": {"seconds": 3.0, "predicted": 2.0},
        "snapshot": {"seconds": 1.0, "predicted": 1.0},
        "start_job": {"seconds": 4.0, "predicted": 1.5},
    }
    told = "took: take_savepoint 3.0 s (predicted 2.0), snapshot 1.0 s (predicted 1.0), start_job 4.0 s (predicted 1.5)"
    assert told in capsys.readouterr().out


@pytest.mark.usefixtures("home")
def test_a_green_night_lets_go_of_the_checkpoints_of_earlier_ones(
    occasion: Occasion, monkeypatch: pytest.MonkeyPatch
) -> None:
    night = MigrationRequest.model_validate({"format": "native"}).night()
    kinds = (night, night.rehearsal(), night, night)
    times = [occasion.as_of + timedelta(hours=number) for number in range(len(kinds))]
    runs = [a_run(Occasion(f"{time:%H}", time), of) for time, of in zip(times, kinds, strict=True)]
    for run in runs:
        run.held.make_folder()
    monkeypatch.setattr(conclusion, "tell", lambda *_: None)
    Conclude(task_id="conclude").execute(context(runs[2]))
    # The second one is of a cut-over, which may be decided later; the last one, a later night, reads its own.
    assert [run.held.exists() for run in runs] == [False, True, True, True]


@pytest.mark.usefixtures("home")
def test_airflows_own_stats_get_the_metrics_of_a_rehearsal(occasion: Occasion) -> None:
    run = a_run(occasion, MigrationRequest().rehearsal(), take_savepoint=2.0, start_job=4.0)
    counts = {"main/mainState": TableCounts(keys_left=40), "main/other": TableCounts(keys_left=2)}
    run.keep(TablesFacts(counts=counts, seconds=0.5, ended_at=0))
    run.enter(RunState.STAGED, 3)
    received: dict[str, tuple[float, Any]] = {}

    class Receiver(NoStatsLogger):
        @classmethod
        def gauge(cls, stat: str, value: float, *_: Any, tags: dict[str, str] | None = None, **__: Any) -> None:
            received[stat] = value, tags

    stats.initialize(factory=Receiver, export_legacy_names=True)
    try:
        send_metrics(run)
    finally:
        stats.initialize(factory=NoStatsLogger, export_legacy_names=True)
    tag, foreseen = {"job": "demo"}, predicted_after(run).outage
    assert foreseen is not None
    values = {"rehearsal_seconds": 7.5, "predicted_outage_seconds": foreseen.seconds, "keys_left": 42}
    tagged = {f"stateferry.{name}": (value, tag) for name, value in values.items()}
    assert received == tagged | {f"stateferry.demo.{name}": (value, None) for name, value in values.items()}


@pytest.mark.usefixtures("home")
def test_the_report_in_the_log_is_no_wider_than_airflows_page_shows(
    occasion: Occasion, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(occasion, MigrationRequest())
    run.enter(RunState.PUBLISHED, 3)
    long = Check("main/mainState: a name", Outcome.PASSED, "expected " * 20, "found " * 20)
    savepoint = SavepointDigests("/in", 7, {})
    Report(run.plan.job, run.plan.run_id, "f", 1, savepoint, savepoint, (long,)).write(run.report)
    told: list[str] = []
    conclude = Conclude(task_id="conclude")
    monkeypatch.setattr(conclude.log, "info", lambda text, *values: told.append(text % values))
    conclude.execute(context(run))
    table = [line for line in told if line[:1] in "┏┃┡│└"]
    assert len(table) > 4
    assert max(map(len, table)) <= 100


@pytest.mark.usefixtures("home")
def test_a_refused_run_says_why_at_its_end_too() -> None:
    ti = TaskInstance({})
    with pytest.raises(AirflowFailException), fail_if_refused({"ti": ti}):  # type: ignore[arg-type]
        raise UsageError("the form: savepoint: missing")
    said = {"ti": SimpleNamespace(dag_id="x", run_id="x", get_task_states=lambda **_: {}, xcom_pull=pulled(ti))}
    with pytest.raises(AirflowFailException, match="this DAG run was refused: the form: savepoint: missing"):
        Conclude(task_id="conclude").execute(said)  # type: ignore[arg-type]


def pulled(ti: TaskInstance) -> Any:
    # The task that was refused has returned nothing.
    return lambda task_ids, key="return_value": ti.said.get(key)


@pytest.mark.usefixtures("home")
def test_a_run_with_nothing_to_do_is_told(occasion: Occasion, monkeypatch: pytest.MonkeyPatch) -> None:
    run = planned_run(MigrationRequest().rehearsal(), occasion)
    here = context(run)
    here["ti"].get_task_states = lambda **_: {"the run": {"rehearsal.snapshot": "skipped"}}
    told_of: list[tuple[str, ...]] = []
    monkeypatch.setattr(conclusion, "tell", lambda _, *said: told_of.append(said))
    with pytest.raises(AirflowSkipException):
        Conclude(task_id="conclude").execute(here)
    ((event, job, text),) = told_of
    assert (event, job) == ("nothing", "demo")
    assert text.startswith("rehearse demo: planned")
    assert text.endswith("the run had nothing to do: see the log of the task rehearsal.snapshot")


@pytest.mark.usefixtures("home")
def test_pending_tables_fail_the_dag_run_with_their_reason(occasion: Occasion) -> None:
    run = a_run(occasion, MigrationRequest())
    plan = run.plan
    record = record_of(plan, tables_pending=True)
    run.enter(RunState.PUBLISHED, 3)
    with Control(plan.catalog_uri) as control:
        held = control.acquire(plan.job, plan.run_id)
        control.publish(held, record, replaces=None)
        for reason in ("the task tables has not ended", "they failed their checks"):
            with pytest.raises(AirflowFailException, match=f"is not affected; but its tables are pending: {reason}"):
                Conclude(task_id="conclude").execute(context(run))
            run.keep(TablesProblem("they failed their checks"))
        run.keep(TablesProblem("run one is published, but its files are others", published_differs=True))
        with pytest.raises(AirflowFailException, match=r"^run one is published, but its files are others$"):
            Conclude(task_id="conclude").execute(context(run))
        control.complete(held, plan.run_id, {"orders.map_entry": 1})
        control.release(held)
    assert Conclude(task_id="conclude").execute(context(run))["state"] == "published"
