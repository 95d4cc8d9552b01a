"""The pages as a FastAPI application, which Airflow's API server mounts.

Airflow guards no route of a plugin. So each route here asks Airflow who the user is (401 without a login), and each
page asks Airflow's auth manager for the right to read its DAG (403). All routes only read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from typing import Annotated
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.xcom import XComModel
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from flinkstate.errors import StateferryError
from flinkstate.files.storage import Location
from stateferry.airflow.dag_runs.page_links import PREFIX
from stateferry.airflow.flink.links import FlinkJobLink
from stateferry.airflow.pages.page_dag_runs import ROLLBACK, DagRuns
from stateferry.airflow.pages.page_overview import Overview, dag_of
from stateferry.airflow.requests.jobs import DAG_ID
from stateferry.runs.record.run_states import ENDED, RunState
from stateferry.runs.record.runs import Run
from stateferry.show.document import POLICY, document, notice
from stateferry.show.history_page import history_page
from stateferry.show.jobs_page import Waiting, jobs_page
from stateferry.show.markup import Content, Markup, element, link
from stateferry.show.run_page import run_page
from stateferry.show.run_rows import RunRow
from stateferry.show.run_view import RunView

_HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Page(HTMLResponse):
    """A page, which a browser must neither keep nor show inside another site."""

    def __init__(self, content: str, status_code: int = 200) -> None:
        super().__init__(content.encode("utf-8", "backslashreplace"), status_code, _HEADERS)


@cache
def _overview() -> Overview:
    return Overview()


@cache
def pages_app() -> FastAPI:
    """The application; it has no description of itself, which would be open to anybody."""
    app = FastAPI(title="Stateferry", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_api_route("/", _jobs, response_class=HTMLResponse)
    app.add_api_route("/jobs/{job}/history", _history, response_class=HTMLResponse)
    app.add_api_route("/jobs/{job}/runs/{run_id}", _run, response_class=HTMLResponse)
    app.add_api_route(
        "/dags/{dag_id}/runs/{dag_run_id:path}",
        _dag_run,
        response_class=HTMLResponse,
        dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))],
    )
    app.add_exception_handler(StateferryError, _unreadable)
    return app


def _unreadable(request: Request, error: Exception) -> Page:
    """What is shown while the home can't be read."""
    top = element("header", _navigation(_base(request), ""), element("h1", "The runs can't be read"), class_="top")
    return Page(document("Stateferry", top, element("main", notice("", str(error))), refresh=10), 503)


def _jobs(request: Request, user: GetUserDep, session: SessionDep) -> Page:
    readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    overview, base = _overview(), _base(request)
    ours = [one for one in readable if one.startswith(DAG_ID) or one == ROLLBACK]
    dag_runs = DagRuns(session, base.removesuffix(PREFIX))
    rollbacks = [one for _, one in dag_runs.rollbacks()] if ROLLBACK in ours else []
    waiting, overdue = _waiting(user, dag_runs, ours), list(dag_runs.overdue(ours))
    jobs = overview.jobs(readable, base, waiting, dag_runs.delayed(ours), rollbacks, overdue, dag_runs.look)
    problems = [overview.problem] if overview.problem else []
    # Those of a job that had no night yet.
    shown = {one for job in jobs for one in job.overdue}
    problems += [f"{one.dag_id}: {one.text}" for one in overdue if one not in shown]
    return Page(jobs_page(jobs, overview.disks(), top=_navigation(base, "Jobs"), problems=problems))


def _history(request: Request, job: str, user: GetUserDep, page: Annotated[int, Query(ge=1)] = 1) -> Page:
    readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    base = _base(request)
    found = [one for one in _overview().jobs(readable, base) if one.address == f"{base}/jobs/{quote(job, safe='~')}"]
    if not found:
        # Neither does the answer tell whether there is a job that the user may not read.
        raise HTTPException(404, "there is no such job, or you may not read its DAG")
    return Page(history_page(found[0], page, top=_navigation(base, found[0].name)))


