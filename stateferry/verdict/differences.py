"""What differs between a type of a header and the classes of the new job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Change(Enum):
    """What a difference between the header and a class file leads to. The later, the worse."""

    MIGRATES = 0
    RENAMES = 1
    LOSES = 2
    UNKNOWN = 3
    REFUSES = 4
    UNREADABLE = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference; `exception` is Flink's if it isn't that of a serializer that doesn't fit.

    `or_else`: whether it depends on how the state is declared.
    """

    change: Change
    text: str
    exception: str | None = None
    or_else: bool = False


def not_given(name: str) -> Difference:
    return Difference(Change.UNKNOWN, f"there is {name}, which is not in the jars that were given")
