"""However a job has declared its map, a run makes the same of it: the result from `Types.MAP` is the measure."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from flinkstate.reading.reader import Savepoint
from stateferry.demo import IS_MIGRATED_STATE, MAIN_STATE, NEW_MAIN_STATE, DemoState, write_demo_savepoint
from stateferry.demo_maps import Declared
from tests.rocksdb.goldens import Contents, contents
from tests.steps.test_native_source import run

NOW = 1_700_000_000_000
DAY = 24 * 60 * 60 * 1000
TTL = 30 * DAY

OPTIONS: dict[str, dict[str, Any]] = {
    "canonical": {},
    "parallelism 2": {"parallelism": 2},
    "max parallelism 300": {"max_parallelism": 300},
    "native": {"output_format": "native"},
    "native, max parallelism 64": {"output_format": "native", "max_parallelism": 64},
    "keeping what has expired": {"keep_expired": True},
    "keeping the maps": {"keep_legacy": True},
    "lazy": {"lazy": True, "share": "40%"},
    "lazy, the largest first": {"lazy": True, "share": "40%", "largest_first": True},
    "lazy, max parallelism 300": {"lazy": True, "share": "40%", "max_parallelism": 300},
}


def demo(folder: Path, declared: Declared, ttl: int | None) -> Path:
    source = folder / f"{declared.name}-{ttl}"
    state = DemoState(300, 7, 0.3, ttl, NOW, 3, 128, 1, declared=declared)
    write_demo_savepoint(str(source), state)
    return source


def result(folder: Path, declared: Declared, ttl: int | None, options: str) -> Contents:
    """The entries of the new savepoint but the maps that it still has."""
    state = {"legacy": MAIN_STATE, "new": NEW_MAIN_STATE, "flag": IS_MIGRATED_STATE, "ttl_ms": ttl}
    place = folder / f"run-{declared.name}"
    source = demo(folder, declared, ttl)
    wanted = {"now": NOW, "operators": [{"operator": "main", "states": [state]}], **OPTIONS[options]}
    report, _ = run(source, place, **wanted)
    assert report.is_green, report
    found = contents(Savepoint.open(str(place / "target")))
    return Counter({entry: count for entry, count in found.items() if entry[0] != MAIN_STATE})


@cache
def measure(folder: Path, ttl: int | None, options: str) -> Contents:
    return result(folder, Declared.MAP, ttl, options)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("options", "ttl"),
    [(name, ttl) for name in OPTIONS for ttl in (None, TTL) if ttl or "keep_expired" not in OPTIONS[name]],
)
@pytest.mark.parametrize("declared", [Declared.NULLABLE, Declared.KRYO_2, Declared.KRYO_5])
def test_a_run_makes_the_same_of_it(declared: Declared, options: str, ttl: int | None, tmp_path: Path) -> None:
    assert result(tmp_path, declared, ttl, options) == measure(tmp_path, ttl, options)
