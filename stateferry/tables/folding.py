"""Which chunks a run folds: writes as a whole, in place of what all runs before have left of them.

The files' numbers of rows, which are known without reading any file, have to do for it. The largest file of a chunk is
that of its first run or its last fold, and about what it has now; what later runs have added replaced as much of it, or
was new. So a chunk is folded when that is as much again. Over the years this costs no more than was written anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from pyiceberg.manifest import DataFile

# Each is opened by every later run and by every query; if one per cent of the keys changes every night, the number of
# files is what decides, and a fold is an addition of a few per cent to what those nights wrote and read.
MOST_FILES = 64
# The night that folds takes longer, by this part of a first night or by one chunk; each chunk has its turn in eight.
_PART = 1 / 8


def chunks_to_fold(tables: Iterable[Mapping[int, Sequence[DataFile]]], chunks: int) -> frozenset[int]:
    """The most overweight first; `tables` are both tables' files by chunk."""
    weights: dict[int, float] = {}
    for table in tables:
        for number, files in table.items():
            weights[number] = max(weights.get(number, 0), _weight(files))
    due = sorted((number for number in weights if weights[number] >= 1), key=lambda number: (-weights[number], number))
    return frozenset(due[: ceil(chunks * _PART)])


def _weight(files: Sequence[DataFile]) -> float:
    """What there is besides the largest file, in terms of what is bearable."""
    rows = [file.record_count for file in files]
    return max(sum(rows) / max(rows) - 1, (len(files) - 1) / MOST_FILES)
