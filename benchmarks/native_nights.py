"""Measures two nights on RocksDB's own files, between which one key in a hundred was changed by RocksDB itself."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from benchmarks.executing import on_all_cores
from benchmarks.measuring import Duration, Scale, Subject, expect, in_memory
from benchmarks.native_runs import as_native
from benchmarks.sections import ENTRIES_PER_KEY, NOW, TTL
from benchmarks.state_processor import run_java
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import NamedFile, NativeHandle, RelativeFile, Subtask
from flinkstate.reading.reader import Savepoint
from stateferry.basics.durations import MILLISECONDS_PER_UNIT
from stateferry.demo import MAIN_STATE, NEW_MAIN_STATE, OPERATOR, DemoState, write_demo_savepoint
from stateferry.runs.catalog.publications import Control
from stateferry.runs.checks.plan_check import open_source, planned, resolve
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import FACTS_OF, TablesFacts
from stateferry.runs.record.steps import Step, steps_of
from stateferry.steps.pipeline import Pipeline
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import Fact, InProcess, Measure, Work

CHANGED_EVERY = 100
_SHARE, _ROUNDS = 5, 3
# A night that catches up takes this part of the night before, in all its steps.
_SHARE_OF_ALL = 4
_CATCHES_UP = {"output_format": "native", "full_every": 7}


def next_night(before: Path, after: Path, every: int, *, compacts: bool = False) -> None:
    """Writes a snapshot in which each so-many-th key of each subtask has another value.

    Files that RocksDB has kept are the same files under the same names; `compacts` has it write all of them anew.
    """
    savepoint = Savepoint.open(str(before))
    after.mkdir()
    operators = tuple(
        replace(one, subtasks=tuple(_changed(task, before, after, every, compacts) for task in one.subtasks))
        for one in savepoint.metadata.operators
    )
    metadata = replace(savepoint.metadata, operators=operators, checkpoint_id=savepoint.metadata.checkpoint_id + 1)
    (after / METADATA).write_bytes(build_metadata(metadata))


def _changed(subtask: Subtask, before: Path, after: Path, every: int, compacts: bool) -> Subtask:
    handle = subtask.keyed
    assert isinstance(handle, NativeHandle)
    database, checkpoint = after / f"database-{subtask.index}", after / f"checkpoint-{subtask.index}"
    database.mkdir()
    for file in handle.files:
        os.link(before / file.stream.name, database / file.name)
    run_java("ChangeKeys", database, checkpoint, MAIN_STATE, every, str(compacts).lower())
    kept = {file.name: file for file in handle.files if file.name.endswith(".sst")}
    files: list[NamedFile] = []
    for path in sorted(checkpoint.iterdir()):
        if path.name in kept:
            file = kept[path.name]
        elif path.name.startswith(("CURRENT", "MANIFEST")) or path.suffix == ".sst":
            file = NamedFile(path.name, RelativeFile(f"{subtask.index}-{path.name}-{after.name}", path.stat().st_size))
        else:
            continue
        os.link(path, after / file.stream.name)
        files.append(file)
    os.link(before / handle.meta.name, after / handle.meta.name)
    shutil.rmtree(database)
    shutil.rmtree(checkpoint)
    return replace(subtask, native_keyed=replace(handle, shared=(), private=tuple(files)))


def snapshots(
    scale: Scale, ttl: int | None = None, *, every: int = CHANGED_EVERY, compacts: bool = False
) -> tuple[Path, Path]:
    """The snapshots of two nights; `compacts` has RocksDB write all files anew in between."""
    plain, ours, first, second = (scale.folder / name for name in ("plain", "ours", "first", "second"))
    write_demo_savepoint(
        str(plain), DemoState(scale.keys, ENTRIES_PER_KEY, 0, ttl, NOW, parallelism=2, max_parallelism=128, seed=1)
    )
    as_native(plain, ours)
    # The files that RocksDB writes say which database they are of.
    next_night(ours, first, every, compacts=True)
    next_night(first, second, every, compacts=compacts)
    for folder in (plain, ours):
        shutil.rmtree(folder)
    return first, second


@dataclass(frozen=True, slots=True)
class Timed(InProcess):
    """Workers that note the processor seconds of each step's tasks."""

    cpu: dict[str, float] = field(default_factory=dict)

    def do(
        self, step: str, work: Sequence[Work], fn: Callable[[Work], Fact], measure: Measure[Fact] | None = None
    ) -> list[Fact]:
        began = time.process_time()
        done = super(Timed, self).do(step, work, fn, measure)
        self.cpu[step] = self.cpu.get(step, 0) + time.process_time() - began
        return done


