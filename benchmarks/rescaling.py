"""Measures a run that only rescales, beside Flink's State Processor API doing what it can of that.

The State Processor API can't rescale a savepoint. A program can read each state that it knows by name and type, and
write it into a new savepoint of another max parallelism; timers, operator state and timestamps are lost. The savepoint
of the comparison has one state and nothing else, so that both do the same, except that Stateferry also validates.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks import state_processor
from benchmarks.executing import execute
from benchmarks.measuring import Comparison, Execution, Scale, Subject
from benchmarks.pipeline import Bench, newest_run, run_without_states

_ROUNDS = 3
_TIMES_PEER = 3.0


def measure(scale: Scale) -> Iterator[Comparison]:
    """Compares both at another max parallelism, and another parallelism with that."""
    bench = Bench(scale.folder, scale.keys)
    source = bench.source("plain", bench.plain)
    wanted = 2 * bench.plain.max_parallelism
    peers, ours = [], []
    for _ in range(min(scale.rounds, _ROUNDS)):
        peers.append(bench.peer(source, wanted))
        ours.append(_rescaled(bench, source, "--max-parallelism", f"{wanted}"))
    peer = Comparison(f"State Processor API of Flink {state_processor.FLINK}: max parallelism doubled", tuple(peers))
    yield peer
    line = Comparison("stateferry run --rehearse --max-parallelism, with the validation", tuple(ours))
    yield line.beside(peer, _TIMES_PEER)
    parallelism = ("--parallelism", f"{2 * bench.plain.parallelism}")
    yield Comparison("parallelism doubled instead", (_rescaled(bench, source, *parallelism),)).beside(peer)


def _rescaled(bench: Bench, source: Path, *options: str) -> Execution:
    home = bench.folder / "home-of-rescaling"
    command = run_without_states(source, bench.folder / "rescaled", "--rehearse", *options)
    done = execute(command, bench.folder / "run.log", environment={"STATEFERRY_HOME": str(home)})
    bench.expect_blobs(newest_run(home) / "staged")
    shutil.rmtree(home)
    return done


SUBJECT = Subject(
    "Rescaling alone beside Flink's State Processor API, ValueState<Map> of String -> Long, 100 entries a key, on all "
    "cores",
    measure,
)
