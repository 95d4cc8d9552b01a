"""The errors that Stateferry raises on purpose: one root, and a class for each kind of answer to the reader."""

from __future__ import annotations

from typing import Any, Self


class StateferryError(Exception):
    """The root of all errors whose message is meant for people."""


class UsageError(StateferryError):
    """The request is wrong: an option, a name or a combination of them."""


class PlanError(UsageError):
    """A plan contradicts itself or its savepoint."""


class RefusedError(StateferryError):
    """The input is valid, but contains something that can't be handled; the message names it."""


class RejectedError(StateferryError):
    """The request is understood, and the answer is no, for the reason in the message."""


class TransientError(StateferryError):
    """Something that the work needs was lost or can't be reached now.

    This may pass: a retry continues the work where it stopped.
    """


class MissingHereError(StateferryError):
    """Something that the work needs is not installed on this machine, or not in a usable version."""


class DamagedError(StateferryError):
    """The input contradicts its own format; the message says where, what was expected and what was found."""

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

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self.expected, self.found, self.file, self.offset, self.key_group)

    @classmethod
    def _of(cls, expected: str, found: str, file: str | None, offset: int | None, key_group: int | None) -> Self:
        return cls(expected, found, file=file, offset=offset, key_group=key_group)

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
        """Returns the same error with parts of its place that only the caller knows; file and key group stay if set."""
        return DamagedError(
            self.expected,
            self.found,
            file=self.file or file,
            offset=self.offset if offset is None else offset,
            key_group=self.key_group if self.key_group is not None else key_group,
        )


class KeyTwiceError(DamagedError):
    """A key of a state that was to be written a second time."""
