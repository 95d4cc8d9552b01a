"""A stand-in for a Kubernetes API server and for the operator; neither is real.

The server keeps a resource and its snapshots, counts their versions and generations, refuses a patch of an older
version, checks specs against the operator's own schema, and tells watchers of changes. The operator sets the status
that the real one would, by the rules of its `AbstractJobReconciler`; what Flink would do is given to it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema

from stateferry.airflow.kubernetes.spec import merged
from tests.support.servers import Handler

Body = dict[str, Any]
NAME = "orders"


class Kubernetes:
    """The server, and in it one resource, and snapshots by their names."""

    def __init__(self, resource: Body, schema: Body, of_snapshots: Body | None = None) -> None:
        self.schema, self.of_snapshots, self.resource = schema, of_snapshots or {}, deepcopy(resource)
        self.snapshots: dict[str, Body] = {}
        self.take: Callable[[str, str], str] | None = None
        self.resource["metadata"] |= {"resourceVersion": "1", "generation": 1}
        self.changed = threading.Condition()
        self.patches: list[Body] = []
        self.before_patch: list[Callable[[], None]] = []
        self.after_change: Callable[[], None] = lambda: None
        self.authorization: str | None = None

    @contextmanager
    def serving(self) -> Iterator[str]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (_Handler,), {"kubernetes": self}))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def set_status(self, **status: Any) -> None:
        """As the operator does, by the resource's subresource: the generation stays."""
        with self.changed:
            self.resource["status"] = merged(self.resource.get("status", {}), status)
            self._next()

    def change_spec(self, patch: Body) -> None:
        """As somebody else does."""
        with self.changed:
            self.resource["spec"] = merged(self.resource["spec"], patch)
            self.resource["metadata"]["generation"] += 1
            self._next()

    def _next(self) -> None:
        self.resource["metadata"]["resourceVersion"] = str(int(self.resource["metadata"]["resourceVersion"]) + 1)
        self.changed.notify_all()

    def patch(self, patch: Body, *, dry_run: bool) -> tuple[int, Body]:
        while self.before_patch:
            self.before_patch.pop()()
        with self.changed:
            version = patch.get("metadata", {}).get("resourceVersion")
            if version not in (None, self.resource["metadata"]["resourceVersion"]):
                return 409, {"message": "the object has been modified; please apply your changes to the latest version"}
            result = merged(self.resource, {"spec": patch["spec"]})
            if problems := list(unknown(self.schema["properties"]["spec"], result["spec"], "spec")):
                return 400, {"message": f"strict decoding error: unknown field {', '.join(problems)}"}
            try:
                jsonschema.Draft7Validator(self.schema["properties"]["spec"]).validate(result["spec"])
            except jsonschema.ValidationError as error:
                return 422, {"message": f"{error.json_path}: {error.message}"}
            if dry_run:
                return 200, result
            self.patches.append(patch["spec"])
            if result["spec"] != self.resource["spec"]:
                self.resource = result
                self.resource["metadata"]["generation"] += 1
                self._next()
            found = deepcopy(self.resource)
        self.after_change()
        return 200, found

    def create(self, snapshot: Body) -> tuple[int, Body]:
        """Makes a snapshot, of which the operator, if it is up, soon says what `take` returns or raises."""
        name = snapshot["metadata"]["name"]
        if problems := list(unknown(self.of_snapshots["properties"]["spec"], snapshot["spec"], "spec")):
            return 400, {"message": f"strict decoding error: unknown field {', '.join(problems)}"}
        jsonschema.Draft7Validator(self.of_snapshots["properties"]["spec"]).validate(snapshot["spec"])
        with self.changed:
            if name in self.snapshots:
                return 409, {"message": f'flinkstatesnapshots.flink.apache.org "{name}" already exists'}
            snapshot["metadata"] |= {"resourceVersion": "1"}
            self.snapshots[name] = snapshot
            made = deepcopy(snapshot)
        threading.Timer(0.05, self.carry_out, (snapshot,)).start()
        return 201, made

    def carry_out(self, snapshot: Body) -> None:
        if self.take is None:
            return
        wanted = snapshot["spec"]["savepoint"]
        try:
            status = {"state": "COMPLETED", "path": self.take(wanted["path"], wanted["formatType"])}
        except OSError as error:
            status = {"state": "FAILED", "error": str(error)}
        with self.changed:
            snapshot["status"] = status
            snapshot["metadata"]["resourceVersion"] = "2"
            self.changed.notify_all()


