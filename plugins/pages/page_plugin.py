"""What Airflow loads: the pages with their place in the menu, notes of DAG runs and tasks, and the order of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from stateferry.airflow.dag_runs import priorities
from stateferry.airflow.dag_runs.page_links import PREFIX
from stateferry.airflow.pages import page_notes

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class _Pages:
    """The application of the pages, made for the first request, as only the API server needs it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from stateferry.airflow.pages.page_app import pages_app

        await pages_app()(scope, receive, send)


class StateferryPlugin(AirflowPlugin):
    """Stateferry in Airflow's user interface."""

    name = "stateferry"
    fastapi_apps = [{"app": _Pages(), "url_prefix": PREFIX, "name": "Stateferry"}]  # noqa: RUF012 Airflow reads a list of the class
    external_views = [  # noqa: RUF012 Airflow reads a list of the class
        {"name": "Stateferry", "href": f"{PREFIX}/", "destination": "nav", "url_route": "stateferry"}
    ]
    priority_weight_strategies = [priorities.NightsGiveWay]  # noqa: RUF012 Airflow reads a list of the class
    listeners = [page_notes, priorities]  # noqa: RUF012 Airflow reads a list of the class
