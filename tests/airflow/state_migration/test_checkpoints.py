"""The source `checkpoint`: the newest that is complete, of a job by Flink's REST API or of a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from flinkstate.errors import UsageError
from flinkstate.files.storage import Location
from stateferry.airflow.dag_runs.when_to_stop import rehearsed_job
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.savepoints import SavepointOrder, TakenSavepoint
from stateferry.airflow.flink.task import FlinkTask
from stateferry.airflow.requests.planning import Occasion, plan_for, planned
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.tasks.flink_tasks import TakeSavepoint
from stateferry.airflow.tasks.plan_task import PlanOperator
from stateferry.basics.durations import now_ms
from stateferry.runs.record.facts import ShownTimers
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.report.decision import Answer, Decision
from stateferry.runs.report.report import Report, SavepointDigests
from tests.airflow.state_migration.conftest import AS_OF
from tests.airflow.state_migration.savepoints import write_metadata
from tests.support.servers import Handler, serving

JOB = "a" * 32
OF_JOB = {"source": "checkpoint", "flink_job": "totals", "operator": "main", "legacy_state": "old", "new_state": "new"}
IN_FOLDER = {name: value for name, value in OF_JOB.items() if name != "flink_job"}
NOON = AS_OF.timestamp()


class FakeFlink:
    """Answers as Flink does that has one job, of which it remembers these checkpoints, the newest first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.history: list[dict[str, Any]] = []
        self.job = JOB

    def add(self, number: int, minutes: float, **others: Any) -> str:
        """Adds a checkpoint that was completed so many minutes after noon; returns its folder."""
        path = self.folder / f"chk-{number}"
        at = NOON + 60 * minutes
        write_metadata(path, checkpoint_id=number, completed_at=at)
        usual = {"status": "COMPLETED", "is_savepoint": False, "discarded": False, "external_path": f"file:{path}"}
        self.history.insert(0, {"id": number, "latest_ack_timestamp": int(1000 * at), **usual, **others})
        return str(path)

    def answer(self, path: str) -> Any:
        if path == "/jobs/overview":
            tasks = {"running": 1, "finished": 0, "total": 1}
            return {"jobs": [{"jid": self.job, "name": "totals", "state": "RUNNING", "start-time": 1, "tasks": tasks}]}
        assert path == f"/jobs/{self.job}/checkpoints"
        completed = [one for one in self.history if one["status"] == "COMPLETED" and not one["is_savepoint"]]
        return {"history": self.history, "latest": {"completed": completed[0] if completed else None}}


