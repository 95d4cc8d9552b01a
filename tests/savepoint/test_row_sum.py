"""The digest of rows: their order makes no difference, each of their bytes does."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.row_sum import RowSum


@dataclass
class Rows:
    """As much of a section as its digest needs."""

    state: int
    data: Any
    starts: Any
    ends: Any


def sum_of(rows: list[bytes], state: int = 0) -> RowSum:
    ends = np.cumsum([len(row) for row in rows]).astype(np.int64)
    starts = ends - np.array([len(row) for row in rows], np.int64)
    data = np.frombuffer(b"".join(rows) + bytes(16), np.uint8).copy()
    return RowSum.of(cast(Section, Rows(state, data, starts, ends)))


def rows_of(chosen: random.Random, count: int) -> list[bytes]:
    return [chosen.randbytes(chosen.randrange(1, 60)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_rows_makes_no_difference(seed: int) -> None:
    chosen = random.Random(seed)
    rows, others = rows_of(chosen, 20), rows_of(chosen, 5)
    whole = sum_of(rows + others)
    chosen.shuffle(rows)
    assert whole == sum_of(others) + sum_of(rows)
    assert whole - sum_of(others) == sum_of(rows) != whole
    assert RowSum.of_text(whole.text) == whole


@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 16, 17, 24, 31, 32, 40, 100])
def test_each_byte_the_length_and_the_state_make_a_difference(size: int) -> None:
    row = bytes(range(size))
    others = [row[:at] + bytes([row[at] ^ 1 << bit]) + row[at + 1 :] for at in range(size) for bit in range(8)]
    rows = {row, *others, row + b"\0", b"\0" + row, row[:-1] or b"\1\1"}
    sums = [sum_of([one]) for one in rows]
    sums += [*(sum_of([row], state=state) for state in (1, 2, 1000, 32766)), sum_of([row, row])]
    for half in ({one.first for one in sums}, {one.second for one in sums}):
        assert len(half) == len(sums)


def test_other_digests_are_none() -> None:
    assert RowSum.of_text("0123456789abcdef") is None
