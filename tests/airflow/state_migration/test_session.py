"""On a session cluster no job is started beside another one of its name, whoever has started that."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowFailException

from stateferry.airflow.flink import stopping
from stateferry.airflow.flink.errors import FlinkUnreachableError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import JobOverview
from stateferry.airflow.flink.rest import FlinkRest
from stateferry.airflow.flink.savepoints import CHECKPOINT, Pending, SavepointOrder, TakenSavepoint
from stateferry.airflow.flink.task import FlinkTask
from stateferry.airflow.requests.planning import Occasion
from stateferry.airflow.runs_on.places import place_of
from stateferry.airflow.runs_on.session import other_job
from stateferry.airflow.tasks.flink_tasks import StartJob
from stateferry.airflow.tasks.return_task import ReturnToOldJob
from stateferry.runs.record.facts import JobStarted, Returned
from tests.airflow.state_migration.test_outage import Cut, checkpoints, started
from tests.support.facts import kept_facts

__all__ = ["checkpoints", "started"]


def job(job_id: str, state: str = "RUNNING", name: str = "orders") -> JobOverview:
    return JobOverview(job_id, name, state, 1, is_up=state == "RUNNING")


@pytest.fixture
def cut(tmp_path: Path, home: Path, occasion: Occasion) -> Cut:
    return Cut(tmp_path, home, occasion, minutes=1, outage_limit=None)


class Rest:
    """Flink, whose list of jobs is old, and whose job goes through these states; it can't be asked for a checkpoint."""

    def __init__(self, *states: str) -> None:
        self.states = list(states)

    async def get(self, path: str) -> dict[str, Any]:
        if path.endswith("/status"):
            return {"status": self.states.pop(0)}
        tasks = {"running": 1, "finished": 0, "total": 1}
        return {"jobs": [{"jid": "a1", "name": "orders", "state": "RUNNING", "start-time": 1, "tasks": tasks}]}


def test_a_job_that_an_earlier_try_has_cancelled_is_about_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its window doesn't count any more, and it takes no checkpoint."""

    async def newest(_rest: object, job_id: str, number: int = 0) -> TakenSavepoint:
        return TakenSavepoint(job_id, f"chk-{number}")

    monkeypatch.setattr(stopping, "newest_of_ended", newest)
    order, taken = SavepointOrder((), "a1", "", True, CHECKPOINT), TakenSavepoint("a1", "chk-0")

    def found(*states: str) -> object:
        return asyncio.run(stopping.find(cast("FlinkRest", Rest(*states)), order))

    assert [found(state) for state in ("RUNNING", "CANCELLING", "CANCELED")] == [None, Pending("a1", ""), taken]
    rest = cast("FlinkRest", Rest("CANCELLING", "CANCELLING", "CANCELED"))
    assert asyncio.run(stopping.take(rest, order, timeout=9, poll_interval=0)) == taken


def own_job(cut: Cut) -> str:
    """The id of the job that the task starts, in each of its tries."""
    return FlinkTask(FlinkHook(), cut.context).job_id


def test_the_new_job_does_not_start_beside_an_old_one_that_was_started_by_hand(
    cut: Cut, jobs: list[JobOverview], started: list[str], checkpoints: dict[str, bool]
) -> None:
    """As a person does who is told from where, or a supervisor; then somebody clears a task of the run."""
    cut.publish()
    cut.context["ti"].xcom_push = lambda key, value: None
    checkpoints["by hand"] = True
    jobs.append(job("by hand"))
    with pytest.raises(
        AirflowFailException, match="job by hand, which is RUNNING with connection flink_default, is or"
    ):
        StartJob(task_id="start_job").execute(cut.context)
    assert (started, cut.run.facts(JobStarted)) == ([], None)
    jobs[:] = [job("by hand", "CANCELED"), job("another's", name="invoices"), job(own_job(cut))]
    # What the list calls running may have ended.
    jobs.append(job("unknown"))
    StartJob(task_id="start_job").execute(cut.context)
    assert started == ["new.jar"]


def test_the_old_job_is_not_started_beside_one_that_was_started_by_hand(
    cut: Cut, jobs: list[JobOverview], started: list[str], checkpoints: dict[str, bool]
) -> None:
    checkpoints["by hand"] = True
    jobs.append(job("by hand"))
    with pytest.raises(AirflowFailException, match=r"job by hand, which is RUNNING .*, and this task hasn't start"):
        ReturnToOldJob(task_id="return_to_old_job").execute(cut.context)
    returned = kept_facts(cut.run, Returned)
    assert (started, returned.ended_at) == ([], None)
    # An earlier try of the task has started its own.
    jobs[:] = [job(own_job(cut))]
    assert place_of(cut.request, cut.context).start_old("/old")["job_id"] == own_job(cut)
    assert started == ["old.jar"]


def test_another_flink_is_looked_at_if_it_answers(
    monkeypatch: pytest.MonkeyPatch, checkpoints: dict[str, bool]
) -> None:
    checkpoints["there"] = True
    down: list[str] = []

    def listed(hook: Any) -> list[JobOverview]:
        if hook.flink_conn_id in down:
            raise FlinkUnreachableError("no answer")
        return [job("there")] if hook.flink_conn_id == "new" else []

    monkeypatch.setattr(FlinkHook, "jobs", listed)
    assert other_job("orders", "own", ("old", "new")) == "job there, which is RUNNING with connection new"
    assert other_job("there", "own", ("old", "new")) == "job there, which is RUNNING with connection new"
    assert other_job("orders", "there", ("old", "new")) is None
    down.append("new")
    assert other_job("orders", "own", ("old", "new")) is None
    with pytest.raises(FlinkUnreachableError):
        other_job("orders", "own", ("new", "old"))
