"""Kubernetes' own etcd, API server and controllers, built from their Go modules; of a cluster only nodes are missing.

They listen on loopback, with TLS, tokens and roles as in any cluster. `pods.py` stands in for nodes.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import yaml

from tests.support.fetched_jars import Jars, digest
from tests.support.servers import LOOPBACK, free_port, with_us

Body = dict[str, Any]
_T = TypeVar("_T")
ADMIN, TEAM, FLINK = "admin-token", "team-token", "flink-token"
NAMESPACE = "team"
_MODULE = Path(__file__).parent / "kubernetes"
_CONTROLLERS = "deployment-controller,replicaset-controller,garbage-collector-controller"
_PATIENCE = 90.0


def until(what: str, reached: Callable[[], _T | None], seconds: float = _PATIENCE) -> _T:
    """What is reached at last."""
    end = time.monotonic() + seconds
    while not (found := reached()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s until {what}")
        time.sleep(0.2)
    return found


def programs() -> Path:
    """The folder of the programs, built at first use: some minutes, and 2 GB of Go's own cache."""
    pins = (_MODULE / "go.mod").read_bytes() + (_MODULE / "go.sum").read_bytes()
    jars = Jars("kubernetes", _MODULE / "go.sum")
    with jars.locked():
        made = jars.cache / f"programs-{digest(pins)}"
        if not made.exists():
            go = shutil.which("go") or "/usr/local/go/bin/go"
            with tempfile.TemporaryDirectory(dir=jars.cache) as scratch:
                command = [go, "build", "-trimpath", "-ldflags=-s -w", "-o", f"{scratch}/made/", "tool"]
                subprocess.run(command, cwd=_MODULE, check=True, timeout=1800)
                (Path(scratch) / "made").rename(made)
    return made


class Process:
    """A process that ends with us at the latest, and what it says."""

    def __init__(self, command: list[str], log: Path, *, folder: Path, **environment: str) -> None:
        self.log = log
        with log.open("ab") as out:
            self._running = subprocess.Popen(
                [*with_us(), *command],
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def wait(self) -> int:
        return self._running.wait()

    def end(self, patience: float = 0.0) -> None:
        """Ends it: politely first, if there is patience."""
        if patience:
            self._running.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._running.wait(patience)
        self._running.kill()
        self._running.wait()


class Cluster:
    """The control plane, and a client of it with all rights."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._port, self._running = folder, free_port(), list[Process]()
        self.url = f"https://{LOOPBACK}:{self._port}"
        self.certificate = folder / "certificates" / "apiserver.crt"
        self._client: httpx.Client | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()
        for one in reversed(self._running):
            one.end()

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))

    def kubeconfig(self, token: str = ADMIN) -> Path:
        """Of the user with this token."""
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        text = {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": cluster}], "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": NAMESPACE}}],
        }  # fmt: skip
        file = self.folder / f"kubeconfig-{token}"
        file.write_text(yaml.safe_dump(text))
        return file

    def ask(self, method: str, path: str, body: Body | None = None, **query: str) -> Body:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else json.dumps(body)
        assert self._client is not None
        answer = self._client.request(method, path, content=content, params=query, headers={"Content-Type": kind})
        if answer.is_error:
            raise KubeError(answer.status_code, answer.text)
        found: Body = answer.json()
        return found

    def find(self, path: str) -> Body | None:
        try:
            return self.ask("GET", path)
        except KubeError as error:
            # A kind that was just defined is not served at once.
            if error.status in (404, 429):
                return None
            raise

    def watch(self, path: str, since: str, seconds: int) -> Iterator[Body]:
        query = {"watch": "true", "resourceVersion": since, "timeoutSeconds": str(seconds)}
        assert self._client is not None
        with self._client.stream("GET", path, params=query, timeout=seconds + 10) as answer:
            yield from map(json.loads, answer.iter_lines())

    def create(self, body: Body) -> Body:
        path = "/api/v1" if body["apiVersion"] == "v1" else f"/apis/{body['apiVersion']}"
        return self.ask("POST", f"{path}/namespaces/{NAMESPACE}/{body['kind'].lower()}s", body)

    def allow(self, user: str, role: Body) -> None:
        """Gives a user the role."""
        self.create(role)
        named = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        binding = {"apiVersion": role["apiVersion"], "kind": "RoleBinding", "metadata": role["metadata"]}
        self.create(binding | {"roleRef": named, "subjects": [subject]})

    def define(self, crds: Mapping[str, Body]) -> None:
        """Makes the API server know resources of these kinds."""
        where = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for body in crds.values():
            self.ask("POST", where, body)
        for name, body in crds.items():
            group, plural = body["spec"]["group"], body["spec"]["names"]["plural"]
            version = body["spec"]["versions"][0]["name"]
            until(f"{name} is served", partial(self.find, f"/apis/{group}/{version}/{plural}"))

    def _start(self) -> None:
        made, etcd, peers = programs(), free_port(), free_port()
        for name in ("certificates", "etcd"):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{ADMIN},admin,1,"system:masters"\n{TEAM},stateferry,2\n{FLINK},flink,3\n')
        at = f"http://{LOOPBACK}:{etcd}"
        of_peers = f"http://{LOOPBACK}:{peers}"
        self._run(
            "etcd", str(made / "server"), f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync",
            f"--listen-client-urls={at}", f"--advertise-client-urls={at}", f"--listen-peer-urls={of_peers}",
            f"--initial-advertise-peer-urls={of_peers}", f"--initial-cluster=default={of_peers}",
        )  # fmt: skip
        self._run(
            "kube-apiserver", str(made / "kube-apiserver"), f"--etcd-servers={at}", f"--secure-port={self._port}",
            f"--bind-address={LOOPBACK}", f"--advertise-address={LOOPBACK}", "--endpoint-reconciler-type=none",
            f"--cert-dir={self.certificate.parent}", f"--token-auth-file={tokens}", "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://here",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            # Pods get no token: they are processes of this machine, and have that of the user flink.
            "--disable-admission-plugins=ServiceAccount",
        )  # fmt: skip
        until("the API server has its certificate", lambda: self.certificate.exists() or None)
        # Its own certificate is one for each authority that it names: the client trusts the file.
        self._client = httpx.Client(
            base_url=self.url, verify=self.tls(), timeout=30, headers={"Authorization": f"Bearer {ADMIN}"}
        )
        until("the API server is ready", self._is_ready)
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self._run(
            "controllers", str(made / "kube-controller-manager"), f"--kubeconfig={self.kubeconfig()}",
            f"--controllers={_CONTROLLERS}", "--leader-elect=false", f"--bind-address={LOOPBACK}",
            f"--secure-port={free_port()}", f"--cert-dir={self.folder / 'controllers'}",
        )  # fmt: skip

    def _is_ready(self) -> bool:
        try:
            return self._client is not None and self._client.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def _run(self, name: str, *command: str) -> None:
        self._running.append(Process(list(command), self.folder / f"{name}.log", folder=self.folder))


class KubeError(Exception):
    """The API server refused what was asked."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status
