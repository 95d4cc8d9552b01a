import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError, UsageError
from flinkstate.hashing.key_groups import KeyGroupRange, ranges
from flinkstate.metadata.key_group_extents import KeyGroupExtent, SubtaskFile, key_group_extents
from flinkstate.metadata.restore_plan import plan_restore

HEADER = 100


@st.composite
def rescales(draw: st.DrawFn) -> tuple[int, int, int, list[int]]:
    """Max parallelism, old and new parallelism, and the bytes of every key group (0 = no data)."""
    max_parallelism = draw(st.integers(1, 300))
    old, new = draw(st.integers(1, max_parallelism)), draw(st.integers(1, max_parallelism))
    sizes = draw(
        st.lists(st.integers(0, 3) | st.integers(0, 10**9), min_size=max_parallelism, max_size=max_parallelism)
    )
    return max_parallelism, old, new, sizes


def files_of(max_parallelism: int, parallelism: int, sizes: list[int]) -> list[SubtaskFile]:
    files = []
    for subtask, key_groups in enumerate(ranges(max_parallelism, parallelism)):
        position = HEADER
        offsets = []
        for key_group in key_groups:
            offsets.append(position if sizes[key_group] else 0)
            position += sizes[key_group]
        files.append(SubtaskFile(subtask, f"file-{subtask}", key_groups, tuple(offsets), position))
    return files


@given(rescales())
def test_every_key_group_is_read_once_by_its_new_owner(rescale: tuple[int, int, int, list[int]]) -> None:
    max_parallelism, old, new, sizes = rescale
    files = files_of(max_parallelism, old, sizes)
    plan = plan_restore(files, max_parallelism, old, new)
    read_groups = []
    for read in plan.reads:
        for extent in key_group_extents(read.file):
            if read.start <= extent.start and extent.end <= read.end:
                assert extent.key_group * new // max_parallelism == read.new_subtask
                read_groups.append(extent.key_group)
    assert read_groups == [key_group for key_group in range(max_parallelism) if sizes[key_group]]
    assert plan.total_bytes == sum(sizes)
    staying = [
        group for group in range(max_parallelism) if group * old // max_parallelism == group * new // max_parallelism
    ]
    assert plan.staying_bytes == sum(sizes[group] for group in staying)
    pairs = [(read.file.subtask, read.new_subtask) for read in plan.reads]
    assert len(set(pairs)) == len(pairs), "each hit is one sequential read"
    assert [read.new_subtask for read in plan.reads] == sorted(read.new_subtask for read in plan.reads)


def test_a_plan_of_ten_key_groups_from_three_to_four() -> None:
    plan = plan_restore(files_of(10, 3, [10] * 10), 10, 3, 4)
    assert [
        (read.new_subtask, read.file.subtask, str(read.key_groups), read.start, read.end) for read in plan.reads
    ] == [
        (0, 0, "[0, 2]", 100, 130),
        (1, 0, "[3, 3]", 130, 140),
        (1, 1, "[4, 4]", 100, 110),
        (2, 1, "[5, 6]", 110, 130),
        (2, 2, "[7, 7]", 100, 110),
        (3, 2, "[8, 9]", 110, 130),
    ]
    assert (plan.total_bytes, plan.staying_bytes) == (100, 50)


def test_only_ranges_with_data_are_read() -> None:
    plan = plan_restore(files_of(10, 1, [0, 0, 5, 0, 0, 7, 0, 0, 0, 0]), 10, 1, 2)
    assert [(read.new_subtask, str(read.key_groups), read.size) for read in plan.reads] == [
        (0, "[2, 2]", 5),
        (1, "[5, 5]", 7),
    ]


def test_a_subtask_without_a_file_gives_nothing() -> None:
    files = [file for file in files_of(10, 3, [10] * 10) if file.subtask != 1]
    assert plan_restore(files, 10, 3, 2).total_bytes == 70
    assert plan_restore([], 10, 3, 2).reads == ()


def test_key_groups_in_another_order_are_found_where_they_are() -> None:
    file = SubtaskFile(0, "shuffled", KeyGroupRange(0, 3), (300, 100, 0, 200), 350)
    assert key_group_extents(file) == (
        KeyGroupExtent(0, 300, 350),
        KeyGroupExtent(1, 100, 200),
        KeyGroupExtent(3, 200, 300),
    )
    plan = plan_restore([file], 4, 1, 1)
    assert [(str(read.key_groups), read.start, read.end) for read in plan.reads] == [
        ("[0, 0]", 300, 350),
        ("[1, 3]", 100, 300),
    ]


@pytest.mark.parametrize(
    ("key_groups", "offsets", "found"),
    [
        (KeyGroupRange(0, 1), (100,), "1 offsets"),
        (KeyGroupRange(0, 1), (100, 200), "200"),
        (KeyGroupRange(0, 1), (-1, 100), "-1"),
        (KeyGroupRange(0, 1), (100, 100), "100 for key group"),
        (KeyGroupRange(3, 4), (100, 110), r"the range \[3, 4\]"),
    ],
)
def test_offsets_that_lie_are_named(key_groups: KeyGroupRange, offsets: tuple[int, ...], found: str) -> None:
    with pytest.raises(DamagedError, match=f"a-file.*found {found}"):
        plan_restore([SubtaskFile(0, "a-file", key_groups, offsets, 200)], 4, 1, 2)


def test_overlapping_files_are_named() -> None:
    files = [
        SubtaskFile(0, "one", KeyGroupRange(0, 2), (0, 0, 0), 10),
        SubtaskFile(1, "other", KeyGroupRange(2, 3), (0, 0), 10),
    ]
    with pytest.raises(DamagedError, match=r"other: .*\[0, 2\] belongs to one.*found the range \[2, 3\]"):
        plan_restore(files, 4, 2, 1)


def test_layouts_are_checked() -> None:
    with pytest.raises(UsageError, match="found 5"):
        plan_restore([], 4, 5, 1)
    with pytest.raises(UsageError, match="found 5"):
        plan_restore([], 4, 1, 5)
    with pytest.raises(UsageError, match="old subtask"):
        plan_restore([SubtaskFile(1, "one", KeyGroupRange(0, 3), (0,) * 4, 10)], 4, 1, 1)
