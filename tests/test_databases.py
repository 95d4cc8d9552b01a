"""A catalog that is away, locked or no database at all: one line, its own exit code, and nothing made by looking."""

from __future__ import annotations

import errno
import json
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import ProgrammingError

from flinkstate.errors import StateferryError, TransientError
from stateferry.basics import databases
from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED, MAY_PASS, REJECTED
from stateferry.basics.formats import FORMAT
from stateferry.cli import main
from stateferry.runs.catalog import control_tables
from stateferry.runs.catalog.control_tables import format_version
from stateferry.runs.catalog.lease import Lease, Leases
from stateferry.runs.catalog.processes import Process
from stateferry.runs.catalog.publications import Control
from stateferry.runs.record.run_list import runs_of
from stateferry.tables.iceberg.commits import TableHome
from tests.support.in_process import do_step, without_spark
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState
from tests.support.servers import free_port


@pytest.fixture
def nobody_listens() -> str:
    """The address of a Postgres that has ended."""
    return f"postgresql+psycopg://me:secret@127.0.0.1:{free_port()}/catalog"


def test_a_postgres_that_is_away_may_come_back(nobody_listens: str, tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=r"^the catalog postgresql.* can't be reached: .*refused") as caught:
        Control(nobody_listens)
    assert "secret" not in str(caught.value)
    with pytest.raises(TransientError, match="can't be reached"):
        TableHome(nobody_listens, str(tmp_path)).catalog()


def test_an_address_may_say_itself_how_long_to_wait() -> None:
    given = databases.noticing_silence(make_url("postgresql://me:secret@db/catalog?connect_timeout=5"))
    assert (given.query["connect_timeout"], given.query["tcp_user_timeout"]) == ("5", "60000")
    assert databases.shown(given) == "postgresql://me:***@db/catalog?connect_timeout=5"
    other = make_url("postgresql+pg8000://db/catalog")
    assert databases.noticing_silence(other) is other


def test_a_locked_catalog_may_be_free_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    Control(uri)
    catalog = TableHome(uri, str(tmp_path)).sql_catalog()
    monkeypatch.setattr(control_tables, "_WAIT_SECONDS", 0.1)
    with sqlite3.connect(tmp_path / "catalog.db", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TransientError, match=rf"^the catalog {uri} can't be reached: database is locked$"):
            Control(uri)
        with catalog.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA busy_timeout = 100")
            with pytest.raises(TransientError, match="database is locked"):
                connection.exec_driver_sql("CREATE TABLE other (id INTEGER)")
    with Control(uri) as control:
        assert control.acquire("job", "run").token == 1


@pytest.mark.parametrize("command", [["status"], ["rollback", "--job", "a"], ["clean", "--job", "a"]])
def test_commands_say_it_in_one_line(
    nobody_listens: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--home", str(tmp_path / "home"), "--catalog", nobody_listens]) == MAY_PASS
    said = capsys.readouterr().err
    assert said.startswith("stateferry: the catalog postgresql")
    assert said.endswith("Give the same command again: it continues where it stopped\n")
    assert said.count("\n") == 1
    assert "secret" not in said


def test_what_is_no_database_stays_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "catalog.db").write_bytes(b"something else entirely" * 100)
    assert main(["status", "--home", str(tmp_path)]) == DAMAGED_OR_REFUSED
    assert "can't be used: file is not a database" in capsys.readouterr().err
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StateferryError, match=rf"^{tmp_path}/file/home.* can't be made") as caught:
        Control(f"sqlite:///{tmp_path}/file/home/catalog.db")
    assert not isinstance(caught.value, TransientError)


def test_a_catalog_of_somebody_else_is_not_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(file: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(file))

    monkeypatch.setattr(Path, "touch", denied)
    catalog = tmp_path / "catalog.db"
    for what in ("made", "written"):
        with pytest.raises(StateferryError, match=rf"^{catalog} can't be {what}: Permission denied$"):
            Control(f"sqlite:///{catalog}")
        catalog.write_bytes(b"")


