import struct

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import UsageError
from flinkstate.hashing import key_group_arrays as arrays
from flinkstate.hashing import key_groups
from flinkstate.hashing.key_groups import KeyGroupRange

CODES = st.integers(-(2**31), 2**31 - 1)
MAX_PARALLELISMS = st.integers(1, key_groups.UPPER_BOUND_MAX_PARALLELISM)
CHECKED_MURMURS = {
    0: 593689054,
    1: 68075478,
    -1: 1982413648,
    42: 1134849565,
    2147483647: 1653689534,
    -2147483648: 1718298732,
}


@st.composite
def layouts(draw: st.DrawFn) -> tuple[int, int]:
    max_parallelism = draw(MAX_PARALLELISMS)
    return max_parallelism, draw(st.integers(1, max_parallelism))


def reference_murmur(code: int) -> int:
    signed = mmh3.hash(struct.pack("<i", code), 0)
    return 0 if signed == -(2**31) else abs(signed)


@pytest.mark.parametrize(("code", "expected"), CHECKED_MURMURS.items())
def test_murmur_of_checked_values(code: int, expected: int) -> None:
    assert key_groups.murmur(code) == expected
    assert arrays.murmur(np.array([code], dtype=np.int32)).tolist() == [expected]


@given(st.lists(CODES, max_size=50))
def test_murmur_equals_the_reference(codes: list[int]) -> None:
    expected = [reference_murmur(code) for code in codes]
    assert [key_groups.murmur(code) for code in codes] == expected
    assert arrays.murmur(np.array(codes, dtype=np.int32)).tolist() == expected


def test_murmur_equals_the_reference_on_many_codes() -> None:
    codes = np.random.default_rng(7).integers(-(2**31), 2**31, 200_000).astype(np.int32)
    expected = [reference_murmur(code) for code in codes.tolist()]
    assert arrays.murmur(codes).tolist() == expected


def test_columns_may_be_read_only_or_strided() -> None:
    codes = np.arange(20, dtype=np.int32)
    codes.flags.writeable = False
    expected = [key_groups.murmur(code) for code in range(0, 20, 2)]
    assert arrays.murmur(codes[::2]).tolist() == expected


@pytest.mark.parametrize("code", [-(2**31) - 1, 2**31])
def test_murmur_takes_32_bits_only(code: int) -> None:
    with pytest.raises(UsageError, match=str(code)):
        key_groups.murmur(code)


@given(st.lists(CODES, max_size=20), layouts())
def test_columns_equal_single_values(codes: list[int], layout: tuple[int, int]) -> None:
    max_parallelism, _ = layout
    groups = arrays.assign_to_key_groups(np.array(codes, dtype=np.int32), max_parallelism)
    assert groups.dtype == np.int32
    assert groups.tolist() == [key_groups.assign_to_key_group(code, max_parallelism) for code in codes]


def test_few_integer_keys_leave_subtasks_empty() -> None:
    groups = [key_groups.assign_to_key_group(key, 128) for key in range(5)]
    assert [key_groups.operator_index_for_key_group(128, 5, group) for group in groups] == [3, 3, 4, 4, 0]


def test_ranges_of_checked_layouts() -> None:
    assert [str(owned) for owned in key_groups.ranges(10, 3)] == ["[0, 3]", "[4, 6]", "[7, 9]"]
    assert [str(owned) for owned in key_groups.ranges(10, 4)] == ["[0, 2]", "[3, 4]", "[5, 7]", "[8, 9]"]


@given(layouts())
def test_ranges_partition_all_key_groups_by_owner(layout: tuple[int, int]) -> None:
    max_parallelism, parallelism = layout
    owned = key_groups.ranges(max_parallelism, parallelism)
    assert [group for part in owned for group in part] == list(range(max_parallelism))
    for subtask, part in enumerate(owned):
        owners = {key_groups.operator_index_for_key_group(max_parallelism, parallelism, group) for group in part}
        assert owners == {subtask}


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (128, 256), (171, 256), (1000, 2048), (30000, 32768), (32768, 32768)],
)
def test_default_max_parallelism(parallelism: int, expected: int) -> None:
    assert key_groups.default_max_parallelism(parallelism) == expected
    assert key_groups.default_note(parallelism, expected) is None
    assert f"max parallelism {expected} at parallelism {parallelism}" in (key_groups.default_note(parallelism, 7) or "")


@pytest.mark.parametrize(("max_parallelism", "expected"), [(1, 1), (128, 1), (129, 2), (32768, 2)])
def test_key_group_prefix(max_parallelism: int, expected: int) -> None:
    assert key_groups.key_group_prefix_bytes(max_parallelism) == expected


def test_range_knows_its_groups() -> None:
    owned = KeyGroupRange(4, 6)
    assert (owned.size, len(owned), list(owned), owned.is_empty) == (3, 3, [4, 5, 6], False)
    assert [group in owned for group in (3, 4, 6, 7)] == [False, True, True, False]
    assert "4" not in owned


def test_empty_range() -> None:
    empty = KeyGroupRange.EMPTY
    assert (empty.start, empty.end, empty.size, list(empty), empty.is_empty) == (0, -1, 0, [], True)
    assert 0 not in empty
    assert KeyGroupRange.of(5, 4) == empty == KeyGroupRange(0, -1)
    assert KeyGroupRange(0, 3).intersection(empty) == empty
    assert KeyGroupRange(0, 3).intersection(KeyGroupRange(4, 9)) == empty


@given(st.tuples(*[st.integers(0, 40)] * 4))
def test_intersection_has_what_both_have(ends: tuple[int, int, int, int]) -> None:
    one = KeyGroupRange.of(ends[0], ends[1])
    other = KeyGroupRange.of(ends[2], ends[3])
    assert set(one.intersection(other)) == set(one) & set(other)
    assert one.intersection(other) == other.intersection(one)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3), (0, -2), (1, 0)])
def test_impossible_ranges_are_refused(start: int, end: int) -> None:
    with pytest.raises(UsageError, match="0 <= start <= end"):
        KeyGroupRange(start, end)


@pytest.mark.parametrize("value", [-1, 0, 32769])
def test_parallelism_has_bounds(value: int) -> None:
    with pytest.raises(UsageError, match=f"found {value}"):
        key_groups.ranges(value, 1)
    with pytest.raises(UsageError, match=f"found {value}"):
        key_groups.default_max_parallelism(value)
    with pytest.raises(UsageError, match=f"found {value}"):
        key_groups.assign_to_key_group(1, value)
    with pytest.raises(UsageError, match=f"found {value}"):
        arrays.assign_to_key_groups(np.zeros(1, np.int32), value)


def test_parallelism_above_max_parallelism_is_refused() -> None:
    with pytest.raises(UsageError, match="at most the max parallelism 128, found 129"):
        key_groups.range_for_operator_index(128, 129, 0)


def test_unknown_subtasks_and_key_groups_are_refused() -> None:
    for call in (
        lambda: key_groups.range_for_operator_index(128, 4, 4),
        lambda: key_groups.range_for_operator_index(128, 4, -1),
        lambda: key_groups.operator_index_for_key_group(128, 4, 128),
    ):
        with pytest.raises(UsageError, match="found"):
            call()
