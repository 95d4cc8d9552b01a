"""The tables night after night: what is read and written of them, counted, and what they then say."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flinkstate.serializers.types import EnumType, KryoMapType, KryoType, MapType, Scalar
from stateferry.changes.rules import Contradiction, ContradictionsError, Nulls, NullsCannotBeKeptError
from stateferry.tables.counts import TableCounts
from stateferry.tables.update import VanishedKeysError, advance_main, commit_update, layout_of, write_chunk
from tests.support.legacy_states import LegacyState
from tests.support.table_nights import Nights, folding_everything, ledger_rows, remove_attempts, table_rows

NOW, TTL = 1_700_000_000_000, 86_400_000
FRESH, OLD = NOW - 1000, NOW - 2 * TTL


def maps(count: int, size: int = 3, timestamp: int = FRESH) -> dict[str, tuple[dict[str, object], int]]:
    return {
        f"key-{key}": ({f"user-{entry}": key * 1000 + entry for entry in range(size)}, timestamp)
        for key in range(count)
    }


def test_a_first_night_writes_every_entry_once(nights: Nights) -> None:
    state = LegacyState(maps(200))
    done = nights.run("first", state)
    assert done.counts.keys_walked == done.counts.keys_new == done.counts.ledger_rows_written == 200
    assert done.counts.rows_read == done.counts.rows_written == 600
    assert len(nights.steps["first"].chunks) > 1
    assert nights.current(state, "first") == state.migrated(nights.rules(state.write(str(nights.folder / "again"))))


def test_nothing_changed_nothing_read_nothing_written(nights: Nights) -> None:
    state = LegacyState(maps(200))
    nights.run("first", state)
    counts = nights.counts("second", state.with_changes(checkpoint_id=2))
    left = TableCounts(keys_left=200, keys_left_untouched=200)
    assert counts == replace(left, keys_walked=200, keys_unchanged=200, ledger_rows_read=200)
    assert len(nights.current(state, "second")) == 600


@pytest.mark.slow
def test_one_percent_changed_is_one_percent_written(nights: Nights) -> None:
    state = LegacyState(maps(1000, 5))
    nights.run("first", state)
    changed = {f"key-{key}": ({"user-0": -1, "more": 7}, FRESH) for key in range(0, 1000, 100)}
    after = state.with_changes(blobs={**state.blobs, **changed}, checkpoint_id=2)
    counts = nights.counts("second", after)
    assert (counts.keys_changed, counts.rows_read, counts.rows_written) == (10, 20, 20)
    assert counts.ledger_rows_written == 10
    rules = nights.rules(after.write(str(nights.folder / "again")))
    assert nights.current(after, "second") == after.migrated(rules)


@pytest.mark.slow
def test_a_new_key_is_written_and_so_is_one_whose_timestamp_alone_changed(nights: Nights) -> None:
    state = LegacyState(maps(50), ttl=True)
    nights.run("first", state, ttl=TTL, now=NOW)
    touched = {"key-7": (state.blobs["key-7"][0], FRESH + 1), "new": ({"a": 1}, FRESH)}
    after = state.with_changes(blobs={**state.blobs, **touched})
    counts = nights.counts("second", after, ttl=TTL, now=NOW)
    assert (counts.keys_new, counts.keys_changed, counts.rows_written) == (1, 1, 4)
    current = nights.current(after, "second", ttl=TTL, now=NOW)
    assert current["key-7", "user-0"] == (7000, FRESH + 1)
    assert current["new", "a"] == (1, FRESH)


@pytest.mark.slow
def test_what_the_job_migrated_meanwhile_replaces_the_rows(nights: Nights) -> None:
    state = LegacyState(maps(20))
    nights.run("first", state)
    blobs = {key: blob for key, blob in state.blobs.items() if key != "key-3"}
    # The job has moved the key and deleted one entry of it: merging would bring it back.
    rows = {"key-3": {"user-0": (3000, 0), "user-1": (-5, 0)}}
    after = state.with_changes(blobs=blobs, rows=rows, flags={"key-3": 0})
    counts = nights.counts("second", after)
    assert (counts.keys_changed, counts.rows_written, counts.keys_of_the_job) == (1, 2, 1)
    current = nights.current(after, "second")
    assert {entry: found for entry, found in current.items() if entry[0] == "key-3"} == {
        ("key-3", "user-0"): (3000, None),
        ("key-3", "user-1"): (-5, None),
    }
    origins = {row["run"]: row["origin"] for row in _ledger(nights, "second") if row["key"] == "key-3"}
    assert origins == {1: "ferry", 2: "job"}


@pytest.mark.slow
def test_a_vanished_key_leaves_a_tombstone_and_may_come_back(nights: Nights) -> None:
    state = LegacyState(maps(20))
    nights.run("first", state)
    less = state.with_changes(blobs={key: blob for key, blob in state.blobs.items() if key != "key-3"})
    counts = nights.counts("second", less)
    assert (counts.keys_vanished, counts.ledger_rows_written, counts.rows_written) == (1, 1, 0)
    assert ("key-3", "user-0") not in nights.current(less, "second")
    (grave,) = (row for row in _ledger(nights, "second") if row["run"] == 2)
    assert (grave["key"], grave["origin"], grave["is_migrated"], grave["entries"]) == ("key-3", "tombstone", False, 0)
    assert nights.counts("third", less).keys_vanished == 0
    counts = nights.counts("fourth", state)
    assert (counts.keys_new, counts.rows_written) == (1, 3)
    assert len(nights.current(state, "fourth")) == 60


@pytest.mark.slow
def test_too_many_vanished_keys_stop_the_run_before_anything_is_visible(nights: Nights) -> None:
    state = LegacyState(maps(20))
    nights.run("first", state)
    other = LegacyState({f"other-{key}": ({"a": 1}, 0) for key in range(20)})
    with pytest.raises(VanishedKeysError, match=r"20 of the 20 keys .* wrong savepoint"):
        nights.run("second", other, accept_vanished=0.5)
    assert "run-second" not in nights.home.catalog().load_table(nights.steps["second"].ledger.identifier).refs()
    assert remove_attempts(nights.steps["second"]) > 0
    assert len(nights.current(state, "first")) == 60


@pytest.mark.slow
def test_only_time_passed_nothing_is_written_and_readers_apply_expiry(nights: Nights) -> None:
    half = maps(10)
    blobs = {key: (content, OLD if number % 2 else FRESH) for number, (key, (content, _)) in enumerate(half.items())}
    state = LegacyState(blobs, ttl=True)
    counts = nights.counts("first", state, ttl=TTL, now=NOW)
    assert counts.rows_written == 30  # what has expired too
    assert len(nights.current(state, "first", ttl=TTL, now=NOW)) == 15
    later = NOW + 2 * TTL
    counts = nights.counts("second", state, ttl=TTL, now=later)
    assert (counts.rows_written, counts.ledger_rows_written, counts.keys_unchanged) == (0, 0, 10)
    assert nights.current(state, "second", ttl=TTL, now=later) == {}
    assert len(nights.current(state, "second", ttl=TTL, now=later, keep_expired=True)) == 30


@pytest.mark.slow
def test_where_time_decides_who_wins_it_counts_as_a_change(nights: Nights) -> None:
    # The row is older than the blob: while it lives it stands, afterwards the blob's entry does.
    state = LegacyState({"k": ({"a": 1}, NOW)}, {"k": {"a": (2, NOW - TTL + 10)}}, ttl=True)
    nights.run("first", state, ttl=TTL, now=NOW)
    assert nights.current(state, "first", ttl=TTL, now=NOW) == {("k", "a"): (2, NOW - TTL + 10)}
    counts = nights.counts("second", state, ttl=TTL, now=NOW + 20)
    assert counts.keys_changed == 1
    assert nights.current(state, "second", ttl=TTL, now=NOW + 20) == {("k", "a"): (1, NOW)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"max_parallelism": 300}, "max parallelism changed from 128 to 300"),
        ({"value": Scalar.INTEGER}, "the serializers changed"),
        ({"ttl": True}, "time to live was added"),
    ],
)
def test_what_nights_must_have_in_common_changed_everything_is_written_anew(
    nights: Nights, change: dict[str, Any], why: str
) -> None:
    state = LegacyState(maps(30))
    nights.run("first", state)
    options: dict[str, Any] = {"ttl": TTL, "now": NOW} if "ttl" in change else {}
    after = state.with_changes(**change, checkpoint_id=2)
    counts = nights.counts("second", after, **options)
    assert nights.steps["second"].rebuild == why
    assert (counts.keys_new, counts.rows_written) == (30, 90)
    rules = nights.rules(after.write(str(nights.folder / "again")), **options)
    assert nights.current(after, "second", **options) == after.migrated(rules)
    assert nights.counts("third", after, **options).keys_unchanged == 30


def test_constants_of_an_enum_in_a_map_by_kryo_are_of_the_layout(nights: Nights) -> None:
    savepoint = LegacyState(kryo=5).write(str(nights.folder / "source"))
    operator, rules = savepoint.operator("main"), nights.rules(savepoint)
    kryo = rules.legacy.value
    assert isinstance(kryo, KryoType)

    def serializers(*constants: str) -> str:
        map_ = MapType(Scalar.STRING, EnumType("com.acme.Color", constants))
        legacy = replace(rules.legacy, value=KryoMapType(kryo.class_name, kryo.reason, kryo, map_))
        return layout_of(savepoint, operator, replace(rules, legacy=legacy), (0,))[0].serializers

    assert serializers("RED", "GREEN") == serializers("RED", "GREEN") != serializers("BLUE", "RED", "GREEN")


@pytest.mark.slow
def test_when_a_columns_type_changed_no_row_lacks_what_it_had(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    state = LegacyState(maps(30))
    with monkeypatch.context() as before:
        for module in ("iceberg.schemas", "rows"):
            before.setattr(f"stateferry.tables.{module}.raw_type", lambda _: pa.binary())
        nights.run("first", state)
    nights.run("second", state)
    assert nights.steps["second"].rebuild == "the tables' columns changed"
    rows = table_rows(nights.home, nights.steps["second"].entries)
    assert len(rows) == 90
    assert all(row["value_raw"] is not None for row in rows)
    assert nights.counts("third", state).keys_unchanged == 30


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"value": Scalar.INTEGER}, {"ttl": False}])
def test_a_run_cut_short_changes_no_columns(nights: Nights, change: dict[str, Any]) -> None:
    state = LegacyState(maps(30), ttl=True)
    options: dict[str, Any] = {"ttl": TTL, "now": NOW}
    nights.run("first", state, **options)
    before = table_rows(nights.home, nights.steps["first"].entries)
    other = state.with_changes(**change, checkpoint_id=2).write(str(nights.folder / "other"))
    nights.plan("cut short", other, nights.rules(other, **({} if "ttl" in change else options)))
    assert nights.counts("third", state.with_changes(checkpoint_id=3), **options).keys_unchanged == 30
    assert nights.steps["third"].rebuild is None
    assert table_rows(nights.home, nights.steps["third"].entries) == before


@pytest.mark.slow
def test_a_step_done_twice_changes_nothing(nights: Nights) -> None:
    state = LegacyState(maps(40))
    first = nights.run("first", state, to_main=False)
    again = nights.run("first", state, to_main=False)
    assert nights.steps["first"].chunks == ()
    assert again.snapshots == first.snapshots
    assert advance_main(nights.home, nights.steps["first"].tables, "first")
    assert advance_main(nights.home, nights.steps["first"].tables, "first")
    assert len(_ledger(nights, "first")) == 40


@pytest.mark.slow
def test_a_run_that_was_cut_short_goes_on_and_leaves_nothing_behind(nights: Nights) -> None:
    state = LegacyState(maps(40))
    savepoint = state.write(str(nights.folder / "savepoint-first"))
    rules = nights.rules(savepoint)
    cut = nights.plan("first", savepoint, rules)
    for chunk in cut.chunks:
        write_chunk(chunk)
    step = nights.plan("first", savepoint, rules)
    facts = [write_chunk(chunk) for chunk in step.chunks]
    # As if the driver had died between the two tables' commits.
    entries = nights.home.catalog().load_table(step.entries.identifier)
    from stateferry.tables.iceberg.commits import commit_run

    files = [chunk.entries for chunk in facts if chunk.entries]
    commit_run(entries, step.mark, step.entries.base, step.entries.columns, files)
    nights.run("first", state)
    assert len(nights.current(state, "first")) == 120
    assert remove_attempts(nights.steps["first"]) > 0
    assert remove_attempts(nights.steps["first"]) == 0
    assert len(nights.current(state, "first")) == 120
    assert nights.counts("second", state).keys_unchanged == 40


@pytest.mark.slow
def test_an_older_source_stays_on_its_branch(nights: Nights) -> None:
    new = LegacyState(maps(10), checkpoint_id=9)
    nights.run("new", new)
    old = LegacyState(maps(5), checkpoint_id=4)
    nights.run("old", old, to_main=False)
    assert not advance_main(nights.home, nights.steps["old"].tables, "old")
    assert len(nights.current(old, "old", branch="run-old")) == 15
    assert len(nights.current(new, "new")) == 30


@pytest.mark.slow
def test_a_branch_says_what_its_own_run_found(nights: Nights) -> None:
    nights.run("first", LegacyState(maps(10)))
    other = LegacyState({"only": ({"a": 1}, 0)}, checkpoint_id=2)
    nights.run("second", other, to_main=False)
    assert nights.current(other, "second", branch="run-second") == {("only", "a"): (1, None)}
    assert len(nights.current(other, "second")) == 30


@pytest.mark.slow
def test_contradictions_stop_the_run_unless_there_is_a_rule(nights: Nights) -> None:
    state = LegacyState({"k": ({"a": 1}, 0)}, {"k": {"b": (2, 0)}}, {"k": 0})
    with pytest.raises(ContradictionsError):
        nights.run("stop", state)
    nights.run("rows", state, on_contradiction=Contradiction.ROWS)
    assert nights.current(state, "rows") == {("k", "b"): (2, None)}
    counts = nights.counts("blob", state, on_contradiction=Contradiction.BLOB)
    assert counts.contradictions == 1
    assert nights.current(state, "blob") == {("k", "a"): (1, None)}


@pytest.mark.slow
def test_nulls_that_no_row_can_hold_stop_the_run_or_are_dropped(nights: Nights) -> None:
    state = LegacyState({"k": ({"a": 1, "b": None}, FRESH), "empty": ({}, FRESH)}, ttl=True)
    with pytest.raises(NullsCannotBeKeptError):
        nights.run("first", state, ttl=TTL, now=NOW)
    counts = nights.counts("second", state, ttl=TTL, now=NOW, nulls=Nulls.DROP)
    assert (counts.nulls_dropped, counts.empty_maps, counts.rows_written) == (1, 1, 1)
    entries = {row["key"]: row["entries"] for row in _ledger(nights, "second")}
    assert entries == {"k": 1, "empty": 0}


@pytest.mark.slow
def test_nulls_that_are_dropped_from_now_on_are_gone_from_unchanged_keys_too(nights: Nights) -> None:
    state = LegacyState({"k": ({"a": 1, "b": None}, 0)})
    nights.run("first", state, nulls=Nulls.KEEP)
    assert nights.current(state, "first") == {("k", "a"): (1, None), ("k", "b"): (None, None)}
    assert nights.counts("second", state, nulls=Nulls.DROP).nulls_dropped == 1
    assert nights.current(state, "second") == {("k", "a"): (1, None)}
    nights.run("third", state, nulls=Nulls.KEEP)
    assert nights.current(state, "third") == nights.current(state, "first")


@pytest.mark.slow
def test_nulls_are_rows_wherever_they_can_be(nights: Nights) -> None:
    plain = LegacyState({"k": ({"a": None}, 0)}, {"m": {"b": (None, 0)}}, {"m": 0})
    nights.run("plain", plain)
    assert nights.current(plain, "plain") == {("k", "a"): (None, None), ("m", "b"): (None, None)}
    text = plain.with_changes(
        value=Scalar.STRING, ttl=True, blobs={"k": ({"a": None}, FRESH)}, rows={"m": {"b": (None, FRESH)}}, flags={}
    )
    nights.run("text", text, ttl=TTL, now=NOW)
    current = nights.current(text, "text", ttl=TTL, now=NOW)
    assert current == {("k", "a"): (None, FRESH), ("m", "b"): (None, FRESH)}


KEYS = st.sampled_from([f"k{number}" for number in range(12)])
USER_KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.integers(-(2**63), 2**63 - 1)
STAMPS = st.sampled_from([FRESH, FRESH - 1, OLD, NOW - TTL + 50, NOW + 5])
STATES = st.builds(
    LegacyState,
    st.dictionaries(KEYS, st.tuples(st.dictionaries(USER_KEYS, VALUES), STAMPS)),
    st.dictionaries(KEYS, st.dictionaries(USER_KEYS, st.tuples(VALUES, STAMPS), min_size=1)),
    st.dictionaries(KEYS, STAMPS),
    st.booleans(),
)


@pytest.mark.slow
@given(
    st.lists(STATES, min_size=2, max_size=3), st.sampled_from([Contradiction.BLOB, Contradiction.ROWS]), st.booleans()
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_any_nights_end_in_what_the_last_savepoint_says(
    tmp_path_factory: pytest.TempPathFactory, states: list[LegacyState], rule: Contradiction, folds: bool
) -> None:
    nights = Nights(tmp_path_factory.mktemp("nights"))
    for number, state in enumerate(states):
        options: dict[str, Any] = {"on_contradiction": rule, "now": NOW + 40 * number}
        options["ttl"] = TTL if state.ttl else None
        with folding_everything() if folds else nullcontext():
            nights.run(f"{number}", state, **options)
        rules = nights.rules(state.write(str(nights.folder / f"again-{number}")), **options)
        assert nights.current(state, f"{number}", **options) == state.migrated(rules)


def _ledger(nights: Nights, run: str) -> list[dict[str, Any]]:
    return ledger_rows(nights.home, nights.steps[run])


def test_chunks_that_were_not_planned_are_refused(nights: Nights) -> None:
    savepoint = LegacyState(maps(10)).write(str(nights.folder / "savepoint-first"))
    step = nights.plan("first", savepoint, nights.rules(savepoint))
    with pytest.raises(ValueError, match="1 chunks were planned, and 0 were written"):
        commit_update(step, [])
