"""Which task gets a free slot first, the slot that is kept for a job that stands still, and why a task was skipped."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.pool import Pool
from airflow.models.xcom import XComModel
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowRescheduleException
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils import session as sessions
from sqlalchemy import create_engine, insert, select
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from stateferry.airflow.dag_runs import priorities
from stateferry.airflow.dag_runs.dag_run import LEFT_OUT
from stateferry.airflow.dag_runs.priorities import POOL
from stateferry.airflow.pages import page_notes
from stateferry.airflow.tasks import hold_slot
from stateferry.airflow.tasks.hold_slot import HoldSlot, wait_for_slots
from tests.airflow.state_migration.test_dags import DAGS, load
from tests.airflow.state_migration.test_steps import TaskInstance

STOPPED = ("take_savepoint", "snapshot", "migrate", "rescale", "validate", "cut_over", "start_job")
BESIDE = ("application", "hold_slot", "watch_outage")


def weights(dag: DAG, run_id: str) -> dict[str, int]:
    """As Airflow's scheduler computes them, from the DAG that it has read."""
    read = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    instances: dict[str, Any] = {name: SimpleNamespace(task=one, run_id=run_id) for name, one in read.task_dict.items()}
    return {name: one.task.weight_rule.get_weight(one) for name, one in instances.items()}


@pytest.mark.parametrize("run_id", ["manual__1", "scheduled__1"], ids=["by hand", "cut over by schedule"])
def test_a_stopped_job_goes_first_and_its_way_back_most(run_id: str) -> None:
    found = weights(load("state_migration"), run_id)
    outage = {name: found.pop(name) for name in (*STOPPED, "return_to_old_job", *BESIDE)}
    assert max(outage, key=lambda name: outage[name]) == "return_to_old_job"
    # A job that isn't stopped yet takes no slot from one that stands still.
    after_stop = {outage[name] for name in STOPPED[1:]}
    assert len(after_stop) == 1
    assert min(after_stop) > outage["take_savepoint"]
    assert outage["take_savepoint"] > outage["application"] == outage["hold_slot"] > 100 * max(found.values())
    # It starts beside the first step, which needs the slot of the task before, and gets the one that is held.
    assert min(after_stop) > outage["watch_outage"] > outage["hold_slot"]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["scheduled", "backfill"])
def test_nights_and_backfills_give_way_to_what_a_person_has_triggered(kind: str) -> None:
    dag = load("state_migration")
    night, by_hand = weights(dag, f"{kind}__2026-11-20"), weights(dag, "manual__2026-11-20")
    not_stopped = [name for name in by_hand if dag.task_dict[name].pool != POOL]
    assert {night[name] for name in not_stopped} == {1}
    assert min(by_hand[name] for name in not_stopped) > 1


@pytest.mark.full
def test_no_other_task_has_the_pool_and_no_default_of_an_airflow_makes_them_wait() -> None:
    dags = [load(name) for name in DAGS]
    in_pool = {f"{dag.dag_id}.{task.task_id}" for dag in dags for task in dag.tasks if task.pool == POOL}
    forth = {f"state_migration.{name}" for name in (*STOPPED, "return_to_old_job", *BESIDE)}
    assert in_pool == forth | {f"state_rollback.{name}" for name in ("cancel_new_job", "roll_back", "start_old_job")}
    assert all(dag.max_active_tasks >= 16 for dag in dags)
    assert weights(dags[1], "manual__1")["start_old_job"] > weights(dags[0], "manual__1")["start_job"]


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    import_all_models()  # type: ignore[no-untyped-call]
    Base.metadata.create_all(engine, [one.__table__ for one in (Pool, XComModel)])
    with Session(engine) as session:

        @contextmanager
        def opened() -> Iterator[Session]:
            with session.begin():
                yield session

        monkeypatch.setattr(sessions, "create_session", opened)
        yield session