def _run(request: Request, job: str, run_id: str, user: GetUserDep, session: SessionDep) -> Page:
    row = _overview().run(job, run_id)
    # A run that isn't there is as secret as one of the DAG with the form.
    requires_access_dag("GET", param_dag_id=DAG_ID if row is None else dag_of(row))(request, user)
    if row is None:
        raise HTTPException(404, "there is no such run")
    return _page_of(request, user, session, row)


def _dag_run(request: Request, dag_id: str, dag_run_id: str, user: GetUserDep, session: SessionDep) -> Page:
    found = _overview().of_dag_run(dag_id, dag_run_id)
    if not found:
        why = "This DAG run has no run yet: it is waiting, was refused or skipped, has only checked a "
        why += "savepoint, or its run was cleaned away."
        body = element("main", notice("", why, "The log of its task plan says more."))
        top = element("header", _navigation(_base(request), ""), element("h1", dag_run_id), class_="top")
        return Page(document("Stateferry", top, body, refresh=10), 404)
    return _page_of(request, user, session, found[0], others=found[1:])


def _page_of(request: Request, user: GetUserDep, session: Session, row: RunRow, others: Iterable[RunRow] = ()) -> Page:
    base = _base(request)
    try:
        view = RunView.of(Run.open(Location.of(row.folder)), nights=True)
    except StateferryError as error:
        raise HTTPException(404, f"the run can't be read: {error}") from None
    links = [("history", f"{base}/jobs/{_folder(row)}/history")]
    if row.dag_id and row.dag_run_id:
        root = base.removesuffix(PREFIX)
        links.append(("tasks and logs", f"{root}/dags/{quote(row.dag_id)}/runs/{quote(row.dag_run_id)}"))
        links += _in_flink(user, session, row)
    links += [(f"run {one.run_id}", f"{base}/jobs/{_folder(one)}/runs/{one.run_id}") for one in others]
    ended = view.state in (RunState.VERIFIED, RunState.FAILED, *ENDED)
    return Page(run_page(view, top=_navigation(base, row.job), links=links, refresh=None if ended else 5))


def _folder(row: RunRow) -> str:
    return row.folder.rstrip("/").split("/")[-2]


def _base(request: Request) -> str:
    """The address of the pages, behind whatever path a proxy adds."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _navigation(base: str, here: str) -> Markup:
    pages: list[Content] = [link("Jobs", f"{base}/", aria_current="page" if here == "Jobs" else None)]
    if here not in ("", "Jobs"):
        pages.append(element("span", here, class_="muted"))
    return element("nav", *pages, class_="pages")


def _in_flink(user: GetUserDep, session: Session, row: RunRow) -> Iterator[tuple[str, str]]:
    """The addresses of the run's jobs in Flink, as its tasks know them, if the user may read what tasks say."""
    details = DagDetails(id=dag_of(row))
    may = get_auth_manager().is_authorized_dag(
        method="GET", access_entity=DagAccessEntity.XCOM, details=details, user=user
    )
    if not may:
        return
    stored = select(XComModel.task_id, XComModel.value).where(
        XComModel.dag_id == row.dag_id, XComModel.run_id == row.dag_run_id, XComModel.key == FlinkJobLink.xcom_key
    )
    found: dict[str, str] = {}
    for task_id, value in session.execute(stored).all():
        address = str(value).strip('"')
        if address.startswith(("http://", "https://")):
            found[address] = f"Flink job of {task_id}"
    yield from ((name, address) for address, name in found.items())


def _waiting(user: GetUserDep, dag_runs: DagRuns, readable: Collection[str]) -> Iterator[Waiting]:
    """The questions that wait for a person, of DAGs whose questions the user may read."""
    manager = get_auth_manager()
    for dag_id, question in dag_runs.waiting(readable):
        details = DagDetails(id=dag_id)
        if manager.is_authorized_dag(
            method="GET", access_entity=DagAccessEntity.HITL_DETAIL, details=details, user=user
        ):
            yield question
