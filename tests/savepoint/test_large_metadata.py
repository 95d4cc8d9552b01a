"""`_metadata` of large jobs: the time to read, check and write it grows with its size, and not faster."""

from __future__ import annotations

import cProfile
import gc
import pstats
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import ranges
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import (
    KeyedHandle,
    Metadata,
    Operator,
    OperatorHandle,
    PartitionedState,
    RelativeFile,
    Subtask,
)
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.reader import Savepoint, metadata_of, operator_id
from flinkstate.writing.operator_rewrite import Layout, OperatorRewrite
from stateferry.proof.metadata_check import compare_metadata

PROPERTIES = parse_metadata(
    (Path(__file__).parents[1] / "savepoints" / "legacy-2.3-rocksdb" / "_metadata").read_bytes(), ""
).properties
# From the small to the large one. What grows with the square of the size takes a thousand times as long.
GROWTH, MOST = 32, 180


def of_operators(count: int) -> Metadata:
    """A job of many operators without state."""
    operators = (Operator(operator_id(f"{number}"), 1, 128, f"{number}", f"{number}") for number in range(count))
    return Metadata(6, 1, tuple(operators), (), PROPERTIES)


def of_subtasks(count: int) -> Metadata:
    """An operator with many subtasks that have finished."""
    subtasks = tuple(Subtask(index, finished=True) for index in range(count))
    return Metadata(
        6, 1, (Operator(operator_id("one"), count, 32768, "one", "one", subtasks=subtasks),), (), PROPERTIES
    )


def of_large_job(parallelism: int, operators: int, with_state: int) -> Metadata:
    """An honest job: of its operators some have keyed state and operator state in each subtask."""
    elements = (PartitionedState("offsets", DistributionMode(0), (0, 40)),)
    subtasks = tuple(
        Subtask(
            index,
            managed_operator=OperatorHandle(elements, RelativeFile(f"{index:032x}", 80)),
            managed_keyed=KeyedHandle(
                key_groups, tuple(range(100, 100 + key_groups.size)), RelativeFile(f"{index:036x}", 200)
            ),
        )
        for index, key_groups in enumerate(ranges(8192, parallelism))
    )
    made = (
        Operator(
            operator_id(f"{number}"), parallelism, 8192, f"{number}", f"{number}",
            subtasks=subtasks if number < with_state else (),
        )
        for number in range(operators)
    )  # fmt: skip
    return Metadata(6, 1, tuple(made), (), PROPERTIES)


def seconds(work: Callable[[], object]) -> float:
    """The least processor time of a few tries."""
    found = []
    # What other tests have left in memory must not be walked over in the middle.
    gc.disable()
    try:
        for _ in range(3):
            began = time.process_time()
            work()
            found.append(time.process_time() - began)
    finally:
        gc.enable()
    return min(found)


def compared(metadata: Metadata) -> None:
    assert list(compare_metadata(metadata, metadata, Layout())) == []


def rewritten(folder: Location, metadata: Metadata) -> None:
    for operator in metadata.operators:
        OperatorRewrite.prepare(Savepoint(folder, metadata), operator, Layout())


@pytest.mark.full
@pytest.mark.parametrize(("of", "size"), [(of_operators, 400), (of_subtasks, 1000)])
def test_time_grows_with_the_size(of: Callable[[int], Metadata], size: int) -> None:
    took: dict[str, list[float]] = {}
    for metadata in (of(size), of(size * GROWTH)):
        data = build_metadata(metadata)
        folder = Location.of("/nowhere")
        works: dict[str, Callable[[], object]] = {
            "parse": partial(parse_metadata, data, "a file"),
            "build": partial(build_metadata, metadata),
            "check": partial(metadata_of, folder, data),
            "compare": partial(compared, metadata),
            "rewrite": partial(rewritten, folder, metadata),
        }
        for what, work in works.items():
            took.setdefault(what, []).append(seconds(work))
    slow = {what: (small, large) for what, (small, large) in took.items() if large > MOST * max(small, 0.0001)}
    assert not slow


def test_a_large_job_takes_few_calls_for_each_subtask() -> None:
    metadata = of_large_job(5000, 40, with_state=1)
    data = build_metadata(metadata)
    calls = cProfile.Profile()
    assert calls.runcall(metadata_of, Location.of("/nowhere"), data) == metadata
    # Other operators with state take as many again. Field by field it was three times as many.
    assert pstats.Stats(calls).total_calls < 45 * 5000  # type: ignore[attr-defined]


@pytest.mark.full
@pytest.mark.slow
def test_the_metadata_of_a_large_job_is_read_in_about_a_second() -> None:
    data = build_metadata(of_large_job(5000, 40, with_state=40))
    # Several times a quiet machine's time; field by field it took three times as long.
    assert seconds(lambda: metadata_of(Location.of("/nowhere"), data)) < 6


def test_a_task_gets_the_files_of_its_key_groups() -> None:
    (operator, *_) = of_large_job(5, 1, with_state=1).operators
    source = Savepoint(Location.of("/nowhere"), Metadata(6, 1, (operator,), (), PROPERTIES))
    rewrite = OperatorRewrite(source, operator, operator, None, None, None)  # type: ignore[arg-type]
    wanted = [*ranges(8192, 3), *ranges(8192, 7), *ranges(8192, 5)]
    for key_groups, part in zip(wanted, rewrite.of_key_groups(wanted), strict=True):
        held = [one for one in operator.subtasks if one.keyed and not one.keyed.range.intersection(key_groups).is_empty]
        assert part.old.subtasks == tuple(held)
