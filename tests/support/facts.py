"""The facts that a run has kept."""

from __future__ import annotations

from typing import TypeVar

from stateferry.runs.record.facts import RunFacts
from stateferry.runs.record.runs import Run

Facts = TypeVar("Facts", bound=RunFacts)


def kept_facts(run: Run, kind: type[Facts]) -> Facts:
    """The facts of this kind, which the run must have."""
    facts = run.facts(kind)
    assert facts is not None, f"the run has no {kind.__name__}"
    return facts
