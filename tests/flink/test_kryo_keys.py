"""Maps under keys that Flink gives to Kryo become rows under the same bytes of the key, on the same Flink."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flink import jars
from tests.flink.harness import FlinkHarness
from tests.flink.jobs import Job, Operator, State
from tests.flink.judge import Make
from tests.flink.test_declared_maps import BACKENDS, CHANGES, FORMATS, VERSIONS, check

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
_TRIED = (("1.20.0", "rocksdb", None, "same", "UUID"), ("2.3.0", "native", "stamped", "parallelism", "UUID"))


@pytest.mark.parametrize(
    ("version", "format_", "ttl", "change", "key"),
    [
        pytest.param(*cell, marks=() if cell in _TRIED else pytest.mark.full)
        for cell in itertools.product(VERSIONS, FORMATS, (None, "stamped"), ("same", "parallelism"), KEYS)
    ],
)
def test_maps_under_keys_by_kryo_become_rows(
    version: str, format_: str, ttl: str | None, change: str, key: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    told = {"classes": [str(jars.classes(version))]}
    old = job(key, ttl, BACKENDS[format_])
    check(version, format_, old, CHANGES[change], made, flink, tmp_path, told=told, restoring=(version,))
