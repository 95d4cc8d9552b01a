"""Measures `stateferry run` from start to end, beside the same conversion by Flink's State Processor API."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks import state_processor
from benchmarks.executing import ALL_CORES, execute
from benchmarks.measuring import Comparison, Duration, Execution, Scale, Subject, expect, in_memory, judged
from benchmarks.other_values import Values, with_other_values
from benchmarks.sections import ENTRIES_PER_KEY, NOW, TTL
from flinkstate.files.storage import Location
from flinkstate.keyed.keyed_file import WINDOW
from flinkstate.reading.reader import Savepoint
from stateferry.demo import IS_MIGRATED_STATE, MAIN_STATE, NEW_MAIN_STATE, OPERATOR, DemoState, write_demo_savepoint
from stateferry.look.survey import survey
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import FACTS_OF, TablesFacts
from stateferry.runs.record.steps import Step, steps_of

_ROUNDS = 3
_TIMES_PEER, _MOST_MEMORY = {500_000: 3.0, 5_000_000: 5.0}, 4e9
_CHANGED_EVERY = 100


@dataclass(frozen=True, slots=True)
class Night:
    """One run, with the seconds of its steps and the rows that it wrote."""

    execution: Execution
    steps: dict[Step, float]
    rows_written: int


@dataclass(frozen=True, slots=True)
class Bench:
    """The savepoints and homes in a folder.

    They are removed as soon as possible, because a run writes three times as much as it reads.
    """

    folder: Path
    keys: int

    @property
    def plain(self) -> DemoState:
        """The savepoint of the comparison."""
        return DemoState(self.keys, ENTRIES_PER_KEY, 0, None, NOW, parallelism=4, max_parallelism=128, seed=1)

    def source(self, name: str, state: DemoState) -> Path:
        """Writes a savepoint, unless it exists, and reads it into the page cache."""
        path = self.folder / name
        if not path.exists():
            write_demo_savepoint(str(path), state)
            in_memory(path)
        return path

    def of_other_values(self, source: Path, values: Values) -> Path:
        """Writes the source with other values, and reads it into the page cache."""
        path = self.folder / values.name.lower()
        with_other_values(source, self.plain, values, path)
        in_memory(path)
        return path

    def peer(self, source: Path, rescaled_to: int | None = None) -> Execution:
        """Converts the source with the State Processor API, or copies it to another max parallelism."""
        scratch, target = self.folder / "rocksdb", self.folder / "by-peer"
        asked = (self.plain.max_parallelism,) if rescaled_to is None else (rescaled_to, "rescale")
        command = state_processor.command(source, target, scratch, *asked)
        try:
            done = execute(command, self.folder / "peer.log")
            if rescaled_to is None:
                self._expect_entries(target)
            else:
                self.expect_blobs(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(target, ignore_errors=True)
        return done

    def night(
        self, source: Path, *options: str, home: str = "home", rehearse: bool = True, cores: Iterable[int] = ALL_CORES
    ) -> Night:
        """Runs Stateferry on the source.

        A rehearsal leaves nothing. A run that publishes leaves its home, for the next night.
        """
        path, target = self.folder / home, self.folder / f"target-of-{source.name}"
        command = run_command(source, target, "--now", str(NOW), *options, *(["--rehearse"] if rehearse else []))
        done = execute(command, self.folder / "run.log", cores=cores, environment={"STATEFERRY_HOME": str(path)})
        newest = newest_run(path)
        stored = Run.open(Location.of(str(newest)))
        times = {step: _seconds(stored, step) for step in steps_of(rehearses=True)}
        tables = stored.facts(TablesFacts)
        written = sum(state.rows_written for state in tables.counts.values()) if tables else 0
        result = newest / "staged" if rehearse else target
        if "--ttl" not in options:
            self._expect_entries(result)
        shutil.rmtree(path if rehearse else result)
        return Night(done, times, written)

    def _expect_entries(self, result: Path) -> None:
        expect(entries_in(result), self.keys * ENTRIES_PER_KEY, f"entries in {result}")

    def expect_blobs(self, result: Path) -> None:
        """Raises an error unless the result has all keys, none of which is migrated."""
        expect(entries_in(result, MAIN_STATE), self.keys, f"keys in {result}")

    def next_night(self, source: Path) -> tuple[Path, int]:
        """The same savepoint with another value in one key of a hundred, and the number of these keys."""
        path, count = self.folder / "next-night", 0
        shutil.copytree(source, path)
        savepoint = Savepoint.open(str(path))
        window = np.empty(WINDOW, np.uint8)
        for operator in savepoint.keyed_operators():
            for file in savepoint.open_files(operator):
                bytes_ = np.memmap(path / file.name.rpartition("/")[2], np.uint8, "r+")
                for key_group in file.handle.range:
                    for section in file.sections(key_group, window):
                        # The last byte of a blob is the lowest byte of its last value.
                        chosen = section.ends[::_CHANGED_EVERY]
                        bytes_[section.base + chosen - 1] ^= 1
                        count += len(chosen)
                bytes_.flush()
        return path, count


def run_command(source: Path | str, target: Path | str, *options: str, of: str = "--savepoint") -> list[str]:
    """`stateferry run` on a savepoint with the demo's states; `of` is the option that names the source."""
    states = ("--legacy-state", MAIN_STATE, "--new-state", NEW_MAIN_STATE, "--flag-state", IS_MIGRATED_STATE)
    return run_without_states(source, target, "--operator", OPERATOR, *states, *options, of=of)


