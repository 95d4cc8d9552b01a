"""One Spark application for all steps of a run: the task that has it, and how a step asks it.

A step that has an application of its own waits for Spark's start, which takes longer than the work of a small step.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from state_migration.dag_run import (
    FOLDER,
    OF_EARLIER_VERSION,
    PLAN_TASK,
    REHEARSAL,
    REHEARSAL_AGAIN,
    planned_by,
    skip,
)
from state_migration.planning import default_catalog
from state_migration.spark_application import application_file, ended_text, exit_code
from state_migration.task_names import APPLICATION
from stateferry.errors import StateferryError
from stateferry.printable import printable
from stateferry.runs.shared_application import SharedApplication

if TYPE_CHECKING:
    from airflow.sdk import Context

_POLL = 0.2
# So long a step waits for the task to start: Airflow may start the step first, or have no slot for both.
_SECONDS_TO_START = 15.0
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
            retries=0,
            **kwargs,
        )
        self.of_run = of_run

    def application_file(self) -> str:
        """The file of the application, as the driver sees it."""
        return application_file("steps")

    def execute(self, context: Context) -> None:
        folder = (planned_by(context) or {}).get(self.of_run)
        if folder is None:
            skip(self.log, OF_EARLIER_VERSION)
        name = str(context["ti"].id)
        try:
            with SharedApplication(default_catalog(), folder) as shared:
                shared.announce(name)
                with shared.kept_alive(name, self.on_kill):
                    super().execute(context)
        except Exception as error:  # noqa: BLE001 the steps don't depend on it, and tell what is in their own way
            code = exit_code(str(error))
            why = printable(str(error)) if code is None else ended_text(APPLICATION, code)
            skip(self.log, f"{why}. Each step that is left has an application of its own")


def dismiss(context: Context) -> None:
    """Has the applications of this DAG run end that haven't by themselves: without that, they would wait for a step."""
    said = planned_by(context) or {}
    for folder in (said.get(which) for which in (FOLDER, REHEARSAL, REHEARSAL_AGAIN)):
        if folder is not None:
            with suppress(StateferryError), SharedApplication(default_catalog(), folder) as shared:
                shared.dismiss()


def wait_for_application(shared: SharedApplication, context: Context, task: str) -> bool:
    """Whether the run has an application; waits while Airflow is about to start its task."""
    end = time.monotonic() + _SECONDS_TO_START
    while not shared.is_alive():
        ti = context["ti"]
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[task], run_ids=[ti.run_id]).get(ti.run_id, {})
        if time.monotonic() > end or str(states.get(task, "absent")) not in _NOT_STARTED:
            return False
        time.sleep(_POLL)
    return True


def carried_out(shared: SharedApplication, step: str, log: Any) -> tuple[int, str] | None:
    """Asks the application for the step, and logs what it prints.

    Returns the exit code and the last that was printed; None if the application has ended before.
    """
    number = shared.ask(step)
    seen = 0
    while number is not None:
        said = shared.said(number)
        if said is None:
            break
        # The last line may not be whole yet.
        fresh = said.after(seen)
        whole = len(fresh) if said.exit_code is not None else fresh.rfind("\n") + 1
        for line in fresh[:whole].splitlines():
            log.info("%s", printable(line))
        seen = max(seen, said.before) + whole
        if said.exit_code is not None:
            return said.exit_code, said.text
        time.sleep(_POLL)
    log.warning("the application that the steps share has ended: this step has an application of its own")
    return None