def unknown(schema: Body, value: Any, path: str) -> Iterator[str]:
    """The fields that the schema doesn't know, which the API server would leave out or, if asked, refuse."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, dict) and "properties" in schema:
        for name, one in value.items():
            if name in schema["properties"]:
                yield from unknown(schema["properties"][name], one, f"{path}.{name}")
            else:
                yield f'"{path}.{name}"'
    elif isinstance(value, list) and "items" in schema:
        for number, one in enumerate(value):
            yield from unknown(schema["items"], one, f"{path}[{number}]")


class _Handler(Handler, BaseHTTPRequestHandler):
    kubernetes: Kubernetes

    def do_GET(self) -> None:
        where, query = urlsplit(self.path), parse_qs(urlsplit(self.path).query)
        self.kubernetes.authorization = self.headers.get("Authorization")
        snapshot = self.kubernetes.snapshots.get(where.path.rpartition("/team/flinkstatesnapshots/")[2])
        if "watch" in query:
            name = query["fieldSelector"][0].removeprefix("metadata.name=")
            self._watch(name, int(query["resourceVersion"][0]), float(query["timeoutSeconds"][0]))
        elif snapshot is not None:
            self.answer_json(deepcopy(snapshot))
        elif where.path.endswith((f"/team/flinkdeployments/{NAME}", f"/team/flinksessionjobs/{NAME}")):
            with self.kubernetes.changed:
                found = deepcopy(self.kubernetes.resource)
            self.answer_json(found)
        else:
            self.answer_json({"message": f"{where.path} not found"}, 404)

    def _watch(self, name: str, since: int, seconds: float) -> None:
        self.send_response(200)
        self.end_headers()

        def watched() -> Body:
            return self.kubernetes.snapshots.get(name, self.kubernetes.resource)

        with self.kubernetes.changed:
            news = self.kubernetes.changed.wait_for(
                lambda: int(watched()["metadata"]["resourceVersion"]) > since, seconds
            )
            found = deepcopy(watched())
        if news:
            self.wfile.write(json.dumps({"type": "MODIFIED", "object": found}).encode() + b"\n")

    def do_POST(self) -> None:
        where = urlsplit(self.path)
        assert where.path.endswith("/team/flinkstatesnapshots")
        assert parse_qs(where.query)["fieldValidation"] == ["Strict"]
        status, body = self.kubernetes.create(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer_json(body, status)

    def do_PATCH(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        assert query["fieldValidation"] == ["Strict"]
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, body = self.kubernetes.patch(patch, dry_run="dryRun" in query)
        self.answer_json(body, status)


class StandInOperator:
    """Does what the operator does with a changed spec: stop with a savepoint, or deploy from one.

    ``stop`` gets folder and format and returns the savepoint; ``start`` gets the spec and returns the job's id. What
    they raise is in ``status.error``, and the spec isn't carried out.
    """

    def __init__(
        self, kubernetes: Kubernetes, stop: Callable[[str, str], str], start: Callable[[Body], str], job_id: str
    ) -> None:
        self.kubernetes, self.stop, self.start = kubernetes, stop, start
        self.is_down, self.one_at_a_time = False, threading.Lock()
        # Operators before 1.10 don't know the option by which they would cancel a job that is highly available.
        self.cancels = True
        # Why the job that is there has failed, as long as the operator doesn't know of it.
        self.failure: str | None = None
        self.deployed: Body = deepcopy(kubernetes.resource["spec"])
        self._status(lifecycleState="STABLE", jobStatus={"jobId": job_id, "state": "RUNNING"}, error=None)
        kubernetes.after_change = self.wake

    def wake(self) -> None:
        threading.Timer(0.05, self.reconcile).start()

    def reconcile(self) -> None:
        with self.one_at_a_time:
            if not self.is_down:
                self._observe()
                self._reconcile()

    def _observe(self) -> None:
        if self.failure is None:
            return
        error, self.failure = json.dumps({"type": "JobException", "message": self.failure}), None
        self.kubernetes.set_status(lifecycleState="FAILED", jobStatus={"state": "FAILED"}, error=error)
        # To remove its cluster takes a while.
        time.sleep(0.2)

    def _reconcile(self) -> None:
        with self.kubernetes.changed:
            wanted = deepcopy(self.kubernetes.resource["spec"])
        before, job = self.deployed["job"], wanted["job"]
        try:
            if job.get("savepointRedeployNonce") not in (None, before.get("savepointRedeployNonce")):
                job["upgradeMode"] = "savepoint"
                job_id = self.start(wanted)
                news: Body = {"jobStatus": {"jobId": job_id, "state": "RUNNING"}, "lifecycleState": "STABLE"}
                news["jobManagerDeploymentStatus"] = "READY"
            elif job["state"] == "suspended" and before["state"] == "running":
                news = self._stopped(job, wanted["flinkConfiguration"])
            else:
                news = {}
        except (OSError, ValueError) as error:
            self.kubernetes.set_status(error=json.dumps({"type": "ReconciliationException", "message": str(error)}))
            return
        self.deployed = wanted
        self._status(**news, error=None)

    def _stopped(self, job: Body, options: Body) -> Body:
        there: Body = {"lifecycleState": "SUSPENDED", "jobManagerDeploymentStatus": "MISSING"}
        if job["upgradeMode"] != "last-state":
            kind = options["kubernetes.operator.savepoint.format.type"]
            path = self.stop(options["state.savepoints.dir"], kind)
            return there | {"jobStatus": {"upgradeSavepointPath": path, "state": "FINISHED"}}
        if not self.cancels or options["kubernetes.operator.job.upgrade.last-state.job-cancel.enabled"] != "true":
            # Only the metadata of high availability knows the last state.
            return there | {"jobStatus": {"state": "FINISHED"}}
        told = self.stop(options["state.savepoints.dir"], "CHECKPOINT")
        job["upgradeMode"] = "savepoint"
        # Flink's cluster stays, and the operator says no more than this.
        return {"lifecycleState": "UPGRADING", "jobStatus": {"upgradeSavepointPath": told, "state": "CANCELED"}}

    def _status(self, **news: Any) -> None:
        generation = self.kubernetes.resource["metadata"]["generation"]
        carried_out = {"spec": self.deployed, "resource_metadata": {"metadata": {"generation": generation}}}
        reconciliation = {"state": "DEPLOYED", "lastReconciledSpec": json.dumps(carried_out)}
        self.kubernetes.set_status(reconciliationStatus=reconciliation, observedGeneration=generation, **news)
