"""Holds rows that plain code has read from RocksDB's files against those that the scan gives for the same keys.

The scan merges the files for the conversion and for the validation, so a fault in it would fool both. A small state is
read as a whole, of a large one some ranges of neighbouring keys in each chunk.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flinkstate.files.storage import Location
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.native_file import NativeFile
from flinkstate.keyed.stored_files import stored_files
from flinkstate.rocksdb.live_files import ColumnFamily
from stateferry.basics.quantities import noun
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.plain.plain_rocksdb import KeyRange, PlainDatabase

# The states of a chunk whose files have at most so many bytes are read as a whole, while their sum is no larger.
_READ_WHOLE = 256 << 10
# Of so many larger states so many ranges are read.
_MOST_STATES = 16
_RANGES = 2
_MOST_SAMPLES = 10
_SHOWN = 40


@dataclass(slots=True)
class PlainRowsResult:
    """The rows that were compared, by state; the states that were read as a whole; what is wrong, in words."""

    rows: dict[str, int] = field(default_factory=dict)
    in_part: set[str] = field(default_factory=set)
    different: dict[int, str] = field(default_factory=dict)

    def add(self, other: PlainRowsResult) -> None:
        """Adds what was found in another chunk."""
        for state, rows in other.rows.items():
            self.rows[state] = self.rows.get(state, 0) + rows
        self.in_part |= other.in_part
        self.different |= other.different

    def check(self, name: str, is_complete: bool) -> Check:
        """The check of an operator's states; `is_complete` says that all of its files could be read."""
        rows = sum(self.rows.values())
        part = "a sample" if self.in_part else "all"
        expected = f"{part}: {rows} {noun(rows, 'row')} of {len(self.rows)} {noun(len(self.rows), 'state')}"
        unread = sorted(state for state in self.in_part if not self.rows[state])
        if self.different:
            groups, texts = tuple(sorted(self.different)), tuple(self.different.values())
            return Check(name, Outcome.FAILED, expected, "other rows", groups, texts[:_MOST_SAMPLES])
        if not is_complete:
            return Check(name, Outcome.COULD_NOT_TELL, expected, "only a part could be read")
        if unread:
            return Check(name, Outcome.COULD_NOT_TELL, expected, f"no row was drawn of {', '.join(unread)}")
        return Check(name, Outcome.PASSED, expected, "the same rows")


@dataclass(slots=True)
class _Expected:
    """The rows in a range of keys; those that the scan has given are `met`."""

    keys: KeyRange
    rows: Mapping[bytes, bytes]
    met: set[bytes] = field(default_factory=set)


class PlainRows:
    """The rows of some key groups of one file, which plain code reads first; then the scan's sections are seen."""

    def __init__(self, folder: Location, file: NativeFile, key_groups: Sequence[int], seed: int) -> None:
        # Timers on the heap aren't in the database.
        self._file, self._names = file, [state.name for state in file.header.states[: file.stored_states]]
        self._expected: dict[int, list[_Expected]] = {state: [] for state in range(len(self._names))}
        self.result = PlainRowsResult(dict.fromkeys(self._names, 0))
        prefix = file.prefix
        low, high = key_groups[0], key_groups[-1] + 1
        after = None if high >= 1 << 8 * prefix else high.to_bytes(prefix, "big")
        within = KeyRange(low.to_bytes(prefix, "big"), after)
        families: Mapping[str, ColumnFamily] = file.database.families
        database = PlainDatabase(stored_files(folder, file.handle), families)
        chance = random.Random(f"{seed}/{file.name}/{low}")
        left, large = _READ_WHOLE, []
        for state in chance.sample(range(len(self._names)), len(self._names)):
            size = database.size(self._names[state], within)
            if size <= left:
                left -= size
                self._expect(state, within, database.rows(self._names[state], within))
            else:
                large.append(state)
                self.result.in_part.add(self._names[state])
        for state in large[:_MOST_STATES]:
            for _ in range(_RANGES):
                drawn = database.draw(self._names[state], within, chance)
                if drawn is not None:
                    self._expect(state, *drawn)

    def _expect(self, state: int, keys: KeyRange, rows: Mapping[bytes, bytes]) -> None:
        self._expected[state].append(_Expected(keys, rows))
        self.result.rows[self._names[state]] += len(rows)

    def see(self, section: Section) -> None:
        """Compares the rows of a section; it may be seen again."""
        for expected in self._expected.get(section.state, ()):
            for key, value in _rows(section, expected.keys):
                expected.met.add(key)
                if (wanted := expected.rows.get(key)) != value:
                    self._differs(section.state, key, wanted, value)

    def end(self) -> None:
        """Finds the rows that the scan didn't give."""
        for state, ranges in self._expected.items():
            for expected in ranges:
                for key in expected.rows.keys() - expected.met:
                    self._differs(state, key, expected.rows[key], None)

    def _differs(self, state: int, key: bytes, wanted: bytes | None, found: bytes | None) -> None:
        group = int.from_bytes(key[: self._file.prefix], "big")
        where = f"subtask {self._file.subtask}, state {self._names[state]}, key {key[:_SHOWN].hex()}"
        self.result.different.setdefault(group, f"{where}: expected {_words(wanted)}, found {_words(found)}")


def _rows(section: Section, keys: KeyRange) -> Iterator[tuple[bytes, bytes]]:
    """Yields key and value of the section's rows in a range of keys. The rows are in the order of their keys."""
    data, starts, key_ends, ends = section.data, section.key_starts, section.key_ends, section.ends

    def first_with(key: bytes) -> int:
        low, high = 0, len(section)
        while low < high:
            middle = (low + high) // 2
            if data[starts[middle] : key_ends[middle]].tobytes() < key:
                low = middle + 1
            else:
                high = middle
        return low

    last = len(section) if keys.after is None else first_with(keys.after)
    for row in range(first_with(keys.first), last):
        key_end = int(key_ends[row])
        yield data[starts[row] : key_end].tobytes(), data[key_end + 4 : ends[row]].tobytes()


def _words(value: bytes | None) -> str:
    return "no row" if value is None else f"{len(value)} bytes {value[:_SHOWN].hex()}"
