"""The catch-ups with a rehearsal while the job runs, and when there are enough of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from flinkstate.errors import RefusedError
from stateferry.runs.record.facts import RunFacts
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.runs import Run

# As many signs of the rehearsal's id are in the ids of its catch-ups: an id has at most 100.
_OF_ID = 80
# Airflow's have a digest behind the number.
_BEHIND = re.compile(r"\.catch_up_[0-9]+(-[0-9a-f]{6})?", re.ASCII)
# A shorter one must save at least this share of the one before it.
_GAIN = 0.1
# One that took no longer (in seconds) is built on, whatever the copy took: there it is chance which of them is faster.
_SHORT = 5.0
# A longer one must have taken at most this share of what the copy took.
_MOST_OF_COPY = 0.8
# Since a base that is older (in milliseconds) much has changed, and the next one may be much shorter.
_OLD_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class OneCatchUp:
    """A catch-up: when its source was complete (in milliseconds), its changed keys, the seconds of its steps.

    One that `joins` newer files has taken longer than the next one will, which joins none.
    """

    run_id: str
    at: int
    keys: int
    seconds: float
    joins: bool = False


@dataclass(frozen=True, slots=True)
class CatchUps(RunFacts):
    """The catch-ups with a rehearsal, in their order; `began_at` is when the rehearsal's own source was complete.

    `copy` is how many seconds the same steps of the copy took, 0 if that isn't known. `why_not` says why the cut-over
    converts everything instead.
    """

    name: ClassVar[str] = "catch_ups"

    began_at: int
    done: tuple[OneCatchUp, ...] = ()
    why_not: str = ""
    copy: float = 0.0

    def why_enough(self, new: int, settle_ms: int) -> str:
        """Why no other one is made, after the `new` newest; empty if another one pays."""
        if not new:
            return ""
        last = self.done[-1]
        if 1000 * last.seconds <= settle_ms:
            return f"it took {last.seconds:.1f} s"
        if last.joins:
            return ""
        if self.why_not_faster(is_decided=True) and last.at - self._before_last <= _OLD_MS:
            return f"it took {last.seconds:.1f} s, longer than the copy"
        if new > 1 and last.seconds > (1 - _GAIN) * self.done[-2].seconds:
            return f"it took {last.seconds:.1f} s, hardly less than the one before it"
        return ""

    def why_not_faster(self, *, is_decided: bool = False) -> str:
        """Why converting everything is as fast as since the last one; empty if it isn't, or if that isn't known.

        What was decided isn't changed by a second or two.
        """
        last = next((one.seconds for one in reversed(self.done) if not one.joins), 0.0)
        share = 1.0 if is_decided else _MOST_OF_COPY
        if not self.copy or last <= max(_SHORT, share * self.copy):
            return ""
        compared = f"{'more' if last > self.copy else 'hardly less'} than the {self.copy:.1f} s"
        return f"the last catch-up took {last:.1f} s, {compared} in which the copy converted everything"

    def speed(self) -> float:
        """How many keys changed in a second, by the last catch-up; 0 without one."""
        if not self.done:
            return 0.0
        return self.done[-1].keys / max((self.done[-1].at - self._before_last) / 1000, 1.0)

    @property
    def _before_last(self) -> int:
        """When the source of the last one's base was complete."""
        return self.done[-2].at if len(self.done) > 1 else self.began_at


def catch_up_id(rehearsal: str, number: int) -> str:
    """The id of the catch-up with this number that the command makes with the rehearsal."""
    return f"{rehearsal[:_OF_ID]}.catch_up_{number}"


def is_catch_up_of(rehearsal: str, run_id: str) -> bool:
    """Whether the id is that of a catch-up with the rehearsal."""
    return run_id.startswith(begins := rehearsal[:_OF_ID]) and _BEHIND.fullmatch(run_id, len(begins)) is not None


def base_of_cut_over(rehearsal: Run) -> Run | None:
    """The last catch-up with the rehearsal, on which the cut-over builds; None if that converts everything.

    One that was removed is refused.
    """
    found = rehearsal.facts(CatchUps)
    if found is None or found.why_not or not found.done:
        return None
    folder = run_folder(rehearsal.plan.home, rehearsal.plan.job, found.done[-1].run_id)
    if (last := Run.if_there(folder)) is None:
        raise RefusedError(
            f"catch-up {found.done[-1].run_id} was removed ({folder.shown}), and nothing can be converted since it: "
            "rehearse anew, and catch up with that rehearsal"
        )
    return last
