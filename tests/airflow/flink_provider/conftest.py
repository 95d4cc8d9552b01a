"""Real Flink clusters, and tries of tasks."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from airflow.sdk.bases.operator import ExecutorSafeguard

from stateferry.airflow.flink.jobs import TERMINAL
from tests.airflow.flink_provider.tries import CONNECTION
from tests.flink.cluster import ClusterError, FlinkCluster
from tests.flink.proxy import Proxy
from tests.flink.remote import RemoteJob
from tests.support import servers


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    """One that stays; without high availability."""
    folder = tmp_path_factory.mktemp("flink")
    # What these tests look at right after it has happened, Flink would else tell from its cache.
    with FlinkCluster("2.3.0", folder, slots=16, settings={"web.refresh-interval": "50"}) as cluster:
        yield cluster
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def jar(cluster: FlinkCluster) -> str:
    return cluster.upload_jobs()


@pytest.fixture
def proxy(cluster: FlinkCluster) -> Iterator[Proxy]:
    """A network to the cluster that can be slow and lose answers."""
    with Proxy(cluster.port) as proxy:
        yield proxy


@pytest.fixture
def connection(cluster: FlinkCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, cluster.port)


@pytest.fixture
def through_proxy(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    connect(monkeypatch, proxy.port)
    return proxy


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    folder = tmp_path / "sink"
    folder.mkdir()
    return folder


@pytest.fixture
def free_port() -> int:
    """Nobody listens there."""
    return servers.free_port()


@pytest.fixture(autouse=True)
def _outside_the_task_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExecutorSafeguard, "test_mode", True)


def connect(
    monkeypatch: pytest.MonkeyPatch, port: int, more: Mapping[str, object] | None = None, **extra: object
) -> None:
    """Have the hook find this connection."""
    where = {"conn_type": "flink", "host": "127.0.0.1", "port": port, "extra": {"patience": 120} | extra}
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", json.dumps(where | dict(more or {})))


def end(job: RemoteJob) -> None:
    """Whatever state it is in, and whoever ended it before."""
    with contextlib.suppress(ClusterError):
        job.cluster.patch(f"/jobs/{job.id}?mode=cancel")
    job.cluster.wait_until("the job is over", lambda: job.cluster.get(f"/jobs/{job.id}/status")["status"] in TERMINAL)
