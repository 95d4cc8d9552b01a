"""Which cases of a large matrix a plain `pytest` runs; `--all` runs every one."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

FULL = "full"
MATRIX = "matrix"


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


def _chosen(matrix: Sequence[pytest.Item]) -> list[pytest.Item]:
    names = sample([item.name for item in matrix])
    return [item for item in matrix if item.name in names]


def sample(names: Iterable[str]) -> set[str]:
    """Few of them, in which each word of any of them occurs. The same names give the same sample."""
    # In an order that has nothing to do with theirs, or the first of a matrix would always be chosen.
    left = {name: _words(name) for name in sorted(names, key=lambda name: zlib.crc32(name.encode()))}
    missing = set().union(*left.values())
    taken: set[str] = set()
    while missing:
        best = max(left, key=lambda name: len(left[name] & missing))
        missing -= left[best]
        taken.add(best)
    return taken


def _words(name: str) -> set[str]:
    return set(re.findall(r"[\w.]+", name.partition("[")[2]))
