"""Loads, bounds and chances of layouts, against plain counting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flinkstate.errors import UsageError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.metadata.metadata import InlineBytes, KeyedHandle
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar
from stateferry.look.balance.advice import Advice, Span, advise
from stateferry.look.balance.apply import how_to_apply
from stateferry.look.balance.key_weights import MEASURES, KeyWeights, measure_keys
from stateferry.look.balance.layouts import LEAST_CANDIDATES, KeyGroupLayout, LayoutSearch
from tests.support.keyed_blobs import key_group_of, write_blobs
from tests.support.legacy_states import LegacyState

SIZES = {f"customer {number}": number % 7 for number in range(300)} | {"the heaviest": 90, "the next": 60}


def measured(folder: Path, measure: str = "bytes", **options: Any) -> KeyWeights:
    savepoint = Savepoint.open(str(folder))
    found = measure_keys(savepoint, savepoint.operator("main"), measure, **options)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_blobs(tmp_path_factory.mktemp("uneven") / "savepoint", SIZES, 3, 20, Scalar.STRING)


def bytes_of(key: str) -> int:
    # Two lengths, key group, key and namespace; the map's count, and for each entry user key, null flag and value.
    return 8 + 1 + len(key) + 1 + 1 + 4 + SIZES[key] * (10 + 1 + 8)


def naive_loads(parallelism: int, max_parallelism: int) -> list[int]:
    loads = [0] * parallelism
    for key in SIZES:
        loads[key_group_of(Scalar.STRING, key, max_parallelism) * parallelism // max_parallelism] += bytes_of(key)
    return loads


def test_key_groups_and_heaviest_keys_are_exact(uneven: Path) -> None:
    weights = measured(uneven, heaviest=3)
    expected = {measure: np.zeros(20, int) for measure in MEASURES}
    for key in SIZES:
        group = key_group_of(Scalar.STRING, key, 20)
        for measure, weight in (("rows", 1), ("bytes", bytes_of(key)), ("keys", 1)):
            expected[measure][group] += weight
    for measure in MEASURES:
        assert weights.groups[measure].tolist() == expected[measure].tolist()
    heaviest = [(key.text, key.bytes, key.rows, key.key_group) for key in weights.heaviest]
    assert heaviest[:2] == [
        (f'"{key}"', bytes_of(key), 1, key_group_of(Scalar.STRING, key, 20)) for key in ("the heaviest", "the next")
    ]
    assert len(heaviest) == 3
    assert (len(weights.keys), weights.sampled) == (len(SIZES), 1)


def test_a_key_group_of_many_keys_is_read_in_parts(uneven: Path) -> None:
    whole, parts = measured(uneven), measured(uneven, most_runs=4)
    for measure in MEASURES:
        assert parts.groups[measure].tolist() == whole.groups[measure].tolist()
    for column in ("identities", "hashes", "rows", "bytes"):
        assert getattr(parts.keys.summed(), column).tolist() == getattr(whole.keys.summed(), column).tolist()
    assert len(parts.keys) == len(SIZES)


def test_a_sample_weighs_as_much_as_all_keys(uneven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateferry.look.balance.key_weights._MOST_HEAVY", 5)
    weights = measured(uneven, most_keys=100)
    assert 0 < weights.sampled < 1
    assert len(weights.keys) <= 104
    assert weights.key_weights.sum() == pytest.approx(weights.total, rel=0.01)
    # The heaviest keys are exact and not scaled.
    assert {bytes_of("the heaviest"), bytes_of("the next")} <= set(weights.key_weights.tolist())
    # What is said of today doesn't come from the sample.
    assert LayoutSearch(weights).loads(KeyGroupLayout(3, 20)).by_subtask.tolist() == naive_loads(3, 20)


def test_loads_of_every_layout_are_those_of_the_keys(uneven: Path) -> None:
    search = LayoutSearch(measured(uneven))
    maxes, parallelisms = np.array([1, 2, 3, 20, 127, 128, 133, 32767, 32768]), [1, 2, 3, 19, 64]
    worst, idle = search.worst_and_idle(maxes, parallelisms)
    for row, most in enumerate(maxes.tolist()):
        for column, parallelism in enumerate(parallelisms):
            if parallelism > most:
                assert (worst[row, column], idle[row, column]) == (-1, -1)
                continue
            expected = naive_loads(parallelism, most)
            assert search.loads(KeyGroupLayout(parallelism, most)).by_subtask.tolist() == expected
            assert (worst[row, column], idle[row, column]) == (max(expected), expected.count(0))


def test_no_layout_is_flatter_than_the_bound(uneven: Path) -> None:
    for measure in MEASURES:
        search = LayoutSearch(measured(uneven, measure))
        parallelisms = [1, 2, 5, 16, 150, 303]
        worst, _ = search.worst_and_idle(np.arange(1, 2000), parallelisms)
        for column, parallelism in enumerate(parallelisms):
            assert search.least_possible(parallelism) <= min(worst[worst[:, column] >= 0, column])
    assert LayoutSearch(measured(uneven, "keys")).least_possible(303) == 1
    assert LayoutSearch(measured(uneven, "keys")).least_possible(150) == 3
    assert LayoutSearch(measured(uneven)).least_possible(50) == bytes_of("the heaviest")


def advice_of(folder: Path, keys: int, parallelism: int, *spans: Span) -> Advice:
    path = write_blobs(folder / f"{keys}-{parallelism}", dict.fromkeys(range(keys), 3), parallelism, 128)
    return advise(measured(path), *spans)


def test_five_integer_keys_on_five_subtasks(tmp_path: Path) -> None:
    advice = advice_of(tmp_path, 5, 5)
    assert (advice.before["keys"].by_subtask.tolist(), advice.before["keys"].idle) == ([1, 0, 0, 2, 2], 2)
    assert advice.candidates == 32768 - 128 + 1
    assert advice.proposal.flattest.layout == KeyGroupLayout(5, 133)
    assert advice.after["keys"].by_subtask.tolist() == [1] * 5
    assert advice.is_worth_it
    search = LayoutSearch(advice.weights)
    assert all(search.loads(KeyGroupLayout(5, most)).idle for most in range(128, 133))


def test_twenty_integer_keys_on_eight_subtasks(tmp_path: Path) -> None:
    advice = advice_of(tmp_path, 20, 8)
    assert advice.before["keys"].worst == 6
    assert advice.proposal.flattest.layout == KeyGroupLayout(8, 165)
    assert advice.after["keys"].worst == 3
    assert advice.proposal.least_over_mean == 3 / 2.5
    search = LayoutSearch(advice.weights)
    assert all(search.loads(KeyGroupLayout(8, most), "keys").worst > 3 for most in range(128, 165))


def test_a_smaller_max_parallelism_comes_last(tmp_path: Path) -> None:
    # At 111 and at 133 each of five keys has a subtask of its own; 111 is nearer.
    path = write_blobs(tmp_path / "five", dict.fromkeys(range(5), 3), 5, 115)
    assert advise(measured(path), None, Span(5, 200)).proposal.flattest.layout == KeyGroupLayout(5, 133)
    assert advise(measured(path), None, Span(5, 130)).proposal.flattest.layout == KeyGroupLayout(5, 111)


def test_what_few_keys_gain_is_luck(tmp_path: Path) -> None:
    chance = advice_of(tmp_path, 20, 8).chance
    assert chance is not None
    assert abs(chance.systematic) < 0.05
    assert chance.good_luck_after > 0.5
    parts = chance.systematic + chance.bad_luck_before + chance.good_luck_after
    assert parts == pytest.approx(chance.before - chance.after)


@pytest.mark.slow
def test_what_even_ranges_gain_is_systematic(tmp_path: Path) -> None:
    # 128 key groups on 48 subtasks: some have 3, some 2. 144 are 3 for each.
    path = write_blobs(tmp_path / "many", dict.fromkeys(range(60_000), 0), 48, 128)
    search = LayoutSearch(measured(path))
    chance = search.chance(KeyGroupLayout(48, 128), KeyGroupLayout(48, 144))
    assert chance.before - chance.after > 0.05
    assert chance.systematic == pytest.approx(chance.before - chance.after, abs=0.04)
    assert search.steady(48) == KeyGroupLayout(48, 144)


def test_the_expected_load_is_that_of_other_keys(tmp_path: Path) -> None:
    layout = KeyGroupLayout(6, 128)
    found = []
    for turn in range(12):
        keys = dict.fromkeys(range(turn * 100, turn * 100 + 100), 1)
        search = LayoutSearch(measured(write_blobs(tmp_path / str(turn), keys, 6, 128)))
        found.append(search.loads(layout).worst_over_mean)
    assert search.expected(layout) == pytest.approx(np.mean(found), abs=0.12)


def test_of_many_drawn_keys_the_light_ones_are_summed(uneven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = KeyGroupLayout(15, 128)
    each = LayoutSearch(measured(uneven)).expected(layout)
    monkeypatch.setattr("stateferry.look.balance.layouts._DRAWN", 10)
    assert LayoutSearch(measured(uneven)).expected(layout) == pytest.approx(each, rel=0.02)


def test_of_many_keys_some_hundred_layouts_are_searched(uneven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateferry.look.balance.layouts._MOST_WORK", 1)
    maxes = LayoutSearch(measured(uneven)).candidates(20, 32768, [3, 7])
    assert len(maxes) == LEAST_CANDIDATES
    assert {20, 21, 22, 32, 64, 128, 256, 16384} <= set(maxes.tolist())
    assert (maxes.min(), len(set(maxes.tolist()))) == (20, LEAST_CANDIDATES)


def test_a_range_of_parallelisms_has_a_choice_each(tmp_path: Path) -> None:
    advice = advice_of(tmp_path, 20, 8, Span(6, 10), Span(128, 400))
    assert [choice.parallelism for choice in advice.choices] == [6, 7, 8, 9, 10]
    for choice in advice.choices:
        assert choice.today is not None
        assert choice.flattest.worst <= choice.today.worst
        assert 128 <= choice.flattest.layout.max_parallelism <= 400
    # Of those with as many subtasks as today or more, the flattest.
    enough = [choice.flattest.worst_over_mean for choice in advice.choices if choice.parallelism >= 8]
    assert advice.proposal.flattest.worst_over_mean == min(enough)


@pytest.mark.slow
def test_a_key_above_its_fair_share_is_told(tmp_path: Path) -> None:
    path = write_blobs(tmp_path / "hot", {0: 1000, **dict.fromkeys(range(1, 50), 5)}, 4, 128)
    advice = advise(measured(path))
    assert advice.one_key_is_too_heavy
    heaviest, total = advice.weights.heaviest[0].bytes, advice.weights.total
    assert advice.proposal.least_over_mean == pytest.approx(heaviest * 4 / total)
    assert heaviest <= advice.proposal.flattest.worst <= heaviest * 1.05
    assert not advise(measured(path, "keys")).one_key_is_too_heavy


@pytest.mark.slow
def test_the_curve_counts_empty_key_groups_and_what_they_cost(uneven: Path) -> None:
    advice = advise(measured(uneven))
    points = {point.layout.max_parallelism: point for point in advice.curve}
    assert {20, 128, 32768} <= set(points)
    for most in (20, 128, 32768):
        groups = {key_group_of(Scalar.STRING, key, most) for key in SIZES}
        assert points[most].empty_key_groups == most - len(groups)
        assert points[most].offset_bytes == 8 * most
        assert points[most].prefix_bytes == len(SIZES) * (1 if most <= 128 else 2)


@pytest.mark.parametrize("text", ["", "a", "1-", "-4", "5-3", "0", "1-40000", "1-2-3", "1.5"])
def test_a_span_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="parallelism"):
        Span.of(text, "parallelism")
    assert Span.of("4", "parallelism") == Span(4, 4)
    assert Span.of("4-64", "parallelism") == Span(4, 64)


def test_a_max_parallelism_below_the_parallelism_is_refused(uneven: Path) -> None:
    with pytest.raises(UsageError, match="at most 2"):
        advise(measured(uneven), max_parallelism=Span(1, 2))


def test_a_layout_is_for_the_operators_that_can_be_parallel(tmp_path: Path) -> None:
    one = LegacyState(rows={"hot": {"a": (5, 0)}})
    savepoint = one.write(str(tmp_path / "s"), other=one, gate=one.with_changes(max_parallelism=1))
    main, other, gate = savepoint.metadata.operators
    layout = KeyGroupLayout(1, 256)
    command, *more = how_to_apply(savepoint, main, layout)
    assert command.startswith("stateferry run")
    assert any("every operator that can be parallel (1 other)" in line for line in more)
    (refused,) = how_to_apply(savepoint, gate, layout)
    assert "operator gate keeps max parallelism 1" in refused
    raw = KeyedHandle(KeyGroupRange(0, 0), (0,), InlineBytes("raw", b"?"))
    with_raw = replace(other, subtasks=(replace(other.subtasks[0], raw_keyed=raw),))
    for operators in ((main, with_raw, gate), (with_raw, main)):
        told = replace(savepoint, metadata=replace(savepoint.metadata, operators=operators))
        (refused,) = how_to_apply(told, main, layout)
        assert "operator other has raw keyed state" in refused
