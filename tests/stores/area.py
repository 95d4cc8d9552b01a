"""A part of the store for each test, and what most tests migrate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from flinkstate.files.storage import Location
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

STATES = ("--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG)
BEGUN = LegacyState(
    blobs={f"cold {n}": ({f"entry {m}": m for m in range(n % 5)}, 0) for n in range(300)},
    rows={"hot": {"a": (5, 0), "c": (7, 0)}},
    flags={"hot": 0},
)
# A test of what HDFS doesn't have.
on_s3 = pytest.mark.parametrize("folder", ["s3"], indirect=True)


@dataclass(frozen=True)
class Area:
    """A part of the store, and a folder on disk, of one test's own."""

    name: str
    folder: Path

    @property
    def catalog(self) -> str:
        return f"sqlite:///{self.folder / 'catalog.db'}"

    def at(self, name: str) -> str:
        return f"{self.name}/{name}"

    def source(self, state: LegacyState = BEGUN, name: str = "source") -> str:
        state.write(self.at(name))
        return self.at(name)

    def send(self, folder: Path, name: str) -> None:
        """Brings all files of a folder on disk into the store, those that aren't there yet."""
        for path in sorted(folder.rglob("*")):
            place = Location.of("/".join((self.at(name), *path.relative_to(folder).parts)))
            if path.is_file() and not place.is_file():
                place.write_atomically(path.read_bytes())

    def run(self, *more: str, target: str = "target") -> tuple[str, ...]:
        return "run", "--savepoint", self.at("source"), "--target", self.at(target), *STATES, *more
