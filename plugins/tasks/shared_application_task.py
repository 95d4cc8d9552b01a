"""One Spark application for all steps of a run: the task that has it, and how a step asks it.

A step that has an application of its own waits for Spark's start, which takes longer than the work of a small step.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from sqlalchemy import make_url

from flinkstate.errors import StateferryError, TransientError
from stateferry.airflow.dag_runs.application_ends import FINAL, application_file, ended_text, exit_code
from stateferry.airflow.dag_runs.dag_run import (
    FOLDER,
    PLAN_TASK,
    REHEARSAL,
    REHEARSAL_AGAIN,
    planned_by,
    skip,
    task_state,
)
from stateferry.airflow.dag_runs.task_names import APPLICATION
from stateferry.airflow.requests.planning import default_catalog
from stateferry.basics.printable import printable
from stateferry.runs.control.shared_application import SharedApplication, patiently
from stateferry.runs.record.steps import Step

if TYPE_CHECKING:
    from airflow.sdk import Context

_POLL, _POLL_LATER, _SECONDS_UNTIL_LATER = 0.2, 1.0, 20.0
# A Spark that hasn't begun the step by then may never do so: its driver may not see the run's folder.
_SECONDS_TO_BEGIN = 300.0
# So long a step waits for the task to start: Airflow may start the step first, or have no slot for both.
_SECONDS_TO_START = 15.0
# So long a job that is to be stopped may run on, for Spark to start meanwhile.
_SECONDS_TO_BE_READY = 120.0
_NOT_STARTED = ("None", "scheduled", "queued", "running")


class ShareApplication(SparkSubmitOperator):
    """Submits the application that carries out the steps of the run, one after the other, as their tasks ask for them.

    It ends with the run's last step, or when no task has asked it for a while. If it can't start or is lost, this task
    is skipped: then each step has an application of its own.
    """

    def __init__(self, *, of_run: str = FOLDER, **kwargs: Any) -> None:
        folder = f"{{{{ ti.xcom_pull(task_ids='{PLAN_TASK}').get('{of_run}') }}}}"
        super().__init__(
            task_id=APPLICATION,
            name="stateferry",
            application="{{ task.application_file() }}",
            application_args=["--run", folder, "--application", "{{ ti.id }}"],
            # A task that was cleared has another application.
            durable=False,
            **kwargs,
        )
        self.of_run = of_run

    def application_file(self) -> str:
        """The file of the application, as the driver sees it."""
        return application_file("steps")

    def execute(self, context: Context) -> None:
        planned = planned_by(context)
        assert planned is not None, "this task comes after plan"
        folder = planned[self.of_run]
        catalog = default_catalog()
        self.application_args = [*(self.application_args or ()), *_naming(catalog)]
        name = str(context["ti"].id)
        dismissed = Event()
        try:
            with SharedApplication(catalog, folder) as shared:
                shared.announce(name)
                with shared.kept_alive(name, self.on_kill) as dismissed:
                    super().execute(context)
        except Exception as error:  # noqa: BLE001 the steps don't depend on it, and tell what is in their own way
            if dismissed.is_set():
                self.log.info("the run needs no more steps, so the application was ended")
                return
            code = exit_code(str(error))
            why = printable(str(error)) if code is None else ended_text(APPLICATION, code)
            skip(self.log, f"{why}. Each step that is left has an application of its own")


def _naming(catalog: str) -> list[str]:
    """The arguments that tell the application its catalog; none for one with a password, as the command is logged."""
    url = make_url(catalog)
    return [] if url.password is not None or "password" in url.query else ["--catalog", catalog]


def dismiss(context: Context) -> None:
    """Has the applications of this DAG run end that haven't by themselves: without that, they would wait for a step."""
    planned = planned_by(context) or {}
    for folder in (planned.get(which) for which in (FOLDER, REHEARSAL, REHEARSAL_AGAIN)):
        if folder is not None:
            with suppress(StateferryError), SharedApplication(default_catalog(), folder) as shared:
                shared.dismiss()


def wait_until_ready(context: Context, of_run: str, log: Any) -> None:
    """Waits for Spark's start, while the job still runs; goes on without it if it takes too long."""
    catalog, folder = default_catalog(), str((planned_by(context) or {}).get(of_run))
    if not _naming(catalog):
        return
    try:
        with SharedApplication(catalog, folder) as shared:
            is_ready = _gets_ready(shared, context, application_of(of_run))
    except TransientError:
        raise
    except StateferryError as error:
        log.warning("the run's application can't be asked: %s", printable(str(error)))
        return
    log.info("Spark has started" if is_ready else "Spark hasn't started: the savepoint is taken all the same")


def _gets_ready(shared: SharedApplication, context: Context, task: str) -> bool:
    end = time.monotonic() + _SECONDS_TO_BE_READY
    while not patiently(shared.is_ready):
        if time.monotonic() > end or task_state(context, task) not in _NOT_STARTED:
            return False
        time.sleep(_POLL)
    return True


def application_of(of_run: str) -> str:
    """The id of the task that has the application of this run of the DAG run."""
    return APPLICATION if of_run == FOLDER else f"{of_run}.{APPLICATION}"


class Asking:
    """A step's request to the application of its run."""

    def __init__(self, shared: SharedApplication, step: str, log: Any) -> None:
        self._shared, self._step, self._log = shared, step, log
        self.is_withdrawn = False
        """Set it to have the application end: a person has ended the task."""

    def answer(self, context: Context, task: str) -> tuple[int, str] | None:
        """What the step's end is, and the last that was printed; None if the step needs an application of its own.

        The first step waits while Airflow is about to start the task of the application.
        """
        if self._step == Step.SNAPSHOT:
            self._wait_until_there(context, task)
        answer = self._answered()
        if answer is None:
            # One that only lacks whoever keeps it alive would keep the lease.
            patiently(lambda: self._shared.dismiss(if_idle=True))
            return None
        if answer[0] == 0 or answer[0] in FINAL:
            return answer
        self._log.warning("the application has ended: this step goes on in an application of its own")
        return None

    def _wait_until_there(self, context: Context, task: str) -> None:
        end = time.monotonic() + _SECONDS_TO_START
        while not patiently(self._shared.is_alive):
            if time.monotonic() > end or task_state(context, task) not in _NOT_STARTED:
                return
            time.sleep(_POLL)

    def _answered(self) -> tuple[int, str] | None:
        number = patiently(lambda: self._shared.ask(self._step))
        if number is None:
            return None
        self._log.info("asked the application of the run: what Spark logs is in the log of the task %s", APPLICATION)
        began, seen = time.monotonic(), 0
        while (output := patiently(partial(self._shared.output, number))) is not None:
            # The last line may not be whole yet.
            fresh = output.after(seen)
            whole = len(fresh) if output.exit_code is not None else fresh.rfind("\n") + 1
            for line in fresh[:whole].splitlines():
                self._log.info("%s", printable(line))
            seen = max(seen, output.before) + whole
            if output.exit_code is not None:
                return output.exit_code, output.text
            waited = time.monotonic() - began
            if self.is_withdrawn or (waited > _SECONDS_TO_BEGIN and output.length == 0):
                patiently(self._shared.dismiss)
                break
            time.sleep(_POLL if waited < _SECONDS_UNTIL_LATER else _POLL_LATER)
        self._log.warning("the application of the run doesn't answer, or has ended")
        return None
