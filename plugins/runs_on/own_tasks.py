"""Jobs that tasks of a team's own stop and start: before each of ours that needs it there is a group of theirs.

Their module or class has three functions, `stop`, `start` and `go_back`. Each is called once, while the DAG is made,
inside a group, with the XCom of a task that says what is asked for; it makes tasks, of which exactly one is the last.
What that one returns is the answer.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flinkstate.errors import UsageError
from stateferry.airflow.dag_runs.dag_run import fail_if_refused, rehearsal_of, stop_asked, task_states
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.dag_runs.task_names import OWN_RETURN, OWN_START, OWN_STOP, RETURN_ASKED, START_ASKED
from stateferry.airflow.flink.savepoints import SavepointOrder, TakenSavepoint
from stateferry.airflow.requests.sources import completed_at
from stateferry.basics.durations import moment, now_ms
from stateferry.runs.control.outage_limit import StopAsked
from stateferry.runs.record.runs import Run

if TYPE_CHECKING:
    from airflow.sdk import Context

# Storage and Airflow may have clocks that differ.
_CLOCKS_MS = 60_000
_ENDED_UNKNOWN = TakenSavepoint(None, "")
"""Of a stop that has failed before it said whether the job is stopped, and where: nobody knows its savepoint."""

_log = logging.getLogger(__name__)


def own_functions(path: str) -> tuple[Callable[[Any], object], ...]:
    """The functions `stop`, `start` and `go_back` of the module or class with this import path; raises a ValueError."""
    try:
        found: Any = _imported(path)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"own_tasks: {path} can't be imported: {error}") from None
    functions = tuple(one for name in ("stop", "start", "go_back") if callable(one := getattr(found, name, None)))
    if len(functions) < 3:
        raise ValueError(f"own_tasks: expected a module or class with the functions stop, start and go_back at {path}")
    return functions


def asked(context: Context, **wanted: object) -> dict[str, Any]:
    """What own tasks are asked for: each field is an XCom of its own too, which `asked["field"]` is."""
    for name, value in wanted.items():
        context["ti"].xcom_push(key=name, value=value)
    return wanted


def asked_to_stop(context: Context, order: SavepointOrder, at: int) -> dict[str, Any]:
    """As `asked`: that own tasks stop the job with a savepoint as ordered."""
    job = rehearsal_of(context).plan.job
    folder = order.directory
    return asked(context, job=job, flink_job=order.job, savepoint_directory=folder, format=order.format, asked_at=at)


def is_starting(context: Context) -> bool:
    """Whether a task of the team that starts the new job is at work."""
    tasks = [one.task_id for one in context["dag"].task_group_dict[OWN_START].iter_tasks()]
    return "running" in task_states(context, tasks).values()


def _imported(path: str) -> object:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        module, _, name = path.rpartition(".")
        if not module or error.name is None or not path.startswith(error.name):
            raise
        return getattr(importlib.import_module(module), name)


class OwnTasks:
    """What the own tasks of this DAG run were asked for, and have answered."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def check(self) -> None: ...

    def preview(self) -> Iterator[str]:
        yield from ()

    def is_stopping(self, order: SavepointOrder) -> bool:
        return stop_asked(self._context) is not None

    def stop(self, order: SavepointOrder) -> TakenSavepoint:
        taken, asked = self._savepoint(), stop_asked(self._context)
        if taken is None or asked is None:
            raise refusal(f"the last task of {OWN_STOP} has returned no savepoint: expected {{'savepoint': 'PATH'}}")
        with fail_if_refused():
            _check_not_too_old(taken, asked)
        return taken

    def stopped_in_the_end(self, order: SavepointOrder) -> TakenSavepoint | None:
        taken, asked = self._savepoint(), stop_asked(self._context)
        if asked is None:
            return None
        if taken is None:
            return _ENDED_UNKNOWN
        with fail_if_refused():
            try:
                _check_not_too_old(taken, asked)
            except UsageError as error:
                _log.warning("%s. Nobody knows where the job has stopped", error)
                return _ENDED_UNKNOWN
        return taken

    @property
    def new_job_id(self) -> str | None:
        return _job_id(self._answer(OWN_START))

    def has_started(self, savepoint: str) -> bool:
        last = self._last_of(OWN_START)
        return task_states(self._context, [last]).get(last) == "success"

    def start(self, run: Run, savepoint: str, *, timeout: float) -> dict[str, Any]:
        last = self._last_of(OWN_START)
        if task_states(self._context, [last]).get(last) == "skipped":
            raise refusal(f"{last}, the last task of {OWN_START}, was skipped, so it has started no new job")
        return self._started(OWN_START, START_ASKED)

    def new_job(self, run: Run) -> str | None:
        # `go_back` is asked to end it, and to refuse that if it has completed a checkpoint.
        return None

    def start_old(self, savepoint: str) -> dict[str, Any]:
        return self._started(OWN_RETURN, RETURN_ASKED)

    def _started(self, group: str, asked: str) -> dict[str, Any]:
        since = self._context["ti"].xcom_pull(task_ids=asked)["asked_at"]
        seconds = round((now_ms() - int(since)) / 1000, 3)
        return {"job_id": _job_id(self._answer(group)), "state": "RUNNING", "seconds": seconds}

    def _savepoint(self) -> TakenSavepoint | None:
        answer = self._answer(OWN_STOP)
        location = answer.get("savepoint") if isinstance(answer, Mapping) else None
        return TakenSavepoint(_job_id(answer), location) if isinstance(location, str) and location else None

    def _answer(self, group: str) -> object:
        return self._context["ti"].xcom_pull(task_ids=self._last_of(group))

    def _last_of(self, group: str) -> str:
        (last,) = self._context["dag"].task_group_dict[group].get_leaves()
        return str(last.task_id)


def _check_not_too_old(taken: TakenSavepoint, asked: StopAsked) -> None:
    """Refuses a savepoint that is none, or from before the job was asked to stop: the job has gone on since."""
    complete = int(completed_at(taken.location).timestamp() * 1000)
    if complete < asked.at - _CLOCKS_MS:
        raise UsageError(
            f"{OWN_STOP} has returned {taken.location}, which was complete at {moment(complete)}: the job was "
            f"asked to stop at {moment(asked.at)}, so what it has processed since would be lost"
        )


def _job_id(answer: object) -> str | None:
    found = answer.get("job_id") if isinstance(answer, Mapping) else None
    return None if found is None else str(found)
