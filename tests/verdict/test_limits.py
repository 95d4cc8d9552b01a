"""The verdict on a large savepoint reads little, and takes a time that doesn't grow with the state."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.hashing.key_groups import ranges
from flinkstate.keyed.keyed_files import open_keyed
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import KeyedHandle, Metadata, Operator, RelativeFile, Subtask
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from local_airflow.settings import free_port
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Outcome
from stateferry.verdict.versions import Line
from tests.support.expected_columns import SAVEPOINTS
from tests.support.rewriting import rewrite
from tests.support.s3_server import S3Server

OPERATORS, PARALLELISM, MAX_PARALLELISM = 100, 1000, 1024
EACH, REAL = 10 << 20, 11 << 20
MOST_READ = 200_000_000
MOST_SECONDS = 10
MILLISECONDS = 30


def make(folder: Path, scratch: Path) -> None:
    """A savepoint of 1 TB by its sizes: a thousand subtasks have a file without content, the largest one is real."""
    small = scratch / "small"
    golden = Savepoint.open(str(SAVEPOINTS / "hint-hash-map-1.20-rocksdb"))
    rewrite(golden, str(small), Layout({}, MAX_PARALLELISM))
    savepoint = Savepoint.open(str(small))
    (operator,) = [one for one in savepoint.metadata.operators if savepoint.keyed_header(one) is not None]
    group, content = _largest_group(savepoint, operator)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "real").write_bytes(content)
    with (folder / "sparse").open("wb") as sparse:
        sparse.truncate(EACH)
    head = _header_length(savepoint, operator)
    subtasks = []
    for index, range_ in enumerate(ranges(MAX_PARALLELISM, PARALLELISM)):
        is_real = range_.start <= group <= range_.end
        offsets = tuple(head if not is_real or one == group else 0 for one in range(range_.start, range_.end + 1))
        stream = RelativeFile("real", len(content)) if is_real else RelativeFile("sparse", EACH)
        subtasks.append(Subtask(index, managed_keyed=KeyedHandle(range_, offsets, stream)))
    one = replace(operator, parallelism=PARALLELISM, max_parallelism=MAX_PARALLELISM, subtasks=tuple(subtasks))
    operators = tuple(replace(one, id=number.to_bytes(16, "big")) for number in range(1, OPERATORS + 1))
    metadata = Metadata(4, 1, operators, (), savepoint.metadata.properties)
    (folder / "_metadata").write_bytes(build_metadata(metadata))


def _header_length(savepoint: Savepoint, operator: Operator) -> int:
    handles = [one.managed_keyed for one in operator.subtasks if one.managed_keyed is not None]
    return min(offset for handle in handles for offset in handle.offsets if offset)


def _largest_group(savepoint: Savepoint, operator: Operator) -> tuple[int, bytes]:
    """A key group with entries of the first state, and a file that has them so often that it is large."""
    for subtask in operator.subtasks:
        if (handle := subtask.managed_keyed) is None:
            continue
        with open_keyed(savepoint.folder, handle, operator.max_parallelism, subtask.index) as file:
            for group in file.extents:
                for section in file.sections(group):
                    if len(section):
                        raw, length = bytes(section.raw), _header_length(savepoint, operator)
                        with savepoint.folder.child(handle.stream.name).open() as stream:
                            header = bytes(stream.read(length))
                        times = (REAL - length) // len(raw)
                        state = section.state.to_bytes(2, "big")
                        return group, header + state + raw * times + b"\xff\xff"
    raise AssertionError("there is a key group with entries")


def _read_by_this_process() -> int:
    counted = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counted["rchar"])


def said(place: str) -> list[Outcome]:
    return [one.finding.outcome for one in verdicts(Savepoint.open(place), Asked(Line.TWO))]


def _processor_seconds(usage: Any) -> float:
    return float(usage.ru_utime + usage.ru_stime)


@pytest.mark.slow
def test_a_terabyte_on_a_disk(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    make(tmp_path / "large", tmp_path)
    # Modules and kernels are loaded before.
    said(str(SAVEPOINTS / "hint-hash-map-1.20-rocksdb"))
    metadata = Savepoint.open(str(tmp_path / "large")).metadata
    sizes = [subtask.keyed.size for one in metadata.operators for subtask in one.subtasks if subtask.keyed is not None]
    assert sum(sizes) > 10**12
    before, began = _read_by_this_process(), resource.getrusage(resource.RUSAGE_SELF)
    found = said(str(tmp_path / "large"))
    read, ended = _read_by_this_process() - before, resource.getrusage(resource.RUSAGE_SELF)
    assert len(found) >= OPERATORS
    assert Outcome.WRONG in found
    assert read <= MOST_READ
    # What others do on the machine at the same time isn't counted.
    assert _processor_seconds(ended) - _processor_seconds(began) <= MOST_SECONDS


@contextmanager
def far_away(server: S3Server, told: list[dict[str, int]]) -> Iterator[dict[str, str]]:
    """The environment by which the server is found at the other end of a slow pipe, and what went through it."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.slow_pipe", str(port), str(server.port), str(MILLISECONDS), "1000"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        yield {**server.environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    finally:
        out, _ = process.communicate()
        told.append(json.loads(out))


@pytest.mark.slow
def test_a_terabyte_in_a_store_that_is_far_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = S3Server(tmp_path / "s3")
    (tmp_path / "s3").mkdir()
    told: list[dict[str, int]] = []
    with server:
        make(tmp_path / "s3" / "objects" / server.bucket / "large", tmp_path)
        with far_away(server, told) as environment:
            server.set_up(monkeypatch)
            monkeypatch.setenv("AWS_ENDPOINT_URL", environment["AWS_ENDPOINT_URL"])
            found = said(server.uri("large"))
    assert len(found) >= OPERATORS
    assert Outcome.WRONG in found
    assert told[0]["to_client"] <= MOST_READ
    # So many requests had to wait for one another; the processor needs less than half of the time.
    assert told[0]["in_sequence"] * MILLISECONDS / 1000 <= MOST_SECONDS / 2
