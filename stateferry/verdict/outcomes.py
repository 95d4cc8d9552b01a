"""What becomes of a state that a job of another Flink restores: outcomes, and findings with their reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """What becomes of a state; the value is the text for people. The later, the worse."""

    RESTORES = "restores"
    UNKNOWN = "can't tell"
    FAILS = "restores and fails at the first read"
    WRONG = "restores and is wrong"
    REFUSED = "is refused at the start"

    @property
    def word(self) -> str:
        """The name in JSON."""
        return self.name.lower()

    @property
    def breaks(self) -> bool:
        """Whether the job doesn't start, or doesn't find what the savepoint holds."""
        return self in (Outcome.FAILS, Outcome.WRONG, Outcome.REFUSED)

    @property
    def badness(self) -> int:
        """The order of the outcomes, 0 for `RESTORES`."""
        return list(Outcome).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a serializer's values, why, and what to do.

    `or_else` is another outcome that is as possible: it depends on what no savepoint says. `exception` is what Flink
    throws.
    """

    outcome: Outcome
    reason: str
    advice: str = "nothing"
    exception: str | None = None
    or_else: Outcome | None = None

    @property
    def possible(self) -> tuple[Outcome, ...]:
        """The outcomes that real Flink may show."""
        return (self.outcome,) if self.or_else is None else (self.outcome, self.or_else)


@dataclass(frozen=True, slots=True)
class StateVerdict:
    """What becomes of one state of an operator, which has an id, and a label that others may have too."""

    operator_id: str
    operator: str
    state: str
    kind: str
    type: str
    finding: Finding


def worst(findings: Iterable[Finding]) -> Finding:
    """Returns the finding with the worst outcome; of several the first one."""
    return max(findings, key=lambda finding: finding.outcome.badness)
