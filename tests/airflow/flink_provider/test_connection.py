"""The connection: how to reach a JobManager, how to be let in, and patience with one that is down or slow."""

from __future__ import annotations

import asyncio
import datetime
import importlib
import ipaddress
import json
import ssl
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import airflow
import httpx
import jsonschema
import pytest
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
from airflow.sdk import Connection
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from stateferry.airflow.flink.errors import FlinkError, FlinkRefusedError, FlinkUnreachableError
from stateferry.airflow.flink.hook import FlinkHook, endpoint_of
from stateferry.airflow.flink.provider_info import provider_info
from stateferry.airflow.flink.rest import FlinkRest
from tests.airflow.flink_provider.conftest import connect
from tests.airflow.flink_provider.tries import Try, run_jar, running
from tests.flink.cluster import FlinkCluster
from tests.flink.proxy import Proxy
from tests.support.servers import Handler, serving


def connection(**more: Any) -> Connection:
    return Connection(conn_id="flink_default", conn_type="flink", **{"host": "flink.example"} | more)


def test_where_it_is() -> None:
    assert endpoint_of(connection()).url == "http://flink.example:8081"
    extra = json.dumps({"path": "/team/flink/", "ui_url": "https://ui.example/"})
    endpoint = endpoint_of(connection(schema="https", port=443, extra=extra))
    assert endpoint.url == "https://flink.example:443/team/flink"
    assert endpoint.ui_url == "https://ui.example"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"host": None}, "names no host"),
        ({"schema": "ftp"}, "has the schema 'ftp'; expected http or https"),
        ({"login": "me", "extra": '{"token": "t"}'}, "has both a login and a token"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(FlinkError, match=f"connection 'flink_default' {words}"):
        endpoint_of(connection(**given))


def test_secrets_are_not_shown() -> None:
    for endpoint in (
        endpoint_of(connection(login="me", password="hidden")),
        endpoint_of(connection(extra='{"token": "hidden"}')),
    ):
        assert "hidden" not in repr(endpoint)


def test_airflow_is_told_of_the_connection_type() -> None:
    (kind,) = provider_info()["connection-types"]
    assert kind["connection-type"] == FlinkHook.conn_type
    assert kind["hook-class-name"] == f"{FlinkHook.__module__}.{FlinkHook.__name__}"
    # Every field of the form is one that the hook reads, and the other way round.
    read: set[str] = set()

    class Extra(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            read.add(key)
            return default

    class Watched:
        conn_id, host, port, schema, login, password = "flink_default", "host", None, None, None, None
        extra_dejson = Extra()

    endpoint_of(Watched())  # type: ignore[arg-type]
    assert read == set(kind["conn-fields"])


def test_what_airflow_is_told_keeps_its_schema_and_is_there() -> None:
    said = provider_info()
    schema = json.loads((Path(airflow.__path__[0]) / "provider_info.schema.json").read_text())
    jsonschema.Draft7Validator(schema).validate(said)
    # The schema lets through what it doesn't know.
    assert set(said) <= set(schema["properties"])
    modules = [one for kind in ("hooks", "operators", "sensors", "triggers") for one in said[kind]]
    for one in modules:
        assert one["integration-name"] == said["integrations"][0]["integration-name"]
        for name in one["python-modules"]:
            importlib.import_module(name)
    for name in (*said["notifications"], *said["extra-links"], said["connection-types"][0]["hook-class-name"]):
        module, _, attribute = name.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), attribute), type)


def test_the_form_in_airflow() -> None:
    """As installed: Airflow finds it by the distribution's entry point."""
    (flink,) = [kind for kind in HookMetaService.hook_meta_data() if kind.connection_type == "flink"]
    assert flink.hook_name == FlinkHook.hook_name
    assert flink.extra_fields is not None
    assert set(flink.extra_fields) == set(provider_info()["connection-types"][0]["conn-fields"])


