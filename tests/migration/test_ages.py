"""How old entries are: exact counts, a histogram that is right to 1.6 %, and the time to live that its end suggests."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.ttl import MAX_LONG, MIN_LONG, expired
from stateferry.basics.durations import format_duration, parse_duration
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Rules
from stateferry.inventory.ages import Ages, Integers
from stateferry.inventory.inventory import inventory_tasks, total
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

NOW = 1_795_000_000_000
DAY = 86_400_000
LONGS = st.integers(MIN_LONG, MAX_LONG) | st.sampled_from([MIN_LONG, -1, 0, 1, NOW - 1, NOW, NOW + 1, MAX_LONG])


def ages_of(ages: Integers, weights: Integers | None = None, ttl: int = 30 * DAY) -> Ages:
    made = Ages()
    made.count(NOW - ages, np.ones_like(ages) if weights is None else weights, ttl, NOW)
    return made


@given(
    stamps=st.lists(st.tuples(LONGS, st.integers(0, 5)), min_size=1, max_size=40),
    ttl=st.integers(1, MAX_LONG),
    now=st.integers(0, MAX_LONG),
    cut=st.integers(0, 40),
)
def test_counts_are_those_of_one_entry_after_the_other(
    stamps: list[tuple[int, int]], ttl: int, now: int, cut: int
) -> None:
    whole, summed = Ages(), Ages()
    for part in (stamps[:cut], stamps[cut:]):
        one = Ages()
        for ages in (one, whole):
            timestamps, weights = (np.array([pair[place] for pair in part], np.int64) for place in (0, 1))
            ages.count(timestamps, weights, ttl, now)
        summed.add(one)
    assert summed == whole
    each = [stamp for stamp, weight in stamps for _ in range(weight)]
    counts = (
        len(each),
        sum(expired(stamp, ttl, now) for stamp in each),
        sum(stamp > now for stamp, weight in stamps if weight),
    )
    assert (whole.entries, whole.expired, whole.future) == counts
    if each:
        assert (whole.youngest, whole.oldest) == tuple(min(now - stamp, MAX_LONG) for stamp in (max(each), min(each)))
    assert whole.bins.sum(axis=1).tolist() == [len(each), sum(weight > 0 for _, weight in stamps)]


@given(ages=st.lists(st.integers(-DAY, 90 * DAY), min_size=1, max_size=40), cut=st.integers(0, 40))
def test_without_some_the_others_are_left(ages: list[int], cut: int) -> None:
    gone, left = (ages_of(np.array(some, np.int64)) for some in (ages[:cut], ages[cut:]))
    every = Ages.of_text(ages_of(np.array(ages, np.int64)).text)
    found = every.without(gone)
    assert found is not None
    assert (found.entries, found.expired, found.future) == (left.entries, left.expired, left.future)
    assert np.array_equal(found.bins, left.bins)
    if left.entries:
        # Who is the youngest or the oldest now is known by the bin, and not at all in the future.
        assert 0 <= found.oldest - left.oldest <= max(left.oldest // 64, 1) + 1 or left.oldest < 2
        assert 0 <= left.youngest - found.youngest <= max(left.youngest // 64, 1) + 1 or left.youngest < 2
    else:
        assert found == Ages()
    assert gone.without(every) is None or not left.entries


def test_ages_of_thousands_of_chunks_fit_into_a_driver() -> None:
    random = np.random.default_rng(1)
    ages, whole = ages_of(random.integers(0, 30 * DAY, 100_000)), ages_of(random.integers(0, 30 * DAY, 10))
    sent = pickle.dumps(ages)
    assert len(sent) < 8_000
    received = pickle.loads(sent)
    expected = pickle.loads(pickle.dumps(whole))
    expected.add(ages)
    whole.add(received)
    assert len(pickle.dumps(received)) == len(sent)
    assert isinstance(received._bins, bytes)
    assert whole == expected
    assert received == ages


@pytest.mark.parametrize("seed", range(5))
def test_quartiles_are_right_to_the_width_of_a_bin(seed: int) -> None:
    random = np.random.default_rng(seed)
    for ages in (random.exponential(10.0 ** random.uniform(2, 11), 5000), random.uniform(0, 90 * DAY, 5000)):
        found = ages_of(ages.astype(np.int64))
        for share in (0.25, 0.5, 0.75):
            assert found.quantile(share) == pytest.approx(np.quantile(ages, share), rel=1 / 64, abs=1)


RANDOM = np.random.default_rng(7)
MANY = 20_000


@pytest.mark.parametrize(
    ("ages", "suggested"),
    [
        (RANDOM.uniform(0, 30 * DAY, MANY), "30d"),
        (RANDOM.uniform(0, 31 * DAY, MANY), "31d"),
        # What expired lately hasn't been removed yet.
        (RANDOM.uniform(0, 31.5 * DAY, MANY), "30d"),
        (RANDOM.uniform(0, 7.3 * DAY, MANY), "7d"),
        (RANDOM.uniform(0, DAY / 48, MANY), "30m"),
        (RANDOM.uniform(0, 2.5 * DAY, MANY), "60h"),
        (RANDOM.uniform(0, 2.2 * DAY, MANY), "53h"),
        # Most of it is young, and a part goes to the end.
        (np.append(RANDOM.exponential(DAY / 2, MANY), RANDOM.uniform(0, 30 * DAY, MANY // 10)), "30d"),
        # A few that nobody came to clean up.
        (np.append(RANDOM.uniform(0, 30 * DAY, MANY), [58.0 * DAY, 59.0 * DAY, 200.0 * DAY]), "30d"),
        # Thin tails, and what was written all at once.
        (RANDOM.exponential(5 * DAY, MANY), None),
        (RANDOM.pareto(2, MANY) * DAY, None),
        (np.abs(RANDOM.normal(0, 5 * DAY, MANY)), None),
        ((1 - np.sqrt(RANDOM.uniform(0, 1, MANY))) * 30 * DAY, None),
        (40 * DAY - RANDOM.uniform(0, DAY / 24, MANY), None),
        (np.zeros(MANY), None),
        # Too few to say.
        (RANDOM.uniform(0, 30 * DAY, 60), None),
    ],
)
def test_the_time_to_live_that_a_sharp_end_suggests(ages: Integers, suggested: str | None) -> None:
    found = ages_of(ages.astype(np.int64))
    assert found.suggested_ttl() == (None if suggested is None else parse_duration(suggested))
    end = found.sharp_end()
    if suggested is None:
        assert end is None
    else:
        assert end is not None
        assert end == pytest.approx(parse_duration(suggested), rel=0.06), format_duration(end)


def test_few_blobs_of_many_entries_are_few() -> None:
    ages = np.random.default_rng(3).uniform(0, 30 * DAY, 60).astype(np.int64)
    assert ages_of(ages, np.full_like(ages, 1000)).sharp_end() is None


def test_the_inventory_counts_each_entry_of_a_blob_at_the_blob_s_timestamp(tmp_path: Path) -> None:
    state = LegacyState(
        blobs={
            "a": ({"1": 1, "2": 2, "3": 3}, NOW - 40 * DAY),
            "b": ({"1": 1}, NOW - 2 * DAY),
            "c": ({}, NOW - 99 * DAY),
        },
        rows={"d": {"1": (1, NOW - 31 * DAY), "2": (2, NOW + 5)}},
        flags={"d": NOW - DAY, "e": NOW - 30 * DAY},
        ttl=True,
    )
    savepoint = state.write(str(tmp_path / "source"))
    operator = savepoint.operator("main")
    for keep_expired in (False, True):
        rules = Rules(savepoint.state(operator, LEGACY), NEW, FLAG, 30 * DAY, NOW, keep_expired=keep_expired)
        changes = replace(OperatorChanges.none(savepoint, operator), rules=(rules,))
        found = total(one.take() for one in inventory_tasks(savepoint, changes, target_bytes=1 << 20)).ages
        figures = {
            name: (one.entries, one.expired, one.future, one.youngest, one.oldest)
            for (_, _, name), one in found.items()
        }
        assert figures == {
            LEGACY: (4, 3, 0, 2 * DAY, 40 * DAY),
            NEW: (2, 1, 1, -5, 31 * DAY),
            FLAG: (2, 1, 0, DAY, 30 * DAY),
        }


def test_without_time_to_live_there_are_no_ages(tmp_path: Path) -> None:
    savepoint = LegacyState(blobs={"a": ({"1": 1}, 0)}, rows={"b": {"1": (1, 0)}}).write(str(tmp_path / "source"))
    operator = savepoint.operator("main")
    rules = Rules(savepoint.state(operator, LEGACY), NEW, FLAG, None, NOW)
    changes = replace(OperatorChanges.none(savepoint, operator), rules=(rules,))
    assert total(one.take() for one in inventory_tasks(savepoint, changes, target_bytes=1 << 20)).ages == {}
