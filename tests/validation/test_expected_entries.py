"""What must become of key groups of a source, in small: rows, blobs and flags of a few keys, by every rule."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flinkstate.errors import DamagedError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.metadata import InlineBytes, Operator, Subtask
from flinkstate.serializers.types import MapType, OptionType, Scalar, ScalaType
from flinkstate.ttl import StateTtlConfig
from flinkstate.values.hash_codes import key_group_of
from flinkstate.writing.operator_rewrite import Layout
from stateferry.changes.lazy_cut import LazyCut, Order
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Contradiction, LegacyRest, Nulls, PlannedTtl, Rules
from stateferry.inventory.blob_times import blob_sum
from stateferry.proof.expected.content import Account, AccountsByState, Entries, blob_entries, map_rows, plain_entries
from stateferry.proof.expected.expected_blobs import ExpectedBlobs, _Keys, hash_blobs
from stateferry.proof.expected.expected_entries import ExpectedEntries, _moved
from stateferry.proof.plain.plain_lazy_cut import is_moved
from stateferry.proof.plain.plain_pojos import without_map
from tests.support.changes import back, changes_of
from tests.support.encoded import text
from tests.support.sections import Rows
from tests.validation.test_plain_pojos import BODY, named
from tests.validation.test_plain_pojos import TYPE as POJOS

GROUP, NOW, TTL, ALIVE, EXPIRED = 9, 1000, 100, 950, 900
VOID = Scalar.VOID_NAMESPACE
Pairs = list[tuple[bytes, bytes]]


def stamped(stamp: int | None) -> bytes:
    return b"" if stamp is None else struct.pack(">q", stamp)


def blob(key: str, entries: Mapping[str, int | None], stamp: int | None = None) -> tuple[bytes, bytes]:
    body = b"".join(
        text(name) + (b"\1" if value is None else b"\0" + struct.pack(">q", value)) for name, value in entries.items()
    )
    return text(key) + b"\0", stamped(stamp) + struct.pack(">i", len(entries)) + body


def row(key: str, name: str, value: int | None, stamp: int | None = None) -> tuple[bytes, bytes]:
    written = b"" if value is None else struct.pack(">q", value)
    return text(key) + b"\0" + text(name), (b"\1" if value is None else b"\0") + stamped(stamp) + written


def flag(key: str, is_set: bool, stamp: int | None = None) -> tuple[bytes, bytes]:
    return text(key) + b"\0", stamped(stamp) + (b"\1" if is_set else b"\0")


def rules_of(*, ttl: bool = False, **settings: Any) -> Rules:
    legacy = KeyedState(
        "old", StateKind.VALUE, Scalar.STRING, VOID, None, MapType(Scalar.STRING, Scalar.LONG), ttl, False
    )
    return replace(Rules(legacy, "new", "flag", TTL if ttl else None, NOW), **settings)


def value_state(name: str, *, ttl: bool = False) -> KeyedState:
    return KeyedState(name, StateKind.VALUE, Scalar.STRING, VOID, None, Scalar.BOOLEAN, ttl, False)


class Group:
    """A key group in which each state's rows are one section."""

    def __init__(self, states: Sequence[KeyedState], rows: Mapping[str, Pairs]) -> None:
        self.states = states
        self._rows = rows

    def __iter__(self) -> Iterator[tuple[KeyedState, Any]]:
        for state in self.states:
            if self._rows.get(state.name):
                yield state, Rows(GROUP, 1, self._rows[state.name])


class Sink:
    """Accounts of what was added, and how many entries were left out or withdrawn for each reason."""

    def __init__(self) -> None:
        self.accounts = AccountsByState(128)
        self.why: dict[tuple[str, str], int] = {}

    def add(self, state: str, entries: Entries, chosen: Any) -> None:
        self.accounts.of(state).add(entries.groups, entries.hashes(), chosen)

    def leave_out(self, state: str, entries: Entries, chosen: Any, why: str) -> None:
        self.why[state, why] = self.why.get((state, why), 0) + int(chosen.sum())

    def withdraw(self, state: str, entries: Entries, chosen: Any, why: str) -> None:
        self.accounts.of(state).take_off(entries.groups, entries.hashes(), chosen)
        self.leave_out(state, entries, chosen, why)


