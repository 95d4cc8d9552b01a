"""The steps of a run, and their order."""

from __future__ import annotations

from enum import StrEnum


class Step(StrEnum):
    """The steps of a run, in their order.

    `migrate` writes the new savepoint, `rescale` puts key groups into new ranges where `migrate` can't do that itself,
    and `tables` writes the tables when the state is safe.
    """

    SNAPSHOT = "snapshot"
    MIGRATE = "migrate"
    RESCALE = "rescale"
    VALIDATE = "validate"
    CUT_OVER = "cut_over"
    TABLES = "tables"

    def earlier(self, *, rehearses: bool) -> tuple[Step, ...]:
        """The steps that must be done before this one, in a rehearsal or in a cut-over."""
        before = tuple(Step)[: tuple(Step).index(self)]
        return tuple(step for step in steps_of(rehearses=rehearses) if step in before)


def steps_of(*, rehearses: bool, with_tables: bool = True) -> tuple[Step, ...]:
    """The steps of a run: a rehearsal publishes nothing."""
    left_out = {step for step, part in ((Step.CUT_OVER, not rehearses), (Step.TABLES, with_tables)) if not part}
    return tuple(step for step in Step if step not in left_out)
