"""The addresses of Stateferry's pages in Airflow, and the link to them that each task has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

PREFIX = "/stateferry"
# The XCom of the last task with what came of the run, in a line; the DAG run's note is made of it.
NOTE = "note"


class RunPageLink(BaseOperatorLink):
    """Leads from a task to the page of the run that its DAG run has made."""

    name = "Stateferry"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        root = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
        return f"{root}{PREFIX}{page_of_dag_run(ti_key.dag_id, ti_key.run_id)}"


def question_path(dag_id: str, dag_run_id: str, task_id: str) -> str:
    """The address at which a person answers the question of a task, below that of Airflow."""
    return f"/dags/{quote(dag_id)}/runs/{quote(dag_run_id)}/tasks/{quote(task_id)}/required_actions"


def question_url(ti: Any) -> str:
    """The whole address of the question that the task asks, as a person outside of Airflow opens it."""
    root = conf.get("api", "base_url", fallback="") or "http://localhost:8080"
    return root.rstrip("/") + question_path(ti.dag_id, ti.run_id, ti.task_id)


def page_of_dag_run(dag_id: str, dag_run_id: str) -> str:
    """The address of a DAG run's page, below that of all pages."""
    return f"/dags/{quote(dag_id, safe='')}/runs/{quote(dag_run_id, safe='')}"