def test_airflow_has_the_pool_when_it_has_started(database: Session) -> None:
    class Job:
        """What Airflow calls each of its components."""

    def slots() -> list[int]:
        with database.begin():
            return list(database.scalars(select(Pool.slots).where(Pool.pool == POOL)))

    # The process of a task, which has no database.
    priorities.on_starting(SimpleNamespace())
    assert slots() == []
    for _ in range(2):
        priorities.on_starting(Job())
    assert slots() == [-1]
    with database.begin():
        database.scalars(select(Pool)).one().slots = 8
    priorities.on_starting(Job())
    assert slots() == [8], "a person's own number stays"


class Watched(TaskInstance):
    """The states of tasks, one after the other."""

    def __init__(self, *states: dict[str, str]) -> None:
        super().__init__({})
        self.later = list(states)

    def get_task_states(self, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, Any]:
        if self.later:
            self.states = {**self.states, **self.later.pop(0)}
        return super().get_task_states(dag_id, task_ids, run_ids)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_slot, "_POLL", 0.001)


def hold(*states: dict[str, str]) -> None:
    context: Any = {"ti": Watched(dict.fromkeys([*STOPPED, "watch_outage", "return_to_old_job"], "None"), *states)}
    HoldSlot().execute(context)


def test_the_slot_is_held_until_no_task_can_need_it() -> None:
    # One that gets a slot at once is in this state for a moment.
    hold({"snapshot": "scheduled"}, {"snapshot": "queued"}, {"start_job": "success"}, {"return_to_old_job": "skipped"})
    hold({"start_job": "upstream_failed"}, {"return_to_old_job": "scheduled"}, {"return_to_old_job": "success"})


@pytest.mark.parametrize("task", [*STOPPED, "watch_outage", "return_to_old_job"])
def test_the_slot_goes_to_a_task_that_waits_for_one(task: str) -> None:
    with pytest.raises(AirflowRescheduleException):
        hold({task: "up_for_retry"}, {task: "scheduled"}, {})


def test_the_job_is_not_stopped_before_all_slots_are_there(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Watched({"application": "scheduled", "hold_slot": "None"}, {}, {"application": "running"},
                    {"hold_slot": "scheduled"}, {"hold_slot": "queued"}, {"hold_slot": "running"})  # fmt: skip
    context: Any = {"ti": first}
    with caplog.at_level("INFO"):
        wait_for_slots(context, logging.getLogger())
    assert first.later == []
    assert "the job runs on until there is a slot for the task application" in caplog.text
    # Each of two cut-overs may have the slot that the other one needs.
    monkeypatch.setattr(hold_slot, "_PATIENCE", (0.01, 0.02))
    context = {"ti": Watched({"application": "running", "hold_slot": "scheduled"})}
    with pytest.raises(AirflowRescheduleException):
        wait_for_slots(context, logging.getLogger())
    # A person may have marked it, and an application that was lost isn't waited for.
    context = {"ti": Watched({"application": "skipped", "hold_slot": "success"})}
    wait_for_slots(context, logging.getLogger())


def test_a_task_that_was_left_out_has_the_reason_as_its_note(
    database: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_notes, "object_session", lambda _: database)
    tasks = [
        SimpleNamespace(task_id=name, note=note)
        for name, note in (
            ("check", None),
            ("return_to_old_job", None),
            ("decide", "a person's own"),
            ("snapshot", None),
        )
    ]
    values = {"dag_run_id": 1, "map_index": -1, "key": LEFT_OUT, "dag_id": "state_migration", "run_id": "one"}
    for task, said in (("plan", {"check": "mode is 'rehearse'", "decide": "why"}), ("wait_to_stop", {"x": "y"})):
        database.execute(insert(XComModel.__table__).values(**values, task_id=task, value=said))
    database.commit()
    own: Any = SimpleNamespace(
        dag_id="state_migration", run_id="one", dag_run_note=None, get_task_instances=lambda state, session: tasks
    )
    page_notes.on_dag_run_success(own, "")
    assert [task.note for task in tasks] == [
        "mode is 'rehearse'", "nothing has failed after the job was stopped", "a person's own", None
    ]  # fmt: skip
    of_others: Any = SimpleNamespace(dag_id="another", run_id="one")
    page_notes.on_dag_run_failed(of_others, "")
