"""The result of one check of a validation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """The result of a check."""

    PASSED = "passed"
    FAILED = "failed"
    COULD_NOT_TELL = "could not tell"


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison; `key_groups` are those where it failed, `samples` up to ten examples of what is wrong there."""

    name: str
    outcome: Outcome
    expected: str
    actual: str
    key_groups: tuple[int, ...] = ()
    samples: tuple[str, ...] = ()
