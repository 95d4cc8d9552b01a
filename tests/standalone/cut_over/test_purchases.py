"""The judge of the cut-overs sees what must not be."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.standalone.cut_over.purchases import Entries, Shown, check_each_once, expected_entries

SECOND_SOURCE = 500_000_000


def as_it_should_be(of_each_source: int = 6000) -> list[Shown]:
    totals: Counter[tuple[str, str]] = Counter()
    lines = []
    for index in range(of_each_source):
        for start in (0, SECOND_SOURCE):
            at = start + index
            bought = f"customer-{at % 400:03}", f"item-{at // 400 % 7}"
            totals[bought] += 1 + at % 9
            lines.append(Shown(at, *bought, totals[bought]))
    return lines


def test_what_is_right_is_found_right() -> None:
    lines = as_it_should_be()
    check_each_once(lines)
    last: Entries = {(line.customer, line.item): line.total for line in lines}
    assert expected_entries(lines) == last


def test_a_lost_purchase_is_missed() -> None:
    lines = as_it_should_be()
    del lines[1000]
    with pytest.raises(AssertionError, match="1 purchases were lost"):
        check_each_once(lines)


def test_a_purchase_that_is_shown_twice_is_noticed() -> None:
    lines = as_it_should_be()
    with pytest.raises(AssertionError, match="1 purchases were shown more than once"):
        check_each_once([*lines, lines[7]])


@pytest.mark.parametrize("by", [-3, 5])
def test_a_total_that_forgot_or_counted_something_else_is_noticed(by: int) -> None:
    lines = as_it_should_be()
    changed = [replace(line, total=line.total + by) if line.index > 3000 else line for line in lines]
    with pytest.raises(AssertionError, match="follows a total of"):
        check_each_once(changed)
