"""Measures how long a job stands still: from the request to stop it to the first checkpoint of the job that follows it.

A Flink cluster of processes runs the job. The whole of each way is measured once, on a cluster of its own.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks import state_processor
from benchmarks.executing import Background, TookTooLongError, execute, on_all_cores
from benchmarks.measuring import PARTS, Duration, Outage, Scale, Subject, WrongResultError, judged
from benchmarks.pipeline import entries_in, newest_run, run_command, size_of, step_seconds
from benchmarks.restoring import AT_MOST, MAX_PARALLELISM, PARALLELISM, flink, start
from benchmarks.sections import ENTRIES_PER_KEY, NOW
from flinkstate.metadata.file_names import METADATA
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.runs.record.steps import Step
from tests.flink.cluster import FlinkCluster, WaitedTooLongError
from tests.flink.remote import LEGACY_JOB, NEW_JOB

# Every way is measured with a tenth of the keys of a whole run, those by native files alone with all of them, too.
_SHARE = 10
_LARGE = 500_000
_RATE = 5_000
_MOST_MEMORY = 2e9
# The goal of a conversion since a base: so many seconds, and one more for each million entries of changed keys.
_SINCE_SECONDS = 3


@dataclass(frozen=True, slots=True)
class Way:
    """A way from the old job to the new one: the format of its savepoint, and the options of `stateferry run`.

    The command is given before the job is stopped (`--next-in`), unless it is to be `late`.
    `faster` and `shorter` are the goals at 50 million entries: how many times as fast as the peer's the conversion is,
    and how many times as short as the first way the outage is.
    With `changed`, a copy and a catch-up were made before the stop, and this share of the keys has changed since; the
    goal of such an outage is to be `shorter` than that of the way `_WHOLE`, at 500 million entries by `_SHORTER_YET`.
    """

    what: str
    format: str
    options: tuple[str, ...] = ()
    by_peer: bool = False
    late: bool = False
    faster: float | None = None
    shorter: float | None = None
    changed: float | None = None

    @property
    def is_early(self) -> bool:
        """Whether the command waits for the savepoint."""
        return not (self.by_peer or self.late)

    def job_arguments(self, keys: int) -> list[object]:
        """What has the job change this share of the keys again and again."""
        if self.changed is None:
            return []
        digits = DemoState(keys, ENTRIES_PER_KEY, 0, None, NOW, PARALLELISM, MAX_PARALLELISM, seed=1).key_digits
        return ["--customers", self.changed_keys(keys), "--digits", digits, "--rate", _RATE]

    def changed_keys(self, keys: int) -> int:
        """How many keys the job changes."""
        return max(round(keys * (self.changed or 0)), 1)

    def command(self, source: Path, target: Path, scratch: Path, *more: str) -> list[str]:
        """The command that writes the new savepoint; `source` is the folder of savepoints if it waits for one."""
        if self.by_peer:
            return state_processor.command(source, target, scratch / "rocksdb", MAX_PARALLELISM)
        named = "--next-in" if self.is_early else "--savepoint"
        return run_command(source, target, *self.options, *_JOB, *more, of=named)


_JOB = ("--job", "totals")
_WHOLE = "native → native"
_SHORTER_YET = 2.5
_CHECKPOINT = "CHECKPOINT"
_NATIVE = ("--format", "native")

WAYS = (
    Way("canonical plain → plain", "CANONICAL", ("--compression", "none"), faster=7),
    Way("canonical plain → stored", "CANONICAL", ("--compression", "stored"), faster=7),
    Way("canonical plain → stored, command after the stop", "CANONICAL", ("--compression", "stored"), late=True),
    Way("canonical plain → snappy", "CANONICAL", ("--compression", "snappy"), faster=7),
    Way("native → canonical snappy", "NATIVE", ("--compression", "snappy"), faster=4),
    Way(_WHOLE, "NATIVE", _NATIVE, faster=4, shorter=3),
    *(
        Way(
            f"{_WHOLE}, {share:.1%} of the keys changed since",
            "NATIVE",
            _NATIVE,
            changed=share,
            shorter=goal,
        )
        for share, goal in ((0.001, None), (0.01, 2), (0.1, None))
    ),
    Way(
        f"{_WHOLE}, 1.0% of the keys changed since, stopped with a checkpoint, command after the stop",
        _CHECKPOINT,
        _NATIVE,
        late=True,
        changed=0.01,
    ),
    Way("canonical plain → plain, State Processor API", "CANONICAL", by_peer=True),
)


class _CutOver:
    """One way on one cluster: the old job runs, and then part follows part.

    The new job starts as soon as its savepoint is published, which may be before the conversion's command ends.
    """

    def __init__(
        self, way: Way, cluster: FlinkCluster, scratch: Path, before: Path, keys: int, opened: ExitStack
    ) -> None:
        self._way, self._cluster, self._scratch, self._opened = way, cluster, scratch, opened
        self._arguments, self._home = way.job_arguments(keys), {"STATEFERRY_HOME": str(scratch / "home")}
        self._converting: Background | None = None
        self._jar = cluster.upload_jobs()
        self.source, self.target = Path(), scratch / "migrated"
        self._job = start(cluster, self._jar, LEGACY_JOB, before, *self._arguments)
        self._job.wait_until_running(AT_MOST)
        self._job.wait_for_checkpoints(patience=AT_MOST)
        if way.is_early:
            # As of a rehearsal: the plan is checked on it.
            self._job.savepoint()
        self._since = () if way.changed is None else ("--since", self._caught_up(way.changed_keys(keys)))
        if way.is_early:
            self._begin(cluster.savepoints).wait_for_word("Spark has started")
        self._old_job, self._cpu_before = self._job, self._flinks_cpu_seconds()

    @property
    def memory(self) -> int:
        """The most that the conversion took."""
        return self._converting.memory if self._converting else 0

    @property
    def sizes(self) -> tuple[int, int]:
        """The bytes of what the old job was stopped with, and how many of them Flink wrote then."""
        history = self._cluster.get(f"/jobs/{self._old_job.id}/checkpoints")["history"]
        completed = (one for one in history if one["status"] == "COMPLETED")
        last = max(completed, key=lambda one: int(one["id"]))
        # A checkpoint has files in other folders, too.
        size = int(last["state_size"]) if self._way.format == _CHECKPOINT else size_of(self.source)
        return size, int(last["checkpointed_size"])

    @property
    def cpu_seconds(self) -> float:
        """The processor seconds of Flink and of the conversion since the first part began."""
        converting = self._converting.cpu_seconds if self._converting else 0
        return self._flinks_cpu_seconds() - self._cpu_before + converting

    def _flinks_cpu_seconds(self) -> float:
        times = [psutil.Process(self._cluster.pid(name)).cpu_times() for name in ("jobmanager", "taskmanager")]
        return sum(one.user + one.system for one in times)

    @property
    def parts(self) -> tuple[Callable[[], None], ...]:
        """What follows each other, as in the table's columns."""
        return self._stop, self._convert, self._restore, self._checkpoint

    def _stop(self) -> None:
        if self._way.format == _CHECKPOINT:
            self.source = self._job.stop_with_checkpoint(AT_MOST)
        else:
            self.source = self._job.stop_with_savepoint(self._way.format, AT_MOST)

    def _caught_up(self, changed: int) -> str:
        """The id of a catch-up with a copy, after which the job has changed so many keys."""
        options = (*self._way.options, *_JOB, "--rehearse")
        for since in (False, True):
            of_copy = ("--since", newest_run(self._scratch / "home").name) if since else ()
            command = run_command(self._job.savepoint("NATIVE", AT_MOST), self.target, *options, *of_copy)
            execute(command, self._scratch / "copy-log", environment=self._home)
        time.sleep(changed / _RATE)
        return newest_run(self._scratch / "home").name

    def _begin(self, source: Path) -> Background:
        command = self._way.command(source, self.target, self._scratch, *self._since)
        self._converting = self._opened.enter_context(Background(command, self._scratch / "log", self._home, AT_MOST))
        return self._converting

    def _convert(self) -> None:
        converting = self._converting or self._begin(self.source)
        converting.wait_for(self.target / METADATA)

    def _restore(self) -> None:
        self._job = start(self._cluster, self._jar, NEW_JOB, self.target, *self._arguments)
        self._job.wait_until_running(AT_MOST)

    def _checkpoint(self) -> None:
        self._job.wait_for_checkpoints(1, AT_MOST)


