"""What one check of a validation says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    PASSED = "passed"
    FAILED = "failed"
    COULD_NOT_TELL = "could not tell"


@dataclass(frozen=True, slots=True)
class Check:
    """`key_groups` are those where it failed, `samples` up to ten of what is wrong there."""

    name: str
    outcome: Outcome
    expected: str
    actual: str
    key_groups: tuple[int, ...] = ()
    samples: tuple[str, ...] = ()
