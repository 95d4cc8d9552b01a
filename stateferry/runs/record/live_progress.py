"""How far the step at work has come, in a file of the run's folder: for readers in other processes."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from flinkstate.errors import StateferryError
from flinkstate.files.storage import Location


@dataclass(frozen=True, slots=True)
class LiveProgress:
    """How far a step has come, in a file at the time `at`, in milliseconds.

    `amount` is the work of the finished tasks in `unit`, and `at_work` how many tasks have begun and not ended, if that
    is known.
    """

    step: str
    done: int
    total: int
    seconds: float
    amount: int = 0
    unit: str = ""
    ended: bool = False
    at_work: int = 0
    at: int = 0

    @property
    def rate(self) -> float | None:
        """The work per second; None if it isn't known."""
        return self.amount / self.seconds if self.unit and self.seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the rest is likely to take; None if it isn't known."""
        if not 0 < self.done < self.total:
            return None
        return self.seconds / self.done * (self.total - self.done)

    def keep(self, file: Location) -> None:
        """Writes the file; readers find it complete."""
        file.write_atomically(_PROGRESS.dump_json(self))

    @classmethod
    def of(cls, file: Location) -> LiveProgress | None:
        """The progress; None if there is none, or none that can be read."""
        try:
            content = file.read_if_there()
            return None if content is None else _PROGRESS.validate_json(content)
        except (StateferryError, ValidationError):
            return None


_PROGRESS = TypeAdapter(LiveProgress)
