"""Of how many pairs of savepoint and job the verdict says that it can't tell. Real Flink judges them elsewhere."""

from __future__ import annotations

from stateferry.verdict.outcomes import Outcome
from tests.flink.upgrade_rows import ROWS

PAIRS, MOST_UNKNOWN, MOST_UNKNOWN_IN_FLINK_2 = 80, 4, 7
# Nobody can tell what a serializer that the job has written itself makes of a value.
TOLD_BY_CLASSES = {
    name: row
    for name, row in ROWS.items()
    if row.classes and not name.startswith(("registered serializer", "default serializer"))
}


def test_with_the_classes_of_the_job_few_pairs_stay_open() -> None:
    assert len(TOLD_BY_CLASSES) >= PAIRS
    assert len([name for name, row in TOLD_BY_CLASSES.items() if row.verdict is Outcome.UNKNOWN]) <= MOST_UNKNOWN


def test_of_a_job_of_flink_2_that_was_never_upgraded_few_pairs_stay_open() -> None:
    """With `--all-by-kryo-5`: what both Kryos can read is by Kryo 5 then."""
    of_2 = {name: row for name, row in TOLD_BY_CLASSES.items() if not name.startswith("Scala")}
    assert len(of_2) >= PAIRS
    stays = [row.verdict_if_stays if "2.3.0" in row.stays else row.verdict for row in of_2.values()]
    assert stays.count(Outcome.UNKNOWN) <= MOST_UNKNOWN_IN_FLINK_2
