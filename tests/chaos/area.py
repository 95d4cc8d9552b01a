"""A run of the demo's migration: where it keeps everything, what it leaves, and what must be true of that.

How many runs there are, and by which seed their trouble is drawn: `STATEFERRY_CHAOS_RUNS` and `STATEFERRY_CHAOS_SEED`.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA
from stateferry.basics.exit_codes import MAY_PASS
from stateferry.runs.catalog.publications import Control
from stateferry.tables.iceberg.commits import TableHome
from stateferry.tables.iceberg.schemas import KEY_LEDGER, MAP_ENTRY, StateTables

RUNS = int(os.environ.get("STATEFERRY_CHAOS_RUNS", "1"))
SEED = int(os.environ.get("STATEFERRY_CHAOS_SEED", "1"))
NOW = 1_700_000_000_000
REPOSITORY = Path(__file__).parents[2]
# Longer than the drivers' own patience with a server that doesn't answer.
PATIENCE = 180
TRIES_IN_TROUBLE = 3
_LAYOUT = ["--migrated", "0.4", "--parallelism", "2", "--max-parallelism", "4"]


def runs(share: float) -> range:
    """The numbers of the runs that have one kind of trouble: a share of all, and at least one."""
    return range(max(round(share * RUNS), 1))


def new_name() -> str:
    """As long as any other, so that files that have the name in them are as long too."""
    return uuid.uuid4().hex


def demo_savepoint(name: str, keys: int = 8, entries: int = 2) -> str:
    command = [
        sys.executable,
        "-m",
        "stateferry.cli",
        "demo-savepoint",
        name,
        *("--keys", str(keys), "--entries", str(entries)),
        *_LAYOUT,
        "--ttl",
        "30d",
        "--now",
        str(NOW),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return name


def content_of(folder: str) -> dict[str, bytes]:
    return {file.name: file.read() for file in Location.of(folder).entries()}


@dataclass(frozen=True)
class Area:
    """A folder for home and target, whose name is a new one; a source, and a catalog."""

    folder: str
    source: str
    catalog: str

    @property
    def target(self) -> str:
        return f"{self.folder}/target"

    @property
    def command(self) -> list[str]:
        states = ["--legacy-state", "mainState", "--new-state", "newMainState", "--flag-state", "isMigratedState"]
        places = ["--savepoint", self.source, "--target", self.target, "--operator", "main", *states]
        return ["run", *places, "--job", "clicks", "--ttl", "30d", "--now", str(NOW), "--parallelism", "3"]

    def run(self, **environment: str) -> Ended:
        """Gives the command in a process of its own, which must end in time."""
        done = subprocess.run(
            self.given(),
            capture_output=True,
            text=True,
            env=self.environment | environment,
            cwd=REPOSITORY,
            timeout=PATIENCE,
            check=False,
        )
        return Ended(done.returncode, done.stderr)

    def given(self, module: str = "tests.chaos.command") -> list[str]:
        return [sys.executable, "-m", module, *self.command]

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"STATEFERRY_HOME": f"{self.folder}/home", "STATEFERRY_CATALOG": self.catalog}

    def savepoint(self) -> dict[str, bytes]:
        own = self.folder.rpartition("/")[2].encode()
        return {name: data.replace(own, b"(area)") for name, data in content_of(self.target).items()}

    def rows(self) -> dict[str, list[str]]:
        catalog = TableHome(self.catalog, f"{self.folder}/home/warehouse").catalog()
        tables = StateTables("clicks", "main", "newMainState")
        found = {}
        for name in (MAP_ENTRY, KEY_LEDGER):
            try:
                rows = catalog.load_table(tables.identifier(name)).scan().to_arrow().to_pylist()
            except (NoSuchTableError, NoSuchNamespaceError):
                rows = []
            found[name] = sorted(map(repr, rows))
        catalog.close()
        return found

    def published(self) -> tuple[int, str] | None:
        """The number of the job's publication, and the digest of what it published."""
        with Control(self.catalog) as control:
            standing = control.standing("clicks")
        return None if standing is None else (standing.sequence, standing.record.metadata_digest)

    def result(self) -> dict[str, Any]:
        standing = self.published()
        return {"savepoint": self.savepoint(), "rows": self.rows(), "publication": standing and standing[0]}

    def check_nothing_half(self, result: dict[str, Any]) -> None:
        """A savepoint is there only if it is published, and then it is whole; rows are those of before or of after."""
        found, published = content_of(self.target), self.published()
        if METADATA in found:
            assert published is not None
            assert hashlib.sha256(found[METADATA]).hexdigest() == published[1]
            assert self.savepoint().items() >= result["savepoint"].items()
        for name, rows in self.rows().items():
            assert rows in ([], result["rows"][name])


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    said: str

    def check_clear(self, *codes: int) -> None:
        """It was killed, or it says in one line what was wrong, by default that it may pass."""
        if self.code == -signal.SIGKILL:
            return
        assert "Traceback" not in self.said, self.said
        assert self.said.strip().splitlines()[-1].startswith("stateferry: "), self.said
        assert self.code in (MAY_PASS, *codes), f"{self.code}: {self.said}"
