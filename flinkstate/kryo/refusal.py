"""The refusal of an object that can't be handled, in a value that Kryo wrote."""

from __future__ import annotations

from typing import Any

from flinkstate.errors import RefusedError
from flinkstate.serializers.types import FlinkType


class RefusedValueError(RefusedError):
    """Something in a map can't be handled: `why`. Its offset is a position in a buffer until it gets a place.

    `user_key` are type and bytes of the entry's key, if that was read. `mixes_numbers` says that a number of one class
    stands where one of another is expected.
    """

    def __init__(
        self, why: str, offset: int, user_key: tuple[FlinkType, bytes] | None = None, mixes_numbers: bool = False
    ) -> None:
        self.why, self.offset, self.user_key, self.mixes_numbers = why, offset, user_key, mixes_numbers
        super().__init__(f"at offset {offset}: {why}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.why, self.offset, self.user_key, self.mixes_numbers)

    def because(self, more: str) -> RefusedValueError:
        """Returns the same refusal with more in its reason."""
        return RefusedValueError(f"{self.why}{more}", self.offset, self.user_key, self.mixes_numbers)
