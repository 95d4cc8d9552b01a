"""A database that hides rows from RocksDB, or shows it older ones, is refused. Real Flink says so of the same ones."""

from __future__ import annotations

import pytest

from flinkstate.errors import DamagedError
from tests.rocksdb.test_merge import scanned
from tests.rocksdb.visibility import WAYS, files_of

ROWS = {bytes([number // 50]) + b"key %03d" % number: b"value %d" % number for number in range(200)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("low", [0, 1])
def test_rows_that_rocksdb_would_not_find(way: str, low: int) -> None:
    red = WAYS[way].red
    expected = {key: value for key, value in ROWS.items() if key[0] >= low}
    if red is None:
        assert dict(scanned(files_of({"state": ROWS}, WAYS[way]), low, 4, 1 << 16, 500)) == expected
        return
    with pytest.raises(DamagedError, match=red):
        list(scanned(files_of({"state": ROWS}, WAYS[way]), low if "first one" not in way else 0, 4, 1 << 16, 500))