def run_without_states(source: Path | str, target: Path | str, *options: str, of: str = "--savepoint") -> list[str]:
    """`stateferry run` that migrates no state."""
    return [
        str(Path(sys.executable).with_name("stateferry")),
        "run",
        of,
        str(source),
        "--target",
        str(target),
        *options,
    ]


def entries_in(result: Path, state: str = NEW_MAIN_STATE) -> int:
    """The entries of the state."""
    found = (one for operator in survey(Savepoint.open(str(result))) if operator.keyed for one in operator.keyed.states)
    return sum(one.entries for one in found if one.state.name == state)


def size_of(savepoint: Path) -> int:
    """The bytes of the files in its folder."""
    return sum(file.stat().st_size for file in savepoint.iterdir())


def newest_run(home: Path) -> Path:
    """The folder of the home's newest run."""
    return max((home / "runs").glob("*/*"), key=os.path.getmtime)


def step_seconds(home: Path) -> dict[Step, float]:
    """The seconds of the steps that the home's newest run has done."""
    run = Run.open(Location.of(str(newest_run(home))))
    return {step: _seconds(run, step) for step in Step if run.has_done(step)}


def _seconds(run: Run, step: Step) -> float:
    facts = run.facts(FACTS_OF[step])
    if facts is None or facts.seconds is None:
        raise AssertionError(f"run {run.plan.run_id} has no time of its step {step}")
    return facts.seconds


def measure(scale: Scale) -> Iterator[Comparison | Duration]:
    """Compares both, and measures variants, steps and a second night."""
    bench = Bench(scale.folder, scale.keys)
    source = bench.source("plain", bench.plain)
    peers, nights = [], []
    for _ in range(min(scale.rounds, _ROUNDS)):
        peers.append(bench.peer(source))
        nights.append(bench.night(source))
    peer = Comparison(f"State Processor API of Flink {state_processor.FLINK}", tuple(peers))
    ours = Comparison("stateferry run --rehearse", tuple(night.execution for night in nights)).beside(peer)
    wanted = _TIMES_PEER.get(scale.keys)
    yield peer
    yield replace(ours, goal=goal(ours, wanted)) if wanted else ours
    yield from _variants(bench, source, ours)
    yield from _by_byte(bench, source, ours)
    yield from _steps(nights)
    yield from _next_night(bench, source)


def goal(ours: Comparison, times: float) -> str:
    """What is wanted of a comparison with the peer, and whether it is reached."""
    assert ours.speed is not None
    is_reached = ours.speed[0] >= times and ours.memory <= _MOST_MEMORY
    return judged(f"≥ {times:g}, ≤ {_MOST_MEMORY / 1e9:g} GB", is_reached=is_reached)


def _variants(bench: Bench, source: Path, ours: Comparison) -> Iterator[Comparison]:
    """Measures each variant once, compared with the plain run.

    The run on one core is compared with a run right before it, because the machine's speed changes with time.
    """
    moved = bench.night(source, "--max-parallelism", str(2 * bench.plain.max_parallelism))
    all_cores = Comparison("just before", (bench.night(source).execution,))
    one_core = bench.night(source, cores=(0,))
    with_ttl = bench.source("ttl", replace(bench.plain, ttl=TTL))
    stamped = bench.night(with_ttl, "--ttl", str(TTL))
    shutil.rmtree(with_ttl)
    on_one = f"on one core, {all_cores.seconds:.1f} seconds on all just before"
    yield Comparison("max parallelism doubled, beside the plain run", (moved.execution,)).beside(ours, 1 / 2)
    line = Comparison(on_one, (one_core.execution,)).beside(all_cores)
    assert line.speed is not None
    yield replace(line, goal=judged(f"≤ {1 / 1.6:.2f}", is_reached=line.speed[0] <= 1 / 1.6))
    yield Comparison("with time to live", (stamped.execution,)).beside(ours, 1 / 2)


def _by_byte(bench: Bench, source: Path, ours: Comparison) -> Iterator[Comparison]:
    """Measures other values; because their sizes differ, the speed is that per byte of the source."""
    for values in Values:
        other = bench.of_other_values(source, values)
        line = Comparison(f"values {values.value}, by the byte", (bench.night(other).execution,))
        larger = size_of(other) / size_of(source)
        clock, processor = (speed * larger for speed in line.faster_than(ours))
        yield replace(line, speed=(clock, processor), goal=judged("≥ 0.5", is_reached=clock >= 0.5))
        shutil.rmtree(other)


def _steps(nights: list[Night]) -> Iterator[Duration]:
    for step in steps_of(rehearses=True):
        yield Duration(f"of the plain run: {step}", tuple(night.steps[step] for night in nights))
    rest = tuple(night.execution.seconds - sum(night.steps.values()) for night in nights)
    yield Duration("of the plain run: starting, stopping, and between the steps", rest)


def _next_night(bench: Bench, source: Path) -> Iterator[Duration]:
    first = bench.night(source, home="nights", rehearse=False)
    changed, count = bench.next_night(source)
    second = bench.night(changed, home="nights", rehearse=False)
    share = first.steps[Step.TABLES] / 5
    for what, night, at_most in (("first night", first, None), ("second night, 1 % changed", second, share)):
        note = f"{night.rows_written:,} rows written, the whole run {night.execution.seconds:.1f} seconds"
        yield Duration(f"{what}: {Step.TABLES}", (night.steps[Step.TABLES],), at_most, note)
    expect(second.rows_written, count * ENTRIES_PER_KEY, "rows written in the second night")
    shutil.rmtree(bench.folder / "nights")
    shutil.rmtree(changed)


SUBJECT = Subject(
    "A whole run beside Flink's State Processor API, String -> Long unless said, 100 entries a key, on all cores",
    measure,
)
