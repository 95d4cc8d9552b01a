"""Rows that plain code has read, held against those of a scan; and which it reads."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from stateferry.proof.plain import plain_rows
from stateferry.proof.plain.plain_rocksdb import EVERYTHING, KeyRange
from stateferry.proof.plain.plain_rows import PlainRows, PlainRowsResult, _Expected, _rows, _words
from tests.support.sections import Rows

KEYS = [b"b", b"d", b"f", b"h"]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (EVERYTHING, KEYS),
        (KeyRange(b"\7d", None), KEYS[1:]),
        (KeyRange(b"\7d\0", None), KEYS[2:]),
        (KeyRange(b"\7a", b"\7f"), KEYS[:2]),
        (KeyRange(b"\7a", b"\7f\0"), KEYS[:3]),
        (KeyRange(b"\7c", b"\7d"), []),
        (KeyRange(b"\7z", None), []),
        (KeyRange(b"", b"\7b"), []),
    ],
)
@pytest.mark.parametrize("count", [4, 3])
def test_rows_of_a_section_in_a_range(keys: KeyRange, found: list[bytes], count: int) -> None:
    section: Any = Rows(7, 1, [(key, b"v" + key) for key in KEYS[:count]])
    assert list(_rows(section, keys)) == [(b"\7" + key, b"v" + key) for key in found if key in KEYS[:count]]


class File:
    """Stands for a file of a subtask whose three states are in its database; a fourth is not."""

    prefix, subtask, name, handle, stored_states = 1, 4, "file", None, 3

    def __init__(self) -> None:
        self.header = self
        self.states = [State(name) for name in ("one", "two", "three", "timers")]
        self.database = self
        self.families: dict[str, Any] = {}


class State:
    def __init__(self, name: str) -> None:
        self.name = name


class Database:
    """Has these sizes; a row of each state, and draws others."""

    sizes: dict[str, int]
    drawn: Sequence[tuple[KeyRange, dict[bytes, bytes]] | None]

    def __init__(self, *_: object) -> None:
        self.asked: list[KeyRange] = []
        Database.made = self

    made: Database

    def size(self, family: str, within: KeyRange) -> int:
        self.asked.append(within)
        return self.sizes[family]

    def rows(self, family: str, within: KeyRange) -> dict[bytes, bytes]:
        self.asked.append(within)
        return {b"\7" + family.encode(): b"v", b"\7z": b"w"}

    def draw(self, family: str, within: KeyRange, chance: Random) -> tuple[KeyRange, dict[bytes, bytes]] | None:
        self.asked.append(within)
        return KeyRange(b"\7", b"\7" + family.encode()), {b"\7" + family.encode(): b"v"}


def rows_of(
    monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int], groups: Sequence[int] = (3, 7), seed: int = 1
) -> PlainRows:
    Database.sizes = sizes
    monkeypatch.setattr(plain_rows, "PlainDatabase", Database)
    monkeypatch.setattr(plain_rows, "stored_files", lambda folder, handle: {})
    file: Any = File()
    folder: Any = None
    return PlainRows(folder, file, groups, seed)


SMALL = {"one": 1, "two": 1, "three": 1}


@pytest.mark.parametrize(
    ("groups", "within"),
    [
        ([3, 7], KeyRange(b"\3", b"\10")),
        ([0], KeyRange(b"\0", b"\1")),
        ([5, 254], KeyRange(b"\5", b"\xff")),
        ([5, 255], KeyRange(b"\5", None)),
    ],
)
def test_the_key_groups_of_a_chunk_are_read(
    monkeypatch: pytest.MonkeyPatch, groups: list[int], within: KeyRange
) -> None:
    rows = rows_of(monkeypatch, SMALL, groups)
    assert set(Database.made.asked) == {within}
    assert rows.result.rows == {"one": 2, "two": 2, "three": 2}
    assert rows.result.in_part == set()


def test_key_groups_of_two_bytes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(File, "prefix", 2)
    rows_of(monkeypatch, SMALL, [3, 300])
    assert set(Database.made.asked) == {KeyRange(b"\0\3", b"\1\x2d")}


def test_small_states_are_read_as_a_whole_while_their_sum_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 256 << 10
    rows = rows_of(monkeypatch, {"one": most, "two": 0, "three": most + 1})
    assert (rows.result.in_part, rows.result.rows) == ({"three"}, {"one": 2, "two": 2, "three": 2})
    assert [expected.keys for expected in rows._expected[2]] == [KeyRange(b"\7", b"\7three")] * 2
    parts = [
        rows_of(monkeypatch, {"one": most, "two": 1, "three": most - 1}, seed=seed).result.in_part for seed in range(20)
    ]
    # Whichever comes first, in an order by chance.
    assert {frozenset(part) for part in parts} == {frozenset({"one"}), frozenset({"two", "three"})}


def test_of_many_large_states_some_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_rows, "_MOST_STATES", 2)
    rows = rows_of(monkeypatch, dict.fromkeys(SMALL, 1 << 30))
    assert rows.result.in_part == set(SMALL)
    assert sorted(rows.result.rows.values()) == [0, 2, 2]
    monkeypatch.setattr(Database, "draw", lambda *_: None)
    rows = rows_of(monkeypatch, dict.fromkeys(SMALL, 1 << 30))
    assert rows.result.rows == dict.fromkeys(SMALL, 0)
    assert all(not ranges for ranges in rows._expected.values())


def section_of(state: int, *pairs: tuple[bytes, bytes]) -> Any:
    section: Any = Rows(7, 1, pairs)
    section.state = state
    return section


def with_expected(monkeypatch: pytest.MonkeyPatch) -> PlainRows:
    rows = rows_of(monkeypatch, SMALL)
    rows._expected = {
        1: [
            _Expected(KeyRange(b"\7a", b"\7c"), {b"\7a": b"1", b"\7b": b"2"}),
            _Expected(KeyRange(b"\7d", None), {b"\7d": b"4"}),
        ]
    }
    return rows


def test_the_same_rows_are_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = with_expected(monkeypatch)
    for _ in range(2):
        rows.see(section_of(1, (b"a", b"1"), (b"b", b"2"), (b"c", b"outside"), (b"d", b"4")))
        rows.see(section_of(2, (b"a", b"of another state")))
        rows.see(section_of(3, (b"a", b"a timer")))
    rows.end()
    assert rows.result.different == {}


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        (((b"a", b"9"), (b"b", b"2"), (b"d", b"4")), "key 0761: expected 1 bytes 31, found 1 bytes 39"),
        (((b"a", b"1"), (b"aa", b""), (b"b", b"2"), (b"d", b"4")), "key 076161: expected no row, found 0 bytes "),
        (((b"a", b"1"), (b"b", b"2")), "key 0764: expected 1 bytes 34, found no row"),
        (((b"b", b"2"), (b"d", b"5")), "key 0764: expected 1 bytes 34, found 1 bytes 35"),
    ],
)
def test_other_rows_are_named(
    monkeypatch: pytest.MonkeyPatch, pairs: tuple[tuple[bytes, bytes], ...], told: str
) -> None:
    rows = with_expected(monkeypatch)
    rows.see(section_of(1, *pairs))
    rows.end()
    # Of a key group, the first one that was found.
    assert rows.result.different == {7: f"subtask 4, state two, {told}"}


def test_long_keys_and_values_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = with_expected(monkeypatch)
    rows.see(section_of(1, (b"a" * 50, b"v" * 50)))
    (text,) = rows.result.different.values()
    assert f"key 07{'61' * 39}: " in text
    assert text.endswith(f"found 50 bytes {'76' * 40}")
    assert (_words(None), _words(b"")) == ("no row", "0 bytes ")


def test_results_of_chunks_are_added() -> None:
    one = PlainRowsResult({"a": 1}, {"x"}, {1: "text"})
    one.add(PlainRowsResult({"a": 2, "b": 3}, {"y"}, {2: "other"}))
    assert one == PlainRowsResult({"a": 3, "b": 3}, {"x", "y"}, {1: "text", 2: "other"})
