"""What a task collects of entries: accounts, slices of a probe, or the entries themselves."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import MapType, Scalar
from flinkstate.ttl import StateTtlConfig
from flinkstate.values.codecs import encode
from flinkstate.values.hash_codes import key_group_of
from stateferry.changes.rules import PlannedTtl, Rules
from stateferry.proof.expected.content import Entries, KeySpans, plain_entries
from stateferry.proof.expected.conversion import OperatorConversion
from stateferry.proof.keyed_check import KeyedResult, Probe, Side, _Accounts, _ChunkReading, _Probed, _Slices, slices_of
from tests.support.sections import Rows

RESULT = KeyedResult("operator", Side.SOURCE, 0, None)
LEGACY = KeyedState(
    "old",
    StateKind.VALUE,
    Scalar.STRING,
    Scalar.VOID_NAMESPACE,
    None,
    MapType(Scalar.STRING, Scalar.LONG),
    False,
    False,
)
RULES = Rules(LEGACY, "new", "flag", None, 0)
CONVERSION = OperatorConversion((RULES,), {"old": LEGACY}, False, 8, 8)


@pytest.fixture
def entries() -> Entries:
    """Entries of the key groups 3 to 6."""
    rows: Any = Rows(9, 1, [(b"key %d" % number, b"value") for number in range(4)])
    return plain_entries(rows, np.arange(3, 7))


def flags(*chosen: bool) -> Any:
    return np.array(chosen, np.bool_)


def filled(sink: Any) -> KeyedResult:
    result = replace(RESULT)
    sink.fill(result)
    return result


def test_the_slice_of_a_hash_is_its_first_bits() -> None:
    pairs = np.array([0, 1 << 62, 3 << 62, (1 << 64) - 1], np.uint64)
    for bits, slices in ((1, [0, 0, 1, 1]), (2, [0, 1, 3, 3]), (3, [0, 2, 6, 7])):
        assert slices_of(pairs, bits).tolist() == slices


def test_accounts_have_what_was_added_and_not_withdrawn(entries: Entries) -> None:
    sink = _Accounts(8)
    sink.add("s", entries, flags(True, True, True, False))
    sink.leave_out("s", entries, flags(True, True, True, True), "why")
    sink.withdraw("s", entries, flags(True, False, False, False), "why")
    account = filled(sink).accounts["s"]
    assert account.counts.tolist() == [0, 0, 0, 0, 1, 1, 0, 0]
    assert account.sums.tolist()[4:6] == entries.hashes().tolist()[1:3]


def test_slices_have_entries_of_the_state_and_key_groups_of_the_probe(entries: Entries) -> None:
    sink, every = _Slices(Probe("s", (3, 4, 5), 2)), flags(True, True, True, True)
    sink.add("s", entries, flags(True, True, False, True))
    sink.add("other", entries, every)
    sink.leave_out("s", entries, every, "why")
    account = filled(sink).slices
    assert account is not None
    expected = np.bincount(slices_of(entries.pairs, 2)[:2], minlength=4)
    assert account.counts.tolist() == expected.tolist()
    assert int(account.sums.sum()) == int(entries.hashes()[:2].sum())
    sink.withdraw("other", entries, every, "why")
    sink.withdraw("s", entries, flags(True, True, False, True), "why")
    assert not account.counts.any()
    assert not account.sums.any()


def names(sink: Any) -> list[tuple[str, str | None]]:
    return [(entry.name, entry.why) for entry in filled(sink).entries]


def name_of(number: int) -> str:
    return f"key 0x{(b'key %d' % number).hex()}"


def test_entries_of_the_probed_slices_are_described(entries: Entries) -> None:
    own = slices_of(entries.pairs, 16).tolist()
    probe = Probe("s", (3, 4, 6), 16, slices=(own[0], own[1], own[2]))
    sink, every = _Probed(probe, CONVERSION), flags(True, True, True, True)
    sink.add("s", entries, every)
    sink.add("other", entries, every)
    assert names(sink) == [(name_of(0), None), (name_of(1), None)]
    sink.withdraw("s", entries, flags(False, True, False, False), "withdrawn")
    sink.leave_out("s", entries, flags(True, False, False, False), "left out")
    assert names(sink) == [(name_of(0), None), (name_of(1), "withdrawn"), (name_of(0), "left out")]
    hashes = entries.hashes().tolist()
    assert [entry.hash for entry in filled(sink).entries] == [hashes[0], hashes[1], hashes[0]]


def test_of_strays_ten_are_enough(entries: Entries) -> None:
    sink = _Probed(Probe("s", (3, 4), strays=True), CONVERSION)
    for _ in range(6):
        sink.add("s", entries, flags(True, True, True, True))
    assert len(names(sink)) == 10


def counted(rules: Rules) -> dict[str, Counter[int]]:
    reading = object.__new__(_ChunkReading)
    reading._expired = {}
    for _ in range(2):
        reading._count_expired("new", 5, np.array([899, 900, 901]), rules)
    return reading._expired


def test_expired_entries_are_counted_if_they_should_be_gone() -> None:
    rules = replace(RULES, ttl=100, now=1000)
    assert counted(rules) == {"new": Counter({5: 4})}
    assert counted(replace(rules, keep_expired=True)) == {}
    assert counted(replace(rules, ttl=None)) == {}


# States that lose what has expired.


def told_of(kind: StateKind) -> PlannedTtl:
    user_key = Scalar.STRING if kind is StateKind.MAP else None
    state = KeyedState("s", kind, Scalar.STRING, Scalar.VOID_NAMESPACE, user_key, Scalar.LONG, True, False)
    return PlannedTtl(state, StateTtlConfig(100), 1000)


def reading_of(probe: Probe | None, **settings: Any) -> Any:
    reading = object.__new__(_ChunkReading)
    task: Any = SimpleNamespace(probe=probe, conversion=replace(CONVERSION, keep_legacy=True))
    reading._task, reading._expired, reading._strays, reading._new_states = task, {}, {}, {}
    for name, value in settings.items():
        setattr(reading, name, value)
    return reading


@pytest.mark.parametrize("probe", [None, Probe("s", (9,), 1), Probe("s", (9,), strays=True)])
def test_of_a_list_that_ages_elements_are_compared_and_rows_stray(probe: Probe | None) -> None:
    """An element of a list has no key of its own; what strays is the row."""
    one, old = (struct.pack(">qq", stamp, 5) for stamp in (950, 900))
    rows: Any = Rows(9, 1, [(b"a", b",".join([one, old, one])), (b"b", b""), (b"c", one)])
    reading = reading_of(probe, _aging={"s": told_of(StateKind.LIST)})
    for _ in range(2):
        entries, keys = reading._staged_entries("s", rows, None)
    of_rows = probe is not None and probe.strays
    assert len(entries) == (3 if of_rows else 4)
    # What has expired, and lists without elements.
    assert reading._expired == ({} if of_rows else {"s": Counter({9: 4})})
    assert keys.tolist() == plain_entries(rows, np.full(3, 9)).keys.tolist()
    assert set(entries.groups.tolist()) == {9}


class Sink:
    def __init__(self) -> None:
        self.added: list[tuple[str, list[bool]]] = []

    def add(self, state: str, entries: object, chosen: Any) -> None:
        self.added.append((state, chosen.tolist()))


@pytest.mark.parametrize("probe", [None, Probe("old", (1,), 1), Probe("old", (1,), strays=True)])
def test_keys_of_other_key_groups_are_counted(probe: Probe | None) -> None:
    groups = {key: key_group_of(Scalar.STRING, key, 8) for key in "abcdef"}
    own, other = "a", next(key for key in "bcdef" if groups[key] != groups["a"])
    keys = [text + b"\0" for text in (encode(Scalar.STRING, key) for key in (own, other, own, other))]
    rows: Any = Rows(groups[own] or 0, 1, [(key, b"v") for key in keys])
    sink = Sink()
    reading = reading_of(probe, _sink=sink)
    entries = plain_entries(rows, np.full(4, groups[own]))
    for _ in range(2):
        reading._check_keys("old", rows, entries, KeySpans.of(rows, LEGACY), None)
    assert reading._strays == {"old": Counter({groups[own]: 4})}
    wanted = probe is not None and probe.strays
    assert sink.added == ([("old", [False, True, False, True])] * 2 if wanted else [])
    right: Any = Rows(groups[own] or 0, 1, [(keys[0], b"v")])
    reading._check_keys("new", right, entries, KeySpans.of(right, LEGACY), None)
    assert reading._strays.keys() == {"old"}
