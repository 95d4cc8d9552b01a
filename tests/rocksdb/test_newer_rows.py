"""What brings rows of a state to what they should be, against plain code."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from flinkstate.rocksdb.newer_rows import newer_rows
from flinkstate.rocksdb.pending_rows import PendingRows

Rows = dict[bytes, bytes]


def pending(rows: Rows) -> PendingRows:
    made = PendingRows()
    parts = [struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value for key, value in rows.items()]
    if parts:
        made.add(np.frombuffer(b"".join(parts), np.uint8))
    return made


def found(wanted: Rows, there: Rows) -> list[tuple[bytes, bytes | None]]:
    """The rows of a newer file: key and value, or None for a deletion."""
    rows = newer_rows(pending(wanted), pending(there))
    assert rows.deleted is not None
    out = []
    for place, row in enumerate(rows.order[: rows.count].tolist()):
        value = rows.data[rows.key_ends[row] + 4 : rows.ends[row]].tobytes()
        assert not rows.deleted[row] or value == b""
        out.append((rows.key(place), None if rows.deleted[row] else value))
    return out


def plain(wanted: Rows, there: Rows) -> list[tuple[bytes, bytes | None]]:
    keys = sorted(wanted.keys() | there.keys())
    return [(key, wanted.get(key)) for key in keys if wanted.get(key) != there.get(key)]


@pytest.mark.parametrize("seed", range(20))
def test_only_what_differs_is_written(seed: int) -> None:
    chosen = random.Random(seed)

    def rows(count: int) -> Rows:
        # Keys that begin with one another, and values of which one is empty.
        keys = [b"k" * chosen.randrange(1, 4) + chosen.randbytes(chosen.randrange(3)) for _ in range(count)]
        return {key: chosen.choice((b"", b"a", b"ab", b"b" * 300)) for key in keys}

    there = rows(chosen.randrange(60))
    wanted = {key: value for key, value in there.items() if chosen.random() < 0.7} | rows(chosen.randrange(20))
    assert found(wanted, there) == plain(wanted, there)


def test_nothing_differs() -> None:
    assert found({b"k": b"v"}, {b"k": b"v"}) == []
    assert found({}, {}) == []
    assert found({}, {b"k": b"v"}) == [(b"k", None)]
    assert found({b"k": b""}, {}) == [(b"k", b"")]
