"""The Flink Kubernetes Operator's own process, from the jars that ``STATEFERRY_OPERATOR_JARS`` names.

That is a folder with the jars of its image: `flink-kubernetes-operator-…-shaded.jar`,
`flink-kubernetes-standalone-….jar` and what binds slf4j. The CRDs are those in the jar.
"""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path
from typing import Any

import yaml

from tests.airflow.operator.control_plane import NAMESPACE, Body, Cluster, Process
from tests.support.fetched_jars import java_tool

VARIABLE = "STATEFERRY_OPERATOR_JARS"
_FLINK = "STATEFERRY_OPERATOR_FLINK"
# Since which operator each Flink of these tests is known.
_KNOWN_SINCE = {"2.3.0": (1, 15), "2.2.1": (1, 13), "2.0.0": (1, 11), "1.20.0": (1, 10)}
_CONFIGURATION = {
    "kubernetes.operator.watched.namespaces": NAMESPACE,
    # It would listen on all addresses.
    "kubernetes.operator.health.probe.enabled": "false",
    # Jars of session jobs are files of this machine, which it takes from https alone.
    "kubernetes.operator.user.artifacts.allowed-schemes": "file",
    # Nothing is proven by waiting. How often it looks after a job that changes is left as it is.
    "kubernetes.operator.reconcile.interval": "15 s",
    "kubernetes.operator.observer.rest-ready.delay": "1 s",
}


def jars() -> Path:
    return Path(os.environ[VARIABLE])


def _shaded() -> Path:
    (found,) = jars().glob("flink-kubernetes-operator-*-shaded.jar")
    return found


def version() -> str:
    found = re.search(r"operator-(.*)-shaded", _shaded().name)
    assert found is not None
    return found[1]


def flink() -> str:
    """The newest Flink of the tests that the operator knows, unless ``STATEFERRY_OPERATOR_FLINK`` names another."""
    own = tuple(map(int, version().split(".")[:2]))
    return os.environ.get(_FLINK) or next(one for one, since in _KNOWN_SINCE.items() if own >= since)


def crds() -> dict[str, Body]:
    """By file."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with zipfile.ZipFile(_shaded()) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"META-INF/fabric8/flink.*-v1\.yml", name)]
        found: dict[str, Body] = {name: yaml.load(archive.read(name), loader) for name in names}
    for name, body in found.items():
        if "bluegreen" in name:
            # The API server refuses it without a path; the operator's chart leaves it out as well.
            body["spec"]["versions"][0]["subresources"].pop("scale", None)
    return found


class OperatorProcess:
    """The operator of the cluster, which can be ended and started again."""

    def __init__(self, cluster: Cluster, hosts: Path) -> None:
        self._cluster, self._hosts, self.folder = cluster, hosts, cluster.folder / "operator"
        self._process: Process | None = None
        self.folder.mkdir()
        options = _CONFIGURATION | {"kubernetes.operator.user.artifacts.base.dir": str(cluster.folder / "artifacts")}
        (self.folder / "flink-conf.yaml").write_text("".join(f"{key}: {one}\n" for key, one in options.items()))

    def start(self) -> None:
        """Starts it unless it runs."""
        if self._process is not None:
            return
        first = [str(one) for one in sorted(jars().glob("flink-kubernetes-standalone-*.jar"))]
        command = [java_tool("java"), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += [f"-Djdk.net.hosts.file={self._hosts}", "-cp", ":".join([*first, f"{jars()}/*"])]
        command += ["org.apache.flink.kubernetes.operator.FlinkOperator"]
        self._process = Process(
            command, self.folder / "operator.log", folder=self.folder, FLINK_CONF_DIR=str(self.folder),
            FLINK_PLUGINS_DIR=str(self.folder), KUBECONFIG=str(self._cluster.kubeconfig()),
            OPERATOR_NAMESPACE=NAMESPACE,
        )  # fmt: skip

    def run(self) -> None:
        """Starts it, and stays with it: with the thread that has started a process, Linux would end the process."""
        self.start()
        assert self._process is not None
        self._process.wait()

    def kill(self) -> None:
        if self._process is not None:
            self._process.end()
        self._process = None
