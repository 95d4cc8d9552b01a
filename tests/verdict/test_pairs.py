"""Of how many pairs of savepoint and job the verdict says that it can't tell. Real Flink judges them elsewhere."""

from __future__ import annotations

from stateferry.verdict.outcomes import Outcome
from tests.flink.upgrade_rows import ROWS

PAIRS, MOST_UNKNOWN = 80, 5


def test_with_the_classes_of_the_job_few_pairs_stay_open() -> None:
    given = {name: row for name, row in ROWS.items() if row.classes}
    assert len(given) >= PAIRS
    assert len([name for name, row in given.items() if row.verdict is Outcome.UNKNOWN]) <= MOST_UNKNOWN
