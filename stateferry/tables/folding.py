"""Chooses the chunks that a run folds: writes as a whole, in place of the files that earlier runs have left.

It uses only the numbers of rows in the files, which are known without reading them. The largest file of a chunk is from
its first run or its last fold, so it has about as many rows as are current. Rows in later files replace rows or are
new. A chunk is folded when the later files have as many rows as the largest. In the long run a fold costs no more than
was written anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from pyiceberg.manifest import DataFile

# Every later run and every query opens all files. If one per cent of the keys changes each night, this limit decides; a
# fold then adds a few per cent to what those nights write and read.
MOST_FILES = 64
# The most chunks that one run folds, as a share of all (at least one), which takes about this part of a first night.
_PART = 1 / 8


def chunks_to_fold(tables: Iterable[Mapping[int, Sequence[DataFile]]], chunks: int) -> frozenset[int]:
    """Returns the chunks to fold, those with the most to gain first; `tables` are both tables' files by chunk."""
    weights: dict[int, float] = {}
    for table in tables:
        for number, files in table.items():
            weights[number] = max(weights.get(number, 0), _weight(files))
    due = sorted((number for number in weights if weights[number] >= 1), key=lambda number: (-weights[number], number))
    return frozenset(due[: ceil(chunks * _PART)])


def _weight(files: Sequence[DataFile]) -> float:
    """Returns how much there is besides the largest file; from 1 on the chunk is due."""
    rows = [file.record_count for file in files]
    return max(sum(rows) / max(rows) - 1, (len(files) - 1) / MOST_FILES)
