"""The files of a database as its MANIFEST describes them, and whether RocksDB finds all that they hold.

What RocksDB finds follows from more than the entries themselves. As its source says (6.20 and 8.10, which Flink has):

- A reader sees no entry above the last sequence number of the MANIFEST.
- The search for one key ends at the first file that has it: level 0 from the newest file to the oldest, then the
  levels below. An iterator takes the entry with the largest sequence number, wherever it is. The two agree only if the
  newest file that has a key has the largest number of it. That is checked where keys are merged (`merge.py`).
- Level 0 is ordered by the files' epochs if all files of the column family have one, else by the largest sequence
  number of each. Files of one database have sequence numbers in the order of their epochs. Where Flink has joined
  several databases (`use-ingest-db-restore-mode`), each has brought numbers of its own, and a compaction that stays on
  level 0 makes one file of several. So where there are epochs, they alone are looked at.
- Of a level below 0, at most one file is searched for a key, by the first and last keys that the MANIFEST says.
- RocksDB removes files whose number isn't below the next one when it opens a database.

So this module refuses a database for which these would hide an entry, or show another one. That the entries have the
keys and the sequence numbers which the MANIFEST says is checked where they are read (`sorted_run.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from flinkstate.errors import DamagedError

# A key of this type is where a deleted range begins or ends. It may have any number. So may one of a type behind it:
# where a compaction of RocksDB 8.10 has cut off a range, the rest begins with the number of an entry that may be in
# another file, or gone, and with the type behind all others (24).
RANGE_DELETE = 15
# The largest number of 56 bits stands for what has none.
_NO_SEQUENCE = (1 << 56) - 1


@dataclass(frozen=True, slots=True)
class LiveFile:
    """An SST file of a column family. Its first and last key are internal keys, with their tags.

    `sequences` are the least and the largest sequence number of its entries. Files of level 0 with a larger `epoch` are
    newer; 0 if the MANIFEST doesn't say it.
    """

    number: int
    level: int
    size: int
    smallest: bytes
    largest: bytes
    sequences: tuple[int, int] = (0, 0)
    epoch: int = 0

    @property
    def name(self) -> str:
        return f"{self.number:06}.sst"


@dataclass(slots=True)
class ColumnFamily:
    """A column family: its number and name, and its live files by number."""

    id: int
    name: str
    files: dict[int, LiveFile] = field(default_factory=dict)

    def of_level(self, level: int) -> list[LiveFile]:
        """Returns the files of a level: level 0 from the newest to the oldest, another one by their keys."""
        files = [file for file in self.files.values() if file.level == level]
        if level:
            return sorted(files, key=lambda file: order(file.smallest))
        by_epoch = self.has_epochs
        return sorted(
            files,
            key=lambda file: (file.epoch if by_epoch else 0, file.sequences[1], file.sequences[0], file.number),
            reverse=True,
        )

    @property
    def has_epochs(self) -> bool:
        """Whether RocksDB orders level 0 by epochs, which all files must have then."""
        return all(file.epoch for file in self.files.values())


def order(key: bytes) -> tuple[bytes, int]:
    """Returns what internal keys are ordered by: the key, then from the newest to the oldest."""
    return key[:-8], -int.from_bytes(key[-8:], "little")


def check_visible(families: Iterable[ColumnFamily], last: int, next_file: int, manifest: str) -> None:
    """Raises unless RocksDB would find all that the live files hold.

    `last` is the last sequence number that the MANIFEST says, `next_file` the number of the next file.
    """
    for family in families:
        for file in family.files.values():
            _check_file(file, last, next_file, f"{file.name} of {family.name}", manifest)
        for level in sorted({file.level for file in family.files.values()}):
            if level == 0:
                _check_newest_first(family, manifest)
            else:
                _check_disjoint(family.of_level(level), level, family.name, manifest)


def _check_file(file: LiveFile, last: int, next_file: int, shown: str, manifest: str) -> None:
    least, largest = file.sequences
    if largest >= _NO_SEQUENCE:
        found = f"{largest} in {shown}"
        raise DamagedError(
            f"sequence numbers below {_NO_SEQUENCE}, which RocksDB keeps for itself", found, file=manifest
        )
    if largest > last:
        found = f"{shown} goes up to {largest}, and RocksDB would not show these entries"
        raise DamagedError(f"entries up to the last sequence number {last}", found, file=manifest)
    if file.number >= next_file:
        found = f"{shown}, which RocksDB would remove"
        raise DamagedError(f"files below the next number {next_file}", found, file=manifest)
    tags = [int.from_bytes(key[-8:], "little") for key in (file.smallest, file.largest)]
    tagged = all(least <= tag >> 8 <= largest for tag in tags if tag & 0xFF < RANGE_DELETE)
    if not tagged or order(file.smallest) > order(file.largest):
        found = f"{shown}: {file.smallest.hex()} to {file.largest.hex()}"
        expected = f"a first and a last key in order, with sequence numbers from {least} to {largest}"
        raise DamagedError(expected, found, file=manifest)


def _check_newest_first(family: ColumnFamily, manifest: str) -> None:
    """Files of level 0 that share keys must follow each other in time; by all that says when they were written."""
    by_epoch, files = family.has_epochs, family.of_level(0)

    def follow(newer: LiveFile, older: LiveFile) -> bool:
        epochs = newer.epoch > older.epoch
        if by_epoch:
            return epochs
        return newer.sequences[0] > older.sequences[1] and (epochs or not (newer.epoch and older.epoch))

    if all(follow(newer, older) for newer, older in pairwise(files)):
        return
    for newer, older in _with_shared_keys(files):
        if follow(newer, older):
            continue
        expected = f"files of level 0 of {family.name} with sequence numbers of their own, the newest with the largest"
        found = " and ".join(f"{one.name} ({one.sequences[0]} to {one.sequences[1]})" for one in (newer, older))
        why = "RocksDB would show one or the other version of their keys"
        if by_epoch:
            expected = f"files of level 0 of {family.name} that share keys to have epochs of their own"
            found, why = f"{newer.epoch} of {newer.name} and of {older.name}", "RocksDB would not open them"
        raise DamagedError(expected, f"{found}: {why}", file=manifest)


def _with_shared_keys(files: Sequence[LiveFile]) -> Iterator[tuple[LiveFile, LiveFile]]:
    """Yields pairs of files that may have a key in common, the newer one first, as it is in `files`."""
    by_key = sorted(enumerate(files), key=lambda one: one[1].smallest[:-8])
    for place, (age, file) in enumerate(by_key):
        at = place + 1
        while at < len(by_key) and by_key[at][1].smallest[:-8] <= file.largest[:-8]:
            other_age, other = by_key[at]
            yield (file, other) if age < other_age else (other, file)
            at += 1


def _check_disjoint(files: Sequence[LiveFile], level: int, family: str, manifest: str) -> None:
    for before, after in pairwise(files):
        if order(before.largest) >= order(after.smallest):
            expected = f"files of level {level} of {family} that share no keys"
            raise DamagedError(expected, f"{before.name} and {after.name}", file=manifest)