def cells(account: Account) -> tuple[list[int], list[int]]:
    return account.counts.tolist(), account.sums.tolist()


def content(state: KeyedState, pairs: Pairs, *, is_map: bool) -> Account:
    account = Account.of(128)
    if pairs:
        rows: Any = Rows(GROUP, 1, pairs)
        groups = np.full(len(pairs), GROUP)
        entries = map_rows(rows, state, groups) if is_map else plain_entries(rows, groups)
        account.add(groups, entries.hashes(), np.ones(len(pairs), np.bool_))
    return account


def read(
    rules: Rules, rows: Mapping[str, Pairs], *, keep: bool = False, carries: bool = True, flag_ttl: bool = False
) -> tuple[Sink, dict[str, int]]:
    """What a sink got, and the counts that aren't 0."""
    states = [rules.legacy, rules.new, value_state("flag", ttl=flag_ttl), value_state("other")]
    rules = replace(rules, keep_legacy=keep)
    conversion = changes_of((rules,), {one.name: one for one in states}, 128, 128)
    sink, group = Sink(), Group(states, rows)
    expected = ExpectedEntries(conversion, sink)
    expected.read(group, carries=carries)  # type: ignore[arg-type]
    counts = expected.counts["new"]
    return sink, {one.name: getattr(counts, one.name) for one in fields(counts) if getattr(counts, one.name)}


def assert_content(sink: Sink, rules: Rules, expected: Mapping[str, Pairs], flag_ttl: bool = False) -> None:
    states = {one.name: one for one in (rules.legacy, value_state("flag", ttl=flag_ttl), value_state("other"))}
    for name in ("new", "old", "flag", "other"):
        state = rules.new if name == "new" else states[name]
        wanted = content(state, expected.get(name, []), is_map=name == "new")
        assert cells(sink.accounts.of(name)) == cells(wanted), name


# Without time to live.

SOURCE: dict[str, Pairs] = {
    "old": [
        blob("a", {"x": 5, "y": None}), blob("b", {"x": 5, "y": 6}), blob("c", {"x": 5, "y": None}),
        blob("d", {"x": 1}), blob("f", {}), blob("g", {"y": None}),
    ],
    "new": [row("b", "x", 7), row("c", "z", 9), row("e", "x", 2), row("g", "y", 3)],
    "flag": [flag("c", True), flag("d", False), flag("e", True), flag("f", True)],
    "other": [flag("a", True), flag("z", False)],
}  # fmt: skip
ALWAYS = [row("a", "x", 5), row("b", "x", 7), row("b", "y", 6), row("d", "x", 1), row("e", "x", 2), row("g", "y", 3)]
A_NULL, C_ROW = row("a", "y", None), row("c", "z", 9)
COUNTS = {"blob_entries": 8, "rows": 4, "blob_entries_superseded": 2, "contradictions": 2}


@pytest.mark.parametrize(
    ("settings", "rows", "counts"),
    [
        ({}, [A_NULL, C_ROW], {"blob_entries_of_flagged_keys": 2}),
        ({"on_contradiction": Contradiction.ROWS}, [A_NULL, C_ROW], {"blob_entries_of_flagged_keys": 2}),
        (
            {"on_contradiction": Contradiction.BLOB},
            [A_NULL, row("c", "x", 5), row("c", "y", None)],
            {"rows_replaced": 1},
        ),
        ({"nulls": Nulls.DROP}, [C_ROW], {"blob_entries_of_flagged_keys": 2, "nulls_left_out": 1}),
        (
            {"nulls": Nulls.DROP, "on_contradiction": Contradiction.BLOB},
            [row("c", "x", 5)],
            {"rows_replaced": 1, "nulls_left_out": 2},
        ),
        ({"nulls": Nulls.KEEP}, [A_NULL, C_ROW], {"blob_entries_of_flagged_keys": 2}),
    ],
)
def test_what_becomes_of_keys(settings: dict[str, Any], rows: Pairs, counts: dict[str, int]) -> None:
    rules = rules_of(**settings)
    sink, found = read(rules, SOURCE)
    assert_content(sink, rules, {"new": [*ALWAYS, *rows], "other": SOURCE["other"]})
    assert found == {**COUNTS, **counts}
    sink, _ = read(rules, SOURCE, keep=True)
    assert_content(sink, rules, {**SOURCE, "new": [*ALWAYS, *rows]})
    sink, _ = read(rules, SOURCE, keep=True, carries=False)
    assert_content(sink, rules, {"new": [*ALWAYS, *rows]})


