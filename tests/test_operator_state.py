from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import UsageError
from flinkstate.metadata.operator_state import DistributionMode, OperatorStateShare, StatePartitions, redistribute

SPLIT, UNION, BROADCAST = DistributionMode.SPLIT_DISTRIBUTE, DistributionMode.UNION, DistributionMode.BROADCAST
Shares = list[list[OperatorStateShare[str]]]


def share(handle: str, **states: tuple[DistributionMode, tuple[int, ...]]) -> OperatorStateShare[str]:
    return OperatorStateShare(
        handle, {name: StatePartitions(mode, offsets) for name, (mode, offsets) in states.items()}
    )


def taken(shares: Shares) -> list[dict[str, dict[str, tuple[int, ...]]]]:
    return [
        {part.handle: {name: partitions.offsets for name, partitions in part.states.items()} for part in subtask}
        for subtask in shares
    ]


def items(shares: Shares, name: str) -> list[list[tuple[str, int]]]:
    """The items of one state that each subtask takes."""
    return [
        [(part.handle, offset) for part in subtask if name in part.states for offset in part.states[name].offsets]
        for subtask in shares
    ]


@st.composite
def operator_states(draw: st.DrawFn) -> Shares:
    modes = draw(
        st.dictionaries(st.text("abcxyz", min_size=1, max_size=3), st.sampled_from(DistributionMode), max_size=5)
    )
    subtasks: Shares = []
    for subtask in range(draw(st.integers(1, 7))):
        states = {}
        for name, mode in modes.items():
            count = draw(st.none() | st.integers(0, 6))
            if count is not None:
                states[name] = StatePartitions(mode, tuple(range(10, 10 + count)))
        subtasks.append([OperatorStateShare(f"file-{subtask}", states)] if states else [])
    return subtasks


def names_of(shares: Shares, mode: DistributionMode) -> set[str]:
    return {
        name
        for subtask in shares
        for part in subtask
        for name, partitions in part.states.items()
        if partitions.mode is mode
    }


@given(operator_states(), st.integers(1, 9))
def test_split_items_are_dealt_out_once_in_order_and_evenly(old: Shares, parallelism: int) -> None:
    new = redistribute(old, parallelism)
    assert len(new) == parallelism
    for name in names_of(old, SPLIT):
        before, after = items(old, name), items(new, name)
        assert Counter(item for subtask in after for item in subtask) == Counter(
            item for part in before for item in part
        )
        if parallelism != len(old):
            sizes = [len(subtask) for subtask in after]
            assert max(sizes) - min(sizes) <= 1
            assert all(subtask == sorted(subtask) for subtask in after)
        else:
            assert after == before


@given(operator_states(), st.integers(1, 9))
def test_union_lists_go_whole_to_every_subtask(old: Shares, parallelism: int) -> None:
    for name in names_of(old, UNION):
        everything = sorted(item for subtask in items(old, name) for item in subtask)
        for subtask in items(redistribute(old, parallelism), name):
            assert sorted(subtask) == everything


@given(operator_states(), st.integers(1, 9))
def test_broadcast_state_is_one_copy_for_each_subtask(old: Shares, parallelism: int) -> None:
    new = redistribute(old, parallelism)
    for name in names_of(old, BROADCAST):
        copies = [part.handle for subtask in old for part in subtask if name in part.states]
        given_out = [[part.handle for part in subtask if name in part.states] for subtask in new]
        if parallelism == len(old) == len(copies):
            assert given_out == [[handle] for handle in copies]
        elif parallelism != len(old):
            assert given_out == [[copies[subtask % len(copies)]] for subtask in range(parallelism)]
        else:
            assert all(given_out)


def test_a_split_list_on_fewer_subtasks() -> None:
    old = [[share("a", s=(SPLIT, (1, 2, 3)))], [share("b", s=(SPLIT, (4, 5)))], [share("c", s=(SPLIT, (6, 7)))]]
    assert taken(redistribute(old, 2)) == [
        {"a": {"s": (1, 2, 3)}, "b": {"s": (4,)}},
        {"b": {"s": (5,)}, "c": {"s": (6, 7)}},
    ]


def test_the_next_state_begins_where_the_odd_items_ended() -> None:
    old = [[share("f", a=(SPLIT, (1, 2, 3, 4)), b=(SPLIT, (5, 6)))], []]
    assert taken(redistribute(old, 3)) == [
        {"f": {"a": (1, 2)}},
        {"f": {"a": (3,), "b": (5,)}},
        {"f": {"a": (4,), "b": (6,)}},
    ]


def test_states_take_turns_in_the_order_of_a_java_hash_map() -> None:
    """What Flink made of these states, two of which share a bucket."""
    old = [
        [share("h0", s9uv0=(SPLIT, ()), s1mg22=(SPLIT, (2, 12)), stw73=(SPLIT, (3, 13)))],
        [share("h1", s9uv0=(SPLIT, (0,)), s1mg22=(SPLIT, (2, 12)), stw73=(SPLIT, ()))],
    ]
    assert taken(redistribute(old, 7)) == [
        {"h0": {"stw73": (3,)}},
        {"h0": {"stw73": (13,)}},
        {"h0": {"s9uv0": ()}, "h1": {"s9uv0": (0,)}},
        {"h0": {"s1mg22": (2,)}},
        {"h0": {"s1mg22": (12,)}},
        {"h1": {"s1mg22": (2,)}},
        {"h1": {"s1mg22": (12,)}},
    ]


def test_an_empty_list_in_the_way_is_named_without_items() -> None:
    old = [[share("a", s=(SPLIT, ()))], [share("b", s=(SPLIT, (1, 2)))], [share("c", s=(SPLIT, ()))]]
    assert taken(redistribute(old, 2)) == [{"a": {"s": ()}, "b": {"s": (1,)}}, {"b": {"s": (2,)}}]


def test_unchanged_parallelism_keeps_split_and_broadcast_and_spreads_union() -> None:
    old = [
        [share("a", s=(SPLIT, (1, 2, 3)), u=(UNION, (4,)), b=(BROADCAST, (5,)))],
        [share("b", s=(SPLIT, (1,)), u=(UNION, (2,)), b=(BROADCAST, (3,)))],
    ]
    assert taken(redistribute(old, 2)) == [
        {"a": {"s": (1, 2, 3), "u": (4,), "b": (5,)}, "b": {"u": (2,)}},
        {"b": {"s": (1,), "u": (2,), "b": (3,)}, "a": {"u": (4,)}},
    ]


def test_unchanged_parallelism_gives_finished_subtasks_the_broadcast_state() -> None:
    old = [[share("a", b=(BROADCAST, (5,)))], [], [share("c", b=(BROADCAST, (6,)))]]
    assert taken(redistribute(old, 3)) == [
        {"a": {"b": (5,)}},
        {"c": {"b": (6,)}},
        {"c": {"b": (6,)}, "a": {"b": (5,)}},
    ]


def test_the_old_shares_are_left_as_they_are() -> None:
    old = [[share("a", u=(UNION, (1,)))], [share("b", u=(UNION, (2,)))]]
    redistribute(old, 2)
    assert taken(old) == [{"a": {"u": (1,)}}, {"b": {"u": (2,)}}]


@pytest.mark.parametrize("parallelism", [0, -1, 32769])
def test_parallelism_is_checked(parallelism: int) -> None:
    with pytest.raises(UsageError, match=f"found {parallelism}"):
        redistribute([[]], parallelism)
    with pytest.raises(UsageError, match="old parallelism"):
        redistribute([], 1)
