"""Maps under keys that Flink gives to Kryo become rows under the same bytes of the key, on the same Flink."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.errors import RefusedError
from stateferry.cli import main
from tests.flink import jars
from tests.flink.harness import FlinkHarness, Made
from tests.flink.jobs import Job, Operator, State
from tests.flink.judge import Make, check_restored
from tests.flink.scenarios import kinds
from tests.flink.test_declared_maps import BACKENDS, CHANGES, FORMATS, VERSIONS, check, ferried
from tests.support.in_process import without_spark

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

Flink = Callable[[str], FlinkHarness]

MAPS = ("Map{0-9}<String,Long>", "HintedMap{0-9}<String,Long>", "Map<UUID,Long?>", "HashMap<Integer,String>")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))


def job(key: str, ttl: str | None, backend: str) -> Job:
    states = tuple(State(f"old-{i}", type_, ttl=ttl) for i, type_ in enumerate(MAPS))
    operator = Operator("main", key=key, keys=40, states=states)
    return Job((operator,), parallelism=2, backend=backend)


KEYS = ("UUID", "Opaque", "Object<Long>", "Tuple2<UUID,String>", "List<UUID>")
_TRIED = (("1.20.0", "rocksdb", None, "same", "UUID"), ("2.3.0", "native", "stamped", "max", "UUID"))


@pytest.mark.parametrize(
    ("version", "format_", "ttl", "change", "key"),
    [
        pytest.param(*cell, marks=() if cell in _TRIED else pytest.mark.full)
        for cell in itertools.product(VERSIONS, FORMATS, (None, "stamped"), CHANGES, KEYS)
        if cell[3:] != ("max", "Opaque")
    ],
)
def test_maps_under_keys_by_kryo_become_rows(
    version: str, format_: str, ttl: str | None, change: str, key: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    told = {"classes": [str(jars.classes(version))]}
    old = job(key, ttl, BACKENDS[format_])
    check(version, format_, old, CHANGES[change], made, flink, tmp_path, told=told, restoring=(version,))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_key_whose_hash_is_not_known_stops_a_change_of_max_parallelism(
    version: str, made: Make, tmp_path: Path
) -> None:
    old = job("Opaque", None, "rocksdb")
    source = made(version, old, "CANONICAL")
    told = {"classes": [str(jars.classes(version))]}
    with pytest.raises(RefusedError, match=r"the hash of .*Opaque isn't known"):
        ferried(source.path, tmp_path / "new", old, CHANGES["max"], "rocksdb", told)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("namespace", [None, "TimeWindow"])
@pytest.mark.parametrize(("version", "key"), [("1.20.0", "UUID"), ("2.3.0", "UUID"), ("1.20.0", "List<UUID>")])
def test_all_of_an_operator_goes_to_the_key_groups_of_its_hashes(
    version: str,
    key: str,
    namespace: str | None,
    made: Make,
    flink: Flink,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every kind of state, and timers, without a migration."""
    without_spark(monkeypatch)
    old = kinds(key, namespace)
    source, target = made(version, old), tmp_path / "new"
    assert main(["run", "--savepoint", str(source.path), "--target", str(target), "--max-parallelism", "300"]) == 0
    check_restored(flink(version), target, replace(old, max_parallelism=300), Made(target, source.lines), moved=True)