def test_entries_are_left_out_and_withdrawn_for_a_reason() -> None:
    sink, _ = read(rules_of(nulls=Nulls.DROP), SOURCE)
    found = {why: count for (_, why), count in sink.why.items() if count}
    assert found == {
        "a null that the new state can't hold": 3,
        "superseded by a row": 1,
        "the key is flagged as migrated": 1,
    }
    sink, _ = read(rules_of(on_contradiction=Contradiction.BLOB), SOURCE)
    assert sink.why["new", "replaced by the key's blob"] == 1


def test_what_a_key_has_in_each_state_is_sampled() -> None:
    rules, seen = rules_of(), list[tuple[str, list[int]]]()
    sample: Any = SimpleNamespace(see=lambda state, section, keys: seen.append((state, keys.tolist())))
    states = [rules.legacy, rules.new, value_state("flag"), value_state("other")]
    conversion = changes_of((rules,), {one.name: one for one in states}, 128, 128)
    group: Any = Group(states, {**SOURCE, "new": [row("a", "x", 7)], "old": [blob("a", {"x": 5}), blob("b", {})]})
    for samples in ({"new": sample}, {}):
        ExpectedEntries(conversion, Sink(), samples).read(group)
    flags: Any = Rows(GROUP, 1, SOURCE["flag"])
    of_flags = plain_entries(flags, np.full(len(flags), GROUP)).keys.tolist()
    assert dict(seen).keys() == {"old", "new", "flag"}
    assert len(seen) == 3
    assert (dict(seen)["flag"], dict(seen)["old"][:1]) == (of_flags, dict(seen)["new"])


# With time to live.

AGED: dict[str, Pairs] = {
    "old": [
        blob("a", {"x": 5, "y": None}, ALIVE), blob("b", {"x": 5}, EXPIRED), blob("c", {"x": 5, "y": 6}, ALIVE),
        blob("d", {"x": 5}, ALIVE), blob("e", {"x": 5}, ALIVE), blob("f", {"x": 5}, EXPIRED),
    ],
    "new": [row("b", "x", 7, ALIVE), row("c", "x", 7, EXPIRED), row("d", "z", 9, ALIVE)],
    "flag": [flag("d", True, ALIVE), flag("e", True, EXPIRED), flag("f", True, ALIVE)],
}  # fmt: skip
SUM = blob_sum(np.array([ALIVE, EXPIRED, ALIVE, ALIVE, ALIVE, EXPIRED]), np.array([2, 1, 2, 1, 1, 1]))
AGED_COUNTS = {"blob_entries": 8, "rows": 3, "blob_sum": SUM, "nulls_left_out": 1}


@pytest.mark.parametrize(
    ("settings", "rows", "counts"),
    [
        (
            {},
            [row("c", "x", 5, ALIVE), row("c", "y", 6, ALIVE), row("d", "z", 9, ALIVE), row("e", "x", 5, ALIVE)],
            {"blob_entries_expired": 2, "rows_expired": 1, "contradictions": 1, "blob_entries_of_flagged_keys": 1},
        ),
        (
            {"on_contradiction": Contradiction.BLOB},
            [row("c", "x", 5, ALIVE), row("c", "y", 6, ALIVE), row("d", "x", 5, ALIVE), row("e", "x", 5, ALIVE)],
            {"blob_entries_expired": 2, "rows_expired": 1, "contradictions": 1, "rows_replaced": 1},
        ),
        (
            {"keep_expired": True},
            [row("c", "x", 7, EXPIRED), row("c", "y", 6, ALIVE), row("d", "z", 9, ALIVE)],
            {"contradictions": 3, "blob_entries_of_flagged_keys": 3, "blob_entries_superseded": 2},
        ),
    ],
)
def test_what_becomes_of_keys_with_time_to_live(settings: dict[str, Any], rows: Pairs, counts: dict[str, int]) -> None:
    rules = rules_of(ttl=True, **settings)
    sink, found = read(rules, AGED, flag_ttl=True)
    assert_content(sink, rules, {"new": [row("a", "x", 5, ALIVE), row("b", "x", 7, ALIVE), *rows]}, flag_ttl=True)
    assert found == {**AGED_COUNTS, **counts}
    expired = counts.get("blob_entries_expired", 0) + counts.get("rows_expired", 0)
    assert sink.why["new", "expired"] == expired


