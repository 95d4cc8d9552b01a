"""Runs the real DAG on the demo savepoint, from beginning to end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from flinkstate.files.storage import Location
from local_airflow.api import Api
from local_airflow.server import Server
from local_airflow.settings import Settings
from stateferry.basics.printable import say
from stateferry.runs.record.steps import Step
from stateferry.runs.report.report import Report
from stateferry.runs.report.report_text import show_report

DAG = "state_migration"
_SECONDS = 600
_ENDED = ("success", "failed", "skipped", "upstream_failed")


class DemoError(Exception):
    """The demo didn't end as it should."""


def run(server: Server) -> int:
    """Migrates the demo savepoint, and prints each task, the report and the next commands."""
    write_savepoint(server.settings)
    api = server.api
    run_id = api.trigger(DAG, {"approval": False})
    say(f"run {run_id} of the DAG {DAG}")
    _follow(api, run_id)
    state = api.wait_for_end(DAG, run_id, _SECONDS)
    if state != "success":
        raise DemoError(f"the run has {state}; its log is under {server.settings.home / 'logs'}\n{_why(api, run_id)}")
    _show(server.settings, api.xcom(DAG, run_id, "conclude"), api.xcom(DAG, run_id, "cut_over"))
    return 0


def write_savepoint(settings: Settings) -> None:
    """Writes a legacy savepoint, some of whose keys the job has moved already, if it doesn't exist."""
    folder = settings.stateferry_home / "demo" / "legacy"
    if not (folder / "_metadata").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = [str(settings.spark / "bin" / "stateferry"), "demo-savepoint", str(folder), "--ttl", "30d"]
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
            raise DemoError(f"{' '.join(command)} failed")


def _follow(api: Api, run_id: str) -> None:
    """Prints each task when it has ended."""
    shown: set[str] = set()
    waits_for = ""

    def look(tasks: dict[str, dict[str, Any]], state: str) -> bool:
        nonlocal waits_for
        before = _before(api) if state == "queued" else ""
        if before and before != waits_for:
            say(f"  waiting, because one run at a time works: {before}")
        waits_for = before
        ended = [task for task in tasks.values() if task["state"] in _ENDED and task["task_id"] not in shown]
        for task in sorted(ended, key=lambda task: str(task["end_date"])):
            shown.add(task["task_id"])
            took = f" in {task['duration']:.0f} s" if task["duration"] else ""
            say(f"  {task['task_id']}: {task['state']}{took}")
        return state in ("success", "failed")

    api.wait(DAG, run_id, look, _SECONDS)


def _before(api: Api) -> str:
    """What the run that is at work is and does; empty if there is none."""
    for run in api.get(f"/dags/{DAG}/dagRuns?state=running&limit=1")["dag_runs"]:
        run_id = str(run["dag_run_id"])
        at = [name for name, task in api.tasks(DAG, run_id).items() if task["state"] in ("running", "awaiting_input")]
        address = f"{api.settings.url}/dags/{DAG}/runs/{quote(run_id, safe='')}"
        if "approve" in at:
            return f"run {run_id} waits for an answer: approve or reject it at {address}"
        return f"run {run_id} is at {', '.join(at) or 'its next task'}: {address}"
    return ""


def _why(api: Api, run_id: str) -> str:
    tasks = api.tasks(DAG, run_id).values()
    failed = [task for task in tasks if task["state"] == "failed" and task["task_id"] != "conclude"]
    return "\n".join(api.log(DAG, run_id, task["task_id"], task["try_number"])[-2000:] for task in failed[:1])


def _show(settings: Settings, conclusion: Mapping[str, Any], published: Mapping[str, Any]) -> None:
    say("")
    report = Report.read(Location.of(conclusion["report"]))
    show_report(report, sys.stdout)
    # They have followed after the publication, which names none of them.
    tables = [name for state in report.facts[Step.TABLES]["tables"] for name in state["snapshots"]]
    target = published["target"]
    say("")
    say(f"the new savepoint:  {target}")
    say(f"the tables:         {', '.join(tables)}")
    say(f"                    in {settings.stateferry_home / 'warehouse'}")
    say("")
    say("to look on:")
    say(f"  .venv/bin/stateferry inspect {target}")
    say(f"  .venv/bin/stateferry dump {target} --operator main --state newMainState --limit 3")
    say(f"  .venv/bin/stateferry status --home {settings.stateferry_home}")
    say("  docs/query-your-state.md: the tables in SQL")
    say("  make up: Airflow, with this run and its logs")
