"""Which tests are left out: by a plain `pytest`, which has a sample of large matrices, and by `pytest --fast`."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

FULL = "full"
MATRIX = "matrix"
PART = "part"
NOT_FAST = ("airflow", "flink", "spark", "slow")

_CASES_OF_A_PART = 2


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """What only `--all` runs: tests marked `full`, and the cases of a matrix that its sample does without."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker(MATRIX) is not None:
            cases[item.nodeid.partition("[")[0]].append(item)
    chosen = {id(item) for matrix in cases.values() for item in _chosen(matrix)}
    matrices = {id(item) for matrix in cases.values() for item in matrix}
    return [
        item
        for item in items
        if item.get_closest_marker(FULL) is not None or (id(item) in matrices and id(item) not in chosen)
    ]


def not_fast(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """What `--fast` leaves out: what needs a server, what is slow, and of tests marked `part` all but two cases."""
    out: list[pytest.Item] = []
    parts: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if any(item.get_closest_marker(mark) is not None for mark in NOT_FAST):
            out.append(item)
        elif item.get_closest_marker(PART) is not None:
            parts[item.nodeid.partition("[")[0]].append(item)
    for cases in parts.values():
        out += sorted(cases, key=lambda item: _shuffled(item.name))[_CASES_OF_A_PART:]
    return out


def _chosen(matrix: Sequence[pytest.Item]) -> list[pytest.Item]:
    mark = matrix[0].get_closest_marker(MATRIX)
    assert mark is not None
    names = sample([item.name for item in matrix], **mark.kwargs)
    return [item for item in matrix if item.name in names]


def sample(names: Iterable[str], most: int | None = None) -> set[str]:
    """Few of them, in which each word of any of them occurs, or `most`. The same names give the same sample."""
    # In an order that has nothing to do with theirs, or the first of a matrix would always be chosen.
    left = {name: _words(name) for name in sorted(names, key=_shuffled)}
    missing = set().union(*left.values())
    taken: set[str] = set()
    while missing and (most is None or len(taken) < most):
        best = max(left, key=lambda name: len(left[name] & missing))
        missing -= left[best]
        taken.add(best)
    return taken


def _shuffled(name: str) -> int:
    """A place that depends on the case alone: tests of the same cases have the same sample and share its savepoints."""
    return zlib.crc32(name.partition("[")[2].encode())


def _words(name: str) -> set[str]:
    return set(re.findall(r"[\w.]+", name.partition("[")[2]))
