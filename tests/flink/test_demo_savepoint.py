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


def legacy_job(backend: str, ttl: str | None, parallelism: int, max_parallelism: int) -> Job:
    types = {"mainState": "Map<String,Long>", "newMainState": "Map<String,Long>", "isMigratedState": "Boolean"}
    states = tuple(State(name, types[name], kind=kind, ttl=ttl) for name, kind in STATES.items())
    return Job(
        (Operator("main", key="String", states=states),),
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        backend=backend,
    )


@pytest.mark.parametrize(
    ("version", "backend", "ttl", "max_parallelism", "options"),
    [
        ("2.3.0", "rocksdb", True, 128, []),
        ("2.3.0", "hashmap", False, 300, ["--compressed"]),
        ("1.20.0", "rocksdb", False, 128, ["--compressed"]),
        ("1.20.0", "hashmap", True, 300, []),
    ],
)
def test_flink_restores_a_demo_savepoint(
    flink: Callable[[str], FlinkHarness],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    version: str,
    backend: str,
    ttl: bool,
    max_parallelism: int,
    options: list[str],
) -> None:
    target = str(tmp_path / "demo")
    options = [*options, "--flink", version.removesuffix(".0"), *(["--ttl", "30d"] if ttl else [])]
    layout = ["--parallelism", "4", "--max-parallelism", str(max_parallelism)]
    assert main(["demo-savepoint", target, "--keys", "300", "--entries", "7", *layout, *options]) == 0
    capsys.readouterr()
    lines = []
    for name in STATES:
        assert main(["dump", target, "--operator", "main", "--state", name]) == 0
        dumped = (json.loads(line) for line in capsys.readouterr().out.splitlines())
        lines += [{"operator": "main", "state": name, **line} for line in dumped]
    assert len(lines) == 210 + 90 * 7 + 90
    job = legacy_job(backend, "stamped" if ttl else None, 3, max_parallelism)
    restored = flink(version).restore(tmp_path / "demo", job)
    assert restored.problems == []
    assert by_state(restored.lines) == by_state(lines)
