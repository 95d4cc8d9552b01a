"""Reads elements of operator state a second time, by plain code: what one Kryo wrote, and what is written of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.type_parts import kept_by_kryo
from flinkstate.serializers.types import FlinkType
from flinkstate.values.codecs import decode_whole
from stateferry.basics.quantities import noun
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.expected.sample_text import MOST_SAMPLES
from stateferry.proof.plain.plain_maps import by_one_kryo

_MOST_BYTES = 1 << 20


@dataclass(slots=True)
class PlainElements:
    """What plain code says of the elements of one state, up to a number of bytes."""

    read: int = 0
    left_out: int = 0
    bytes_read: int = 0
    differences: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    @property
    def seen(self) -> bool:
        """Whether there were any elements."""
        return bool(self.read or self.left_out or self.refusals)

    def see(self, type_: FlinkType, old: bytes, new: bytes) -> None:
        """Compares the objects of an element in the source with those in what is written of it."""
        if self.bytes_read + len(old) > _MOST_BYTES:
            self.left_out += 1
            return
        self.bytes_read += len(old)
        for_five = all(one.for_five for one in kept_by_kryo(type_))
        try:
            expected = repr(decode_whole(by_one_kryo(type_, not for_five), old))
        except (DamagedError, RefusedError) as error:
            # Plain code may be stricter than what has written the element. That says nothing about the result.
            self.refusals.append(f"in the source: {error}")
            return
        try:
            found = repr(decode_whole(by_one_kryo(type_, for_five), new))
        except RefusedError as error:
            self.refusals.append(str(error))
            return
        except DamagedError as error:
            found = str(error)
        self.read += 1
        if found != expected:
            self.differences.append(f"element {self.read}: expected {_short(expected)}, found {_short(found)}")

    def check(self, name: str) -> Check:
        """Makes the check of all elements that were seen."""
        expected = f"the objects of {self.read} {noun(self.read, 'element')}"
        if self.differences:
            count = len(self.differences)
            actual = f"other objects in {count} {noun(count, 'element')}"
            return Check(name, Outcome.FAILED, expected, actual, samples=tuple(self.differences[:MOST_SAMPLES]))
        if self.refusals:
            count = len(self.refusals)
            actual = f"{count} {noun(count, 'element')} can't be decoded, among them {self.refusals[0]}"
            return Check(name, Outcome.COULD_NOT_TELL, expected, actual)
        if not self.read:
            return Check(name, Outcome.COULD_NOT_TELL, expected, "no element is small enough to be read")
        more = f", and {self.left_out} more that were not read" if self.left_out else ""
        return Check(name, Outcome.PASSED, expected, f"{expected}{more}")


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."
