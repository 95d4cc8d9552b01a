"""What a task collects of entries: accounts, slices of a probe, or the entries themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stateferry.migration.rules import Rules
from stateferry.savepoint.state import KeyedState, StateKind
from stateferry.serializers.types import MapType, Scalar
from stateferry.validation.content import Entries, plain_entries
from stateferry.validation.conversion import OperatorConversion
from stateferry.validation.keyed_check import KeyedResult, Probe, Side, _Accounts, _Probed, _Reading, _Slices, slices_of
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
    reading = object.__new__(_Reading)
    reading._expired = {}
    for _ in range(2):
        reading._count_expired("new", 5, np.array([899, 900, 901]), rules)
    return reading._expired


def test_expired_entries_are_counted_if_they_should_be_gone() -> None:
    rules = replace(RULES, ttl=100, now=1000)
    assert counted(rules) == {"new": Counter({5: 4})}
    assert counted(replace(rules, keep_expired=True)) == {}
    assert counted(replace(rules, ttl=None)) == {}
