"""Runs on a store in trouble: each ends as an undisturbed one, or fails clearly and does so when it is given again.

How many, and by which seed: `STATEFERRY_CHAOS_RUNS` and `STATEFERRY_CHAOS_SEED`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from stateferry.exit_codes import DAMAGED_OR_REFUSED, MAY_PASS, REJECTED
from stateferry.runs.publications import Control
from stateferry.savepoint.file_names import METADATA
from stateferry.savepoint.storage import Location
from stateferry.tables.commits import TableHome
from stateferry.tables.schemas import KEY_LEDGER, MAP_ENTRY, StateTables
from tests.chaos.trouble import Trouble
from tests.chaos.troubled_store import TroubledStore
from tests.support.s3_server import S3Server

RUNS = int(os.environ.get("STATEFERRY_CHAOS_RUNS", "20"))
SEED = int(os.environ.get("STATEFERRY_CHAOS_SEED", "1"))
NOW = 1_700_000_000_000
REPOSITORY = Path(__file__).parents[2]
# Longer than the driver's own patience with a store that doesn't answer.
PATIENCE = 180
_TRIES_IN_TROUBLE = 3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Area:
    """Where a run keeps everything: a part of the store, and the catalog on disk. All areas' names are as long."""

    name: str
    source: str
    folder: Path

    @classmethod
    def new(cls, s3: S3Server, source: str, folder: Path) -> Area:
        name = uuid.uuid4().hex
        (folder / name).mkdir()
        return cls(s3.uri(name), source, folder / name)

    @property
    def catalog(self) -> str:
        return f"sqlite:///{self.folder}/catalog.db"

    @property
    def target(self) -> Location:
        return Location.of(f"{self.name}/target")

    @property
    def command(self) -> list[str]:
        states = ["--legacy-state", "mainState", "--new-state", "newMainState", "--flag-state", "isMigratedState"]
        places = ["--savepoint", self.source, "--target", self.target.shown, "--operator", "main", *states]
        return ["run", *places, "--job", "clicks", "--ttl", "30d", "--now", str(NOW), "--parallelism", "3"]

    @property
    def environment(self) -> dict[str, str]:
        return {"STATEFERRY_HOME": f"{self.name}/home", "STATEFERRY_CATALOG": self.catalog}

    def savepoint(self) -> dict[str, bytes]:
        own = self.name.rpartition("/")[2].encode()
        return {file.name: file.read().replace(own, b"(area)") for file in self.target.entries()}

    def rows(self) -> dict[str, list[str]]:
        catalog = TableHome(self.catalog, f"{self.name}/home/warehouse").catalog()
        tables = StateTables("clicks", "main", "newMainState")
        found = {}
        for name in (MAP_ENTRY, KEY_LEDGER):
            try:
                rows = catalog.load_table(tables.identifier(name)).scan().to_arrow().to_pylist()
            except (NoSuchTableError, NoSuchNamespaceError):
                rows = []
            found[name] = sorted(map(repr, rows))
        return found

    def published(self) -> tuple[int, str] | None:
        """The number of the job's publication, and the digest of what it published."""
        with Control(self.catalog) as control:
            standing = control.standing("clicks")
        return None if standing is None else (standing.sequence, standing.record.metadata_digest)

    def result(self) -> dict[str, Any]:
        standing = self.published()
        return {"savepoint": self.savepoint(), "rows": self.rows(), "publication": standing and standing[0]}


def run(area: Area, store: TroubledStore) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which must end in time."""
    environment = {**os.environ, **area.environment, "AWS_ENDPOINT_URL": store.url}
    command = [sys.executable, "-m", "tests.chaos.command", *area.command]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=REPOSITORY, timeout=PATIENCE, check=False
    )


@dataclass(frozen=True)
class Undisturbed:
    """A source, and what a run makes of it if nothing goes wrong."""

    source: str
    content: dict[str, bytes]
    requests: int
    result: dict[str, Any]


def content_of(folder: str) -> dict[str, bytes]:
    return {file.name: file.read() for file in Location.of(folder).entries()}


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        server.set_up(patch)
        yield server


@pytest.fixture(scope="module")
def undisturbed(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    source = s3_server.uri("source")
    sizes = ["--keys", "8", "--entries", "2", "--migrated", "0.4", "--parallelism", "2", "--max-parallelism", "4"]
    command = [sys.executable, "-m", "stateferry.cli", "demo-savepoint", source, *sizes]
    subprocess.run([*command, "--ttl", "30d", "--now", str(NOW)], check=True, capture_output=True)
    area = Area.new(s3_server, source, tmp_path_factory.mktemp("undisturbed"))
    with TroubledStore(s3_server.port) as store:
        done = run(area, store)
        assert done.returncode == 0, done.stderr
        return Undisturbed(source, content_of(source), store.requests, area.result())


def check_failed_clearly(done: subprocess.CompletedProcess[str], trouble: Trouble) -> None:
    """One line that says what, and that the command may be given again."""
    last = done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr, f"{trouble}\n{done.stderr}"
    assert last.startswith("stateferry: "), f"{trouble}\n{done.stderr}"
    allowed = (MAY_PASS, DAMAGED_OR_REFUSED, REJECTED) if trouble.lies else (MAY_PASS,)
    assert done.returncode in allowed, f"{trouble}\n{done.returncode}: {done.stderr}"


def check_nothing_half(area: Area, calm: Undisturbed, trouble: Trouble) -> None:
    """A savepoint is there only if it is published, and then it is whole; rows are those of before or of after."""
    found = {file.name: file.read() for file in area.target.entries()}
    published = area.published()
    if METADATA in found:
        assert published is not None, trouble
        assert hashlib.sha256(found[METADATA]).hexdigest() == published[1], trouble
        assert area.savepoint().items() >= calm.result["savepoint"].items(), trouble
    for name, rows in area.rows().items():
        assert rows in ([], calm.result["rows"][name]), trouble


@pytest.mark.parametrize("number", range(RUNS))
def test_a_run_ends_as_if_undisturbed(
    number: int, s3_server: S3Server, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    area = Area.new(s3_server, undisturbed.source, tmp_path)
    trouble = Trouble(f"{SEED}-{number}", undisturbed.requests)
    with TroubledStore(s3_server.port, trouble) as store:
        for _ in range(_TRIES_IN_TROUBLE):
            done = run(area, store)
            if done.returncode == 0:
                break
            check_failed_clearly(done, trouble)
            check_nothing_half(area, undisturbed, trouble)
        else:
            trouble.lift()
            done = run(area, store)
        assert done.returncode == 0, f"{trouble}\n{done.stderr}\n" + "\n".join(store.done[-20:])
    assert area.result() == undisturbed.result, trouble
    assert content_of(undisturbed.source) == undisturbed.content, trouble
