"""Chunks: every key group with data once, in runs of about the same size."""

from __future__ import annotations

from collections.abc import Container
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange, ranges
from flinkstate.metadata.chunks import Chunk, plan_chunks
from flinkstate.metadata.metadata import (
    AbsoluteFile,
    InlineBytes,
    KeyedHandle,
    Metadata,
    Operator,
    RelativeFile,
    Subtask,
)
from flinkstate.reading.reader import Savepoint

HEADER = 100


def operator(sizes: list[int], parallelism: int) -> Operator:
    """Key group i has `sizes[i]` bytes; the subtasks' files are of every kind there is."""
    subtasks = []
    for index, groups in enumerate(ranges(len(sizes), parallelism)):
        offsets, position = [], HEADER
        for group in groups:
            offsets.append(position if sizes[group] else 0)
            position += sizes[group]
        streams = (
            RelativeFile(f"file-{index}", position),
            AbsoluteFile(f"file:/file-{index}", position),
            InlineBytes(f"inlined {index}", bytes(position)),
        )
        subtasks.append(Subtask(index, managed_keyed=KeyedHandle(groups, tuple(offsets), streams[index % 3])))
    return Operator(bytes(16), parallelism, len(sizes), subtasks=tuple(reversed(subtasks)))


def planned(operator: Operator, *wanted: Container[int], **options: Any) -> tuple[Chunk, ...]:
    savepoint = Savepoint(Location.of("/nowhere"), Metadata(6, 1, (operator,)))
    return plan_chunks(operator, savepoint.placed(operator), *wanted, **options)


SIZES = st.lists(st.sampled_from((0, 1, 7, 50, 1000)) | st.integers(0, 3000), min_size=1, max_size=60)


@given(SIZES, st.integers(1, 5), st.integers(1, 4000))
def test_every_key_group_with_data_is_in_one_chunk(sizes: list[int], parallelism: int, target: int) -> None:
    chunks = planned(operator(sizes, min(parallelism, len(sizes))), target_bytes=target)
    filled = [group for group, size in enumerate(sizes) if size]
    assert [group for chunk in chunks for group in chunk.key_groups] == filled
    assert [chunk.size for chunk in chunks] == [sum(sizes[group] for group in chunk.key_groups) for chunk in chunks]
    assert all(group in part.handle.range for c in chunks for part in c.parts for group in part.key_groups)
    # Off by one key group at most, however the key groups are.
    assert max((chunk.size for chunk in chunks), default=0) <= target + max(sizes)
    assert len(chunks) <= -(-sum(sizes) // target)


def test_neighbours_in_a_chunk_come_from_one_file_in_one_go() -> None:
    (chunk,) = planned(operator([10] * 40, 4))
    assert [len(part.key_groups) for part in chunk.parts] == [10] * 4
    assert all(one < other for one, other in pairwise(chunk.key_groups))


def test_even_key_groups_make_even_chunks() -> None:
    chunks = planned(operator([1000] * 128, 3), target_bytes=16_000)
    assert [chunk.size for chunk in chunks] == [16_000] * 8


def test_as_many_chunks_as_asked_for_if_there_is_enough_to_read() -> None:
    megabytes = [1 << 20] * 64
    assert len(planned(operator(megabytes, 1), at_least=6)) == 6
    assert len(planned(operator(megabytes, 1), at_least=40)) == 16
    assert len(planned(operator([100] * 64, 1), at_least=6)) == 1


def test_only_wanted_key_groups_are_read() -> None:
    chunks = planned(operator([10] * 30, 3), range(3, 30, 7), target_bytes=20)
    assert [chunk.key_groups for chunk in chunks] == [(3, 10), (17, 24)]
    assert planned(operator([10] * 30, 3), ()) == ()


def test_a_key_group_in_two_files_is_damage() -> None:
    handles = [KeyedHandle(KeyGroupRange(0, 1), (5, 6), RelativeFile(name, 9)) for name in ("a", "b")]
    subtasks = tuple(Subtask(index, managed_keyed=handle) for index, handle in enumerate(handles))
    with pytest.raises(DamagedError, match=r"key group 0.*subtasks 0 and 1"):
        planned(Operator(bytes(16), 2, 8, subtasks=subtasks))
