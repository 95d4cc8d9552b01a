"""A FlinkStateSnapshot: the operator takes a savepoint of a job, which goes on running."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from stateferry.airflow.flink.errors import FlinkTimeoutError
from stateferry.airflow.kubernetes.errors import ConflictError, OperatorError
from stateferry.airflow.kubernetes.resource import Resource

_KIND, _PLURAL = "FlinkStateSnapshot", "flinkstatesnapshots"
_KINDS = {"flinkdeployment": "FlinkDeployment", "flinksessionjob": "FlinkSessionJob"}
_LOOK_EVERY = 30.0
_SILENT_SECONDS = 60.0

_log = logging.getLogger(__name__)


class StateSnapshot:
    """One such resource, beside that of its job."""

    def __init__(self, job: Resource, name: str) -> None:
        self._job, self._name = job, name

    def __str__(self) -> str:
        return f"{_KIND} {self._job.namespace}/{self._name}"

    def savepoint(self, directory: str, kind: str, *, timeout: float) -> str:
        """The savepoint that is taken for this resource, which is made if it isn't there; waits for it.

        To delete the resource later leaves the savepoint there.
        """
        began, has_warned = time.monotonic(), False
        while True:
            now = self._read() or self._create(directory, kind)
            status = now.get("status") or {}
            state = status.get("state")
            if state == "COMPLETED":
                return str(status["path"])
            if state in ("FAILED", "ABANDONED"):
                raise OperatorError(f"{self} is {state}: {status.get('error') or f'see whether {self._job} runs'}")
            left = began + timeout - time.monotonic()
            if left <= 0:
                raise FlinkTimeoutError(f"{self} is {state or 'not begun'} after {timeout:g} s")
            if state is None and not has_warned and time.monotonic() - began > _SILENT_SECONDS:
                _log.warning("the operator hasn't begun with %s: see whether it runs, and watches the namespace", self)
                has_warned = True
            version = now["metadata"]["resourceVersion"]
            for _ in self._job.api.watch(_PLURAL, *self._where, version, min(_LOOK_EVERY, left)):
                break

    @property
    def _where(self) -> tuple[str, str]:
        return self._job.namespace, self._name

    def _read(self) -> Mapping[str, Any] | None:
        return self._job.api.get(_PLURAL, *self._where)

    def _create(self, directory: str, kind: str) -> Mapping[str, Any]:
        savepoint = {"path": directory, "formatType": kind, "disposeOnDelete": False}
        job = {"kind": _KINDS[self._job.kind], "name": self._job.name}
        body = {
            "apiVersion": "flink.apache.org/v1beta1",
            "kind": _KIND,
            "metadata": {"name": self._name},
            # A failure is one of this task, whose next try has another resource.
            "spec": {"jobReference": job, "savepoint": savepoint, "backoffLimit": 0},
        }
        try:
            made = self._job.api.create(_PLURAL, self._job.namespace, body)
        except ConflictError:
            # An earlier request arrived, and its answer was lost.
            found = self._read()
            if found is None:
                raise
            return found
        _log.info("%s was made: the operator takes a savepoint of %s", self, self._job)
        return made
