"""What the jobs of `stateferry.totals` may have shown and may hold, from what their input says: each purchase once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Entries = dict[tuple[str, str], int]
"""Totals by customer and item."""

_ENDLESS, _SOURCES = 1_000_000_000, 2
_CUSTOMERS, _ITEMS, _AMOUNTS = 400, 7, 9


@dataclass(frozen=True, slots=True)
class Shown:
    """One line of the sink: the total of a customer's item, the purchase of that index included."""

    index: int
    customer: str
    item: str
    total: int


def shown(sink: Path) -> list[Shown]:
    """All lines of all files that are complete."""
    lines = [line.split() for file in sink.glob("[!.]*") for line in file.read_text("ascii").splitlines()]
    return [Shown(int(index), customer, item, int(total)) for index, customer, item, total in lines]


def check_each_once(lines: list[Shown]) -> None:
    """No purchase lost, none counted twice: every source's are there up to some index, and each total is larger than
    the one before it by just one purchase."""
    assert lines
    twice = [index for index, times in Counter(line.index for line in lines).items() if times > 1]
    assert twice == [], f"{len(twice)} purchases were shown more than once: {sorted(twice)[:10]}"
    part = _ENDLESS // _SOURCES
    for source in range(_SOURCES):
        found = sorted(line.index for line in lines if line.index // part == source)
        lost = sorted(set(range(source * part, source * part + len(found))) - set(found))
        assert lost == [], f"{len(lost)} purchases were lost: {lost[:10]}"
    by_item: dict[tuple[str, str], list[Shown]] = defaultdict(list)
    for line in lines:
        assert (line.customer, line.item) == _bought(line.index)
        by_item[line.customer, line.item].append(line)
    for totals in by_item.values():
        before = 0
        for line in sorted(totals, key=lambda line: line.total):
            assert line.total - before == _amount(line.index), f"{line} follows a total of {before}"
            before = line.total


def expected_entries(lines: list[Shown]) -> Entries:
    """What a job holds that has shown just these lines."""
    totals: Counter[tuple[str, str]] = Counter()
    for line in lines:
        totals[line.customer, line.item] += _amount(line.index)
    return dict(totals)


def entries(savepoint: Path | str, state: str) -> Entries:
    """The totals that a savepoint holds."""
    found: Entries = {}
    for line in _dump(savepoint, "main", state):
        of_line: Mapping[str, int] = line["value"] if "user_key" not in line else {line["user_key"]: line["value"]}
        for item, total in of_line.items():
            assert (line["key"], item) not in found
            found[line["key"], item] = total
    return found


def times_due(savepoint: Path | str) -> list[int]:
    """When the timers of the operator `beside` are to fire, by its own state."""
    return [line["value"] for line in _dump(savepoint, "beside", "due")]


def _dump(savepoint: Path | str, operator: str, state: str) -> Iterator[Any]:
    command = [sys.executable, "-m", "stateferry.cli", "dump", str(savepoint), "--operator", operator, "--state", state]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return map(json.loads, done.stdout.splitlines())


def _bought(index: int) -> tuple[str, str]:
    return f"customer-{index % _CUSTOMERS:03}", f"item-{index // _CUSTOMERS % _ITEMS}"


def _amount(index: int) -> int:
    return 1 + index % _AMOUNTS