# A lazy run.

LAZY: dict[str, Pairs] = {
    "old": [blob(key, {"x": 5, "y": None}) for key in "abcd"],
    "new": [row("d", "x", 7)],
    "flag": [flag("b", False), flag("c", True)],
}


def lazy(is_all: bool, **settings: Any) -> Rules:
    cut = LazyCut(Order.HASH, 2**64 - 1 if is_all else 0, value_state("flag"))
    return rules_of(lazy_cut=cut, **settings)


@pytest.mark.parametrize("prefix", [1, 2])
@pytest.mark.parametrize("order", list(Order))
def test_the_keys_that_are_moved_are_those_of_plain_code(order: Order, prefix: int) -> None:
    pairs = [blob(f"key {at}", dict.fromkeys("abcdefgh"[: at % 8], 5)) for at in range(40)]
    rows: Any = Rows(GROUP, prefix, pairs)
    starts, sizes = rows.key_starts + prefix, rows.ends - rows.value_starts
    ranks = np.sort(order.ranks(rows.data, starts, rows.key_ends, sizes))
    cut = LazyCut(order, int(ranks[20]), value_state("flag"))
    moved = [is_moved(cut, key, value) for key, value in pairs]
    assert sum(moved) == 21
    assert _moved(cut, rows).tolist() == moved


def test_the_result_of_a_lazy_run_is_read_as_a_source_whose_keys_are_all_moved() -> None:
    rules = replace(lazy(False), keep_legacy=True)
    states = {one.name: one for one in (rules.legacy, value_state("other"))}
    every = {**states, "flag": value_state("flag"), "new": rules.new}
    told = PlannedTtl(value_state("other"), StateTtlConfig(TTL), NOW, drops=True)
    conversion = changes_of((rules,), states, 64, 128, ttls=(told,))
    assert conversion.of_staged() == changes_of((rules_of(),), every)


def test_keys_that_are_all_moved() -> None:
    rules = lazy(True)
    sink, counts = read(rules, LAZY)
    moved = [row(key, name, value) for key in "ab" for name, value in (("x", 5), ("y", None))]
    flags = [flag(key, True) for key in "abcd"]
    assert_content(sink, rules, {"new": [*moved, row("d", "x", 7), row("d", "y", None)], "flag": flags})
    assert counts == {
        "blob_entries": 8, "rows": 1, "contradictions": 1, "blob_entries_superseded": 1, "blobs": 4,
        "blob_entries_of_flagged_keys": 2, "blobs_moved": 4, "flags": 2, "flags_replaced": 1, "flags_set": 3,
    }  # fmt: skip


def test_keys_of_which_none_is_moved() -> None:
    """But the blob of a flagged key goes."""
    rules = lazy(False)
    sink, counts = read(rules, LAZY)
    left = [pair for pair in LAZY["old"] if pair[0] != text("c") + b"\0"]
    assert_content(sink, rules, {"new": [row("d", "x", 7)], "old": left, "flag": LAZY["flag"]})
    assert counts == {
        "blob_entries": 8, "rows": 1, "contradictions": 1, "blob_entries_of_flagged_keys": 2, "blobs": 4,
        "blobs_moved": 1, "blob_entries_left": 6, "flags": 2,
    }  # fmt: skip


def test_a_flagged_key_that_is_not_chosen_is_moved_if_its_blob_counts() -> None:
    rules = lazy(False, on_contradiction=Contradiction.BLOB, nulls=Nulls.DROP)
    sink, counts = read(rules, LAZY)
    left = [pair for pair in LAZY["old"] if pair[0] != text("c") + b"\0"]
    assert_content(sink, rules, {"new": [row("d", "x", 7), row("c", "x", 5)], "old": left, "flag": LAZY["flag"]})
    assert (counts["nulls_left_out"], counts["blobs_moved"], counts["blob_entries_left"]) == (1, 1, 6)


