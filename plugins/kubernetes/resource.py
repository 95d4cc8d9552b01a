"""A FlinkDeployment or FlinkSessionJob: what its spec says, and what the operator has made of it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from stateferry.airflow.flink.errors import FlinkTimeoutError
from stateferry.airflow.kubernetes.api import KubernetesApi
from stateferry.airflow.kubernetes.errors import ChangedByOthersError, ConflictError, KubernetesError
from stateferry.airflow.kubernetes.spec import Spec, changes, is_applied, merged

PLURALS = {"flinkdeployment": "flinkdeployments", "flinksessionjob": "flinksessionjobs"}
NO_PATH = ("", "KUBERNETES_OPERATOR_LAST_STATE")
"""An `upgradeSavepointPath` that names no savepoint: the second is the operator's placeholder for its last state."""
_SILENT_SECONDS = 60.0

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True)
class FlinkResource:
    """A resource as it was read."""

    body: Mapping[str, Any]

    @property
    def spec(self) -> dict[str, Any]:
        """What it should be."""
        return dict(self.body.get("spec") or {})

    @property
    def job(self) -> Mapping[str, Any]:
        """The part of the spec that is about the job; empty for a session cluster."""
        return self.spec.get("job") or {}

    @property
    def status(self) -> Mapping[str, Any]:
        """What the operator says of it."""
        return self.body.get("status") or {}

    @property
    def version(self) -> str:
        """The version of the whole resource, of its status too."""
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def is_observed(self) -> bool:
        """Whether the operator has carried out the spec as it is now.

        What it has carried out has a generation at once; `observedGeneration` follows when nothing is left to do.
        """
        carried_out = (self._reconciled.get("resource_metadata") or {}).get("metadata") or {}
        seen = max(int(self.status.get("observedGeneration") or 0), int(carried_out.get("generation") or 0))
        return seen >= int(self.body["metadata"].get("generation") or 0)

    @property
    def lifecycle(self) -> str | None:
        """The state of the resource in the operator's words, such as STABLE or SUSPENDED."""
        state = self.status.get("lifecycleState")
        return None if state is None else str(state)

    @property
    def error(self) -> str | None:
        """What the operator couldn't do."""
        return _words(self.status.get("error")) or None

    @property
    def job_status(self) -> Mapping[str, Any]:
        """What the operator says of the job."""
        return self.status.get("jobStatus") or {}

    @property
    def has_failed(self) -> bool:
        """Whether the operator says that the job has failed, or that its JobManager can't come up."""
        return self.job_status.get("state") == "FAILED" or self.status.get("jobManagerDeploymentStatus") == "ERROR"

    @property
    def _reconciled(self) -> Mapping[str, Any]:
        stored = (self.status.get("reconciliationStatus") or {}).get("lastReconciledSpec")
        found: Mapping[str, Any] = json.loads(stored) if stored else {}
        return found

    @property
    def reconciled(self) -> Mapping[str, Any]:
        """The spec that the operator has carried out, or is carrying out."""
        return self._reconciled.get("spec") or {}

    @property
    def in_words(self) -> str:
        """Its state, for messages."""
        job = self.job_status.get("state")
        error = f", error: {self.error}" if self.error else ""
        return f"{self.lifecycle} (job {job}){error}"


def _words(error: object) -> str:
    """The operator's error and its last cause without the Java around them: newer operators write JSON."""
    text = str(error or "")
    try:
        found = json.loads(text)
    except ValueError:
        return text
    if not isinstance(found, dict):
        return text
    said = str(found.get("message") or text)
    cause = next((str(one["message"]) for one in reversed(found.get("throwableList") or ()) if one.get("message")), "")
    return said if cause in said else f"{said}: {cause}"


class Resource:
    """One resource in the cluster."""

    def __init__(self, api: KubernetesApi, kind: str, namespace: str, name: str) -> None:
        self.api, self.kind, self.namespace, self.name = api, kind, namespace, name

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def _where(self) -> tuple[str, str, str]:
        return PLURALS[self.kind], self.namespace, self.name

    def read(self) -> FlinkResource:
        """The resource as it is now."""
        found = self.api.get(*self._where)
        if found is None:
            raise KubernetesError(f"there is no {self} at {self.api.server.url}")
        return FlinkResource(found)

    def apply(self, seen: FlinkResource, patch: Spec) -> FlinkResource:
        """Applies the merge patch of the spec, unless somebody else has changed the spec since it was seen.

        Each change of the status makes a new version too, so the spec itself decides.
        """
        expected = seen.spec
        while True:
            body = {"metadata": {"resourceVersion": seen.version}, "spec": patch}
            try:
                return FlinkResource(self.api.patch(*self._where, body))
            except ConflictError:
                seen = self.read()
                if is_applied(seen.spec, patch):
                    return seen
                if seen.spec != expected:
                    raise ChangedByOthersError(
                        f"somebody else has changed {self} in this moment: {_named(expected, seen.spec)}. This task "
                        "has changed nothing"
                    ) from None

    def check_patch(self, patch: Spec) -> None:
        """Has the API server check the patch against the operator's schema; changes nothing."""
        self.api.patch(*self._where, {"spec": patch}, dry_run=True)

    def wait_for(
        self, reached: Callable[[FlinkResource], _T | None], *, patch: Spec, timeout: float, look_every: float = 30.0
    ) -> _T:
        """Waits for what is reached in some state of the resource, which the API server tells of.

        `patch` is what this run has set: if somebody else changes it meanwhile, nothing is waited for.
        """
        began, has_warned = time.monotonic(), False
        while True:
            now = self.read()
            if (found := self._look(now, patch, reached)) is not None:
                return found
            left = began + timeout - time.monotonic()
            if left <= 0:
                raise FlinkTimeoutError(f"{self} is {now.in_words} after {timeout:g} s{self._silent(now)}")
            if not has_warned and not now.is_observed and time.monotonic() - began > _SILENT_SECONDS:
                _log.warning("%s is waited for%s", self, self._silent(now))
                has_warned = True
            for body in self.api.watch(*self._where, now.version, min(look_every, left)):
                if (found := self._look(FlinkResource(body), patch, reached)) is not None:
                    return found

    def _look(self, now: FlinkResource, patch: Spec, reached: Callable[[FlinkResource], _T | None]) -> _T | None:
        if not is_applied(now.spec, patch):
            raise ChangedByOthersError(
                f"somebody else has changed {self}, while this run waited for it: "
                f"{_named(merged(now.spec, patch), now.spec)}. Whoever keeps it in step with a repository must not "
                "do so now: pause that, or choose patch 'show'"
            )
        return reached(now)

    def _silent(self, now: FlinkResource) -> str:
        if now.is_observed:
            return ""
        return (
            ", and the operator hasn't carried out its spec yet: see whether the operator runs, and whether it watches "
            f"namespace {self.namespace}"
        )


def _named(expected: Spec, found: Spec) -> str:
    return "; ".join(f"{where} is {new}, not {old}" for where, old, new in changes(expected, found))
