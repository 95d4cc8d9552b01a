"""The catch-ups with a rehearsal while the job runs, and when there are enough of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stateferry.runs.record.facts import RunFacts
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.runs import Run

# A shorter one must save at least this share of the one before it.
_GAIN = 0.1


@dataclass(frozen=True, slots=True)
class OneCatchUp:
    """A catch-up: when its source was complete (in milliseconds), its changed keys, the seconds of its steps."""

    run_id: str
    at: int
    keys: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CatchUps(RunFacts):
    """The catch-ups with a rehearsal, in their order; `began_at` is when the rehearsal's own source was complete.

    `why_not` says why the cut-over converts everything instead.
    """

    name: ClassVar[str] = "catch_ups"

    began_at: int
    done: tuple[OneCatchUp, ...] = ()
    why_not: str = ""

    def why_enough(self, new: int, settle_ms: int) -> str:
        """Why no other one is made, after the `new` newest; empty if another one pays."""
        if not new:
            return ""
        last = self.done[-1]
        if 1000 * last.seconds <= settle_ms:
            return f"it took {last.seconds:.1f} s"
        if new > 1 and last.seconds > (1 - _GAIN) * self.done[-2].seconds:
            return f"it took {last.seconds:.1f} s, hardly less than the one before it"
        return ""

    def speed(self) -> float:
        """How many keys changed in a second, by the last catch-up; 0 without one."""
        if not self.done:
            return 0.0
        before = self.done[-2].at if len(self.done) > 1 else self.began_at
        return self.done[-1].keys / max((self.done[-1].at - before) / 1000, 1.0)


def base_of_cut_over(rehearsal: Run) -> Run | None:
    """The last catch-up with the rehearsal, on which the cut-over builds; None if that converts everything."""
    found = rehearsal.facts(CatchUps)
    if found is None or found.why_not or not found.done:
        return None
    return Run.open(run_folder(rehearsal.plan.home, rehearsal.plan.job, found.done[-1].run_id))
