"""The refusal of an object that can't be handled, in a value that Kryo wrote, and the name of its class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from flinkstate.basics.array_types import Bytes
from flinkstate.classfiles.job_classes import is_of_others
from flinkstate.errors import RefusedError
from flinkstate.serializers.types import FlinkType

_NOT_OF_JOBS = ("java.", "javax.", "jdk.", "sun.", "[")


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

    def at(self, offset: int) -> RefusedValueError:
        """Returns the same refusal at another position, as of a buffer from which this one was made."""
        return RefusedValueError(self.why, offset, self.user_key, self.mixes_numbers)


def text_at(data: Bytes, position: int) -> str:
    """Reads a name that the kernel has passed."""
    first = int(data[position])
    if first < 0x80:
        # The kernel has seen the end.
        end = position + int(np.argmax(data[position : position + 65536] >= 0x80)) + 1
        return bytes(data[position:end] & 0x7F).decode("ascii", "replace")
    length, shift = first & 0x3F, 6
    position += 1
    while first & (0x40 if shift == 6 else 0x80):
        first = int(data[position])
        length |= (first & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return bytes(data[position : position + length - 1]).decode("utf-8", "replace")


def what_helps(unread: Iterable[str]) -> str:
    """Returns what to do about classes that can't be read: those of the job are in its jar.

    It doesn't help where a reason in brackets follows the name: then the class is known. Nor are libraries read.
    """
    missing = [name for name in unread if not name.startswith(_NOT_OF_JOBS) and not name.endswith(")")]
    if not missing:
        return ""
    if all(map(is_of_others, missing)):
        return ". Classes of this library aren't read from a jar either"
    return ". For classes of the job, give its jar: --classes job.jar"
