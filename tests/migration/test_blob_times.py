"""The timestamps of blobs, as a multiset that blobs come into and go from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.files.storage import Location
from stateferry.basics.state_ref import StateRef
from stateferry.inventory import blob_times
from stateferry.inventory.blob_times import BlobTimes, read_blob_times, write_blob_times

Blob = tuple[int, int]
_STAMPS = st.sampled_from([-(2**63), -1, 0, 1, 1_700_000_000_000, 2**63 - 1])
_BLOBS = st.lists(st.tuples(_STAMPS, st.sampled_from([0, 1, 255, 256, 70_000])), max_size=12)


def times_of(blobs: Iterable[Blob], at_once: int = 3) -> BlobTimes:
    times, listed = BlobTimes(), list(blobs)
    for first in range(0, len(listed), at_once):
        part = np.array(listed[first : first + at_once], np.int64)
        times.note(part[:, 0], part[:, 1])
    return times


def blobs_of(times: BlobTimes) -> Counter[Blob]:
    timestamps, entries = times.joined()
    return Counter(zip(timestamps.tolist(), entries.tolist(), strict=True))


@given(_BLOBS, _BLOBS, _BLOBS)
def test_what_goes_leaves_the_others(kept: list[Blob], gone: list[Blob], found: list[Blob]) -> None:
    left = times_of([*kept, *gone]).without(times_of(gone))
    assert left is not None
    left.add(times_of(found))
    assert left.complete
    assert blobs_of(left) == Counter([*kept, *found])
    assert left.sum() == times_of(reversed([*kept, *found])).sum()


@given(_BLOBS, st.tuples(_STAMPS, st.sampled_from([2, 257])))
def test_what_is_not_there_can_not_go(blobs: list[Blob], other: Blob) -> None:
    assert times_of(blobs).without(times_of([*blobs[:1], other])) is None


def test_another_timestamp_or_number_of_entries_has_another_sum() -> None:
    sums = {times_of(blobs).sum() for blobs in ([(5, 1), (6, 2)], [(5, 2), (6, 1)], [(5, 1), (7, 2)], [(5, 1)])}
    assert len(sums) == 4


def test_of_too_many_blobs_none_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_times, "_MOST", 3)
    times = times_of([(1, 1)] * 3)
    assert times.complete
    times.add(times_of([(1, 1)]))
    times.add(times_of([(1, 1)]))
    assert (times.complete, len(times)) == (False, 0)


@given(states=st.dictionaries(st.text("ab/\u00fc ", min_size=1), _BLOBS, max_size=3))
def test_files_have_what_was_written(states: dict[str, list[Blob]], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = Location.of(str(tmp_path_factory.mktemp("times"))).child("file")
    write_blob_times(file, {StateRef("ab", name): times_of(blobs) for name, blobs in states.items()})
    found = read_blob_times(file)
    assert found is not None
    assert {state.state: blobs_of(times) for state, times in found.items()} == {
        name: Counter(blobs) for name, blobs in states.items()
    }


@pytest.mark.parametrize("size", [0, 10, 16, -1])
def test_a_file_that_is_cut_short_is_none(size: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_blob_times(Location.of(str(path)), {StateRef("ab", "one"): times_of([(1, 1)])})
    path.write_bytes(path.read_bytes()[:size])
    assert read_blob_times(Location.of(str(path))) is None
