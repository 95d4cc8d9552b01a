"""Airflow's REST API, as far as a person's first steps and tests need it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from local_airflow.settings import Settings

ENDED = ("success", "failed")


class RefusedError(Exception):
    """Airflow's answer is no; `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status
        self.text = text


@dataclass(slots=True)
class Api:
    settings: Settings
    _token: str = ""

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Of `/api/v2`; logs in when it has to."""
        try:
            return self._request(method, f"/api/v2{path}", body)
        except RefusedError as refused:
            if refused.status != HTTPStatus.UNAUTHORIZED:
                raise
            self._log_in()
            return self._request(method, f"/api/v2{path}", body)

    def health(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._request("GET", "/api/v2/monitor/health", None)
        return answer

    def password(self) -> str:
        return str(json.loads(self.settings.passwords.read_text())["admin"])

    def trigger(self, dag: str, conf: Mapping[str, Any], run_id: str | None = None) -> str:
        """The new run's id."""
        self.wait_for_dag(dag)
        body = {"conf": dict(conf), "logical_date": None} | ({"dag_run_id": run_id} if run_id else {})
        return str(self.call("POST", f"/dags/{dag}/dagRuns", body)["dag_run_id"])

    def wait_for_dag(self, dag: str, seconds: float = 120) -> None:
        """Airflow is up before it has read its DAGs for the first time."""
        end = time.monotonic() + seconds
        while not self._has_dag(dag):
            errors = self.get("/importErrors")["import_errors"]
            if errors or time.monotonic() > end:
                raise TimeoutError(f"Airflow has not read the DAG {dag}: {errors or 'no error is known'}")
            time.sleep(0.5)

    def _has_dag(self, dag: str) -> bool:
        try:
            self.get(f"/dags/{dag}")
        except RefusedError as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def run(self, dag: str, run_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.get(f"/dags/{dag}/dagRuns/{quote(run_id, safe='')}")
        return answer

    def tasks(self, dag: str, run_id: str) -> dict[str, dict[str, Any]]:
        """The task instances by their task's id."""
        answer = self.get(f"/dags/{dag}/dagRuns/{quote(run_id, safe='')}/taskInstances")
        return {task["task_id"]: task for task in answer["task_instances"]}

    def log(self, dag: str, run_id: str, task: str, attempt: int = 1) -> str:
        path = f"/dags/{dag}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task}/logs/{attempt}?full_content=true"
        return "\n".join(_line_text(line) for line in self.get(path)["content"])

    def xcom(self, dag: str, run_id: str, task: str, key: str = "return_value") -> Any:
        path = f"/dags/{dag}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task}/xcomEntries/{key}?deserialize=true"
        return self.get(path)["value"]

    def answer(self, dag: str, run_id: str, task: str, option: str) -> None:
        """A person's answer to a task that waits for one."""
        path = f"/dags/{dag}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task}/-1/hitlDetails"
        self.call("PATCH", path, {"chosen_options": [option], "params_input": {}})

    def wait(
        self, dag: str, run_id: str, until: Callable[[dict[str, dict[str, Any]], str], bool], seconds: float
    ) -> dict[str, dict[str, Any]]:
        """The run's tasks, once they and the run's state are so."""
        end = time.monotonic() + seconds
        while True:
            state = self.run(dag, run_id)["state"]
            tasks = self.tasks(dag, run_id)
            if until(tasks, state):
                return tasks
            if time.monotonic() > end:
                shown = ", ".join(f"{name} {task['state']}" for name, task in tasks.items())
                raise TimeoutError(f"run {run_id} of {dag} is {state} after {seconds:.0f} s: {shown}")
            time.sleep(0.5)

    def wait_for_end(self, dag: str, run_id: str, seconds: float) -> str:
        self.wait(dag, run_id, lambda _, state: state in ENDED, seconds)
        return str(self.run(dag, run_id)["state"])

    def _log_in(self) -> None:
        who = {"username": "admin", "password": self.password()}
        self._token = self._request("POST", "/auth/token", who)["access_token"]

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(f"{self.settings.url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(error.code, error.read().decode(errors="replace")) from None
        return json.loads(text) if text else None


def _line_text(line: dict[str, Any] | str) -> str:
    """With what the exceptions say, if it tells of some."""
    if isinstance(line, str):
        return line
    errors = [f"{error['exc_type']}: {error['exc_value']}" for error in line.get("error_detail") or ()]
    return "\n".join([str(line["event"]), *errors])
