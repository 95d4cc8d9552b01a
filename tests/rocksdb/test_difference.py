"""Rows by which two snapshots of a database differ are found in the files that one of them alone has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.rocksdb import difference
from flinkstate.rocksdb.database import Database
from flinkstate.rocksdb.sst_file import SstFile
from tests.rocksdb import writing
from tests.rocksdb.test_merge import GROUPS, model, written
from tests.rocksdb.writing import DELETE, MERGE, SINGLE_DELETE, VALUE, Entry

Run = list[Entry]


def opened(runs: Sequence[tuple[int, Run]]) -> list[SstFile]:
    """A database with these runs, the newest first, each with its level; without the runs that have no entry."""
    some = [(level, run) for level, run in runs if run]
    if not some:
        return []
    files = writing.database([[run] for _, run in some], [level for level, _ in some])
    return list(Database(writing.stored(files), "the database").files("state", 1, 0, GROUPS))


def listed(
    new: Sequence[tuple[int, Run]], old: Sequence[tuple[int, Run]], both: Sequence[tuple[int, Run]] = ()
) -> list[bytes]:
    found = []
    lives = [table.live for table in opened(both)]
    for data, starts, ends in difference.differing_rows(opened(new), opened(old), lives, 1, 0, GROUPS):
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            assert int.from_bytes(data[start : start + 4].tobytes(), "big") == end - start - 4
            found.append(data[start + 4 : end].tobytes())
    assert found == sorted(set(found))
    return found


def compacted(entries: Run, *, lowest: bool) -> Run:
    """What RocksDB makes of entries: newest versions alone, and on the lowest level without numbers and deletions."""
    made: Run = []
    for key in sorted({entry[0] for entry in entries}):
        versions = sorted((one for one in entries if one[0] == key), key=lambda one: -one[1])
        operands = []
        for version in versions:
            operands.append(version)
            if version[2] != MERGE:
                break
        newest, last = operands[0], operands[-1]
        if len(operands) == 1 and last[2] in (DELETE, SINGLE_DELETE):
            made += [] if lowest else [last]
        elif last[2] == MERGE and not lowest:
            made += operands
        else:
            values = [one[3] for one in reversed(operands) if one[2] in (VALUE, MERGE)]
            made.append((key, 0 if lowest else newest[1], VALUE, b",".join(values)))
    return made


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Run], list[int]]:
    """Writes in runs from the oldest to the newest, and three places among them."""
    writes = draw(written(ranges=False))
    places = draw(st.lists(st.integers(0, len(writes)), max_size=6))
    runs = [writes[one:other] for one, other in pairwise(sorted({0, len(writes), *places}))]
    return runs, sorted(draw(st.integers(0, len(runs))) for _ in range(3))


def views(runs: list[Run], lowest: int, middle: int, earlier: int) -> tuple[list[tuple[int, Run]], ...]:
    """The runs of the later and the earlier snapshot and of both, the newest first.

    Between the two, runs before two of the places were compacted into the lowest level, and into another one.
    """

    def flat(some: list[Run]) -> Run:
        return [entry for run in some for entry in run]

    levels = [(6, compacted(flat(runs[:lowest]), lowest=True)), (1, compacted(flat(runs[lowest:middle]), lowest=False))]
    # What wasn't compacted and was there before is the same file in both.
    both = [(0, run) for run in runs[middle:earlier]]
    new = [*levels, *((0, run) for run in runs[max(middle, earlier) :])]
    old = [(0, run) for run in runs[: min(middle, earlier)]]
    return new[::-1], old[::-1], both[::-1]


@given(histories(), st.sampled_from([1, 1 << 18]), st.sampled_from([1, 3, 1 << 13]))
def test_no_row_that_changed_is_missed(history: tuple[list[Run], list[int]], size: int, rows: int) -> None:
    runs, (lowest, first, second) = history
    for middle, earlier in ((first, second), (second, first)):
        new, old, both = views(runs, lowest, middle, earlier)
        before, after = (model([entry for run in some for entry in run], 0, GROUPS) for some in (runs[:earlier], runs))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(difference, "_BUFFERS", size)
            patch.setattr(difference, "_KEYS", size)
            patch.setattr(difference, "_ROWS", rows)
            found = listed(new, old, both)
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        assert changed <= set(found)
        since = {entry[0] for run in runs[earlier:] for entry in run}
        moved = {entry[0] for run in runs for entry in run if entry[2] != VALUE}
        assert set(found) <= since | moved


def test_what_a_compaction_moves_has_not_changed() -> None:
    values: Run = [(b"\1" + bytes([key]), 10 + key, VALUE, b"v%d" % key) for key in range(100)]
    for number in (0, 1):
        lowest = [(key, number * sequence, kind, value) for key, sequence, kind, value in values]
        assert listed([(6, lowest)], [(0, values)]) == listed([(1, values)], [(6, lowest)]) == []
    newer = [(values[7][0], 500, VALUE, b"new"), (values[8][0], 501, DELETE, b"")]
    assert listed([(0, newer), (6, lowest)], [(0, values)]) == [values[7][0], values[8][0]]
    assert listed([(1, [newer[0], *values[9:]])], [(0, newer), (1, values)]) == [one[0] for one in values[:7]] + [
        values[8][0]
    ]


@pytest.mark.parametrize(
    ("new", "old", "is_listed"),
    [
        # Operands, and what is below them, must be the same.
        ([(9, MERGE, b"a"), (5, VALUE, b"b")], [(9, MERGE, b"a"), (5, VALUE, b"b"), (3, VALUE, b"c")], False),
        ([(9, MERGE, b"a"), (5, VALUE, b"b")], [(9, MERGE, b"a"), (5, VALUE, b"c")], True),
        ([(9, MERGE, b"a"), (5, VALUE, b"b")], [(8, MERGE, b"a"), (5, VALUE, b"b")], True),
        ([(9, MERGE, b"a")], [(9, MERGE, b"a"), (5, VALUE, b"b")], True),
        ([(9, MERGE, b"a"), (8, MERGE, b"b")], [(9, MERGE, b"a"), (8, MERGE, b"b")], False),
        ([(9, MERGE, b"a,b")], [(9, MERGE, b"a"), (8, MERGE, b"b")], True),
        # A deletion hides what is older.
        ([(9, DELETE, b"")], [(9, DELETE, b""), (5, VALUE, b"b")], False),
        ([(9, DELETE, b"")], [(9, SINGLE_DELETE, b""), (5, VALUE, b"b")], True),
        ([(9, DELETE, b"")], [(8, DELETE, b"")], True),
        # The same value, written again: an entry between the two would be hidden by one of them alone.
        ([(9, VALUE, b"a")], [(8, VALUE, b"a")], True),
        ([(9, VALUE, b"a")], [(9, VALUE, b"b")], True),
        ([(9, VALUE, b"a")], [], True),
        ([], [(9, DELETE, b"")], True),
        ([(0, VALUE, b"a")], [(9, VALUE, b"a"), (7, VALUE, b"b")], False),
        ([(0, VALUE, b"a")], [(9, VALUE, b"b"), (7, VALUE, b"a")], True),
    ],
)  # fmt: skip
def test_entries_of_a_key_are_compared_down_to_a_value(
    new: list[tuple[int, int, bytes]], old: list[tuple[int, int, bytes]], is_listed: bool
) -> None:
    """Also if each entry is in a run of its own, and between other keys."""
    key, others = b"\1k", [(b"\1a", 1, VALUE, b""), (b"\1z", 2, VALUE, b"")]
    one, other = ([(key, *entry) for entry in entries] for entries in (new, old))
    expected = [key] if is_listed else []
    assert listed([(0, one)], [(0, other)]) == expected
    assert listed([(0, [*one, *others])], [(0, [*other, *others])]) == expected
    apart = [[(0, [entry]) for entry in entries] + [(6, others)] for entries in (one, other)]
    assert listed(*apart) == expected


@pytest.mark.parametrize(
    ("common", "is_listed"),
    [
        ([(b"\1k", 10)], False),
        # Both have an entry that may be of the key, and that the number would hide.
        ([(b"\1k", 9)], True),
        ([(b"\1k", 3)], True),
        ([(b"\1a", 3), (b"\1z", 20)], True),
        ([(b"\1a", 3), (b"\1j", 20)], False),
        ([(b"\1l", 3), (b"\1z", 20)], False),
    ],
)
def test_a_number_that_is_gone_counts_only_if_nothing_else_may_be_as_old(
    common: list[tuple[bytes, int]], is_listed: bool
) -> None:
    key, value = b"\1k", b"v"
    both: Run = [(of, number, VALUE, b"common") for of, number in common]
    assert listed([(6, [(key, 0, VALUE, value)])], [(1, [(key, 9, VALUE, value)])], [(2, both)]) == [key] * is_listed
    assert listed([(1, [(key, 9, VALUE, value)])], [(6, [(key, 0, VALUE, value)])], [(2, both)]) == [key] * is_listed
    assert listed([(1, [(key, 9, VALUE, value)])], [(2, [(key, 9, VALUE, value)])], [(6, both)]) == []
