"""Measures converting the blobs of a savepoint into the rows of another one, from start to disk, without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.measuring import Rate, Scale, Subject, Timing, in_memory, timed
from flinkstate.keyed.compression import Compression
from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar
from flinkstate.ttl import expired
from flinkstate.values.codecs import encode
from flinkstate.writing.operator_rewrite import Layout
from stateferry.changes.blobs_to_rows import BlobsToRows
from stateferry.changes.counts import ConversionCounts
from stateferry.changes.rules import Rules
from stateferry.demo import IS_MIGRATED_STATE, MAIN_STATE, NEW_MAIN_STATE, DemoState, write_demo_savepoint
from tests.support.rewriting import rewrite

ENTRIES_PER_KEY = 100
GOAL = 15e6
NOW, TTL = 1_700_000_000_000, 30 * 86_400_000


def demo(scale: Scale, *, migrated: float = 0) -> DemoState:
    """A savepoint with a Map<String,Long> of 100 entries for each key: a blob, or rows for the migrated share."""
    keys = max(scale.entries // ENTRIES_PER_KEY, 1)
    return DemoState(keys, ENTRIES_PER_KEY, migrated, None, NOW, parallelism=4, max_parallelism=128, seed=1)


def variants(scale: Scale) -> Iterator[tuple[str, DemoState, Compression, float | None]]:
    """The name, savepoint, compression and goal of each variant."""
    plain, none = demo(scale), Compression.NONE
    yield "Map<String,Long>", plain, none, GOAL
    yield "the same, into stored key groups", plain, Compression.STORED, None
    yield "the same, into snappy", plain, Compression.SNAPPY, None
    yield "with timestamps, expired ones left out", replace(plain, ttl=TTL), none, GOAL
    yield "30 % of the keys moved by the job before", replace(plain, migrated=0.3), none, None
    yield "compressed, as it was", replace(plain, compressed=True), Compression.SOURCE, None


def migrate(
    source: Savepoint, target: Path, ttl: int | None, compression: Compression = Compression.NONE
) -> ConversionCounts:
    """Writes the migrated savepoint and returns the counts."""
    (operator,) = source.keyed_operators()
    states = {state.name: state for state in source.keyed_states(operator)}
    rules = Rules(states[MAIN_STATE], NEW_MAIN_STATE, IS_MIGRATED_STATE, ttl, NOW)
    staged = rewrite(
        source, str(target), Layout(compression=compression), transforms={operator.id: BlobsToRows([rules], states)}
    )
    return staged.counts[MAIN_STATE]


def entries_done(counts: ConversionCounts) -> int:
    """The number of entries that the counts account for."""
    return counts.rows_written + counts.rows_kept + counts.blob_entries_expired + counts.rows_expired


def plain_migrate(source: Savepoint, target: Path, ttl: int | None) -> int:
    """Writes the rows that the blobs become in plain Python, one value after the other, into one file."""
    (operator,) = source.keyed_operators()
    done = 0
    with target.open("wb") as out:
        for entry in read_entries(source, operator, source.state(operator, MAIN_STATE)):
            done += len(entry.value)
            stamp = b""
            if ttl is not None and isinstance(entry.timestamp, int):
                if expired(entry.timestamp, ttl, NOW):
                    continue
                stamp = encode(Scalar.LONG, entry.timestamp)
            key = bytes([entry.key_group]) + encode(Scalar.STRING, entry.key) + b"\0"
            for user_key, value in entry.value:
                out.write(_row(key + encode(Scalar.STRING, user_key), stamp, value))
    return done


def _row(key: bytes, stamp: bytes, value: int) -> bytes:
    raw = b"\0" + stamp + encode(Scalar.LONG, value)
    return len(key).to_bytes(4, "big") + key + len(raw).to_bytes(4, "big") + raw


def measure(scale: Scale) -> Iterator[Rate]:
    """One rate for each variant."""
    for number, (name, state, compression, goal) in enumerate(variants(scale)):
        timing = _fast(scale, f"blobs-{number}", state, compression)
        has_twin = not state.migrated and (goal is not None or state.compressed)
        yield Rate(name, "entries", timing, goal, _plain(scale, state) if has_twin else None)


def _fast(scale: Scale, name: str, state: DemoState, compression: Compression) -> Timing:
    source, target = made_up(scale, name, state), scale.folder / "migrated"
    timing = timed(
        state.keys * state.entries,
        lambda: entries_done(migrate(source, target, state.ttl, compression)),
        scale.rounds,
        before=lambda: shutil.rmtree(target, ignore_errors=True),
    )
    shutil.rmtree(target)
    return timing


def _plain(scale: Scale, state: DemoState) -> Timing:
    few = replace(state, keys=max(scale.twin_entries // ENTRIES_PER_KEY, 1))
    folder = scale.folder / "few"
    shutil.rmtree(folder, ignore_errors=True)
    source = made_up(scale, folder.name, few)
    return timed(
        few.keys * few.entries, lambda: plain_migrate(source, scale.folder / "plain-rows", few.ttl), 3, first=False
    )


def made_up(scale: Scale, name: str, state: DemoState) -> Savepoint:
    """The savepoint of this name, written if it doesn't exist, in the page cache."""
    folder = scale.folder / name
    if not folder.exists():
        write_demo_savepoint(str(folder), state)
    return in_memory(folder)


SUBJECT = Subject("Blobs of a savepoint into rows of another, on disk", measure)
