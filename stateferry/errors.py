"""Every error Stateferry raises on purpose: one root, one class per kind of answer it gives to the person who reads
it."""

from __future__ import annotations


class StateferryError(Exception):
    """Root of all errors with a message that is meant for a person."""


class UsageError(StateferryError):
    """The request is wrong: an option, a name or a combination of them."""


class PlanError(UsageError):
    """A migration plan that contradicts itself or its savepoint."""


class RefusedError(StateferryError):
    """The input is understood well enough to know that it can't be handled, and by what name it is refused."""


class RejectedError(StateferryError):
    """The answer is no: all is understood, and it must not go on as asked, by what reason."""


class PassingError(StateferryError):
    """Something that the work needs was lost or can't be reached now. This may pass, and the work goes on where it was
    when it is begun again: whoever can wait tries again."""


class MissingHereError(StateferryError):
    """Something that the work needs is not installed on this machine, or not in a version that it can use."""


class DamagedError(StateferryError):
    """The input contradicts its own format: where, what was expected there and what was found."""

    def __init__(
        self,
        expected: str,
        found: str,
        *,
        file: str | None = None,
        offset: int | None = None,
        key_group: int | None = None,
    ) -> None:
        self.expected = expected
        self.found = found
        self.file = file
        self.offset = offset
        self.key_group = key_group
        super().__init__(self._text())

    def _text(self) -> str:
        place = [self.file] if self.file else []
        if self.key_group is not None:
            place.append(f"key group {self.key_group}")
        if self.offset is not None:
            place.append(f"offset {self.offset}")
        where = f"{', '.join(place)}: " if place else ""
        return f"{where}expected {self.expected}, found {self.found}"

    def located(
        self, *, file: str | None = None, key_group: int | None = None, offset: int | None = None
    ) -> DamagedError:
        """The same damage with the parts of its place that only a caller further out knows."""
        return DamagedError(
            self.expected,
            self.found,
            file=self.file or file,
            offset=self.offset if offset is None else offset,
            key_group=self.key_group if self.key_group is not None else key_group,
        )
