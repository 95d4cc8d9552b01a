"""The groups of a team's own tasks in a DAG: each between a task of ours that asks and one that goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, TaskGroup, TriggerRule

from stateferry.airflow.dag_runs.dag_run import (
    check_not_returned,
    fail_if_refused,
    rehearsal_of,
    run_of,
    skip,
    task_states,
)
from stateferry.airflow.dag_runs.priorities import BEFORE_STOP, RETURNS, STOPPED
from stateferry.airflow.dag_runs.task_names import (
    OWN_RETURN,
    OWN_START,
    OWN_STOP,
    RETURN_ASKED,
    START_ASKED,
    STOP_ASKED,
)
from stateferry.airflow.runs_on.own_tasks import own_functions
from stateferry.airflow.tasks.flink_tasks import StartJob, TakeSavepoint
from stateferry.airflow.tasks.return_task import ReturnToOldJob
from stateferry.runs.control.outage_limit import check_may_start

if TYPE_CHECKING:
    from airflow.sdk import Context

_UNLESS_FAILED = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS

_log = logging.getLogger(__name__)


def with_own_groups(
    path: str, take_savepoint: TakeSavepoint, cut_over: BaseOperator, start_job: StartJob, returns: ReturnToOldJob
) -> tuple[TakeSavepoint, ReturnToOldJob]:
    """Puts the own tasks before ours; returns the tasks that begin the outage and the way back."""
    stop, start, go_back = own_functions(path)
    stop_asked = TakeSavepoint(task_id=STOP_ASKED, asks=True, trigger_rule=_UNLESS_FAILED, **BEFORE_STOP)
    for task in _between(stop_asked, OWN_STOP, stop, take_savepoint, STOPPED):
        _check_before(task, _check_may_stop)
    start_asked = StartJob(task_id=START_ASKED, asks=True, **STOPPED)
    cut_over >> start_asked
    for task in _between(start_asked, OWN_START, start, start_job, STOPPED):
        _check_before(task, _check_may_start)
    # If own tasks are skipped, the new job isn't started: `start_job` fails then, and the old job comes back.
    start_job.trigger_rule = TriggerRule.NONE_FAILED
    _check_before(start_job, _skip_unless_asked)
    return_asked = ReturnToOldJob(task_id=RETURN_ASKED, asks=True, trigger_rule=TriggerRule.ONE_FAILED, **RETURNS)
    returns.trigger_rule = TriggerRule.ALL_SUCCESS
    _between(return_asked, OWN_RETURN, go_back, returns, RETURNS)
    return stop_asked, return_asked


def _between(
    asks: BaseOperator, name: str, make: Callable[[Any], object], goes_on: BaseOperator, first: Mapping[str, Any]
) -> list[BaseOperator]:
    """Returns the tasks of the group."""
    with TaskGroup(name, tooltip=f"Own tasks, asked by {asks.task_id}") as group:
        make(asks.output)
    leaves = list(group.get_leaves())
    if len(leaves) != 1:
        raise ValueError(f"own_tasks: {name}: expected exactly one last task, whose XCom is the answer, of {leaves}")
    tasks = list(_unmapped(group))
    for task in tasks:
        # They go first, as those of a job that stands still do.
        task.pool, task.priority_weight = first["pool"], first["priority_weight"]
    asks >> group >> goes_on
    return tasks


def _unmapped(group: TaskGroup) -> Iterator[BaseOperator]:
    for task in group.iter_tasks():
        if not isinstance(task, BaseOperator):
            raise ValueError(f"own_tasks: {task.task_id} is mapped: give it its arguments itself")
        yield task


def _check_may_stop(context: Context) -> None:
    # The old job may have been started again before there was a run that could say so.
    check_not_returned(rehearsal_of(context))


def _check_may_start(context: Context) -> None:
    with fail_if_refused():
        check_may_start(run_of(context))


def _skip_unless_asked(context: Context) -> None:
    if task_states(context, [START_ASKED]).get(START_ASKED) == "skipped":
        skip(_log, f"{START_ASKED} was skipped, so no new job is to be started")


def _check_before(task: BaseOperator, check: Callable[[Context], None]) -> None:
    """Has each try of the task begin with the check.

    A task of the team may be tried again, or cleared by a person, at any time, also once the old job is to be started
    again: then two jobs would read the same input, or none would run.
    """
    of_team = task._pre_execute_hook

    def checked(context: Context) -> None:
        check(context)
        if of_team is not None:
            of_team(context)

    task._pre_execute_hook = checked
