"""The part of Airflow's REST API that the demo and the tests use."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from local_airflow.settings import Settings

ENDED = ("success", "failed")


class RequestRefusedError(Exception):
    """Airflow's answer is an error; `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status
        self.text = text


@dataclass(slots=True)
class Api:
    """A client of Airflow's REST API, as the user admin."""

    settings: Settings
    _token: str = ""

    def get(self, path: str) -> Any:
        """The answer to a GET request."""
        return self.call("GET", path)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer to a request under `/api/v2`; logs in if that is needed."""
        try:
            return self._request(method, f"/api/v2{path}", body)
        except RequestRefusedError as refused:
            if refused.status != HTTPStatus.UNAUTHORIZED:
                raise
            self._log_in()
            return self._request(method, f"/api/v2{path}", body)

    def health(self) -> dict[str, Any]:
        """The health of Airflow's components."""
        answer: dict[str, Any] = self._request("GET", "/api/v2/monitor/health", None)
        return answer

    def password(self) -> str:
        """The password of the user admin."""
        return str(json.loads(self.settings.passwords.read_text())["admin"])

    def trigger(self, dag: str, conf: Mapping[str, Any], run_id: str | None = None) -> str:
        """Triggers a DAG run and returns its id."""
        self.wait_for_dag(dag)
        body = {"conf": dict(conf), "logical_date": None} | ({"dag_run_id": run_id} if run_id else {})
        return str(self.call("POST", f"/dags/{dag}/dagRuns", body)["dag_run_id"])

    def wait_for_dag(self, dag: str, seconds: float = 120) -> None:
        """Waits until Airflow has read the DAG, which takes a while after its start."""
        end = time.monotonic() + seconds
        while not self.has_dag(dag):
            errors = self.get("/importErrors")["import_errors"]
            if errors or time.monotonic() > end:
                raise TimeoutError(f"Airflow has not read the DAG {dag}: {errors or 'no error is known'}")
            time.sleep(0.5)

    def has_dag(self, dag: str) -> bool:
        """Whether Airflow has read the DAG."""
        try:
            self.get(f"/dags/{dag}")
        except RequestRefusedError as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def run(self, dag: str, run_id: str) -> dict[str, Any]:
        """The DAG run."""
        answer: dict[str, Any] = self.get(f"/dags/{dag}/dagRuns/{quote(run_id, safe='')}")
        return answer

    def tasks(self, dag: str, run_id: str) -> dict[str, dict[str, Any]]:
        """The task instances of a DAG run, by task id."""
        answer = self.get(f"/dags/{dag}/dagRuns/{quote(run_id, safe='')}/taskInstances")
        return {task["task_id"]: task for task in answer["task_instances"]}

    def log(self, dag: str, run_id: str, task: str, attempt: int = 1) -> str:
        """The log of a task's try as text."""
        path = f"/dags/{dag}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task}/logs/{attempt}?full_content=true"
        return "\n".join(_line_text(line) for line in self.get(path)["content"])

    def xcom(self, dag: str, run_id: str, task: str, key: str = "return_value") -> Any:
        """A value that a task has published."""
        path = f"/dags/{dag}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task}/xcomEntries/{key}?deserialize=true"
        return self.get(path)["value"]

    def answer(self, dag: str, run_id: str, task: str, option: str) -> None:
        """Gives a person's answer to a task that waits for one."""
        path = f"/dags/{dag}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task}/-1/hitlDetails"
        self.call("PATCH", path, {"chosen_options": [option], "params_input": {}})

    def wait(
        self, dag: str, run_id: str, until: Callable[[dict[str, dict[str, Any]], str], bool], seconds: float
    ) -> dict[str, dict[str, Any]]:
        """Waits until the condition on the tasks and the DAG run's state holds, and returns the tasks."""
        end = time.monotonic() + seconds
        while True:
            state, tasks = "unknown", dict[str, dict[str, Any]]()
            # On a busy machine an answer may come too late: then it is asked for again.
            with suppress(TimeoutError):
                state, tasks = self.run(dag, run_id)["state"], self.tasks(dag, run_id)
                if until(tasks, state):
                    return tasks
            if time.monotonic() > end:
                shown = ", ".join(f"{name} {task['state']}" for name, task in tasks.items())
                raise TimeoutError(f"run {run_id} of {dag} is {state} after {seconds:.0f} s: {shown}")
            time.sleep(0.5)

    def wait_for_end(self, dag: str, run_id: str, seconds: float) -> str:
        """Waits until the DAG run has ended, and returns its state."""
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
                raise RequestRefusedError(error.code, error.read().decode(errors="replace")) from None
        except (urllib.error.URLError, HTTPException) as error:
            why = error.reason if isinstance(error, urllib.error.URLError) else error
            raise ConnectionError(f"Airflow doesn't answer at {self.settings.url}: {why}") from None
        return json.loads(text) if text else None


def _line_text(line: dict[str, Any] | str) -> str:
    """A line of a log with the messages of its exceptions, if it has any."""
    if isinstance(line, str):
        return line
    errors = [f"{error['exc_type']}: {error['exc_value']}" for error in line.get("error_detail") or ()]
    return "\n".join([str(line["event"]), *errors])
