"""A digest of rows that doesn't depend on their order, so that it follows rows that come and go.

It is the sum of two hashes of each row. So the digest of a key group after some of its rows have changed is known from
these rows alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from flinkstate.keyed import row_sum_kernels
from flinkstate.keyed.keyed_file import Section

_TEXT = re.compile("[0-9a-f]{32}")
_BITS = 64
_SEED = 0x2545F4914F6CDD1D


@dataclass(frozen=True, slots=True)
class RowSum:
    """The sums of the first and of the second hashes of some rows."""

    first: int = 0
    second: int = 0

    def __add__(self, other: RowSum) -> RowSum:
        return RowSum((self.first + other.first) % 2**_BITS, (self.second + other.second) % 2**_BITS)

    def __sub__(self, other: RowSum) -> RowSum:
        return RowSum((self.first - other.first) % 2**_BITS, (self.second - other.second) % 2**_BITS)

    @classmethod
    def of(cls, section: Section) -> Self:
        """The digest of a section's rows."""
        sums = np.zeros(2, np.uint64)
        seed = np.uint64(_SEED * (2 * section.state + 1) % 2**_BITS)
        row_sum_kernels.add_rows(section.data, section.starts, section.ends, seed, sums)
        return cls(*sums.tolist())

    @property
    def text(self) -> str:
        """The digest as 32 hexadecimal digits."""
        return f"{self.first:016x}{self.second:016x}"

    @classmethod
    def of_text(cls, text: str) -> Self | None:
        """The digest that `text` gave; None for one of another kind."""
        if _TEXT.fullmatch(text) is None:
            return None
        return cls(int(text[:16], 16), int(text[16:], 16))
