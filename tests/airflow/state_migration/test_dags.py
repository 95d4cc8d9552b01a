"""The DAG files: quickly imported, in the right order, and knowing neither Spark nor compiled kernels."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, BaseOperator, TaskGroup

from stateferry.airflow.dag_runs.priorities import POOL
from stateferry.airflow.dag_runs.task_names import IN_OUTAGE, not_needed
from stateferry.airflow.migration_dag import migration_dags, tell_problems
from stateferry.airflow.requests.planning import requested_by_form
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.tasks.flink_tasks import TaskWithFlink
from stateferry.airflow.tasks.shared_application_task import ShareApplication
from tests.airflow.state_migration.test_jobs import REQUEST

REPOSITORY = Path(__file__).parents[3]
DAGS = {"state_migration": "state_migration.py", "state_rollback": "state_rollback.py"}
_IMPORT = """
import json, sys, time
import airflow.sdk
airflows = began = time.process_time()
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), {"__name__": "dag_file", "__doc__": ""})
seconds = time.process_time() - began
print(json.dumps({"seconds": seconds, "airflows": airflows, "modules": sorted(sys.modules)}))
"""


def load(name: str) -> DAG:
    spec = importlib.util.spec_from_file_location(f"dag_file_{name}", REPOSITORY / "dags" / DAGS[name])
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    dag: DAG = getattr(module, name) if hasattr(module, name) else module.dag
    return dag


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    return lambda values: monkeypatch.setenv("AIRFLOW_VAR_STATE_MIGRATION", json.dumps(values))


@pytest.mark.parametrize("name", DAGS)
def test_a_dag_is_imported_in_less_than_two_seconds_without_spark(name: str) -> None:
    command = [sys.executable, "-c", _IMPORT, str(REPOSITORY / "dags" / DAGS[name])]
    # On a busy machine all takes more of the processor's time, also what Airflow imports before, which is more.
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY / "plugins")
        said = json.loads(done.stdout.splitlines()[-1])
        assert not {"pyspark", "numba", "py4j", "spark_jobs", "pyiceberg"} & set(said["modules"])
        if said["seconds"] < max(2, said["airflows"]):
            return
    pytest.fail(f"it took {said['seconds']} s, and Airflow's own import {said['airflows']} s")


def test_the_steps_come_in_order() -> None:
    dag = load("state_migration")
    rehearsed = ["take_savepoint", "snapshot", "migrate", "rescale", "validate", "tables", "catch_up"]
    rehearsal, again = ([f"{group}.{task}" for task in rehearsed] for group in ("rehearsal", "rehearsal_again"))
    outage = ["take_savepoint", "snapshot", "migrate", "rescale", "validate", "approve", "cut_over", "start_job"]
    order = ["plan", *rehearsal, "decide", "wait_to_stop", *again, *outage, "tables", "conclude"]
    for before, after in pairwise(order):
        assert after in dag.task_dict[before].downstream_task_ids
    # A cut-over of a savepoint has no rehearsal, nobody is asked after the stop, and nobody need start the job.
    for before, after in (("plan", "snapshot"), ("validate", "cut_over"), ("cut_over", "tables")):
        assert after in dag.task_dict[before].downstream_task_ids
        assert dag.task_dict[after].trigger_rule == "none_failed_min_one_success"
    # Without states to migrate there are no tables.
    for group, nexts in (
        ("rehearsal", {"rehearsal.catch_up", "decide", "conclude"}),
        ("rehearsal_again", {"rehearsal_again.catch_up", "take_savepoint", "application", "hold_slot"}),
    ):
        assert nexts <= dag.task_dict[f"{group}.validate"].downstream_task_ids
        rules = {dag.task_dict[name].trigger_rule for name in nexts - {"conclude"}}
        assert rules == {"none_failed_min_one_success"}
    assert dag.task_dict["return_to_old_job"].upstream_task_ids == {"take_savepoint", "watch_outage", "start_job"}
    # An application that isn't needed any more ends by itself, and so does the task that keeps a slot.
    assert {task.task_id for task in dag.leaves} == {*BESIDE, "conclude"}
    for name in BESIDE:
        first = dag.task_dict[name.replace("application", "take_savepoint").replace("hold_slot", "take_savepoint")]
        assert dag.task_dict[name].upstream_task_ids <= first.upstream_task_ids
        # The loss of such a task must not make the DAG run red.
        assert dag.task_dict[name].retries


def test_the_graph_shows_a_person_nine_things() -> None:
    """Groups are closed until a person opens them; within them is each task once."""
    dag = load("state_migration")
    shown = ["plan", "check", "rehearsal", "decide", "wait_to_stop", "rehearsal_again", "outage", "tables", "conclude"]
    assert sorted(dag.task_group.children) == sorted(shown)
    groups = {name: one for name, one in dag.task_group.children.items() if isinstance(one, TaskGroup)}
    assert sorted(groups) == ["outage", "rehearsal", "rehearsal_again"]
    assert sorted(groups["outage"].children) == sorted(IN_OUTAGE)
    assert all(one.tooltip for one in groups.values())
    assert all(task.doc_md for task in dag.tasks)


BESIDE = ("rehearsal.application", "rehearsal_again.application", "application", "hold_slot")
FROM_FLINK = {"source": "flink", "savepoint": None, "flink_conn_id": "flink", "flink_job": "totals"}
FROM_FLINK |= {"savepoint_directory": "file:///savepoints"}
START = {"flink_conn_id": "flink", "start_job": True, "jar": "new.jar", "entry_class": "New"}
RESCALE = {"work": "rescale only", "operator": None, "legacy_state": None, "new_state": None, "parallelism": 4}
RESCALE |= {"job": "orders"}


@pytest.mark.parametrize("work", [{}, RESCALE], ids=["migrate", "rescale"])
@pytest.mark.parametrize("source", [{}, FROM_FLINK], ids=["path", "flink"])
@pytest.mark.parametrize(
    ("mode", "start"),
    [("rehearse", {}), ("check only", {}), ("cut over", {}), ("cut over", START)],
    ids=["rehearse", "check_only", "cut_over", "start"],
)
def test_nothing_is_at_work_any_more_when_the_run_is_concluded(
    mode: str, start: dict[str, Any], source: dict[str, Any], work: dict[str, Any]
) -> None:
    # A check takes no savepoint.
    source = {} if mode == "check only" else source
    values = {**REQUEST, "mode": mode, **source, **work, **start}
    request = MigrationRequest.model_validate({name: value for name, value in values.items() if value is not None})
    dag = load("state_migration")
    tasks, at_work = dag.task_dict, set(dag.task_dict) - set(not_needed(request))
    for task in dag.topological_sort():  # type: ignore[no-untyped-call]
        # Airflow skips these as soon as a task before them is skipped, or none has failed.
        alone = task.trigger_rule == "all_success" and not task.upstream_task_ids <= at_work
        if alone or task.trigger_rule == "one_failed":
            at_work.discard(task.node_id)
    last = tasks["conclude"].upstream_task_ids & at_work
    before = {name for one in last for name in tasks[one].get_flat_relative_ids(upstream=True)}
    assert at_work <= {*before, *last, "conclude", *BESIDE}


def test_who_ends_a_task_ends_no_job() -> None:
    tasks = [task for name in DAGS for task in load(name).tasks if isinstance(task, TaskWithFlink)]
    assert {task.task_id for task in tasks} == {
        *(
            "rehearsal.take_savepoint",
            "rehearsal_again.take_savepoint",
            "take_savepoint",
            "start_job",
            "return_to_old_job",
            "cancel_new_job",
            "start_old_job",
        )
    }
    assert all(type(task).on_kill is BaseOperator.on_kill for task in tasks)


def test_without_a_configuration_nothing_is_scheduled(configured: Callable[[object], None]) -> None:
    assert not load("state_migration").timetable.can_be_scheduled
    for wrong in ("nonsense", {"sauce": "path"}, {"jobs": {"orders": {"request": REQUEST}}}):
        configured(wrong)
        assert not load("state_migration").timetable.can_be_scheduled
    configured(REQUEST)
    dag = load("state_migration")
    assert dag.timetable.can_be_scheduled
    assert dag.catchup is False
    assert dag.max_active_runs == 1


def test_each_configured_job_has_a_dag_form_pool_and_assets_of_its_own(configured: Callable[[object], None]) -> None:
    orders = {
        "request": {**REQUEST, "ttl": "3d"},
        "schedule": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "pool": "ferry",
    }
    configured({"jobs": {"orders": orders, "bad": {}, "carts": {"request": REQUEST, "schedule": None}}})
    dags = {dag.dag_id: dag for dag in migration_dags()}
    assert list(dags) == ["state_migration", "state_migration_orders", "state_migration_carts"]
    dag = dags["state_migration_orders"]
    timetable: Any = dag.timetable
    assert (timetable.expression, timetable.timezone) == ("30 2 * * *", "Europe/Berlin")
    assert not dags["state_migration_carts"].timetable.can_be_scheduled
    params = dag.params.dump()
    assert (params["ttl"], params["savepoint"], params["job"]) == ("3d", "/in", "orders")
    assert requested_by_form(params, {}) == MigrationRequest.model_validate({**REQUEST, "ttl": "3d", "job": "orders"})
    dag.params.validate()
    # A person may empty what is filled in.
    dag.params.get_param("ttl").resolve(None)
    with_spark = [task for task in dag.tasks if isinstance(task, SparkSubmitOperator)]
    # The application only works for a step that has a slot. Nights may fill the pool while a job stands still.
    of_outage = {*IN_OUTAGE} - {"approve"}
    in_pool = [t for t in with_spark if not isinstance(t, ShareApplication) and t.task_id not in of_outage]
    assert {task.pool for task in in_pool} == {"ferry"}
    assert {task.task_id for task in dag.tasks if task.pool == POOL} == of_outage
    assert {task.pool for task in dag.tasks if task not in in_pool} == {"default_pool", POOL}
    kinds = ("published_savepoint", "rehearsed_days", "state_tables", "tables_if_moved")
    assets = {f"stateferry_{one}" for one in kinds}
    assert {one.name for task in dag.tasks for one in task.outlets} == {f"{one}_orders" for one in assets}
    assert {one.name for task in dags["state_migration"].tasks for one in task.outlets} == assets


STOPS = {**FROM_FLINK, "start_job": True, "jar": "new.jar", "old_jar": "old.jar"}


@pytest.mark.parametrize(
    ("given", "name", "shown"),
    [
        ({"parallelism": {"main": 4, "a, b=c": 8}}, "parallelism", "main=4,a, b=c=8"),
        ({"parallelism": " 04 "}, "parallelism", 4),
        *(({"ttl": text}, "ttl", text) for text in ("30 d", "0.5h", "030d", "2592000000", " 2 h ")),
        *(({**STOPS, name: "0.5 h"}, name, "0.5 h") for name in ("start_timeout", "outage_limit", "settle")),
        ({"clock_tolerance": "0"}, "clock_tolerance", "0"),
        ({"flink_conn_id": ""}, "flink_conn_id", "flink_default"),
        ({"kubernetes_conn_id": " "}, "kubernetes_conn_id", "kubernetes_default"),
    ],
)
def test_whatever_a_request_may_say_is_filled_into_its_form(
    configured: Callable[[object], None], given: dict[str, object], name: str, shown: object
) -> None:
    request = {**REQUEST, **given}
    configured({"jobs": {"orders": {"request": {one: value for one, value in request.items() if value is not None}}}})
    (dag,) = (dag for dag in migration_dags() if dag.dag_id == "state_migration_orders")
    params = dag.params.dump()
    assert params[name] == shown
    assert getattr(requested_by_form(params, {}), name) == shown
    tell_problems()


def test_a_form_that_cant_be_made_takes_no_other_dag_down(configured: Callable[[object], None]) -> None:
    # As a text, it would be the parallelism of two operators.
    request = {**REQUEST, "parallelism": {"a=4,b": 8}}
    configured({"jobs": {"bad": {"request": request}, "orders": {"request": REQUEST}}})
    assert [dag.dag_id for dag in migration_dags()] == ["state_migration", "state_migration_orders"]
    with pytest.raises(ValueError, match=r"jobs\.bad: parallelism: the form can't show {'a=4,b': 8}"):
        tell_problems()


def test_the_configurations_problems_are_an_import_error(configured: Callable[[object], None]) -> None:
    file = REPOSITORY / "dags" / "state_migration_configuration.py"
    runpy.run_path(str(file))
    notify = [{"notifier": "nowhere.Notifier"}]
    configured({"jobs": {"orders": {"request": REQUEST, "notify": notify}, "bad": {}}})
    with pytest.raises(ValueError, match="problems:") as told:
        runpy.run_path(str(file))
    assert "jobs.bad: request: missing" in str(told.value)
    assert "No module named 'nowhere'" in str(told.value)
    # Airflow looks into a file only if it has these words.
    for name in ("state_migration.py", "state_migration_configuration.py", "state_rollback.py"):
        assert {"dag", "airflow"} <= set(re.findall("dag|airflow", (REPOSITORY / "dags" / name).read_text().lower()))


def test_a_lost_process_is_no_answer() -> None:
    """Neither to a question nor of a step."""
    for name in DAGS:
        assert load(name).task_dict["approve"].retries
    assert load("state_migration").task_dict["snapshot"].retries
