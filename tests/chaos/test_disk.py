"""Runs whose disk runs full at a size drawn by a seed, and gets larger before the command is given again.

How many, and by which seed: as `area.py` says.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.area import SEED, Area, content_of, demo_savepoint, new_name, runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_ENOUGH = 1 << 28


@dataclass(frozen=True)
class Disk:
    """A disk of so many bytes, in memory."""

    folder: Path

    def resize(self, size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", self.folder], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_ENOUGH}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a disk that runs full is not tested: only root may mount one")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@dataclass(frozen=True)
class Undisturbed:
    """What a run leaves if nothing goes wrong, and the room that it takes."""

    source: str
    content: dict[str, bytes]
    result: dict[str, Any]
    size: int


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    source = demo_savepoint(str(folder / "source"))
    own = folder / new_name()
    own.mkdir()
    area = Area(str(own), source, f"sqlite:///{own}/catalog.db")
    done = area.run()
    assert done.code == 0, done.said
    size = sum(file.stat().st_blocks * 512 for file in own.rglob("*"))
    return Undisturbed(source, content_of(source), area.result(), size)


@pytest.mark.full
@pytest.mark.parametrize("number", runs(0.25))
def test_a_run_on_a_disk_that_runs_full_goes_on_when_there_is_room(
    number: int, disk: Disk, undisturbed: Undisturbed
) -> None:
    drawn = random.Random(f"{SEED}-{number}")
    own = disk.folder / new_name()
    own.mkdir()
    area = Area(str(own), undisturbed.source, f"sqlite:///{own}/catalog.db")
    disk.resize(int(undisturbed.size * drawn.uniform(0.02, 1.0)))
    done = area.run()
    disk.resize(_ENOUGH)
    if done.code != 0:
        done.check_clear()
        area.check_nothing_half(undisturbed.result)
        done = area.run()
    assert done.code == 0, done.said
    assert area.result() == undisturbed.result
    assert content_of(undisturbed.source) == undisturbed.content
