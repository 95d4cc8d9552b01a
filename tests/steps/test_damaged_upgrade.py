"""Savepoints with changed bytes that are to be upgraded: refused with the place, or upgraded as they are, and proven.

STATEFERRY_ALTERATIONS and STATEFERRY_ALTERATION_SEED say how many changes of each savepoint, and which. `make
test-saboteur` makes a thousand.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from flinkstate.errors import DamagedError, StateferryError
from flinkstate.reading.reader import Savepoint
from tests.steps.test_for_another_flink import ALONE, GOLDEN
from tests.steps.test_lost_entries import rows_of_main_state_alone
from tests.steps.test_native_source import run
from tests.support.mutations import PLAIN, mutated

SEED = int(os.environ.get("STATEFERRY_ALTERATION_SEED", "1"))
COUNT = int(os.environ.get("STATEFERRY_ALTERATIONS", "24"))
# Of one run, on a busy machine.
LONGEST_SECONDS = 60
MAP = {"declared": {"main/mainState": "Map<String, Long>"}}
SOURCES: dict[str, dict[str, Any]] = {
    "hint-hash-map-1.20-rocksdb": {},
    "hint-hash-map-ttl-1.20-rocksdb": {},
    "hint-map-1.20-rocksdb": MAP,
    "hint-map-ttl-1.20-hashmap": MAP,
    "native-hint-hash-map-1.20-rocksdb": {},
    "upgraded-hint-hash-map-2.3-rocksdb": {},
    "upgraded-hint-hash-map-ttl-2.3-rocksdb": {},
    # With objects of the job's own classes, whose class files are changed too.
    "in-objects-1.20-rocksdb": {"classes": True},
    "in-objects-ttl-1.20-hashmap": {"classes": True},
    "in-collections-1.20-rocksdb": {"classes": True, "parallelism": 2},
    # On the way back.
    "hint-hash-map-2.3-rocksdb": {"to": "flink-1.20"},
    "hint-map-2.3-rocksdb": {"to": "flink-1.20"},
    "kryo-parts-2.3-hashmap": {"to": "flink-1.20"},
}
_JARS = Path(__file__).parents[1] / "kryo"
# A file, where in one, or of which entry or class.
PLACE = re.compile(r"offset \d|key |/source/|/classes/|operator ")


def copied(name: str, area: Path) -> Path:
    shutil.copytree(GOLDEN / name, area / "source", ignore=shutil.ignore_patterns("expected.jsonl"))
    if "classes" in SOURCES[name]:
        jar = "collection-classes.jar" if name.startswith("in-collections") else "totals-classes.jar"
        shutil.unpack_archive(_JARS / jar, area / "classes", "zip")
    return area


def upgrade(name: str, area: Path) -> str | None:
    """Upgrades the savepoint in the area; returns why it is refused, or None."""
    options = {"to": "flink-2", **ALONE, **SOURCES[name]}
    if "classes" in options:
        options["classes"] = [str(area / "classes")]
    try:
        report, _ = run(area / "source", area, **options)
    except StateferryError as error:
        return str(error)
    assert report.is_green, report
    return None


@pytest.mark.matrix(most=2)
@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * COUNT)
@pytest.mark.parametrize("name", SOURCES)
def test_changed_bytes_are_refused_with_the_place_or_upgraded_as_they_are(name: str, tmp_path: Path) -> None:
    refused = 0
    # Kernels that have to be compiled are so here.
    assert upgrade(name, copied(name, tmp_path / "whole")) is None
    for number in range(COUNT):
        random, area = Random(f"{SEED}-{name}-{number}"), copied(name, tmp_path / str(number))
        file = random.choice([one for one in sorted(area.rglob("*")) if one.is_file()])
        kind = random.choice(PLAIN)
        sys.stdout.write(f"STATEFERRY_ALTERATION_SEED={SEED}, {number}: {kind.__name__} in {file.name}\n")
        file.write_bytes(mutated(file.read_bytes(), kind, random))
        began = time.monotonic()
        if (why := upgrade(name, area)) is not None:
            refused += 1
            assert PLACE.search(why), why
            assert not (area / "target").exists()
        assert time.monotonic() - began < LONGEST_SECONDS
        shutil.rmtree(area)
    assert refused


@pytest.mark.parametrize("to", ["flink-2", "same"])
@pytest.mark.parametrize("number", [1, 2])
def test_rows_under_the_number_of_another_state_are_refused(number: int, to: str, tmp_path: Path) -> None:
    """They would be carried over as rows of that state, and nothing of them would be upgraded."""
    area = copied("hint-hash-map-1.20-rocksdb", tmp_path)
    source = Savepoint.open(str(area / "source"))
    (operator,) = source.keyed_operators()
    file, section = next((file, one) for file in source.open_files(operator) for one in rows_of_main_state_alone(file))
    damaged = area / "source" / Path(file.name).name
    raw = bytearray(damaged.read_bytes())
    raw[section.base + int(section.starts[0]) - 1] = number
    damaged.write_bytes(raw)
    with pytest.raises(DamagedError, match=rf"{damaged}, key group {section.key_group}, offset \d+: expected"):
        run(area / "source", area, **{**ALONE, "to": to})
    assert not (area / "target").exists()
