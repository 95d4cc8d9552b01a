from __future__ import annotations

import pytest

from stateferry.runs.report.decision import Answer, Decision


@pytest.mark.parametrize(
    ("answer", "reason", "said"),
    [
        (Answer.APPROVED, "approved by ada", "approved by ada"),
        (Answer.APPROVED, "approval is switched off", "approved: approval is switched off"),
        (Answer.REJECTED, "rejected by ada", "rejected by ada"),
        (Answer.REJECTED, "no answer came in time", "rejected: no answer came in time"),
    ],
)
def test_an_answer_is_the_end_of_a_sentence(answer: Answer, reason: str, said: str) -> None:
    assert Decision("one", answer, reason).in_words == said
