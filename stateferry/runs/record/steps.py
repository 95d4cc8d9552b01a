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

    def earlier(self, *, rehearses: bool, rescales_only: bool = False) -> tuple[Step, ...]:
        """The steps that must be done before this one, in a rehearsal or in a cut-over."""
        before = tuple(Step)[: tuple(Step).index(self)]
        return tuple(step for step in steps_of(rehearses=rehearses, rescales_only=rescales_only) if step in before)


def steps_of(*, rehearses: bool, rescales_only: bool = False) -> tuple[Step, ...]:
    """The steps of a run: a rehearsal publishes nothing, and a run that migrates no state has no tables."""
    left_out = {Step.CUT_OVER} if rehearses else set()
    return tuple(step for step in Step if step not in left_out and not (rescales_only and step is Step.TABLES))