@pytest.mark.parametrize("ttl", [False, True])
def test_the_flag_that_is_set_has_the_timestamp_of_the_blob(ttl: bool) -> None:
    """Without time to live, that of the run."""
    alive, old = (ALIVE, EXPIRED) if ttl else (None, None)
    rules = rules_of(ttl=ttl, lazy_cut=LazyCut(Order.HASH, 2**64 - 1, value_state("flag", ttl=True)))
    source = {"old": [blob("a", {"x": 5}, alive), blob("b", {"x": 6}, alive), blob("c", {"x": 7, "y": 8}, old)]}
    sink, counts = read(rules, source, flag_ttl=True)
    keys = "ab" if ttl else "abc"
    flags = [flag(key, True, ALIVE if ttl else NOW) for key in keys]
    assert cells(sink.accounts.of("flag")) == cells(content(value_state("flag", ttl=True), flags, is_map=False))
    assert (counts["blobs"], counts["flags_set"], counts.get("blobs_expired", 0)) == (3, len(keys), int(ttl))
    found = {key: count for key, count in sink.why.items() if count}
    assert found == {("old", "the key is moved"): len(keys)} | (
        {("old", "expired"): 1, ("new", "expired"): 2} if ttl else {}
    )


def test_entries_of_keys_that_stay_are_left_out() -> None:
    sink, _ = read(lazy(False), {"old": LAZY["old"][:1]})
    assert {key: count for key, count in sink.why.items() if count} == {("new", "the key is not moved"): 2}


def test_a_flag_without_its_value_is_damage() -> None:
    with pytest.raises(DamagedError) as caught:
        read(rules_of(), {"old": [blob("a", {})], "flag": [(text("a") + b"\0", b"")]})
    assert (caught.value.expected, caught.value.found) == ("a Boolean", "its end")


def test_a_key_that_is_in_a_wrong_key_group_of_the_source_is_damage() -> None:
    """Where keys get other key groups: those that are right can't be told from those that have moved."""
    rules = rules_of()
    states = {one.name: one for one in (rules.legacy, rules.new)}
    expected = ExpectedEntries(changes_of((rules,), states, 128, 300), Sink())
    group: Any = Group(list(states.values()), {"old": [blob("a", {"x": 5})]})
    own = key_group_of(Scalar.STRING, "a", 128)
    with pytest.raises(DamagedError) as caught:
        expected.read(group)
    assert caught.value.expected == f"keys whose hash leads to key group {GROUP} of 128"
    assert caught.value.found == f"a key of old whose hash leads to {own}"


def test_where_keys_that_were_scala_s_must_be_follows_from_the_hash_that_they_get() -> None:
    """Where they are doesn't follow from any that is known."""
    state, sink = value_state("s"), Sink()
    scala = replace(state, key=ScalaType.of(OptionType(Scalar.STRING), Scalar.STRING))
    changes = changes_of((), {"s": state}, by_kryo={"s": scala})
    assert (changes.rehashes, changes.changes_key_groups) == (True, True)
    assert changes.expected_states["s"].key is Scalar.STRING
    group: Any = Group([state], {"s": [(text("a") + b"\0", b"\1")]})
    ExpectedEntries(changes, sink).read(group)
    assert sink.accounts.of("s").counts.nonzero()[0].tolist() == [key_group_of(Scalar.STRING, "a", 128)]


# POJOs without their maps.


@pytest.mark.parametrize("ttl", [False, True])
def test_what_is_left_of_pojos(ttl: bool) -> None:
    """As plain code makes it. The first is no POJO, and the second has none in its field."""
    legacy = KeyedState("old", StateKind.VALUE, Scalar.STRING, VOID, None, POJOS, ttl, False)
    rules = replace(rules_of(ttl=ttl, rest=LegacyRest.KEEP), legacy=legacy)
    pojos = ["01", "02 01 00 07", f"02 {BODY}", f"02 {BODY}", f"08 00 02 {BODY} 00 08", f"{named('a.City')} 02 {BODY}"]
    stamps: list[int | None] = [ALIVE, ALIVE, ALIVE, EXPIRED, NOW, ALIVE] if ttl else [None] * len(pojos)
    pairs = [
        (text("k" * at) + b"\0", stamped(stamp) + bytes.fromhex(pojo))
        for at, (pojo, stamp) in enumerate(zip(pojos, stamps, strict=True))
    ]
    sink, counts = read(rules, {"old": pairs})
    left = [(key, without_map(POJOS, value, 8 if ttl else 0)) for key, value in pairs]
    if ttl:
        del left[stamps.index(EXPIRED)]
    assert cells(sink.accounts.of("old")) == cells(content(legacy, left, is_map=False))
    assert counts["blob_entries"] == 4
    assert sink.why["old", "expired"] == int(ttl)
    assert cells(read(replace(rules, rest=LegacyRest.DROP), {"old": pairs})[0].accounts.of("old")) == cells(
        Account.of(128)
    )


