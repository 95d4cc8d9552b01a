"""Native savepoints that Stateferry wrote: real Flink restores them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stateferry.savepoint.reader import Savepoint
from tests.flink.harness import FlinkHarness, by_state
from tests.flink.jars import VERSIONS
from tests.flink.judge import Change, Make, all_dumped, check_restored
from tests.flink.scenarios import SCENARIOS
from tests.support.rewriting import rewrite

pytestmark = pytest.mark.flink

Flink = Callable[[str], FlinkHarness]


@pytest.mark.parametrize("scenario", ["kinds", "legacy-string-long"])
@pytest.mark.parametrize("version", VERSIONS)
def test_flink_restores_every_entry(version: str, scenario: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    job = SCENARIOS[scenario]
    source = made(version, job)
    change = Change()
    rewrite(Savepoint.open(str(source.path)), str(tmp_path / "new"), replace(change.layout(job), native=True))
    assert by_state(all_dumped(tmp_path / "new", job)) == by_state(source.lines)
    check_restored(flink(version), tmp_path / "new", change.job(job), source, moved=False)
