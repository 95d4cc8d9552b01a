"""The API server of an Airflow connection of type Kubernetes, as the Kubernetes provider resolves it.

The provider is an extra, imported only when it is used. It knows every way to log in (in the cluster, a kubeconfig, an
`exec` plugin); the requests themselves are plain HTTP.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from stateferry.airflow.kubernetes.api import ApiServer
from stateferry.airflow.kubernetes.errors import KubernetesError


def api_server(conn_id: str) -> ApiServer:
    """The API server that the connection describes."""
    try:
        from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
    except ImportError as error:
        raise KubernetesError(
            "runs_on 'kubernetes' needs Airflow's provider for Kubernetes, and it can't be imported "
            f"({error}): install it where Airflow's tasks run, by pip install apache-airflow-providers-cncf-kubernetes"
        ) from None
    hook = KubernetesHook(conn_id=conn_id)
    client = hook.get_conn()
    found = client.configuration
    return ApiServer(
        url=str(found.host).rstrip("/"),
        headers=lambda: _headers(client),
        verify=_tls(found),
        proxy=found.proxy or None,
        namespace=hook.get_namespace(),
    )


def _headers(client: Any) -> Mapping[str, str]:
    """What authenticates a request now: the client's configuration renews a token that expires."""
    headers = {str(name): str(value) for name, value in client.default_headers.items() if name != "User-Agent"}
    for one in client.configuration.auth_settings().values():
        if one["in"] == "header" and one["value"]:
            headers[str(one["key"])] = str(one["value"])
    return headers


def _tls(found: Any) -> ssl.SSLContext | bool:
    if not str(found.host).startswith("https:"):
        return False
    context = ssl.create_default_context(cafile=found.ssl_ca_cert or None)
    if not found.verify_ssl:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if found.cert_file:
        context.load_cert_chain(found.cert_file, found.key_file)
    return context
