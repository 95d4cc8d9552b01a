"""Lengths behind keys and namespaces, as Flink's `CompositeKeySerializationUtils` writes them."""

from __future__ import annotations

import numpy as np

from stateferry.changes.upgrade.kryo_keys import are_equal, length_suffixes

LENGTHS = (0, 1, 255, 256, 257, 65_535, 65_536, 2**24 - 1, 2**24, 2**31 - 1)


def by_flink(length: int) -> bytes:
    out = bytearray()
    while True:
        out.append(length & 0xFF)
        length >>= 8
        if length == 0:
            return bytes(out)


def test_lengths_are_written_in_as_few_bytes_as_they_need() -> None:
    found, written = length_suffixes(np.array(LENGTHS)), [by_flink(length) for length in LENGTHS]
    assert found.data.tobytes() == b"".join(written)
    assert found.ends.tolist() == np.cumsum([*map(len, written)]).tolist()


def test_another_length_is_seen() -> None:
    suffixes = length_suffixes(np.array(LENGTHS))
    starts = np.append(0, suffixes.ends[:-1])
    assert are_equal(suffixes, suffixes.data, starts, suffixes.ends).all()
    assert not are_equal(suffixes, suffixes.data, starts, suffixes.ends - 1).any()
    for place in range(len(suffixes.data)):
        data = suffixes.data.copy()
        data[place] ^= 1
        found = are_equal(suffixes, data, starts, suffixes.ends)
        assert np.flatnonzero(~found).tolist() == [int(np.searchsorted(suffixes.ends, place, "right"))]
