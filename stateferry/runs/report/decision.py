"""A person's decision on a cut-over, made on its rehearsal while the job still runs, and what it allows.

The decision is kept in the folder of the rehearsal from the moment when the question is asked, and in that of the run
that it allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from flinkstate.errors import RejectedError
from stateferry.runs.predict.estimates import Prediction
from stateferry.runs.record.facts import RunFacts
from stateferry.runs.record.runs import Run


class Answer(StrEnum):
    """How far the decision has come."""

    ASKED = "asked"
    APPROVED = "approved"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Decision(RunFacts):
    """The answer to the question whether to cut over as the run `rehearsal` has shown.

    `reason` says whose answer it is, `at` when it was given, in milliseconds. `foreseen` is the outage
    that the person was shown. The run that is published may differ from the rehearsal by the share `may_differ`.
    """

    name: ClassVar[str] = "decision"

    rehearsal: str
    answer: Answer = Answer.ASKED
    reason: str = ""
    at: int = 0
    may_differ: float = 0.1
    foreseen: Prediction | None = None

    @property
    def is_approved(self) -> bool:
        """Whether the cut-over may begin."""
        return self.answer is Answer.APPROVED

    @property
    def in_words(self) -> str:
        """The answer as the end of a sentence that begins with *the cut-over was*."""
        answer = self.answer.value
        return self.reason if self.reason.startswith(answer) else f"{answer}: {self.reason}"


def answered(rehearsal: Run, answer: Answer, reason: str, at: int) -> Decision:
    """Keeps the answer to the question that was asked of the rehearsal; a no is final."""
    asked = rehearsal.facts(Decision)
    if asked is None:
        raise RejectedError(f"nobody was asked about run {rehearsal.plan.run_id}, so there is no answer: ask first")
    if asked.answer is Answer.REJECTED and answer is not Answer.REJECTED:
        raise RejectedError(f"the cut-over after run {rehearsal.plan.run_id} was {asked.in_words}: trigger a new run")
    decision = replace(asked, answer=answer, reason=reason, at=at)
    rehearsal.keep(decision)
    return decision


@dataclass(frozen=True, slots=True)
class Sign(RunFacts):
    """A person has confirmed, after the approval, that the job may be stopped now."""

    name: ClassVar[str] = "sign"

    by: str
    at: int
