"""What brings the rows of a state to what they should be: rows that are new or other, deletions of those that went."""

from __future__ import annotations

import numpy as np

from flinkstate.basics.array_types import Positions
from flinkstate.rocksdb import kernels
from flinkstate.rocksdb.pending_rows import PendingRows
from flinkstate.rocksdb.write_kernels import SLACK
from flinkstate.rocksdb.write_sst_file import SortedRows


def newer_rows(wanted: PendingRows, there: PendingRows) -> SortedRows:
    """Returns the rows of a newer file, behind which a reader finds the wanted rows instead of those that are there."""
    new, old = wanted.in_order(), there.in_order()
    rows, is_old = np.zeros(new.count + old.count, np.int64), np.zeros(new.count + old.count, np.bool_)
    count = kernels.newer(
        new.data, new.starts, new.key_ends, new.ends, new.order, new.count,
        old.data, old.starts, old.key_ends, old.ends, old.order, old.count, rows, is_old,
    )  # fmt: skip
    rows, is_old = rows[:count], is_old[:count]
    data = np.concatenate((new.data[: wanted.bytes], old.data[: there.bytes], np.zeros(SLACK, np.uint8)))

    def placed(mine: Positions, others: Positions) -> Positions:
        return np.where(is_old, others[rows * is_old] + wanted.bytes, mine[rows * ~is_old])

    key_ends = placed(new.key_ends, old.key_ends)
    # A deletion has no value.
    ends = np.where(is_old, key_ends + 4, placed(new.ends, old.ends))
    return SortedRows(data, placed(new.starts, old.starts), key_ends, ends, np.arange(count), int(count), is_old)