def measure(scale: Scale) -> Iterator[Outage | Duration]:
    """One line for each way, and one for the steps of each conversion."""
    return _measure(scale, WAYS, max(scale.keys // _SHARE, 1))


def measure_large(scale: Scale) -> Iterator[Outage | Duration]:
    """The same of ten times as many keys, by native files alone."""
    return _measure(scale, [way for way in WAYS if way.options == _NATIVE], scale.keys)


def _measure(scale: Scale, ways: Sequence[Way], keys: int) -> Iterator[Outage | Duration]:
    before = state_of_job(scale, keys)
    with on_all_cores():
        measured = [(way, *outage_of(way, scale.folder, before, keys)) for way in ways]
    shutil.rmtree(before)
    peer = next((outage for way, outage, _ in measured if way.by_peer), None)
    whole = next(outage for way, outage, _ in measured if way.what == _WHOLE)
    for way, outage, _ in measured:
        line = compared(way, outage, measured[0][1], peer, is_large=keys == _LARGE and peer is not None)
        yield line if way.changed is None or way.late else replace(line, goal=goals_since(way, outage, whole, keys))
    for way, outage, steps in measured:
        if steps and outage.conversion:
            yield Duration(f"the conversion, {way.what}", (outage.conversion,), note=_course(outage.conversion, steps))


def state_of_job(scale: Scale, keys: int) -> Path:
    """The savepoint from which the old job begins, with so many keys; compressed, as Flink restores it faster so."""
    before = scale.folder / "before"
    state = DemoState(keys, ENTRIES_PER_KEY, 0, None, NOW, PARALLELISM, MAX_PARALLELISM, seed=1, compressed=True)
    write_demo_savepoint(str(before), state)
    return before


def _course(conversion: float, steps: Mapping[Step, float]) -> str:
    """What a conversion took its time for, and what the command did after the publication."""
    before = {step: steps[step] for step in Step.TABLES.earlier(rehearses=False)}
    times = ", ".join(f"{step} {seconds:.1f}" for step, seconds in before.items())
    rest = conversion - sum(before.values())
    return f"{times}; starting, and between the steps {rest:.1f}; then tables {steps[Step.TABLES]:.1f}"


def outage_of(way: Way, folder: Path, before: Path, keys: int) -> tuple[Outage, dict[Step, float]]:
    """The outage of a job that goes this way from the savepoint `before`, and the seconds of the conversion's steps."""
    scratch = folder / "cut-over"
    scratch.mkdir()
    seconds: list[float] = []
    with flink(scratch / "flink") as cluster, ExitStack() as opened:
        cut_over = _CutOver(way, cluster, scratch, before, keys, opened)
        with suppress(TookTooLongError, WaitedTooLongError):
            for part in cut_over.parts:
                began = time.perf_counter()
                part()
                seconds.append(time.perf_counter() - began)
        cpu_seconds, memory = cut_over.cpu_seconds, cut_over.memory
        source, uploaded = cut_over.sizes if seconds else (0, 0)
    result, steps = 0, dict[Step, float]()
    if len(seconds) > PARTS.index("conversion"):
        _expect_entries(cut_over.target, keys)
        result = size_of(cut_over.target)
        steps = {} if way.by_peer else step_seconds(scratch / "home")
    outage = Outage(way.what, source, result, tuple(seconds), cpu_seconds, uploaded, memory)
    shutil.rmtree(scratch)
    return outage, steps


def _expect_entries(result: Path, keys: int) -> None:
    """The job has added some entries to those that it began with."""
    if (found := entries_in(result)) < keys * ENTRIES_PER_KEY:
        raise WrongResultError(f"expected at least {keys * ENTRIES_PER_KEY} entries in {result}, found {found}")


def compared(way: Way, outage: Outage, plain: Outage, peer: Outage | None, *, is_large: bool) -> Outage:
    """Compares the outage with that of the first way, and its conversion with the peer's."""
    shorter = plain.seconds / outage.seconds if plain.is_whole and outage.is_whole else None
    faster = peer.conversion / outage.conversion if peer and peer.conversion and outage.conversion else None
    goals = []
    for what, goal, reached in (("conversion", way.faster, faster), ("outage", way.shorter, shorter)):
        if goal is not None and is_large:
            goals.append(judged(f"{what} ≥ {goal:g}", is_reached=reached is not None and reached >= goal))
    return replace(
        outage,
        shorter=None if outage is plain else shorter,
        faster=None if way.by_peer else faster,
        goal=", ".join(goals),
    )


def goals_since(way: Way, outage: Outage, whole: Outage, keys: int) -> str:
    """How an outage with a conversion since a base compares with its goals; `whole` is that of the way `_WHOLE`."""
    most = _SINCE_SECONDS + way.changed_keys(keys) * ENTRIES_PER_KEY / 1e6
    is_fast = outage.conversion is not None and outage.conversion <= most
    goals = [judged(f"conversion ≤ {most:.1f} s", is_reached=is_fast)]
    goals.append(judged(f"memory ≤ {_MOST_MEMORY / 1e9:g} GB", is_reached=outage.memory <= _MOST_MEMORY))
    if way.shorter is not None and keys >= _LARGE:
        times = way.shorter * (_SHORTER_YET if keys >= _SHARE * _LARGE else 1)
        is_short = outage.is_whole and whole.is_whole and whole.seconds >= times * outage.seconds
        goals.append(judged(f"outage ≤ 1/{times:g} of {_WHOLE}", is_reached=is_short))
    return ", ".join(goals)


_OF = "The outage of a live job, String -> Long, 100 entries a key, in seconds, on all cores"
SUBJECT = Subject(_OF, measure)
LARGE = Subject(f"{_OF}, {_SHARE} times as many keys, by native files", measure_large)
