"""The made-up savepoint is one that Flink restores, with all that the command line says is in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stateferry.cli import main
from tests.flink.harness import FlinkHarness, by_state
from tests.flink.jobs import Job, Operator, State

pytestmark = pytest.mark.flink

STATES = {"mainState": "VALUE", "newMainState": "MAP", "isMigratedState": "VALUE"}


# How the old job declares its map, by the option of the command.
DECLARED = {"": "Map<String,Long>", "--nullable": "HintedMap<String,Long>", "--kryo": "HashMap<String,Long>"}


def legacy_job(declared: str, backend: str, ttl: str | None, parallelism: int, max_parallelism: int) -> Job:
    types = {"mainState": DECLARED[declared], "newMainState": "Map<String,Long>", "isMigratedState": "Boolean"}
    states = tuple(State(name, types[name], kind=kind, ttl=ttl) for name, kind in STATES.items())
    return Job(
        (Operator("main", key="String", states=states),),
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        backend=backend,
    )


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize(
    ("version", "declared", "backend", "ttl", "max_parallelism", "options"),
    [
        ("2.3.0", "", "rocksdb", True, 128, []),
        ("2.3.0", "", "hashmap", False, 300, ["--compressed"]),
        ("1.20.0", "", "rocksdb", False, 128, ["--compressed"]),
        ("1.20.0", "", "hashmap", True, 300, []),
        pytest.param("2.3.0", "--nullable", "hashmap", True, 128, [], marks=pytest.mark.full),
        ("2.3.0", "--kryo", "rocksdb", False, 300, ["--entries", "200"]),
        ("1.20.0", "--kryo", "rocksdb", True, 128, ["--entries", "127"]),
        pytest.param("1.20.0", "--kryo", "hashmap", False, 128, ["--compressed"], marks=pytest.mark.full),
    ],
)
def test_flink_restores_a_demo_savepoint(
    flink: Callable[[str], FlinkHarness],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    version: str,
    declared: str,
    backend: str,
    ttl: bool,
    max_parallelism: int,
    options: list[str],
) -> None:
    options = [*options, "--flink", version.removesuffix(".0"), *(["--ttl", "30d"] if ttl else [])]
    options += ["--parallelism", "4", "--max-parallelism", str(max_parallelism), "--now", "1700000000000"]
    # The contents are the same however the map is declared.
    for folder, also in (("demo", [declared] if declared else []), ("plain", [])):
        made = ["demo-savepoint", str(tmp_path / folder), "--keys", "300", "--entries", "7"]
        assert main([*made, *options, *also]) == 0
    capsys.readouterr()
    lines = []
    for name in STATES:
        assert main(["dump", str(tmp_path / "plain"), "--operator", "main", "--state", name]) == 0
        dumped = (json.loads(line) for line in capsys.readouterr().out.splitlines())
        lines += [{"operator": "main", "state": name, **line} for line in dumped]
    entries = int(options[options.index("--entries") + 1]) if "--entries" in options else 7
    assert len(lines) == 210 + 90 * entries + 90
    job = legacy_job(declared, backend, "stamped" if ttl else None, 3, max_parallelism)
    restored = flink(version).restore(tmp_path / "demo", job)
    assert restored.problems == []
    assert by_state(restored.lines) == by_state(lines)
