"""What the checks of an operator say of results that its tasks have counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.bytes_read import BytesRead
from flinkstate.serializers.types import FlinkType, MapType, OpaqueType, RowType, Scalar, TupleType
from flinkstate.ttl import StateTtlConfig
from stateferry.basics.state_ref import StateRef
from stateferry.changes.counts import InventoryCounts, LossCounts
from stateferry.changes.lazy_cut import LazyCut, Order
from stateferry.changes.rules import Contradiction, Nulls, PlannedTtl, Rules
from stateferry.proof.carried_check import CarriedResult
from stateferry.proof.equal_rows import EqualRows
from stateferry.proof.expected.aging_content import AgingCounts
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.expected.content import Account
from stateferry.proof.expected.expected_entries import SourceCounts
from stateferry.proof.expected.sampling import EVERYTHING
from stateferry.proof.judgement import OperatorJudge, table_check
from stateferry.proof.keyed_result import KeyedResult, Side
from stateferry.proof.plain.plain_rows import PlainRowsResult
from stateferry.proof.plain.plain_state import KeyAccount, SampledKeys
from stateferry.proof.tally import Derived, TableAccount, Tally
from tests.support.changes import back, changes_of

ONCE = "main: each key once in a state"
KEYS = "main: keys in the key groups of their hashes"
PASSED, FAILED, COULD_NOT_TELL = Outcome.PASSED, Outcome.FAILED, Outcome.COULD_NOT_TELL
SAMPLES = {
    StateRef("hex", state): [(3, f"text {number}") for number in range(12)] for state in ("new", "old", "other", "flag")
}
TEXTS = tuple(f"key group 3: text {number}" for number in range(10))


def state(name: str, value: FlinkType = Scalar.LONG, key: FlinkType = Scalar.STRING) -> KeyedState:
    return KeyedState(name, StateKind.VALUE, key, Scalar.VOID_NAMESPACE, None, value, False, False)


OLD, OTHER, FLAG = state("old", MapType(Scalar.STRING, Scalar.LONG)), state("other"), state("flag", Scalar.BOOLEAN)
RULES = Rules(OLD, "new", "flag", None, 0)
ROW = RowType((Scalar.LONG,), False)
STATES = {one.name: one for one in (OLD, OTHER, FLAG)}


def account(size: int = 8, **counts: int) -> Account:
    """So many entries, and a sum of them, in key groups called `g3` and the like."""
    made = Account.of(size)
    for group, count in counts.items():
        made.counts[int(group[1:])], made.sums[int(group[1:])] = count, 100 * count
    return made


def tally(expected: dict[str, Account], found: dict[str, Account], size: int = 8, **settings: object) -> Tally:
    made = Tally(size)
    made.expected.take(expected)
    made.found.take(found)
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def judge(found: Tally, rules: Rules | None = RULES, **settings: object) -> OperatorJudge:
    given = {name: settings.pop(name) for name in ("ttls", "by_kryo", "states") if name in settings}
    conversion = changes_of((rules,) if rules else (), STATES, 8, 8)
    of = replace(conversion, **given)  # type: ignore[arg-type]
    made = OperatorJudge("hex", "main", of, True, 1, found, SAMPLES)
    return replace(made, **settings)  # type: ignore[arg-type]


def checks(found: Tally, rules: Rules | None = RULES, **settings: object) -> dict[str, Check]:
    return {check.name: check for check in judge(found, rules, **settings).checks()}


def parts(check: Check) -> tuple[object, ...]:
    return check.outcome, check.expected, check.actual, check.key_groups, check.samples


SAME = account(g1=2, g5=3)


def test_rows_are_explained_by_what_they_come_from() -> None:
    counts = SourceCounts(20, 3, 0, 2, 1, 30, 5, 7, 4, 6, 0, 8)
    found = checks(tally({"new": SAME}, {"new": SAME}, counts={"new": counts}), rules=replace(RULES, ttl=5))
    assert list(found) == [
        "main/new: rows", "main/new: content", "main/new: no expired row", "main/new: no unsettled contradiction",
        "main/new: no null that can't be kept", "main/new: sample read plainly", "main/other: carried over", KEYS, ONCE,
    ]  # fmt: skip
    assert parts(found["main/new: rows"]) == (
        PASSED,
        ("5 = 20 blob entries + 30 rows - 2 blob entries superseded - 1 blob entries of flagged keys - 7 rows replaced "
        "- 3 blob entries expired - 5 rows expired - 6 nulls left out - 8 blob entries of keys that are not "
        "moved"),
        "5", (), (),
    )  # fmt: skip
    in_words = "5 entries, checksum 00000000000001f4"
    assert parts(found["main/new: content"]) == (PASSED, in_words, in_words, (), ())
    assert parts(found["main/new: no unsettled contradiction"]) == (FAILED, "0", "4", (), ())
    assert parts(found["main/new: no null that can't be kept"]) == (FAILED, "0", "6", (), ())
    assert found["main/other: carried over"].expected == "0 entries, checksum 0000000000000000"
    settled = replace(RULES, on_contradiction=Contradiction.BLOB, nulls=Nulls.DROP)
    found = checks(tally({"new": SAME}, {"new": SAME}, counts={"new": counts}), settled)
    assert {check.outcome for check in found.values()} == {PASSED}
    assert "main/new: no expired row" not in found
    assert found["main/new: rows"].expected.startswith("5 = 20")


def test_a_state_that_is_written_by_kryo_5_is_read_plainly_too() -> None:
    found = checks(tally({"other": SAME}, {"other": SAME}), None, by_kryo={"other": OTHER})
    names = list(found)
    at = names.index("main/other: carried over, written by Kryo 5")
    assert names[at + 1] == "main/other: sample read plainly"
    assert "main/old: carried over" in names
    assert "main/old: sample read plainly" not in names


@pytest.mark.parametrize("found", [9, 10, 11])
@pytest.mark.parametrize("damaged", [False, True])
def test_entries_that_an_upgrade_lost_are_counted(found: int, damaged: bool) -> None:
    lost = LossCounts(lost=3, gone=2, put_back=2, corrected=1, overwritten=4)
    entries = {Side.SOURCE: Counter({"other": 8}), Side.STAGED: Counter({"other": found})}
    counted = tally({}, {}, losses={"other": lost}, entries_of=entries)
    if damaged:
        counted.note_damage(DamagedError("a row", "nothing"))
    check = judge(counted)._put_back("other")
    assert check.name == "main/other: entries with those that the upgrade lost"
    assert check.expected == (
        "10 = 8 in the source + 2 put back (of the others before the upgrade 1 corrected, 2 lost with rows that are "
        "gone, 4 overwritten since)"
    )
    assert check.outcome is (PASSED if found == 10 else COULD_NOT_TELL if damaged else FAILED)
    assert check.actual == (f"{found}, as far as it could be read" if damaged and found != 10 else f"{found}")
    counted.losses.clear()
    entries[Side.STAGED]["other"] = 8
    assert parts(judge(counted)._put_back("other"))[:3] == (PASSED, "8 = 8 in the source + 0 put back", "8")


@pytest.mark.parametrize("damaged", [False, True])
def test_what_differs_is_named_where_it_differs(damaged: bool) -> None:
    other = account(g1=2, g4=3)
    made = tally({"new": SAME, "other": SAME}, {"new": other, "other": other, "old": account(g2=1), "flag": account()})
    made.expired["new"] = Counter({6: 2, 2: 1, 1: 0})
    made.strays["new"] = Counter({5: 1, 4: 1})
    if damaged:
        made.note_damage(DamagedError("a row", "none", key_group=4))
    found = checks(made, replace(RULES, ttl=5))
    outcome, read, texts = (COULD_NOT_TELL, ", as far as it could be read", ()) if damaged else (FAILED, "", TEXTS)
    assert parts(found["main/new: rows"]) == (outcome, "5 = 0", f"5{read}", (4, 5), texts)
    for name in ("main/new: content", "main/other: carried over"):
        words = "5 entries, checksum 00000000000001f4"
        assert parts(found[name]) == (outcome, words, words + read, (4, 5), texts)
    assert parts(found["main/new: no expired row"]) == (FAILED, "0", "3", (2, 6), TEXTS)
    assert parts(found["main/old: gone"]) == (FAILED, "no entries", "1 entry", (2,), TEXTS)
    assert "main/flag: gone" not in found
    assert parts(found[KEYS]) == (FAILED, "each in its key group", "2 entries elsewhere", (4, 5), TEXTS)
    assert found["main/new: sample read plainly"].outcome is (COULD_NOT_TELL if damaged else PASSED)
    assert made.differing() == {"new": [4, 5], "old": [2], "other": [4, 5]}


def test_rows_with_equal_keys_are_red_and_of_a_part_nobody_can_tell() -> None:
    made = tally({"new": SAME}, {"new": SAME})
    assert parts(checks(made)[ONCE]) == (PASSED, "each once", "each once", (), ())
    made.note_damage(DamagedError("a row", "none", key_group=4))
    assert checks(made)[ONCE].outcome is COULD_NOT_TELL
    made.equal.take(EqualRows({"new": Counter({5: 2}), "other": Counter({1: 1})}, [(5, "new, key 7")]))
    made.equal.take(EqualRows({"new": Counter({5: 1})}))
    few = EqualRows()
    few.take(EqualRows(samples=[(number, "other") for number in range(12)]))
    assert [number for number, _ in few.samples] == list(range(10))
    assert parts(checks(made)[ONCE]) == (
        FAILED, "each once", "4 rows with the key of another one, of which Flink would keep one", (1, 5),
        ("key group 5: new, key 7",),
    )  # fmt: skip


def test_sums_differ_where_counts_do_not() -> None:
    other = account(g1=2, g5=3)
    other.sums[5] += np.uint64(1)
    found = checks(tally({"new": SAME}, {"new": other}))
    assert found["main/new: rows"].outcome is PASSED
    assert found["main/new: content"].key_groups == (5,)


@pytest.mark.parametrize(
    ("key", "strays", "outcome", "actual"),
    [
        (Scalar.STRING, {}, PASSED, "each in its key group"),
        (Scalar.STRING, {"new": Counter({7: 1})}, FAILED, "1 entry elsewhere"),
        (Scalar.STRING, {"new": Counter()}, PASSED, "each in its key group"),
        (ROW, {"other": Counter({7: 1}), "new": Counter()}, COULD_NOT_TELL, ("1 entry elsewhere, as "
         "in the source: a Row that a job fills by field names hashes by them, not by its bytes")),
        (TupleType((Scalar.LONG, ROW), ""), {"other": Counter({7: 1})}, COULD_NOT_TELL, None),
        (ROW, {"new": Counter({5: 1})}, FAILED, "1 entry elsewhere"),
        (ROW, {"new": Counter({5: 1}), "other": Counter({7: 1})}, FAILED, "2 entries elsewhere"),
        (ROW, {"new": Counter({7: 1})}, COULD_NOT_TELL, ("1 entry elsewhere, as "
         "in the source: a Row that a job fills by field names hashes by them, not by its bytes")),
        (OpaqueType("com.acme.Key", "Kryo"), {"new": Counter({7: 1})}, COULD_NOT_TELL, None),
    ],
)  # fmt: skip
def test_keys_in_other_key_groups(
    key: FlinkType, strays: dict[str, Counter[int]], outcome: Outcome, actual: str | None
) -> None:
    made = tally({"new": SAME}, {"new": account(g1=2, g5=4)}, strays=strays)
    found = judge(made, states={"old": replace(OLD, key=key), "other": replace(OTHER, key=key)})
    check = {one.name: one for one in found.checks()}[KEYS]
    assert check.outcome is outcome
    assert len(check.samples) == (10 if outcome is FAILED else 0)
    if actual:
        assert check.actual == actual
    assert KEYS not in {one.name for one in replace(found, checks_keys=False).checks()}


def test_lazy_runs_leave_blobs_and_set_flags() -> None:
    rules = replace(RULES, lazy_cut=LazyCut(Order.HASH, 9, FLAG))
    counts = SourceCounts(blobs=9, blobs_moved=4, blobs_expired=1, flags=6, flags_replaced=2, flags_set=4)
    found = checks(tally({"old": SAME}, {"flag": SAME}, counts={"new": counts}), rules)
    five, none = "5 entries, checksum 00000000000001f4", "0 entries, checksum 0000000000000000"
    assert parts(found["main/old: blobs of the keys that are not moved"]) == (
        FAILED, f"5 = 9 blobs - 4 moved - 1 expired; {five}", none, (1, 5), TEXTS,
    )  # fmt: skip
    assert parts(found["main/flag: flags"]) == (
        FAILED, f"0 = 6 flags - 2 replaced + 4 set; {none}", five, (1, 5), TEXTS,
    )  # fmt: skip
    assert "main/old: carried over" not in found


@pytest.mark.parametrize("drops", [False, True])
def test_the_way_back(drops: bool) -> None:
    rules = back(RULES, ttl=5, drop_legacy_blobs=drops)
    made = tally({"old": SAME}, {"old": SAME}, counts={"old": SourceCounts(rows=5, leftover_blobs=2)})
    made.blobs[Side.SOURCE].take({"old": account(g1=1)})
    made.blobs[Side.STAGED].take({"old": account(g1=2)})
    made.expired["old"] = Counter({4: 3, 2: 0})
    found = checks(made, rules)
    assert found["main/old: entries"].expected == "5 = 5 rows"
    assert not [name for name in found if "contradiction" in name or "null" in name]
    assert parts(found["main/old: one blob for each key"]) == (
        FAILED, "1 blob, checksum 0000000000000064", "2 blobs, checksum 00000000000000c8", (1,), TEXTS,
    )  # fmt: skip
    assert parts(found["main/old: no expired entry"]) == (FAILED, "0", "3", (4,), TEXTS)
    leftover = found.get("main/old: no blob left over in the source")
    assert (leftover is None) if drops else (leftover is not None and leftover.actual == "2")
    assert found["main/old: sample read plainly"].outcome is PASSED
    made.note_damage(RefusedError("no"))
    assert checks(made, rules)["main/old: sample read plainly"].outcome is COULD_NOT_TELL
    assert "main/old: no expired entry" not in checks(made, replace(rules, keep_expired=True))


def test_states_that_age() -> None:
    told = PlannedTtl(OTHER, StateTtlConfig(5), 0, drops=True)
    made = tally({"other": SAME}, {"other": account(g1=2)}, aging={"other": AgingCounts(7, 2)})
    made.expired["other"] = Counter({1: 1})
    found = checks(made, None, ttls=(told,))
    assert parts(found["main/other: living entries"]) == (FAILED, "5 = 7 - 2 expired", "2", (5,), TEXTS)
    assert found["main/other: content"].outcome is FAILED
    assert found["main/other: no expired row"].key_groups == (1,)
    assert found["main/other: sample read plainly"].outcome is PASSED
    assert "main/other: carried over" not in found
    made.aging["other"], made.damage = AgingCounts(5, 0), [(None, "hurt")]
    found = checks(made, None, ttls=(told,))
    assert found["main/other: living entries"].expected == "5 = 5"
    assert found["main/other: sample read plainly"].outcome is COULD_NOT_TELL


@pytest.mark.parametrize(
    ("counts", "blob_sum", "outcome"),
    [
        (InventoryCounts(blob_entries=20, blob_entries_expired=3, rows_read=30, rows_expired=5), None, PASSED),
        (InventoryCounts(blob_entries=20, blob_entries_expired=3, rows_read=30, rows_expired=5), 12, PASSED),
        (InventoryCounts(blob_entries=20, blob_entries_expired=3, rows_read=30, rows_expired=5), 13, FAILED),
        (InventoryCounts(blob_entries=20, blob_entries_expired=3, rows_read=30, rows_expired=4), None, FAILED),
        (InventoryCounts(blob_entries=20, blob_entries_expired=3, rows_read=31, rows_expired=5), None, FAILED),
        (InventoryCounts(blob_entries=20, blob_entries_expired=2, rows_read=30, rows_expired=5), None, FAILED),
        (InventoryCounts(blob_entries=21, blob_entries_expired=3, rows_read=30, rows_expired=5), None, FAILED),
    ],
)
def test_what_a_snapshot_has_derived_is_compared(
    counts: InventoryCounts, blob_sum: int | None, outcome: Outcome
) -> None:
    there = SourceCounts(20, 3, 12 + (1 << 64), rows=30, rows_expired=5)
    derived = {"main/old": Derived(counts, blob_sum)}
    found = checks(tally({}, {}, counts={"new": there}), derived=derived)["main/old: as the snapshot derived it"]
    assert found.outcome is outcome
    sums = "" if blob_sum is None else "; timestamps with the sum c"
    assert found.actual == f"20 blob entries, 3 of them expired; 30 rows, 5 of them expired{sums}"


def test_what_is_carried() -> None:
    name = "main: operator state carried over"
    made = Tally(8)
    made.take(CarriedResult("hex", Side.STAGED, 1, None, [], BytesRead()))
    assert [parts(one)[:3] for one in judge(made).carried()] == [(PASSED, "as in the source", "as in the source")]
    made.take(CarriedResult("hex", Side.STAGED, 1, DamagedError("more", "the end"), [], BytesRead()))
    made.take(CarriedResult("hex", Side.STAGED, 1, None, [], BytesRead()))
    (check,) = judge(made).carried()
    assert (check.name, *parts(check)[:3]) == (name, COULD_NOT_TELL, "as in the source", "only a part could be read")
    made.take(
        CarriedResult("hex", Side.STAGED, 1, None, [*(("b", f"{n}") for n in range(11)), ("a", "x")], BytesRead())
    )
    b, a = judge(made).carried()
    assert (b.name, b.outcome, b.actual, b.samples) == (
        "main/b: carried over", FAILED, "11 differences", tuple(f"{n}" for n in range(10)),
    )  # fmt: skip
    assert (a.name, a.actual, a.samples) == ("main/a: carried over", "1 difference", ("x",))


def test_what_can_be_read() -> None:
    made = Tally(8)
    assert parts(judge(made).readable()) == (PASSED, "every entry", "every entry", (), ())
    made.take(KeyedResult("hex", Side.STAGED, 1, RefusedError("no")))
    for group in (7, 3, 3, *range(8)):
        made.take(KeyedResult("hex", Side.STAGED, 1, DamagedError("a", "b", key_group=group)))
    check = judge(made).readable()
    assert (check.outcome, check.actual, check.key_groups, len(check.samples)) == (FAILED, "no", tuple(range(8)), 10)
    with pytest.raises(DamagedError):
        made.take(KeyedResult("hex", Side.SOURCE, 1, DamagedError("a", "b")))


def test_results_of_tasks_add_up() -> None:
    made = Tally(8)
    for side, many in ((Side.SOURCE, 1), (Side.SOURCE, 2), (Side.STAGED, 4)):
        result = KeyedResult("hex", side, 1)
        result.accounts = {"new": account(g1=many)}
        result.whole = {"new": account(g2=many)}
        result.blobs = {"new": account(g3=many)}
        result.counts = {"new": SourceCounts(many)}
        result.aging = {"new": AgingCounts(many)}
        result.strays = {"new": Counter({many: many})}
        result.expired = {"new": Counter({1: many})}
        result.samples = {"new": SampledKeys({many: KeyAccount()}, EVERYTHING, ())}
        result.plain = PlainRowsResult({"new": many} if many > 1 else {})
        made.take(result)
    both = (made.expected, made.found, made.whole, made.blobs[Side.SOURCE], made.blobs[Side.STAGED])
    assert [one.of("new").counts.tolist()[1:4] for one in both] == [
        [3, 0, 0],
        [4, 0, 0],
        [0, 7, 0],
        [0, 0, 3],
        [0, 0, 4],
    ]
    assert (made.counts["new"].blob_entries, made.aging["new"].entries) == (7, 7)
    assert (made.strays["new"], made.expired["new"]) == ({1: 1, 2: 2, 4: 4}, {1: 7})
    assert (set(made.plain["new"].expected), set(made.plain["new"].found)) == ({1, 2}, {4})
    assert {side: rows.rows for side, rows in made.plain_rows.items()} == {
        Side.SOURCE: {"new": 2},
        Side.STAGED: {"new": 4},
    }
    assert made.of_all_keys("new", is_lazy=True).counts[2] == 7
    assert made.of_all_keys("new", is_lazy=False).counts[1] == 4
    found = {one.name: one.outcome for one in judge(made).checks()}
    assert found["main: RocksDB's files of the source read plainly"] is PASSED
    made.note_damage(RefusedError("no"))
    found = {one.name: one.outcome for one in judge(made).checks() if "RocksDB" in one.name}
    assert list(found.values()) == [PASSED, COULD_NOT_TELL]


def test_tables_are_compared_with_what_was_found() -> None:
    table = TableAccount("hex", "new", account(4, g1=2), rows_read=1)
    table.add(TableAccount("hex", "new", account(4, g2=1), rows_read=2))
    assert table.rows_read == 3
    check = table_check("main", table, account(g1=2, g2=1))
    assert (check.name, *parts(check)[:4]) == (
        "main/new: as the tables say", PASSED, *["3 entries, checksum 000000000000012c"] * 2, (),
    )  # fmt: skip
    check = table_check("main", table, account(g1=2, g7=1))
    assert (check.outcome, check.key_groups) == (FAILED, (2, 7))
    table.add(TableAccount("hex", "new", account(4), [f"problem {number}" for number in range(11)]))
    check = table_check("main", table, account(g1=2, g2=1))
    assert parts(check)[:4] == (FAILED, "tables that can be read", "problem 0", ())
    assert len(check.samples) == 10


def test_an_account_of_more_key_groups_does_not_fit() -> None:
    with pytest.raises(ValueError, match="an account of 8 key groups where there are 7"):
        account(7).take(account(8, g7=1))
    small = account(7)
    small.take(account(8, g6=1))
    assert small.counts.tolist() == [0] * 6 + [1]


@pytest.mark.parametrize(
    ("result", "is_complete", "expected"),
    [
        (PlainRowsResult({"a": 1}), True, (PASSED, "all: 1 row of 1 state", "the same rows", (), ())),
        (PlainRowsResult({"a": 1, "b": 0}), True, (PASSED, "all: 1 row of 2 states", "the same rows", (), ())),
        (PlainRowsResult({"a": 2}, {"a"}), True, (PASSED, "a sample: 2 rows of 1 state", "the same rows", (), ())),
        (PlainRowsResult({"a": 0, "b": 0, "c": 1}, {"b", "a", "c"}), True,
         (COULD_NOT_TELL, "a sample: 1 row of 3 states", "no row was drawn of a, b", (), ())),
        (PlainRowsResult({"a": 1}), False,
         (COULD_NOT_TELL, "all: 1 row of 1 state", "only a part could be read", (), ())),
        (PlainRowsResult({"a": 1}, set(), {9: "nine", 2: "two"}), False,
         (FAILED, "all: 1 row of 1 state", "other rows", (2, 9), ("nine", "two"))),
    ],
)  # fmt: skip
def test_rows_of_rocksdb_that_were_read_plainly(
    result: PlainRowsResult, is_complete: bool, expected: tuple[object, ...]
) -> None:
    assert parts(result.check("name", is_complete)) == expected
    both = PlainRowsResult({"a": 1}, {"x"}, {1: "one"})
    both.add(result)
    assert both.rows == {**result.rows, "a": result.rows["a"] + 1}
    assert both.in_part == {"x", *result.in_part}
    assert both.different == {1: "one", **result.different}
    many = PlainRowsResult({"a": 1}, set(), dict.fromkeys(range(12), "x"))
    assert len(many.check("name", True).samples) == 10
