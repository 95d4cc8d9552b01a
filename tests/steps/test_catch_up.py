"""Catch-ups: what is converted since a base is, entry by entry, what a conversion of everything gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateferry.runs.record.facts import MigrateFacts
from stateferry.runs.record.runs import Run
from stateferry.runs.report.report import Report
from tests.flink.judge import raw_entries
from tests.steps.test_nights_since import NOW, changed, first_state, run
from tests.support.native_nights import NightlyDatabase

NATIVE: dict[str, Any] = {"output_format": "native", "now": NOW}


def base(source: Path, folder: Path, number: int, **options: Any) -> tuple[Report, Run]:
    return run(source, folder, number, job="catch-up", **(NATIVE | options))


def caught_up(source: Path, folder: Path, number: int, since: int, **options: Any) -> tuple[Report, Run]:
    return base(source, folder, number, since=f"catch-up-{since}", **options)


def whole(source: Path, folder: Path, number: int, **options: Any) -> Run:
    report, found = run(source, folder, number, job="whole", **(NATIVE | options))
    assert report.is_green
    return found


def entries(of: Run) -> Counter[Any]:
    return raw_entries(Path(of.staged.path if of.plan.rehearse else of.plan.target))


def checks(report: Report) -> list[tuple[str, str]]:
    return [(check.name, check.outcome.value) for check in report.checks]


@pytest.mark.parametrize("ttl", [False, True], ids=["without time to live", "under time to live"])
@pytest.mark.parametrize("seed", range(3))
def test_a_chain_of_catch_ups_is_as_a_conversion_of_everything(seed: int, ttl: bool, tmp_path: Path) -> None:
    chosen, database = random.Random(seed), NightlyDatabase(tmp_path / "job")
    of_state: dict[str, Any] = {"state": {"ttl_ms": 10**9}} if ttl else {}
    database.flush(first_state(ttl=ttl))
    report, _ = base(database.checkpoint(0), tmp_path, 0, **of_state)
    assert report.is_green, report.failed
    for number in range(1, 4):
        for _ in range(chosen.randrange(3)):
            state = changed(database.state, chosen, chosen.randrange(1, 12))
            if ttl:
                state = state.with_changes(rows={}, flags={})
            database.flush(state)
            if chosen.random() < 0.4:
                database.compact(chosen.randrange(3))
        source = database.checkpoint(number)
        report, since = caught_up(source, tmp_path, number, number - 1, **of_state)
        assert report.is_green, report.failed
        assert entries(since) == entries(whole(source, tmp_path, number, **of_state))
