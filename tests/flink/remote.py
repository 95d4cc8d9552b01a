"""Jobs of `stateferry.totals` on a cluster, driven over its REST API."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tests.flink.cluster import PATIENCE, ClusterError, FlinkCluster

LEGACY_JOB, NEW_JOB, FAILING_JOB = (f"stateferry.totals.{name}Job" for name in ("Legacy", "New", "Failing"))
_ENDED = ("FINISHED", "FAILED", "CANCELED")


@dataclass(frozen=True, slots=True)
class RemoteJob:
    cluster: FlinkCluster
    id: str

    @classmethod
    def start(
        cls,
        cluster: FlinkCluster,
        jar: str,
        entry_class: str,
        *arguments: object,
        savepoint: Path | str | None = None,
        parallelism: int = 2,
        claims: bool = False,
    ) -> RemoteJob:
        wanted: dict[str, object] = {"entryClass": entry_class, "programArgsList": [str(one) for one in arguments]}
        wanted["parallelism"] = parallelism
        if savepoint is not None:
            uri = savepoint.as_uri() if isinstance(savepoint, Path) else savepoint
            mode = "CLAIM" if claims else "NO_CLAIM"
            wanted |= {"savepointPath": uri, "claimMode": mode, "allowNonRestoredState": False}
        return cls(cluster, cluster.post(f"/jars/{jar}/run", wanted)["jobid"])

    @property
    def status(self) -> str:
        return str(self.cluster.get(f"/jobs/{self.id}")["state"])

    @property
    def checkpoints(self) -> int:
        """How many it has completed, savepoints included."""
        return int((self.cluster.get(f"/jobs/{self.id}/checkpoints").get("counts") or {}).get("completed", 0))

    def wait_for_checkpoints(self, more: int = 2, patience: float = PATIENCE) -> None:
        before = self.checkpoints
        self.cluster.wait_until(f"{more} more checkpoints of job {self.id}", lambda: self._has(before + more), patience)

    def _has(self, checkpoints: int) -> bool:
        self._raise_if_ended()
        return self.checkpoints >= checkpoints

    def _raise_if_ended(self) -> None:
        if self.status in _ENDED:
            raise ClusterError(f"job {self.id} is {self.status}: {self.why_it_failed()}")

    def savepoint(self, format_: str = "CANONICAL", patience: float = PATIENCE) -> Path:
        """Taken while it goes on running."""
        return _path(self.savepoint_at(format_, patience))

    def savepoint_at(self, format_: str = "CANONICAL", patience: float = PATIENCE) -> str:
        """As `savepoint`; returns its URI, which may be on a store."""
        wanted = {"target-directory": self.cluster.savepoints_uri, "cancel-job": False}
        return self._await(f"/jobs/{self.id}/savepoints", wanted, format_, patience)

    def stop_with_savepoint(self, format_: str = "CANONICAL", patience: float = PATIENCE) -> Path:
        return _path(self.stop_with_savepoint_at(format_, patience))

    def stop_with_savepoint_at(self, format_: str = "CANONICAL", patience: float = PATIENCE) -> str:
        """As `stop_with_savepoint`; returns the savepoint's URI, which may be on a store."""
        wanted = {"targetDirectory": self.cluster.savepoints_uri, "drain": False}
        savepoint = self._await(f"/jobs/{self.id}/stop", wanted, format_, patience)
        self.cluster.wait_until(f"job {self.id} is finished", lambda: self.status == "FINISHED")
        return savepoint

    def stop_with_checkpoint(self, patience: float = PATIENCE) -> Path:
        """Cancels it after one more checkpoint, which it retains then."""
        path = f"/jobs/{self.id}/checkpoints"
        asked = self.cluster.post(path, {"checkpointType": "CONFIGURED"})["request-id"]
        status = f"{path}/{asked}"
        done = f"a checkpoint of job {self.id}"
        self.cluster.wait_until(done, lambda: self.cluster.get(status)["status"]["id"] == "COMPLETED", patience)
        self.cancel()
        return _path(self.cluster.get(path)["latest"]["completed"]["external_path"])

    def wait_until_running(self, patience: float = PATIENCE) -> None:
        """Until every subtask has its state and runs."""
        self.cluster.wait_until(f"every subtask of job {self.id} runs", self._runs, patience)

    def _runs(self) -> bool:
        self._raise_if_ended()
        vertices = self.cluster.get(f"/jobs/{self.id}")["vertices"]
        return bool(vertices) and all(vertex["tasks"]["RUNNING"] == vertex["parallelism"] for vertex in vertices)

    def cancel(self) -> None:
        if self.status not in _ENDED:
            self.cluster.patch(f"/jobs/{self.id}?mode=cancel")
            self.cluster.wait_until(f"job {self.id} has ended", lambda: self.status in _ENDED)

    def why_it_failed(self) -> str:
        history = self.cluster.get(f"/jobs/{self.id}/exceptions").get("exceptionHistory", {}).get("entries", [])
        return str(history[0]["stacktrace"]) if history else "no word of it"

    def _await(
        self, trigger: str, wanted: dict[str, object], format_: str = "CANONICAL", patience: float = PATIENCE
    ) -> str:
        id_ = self.cluster.post(trigger, {**wanted, "formatType": format_})["request-id"]
        answer: dict[str, Any] = {}

        def ended() -> bool:
            answer.update(self.cluster.get(f"/jobs/{self.id}/savepoints/{id_}"))
            return bool(answer["status"]["id"] == "COMPLETED")

        self.cluster.wait_until(f"a savepoint of job {self.id}", ended, patience)
        if "failure-cause" in answer["operation"]:
            raise ClusterError(answer["operation"]["failure-cause"]["stack-trace"])
        return str(answer["operation"]["location"])


def _path(uri: str) -> Path:
    return Path(unquote(urlparse(uri).path))


def jobs(cluster: FlinkCluster) -> dict[str, str]:
    """The status of each job that the cluster knows, by id."""
    return {job["id"]: job["status"] for job in cluster.get("/jobs")["jobs"]}
