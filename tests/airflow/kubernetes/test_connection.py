"""The API server of a connection, as the Kubernetes provider finds it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import airflow
import httpx
import pytest
import yaml

from stateferry.airflow.kubernetes.api import ApiServer, KubernetesApi
from stateferry.airflow.kubernetes.connection import api_server
from stateferry.airflow.kubernetes.errors import KubernetesError, KubernetesUnreachableError
from tests.airflow.kubernetes.conftest import spec_of
from tests.airflow.kubernetes.stand_in import NAME, Kubernetes

PROVIDER = Path(__file__).parents[3] / ".cache/kubernetes-provider"


def test_without_the_provider_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.cncf.kubernetes.hooks.kubernetes", None)
    with pytest.raises(KubernetesError, match=r"by pip install apache-airflow-providers-cncf-kubernetes$"):
        api_server("kubernetes_default")


def test_with_the_provider_a_kubeconfig_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where `make setup` puts it.
    monkeypatch.syspath_prepend(str(PROVIDER))
    monkeypatch.setattr(airflow, "__path__", [*airflow.__path__, str(PROVIDER / "airflow")])
    kubernetes = Kubernetes({"metadata": {"name": NAME}, "spec": spec_of()}, {})
    with kubernetes.serving() as url:
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": url}}],
            "users": [{"name": "me", "user": {"token": "secret"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        }  # fmt: skip
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        extra = {"kube_config_path": str(tmp_path / "config"), "namespace": "team"}
        monkeypatch.setenv("AIRFLOW_CONN_HERE", json.dumps({"conn_type": "kubernetes", "extra": extra}))
        server = api_server("here")
        assert (server.url, server.namespace) == (url, "team")
        found = KubernetesApi(server).get("flinkdeployments", "team", NAME)
        assert found is not None
        assert kubernetes.authorization == "Bearer secret"
        assert KubernetesApi(server).get("flinkdeployments", "team", "other") is None
        assert "secret" not in repr(server)


def test_a_watch_that_is_refused_is_told_and_not_repeated_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("stateferry.airflow.kubernetes.api.time", SimpleNamespace(sleep=slept.append))
    body = {"message": "cannot watch resource flinkdeployments"}
    api = KubernetesApi(ApiServer("http://127.0.0.1:9"))
    api._client = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(403, json=body)))
    assert list(api.watch("flinkdeployments", "team", NAME, "1", 30)) == []
    assert slept == [5.0]
    assert "the watch of orders was answered with 403: cannot watch resource" in caplog.text


def test_a_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(KubernetesUnreachableError, match=r"no answer from Kubernetes within 0.2 s: GET"):
        KubernetesApi(ApiServer("http://127.0.0.1:9", patience=0.2)).get("flinkdeployments", "team", NAME)
