"""Runs whose catalog's Postgres goes away and comes back at moments drawn by a seed.

How many, and by which seed: as `area.py` says.
"""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stateferry.runs.catalog.control_tables import engine_for
from stateferry.tables.iceberg.commits import TableHome
from tests.chaos.area import SEED, TRIES_IN_TROUBLE, Area, content_of, demo_savepoint, new_name, runs
from tests.flink.proxy import Proxy
from tests.standalone.topology.processes import postgres, postgres_programs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
# The longest that an undisturbed run takes on a busy machine.
_LONGEST = 12.0


@dataclass(frozen=True)
class Database:
    """A Postgres server, to whose address the name of a database is added."""

    address: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def new(self) -> str:
        """Makes a database, and returns its name."""
        name = f"c{new_name()}"
        with psycopg.connect(f"postgresql://{self.address}/catalog", autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return name

    def catalog(self, name: str, port: int | None = None) -> str:
        address = self.address.replace(f":{self.port}", f":{port or self.port}")
        return f"postgresql+psycopg://{address}/{name}"


@dataclass(frozen=True)
class Undisturbed:
    source: str
    content: dict[str, bytes]
    result: dict[str, Any]


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    programs = postgres_programs()
    if programs is None:
        pytest.skip("a Postgres that goes away is not tested: Postgres is not installed")
    with postgres(programs) as address:
        yield Database(address)


@pytest.fixture(scope="module")
def undisturbed(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    source = demo_savepoint(str(folder / "source"))
    area = Area(str(folder / new_name()), source, database.catalog(database.new()))
    done = area.run()
    assert done.code == 0, done.said
    return Undisturbed(source, content_of(source), area.result())


@contextmanager
def going_away(proxy: Proxy, drawn: random.Random) -> Iterator[None]:
    """Cuts the connection at some moments, and lets it come back after a while, until the context ends."""
    ended = threading.Event()

    def cut() -> None:
        while not ended.wait(drawn.uniform(0, _LONGEST / 2)):
            proxy.is_away = True
            ended.wait(drawn.choice((0.01, 0.5, 5.0)))
            proxy.is_away = False

    cutting = threading.Thread(target=cut, daemon=True)
    cutting.start()
    try:
        yield
    finally:
        ended.set()
        cutting.join()
        proxy.is_away = False


def test_a_connection_on_which_nothing_arrives_is_given_up_after_a_minute(database: Database) -> None:
    """Instead of after hours, as the system would."""
    engines = (
        engine_for(database.catalog(name := database.new())),
        TableHome(database.catalog(name), "w").sql_catalog().engine,
    )
    for engine in engines:
        with engine.connect() as connection:
            number = connection.connection.driver_connection.fileno()  # type: ignore[union-attr]
            with socket.socket(fileno=os.dup(number)) as end:
                assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
                assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                times = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                assert [end.getsockopt(socket.IPPROTO_TCP, time) for time in times] == [30, 10, 3]
        engine.dispose()


@pytest.mark.full
@pytest.mark.parametrize("number", runs(0.25))
def test_a_run_ends_as_if_the_database_had_stayed(
    number: int, database: Database, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    name, drawn = database.new(), random.Random(f"{SEED}-{number}")
    with Proxy(database.port) as proxy:
        folder = str(tmp_path / new_name())
        troubled = Area(folder, undisturbed.source, database.catalog(name, proxy.port))
        area = Area(folder, undisturbed.source, database.catalog(name))
        with going_away(proxy, drawn):
            for _ in range(TRIES_IN_TROUBLE):
                done = troubled.run()
                if done.code == 0:
                    break
                done.check_clear()
                area.check_nothing_half(undisturbed.result)
        if done.code != 0:
            done = troubled.run()
        assert done.code == 0, done.said
    assert area.result() == undisturbed.result
    assert content_of(undisturbed.source) == undisturbed.content
