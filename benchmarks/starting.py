"""Measures how long a new process takes to do something: imports, and kernels from numba's cache."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.measuring import Duration, Scale, Subject, expect
from benchmarks.sections import demo, made_up

GOAL = 2.0
_WALK = """
import numpy as np
from flinkstate.serializers.types import MapType, Scalar
from flinkstate.values.codecs import encode
from flinkstate.serializers.walker import walk_entries
type_ = MapType(Scalar.STRING, Scalar.LONG)
data = np.frombuffer(encode(type_, [("a", 1), ("b", None)]), np.uint8).copy()
print(len(walk_entries(type_, data, np.zeros(1, np.int64), np.array([len(data)])).starts))
"""
_READ = """
import sys
from flinkstate.reading.batches import read_batches
from flinkstate.reading.reader import Savepoint
print(sum(batch.num_rows for batch in read_batches(Savepoint.open(sys.argv[1]), "main", "mainState")))
"""


def run(*arguments: str) -> tuple[float, str]:
    """Runs Python and returns the seconds and the output."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    return time.perf_counter() - begin, done.stdout


def measure(scale: Scale) -> Iterator[Duration]:
    """One duration for each command."""
    state = replace(demo(scale), keys=100)
    made_up(scale, "small", state)
    folder = str(scale.folder / "small")
    for what, arguments, answer in (
        ("import, and walk the first blob", ("-c", _WALK), 2),
        ("import, and read the first state into Arrow", ("-c", _READ, folder), state.keys),
        ("stateferry inspect --json, 10,000 entries", ("-m", "stateferry.cli", "inspect", folder, "--json"), 6),
    ):
        run(*arguments)
        seconds = []
        for _ in range(scale.rounds):
            took, printed = run(*arguments)
            found = json.loads(printed)
            expect(found["version"] if isinstance(found, dict) else found, answer, "as the answer")
            seconds.append(took)
        yield Duration(what, tuple(seconds), GOAL)


SUBJECT = Subject("Starting a process whose kernels are in the cache", measure)