# States that lose what has expired.


def test_a_state_that_ages_counts_without_what_has_expired() -> None:
    state = value_state("s", ttl=True)
    told = PlannedTtl(state, StateTtlConfig(TTL), NOW, drops=True)
    conversion = changes_of((), {"s": state}, 128, 128, ttls=(told,))
    sink = Sink()
    expected = ExpectedEntries(conversion, sink)
    pairs = [flag("a", True, ALIVE), flag("b", True, EXPIRED), flag("c", True, ALIVE)]
    for _ in range(2):
        expected.read(Group([state], {"s": pairs}))  # type: ignore[arg-type]
    assert (expected.aging["s"].entries, expected.aging["s"].expired) == (6, 2)
    assert cells(sink.accounts.of("s")) == cells(content(state, [pairs[0], pairs[2]] * 2, is_map=False))
    assert sink.why == {("s", "expired"): 2}


@pytest.mark.parametrize(
    ("rules", "behind"),
    [
        (rules_of(), {"old", "flag"}),
        (rules_of(flag_name=None), {"old"}),
        (back(rules_of()), {"new", "flag"}),
        (rules_of(rest=LegacyRest.KEEP), set()),
        (rules_of(rest=LegacyRest.DROP), {"old", "flag"}),
        (rules_of(lazy_cut=LazyCut(Order.HASH, 5, value_state("flag"))), set()),
    ],
    ids=["forth", "without a flag", "back", "rest", "no rest", "lazy"],
)
def test_which_states_the_new_savepoint_does_not_have(rules: Rules, behind: set[str]) -> None:
    states = {one.name: one for one in (rules.legacy, rules.new, value_state("flag"), value_state("other"))}
    conversion = changes_of((rules,), states, 128, 128)
    assert conversion.left_behind == behind
    assert conversion.pojos_without_maps == ({"old"} if rules.rest is LegacyRest.KEEP else set())
    assert set(conversion.expected_states) == states.keys() - behind
    assert replace(conversion, rules=(replace(rules, keep_legacy=True),)).left_behind == set()


def test_an_operator_of_which_nothing_is_asked_changes_with_the_layout_alone() -> None:
    state = value_state("s", ttl=True)
    source: Any = SimpleNamespace(keyed_states=lambda operator: [state])
    operator = Operator(bytes(16), 1, 128)
    told = PlannedTtl(state, StateTtlConfig(TTL), NOW)
    changes = OperatorChanges.none(source, operator, Layout(max_parallelism=300))
    assert changes == changes_of((), {"s": state}, 128, 300)
    assert (changes.by_kryo, changes.elements, changes.before, changes.changes_key_groups) == ({}, {}, None, True)
    # What is only counted stays.
    assert replace(changes, ttls=(told,)).aging == {}
    assert not OperatorChanges.none(source, operator).changes_key_groups


def test_a_task_gets_no_more_than_its_key_groups_need() -> None:
    range_ = KeyGroupRange(3, 5)
    own: Any = ("before", range_)
    before: Any = SimpleNamespace(of_key_groups=lambda key_groups: ("before", key_groups))
    changes = changes_of((rules_of(),), {}, by_kryo={"s": value_state("s")})
    subtasks, coordinator = (Subtask(0), Subtask(1)), InlineBytes("a name", b"its state")
    operator = replace(changes.operator, subtasks=subtasks, coordinator=coordinator)
    whole = replace(changes, operator=operator, before=before)
    assert whole.of_key_groups(range_) == replace(changes, before=own)
    assert replace(whole, before=None).of_key_groups(range_) == changes


# In reverse.


