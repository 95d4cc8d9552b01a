"""Measures writing rows as RocksDB's own files, and in turn with it how fast the disk takes the same files."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.measuring import Rate, Scale, Subject, Timing, timed
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.serializers.built_snapshots import map_snapshot, simple_snapshot
from flinkstate.serializers.types import Scalar
from flinkstate.writing.native_writer import NativeFiles, NativeFileWriter

_ENTRIES_PER_KEY = 100
_KEY_GROUPS = 128
_ROW = 46
_GOAL = 8e6


def header() -> KeyedHeader:
    """A MapState<String,Long>."""
    text, number, namespace = map(simple_snapshot, (Scalar.STRING, Scalar.LONG, Scalar.VOID_NAMESPACE))
    serializers = ((VALUE_SERIALIZER, map_snapshot(text, number)), (NAMESPACE_SERIALIZER, namespace))
    return KeyedHeader(
        False, text, (StateMeta("state", BackendKind.KEY_VALUE, ((KEYED_STATE_TYPE, "MAP"),), serializers),)
    )


def rows(entries: int, *, shuffled: bool) -> list[Buffer]:
    """The rows of each key group, 46 bytes each, in the order of their keys or with each key's entries shuffled."""
    keys = max(entries // _ENTRIES_PER_KEY, 1)
    chosen = np.random.default_rng(1)
    order = np.arange(_ENTRIES_PER_KEY)
    found: list[list[bytes]] = [[] for _ in range(_KEY_GROUPS)]
    for key in range(keys):
        group = key * _KEY_GROUPS // keys
        begin = bytes([group, 18]) + b"customer-%08d" % key + b"\0\x09"
        for number in (chosen.permutation(order) if shuffled else order).tolist():
            whole = begin + b"item%04d" % number
            value = bytes(1) + (key * _ENTRIES_PER_KEY + number).to_bytes(8, "big")
            found[group].append(len(whole).to_bytes(4, "big") + whole + len(value).to_bytes(4, "big") + value)
    return [np.frombuffer(b"".join(of_group), np.uint8).copy() for of_group in found]


def write(folder: Path, groups: list[Buffer], *, is_compressed: bool) -> int:
    """Writes the rows, and returns their number."""
    files = NativeFiles(Location.of(str(folder)), "bench", KeyGroupRange(0, _KEY_GROUPS - 1), 1, None)
    writer = NativeFileWriter(files, header(), 1, is_compressed=is_compressed)
    for group, data in enumerate(groups):
        if len(data):
            writer.entries(group, 0, data, 0)
    writer.close()
    return sum(len(data) for data in groups) // _ROW


class _SameFiles:
    """Writes the files of a round once more, as plainly as can be, before the next round begins."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seconds: list[float] = []
        self._cpu_seconds: list[float] = []
        folder.mkdir()

    def write(self) -> None:
        """Writes the files that are there, notes how long it took, and removes them."""
        if contents := [path.read_bytes() for path in self._folder.iterdir()]:
            self._clear()
            cpu, clock = time.process_time(), time.perf_counter()
            for number, content in enumerate(contents):
                with (self._folder / f"{number}").open("wb", buffering=0) as file:
                    file.write(content)
                    os.fsync(file.fileno())
            self._seconds.append(time.perf_counter() - clock)
            self._cpu_seconds.append(time.process_time() - cpu)
        self._clear()

    def timing(self, count: int) -> Timing:
        """How long it took for files with so many entries."""
        return Timing(count, tuple(self._seconds), tuple(self._cpu_seconds))

    def _clear(self) -> None:
        shutil.rmtree(self._folder)
        self._folder.mkdir()


def measure(scale: Scale) -> Iterator[Rate]:
    """One rate for each variant, and one for the disk."""
    folder = scale.folder / "native-writing"
    count = max(scale.entries // _ENTRIES_PER_KEY, 1) * _ENTRIES_PER_KEY
    for what, shuffled, is_compressed, goal in (
        ("in order, snappy", False, True, _GOAL),
        ("in order, not compressed", False, False, None),
        ("each key's entries shuffled, snappy", True, True, None),
    ):
        groups = rows(count, shuffled=shuffled)
        same = _SameFiles(folder)
        work = partial(write, folder, groups, is_compressed=is_compressed)
        yield Rate(what, "entries", timed(count, work, scale.rounds, before=same.write), goal)
        yield Rate("the same files, by the system alone", "entries", same.timing(count))
        shutil.rmtree(folder)


SUBJECT = Subject("Rows of a MapState<String,Long>, 46 bytes each, into RocksDB's own files, on disk", measure)
