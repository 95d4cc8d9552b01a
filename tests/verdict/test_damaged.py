"""Savepoints with changed bytes that `check` is asked about, also as the one from before an upgrade.

STATEFERRY_ALTERATIONS and STATEFERRY_ALTERATION_SEED say how many changes of each savepoint, and which. `make
test-saboteur` makes a thousand.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from flinkstate.reading.reader import Savepoint
from stateferry.cli import main
from tests.support.mutations import PLAIN, flip, mutated

SEED = int(os.environ.get("STATEFERRY_ALTERATION_SEED", "1"))
COUNT = int(os.environ.get("STATEFERRY_ALTERATIONS", "40"))
# Of one check, on a busy machine.
LONGEST_SECONDS = 20
# Which part of it, where the error is of the two savepoints together.
PLACE = re.compile(r"state \w+|operator \w+")
SAVEPOINTS = Path(__file__).parents[1] / "savepoints"
JAR = SAVEPOINTS.parent / "kryo" / "collection-classes.jar"
SOURCES = {
    "hint-hash-map-1.20-rocksdb": (),
    "native-hint-hash-map-1.20-rocksdb": (),
    "upgraded-hint-hash-map-2.3-rocksdb": ("--all",),
    "in-collections-1.20-rocksdb": ("--classes", str(JAR)),
    "scala-keys-1.20-rocksdb": (),
    "operator-state-1.20-hashmap": (),
    "windows-1.20-rocksdb": ("--all",),
    "native-2.3-rocksdb": ("--all",),
}
# Savepoints from before an upgrade: that of the upgraded job, and more options.
BEFORE = {
    "hint-hash-map-1.20-rocksdb": ("upgraded-hint-hash-map-2.3-rocksdb", ()),
    "hint-hash-map-ttl-1.20-rocksdb": (
        "upgraded-hint-hash-map-ttl-2.3-rocksdb",
        ("--state-ttl", "main/mainState=36500d"),
    ),
    "in-objects-1.20-rocksdb": (
        "in-objects-upgraded-2.3-rocksdb",
        ("--classes", str(SAVEPOINTS.parent / "kryo" / "totals-classes.jar")),
    ),
}


@contextmanager
def damaged(name: str, number: int, folder: Path, kinds: tuple[Any, ...]) -> Iterator[tuple[Path, Path, set[int]]]:
    """A copy of a savepoint with one change: its folder, the file that changed, and which of its bytes are others."""
    random, copy = Random(f"{SEED}-{name}-{number}"), folder / str(number)
    shutil.copytree(SAVEPOINTS / name, copy, ignore=shutil.ignore_patterns("expected.jsonl"))
    file = random.choice([one for one in sorted(copy.rglob("*")) if one.is_file()])
    kind, before = random.choice(kinds), file.read_bytes()
    after = mutated(before, kind, random)
    file.write_bytes(after)
    others = {at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other}
    sys.stdout.write(
        f"STATEFERRY_ALTERATION_SEED={SEED}, {number}: {kind.__name__} in {file.name}, {sorted(others)[:9]}\n"
    )
    yield copy, file, others
    shutil.rmtree(copy)


def checked(capsys: pytest.CaptureFixture[str], changed: Path, *arguments: str) -> dict[str, Any] | None:
    """What `check` says, None if it refuses the changed savepoint by name, with the place."""
    began = time.monotonic()
    capsys.readouterr()
    code = main(["check", *arguments, "--json"])
    out, error = capsys.readouterr()
    assert time.monotonic() - began < LONGEST_SECONDS
    if code in (0, 1) and out:
        found: dict[str, Any] = json.loads(out)
        return found
    assert code in (1, 2, 3), error
    assert error.startswith("stateferry: "), error
    assert str(changed) in error or PLACE.search(error), error
    return None


@pytest.mark.matrix(most=3)
@pytest.mark.timeout(120 + 5 * COUNT)
@pytest.mark.parametrize("name", SOURCES)
def test_a_damaged_savepoint_is_judged_or_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = 0
    target = "flink-1.20" if "-2.3-" in name and "upgraded" not in name else "flink-2"
    for number in range(COUNT):
        with damaged(name, number, tmp_path, PLAIN) as (savepoint, _, _):
            refused += checked(capsys, savepoint, str(savepoint), "--for", target, *SOURCES[name]) is None
    assert refused


def losses_by(old: Path, name: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]] | None:
    upgraded, options = BEFORE[name]
    found = checked(capsys, old, str(SAVEPOINTS / upgraded), "--for", "flink-2", "--before", str(old), *options)
    if found is None:
        return None
    states: list[dict[str, Any]] = found["losses"]["states"]
    return states


@pytest.mark.matrix(most=2)
@pytest.mark.timeout(120 + 5 * COUNT)
@pytest.mark.parametrize("name", BEFORE)
def test_a_damaged_savepoint_from_before_the_upgrade_hides_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused, or says the same, but for another valid value in the place of one that is compared."""
    whole, refused = losses_by(SAVEPOINTS / name, name, capsys), 0
    assert whole
    values = bytes_of_values(SAVEPOINTS / name, {one["state"] for one in whole})
    for number in range(COUNT):
        with damaged(name, number, tmp_path, (flip,)) as (old, file, others):
            found = losses_by(old, name, capsys)
            refused += found is None
            if found is not None and found != whole:
                assert others <= values.get(file.name, set()), found
    assert refused


def bytes_of_values(savepoint: Path, states: set[str]) -> dict[str, set[int]]:
    """By file, which bytes are of values of these states."""
    found: dict[str, set[int]] = {}
    source = Savepoint.open(str(savepoint))
    for operator in source.keyed_operators():
        for file in source.open_files(operator):
            wanted = {index for index, state in enumerate(file.header.states) if state.name in states}
            for key_group in file.handle.range:
                for section in file.sections_of(key_group, wanted):
                    for start, end in zip(section.value_starts.tolist(), section.ends.tolist(), strict=True):
                        found.setdefault(Path(file.name).name, set()).update(
                            range(section.base + start, section.base + end)
                        )
    return found
