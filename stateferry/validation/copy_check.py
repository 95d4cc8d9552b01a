"""Checks the canonical copy of a native savepoint or checkpoint against what it was copied from.

Both are read once more and compared row by row. That finds a source that has changed, and damage to the copy. As it is
the scan that made the copy, plain code reads some rows of each database as well, by a way of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from stateferry.digests import digest_of, new_hasher
from stateferry.errors import DamagedError
from stateferry.quantities import noun
from stateferry.savepoint.file_names import METADATA
from stateferry.savepoint.key_group_file import WINDOW, KeyGroupFile
from stateferry.savepoint.metadata import KeyedHandle, NativeHandle, Operator
from stateferry.savepoint.native_file import NativeFile, stored_files
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.storage import Location
from stateferry.validation.check_result import Check, Outcome
from stateferry.validation.plain_rocksdb import KeyRange, PlainDatabase

ROWS = "native source: every row is in the canonical copy"
PLAIN = "native source: read by plain code"
_MOST_SAMPLES = 10


@dataclass(frozen=True, slots=True)
class CopyResult:
    """What was found for one subtask: rows that were compared, key groups that differ, and what is wrong in words."""

    rows: int
    plain_rows: int
    whole: bool
    different: tuple[int, ...]
    plain_different: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class CopyCheckTask:
    """Compares one subtask's rows in the source with those in the copy."""

    source: Location
    native: NativeHandle
    copy: Location
    copied: KeyedHandle
    max_parallelism: int
    operator: str
    subtask: int
    seed: int

    def check(self) -> CopyResult:
        """Reads both."""
        window = np.empty(WINDOW, np.uint8)
        with (
            NativeFile(self.source, self.native, self.max_parallelism, self.subtask, self.operator) as native,
            KeyGroupFile(self.copy, self.copied, self.max_parallelism, self.subtask) as copy,
        ):
            names = [state.name for state in native.header.states]
            different, rows = [], 0
            same_states = native.header.states == copy.header.states
            for key_group in self.native.range:
                expected, found = (_content(file, key_group, window) for file in (native, copy))
                rows += expected[0]
                if expected != found or not same_states:
                    different.append(key_group)
            plain_rows, whole, texts = self._compare_plainly(copy, names)
            return CopyResult(rows, plain_rows, whole, tuple(different), tuple(texts[:_MOST_SAMPLES]), self.native.size)

    def _compare_plainly(self, copy: KeyGroupFile, names: list[str]) -> tuple[int, bool, list[str]]:
        database = PlainDatabase(stored_files(self.source, self.native))
        count, whole, texts = 0, True, list[str]()
        for state, name in enumerate(names):
            for keys in database.ranges(name, self.seed):
                whole = whole and keys.last is None
                expected = {key: value for key, value in database.rows(name, keys).items() if self._is_own(copy, key)}
                found = dict(self._rows(copy, state, keys))
                count += len(expected)
                for key in sorted(expected.keys() | found.keys()):
                    if expected.get(key) != found.get(key):
                        place = f"{self.operator}, subtask {self.subtask}, state {name}, key {key[:40].hex()}"
                        texts.append(f"{place}: expected {_words(expected.get(key))}, found {_words(found.get(key))}")
        return count, whole, texts

    def _is_own(self, copy: KeyGroupFile, key: bytes) -> bool:
        return int.from_bytes(key[: copy.prefix], "big") in self.native.range

    def _rows(self, copy: KeyGroupFile, state: int, keys: KeyRange) -> Iterator[tuple[bytes, bytes]]:
        own = self.native.range
        first = max(int.from_bytes(keys.first[: copy.prefix], "big"), own.start)
        last = own.end if keys.last is None else min(int.from_bytes(keys.last[: copy.prefix], "big"), own.end)
        for key_group in range(first, last + 1):
            for section in copy.sections(key_group):
                if section.state == state:
                    data = section.data
                    for start, key_end, end in zip(
                        section.starts.tolist(), section.key_ends.tolist(), section.ends.tolist(), strict=True
                    ):
                        key = data[start + 4 : key_end].tobytes()
                        if key in keys:
                            yield key, data[key_end + 4 : end].tobytes()


def _content(file: KeyGroupFile, key_group: int, window: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> tuple[int, str]:
    """The number of rows of a key group, and a digest of them with their states."""
    hasher, rows, state = new_hasher(), 0, -1
    for section in file.sections(key_group, window):
        if section.state != state:
            state = section.state
            hasher.update(state.to_bytes(4, "big"))
        hasher.update(section.raw)
        rows += len(section)
    return rows, digest_of(hasher)


def _words(value: bytes | None) -> str:
    return "no row" if value is None else f"{len(value)} bytes {value[:40].hex()}"


def copy_check_tasks(source: Savepoint, copy: Savepoint, seed: int) -> list[CopyCheckTask]:
    """Returns a task for each subtask with native state. Raises if the copy lacks the keyed state of one."""
    copied = {
        (operator.id, subtask.index): subtask.managed_keyed
        for operator in copy.metadata.operators
        for subtask in operator.subtasks
    }

    def handle_of(operator: Operator, subtask: int) -> KeyedHandle:
        handle = copied.get((operator.id, subtask))
        if handle is None:
            expected = f"keyed state of subtask {subtask} of operator {operator.label}, as the source has it"
            raise DamagedError(expected, "none", file=copy.folder.child(METADATA).shown)
        return handle

    return [
        CopyCheckTask(
            source.folder, subtask.native_keyed, copy.folder, handle_of(operator, subtask.index),
            operator.max_parallelism, operator.label, subtask.index, seed,
        )
        for operator in source.metadata.operators
        for subtask in operator.subtasks
        if subtask.native_keyed is not None
    ]  # fmt: skip


def judge(tasks: Iterable[CopyCheckTask], results: Iterable[CopyResult]) -> list[Check]:
    """The two checks of all subtasks."""
    found = list(zip(tasks, results, strict=True))
    rows, plain_rows = (sum(getattr(result, name) for _, result in found) for name in ("rows", "plain_rows"))
    groups = tuple(sorted({group for _, result in found for group in result.different}))
    samples = tuple(
        f"{task.operator}, subtask {task.subtask}: {len(result.different)} key groups differ"
        for task, result in found
        if result.different
    )
    texts = [text for _, result in found for text in result.plain_different][:_MOST_SAMPLES]
    expected = f"{rows} {noun(rows, 'row')} of the source, read once more"
    part = "all of it" if all(result.whole for _, result in found) else "a sample of it"
    plain = f"{plain_rows} {noun(plain_rows, 'row')} of the source ({part})"
    return [
        Check(ROWS, Outcome.FAILED, expected, f"{len(groups)} key groups differ", groups, samples[:_MOST_SAMPLES])
        if groups
        else Check(ROWS, Outcome.PASSED, expected, "the same rows"),
        Check(PLAIN, Outcome.FAILED, plain, "other rows in the copy", (), tuple(texts))
        if texts
        else Check(PLAIN, Outcome.PASSED, plain, "the same rows in the copy"),
    ]
