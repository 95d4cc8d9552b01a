"""What the validation makes of the rows of a section: positions, keys and hashes, and damage where it is."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import numpy as np
import pytest

from flinkstate.errors import DamagedError
from flinkstate.hashing.key_groups import assign_to_key_group
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import FlinkType, MapType, Scalar
from flinkstate.ttl import StateTtlConfig
from flinkstate.values.hash_codes import hash_code
from stateferry.changes.rules import PlannedTtl
from stateferry.proof.expected.aging_content import aging_entries
from stateferry.proof.expected.content import (
    Account,
    AccountsByState,
    Entries,
    KeySpans,
    blob_entries,
    hash_ranges,
    hashes_of_keys,
    map_rows,
    plain_entries,
    timestamps_at,
)
from tests.support.encoded import long, text
from tests.support.sections import Rows

VOID = Scalar.VOID_NAMESPACE


def state_of(
    kind: StateKind = StateKind.MAP, *, key: FlinkType = Scalar.STRING, namespace: FlinkType = VOID, ttl: bool = False
) -> KeyedState:
    return KeyedState("state", kind, key, namespace, Scalar.STRING, Scalar.LONG, ttl, False)


def hashes_of(parts: list[bytes], seeds: Any = None) -> list[int]:
    ends = np.cumsum([0, *map(len, parts)])
    data = np.frombuffer(b"".join(parts) + b"\0", np.uint8)
    found: list[int] = hash_ranges(data, ends[:-1].copy(), ends[1:].copy(), seeds).tolist()
    return found


def groups_of(rows: Rows) -> Any:
    return np.arange(len(rows), dtype=np.int64) + 3


def parts(entries: Entries, starts: str, ends: str, owners: Any = None) -> list[bytes]:
    """The bytes between two of its positions, of each entry or of its owner."""
    one, other = getattr(entries, starts), getattr(entries, ends)
    if owners is not None:
        one, other = one[owners], other[owners]
    return [entries.data[start:end].tobytes() for start, end in zip(one, other, strict=True)]


# Accounts.


def account(size: int, **cells: tuple[int, int]) -> Account:
    made = Account.of(size)
    for name, (count, total) in cells.items():
        made.counts[int(name[1:])], made.sums[int(name[1:])] = count, total
    return made


def cells_of(made: Account) -> tuple[list[int], list[int]]:
    return made.counts.tolist(), made.sums.tolist()


def test_accounts_differ_by_number_or_sum() -> None:
    one = account(4, g0=(1, 5), g1=(2, 7), g3=(0, 9))
    other = account(4, g0=(1, 5), g1=(3, 7), g2=(0, 1), g3=(0, 9))
    assert one.differences(other).tolist() == other.differences(one).tolist() == [1, 2]


def test_an_account_takes_another_one_of_more_or_fewer_key_groups() -> None:
    one = account(3, g0=(1, 2**64 - 1), g2=(0, 4))
    one.take(account(9, g0=(2, 3), g2=(-1, 0)))
    one.take(account(1, g0=(0, 1)))
    one.take(account(20))
    assert cells_of(one) == ([3, 0, -1], [3, 0, 4])
    with pytest.raises(ValueError, match="an account of 4 key groups where there are 3"):
        one.take(account(9, g3=(1, 1)))
    with pytest.raises(ValueError, match="an account of 5 key groups where there are 3"):
        one.take(account(9, g4=(0, 1)))
    assert cells_of(one.resized(5)) == ([3, 0, -1, 0, 0], [3, 0, 4, 0, 0])


def test_an_account_is_pickled_without_empty_key_groups() -> None:
    for made in (account(9, g1=(1, 0), g4=(0, 7), g8=(-1, 2)), account(3)):
        assert cells_of(pickle.loads(pickle.dumps(made))) == cells_of(made)
    assert len(pickle.dumps(account(30_000, g7=(1, 1)))) < 1000


def test_accounts_of_states_are_kept_apart() -> None:
    accounts = AccountsByState(4)
    accounts.of("a").counts[1] = 7
    accounts.take({"a": account(4, g1=(1, 0)), "b": account(4, g2=(2, 0))})
    assert {name: made.counts.tolist() for name, made in accounts.accounts.items()} == {
        "a": [0, 8, 0, 0],
        "b": [0, 0, 2, 0],
    }


# Any state.


@pytest.mark.parametrize("prefix", [1, 2])
def test_plain_entries_are_keys_and_values_as_they_are(prefix: int) -> None:
    pairs = [(b"one", b"1"), (b"", b"22"), (b"three", b"")]
    rows: Any = Rows(9, prefix, pairs)
    found = plain_entries(rows, groups_of(rows))
    assert len(found) == 3
    assert parts(found, "key_starts", "key_ends", found.owners) == [key for key, _ in pairs]
    assert parts(found, "user_starts", "user_ends") == [b""] * 3
    assert parts(found, "value_starts", "value_ends") == [value for _, value in pairs]
    assert found.keys.tolist() == found.pairs.tolist() == hashes_of([key for key, _ in pairs])
    assert (found.groups.tolist(), found.nulls.tolist(), len(found.null), len(found.stamps)) == (
        [3, 4, 5],
        [0] * 3,
        0,
        0,
    )


@pytest.mark.parametrize("prefix", [1, 2])
def test_the_hash_of_a_key_with_its_user_key(prefix: int) -> None:
    keys = [text(key) + b"\0" + text(user_key) for key in ("a", "bc") for user_key in ("x", "y")]
    rows: Any = Rows(9, prefix, [(key, b"value") for key in keys])
    assert hashes_of_keys(rows).tolist() == hashes_of(keys)


def test_the_hash_of_an_entry_depends_on_all_its_parts() -> None:
    seen = set()
    for group, key, value in ((1, b"a", b"b"), (2, b"a", b"b"), (1, b"ab", b"b"), (1, b"a", b"bb")):
        rows: Any = Rows(9, 1, [(key, value)])
        seen.add(int(plain_entries(rows, np.array([group])).hashes()[0]))
    assert len(seen) == 4


@pytest.mark.parametrize("kind", [StateKind.MAP, StateKind.VALUE, StateKind.TIMERS])
def test_neighbours_with_the_same_key_are_one_span(kind: StateKind) -> None:
    before = bytes(8) if kind is StateKind.TIMERS else b""
    keys = [text(key) for key in ("a", "a", "b", "a", "long", "long", "long")]
    rows: Any = Rows(9, 2, [(before + key + b"\0" + bytes([at]), b"v") for at, key in enumerate(keys)])
    state = state_of(kind)
    spans = KeySpans.of(rows, state)
    assert spans.sizes.tolist() == [2, 1, 1, 3]
    found = [rows.data[start:end].tobytes() for start, end in zip(spans.starts, spans.ends, strict=True)]
    assert found == [keys[0], keys[2], keys[3], keys[4]]
    assert spans.per_entry(np.array([5, 6, 7, 8])).tolist() == [5, 5, 6, 7, 8, 8, 8]
    wanted = [assign_to_key_group(hash_code(Scalar.STRING, key) or 0, 300) for key in ("a", "b", "a", "long")]
    assert spans.groups(rows, state, 300).tolist() == wanted


# Rows of map states.


@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize("namespace", [VOID, Scalar.LONG, Scalar.STRING])
@pytest.mark.parametrize("with_spans", [False, True])
def test_rows_of_a_map(ttl: bool, namespace: FlinkType, with_spans: bool) -> None:
    state = state_of(namespace=namespace, ttl=ttl)

    def key_of(key: str, window: str) -> bytes:
        if namespace is VOID:
            return text(key) + b"\0"
        if namespace is Scalar.LONG:
            return text(key) + long(len(window))
        return text(key) + bytes([len(text(key))]) + text(window) + bytes([len(text(window))])

    keys = [key_of("a", "w"), key_of("a", "w"), key_of("a", "www"), key_of("b", "w")]
    user_keys = [text(one) for one in ("x", "y", "x", "")]
    nulls, values = [0, 1, 0, 1], [long(5), b"", long(7), b"\0\0"]
    pairs = [
        (key + user_key, bytes([null]) + (long(at - 2) if ttl else b"") + value)
        for at, (key, user_key, null, value) in enumerate(zip(keys, user_keys, nulls, values, strict=True))
    ]
    rows: Any = Rows(9, 1, pairs)
    spans = KeySpans.of(rows, state) if with_spans else None
    found = map_rows(rows, state, groups_of(rows), spans)
    assert parts(found, "key_starts", "key_ends", found.owners) == keys
    assert parts(found, "user_starts", "user_ends") == user_keys
    # Bytes behind the flag of a null count only under time to live, where the flag says nothing.
    assert parts(found, "value_starts", "value_ends") == [*values[:3], b"\0\0" if ttl else b""]
    assert (found.value_ends - found.value_starts).tolist() == [8, 0, 8, 2 if ttl else 0]
    assert found.keys.tolist() == hashes_of(keys)
    assert found.pairs.tolist() == hashes_of(user_keys, found.keys)
    assert found.nulls.tolist() == nulls
    assert found.groups.tolist() == [3, 4, 5, 6]
    assert found.stamps.tolist() == ([-2, -1, 0, 1] if ttl else [])
    assert len(found.null) == 0


@pytest.mark.parametrize(
    ("ttl", "key", "value", "expected", "found", "at"),
    [
        (False, text("a") + b"\0", b"", "a map entry's value of at least 1 bytes", "0", "value"),
        (True, text("a") + b"\0", bytes(8), "a map entry's value of at least 9 bytes", "8", "value"),
        (False, text("a") + b"\0", b"\2" + long(5), "a map entry's null flag 0 or 1", "2", "value"),
        (False, text("a"), b"\0" + long(5), "a namespace behind the key", "the end", "key end"),
    ],
)
def test_a_damaged_row_is_named(ttl: bool, key: bytes, value: bytes, expected: str, found: str, at: str) -> None:
    good = (text("b") + b"\0" + text("x"), b"\0" + (long(1) if ttl else b"") + long(5))
    rows: Any = Rows(9, 1, [good, (key, value), (key, value)])
    with pytest.raises(DamagedError) as caught:
        map_rows(rows, state_of(ttl=ttl), groups_of(rows))
    place = rows.value_starts[1] if at == "value" else rows.key_ends[1]
    assert (caught.value.expected, caught.value.found, caught.value.offset) == (expected, found, int(place))


def test_the_shortest_rows_are_whole() -> None:
    for ttl, value in ((False, b"\1"), (True, b"\1" + bytes(8))):
        rows: Any = Rows(9, 1, [(text("a") + b"\0", value)])
        assert map_rows(rows, state_of(ttl=ttl), groups_of(rows)).nulls.tolist() == [1]


# Blobs.

MAP = MapType(Scalar.STRING, Scalar.LONG)


def blob(entries: list[tuple[str, int | None]], stamp: int | None) -> bytes:
    body = b"".join(text(key) + (b"\1" if value is None else b"\0" + long(value)) for key, value in entries)
    return (b"" if stamp is None else long(stamp)) + struct.pack(">i", len(entries)) + body


@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize("null", [None, long(0)])
def test_entries_of_blobs(ttl: bool, null: bytes | None) -> None:
    maps: list[list[tuple[str, int | None]]] = [[("x", 5), ("y", None)], [], [("x", 7)]]
    keys = [text(key) + b"\0" for key in ("a", "b", "c")]
    rows: Any = Rows(
        9, 1, [(key, blob(of, at if ttl else None)) for at, (key, of) in enumerate(zip(keys, maps, strict=True))]
    )
    found = blob_entries(rows, MAP, ttl, null, groups_of(rows))
    entries = found.entries
    assert found.counts.tolist() == [2, 0, 1]
    assert found.keys.tolist() == hashes_of(keys)
    assert found.stamps.tolist() == ([0, 1, 2] if ttl else [])
    assert found.nulls.tolist() == [False, True, False]
    assert found.per_entry(np.array([True, True, False])).tolist() == [True, True, False]
    assert parts(entries, "key_starts", "key_ends", entries.owners) == [keys[0], keys[0], keys[2]]
    assert parts(entries, "user_starts", "user_ends") == [text("x"), text("y"), text("x")]
    assert parts(entries, "value_starts", "value_ends") == [long(5), b"", long(7)]
    # Under time to live, a null has the bytes that the serializer writes for it.
    assert entries.nulls.tolist() == [0, 2 if ttl else 1, 0]
    assert entries.null.tobytes() == (null or b"")
    assert entries.groups.tolist() == [3, 3, 5]
    assert entries.stamps.tolist() == ([0, 0, 2] if ttl else [])
    assert entries.keys.tolist() == hashes_of([keys[0], keys[0], keys[2]])
    assert entries.pairs.tolist() == hashes_of([text("x"), text("y"), text("x")], entries.keys)


def test_bytes_behind_a_map_are_damage() -> None:
    rows: Any = Rows(9, 1, [(text("a"), blob([("x", 5)], None)), (text("b"), blob([], None) + b"abc")])
    with pytest.raises(DamagedError) as caught:
        blob_entries(rows, MAP, False, None, groups_of(rows))
    assert (caught.value.expected, caught.value.found) == ("the end of the map", "3 more bytes")
    assert caught.value.offset == int(rows.value_starts[1]) + 4


def test_a_timestamp_has_eight_bytes() -> None:
    data = np.frombuffer(b"xy" + long(-5) + long(2**40), np.uint8)
    starts = np.array([2, 10])
    assert timestamps_at(data, starts, np.array([10, 18])).tolist() == [-5, 2**40]
    with pytest.raises(DamagedError) as caught:
        timestamps_at(data, starts, np.array([10, 17]))
    assert (caught.value.expected, caught.value.found) == ("a timestamp of 8 bytes", "7 bytes")
    assert caught.value.offset == 10


# States that lose what has expired.

NOW, TTL = 1_000, 100


def told(kind: StateKind) -> PlannedTtl:
    return PlannedTtl(state_of(kind, ttl=True), StateTtlConfig(TTL), NOW)


@pytest.mark.parametrize("kind", [StateKind.VALUE, StateKind.MAP])
def test_values_and_map_entries_expire_by_their_timestamp(kind: StateKind) -> None:
    flag = b"\0" if kind is StateKind.MAP else b""
    stamps = [NOW - TTL - 1, NOW - TTL, NOW - TTL + 1, NOW]
    rows: Any = Rows(9, 1, [(bytes([at]), flag + long(stamp) + long(7)) for at, stamp in enumerate(stamps)])
    found = aging_entries(rows, told(kind), groups_of(rows))
    plain = plain_entries(rows, groups_of(rows))
    assert found.living.tolist() == [False, False, True, True]
    assert found.entries.hashes().tolist() == plain.hashes().tolist()
    assert (found.keys.tolist(), found.empty) == (plain.keys.tolist(), 0)


def element(stamp: int, value: int) -> bytes:
    return long(stamp) + long(value)


def list_of(*elements: bytes) -> bytes:
    return b",".join(elements)


def sums_of(rows: Any) -> tuple[list[int], list[bool]]:
    found = aging_entries(rows, told(StateKind.LIST), groups_of(rows))
    return found.entries.hashes()[found.living].tolist(), found.living.tolist()


def test_a_list_counts_by_its_elements() -> None:
    old, one, two = element(NOW - TTL, 1), element(NOW, 1), element(NOW + 1, 2)
    pairs = [(b"a", list_of(old, one, two)), (b"b", b""), (b"c", list_of(one)), (b"d", list_of(old)), (b"e", b"")]
    rows: Any = Rows(9, 1, pairs)
    found = aging_entries(rows, told(StateKind.LIST), groups_of(rows))
    entries = found.entries
    assert (found.living.tolist(), found.empty) == ([False, True, True, True, False], 2)
    assert found.keys.tolist() == hashes_of([key for key, _ in pairs])
    assert parts(entries, "value_starts", "value_ends") == [old, one, two, one, old]
    assert parts(entries, "key_starts", "key_ends", entries.owners) == [b"a", b"a", b"a", b"c", b"d"]
    assert entries.groups.tolist() == [3, 3, 3, 5, 6]
    assert entries.keys.tolist() == hashes_of([b"a", b"a", b"a", b"c", b"d"])
    assert parts(entries, "user_starts", "user_ends") == [b""] * 5
    # The first living element of each list has the first place.
    places = (entries.pairs - entries.keys)[found.living]
    assert places.tolist() == [0, 0x9E3779B97F4A7C15, 0]


def test_elements_in_another_order_are_other_content() -> None:
    old, one, two = element(NOW - TTL, 1), element(NOW, 1), element(NOW + 1, 2)

    def total(*values: bytes) -> int:
        rows: Any = Rows(9, 1, [(b"%d" % at, value) for at, value in enumerate(values)])
        return sum(sums_of(rows)[0]) % 2**64

    assert total(list_of(old, one, two), b"") == total(list_of(one, two), b"") == total(list_of(one, old, two), b"")
    others = [total(list_of(two, one), b""), total(list_of(one), list_of(two)), total(list_of(one, two, two), b"")]
    assert len({total(list_of(one, two), b""), *others}) == 4


def test_a_section_of_empty_lists_has_no_elements() -> None:
    rows: Any = Rows(9, 1, [(b"a", b""), (b"b", b"")])
    found = aging_entries(rows, told(StateKind.LIST), groups_of(rows))
    assert (len(found.entries), found.empty) == (0, 2)


def test_bytes_behind_a_list_are_damage() -> None:
    """A delimiter without an element behind it, or another byte in its place."""
    for wrong, behind in ((b"x", 0), (b",", 1)):
        rows: Any = Rows(9, 1, [(b"a", element(NOW, 1)), (b"b", element(NOW, 1) + wrong)])
        with pytest.raises(DamagedError) as caught:
            aging_entries(rows, told(StateKind.LIST), groups_of(rows))
        assert caught.value.offset is not None
        assert caught.value.offset >= int(rows.value_starts[1]) + 16 + behind - 1
