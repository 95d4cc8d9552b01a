"""Counts that tasks add up: one dataclass for each kind of work, with one field for each thing that is counted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from stateferry.basics.durations import rough_duration

_UNIT = "milliseconds"


def _key(name: str) -> str:
    return name.replace("_", " ")


def shown_count(key: str, count: int) -> tuple[str, str]:
    """Returns the key and the count for people; a sum of times is a duration, not a number of milliseconds."""
    unit, _, rest = key.partition(" ")
    return (f"{rest} in all", rough_duration(count)) if unit == _UNIT else (key, f"{count:,}")


@dataclass(slots=True)
class Counts:
    """Counts by name. The key of a count in JSON is the name of its field, with spaces."""

    # Pydantic reads stored counts by these keys. A count that isn't stored is 0, and unknown keys are left out.
    __pydantic_config__: ClassVar[dict[str, Any]] = {"alias_generator": _key}

    def add(self, other: Self) -> None:
        """Adds what was counted elsewhere."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def take_off(self, other: Self) -> None:
        """Takes off what was counted elsewhere."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) - getattr(other, field.name))

    def to_json(self) -> dict[str, int]:
        """Returns all counts, also those that are 0, by their keys in JSON."""
        return {_key(field.name): getattr(self, field.name) for field in fields(self)}