@dataclass(frozen=True, slots=True)
class Night:
    """The seconds of the steps of a rehearsal, the processor seconds of their tasks, and what the tables got."""

    seconds: dict[Step, float]
    cpu: dict[str, float]
    tables: TablesFacts


def night(scale: Scale, source: Path, number: int, ttl: int | None = None, **options: object) -> Night:
    """Rehearses a migration of the source, without Spark, a day after the night before."""
    state = {"legacy": MAIN_STATE, "new": NEW_MAIN_STATE, "no_flag": True, "ttl_ms": ttl}
    values = {
        "source": str(source),
        "target": str(scale.folder / "target"),
        "home": str(scale.folder / "home"),
        "run_id": f"night-{number}",
        "now": NOW + number * MILLISECONDS_PER_UNIT["d"],
        "rehearse": True,
        "no_timers": True,
        "operators": [{"operator": OPERATOR, "states": [state]}],
    }
    plan = planned(values | options)
    run, workers = Run.create(plan, number), Timed()
    in_memory(source)
    with Control(plan.catalog_uri) as control:
        lease = control.acquire(plan.job, plan.run_id)
        try:
            work = RunAtWork(workers, run, resolve(plan, open_source(plan)), control, lease)
            Pipeline(work).carry_out()
            run = work.run
        finally:
            control.release(lease)
    if not options:
        run.staged.remove()
    tables = run.facts(TablesFacts)
    assert tables is not None
    seconds = {
        step: facts.seconds or 0.0
        for step in steps_of(rehearses=True)
        if (facts := run.facts(FACTS_OF[step])) is not None
    }
    return Night(seconds, workers.cpu, tables)


def measure(scale: Scale) -> Iterator[Duration]:
    """One duration for each step of each night, and under time to live for the steps that read what has changed.

    With native files the second night is a catch-up, and all steps together count.
    """
    yield from _measure(scale, None, steps_of(rehearses=True))
    yield from _measure(scale, TTL, (Step.SNAPSHOT, Step.TABLES))
    yield from _measure(scale, None, steps_of(rehearses=True), **_CATCHES_UP)


def _measure(scale: Scale, ttl: int | None, steps: Sequence[Step], **options: object) -> Iterator[Duration]:
    with on_all_cores():
        first, second = snapshots(scale, ttl)
    changed = sum(-(-keys // CHANGED_EVERY) for keys in _keys_of_subtasks(second))
    nights: list[tuple[Night, Night]] = []
    for _ in range(1 + min(scale.rounds, _ROUNDS)):
        nights.append((night(scale, first, 1, ttl, **options), night(scale, second, 2, ttl, **options)))
        (counts,) = nights[-1][1].tables.counts.values()
        expect(counts.keys_walked, changed, "keys that were read")
        expect(counts.rows_written, changed * ENTRIES_PER_KEY, "rows written")
        shutil.rmtree(scale.folder / "home")
    for folder in (first, second):
        shutil.rmtree(folder)
    befores, afters = zip(*nights[1:], strict=True)
    under = ", native files" if options else "" if ttl is None else ", under time to live"
    if options:
        of_first, of_second = (tuple(sum(one.seconds.values()) for one in of) for of in (befores, afters))
        yield Duration(f"first night{under}: all steps", of_first)
        goal_of_all = median(of_first) / _SHARE_OF_ALL
        yield Duration(f"second night, 1 % changed{under}: all steps", of_second, at_most=goal_of_all)
    for step in steps:
        before = _duration(f"first night{under}: {step}", befores, step)
        goal = before.median / _SHARE if step in (Step.SNAPSHOT, Step.TABLES) and not options else None
        yield before
        yield replace(_duration(f"second night, 1 % changed{under}: {step}", afters, step), at_most=goal)


def _duration(what: str, nights: Sequence[Night], step: Step) -> Duration:
    # A step may have no task, as rescale has none where max parallelism stays.
    cpu = median(night.cpu.get(step, 0.0) for night in nights)
    return Duration(what, tuple(night.seconds[step] for night in nights), note=f"{cpu:.2f} processor seconds of tasks")


def _keys_of_subtasks(source: Path) -> list[int]:
    """The number of keys of each subtask."""
    savepoint = Savepoint.open(str(source))
    (operator,) = savepoint.keyed_operators()
    found = []
    for file in savepoint.open_files(operator):
        (state,) = (number for number, meta in enumerate(file.header.states) if meta.name == MAIN_STATE)
        found.append(sum(len(one) for group in file.handle.range for one in file.sections_of(group, {state})))
    return found


SUBJECT = Subject(
    f"Two nights on RocksDB's own files, String -> Long, {ENTRIES_PER_KEY} entries a key, without Spark", measure
)
