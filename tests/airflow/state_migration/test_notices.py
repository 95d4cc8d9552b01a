"""Who is told of events: real notifiers, a server that takes what they send, and what must never end a task."""

from __future__ import annotations

import json
import socketserver
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from stateferry.airflow.dag_runs.notices import notice_problems, tell
from stateferry.airflow.requests.jobs import configuration_of
from tests.airflow.state_migration.test_jobs import MAIL, REQUEST
from tests.support.servers import Handler, serving

WEBHOOK = {
    "notifier": "stateferry.airflow.dag_runs.notices.Webhook",
    "arguments": {"conn_id": "ops", "endpoint": "/hook"},
}


class _Hook(Handler, BaseHTTPRequestHandler):
    got: ClassVar[list[tuple[str, str | None, dict[str, Any]]]] = []
    status: ClassVar[int] = 200

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.got.append((self.path, self.headers["Authorization"], body))
        self.send_response(self.status)
        self.end_headers()


class _Mail(socketserver.StreamRequestHandler):
    got: ClassVar[list[str]] = []

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                text = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.got.append(text.decode())
            if line.upper().startswith(b"QUIT"):
                self.wfile.write(b"221 bye\r\n")
                return
            self.wfile.write(b"250 ok\r\n")


@pytest.fixture
def context() -> Any:
    task = {"dag_id": "state_migration_orders", "run_id": "manual__1+1", "task_id": "decide"}
    return {"ti": SimpleNamespace(**task, log_url="http://airflow/run")}


def configure(monkeypatch: pytest.MonkeyPatch, *notices: object) -> None:
    values = {"jobs": {"orders": {"request": REQUEST, "notify": list(notices)}}}
    monkeypatch.setenv("AIRFLOW_VAR_STATE_MIGRATION", json.dumps(values))


def test_a_webhook_gets_what_happened(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, WEBHOOK, {**WEBHOOK, "events": ["returned"]})
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://ferry.example.org/af/")
    _Hook.got.clear()
    with serving(HTTPServer(("127.0.0.1", 0), _Hook)) as port:
        there = {"conn_type": "http", "host": "http://127.0.0.1", "port": port, "password": "secret"}
        monkeypatch.setenv("AIRFLOW_CONN_OPS", json.dumps(there))
        tell(context, "waiting", "orders", 'Cut over job "orders"?\x1b')
    # Only the first wants to know of what waits.
    ((path, authorization, body),) = _Hook.got
    assert (path, authorization) == ("/hook", "Bearer secret")
    text = 'Cut over job "orders"?\\x1b'
    url = "https://ferry.example.org/af/dags/state_migration_orders/runs/manual__1%2B1/tasks/decide/required_actions"
    assert body == {"text": text, "event": "waiting", "job": "orders", "url": url}
    assert "stateferry_text" not in context


def test_a_notice_is_told_of_a_success_only_if_it_asks_for_it(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, WEBHOOK, {**WEBHOOK, "events": ["done"]})
    _Hook.got.clear()
    with serving(HTTPServer(("127.0.0.1", 0), _Hook)) as port:
        there = {"conn_type": "http", "host": "http://127.0.0.1", "port": port}
        monkeypatch.setenv("AIRFLOW_CONN_OPS", json.dumps(there))
        for event in ("done", "nothing", "missed"):
            tell(context, event, "orders", "the night")
    assert [body["event"] for _, _, body in _Hook.got] == ["done", "nothing", "missed"]
    assert {body["url"] for _, _, body in _Hook.got} == {"http://airflow/run"}


def test_mail_goes_by_airflows_own_notifier(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"from_email": "ferry@example.org", "subject": "{{ stateferry_event }}: {{ stateferry_job }}"}
    arguments = {**MAIL["arguments"], **said, "html_content": "{{ stateferry_text }}"}  # type: ignore[dict-item]
    configure(monkeypatch, {**MAIL, "arguments": arguments})
    _Mail.got.clear()
    with serving(socketserver.TCPServer(("127.0.0.1", 0), _Mail)) as port:
        extra = {"disable_ssl": True, "disable_tls": True}
        there = {"conn_type": "smtp", "host": "127.0.0.1", "port": port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(there))
        tell(context, "red", "orders", "the night was red")
    (mail,) = _Mail.got
    assert "Subject: red: orders" in mail
    assert "To: ops@example.org" in mail
    assert b64encode(b"the night was red").decode() in mail


def test_a_notice_that_can_t_be_sent_ends_nothing(
    context: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = {"notifier": "nowhere.Notifier"}
    configure(monkeypatch, unknown, WEBHOOK)
    tell(context, "red", "orders", "the night was red")
    monkeypatch.setenv("AIRFLOW_VAR_STATE_MIGRATION", "nonsense")
    tell(context, "red", "orders", "the night was red")
    del context["ti"].dag_id
    tell(context, "red", "orders", "the night was red")
    said = [record.getMessage() for record in caplog.records]
    assert any("nowhere.Notifier could not send the notice 'the night was red'" in line for line in said)
    assert any("stateferry.airflow.dag_runs.notices.Webhook could not send" in line for line in said)
    assert any("nobody is told of this, because the configuration can't be read" in line for line in said)


def test_a_wrong_notifier_is_told_before_it_is_used() -> None:
    wrong = [
        {"notifier": "nowhere.Notifier"},
        {"notifier": "stateferry.airflow.dag_runs.notices.Nothing"},
        {"notifier": "pathlib.Path"},
        {"notifier": "stateferry.airflow.dag_runs.notices.Webhook", "arguments": {"connection": "ops"}},
    ]
    values = {"jobs": {"orders": {"request": REQUEST, "notify": [*wrong, WEBHOOK]}}, "notify": [MAIL]}
    found = configuration_of(json.dumps(values), "the variable")
    assert not found.problems
    said = list(notice_problems(found))
    assert len(said) == len(wrong), said
    for words in ("No module named 'nowhere'", "has no attribute 'Nothing'", "is no notifier", "'conn_id'"):
        assert any(words in line for line in said), (words, said)
