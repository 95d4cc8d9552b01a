"""Native savepoints with newer files above those of an earlier one: real Flink finds what the newer files say."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flinkstate.files.digests import Digests
from flinkstate.keyed.native_file import NativeFile
from flinkstate.reading.reader import Savepoint
from flinkstate.rocksdb.pending_rows import PendingRows
from flinkstate.writing.newer_files import KnownFiles
from flinkstate.writing.writer import SavepointWriter
from stateferry.runs.report.file_digest import digest_tasks
from tests.flink.harness import FlinkHarness
from tests.flink.jars import VERSIONS
from tests.flink.jobs import Timers
from tests.flink.judge import Change, Make, raw_entries
from tests.flink.scenarios import SCENARIOS
from tests.flink.test_native_output import on_rocksdb, written

pytestmark = pytest.mark.flink
Row = tuple[bytes, bytes]


def rows_of(data: PendingRows) -> list[Row]:
    rows = data.in_order()
    return [
        (rows.key(place), rows.data[rows.key_ends[row] + 4 : rows.ends[row]].tobytes())
        for place, row in enumerate(rows.order[: rows.count].tolist())
    ]


def pending(rows: list[Row]) -> PendingRows:
    made = PendingRows()
    if rows:
        parts = (struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value for key, value in rows)
        section = b"".join(parts)
        made.add(np.frombuffer(section, np.uint8))
    return made


def altered(rows: list[Row], chosen: random.Random) -> list[Row]:
    """Some rows are gone, and some have the value of another row of the same state."""
    kept = [row for row in rows if chosen.random() > 0.3]
    return [(key, chosen.choice(rows)[1] if chosen.random() < 0.3 else value) for key, value in kept]


def with_newer_files(
    base: Path, target: Path, seed: int, *, timers: bool = False
) -> dict[tuple[str, str, bytes], bytes]:
    """Writes a savepoint whose rows are altered by newer files; returns all that it must have."""
    opened, chosen = Savepoint.open(str(base)), random.Random(seed)
    known = {name: (one.size, one.digest) for name, one in (task.take() for task in digest_tasks(opened))}
    held = KnownFiles(known)
    digests, wanted = Digests(), dict[tuple[str, str, bytes], bytes]()
    writer = SavepointWriter(str(target), digests)
    operators = []
    for operator in opened.metadata.operators:
        subtasks = []
        for subtask in operator.subtasks:
            handle = subtask.native_keyed
            made = writer.carry_over(opened.folder, operator.hex_id, subtask)
            if handle is not None:
                with (
                    NativeFile(opened.folder, handle, operator.max_parallelism, subtask.index) as file,
                    writer.newer_files(
                        operator.hex_id,
                        subtask.index,
                        file,
                        held,
                        file.header,
                        9,
                        is_compressed=True,
                    ) as out,
                ):
                    for key_group in handle.range:
                        for state, meta in enumerate(file.header.states):
                            there = PendingRows()
                            for section in file.sections_of(key_group, {state}):
                                there.add(section.data[section.starts[0] : section.ends[-1]])
                            rows = rows_of(there)
                            stays = meta.name.startswith("_timer_state") and not timers
                            found = rows if stays else altered(rows, chosen)
                            out.write(state, pending(found), there)
                            wanted |= {(operator.hex_id, meta.name, key): value for key, value in found}
                    made = made.with_keyed(out.close())
            subtasks.append(made)
        operators.append(replace(operator, subtasks=tuple(subtasks)))
    writer.commit(replace(opened.metadata, operators=tuple(operators)))
    return wanted


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_finds_what_newer_files_put_and_delete(
    version: str, made: Make, flink: Callable[[str], FlinkHarness], tmp_path: Path
) -> None:
    job = on_rocksdb(SCENARIOS["kinds-ttl"])
    job = replace(job, operators=tuple(replace(o, timers=o.timers and Timers(event=2, far=1)) for o in job.operators))
    source = made(version, job)
    path = written(source, job, Change(parallelism=2), tmp_path / "base")
    going_on = Change(parallelism=2).job(job)
    for times in range(3):
        wanted = with_newer_files(path, tmp_path / f"{times}", times)
        path = tmp_path / f"{times}"
        found = {(operator, state, key): value for operator, state, key, value in raw_entries(path)}
        assert found == wanted
    # What Flink has read it writes again, of which our reader finds the same.
    settings = {"execution.checkpointing.incremental": "true"}
    again = replace(going_on, settings={**going_on.settings, **settings}, inline_threshold=0)
    canonical = flink(version).carry(path, going_on, format_="CANONICAL")
    assert _named(raw_entries(canonical)) == _named((*one, wanted[one]) for one in wanted)
    for parallelism in (2, 3, 1):
        path = flink(version).carry(path, Change(parallelism=parallelism).job(again), format_="CHECKPOINT")
        assert _named(raw_entries(path)) == _named((*one, wanted[one]) for one in wanted)


def _named(entries: Iterable[tuple[str, str, bytes, bytes]]) -> dict[tuple[str, str, bytes], bytes]:
    return {(operator, state, key): value for operator, state, key, value in entries}
