"""Measures three ways of giving each new subtask its state, on the same savepoint.

The first reads ranges of key groups. The other two are the ways that key groups are meant to beat. In all of them, all
bytes of a subtask's rows have been in its memory at the end.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from benchmarks.measuring import Duration, Scale, Subject, expect
from benchmarks.sections import demo, made_up
from flinkstate.hashing.java_hash import hash_codes
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.hashing.key_groups import ranges
from flinkstate.keyed.keyed_file import WINDOW, KeyedFile, Section
from flinkstate.keyed.keyed_files import open_keyed
from flinkstate.metadata.metadata import Operator
from flinkstate.metadata.restore_plan import RestorePlan, plan_restore
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType

NEW_PARALLELISM = 6
# Few rounds, because reading from disk is slow.
_ROUNDS = 3

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Share:
    """The rows that a new subtask got, their bytes, and what was read for that."""

    rows: int
    row_bytes: int
    reads: int
    bytes_read: int


Way = Callable[[int], Share]


@dataclass(frozen=True, slots=True)
class OldFiles:
    """The old files, opened by the library, and as file descriptors for direct reads."""

    operator: Operator
    files: tuple[KeyedFile, ...]
    descriptors: tuple[int, ...]

    @property
    def key(self) -> FlinkType:
        """The type of the keys."""
        found = self.files[0].header.key_serializer.type
        if found is None:
            raise ValueError("the key's type is not known")
        return found

    def sections(self) -> Iterator[tuple[int, Section]]:
        """All sections, each with the number of its file."""
        window = np.empty(WINDOW, np.uint8)
        for number, file in enumerate(self.files):
            for key_group in file.handle.range:
                for section in file.sections(key_group, window):
                    yield number, section

    def forget(self) -> None:
        """Asks the system to drop the files from its cache, if that is possible."""
        if hasattr(os, "posix_fadvise"):
            for descriptor in self.descriptors:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def subtasks_of(self, section: Section) -> npt.NDArray[np.int32]:
        """The new subtask of each entry, by the hash of its key."""
        codes = hash_codes(self.key, section.data, section.key_starts + section.file.prefix, section.key_ends - 1)
        owned = ranges(self.operator.max_parallelism, NEW_PARALLELISM)
        owners = np.repeat(np.arange(NEW_PARALLELISM, dtype=np.int32), [len(key_groups) for key_groups in owned])
        return owners[assign_to_key_groups(codes, self.operator.max_parallelism)]


def open_old_files(savepoint: Savepoint, opened: ExitStack) -> OldFiles:
    """Opens the files of a savepoint with one keyed operator."""
    (operator,) = savepoint.keyed_operators()
    files = tuple(
        opened.enter_context(open_keyed(savepoint.folder, one.keyed, operator.max_parallelism, one.index))
        for one in operator.subtasks
        if one.keyed is not None
    )
    descriptors = []
    for file in files:
        descriptors.append(os.open(savepoint.folder.child(file.name.rpartition("/")[2]).path, os.O_RDONLY))
        opened.callback(os.close, descriptors[-1])
    return OldFiles(operator, files, tuple(descriptors))


def by_ranges(old: OldFiles, plan: RestorePlan, subtask: int) -> Share:
    """Reads the ranges of the old files that hold the subtask's key groups, and finds the rows in them."""
    files = {file.subtask_file.subtask: file for file in old.files}
    window = np.empty(WINDOW, np.uint8)
    rows = row_bytes = 0
    reads = [read for read in plan.reads if read.new_subtask == subtask]
    for read in reads:
        for key_group in read.key_groups:
            for section in files[read.file.subtask].sections(key_group, window):
                rows += len(section)
                row_bytes += len(section.raw)
    return Share(rows, row_bytes, len(reads), sum(read.size for read in reads))


def scan_and_filter(old: OldFiles, subtask: int) -> Share:
    """Reads everything and keeps the rows whose keys belong to the subtask."""
    rows = row_bytes = 0
    for _, section in old.sections():
        kept = old.subtasks_of(section) == subtask
        rows += int(kept.sum())
        row_bytes += int((section.ends - section.starts)[kept].sum())
    return Share(rows, row_bytes, len(old.files), sum(file.size - file.header_end for file in old.files))


def by_index(old: OldFiles, index: Numbers, subtask: int) -> Share:
    """Looks up the subtask's keys and reads one row at a time."""
    first, last = np.searchsorted(index[0], (subtask, subtask + 1)).tolist()
    size = sum(
        len(os.pread(old.descriptors[file], size, position))
        for file, position, size in index[1:, first:last].T.tolist()
    )
    return Share(last - first, size, last - first, size)


def index_of(old: OldFiles) -> Numbers:
    """The new subtask, file, position and size of each row, in the order of an index by key.

    That is the order of hashes, which is independent of the rows' positions.
    """
    parts = []
    for number, section in old.sections():
        starts = section.base + section.starts
        columns = (old.subtasks_of(section), np.full(len(section), number), starts, section.ends - section.starts)
        parts.append(np.stack([column.astype(np.int64) for column in columns]))
    index = np.concatenate(parts, axis=1)
    shuffled = np.random.default_rng(1).permutation(index.shape[1])
    return index[:, shuffled[np.argsort(index[0, shuffled], kind="stable")]]


def measure(scale: Scale) -> Iterator[Duration]:
    """One duration for each way, and one for building the index."""
    with ExitStack() as opened:
        old = open_old_files(made_up(scale, "blobs-0", demo(scale)), opened)
        files = [file.subtask_file for file in old.files]
        plan = plan_restore(files, old.operator.max_parallelism, old.operator.parallelism, NEW_PARALLELISM)
        begin = time.perf_counter()
        index = index_of(old)
        building = time.perf_counter() - begin
        ways: tuple[tuple[str, Way], ...] = (
            ("ranges of key groups", partial(by_ranges, old, plan)),
            ("scan everything and filter", partial(scan_and_filter, old)),
            ("index by key, random reads", partial(by_index, old, index)),
        )
        measured = [(what, *_timed(way, old, min(scale.rounds, _ROUNDS))) for what, way in ways]
        fastest = statistics.median(measured[0][1])
        for what, seconds, shares in measured:
            expect([given(share) for share in shares], [given(share) for share in measured[0][2]], "(rows, bytes)")
            reads, size = sum(share.reads for share in shares), sum(share.bytes_read for share in shares)
            times = statistics.median(seconds) / fastest
            note = f"{reads:,} reads, {size / 1e6:,.0f} MB, {times:.1f} times as long"
            yield Duration(what, seconds, note=note)
        yield Duration("building that index, once", (building,), note="one scan of everything")


def given(share: Share) -> tuple[int, int]:
    """The part of a share that must be the same in all ways."""
    return share.rows, share.row_bytes


def _timed(way: Way, old: OldFiles, rounds: int) -> tuple[tuple[float, ...], list[Share]]:
    """Measures all new subtasks, each as if on its own machine, which hasn't read the savepoint before."""
    seconds: list[float] = []
    shares: list[Share] = []
    for _ in range(rounds):
        shares, taken = [], 0.0
        for subtask in range(NEW_PARALLELISM):
            old.forget()
            begin = time.perf_counter()
            shares.append(way(subtask))
            taken += time.perf_counter() - begin
        seconds.append(taken)
    return tuple(seconds), shares


SUBJECT = Subject(
    f"A savepoint of 4 subtasks for {NEW_PARALLELISM} new ones, one after another, read from disk", measure
)
