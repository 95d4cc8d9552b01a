"""Measures how long a Flink job takes to change one entry of a map, by kind of state, backend and size.

And how long RocksDB takes to read one entry of what catch-ups have published, before and after it compacts that.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.catching_up import rehearse
from benchmarks.executing import on_all_cores
from benchmarks.measuring import Cells, Scale, Subject, WrongResultError
from benchmarks.native_nights import CHANGED_EVERY, next_night, snapshots
from benchmarks.pipeline import newest_run
from benchmarks.state_processor import run_java
from flinkstate.reading.reader import Savepoint
from stateferry.demo import NEW_MAIN_STATE
from tests.flink.jars import OPENED

_ENTRIES, _BYTES = (1, 2, 4, 8, 16, 31, 64, 256), (8, 100, 4096)
_BACKENDS = {"rocksdb": "RocksDB", "hashmap": "HashMap"}
_KINDS = {"value": "ValueState", "list": "ListState", "map": "MapState"}
_STATE_BYTES, _MILLISECONDS = 10_000_000, 800
# A tenth of the keys of a whole run, and so many rows are read.
_SHARE, _READS = 10, 20_000
_LAYERS = (1, 4, 8)

Size = tuple[int, int]


def microseconds(backend: str, kind: str, sizes: Sequence[Size]) -> dict[Size, float]:
    """The median time of a change by size (entries, bytes of a value), each in a job of its own."""
    options = ["-Xmx1500m", "-XX:+UseSerialGC", *OPENED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    named = {f"{entries}x{size}": (entries, size) for entries, size in sizes}
    printed = run_java("AccessState", backend, kind, _STATE_BYTES, _MILLISECONDS, *named, options=options)
    lines = [line.split() for line in printed.splitlines() if line.startswith("median ")]
    found = {named[name]: int(nanoseconds) / 1000 for _, name, nanoseconds in lines}
    if list(found) != list(sizes):
        raise WrongResultError(f"expected the medians of {', '.join(named)}, found {printed[-500:]!r}")
    return found


def measure(scale: Scale) -> Iterator[Cells]:
    """One line for each size of a map."""
    sizes = [(entries, size) for size in _BYTES for entries in _ENTRIES]
    times = {(backend, kind): microseconds(backend, kind, sizes) for backend in _BACKENDS for kind in _KINDS}
    for entries, size in sizes:
        shown = {
            f"{_BACKENDS[backend]}, {_KINDS[kind]}": f"{of[entries, size]:,.1f}"
            for (backend, kind), of in times.items()
        }
        ratio = times["rocksdb", "value"][entries, size] / times["rocksdb", "map"][entries, size]
        head = {"entries": f"{entries:,}", "bytes of a value": f"{size:,}"}
        yield Cells({**head, **shown, "RocksDB, times": f"{ratio:.1f}"})


def measure_layers(scale: Scale) -> Iterator[Cells]:
    """One line for each number of catch-ups above a base, each with the rows of one key in a hundred."""
    scale = replace(scale, keys=max(scale.keys // _SHARE, CHANGED_EVERY))
    with on_all_cores():
        snapshot, following = snapshots(scale)
        rehearse(scale, snapshot, "layer-0")
        yield _read(scale, 0)
        for layer in range(1, max(_LAYERS) + 1):
            rehearse(scale, following, f"layer-{layer}", since=f"layer-{layer - 1}")
            if layer in _LAYERS:
                yield _read(scale, layer)
            snapshot, following = following, scale.folder / f"night-{layer}"
            next_night(snapshot, following, CHANGED_EVERY)


def _read(scale: Scale, layers: int) -> Cells:
    """What the first subtask's database takes, after as many catch-ups."""
    staged, folder = newest_run(scale.folder / "home") / "staged", scale.folder / "database"
    (operator,) = Savepoint.open(str(staged)).metadata.operators
    handle = operator.subtasks[0].native_keyed
    assert handle is not None
    folder.mkdir()
    for file in handle.files:
        # RocksDB writes to some of them, but to no table.
        (os.link if file.name.endswith(".sst") else shutil.copyfile)(staged / file.stream.name, folder / file.name)
    printed = run_java("ReadRows", folder, NEW_MAIN_STATE, _READS)
    shutil.rmtree(folder)
    before, after = (int(line.split()[1]) / 1000 for line in printed.splitlines() if line.startswith("median "))
    titles = ("newer files of the state", "µs to read an entry", "after a compaction", "times")
    return Cells(
        dict(zip(titles, (f"{layers}", f"{before:.1f}", f"{after:.1f}", f"{before / after:.2f}"), strict=True))
    )


SUBJECT = Subject("Microseconds to change one entry of a map, in a job with 10 MB of state", measure)

LAYERS = Subject(
    "Reads of what catch-ups have left, in RocksDB, before and after it compacts all of it", measure_layers
)