class Gate(Handler, BaseHTTPRequestHandler):
    """Lets in who has the password or the token."""

    def do_GET(self) -> None:
        let_in = self.headers.get("Authorization") in ("Basic bWU6c2VjcmV0", "Bearer token")
        answer = {"flink-version": "2.3.0", "taskmanagers": 1} if let_in else {"errors": ["not you"]}
        self.answer_json(answer, 200 if let_in else 401)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A port with TLS, and the certificate to trust."""
    certificate = tmp_path / "certificate.pem"
    certificate.write_bytes(_certificate())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server) as port:
        yield port, certificate


@pytest.mark.parametrize("who", [{"login": "me", "password": "secret"}, {"token": "token"}])
def test_tls_and_authentication(
    guarded: tuple[int, Path], monkeypatch: pytest.MonkeyPatch, who: dict[str, str]
) -> None:
    port, certificate = guarded
    token = {"token": who["token"]} if "token" in who else {}
    login = {} if token else who

    def connected(**extra: Any) -> tuple[bool, str]:
        connect(monkeypatch, port, {"schema": "https"} | login, **token, **extra, patience=0.1)
        return FlinkHook().test_connection()

    assert connected(ca_file=str(certificate)) == (True, "Flink 2.3.0 with 1 TaskManagers")
    assert connected(verify=False) == (True, "Flink 2.3.0 with 1 TaskManagers")
    ok, words = connected()
    assert not ok
    assert "CERTIFICATE_VERIFY_FAILED" in words


def test_who_is_not_let_in_is_told_so_at_once(guarded: tuple[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    port, certificate = guarded
    connect(monkeypatch, port, {"schema": "https"}, ca_file=str(certificate), patience=120)
    with pytest.raises(FlinkRefusedError, match="was answered with 401: not you"):
        FlinkHook().job_state("0" * 32)


def test_an_answer_that_is_not_of_flink() -> None:
    async def ask() -> None:
        async with FlinkRest(endpoint_of(connection())) as rest:
            page = httpx.Response(200, text="<html>Please log in</html>")
            rest._client = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: page))
            await rest.get("/jobs/overview")

    with pytest.raises(FlinkError, match=r"GET http://flink.example:8081/jobs/overview: expected JSON, found '<html>"):
        asyncio.run(ask())


def test_a_job_manager_that_is_down(monkeypatch: pytest.MonkeyPatch, free_port: int) -> None:
    connect(monkeypatch, free_port, patience=1)
    started = time.monotonic()
    with pytest.raises(FlinkUnreachableError, match=f"within 1 s: GET http://127.0.0.1:{free_port}/jobs/overview: "):
        FlinkHook().job_id("totals")
    assert time.monotonic() - started < 60


@pytest.mark.flink
def test_a_job_manager_that_is_slow(
    cluster: FlinkCluster, jar: str, proxy: Proxy, sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.delay = 0.7
    connect(monkeypatch, proxy.port, patience=200)
    assert FlinkHook().test_connection()[0]
    # Slower than an answer may be: what was asked is asked again, but not what must not be done twice.
    monkeypatch.setattr("stateferry.airflow.flink.jobs.RUN_ANSWER_SECONDS", 0.2)
    started = run_jar(["--sink", str(sink)]).execute(Try().context)
    assert running(cluster) == [started["job_id"]]
    connect(monkeypatch, proxy.port, patience=2, answer_timeout=0.2)
    with pytest.raises(FlinkUnreachableError, match=f"within 2 s: GET http://127.0.0.1:{proxy.port}/.*: ReadTimeout"):
        FlinkHook().job_state(started["job_id"])
    proxy.delay = 0
    connect(monkeypatch, proxy.port, patience=200)
    assert FlinkHook().cancel(started["job_id"], timeout=200, poll_interval=0.1) == "CANCELED"


@pytest.mark.flink
def test_from_inside_an_event_loop(cluster: FlinkCluster, connection: None) -> None:
    async def both() -> tuple[Any, Any]:
        async with FlinkHook().rest() as rest:
            assert isinstance(rest, FlinkRest)
            return await rest.get("/config"), FlinkHook().run(lambda other: other.get("/config"))

    one, other = asyncio.run(both())
    assert one == other


def _certificate() -> bytes:
    """For this machine, signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "flink in a test")])
    now = datetime.datetime.now(datetime.UTC)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).add_extension(here, critical=False)
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
    signed = builder.not_valid_after(now + datetime.timedelta(hours=1)).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(pem, *plain) + signed.public_bytes(pem)
