"""Measures a run that only rescales, beside Flink's State Processor API doing what it can of that.

The State Processor API can't rescale a savepoint. A program can read each state that it knows by name and type, and
write it into a new savepoint of another max parallelism; timers, operator state and timestamps are lost. The savepoint
of the comparison has one state and nothing else, so that both do the same, except that Stateferry also validates.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import state_processor
from benchmarks.executing import execute
from benchmarks.measuring import Comparison, Execution, Scale, Subject, expect
from benchmarks.pipeline import Bench, newest_run
from flinkstate.reading.reader import Savepoint
from stateferry.demo import MAIN_STATE
from stateferry.look.survey import survey

_ROUNDS = 3
_TIMES_PEER = 3.0


def measure(scale: Scale) -> Iterator[Comparison]:
    """Compares both at another max parallelism, and another parallelism with that."""
    bench = Bench(scale.folder, scale.keys)
    source = bench.source("plain", bench.plain)
    wanted = 2 * bench.plain.max_parallelism
    peers, ours = [], []
    for _ in range(min(scale.rounds, _ROUNDS)):
        peers.append(_peer(bench, source, wanted))
        ours.append(_rescaled(bench, source, "--max-parallelism", f"{wanted}"))
    peer = Comparison(f"State Processor API of Flink {state_processor.FLINK}: max parallelism doubled", tuple(peers))
    yield peer
    line = Comparison("stateferry run --rehearse --max-parallelism, with the validation", tuple(ours))
    yield line.beside(peer, _TIMES_PEER)
    parallelism = ("--parallelism", f"{2 * bench.plain.parallelism}")
    yield Comparison("parallelism doubled instead", (_rescaled(bench, source, *parallelism),)).beside(peer)


def _peer(bench: Bench, source: Path, max_parallelism: int) -> Execution:
    scratch, target = bench.folder / "rocksdb", bench.folder / "by-peer"
    command = state_processor.command(source, target, scratch, max_parallelism, "rescale")
    try:
        done = execute(command, bench.folder / "peer.log")
        _expect_keys(target, bench.keys)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
    return done


def _rescaled(bench: Bench, source: Path, *options: str) -> Execution:
    home = bench.folder / "home-of-rescaling"
    command = [str(Path(sys.executable).with_name("stateferry")), "run", "--savepoint", str(source)]
    command += ["--target", str(bench.folder / "rescaled"), "--rehearse", *options]
    done = execute(command, bench.folder / "run.log", environment={"STATEFERRY_HOME": str(home)})
    _expect_keys(newest_run(home) / "staged", bench.keys)
    shutil.rmtree(home)
    return done


def _expect_keys(result: Path, keys: int) -> None:
    found = sum(
        state.entries
        for operator in survey(Savepoint.open(str(result)))
        for state in (operator.keyed.states if operator.keyed else ())
        if state.state.name == MAIN_STATE
    )
    expect(found, keys, f"keys in {result}")


SUBJECT = Subject(
    "Rescaling alone beside Flink's State Processor API, ValueState<Map> of String -> Long, 100 entries a key, on all "
    "cores",
    measure,
)