def test_an_operator_is_converted_in_reverse_where_a_rule_says_so() -> None:
    one, other = rules_of(), back(rules_of())
    made = KeyedState("new", StateKind.MAP, Scalar.STRING, VOID, Scalar.STRING, Scalar.LONG, False, False)
    assert changes_of((one,), {}, 128, 128).made == {"new": made}
    assert changes_of((other,), {}, 128, 128).made == {"old": other.legacy}


@pytest.mark.parametrize("ttl", [False, True])
def test_rows_become_blobs(ttl: bool) -> None:
    one, two, old = (stamp if ttl else None for stamp in (ALIVE, ALIVE + 5, EXPIRED))
    rules = back(rules_of(ttl=ttl))
    rows = [row("a", "x", 5, one), row("a", "y", 6, two), row("b", "x", 7, one), row("a", "z", 8, old)]
    source = {"new": rows, "other": [flag("q", True)], "old": [blob("k", {}, one), blob("l", {}, one)]}
    states = [rules.new, rules.legacy, value_state("other")]
    conversion = changes_of((rules,), {one.name: one for one in states}, 128, 128)
    sink = Sink()
    expected = ExpectedBlobs(conversion, sink)
    expected.read(Group(states, source))  # type: ignore[arg-type]
    of_a = {"x": 5, "y": 6} if ttl else {"x": 5, "y": 6, "z": 8}
    made: Any = Rows(GROUP, 1, [blob("a", of_a, two), blob("b", {"x": 7}, one)])
    groups = np.full(2, GROUP)
    blobs = blob_entries(made, rules.map_type, ttl, None, groups)
    # Under time to live, nulls are in the value's bytes; here there are none.
    account, whole = Account.of(128), Account.of(128)
    account.add(blobs.entries.groups, blobs.entries.hashes(), np.ones(len(blobs.entries), np.bool_))
    whole.add(groups, hash_blobs(blobs.keys, groups, blobs.counts, blobs.stamps), np.ones(2, np.bool_))
    assert cells(sink.accounts.of("old")) == cells(account)
    assert cells(expected.blobs.of("old")) == cells(whole)
    assert cells(sink.accounts.of("other")) == cells(content(value_state("other"), source["other"], is_map=False))
    counts = expected.counts["old"]
    assert (counts.rows, counts.rows_expired, counts.leftover_blobs) == (4, int(ttl), 2)
    assert sink.why == {("old", "expired"): int(ttl)}


def test_the_newest_timestamp_of_each_key() -> None:
    keys, nothing = _Keys(), np.array([1, 2, 3])
    asked = np.array([9, 5, 8], np.uint64)
    assert keys.newest_of(asked, nothing).tolist() == [1, 2, 3]
    for hashes, groups, stamps in (([5, 9, 5], [3, 4, 3], [10, 30, 20]), ([9, 7], [4, 2], [-(1 << 63), 5])):
        keys.add(np.array(hashes, np.uint64), np.array(groups), np.array(stamps))
    assert keys.newest_of(asked, nothing).tolist() == [30, 20, 3]
    assert keys.newest_of(np.array([10, 0], np.uint64), nothing[:2]).tolist() == [1, 2]
    found = [part.tolist() for part in (keys.hashes, keys.groups, keys.counts, keys.newest)]
    assert found == [[5, 7, 9], [3, 2, 4], [2, 1, 2], [20, 5, 30]]


def test_the_hash_of_a_blob_depends_on_key_group_number_and_timestamp() -> None:
    def hash_of(key: int, group: int, count: int, stamp: int | None) -> int:
        stamps = np.empty(0, np.int64) if stamp is None else np.array([stamp])
        return int(hash_blobs(np.array([key], np.uint64), np.array([group]), np.array([count]), stamps)[0])

    cases = [
        (1, 2, 3, 4),
        (2, 2, 3, 4),
        (1, 3, 3, 4),
        (1, 2, 4, 4),
        (1, 2, 3, 5),
        (1, 2, 3, None),
        (1, 2, 3 + 2**33, 4),
    ]
    assert len({hash_of(*case) for case in cases}) == len(cases)
    both = hash_blobs(np.array([1, 2], np.uint64), np.array([2, 2]), np.array([3, 3]), np.array([4, 4]))
    assert both.tolist() == [hash_of(*case) for case in cases[:2]]