@pytest.fixture
def flink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeFlink]:
    fake = FakeFlink(tmp_path / "checkpoints")

    class Answers(Handler, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer_json(fake.answer(self.path))

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as port:
        connection = {"conn_type": "flink", "host": "127.0.0.1", "port": port}
        monkeypatch.setenv("AIRFLOW_CONN_FLINK_DEFAULT", json.dumps(connection))
        yield fake


def rehearsal(values: dict[str, Any]) -> MigrationRequest:
    return MigrationRequest.model_validate(values | {"mode": "rehearse"})


@pytest.mark.usefixtures("home")
def test_a_rehearsal_reads_the_newest_that_is_complete_and_a_retry_the_same(
    flink: FakeFlink, occasion: Occasion
) -> None:
    flink.add(5, -3, discarded=True)
    newest = flink.add(7, 2)
    flink.add(8, 3, status="IN_PROGRESS")
    flink.add(9, 4, is_savepoint=True)
    flink.add(10, 5, discarded=True)
    flink.add(11, 6, external_path="<checkpoint-not-externally-addressable>")
    plan, run = planned(rehearsal(OF_JOB), occasion)
    assert plan.source == newest
    # It was completed after the DAG run was triggered, and its timestamps may be as late as that.
    assert (plan.now, plan.now_from) == (int(1000 * (NOON + 120)), "clock")
    flink.add(12, 7)
    assert planned(rehearsal(OF_JOB), occasion) == (plan, run)
    later, _ = planned(rehearsal(OF_JOB), replace(occasion, run_id="manual__2"))
    assert later.source.endswith("chk-12")


@pytest.mark.usefixtures("home")
def test_the_rehearsal_before_a_cut_over_keeps_whose_checkpoint_it_reads(
    flink: FakeFlink, occasion: Occasion, tmp_path: Path
) -> None:
    flink.add(7, 2)
    asked = MigrationRequest.model_validate(OF_JOB | {"savepoint_directory": str(tmp_path / "savepoints")})
    assert asked.stops_job
    here: Any = {"ti": SimpleNamespace(dag_id="d"), "dag_run": SimpleNamespace(run_id="r", start_date=AS_OF)}
    run = Run.open(Location.of(PlanOperator(task_id="plan")._rehearsal(asked, occasion, here)))
    assert rehearsed_job(run) == JOB
    # Another try reads the same checkpoint, whatever job runs by then.
    flink.job = "b" * 32
    run = Run.open(Location.of(PlanOperator(task_id="plan")._rehearsal(asked, occasion, here)))
    assert rehearsed_job(run) == JOB


@pytest.mark.usefixtures("home")
def test_a_backfilled_day_reads_what_was_complete_by_its_date_or_nothing(flink: FakeFlink, occasion: Occasion) -> None:
    of_day = flink.add(3, -1)
    flink.add(4, 1)
    day = replace(occasion, is_backfill=True)
    plan, _ = planned(rehearsal(OF_JOB), day)
    assert (plan.source, plan.now, plan.now_from) == (of_day, day.now, "backfill")
    before = replace(day, run_id="backfill__2", as_of=AS_OF - timedelta(days=1))
    with pytest.raises(UsageError, match="of job totals that was completed by 2026-11-19 12:00:00 UTC; 2 are newer"):
        planned(rehearsal(OF_JOB), before)
    in_folder = rehearsal(IN_FOLDER | {"checkpoint_folder": str(flink.folder)})
    assert planned(in_folder, replace(day, run_id="backfill__3"))[0].source.endswith("chk-3")
    with pytest.raises(UsageError, match="has no complete checkpoint chk-N that was completed by 2026-11-19"):
        planned(in_folder, before)


@pytest.mark.usefixtures("home")
def test_without_a_checkpoint_there_is_no_run(flink: FakeFlink, occasion: Occasion) -> None:
    with pytest.raises(UsageError, match="turn on checkpoints, and retain them"):
        planned(rehearsal(OF_JOB), occasion)


@pytest.mark.usefixtures("home")
def test_of_a_folder_the_highest_number_counts_that_is_complete(tmp_path: Path, occasion: Occasion) -> None:
    folder = tmp_path / "job"
    for number in (2, 9, 10):
        write_metadata(folder / f"chk-{number}", checkpoint_id=number, completed_at=NOON)
    (folder / "chk-11").mkdir()
    write_metadata(folder / "shared")
    plan, _ = planned(rehearsal(IN_FOLDER | {"checkpoint_folder": str(folder)}), occasion)
    assert plan.source == str(folder / "chk-10")
    stopped = {"checkpoint_folder": str(folder), "job_stopped": True}
    cut_over = MigrationRequest.model_validate(IN_FOLDER | stopped)
    assert not cut_over.takes_savepoint
    assert planned(cut_over, replace(occasion, run_id="manual__2"))[0].source == str(folder / "chk-10")


@pytest.mark.usefixtures("home")
def test_a_night_that_is_gone_on_from_holds_its_checkpoint(tmp_path: Path, occasion: Occasion) -> None:
    write_metadata(tmp_path / "job" / "chk-2", checkpoint_id=2, completed_at=NOON)
    values = IN_FOLDER | {"checkpoint_folder": str(tmp_path / "job"), "format": "native", "mode": "rehearse"}
    night = MigrationRequest.model_validate(values).night()
    plan, run = planned(night, occasion, holds=night.keeps_base)
    assert run is not None
    assert (plan.source, plan.full_every) == (run.held.path, 7)
    assert run.held.child("_metadata").is_file()
    assert not MigrationRequest.model_validate(values | {"full_every": 1}).night().keeps_base
    day, of_day = planned(night, replace(occasion, run_id="day", is_backfill=True), holds=night.keeps_base)
    assert of_day is not None
    assert day.source.endswith("chk-2")


@pytest.mark.parametrize("shown", [True, False, None])
def test_a_cut_over_stops_the_job_with_a_native_savepoint_only_if_a_rehearsal_has_shown_its_timers(
    shown: bool | None, home: Path, occasion: Occasion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = MigrationRequest.model_validate(OF_JOB | {"savepoint_directory": str(tmp_path / "savepoints")})
    before = replace(occasion, run_id="scheduled__1")
    rehearsed = Run.create(plan_for(request.rehearsal(), before, str(home / "demo" / "legacy")), before.now)
    for state in (RunState.RUNNING, RunState.VERIFIED):
        rehearsed.enter(state, 1)
    if shown is not None:
        rehearsed.keep(ShownTimers(in_native_savepoints=shown))
    rehearsed.keep(Decision(rehearsed.plan.run_id, Answer.APPROVED, "approved by ada", 1))
    none = SavepointDigests("/in", 1, {})
    Report(rehearsed.plan.job, rehearsed.plan.run_id, "f", now_ms(), none, none, ()).write(rehearsed.report)
    monkeypatch.setattr(FlinkHook, "run", lambda *_: None)
    orders: list[SavepointOrder] = []

    def taken(_: FlinkTask, order: SavepointOrder, **__: Any) -> TakenSavepoint:
        orders.append(order)
        savepoint = write_metadata(Path(order.directory) / "savepoint-1", completed_at=NOON)
        return TakenSavepoint(JOB, savepoint)

    monkeypatch.setattr(FlinkTask, "take_savepoint", taken)
    plan, run = planned(request, occasion)
    assert run is None
    folder = run_folder(plan.home, plan.job, plan.run_id)
    said = {"folder": folder.shown, "rehearsal": rehearsed.folder.shown, "request": request.model_dump()}
    ti = SimpleNamespace(
        dag_id="d", task_id="t", map_index=-1, run_id="r", try_number=1,
        xcom_pull=lambda **_: said, xcom_push=lambda **_: None, get_task_states=lambda **_: {},
    )  # fmt: skip
    dag_run = SimpleNamespace(
        run_id=occasion.run_id, data_interval_end=AS_OF, run_after=AS_OF, start_date=AS_OF, run_type="manual"
    )
    context: Any = {"ti": ti, "dag_run": dag_run}
    result = TakeSavepoint(task_id="take_savepoint").execute(context)
    (order,) = orders
    assert (order.stop, order.format) == (True, "NATIVE" if shown else "CANONICAL")
    made = Run.open(folder).plan
    assert (made.source, made.no_timers) == (result["savepoint"], bool(shown))
    said["request"] = request.rehearsal().model_dump()
    with pytest.raises(AirflowSkipException):
        TakeSavepoint(task_id="take_savepoint").execute(context)
