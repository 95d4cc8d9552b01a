"""Which elements of operator state an upgrade lost, and of which nobody can tell; the bytes are those of HashMaps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.types import KryoRegistration, KryoType, Scalar, TupleType
from stateferry.changes.counts import LossCounts
from stateferry.changes.upgrade.lost_elements import (
    BroadcastEntries,
    ElementLosses,
    broadcast_entries,
    of_broadcast,
    of_list,
)
from stateferry.changes.upgrade.lost_entries import Fate

MAP = KryoType("java.util.HashMap", "by Kryo", (KryoRegistration("java.util.HashMap"),))


def _map(names: str, *, five: bool) -> bytes:
    """A map from each of the letters, twice, to 1; `-` is an empty one."""
    letters = names.strip("-")
    entries = (b"\x03\x01" + name.encode() + bytes([ord(name) | 0x80]) + b"\x09\x02" for name in letters)
    return b"\x57\x01" + bytes([len(letters) + five]) + b"".join(entries)


def _listed(old: str, now: str) -> tuple[list[tuple[int | None, list[str], str]], LossCounts]:
    """What was lost of lists of such maps: the element, its entries, and the last words of why nobody can tell."""
    counts = LossCounts()
    found = of_list(
        MAP,
        [_map(names, five=False) for names in old.split()],
        [_map(names, five=True) if names != "null" else b"\0" for names in now.split()],
        counts,
    )
    return [(one.number, _names(one, Fate.LOST), (one.why_not or "")[-12:]) for one in found], counts


def _names(found: ElementLosses, fate: Fate) -> list[str]:
    return [one.key.value[0] for one in found.losses if one.key is not None and one.fate is fate]


@pytest.mark.parametrize(
    ("old", "now", "expected", "unread"),
    [
        ("ab cd", "a c", [(1, ["b"], ""), (2, ["d"], "")], 0),
        # In whatever order, with elements that the job has added.
        ("ab cd", "xy c a", [(1, ["b"], ""), (2, ["d"], "")], 0),
        # What Flink 2 reads of the one is as the other was.
        ("ab abc", "a ab", [(1, ["b"], ""), (2, ["c"], "")], 0),
        # A job that has misread nothing.
        ("ab abc", "ab abc", [], 2),
        ("ab cd ef", "ab cd", [(3, [], "have no keys")], 2),
        ("ab", "ax", [(1, [], "have no keys")], 0),
        ("ab", "", [(1, [], "have no keys")], 0),
        ("ab cd", "ab c", [(1, [], "have no keys"), (2, [], "have no keys")], 0),
        # Equal ones: any of them.
        ("ab ab cd", "a c", [(1, ["b"], ""), (2, [], "have no keys"), (3, ["d"], "")], 0),
        # Of two that are read alike one is gone.
        ("ab ac de", "a d", [(1, [], "n tell which"), (2, [], "n tell which"), (3, ["e"], "")], 0),
        ("ab ac", "a a", [(1, ["b"], ""), (2, ["c"], "")], 0),
        ("a", "-", [(1, ["a"], "")], 0),
        ("a", "null", [(1, [], "have no keys")], 0),
    ],
)
def test_lists(old: str, now: str, expected: list[tuple[int, list[str], str]], unread: int) -> None:
    found, counts = _listed(old, now)
    assert found == expected
    assert counts.rows == len(old.split())
    assert counts.untold == sum(bool(why) for _, _, why in expected)
    assert counts.lost == sum(len(names) for _, names, _ in expected)
    assert counts.misread == sum(bool(names) for _, names, _ in expected)
    assert counts.unread == unread


def _broadcast(five: bool, **maps: str) -> BroadcastEntries:
    return {repr(key): (key, _map(names, five=five)) for key, names in maps.items()}


def test_a_broadcast_state() -> None:
    for now, expected, counted in (
        (_broadcast(True, k="a"), {Fate.LOST: ["b"]}, LossCounts(rows=1, found=1, agreeing=1, lost=1)),
        (_broadcast(True, k="ac"), {Fate.LOST: ["b"]}, LossCounts(rows=1, found=1, agreeing=1, lost=1)),
        (_broadcast(True, k="ab"), {}, LossCounts(rows=1, found=1, agreeing=1, unread=1)),
        (
            _broadcast(True, k="bc"),
            {Fate.REMOVED: ["a"]},
            LossCounts(rows=1, found=1, agreeing=1, unread=1, removed=1),
        ),
        (_broadcast(True, z="a"), {Fate.GONE: ["b"], Fate.REMOVED: ["a"]}, LossCounts(rows=1, gone=1, removed=1)),
    ):
        counts = LossCounts()
        found = of_broadcast(MAP, _broadcast(False, k="ab"), now, counts)
        assert {fate: names for fate in Fate for one in found if (names := _names(one, fate))} == expected
        assert counts == counted


def test_behind_an_entry_that_flink_2_reads_otherwise_it_finds_no_other() -> None:
    with pytest.raises(RefusedError, match="can't have started from it"):
        of_broadcast(MAP, _broadcast(False, k="ab", l="c"), _broadcast(True, k="a"), LossCounts())


def test_of_other_types_nobody_can_tell() -> None:
    type_ = TupleType((Scalar.LONG, MAP), "org.apache.flink.api.java.tuple.Tuple2")
    old, same = (bytes(8) + _map(names, five=False) for names in ("ab", "cd"))
    whole = bytes(8) + _map("cd", five=True)
    counts = LossCounts()
    (found,) = of_list(type_, [old, same], [whole], counts)
    assert found.number == 1
    assert found.why_not == "what Flink 2 reads of a Tuple2<Long,HashMap> isn't known"
    assert (counts.untold, counts.unread) == (1, 1)


def test_the_entries_of_a_broadcast_state() -> None:
    data = b"\0\0\0\1" + bytes(7) + b"\7" + _map("ab", five=True)
    by_5 = replace(MAP, five=True)
    assert broadcast_entries(Scalar.LONG, by_5, data) == {"7": (7, _map("ab", five=True))}
    with pytest.raises(DamagedError, match="the end of a broadcast state"):
        broadcast_entries(Scalar.LONG, by_5, data + b"\0")