def test_who_only_looks_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    for command in (["status"], ["runs"], ["clean"], ["clean", "--dry-run"], ["status", "--job", "a"]):
        assert main([*command, "--home", str(home)]) == 0
        said = capsys.readouterr()
        assert said.err == ""
        assert str(home) in said.out
    assert main(["rollback", "--job", "a", "--home", str(home)]) == REJECTED
    assert main(["status", "--json", "--home", str(home)]) == 0
    assert json.loads(capsys.readouterr().out) == {}
    assert not home.exists()
    home.mkdir()
    # One with other tables, as the catalog's own are, has nothing to say either.
    sqlite3.connect(home / "catalog.db").execute("CREATE TABLE iceberg_tables (name TEXT)")
    before = (home / "catalog.db").read_bytes()
    assert main(["status", "--home", str(home)]) == 0
    assert "no job is known" in capsys.readouterr().out
    assert (home / "catalog.db").read_bytes() == before


def test_who_looks_sees_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Control(f"sqlite:///{tmp_path}/catalog.db") as control:
        control.acquire("orders", "first")
    assert main(["status", "--home", str(tmp_path)]) == 0
    assert "at work: run first" in capsys.readouterr().out


def test_a_role_that_may_not_read_the_catalog_is_told_so_in_one_line() -> None:
    """As psycopg gives it: a wrong statement, not an error of the database."""
    uri = "postgresql+psycopg://me:secret@host/catalog"
    denied = ProgrammingError("SELECT 1", None, Exception("permission denied for table stateferry_lease"))
    with pytest.raises(StateferryError) as caught, databases.asking(uri):
        raise denied
    assert not isinstance(caught.value, TransientError)
    assert str(caught.value).endswith("can't be used: permission denied for table stateferry_lease")
    assert "secret" not in str(caught.value)
    other = ProgrammingError("SELECT 1", None, Exception('relation "iceberg_tables" does not exist'))
    with pytest.raises(ProgrammingError), databases.asking(uri):
        raise other


def test_a_catalog_of_a_newer_version_is_found_before_a_run_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LegacyState(blobs={"cold": ({"a": 1}, 0)}).write(str(tmp_path / "source"))
    Control(f"sqlite:///{tmp_path}/catalog.db")
    with sqlite3.connect(tmp_path / "catalog.db") as catalog:
        catalog.execute(f"CREATE TABLE IF NOT EXISTS {format_version.name} (format BIGINT PRIMARY KEY)")
        catalog.execute(f"INSERT INTO {format_version.name} VALUES ({FORMAT + 1})")
    values = {
        "job": "orders",
        "run_id": "one",
        "now": 0,
        "source": str(tmp_path / "source"),
        "target": str(tmp_path / "target"),
        "home": str(tmp_path / "home"),
        "catalog_uri": f"sqlite:///{tmp_path}/catalog.db",
        "operators": [{"operator": "main", "states": [{"legacy": LEGACY, "new": NEW, "flag": FLAG}]}],
    }
    (tmp_path / "plan.json").write_text(json.dumps(values))
    before = {file.name for file in tmp_path.iterdir()}
    assert do_step("snapshot", "--plan", str(tmp_path / "plan.json")) == DAMAGED_OR_REFUSED
    assert "which a newer version of Stateferry has written" in capsys.readouterr().err
    assert {file.name for file in tmp_path.iterdir()} == before


def test_a_run_whose_lease_was_given_without_an_answer_gets_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection was lost between the commit and its answer; then the same command is given again."""
    without_spark(monkeypatch)
    LegacyState(blobs={"key": ({"a": 1}, 0)}).write(str(tmp_path / "source"))
    monkeypatch.setenv("STATEFERRY_HOME", home := str(tmp_path / "home"))
    command = ["run", "--savepoint", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    command += ["--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG]

    def acquired(control: Control, *arguments: str) -> Lease:
        Leases.acquire(control, *arguments)
        raise TransientError("the catalog can't be reached")

    with monkeypatch.context() as patch:
        patch.setattr(Control, "acquire", acquired)
        # As if the process had ended: else its lease would be its own.
        patch.setattr(Process, "this", classmethod(lambda cls: Process(1, "another machine", 1)))
        assert main(command) == MAY_PASS
    assert main(command) == 0
    assert len(runs_of(home)) == 1
