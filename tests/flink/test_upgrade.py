"""Savepoints of Flink 1.20 that were written for Flink 2, against real Flink 2.3: it reads every value as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.runs import Run
from stateferry.verdict.outcomes import Outcome
from tests.flink import jars
from tests.flink.harness import Made
from tests.flink.test_verdict import Started, observed, savepoints, started
from tests.flink.upgrade_rows import ROWS, Row
from tests.support.verified_runs import STAGED, do_steps

__all__ = ["savepoints", "started"]
pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

_WRITTEN_BY_KRYO = [name for name, row in ROWS.items() if row.becomes in (Outcome.WRONG, Outcome.FAILS)]
_SAMPLE = ("HashMap<String,Long>", "TreeMap<String,Long>", "Object<Double>", "POJO KryoTotals", "MAP UUID", "TTL HashMap")


def upgraded(source: Path, row: Row, home: Path, **options: object) -> Path:
    """The new savepoint of a run for Flink 2, whose report is green."""
    classes = [jars.class_path("1.20.0").partition(":")[0]] if row.classes else []
    told = {"source": str(source), "target": str(home / "new"), "job": "job", "operators": [], "to": "flink-2"}
    plan = plan_of({**told, "home": str(home), "classes": classes, **options})
    do_steps(Run.create(plan, plan.now), STAGED)
    return home / "new"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _SAMPLE else pytest.mark.full) for name in _WRITTEN_BY_KRYO]
)
def test_flink_2_reads_what_flink_1_wrote(
    name: str, started: Started, savepoints: Callable[[str, str], Made], tmp_path: Path
) -> None:
    row, made = ROWS[name], savepoints("1.20.0", name)
    flink = started("2.3.0", row.whole_class_path)
    before, _ = observed(flink, row, made)
    assert before is row.becomes
    new = upgraded(made.path, row, tmp_path)
    outcome, exception = observed(flink, row, Made(new, made.lines))
    assert outcome is Outcome.RESTORES, exception
