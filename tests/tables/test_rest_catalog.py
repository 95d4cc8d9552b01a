"""Tables in a REST catalog: Iceberg's own server is asked, on loopback."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import inspect

from flinkstate.errors import RefusedError, StateferryError, TransientError
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar
from stateferry.cli import main
from stateferry.runs.catalog.control_tables import engine_for
from stateferry.tables.iceberg.cleaning import tables_of_job
from stateferry.tables.iceberg.commits import TableHome, branch_of
from stateferry.tables.iceberg.current_view import CURRENT_ENTRY, put_current_view
from stateferry.tables.update import advance_main, withdraw_run
from tests.flink.proxy import Proxy
from tests.support.iceberg_server import IcebergServer
from tests.support.in_process import without_spark
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState
from tests.support.servers import LOOPBACK, Handler, serving
from tests.support.table_nights import Nights, folding_everything

pytestmark = pytest.mark.slow
STATE = LegacyState({f"key-{number}": ({"a": number, "b": 2}, 5) for number in range(30)}, ttl=True)
TTL = 86_400_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[IcebergServer]:
    with IcebergServer(tmp_path) as server:
        yield server


@pytest.fixture
def nights(tmp_path: Path, server: IcebergServer) -> Nights:
    return Nights(tmp_path, rest=server.url)


def heads(nights: Nights) -> dict[str, int]:
    """What `main` of each table is."""
    return {table.name()[-1]: table.refs()["main"].snapshot_id for table in tables_of_job(nights.home, "orders")}


def view(nights: Nights) -> dict[str, Any]:
    found = nights.home.rest_catalog().view(nights.steps["first"].tables.identifier(CURRENT_ENTRY))
    assert found is not None
    return found


def test_night_by_night_the_tables_follow_the_state(nights: Nights) -> None:
    second = STATE.with_changes(blobs={**STATE.blobs, "key-3": ({"a": 0}, 6)}, checkpoint_id=2)
    third = second.with_changes(blobs={k: v for k, v in second.blobs.items() if k != "key-4"}, checkpoint_id=3)
    nights.run("first", STATE, ttl=TTL)
    assert nights.current(STATE, "first", ttl=TTL) == migrated(nights, "first", STATE)
    counts = nights.counts("second", second, ttl=TTL)
    assert (counts.keys_unchanged, counts.rows_written) == (29, 1)
    with folding_everything():
        nights.run("third", third, ttl=TTL)
    assert nights.current(third, "third", ttl=TTL) == migrated(nights, "third", third)
    other = third.with_changes(value=Scalar.INTEGER, checkpoint_id=4)
    nights.run("fourth", other, ttl=TTL)
    assert nights.current(other, "fourth", ttl=TTL) == migrated(nights, "fourth", other)


def migrated(nights: Nights, run: str, state: LegacyState) -> dict[Any, Any]:
    rules = nights.rules(Savepoint.open(str(nights.folder / f"savepoint-{run}")), ttl=TTL)
    return dict(state.migrated(rules))


@pytest.mark.full
def test_main_of_both_tables_moves_at_once_or_not_at_all(nights: Nights) -> None:
    nights.run("first", STATE, ttl=TTL)
    nights.run("second", STATE.with_changes(checkpoint_id=2), ttl=TTL, to_main=False)
    before, tables = heads(nights), nights.steps["second"].tables
    ledger = nights.home.catalog().load_table(tables.identifier("key_ledger"))

    def moving_while_somebody_commits() -> None:
        with nights.home.at_once() as catalog:
            for table in (catalog.load_table(tables.identifier(name)) for name in ("map_entry", "key_ledger")):
                with table.manage_snapshots() as snapshots:
                    snapshots.create_branch(table.refs()[branch_of("second")].snapshot_id, "main")
            with ledger.transaction() as transaction, transaction.update_snapshot().fast_append():
                pass

    with pytest.raises(TransientError, match=r"^another writer has changed the tables meanwhile"):
        moving_while_somebody_commits()
    after = heads(nights)
    assert after["map_entry"] == before["map_entry"]
    assert after["key_ledger"] == ledger.refresh().refs()["main"].snapshot_id


@pytest.mark.full
def test_a_lost_answer_is_no_lost_commit(nights: Nights, server: IcebergServer) -> None:
    nights.run("first", STATE, ttl=TTL)
    nights.run("second", STATE.with_changes(checkpoint_id=2), ttl=TTL, to_main=False)
    tables = nights.steps["second"].tables
    with Proxy(server.port) as proxy:
        home = TableHome(nights.home.catalog_uri, nights.home.warehouse, f"http://{LOOPBACK}:{proxy.port}")
        proxy.lost_requests, proxy.lost = b"POST /v1/transactions/commit", 1
        with pytest.raises(TransientError, match=rf"^the REST catalog {home.rest} can't be reached: "):
            advance_main(home, tables, "second")
        moved = heads(nights)
        assert advance_main(home, tables, "second")
        assert heads(nights) == moved
        proxy.is_away = True
        with pytest.raises(TransientError, match="can't be reached"):
            home.catalog()
    withdraw_run(nights.home, tables, "second")
    assert all(branch_of("second") not in table.refs() for table in tables_of_job(nights.home, "orders"))


@pytest.mark.full
def test_the_view_is_made_once_and_replaced_when_it_says_something_else(nights: Nights) -> None:
    nights.run("first", STATE, ttl=TTL)
    tables = nights.steps["first"].tables
    put_current_view(nights.home, tables, TTL)
    first = view(nights)
    put_current_view(nights.home, tables, TTL)
    assert view(nights) == first
    put_current_view(nights.home, tables, None)
    second = view(nights)
    said = {one["version-id"]: one["representations"][0]["sql"] for one in second["versions"]}
    assert "WHERE" not in said[second["current-version-id"]]
    assert second["view-uuid"] == first["view-uuid"]
    nights.run("second", STATE.with_changes(value=Scalar.INTEGER, checkpoint_id=2), ttl=TTL)
    put_current_view(nights.home, tables, None)
    third = view(nights)
    put_current_view(nights.home, tables, None)
    assert view(nights) == third != second
    put_current_view(nights.home, tables, TTL)
    put_current_view(nights.home, tables, None)
    assert view(nights)["current-version-id"] == 5
    assert sorted(table.name()[-1] for table in tables_of_job(nights.home, "orders")) == ["key_ledger", "map_entry"]


def test_a_run_keeps_tables_there_and_the_publication_in_sql(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_spark(monkeypatch)
    folder = nights.folder
    monkeypatch.setenv("STATEFERRY_HOME", str(folder / "home"))
    for number in (1, 2, 3):
        STATE.with_changes(checkpoint_id=number).write(str(folder / f"old-{number}"))
        command = ["run", "--savepoint", str(folder / f"old-{number}"), "--target", str(folder / f"new-{number}")]
        command += ["--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG]
        assert main([*command, "--ttl", "36500d", "--job", "orders", "--rest-catalog", str(nights.rest)]) == 0
    database = engine_for(f"sqlite:///{folder}/home/catalog.db")
    assert {"stateferry_publication", "stateferry_lease"} <= _tables_in(database)
    assert "iceberg_tables" not in _tables_in(database)
    home = TableHome("sqlite://", str(folder / "home/warehouse"), nights.rest)
    tables = list(tables_of_job(home, "orders"))
    assert {table.location().partition("/home/")[2] for table in tables} == {
        f"warehouse/rest.catalog/orders/main/{NEW}/{name}" for name in ("map_entry", "key_ledger")
    }
    capsys.readouterr()
    assert main(["clean", "--keep", "1", "--older-than", "0s"]) == 0
    said = capsys.readouterr().out
    assert "removed branch orders.main.newMainState.map_entry run-" in said
    assert "metadata.json" not in said
    assert {table.name()[-1]: len(table.scan().to_arrow()) for table in tables_of_job(home, "orders")}[
        "map_entry"
    ] == 60


def _tables_in(database: Any) -> set[str]:
    return set(inspect(database).get_table_names())


class _Altered(Handler, BaseHTTPRequestHandler):
    """Passes requests on to the server; in front of it, a gateway that hides endpoints or lets nobody in."""

    target, hides, code = "", "", 0

    def do_GET(self) -> None:
        if self.code:
            self.send_error(self.code, "nobody may")
            return
        with urllib.request.urlopen(self.target + self.path, timeout=60) as answer:
            said = json.load(answer)
        said["endpoints"] = [one for one in said["endpoints"] if self.hides not in one]
        self.answer_json(said)


@pytest.fixture
def gateway(server: IcebergServer) -> Iterator[type[_Altered]]:
    handler = type("Gateway", (_Altered,), {"target": server.url})
    with serving(ThreadingHTTPServer((LOOPBACK, 0), handler)) as port:
        handler.url = f"http://{LOOPBACK}:{port}"  # type: ignore[attr-defined]
        yield handler


@pytest.mark.full
@pytest.mark.parametrize("missing", ["transactions/commit", "views"])
def test_a_server_without_what_the_tables_need_is_refused_before_anything_is_written(
    gateway: Any, missing: str, nights: Nights, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_spark(monkeypatch)
    gateway.hides = missing
    with pytest.raises(RefusedError, match=rf"^the REST catalog {gateway.url} can't hold the tables: .*{missing}"):
        TableHome("sqlite://", str(nights.folder), gateway.url).catalog()
    folder = nights.folder
    monkeypatch.setenv("STATEFERRY_HOME", str(folder / "home"))
    monkeypatch.setenv("STATEFERRY_REST_CATALOG", gateway.url)
    STATE.write(str(folder / "old"))
    command = ["run", "--savepoint", str(folder / "old"), "--target", str(folder / "new"), "--operator", "main"]
    command += ["--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG, "--ttl", "36500d"]
    assert main(command) != 0
    assert f"the REST catalog {gateway.url} can't hold the tables" in capsys.readouterr().err
    assert not (folder / "new").exists()
    assert not (folder / "home/warehouse").exists()


@pytest.mark.parametrize(("code", "kind"), [(401, StateferryError), (403, StateferryError), (503, TransientError)])
def test_a_server_s_no_is_told_apart_from_trouble(
    gateway: Any, code: int, kind: type[Exception], tmp_path: Path
) -> None:
    gateway.code = code
    with pytest.raises(StateferryError, match=rf"^the REST catalog {gateway.url} .*nobody may") as found:
        TableHome("sqlite://", str(tmp_path), gateway.url).catalog()
    assert type(found.value) is kind


_SECRET = {"grant_type": ["client_credentials"], "client_id": ["client"], "client_secret": ["secret"]}


class _WithLogin(Handler, BaseHTTPRequestHandler):
    """In front of the server: it hands out a token for the secret, and passes nothing on without that."""

    target, logins, warehouses = "", 0, set[str]()

    def _asked(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        this = type(self)
        if self.path == "/login/token":
            if _SECRET.items() <= parse_qs(sent.decode()).items():
                this.logins += 1
                self.answer_json({"access_token": f"token-{this.logins}", "token_type": "bearer", "expires_in": 60})
            else:
                self.answer_json({"error": "invalid_client", "error_description": "nobody knows it"}, 401)
        elif self.headers.get("Authorization") != f"Bearer token-{this.logins}":
            said = {"message": "who are you?", "type": "NotAuthorizedException", "code": 401}
            self.answer_json({"error": said}, 401)
        else:
            this.warehouses |= {*parse_qs(urlsplit(self.path).query).get("warehouse", ())}
            self._pass_on(sent or None)

    def _pass_on(self, sent: bytes | None) -> None:
        kind = {"Content-Type": self.headers.get("Content-Type", "application/json")}
        request = urllib.request.Request(self.target + self.path, sent, kind, method=self.command)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                self.answer(answer.read(), answer.status)
        except urllib.error.HTTPError as error:
            self.answer(error.read(), error.code)

    do_GET = do_HEAD = do_POST = do_DELETE = _asked  # noqa: N815


@pytest.fixture
def with_login(server: IcebergServer) -> Iterator[Any]:
    handler: Any = type("WithLogin", (_WithLogin,), {"target": server.url, "warehouses": set()})
    with serving(ThreadingHTTPServer((LOOPBACK, 0), handler)) as port:
        handler.url = f"http://{LOOPBACK}:{port}"
        yield handler


def log_in(monkeypatch: pytest.MonkeyPatch, url: str, credential: str = "client:secret") -> None:
    """As the page says."""
    page = (Path(__file__).parents[2] / "docs/query-your-state.md").read_text()
    said: dict[str, str] = dict(re.findall(r"^export (PYICEBERG_CATALOG__STATEFERRY__\w+)=(\S+)$", page, re.MULTILINE))
    there = {"https://login.example.com/token": f"{url}/login/token", "client:secret": credential}
    assert there.keys() <= set(said.values())
    for name, value in said.items():
        monkeypatch.setenv(name, there.get(value, value))


def test_a_server_that_wants_a_login_gets_the_one_of_pyicebergs_configuration(
    with_login: Any, server: IcebergServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StateferryError, match=rf"^the REST catalog {with_login.url} .*who are you\?"):
        TableHome("sqlite://", str(tmp_path), with_login.url).catalog()
    log_in(monkeypatch, with_login.url)
    nights = Nights(tmp_path, rest=with_login.url)
    nights.run("first", STATE, ttl=TTL)
    assert nights.current(STATE, "first", ttl=TTL) == migrated(nights, "first", STATE)
    put_current_view(nights.home, nights.steps["first"].tables, TTL)
    assert view(nights)["current-version-id"] == 1
    assert with_login.warehouses == {"states"}
    # They are in the server behind it.
    assert heads(Nights(tmp_path, rest=server.url)) == heads(nights)


def test_a_token_that_has_expired_is_replaced(with_login: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(monkeypatch, with_login.url)
    nights = Nights(tmp_path, rest=with_login.url)
    nights.run("first", STATE, ttl=TTL)
    catalog, tables = nights.home.rest_catalog(), nights.steps["first"].tables
    for ask in (lambda: catalog.view(tables.identifier(CURRENT_ENTRY)), lambda: catalog.list_tables(("orders",))):
        # Each login makes the token before it worthless.
        with_login.logins += 1
        before = with_login.logins
        ask()
        assert with_login.logins == before + 1


def test_a_secret_that_the_server_does_not_know_is_told_and_not_shown(
    with_login: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch, with_login.url, "client:another")
    with pytest.raises(StateferryError, match=rf"^the REST catalog {with_login.url} can't be used: .*nobody") as found:
        TableHome("sqlite://", str(tmp_path), with_login.url).catalog()
    assert "another" not in str(found.value)


def test_something_else_is_no_rest_catalog(tmp_path: Path, server: IcebergServer) -> None:
    with pytest.raises(StateferryError, match=r"^the REST catalog .* says no to GET /elsewhere/v1/config: 400 "):
        TableHome("sqlite://", str(tmp_path), f"{server.url}/elsewhere").catalog()
