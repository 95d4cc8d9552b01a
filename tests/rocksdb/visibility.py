"""Databases with the same rows in many ways: some show all of them to RocksDB, some hide rows or show others."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.rocksdb import writing
from tests.rocksdb.writing import DELETE, RANGE_DELETE, VALUE, Entry, Table, log, new_file, numbers, sized, varint

Rows = Mapping[bytes, bytes]


@dataclass(frozen=True)
class Written:
    """A file and what the MANIFEST says of it, where that isn't as it is."""

    level: int
    entries: Sequence[Entry]
    number: int = 1
    sequences: tuple[int, int] | None = None
    epoch: int = 0
    # The MANIFEST describes a file with these entries.
    like: Sequence[Entry] | None = None
    # Changes the restart points of the data blocks.
    restarts: Callable[[list[int]], list[int]] | None = None
    # Begins the change of the MANIFEST that adds the file.
    edit: bytes = b""


@dataclass(frozen=True)
class Way:
    """How the rows of a column family are stored, and what is to be expected.

    `red` is what our reader must say; None if it must read the rows. `last` and `next_file` make other numbers of the
    right ones. `found_by` are the versions of Flink in which a job that starts from such files finds the rows as they
    are; where we are stricter, a later compaction or flush may lose them.
    """

    files: Callable[[Rows], list[Written]]
    red: str | None = None
    found_by: tuple[str, ...] = ("1.20.0", "2.3.0")
    last: Callable[[int], int] = lambda last: last
    next_file: Callable[[int], int] = lambda number: number


def of_sequence(rows: Rows, first: int, step: int = 1) -> list[Entry]:
    return [(key, first + step * place, VALUE, value) for place, (key, value) in enumerate(sorted(rows.items()))]


def zeros(rows: Rows) -> list[Entry]:
    return of_sequence(rows, 0, 0)


def older(rows: Rows) -> Rows:
    """The same keys with values of their neighbours."""
    values = [value for _, value in sorted(rows.items())]
    return dict(zip(sorted(rows), values[1:] + values[:1], strict=True))


def _half(rows: Rows) -> Rows:
    return {key: rows[key] for key in sorted(rows)[: max(len(rows) // 2, 1)]}


def _two(newer: Written, below: Written, numbers: tuple[int, int] = (2, 1)) -> list[Written]:
    return [replace(newer, number=numbers[0]), replace(below, number=numbers[1])]


def _alternating(rows: Rows) -> list[Written]:
    """Two files of level 0, each of which has the newer version of every other key."""
    count, both = len(rows), [of_sequence(one, 1) for one in (rows, older(rows))]
    parts: list[list[Entry]] = [[], []]
    for place in range(count):
        for which, entry in enumerate((both[0][place], both[1][place])):
            newer = which == 0
            parts[(place + which) % 2].append((entry[0], 2 * place + 1 + newer, VALUE, entry[3]))
    return _two(Written(0, parts[0]), Written(0, parts[1]))


def _joined(rows: Rows, newest: tuple[int, int], epoch: int) -> list[Written]:
    """Level 0 of two databases that Flink has joined, whose newest and oldest file a compaction has made one.

    One has the lower half of the keys, in two files (epochs 10 and 11), of the other one file with the upper half is
    left. `newest` are the first sequence numbers of what the compaction took, `epoch` is that of its file.
    """
    low, (of_low, of_high) = _half(rows), newest
    high = {key: value for key, value in rows.items() if key not in low}
    is_above = epoch > 10
    made = of_sequence(low if is_above else older(low), of_low) + of_sequence(high, of_high)
    other = Written(0, of_sequence(older(low) if is_above else low, 20_000), epoch=10 if is_above else 11)
    below = Written(0, of_sequence(older(high), 1), epoch=1)
    return [
        replace(Written(0, made, epoch=epoch), number=3),
        replace(other, number=2),
        *([replace(below, number=1)] if high else []),
    ]


def _without_one(points: list[int]) -> list[int]:
    return points[:1] + points[2:]


WAYS: dict[str, Way] = {
    "one file of level 6": Way(lambda rows: [Written(6, zeros(rows))]),
    "sequence numbers up to the last one": Way(lambda rows: [Written(6, of_sequence(rows, 1))]),
    "above the last sequence": Way(
        lambda rows: [Written(6, of_sequence(rows, 1))],
        "RocksDB would not show these entries",
        found_by=(),
        last=lambda last: last // 2,
    ),
    "above what the MANIFEST says of the file": Way(
        lambda rows: [Written(6, of_sequence(rows, 1), sequences=(0, 1), like=of_sequence(rows, 1, 0))],
        "expected sequence numbers from 0 to 1, as the MANIFEST says",
        found_by=(),
        last=lambda _: 1,
    ),
    "level 0 in its order": Way(
        lambda rows: _two(Written(0, of_sequence(rows, 1000)), Written(0, of_sequence(older(rows), 1)))
    ),
    "level 0 with the numbers of the files the other way round": Way(
        lambda rows: _two(Written(0, of_sequence(rows, 1000)), Written(0, of_sequence(older(rows), 1)), (1, 2))
    ),
    "level 0 with one file inside the other": Way(
        _alternating, "files of level 0 of .* with sequence numbers of their own", found_by=()
    ),
    "level 0 with epochs the other way round": Way(
        lambda rows: _two(
            Written(0, of_sequence(rows, 1000), epoch=1), Written(0, of_sequence(older(rows), 1), epoch=2)
        ),
        "its newest version in the newest file that has it",
        found_by=("1.20.0",),
    ),
    "level 0 with one file of two databases above older ones": Way(
        lambda rows: _joined(rows, (30_000, 10_000), 11), found_by=("2.3.0",)
    ),
    "level 0 with one file of two databases that has larger numbers below a newer one": Way(
        lambda rows: _joined(rows, (10_000, 30_000), 2), found_by=("2.3.0",)
    ),
    "level 0 with the same epoch in files that share keys": Way(
        lambda rows: _two(
            Written(0, of_sequence(rows, 1000), epoch=1), Written(0, of_sequence(older(rows), 1), epoch=1)
        ),
        "files of level 0 of .* that share keys to have epochs of their own",
        found_by=("1.20.0",),
    ),
    "level 0 with epochs the other way round, of which one is missing": Way(
        lambda rows: [
            *_two(Written(0, of_sequence(rows, 1000), epoch=1), Written(0, of_sequence(older(rows), 1), epoch=2)),
            Written(6, zeros(older(rows)), number=3),
        ],
        "files of level 0 of .* with sequence numbers of their own",
    ),
    "an older version above a newer one": Way(
        lambda rows: _two(Written(1, of_sequence(older(rows), 1)), Written(2, of_sequence(rows, 1000))),
        "its newest version in the newest file that has it",
        found_by=(),
    ),
    "the same version twice": Way(
        lambda rows: _two(Written(5, zeros(older(rows))), Written(6, zeros(rows))),
        "each key of a state once",
        found_by=(),
    ),
    "deletions below": Way(
        lambda rows: _two(
            Written(1, of_sequence(rows, 1)),
            Written(2, [(key, 1000 + place, DELETE, b"") for place, key in enumerate(sorted(rows))]),
        ),
        "its newest version in the newest file that has it",
        found_by=(),
    ),
    "a deleted range below": Way(
        lambda rows: _two(
            Written(1, of_sequence(rows, 1)), Written(2, [(min(rows), 1000, RANGE_DELETE, max(rows) + b"\xff")])
        ),
        "its newest version in the newest file that has it",
        found_by=("2.3.0",),
    ),
    "files of a level that share keys": Way(
        lambda rows: _two(Written(2, of_sequence(rows, 1)), Written(2, of_sequence(_half(rows), 1000))),
        "files of level 2 of .* that share no keys",
        found_by=(),
    ),
    "the number of the next file too small": Way(
        lambda rows: [Written(6, zeros(rows))], "which RocksDB would remove", found_by=("2.3.0",), next_file=lambda _: 1
    ),
    "a file in half a group of changes": Way(
        lambda rows: [Written(6, zeros(rows), edit=varint(300) + varint(1))],
        "of its group|all changes of a group",
        found_by=(),
    ),
    "keys before the first one that the MANIFEST says": Way(
        lambda rows: [Written(6, zeros(rows), like=zeros(rows)[1:])], "the first key", found_by=()
    ),
    "keys behind the last one that the MANIFEST says": Way(
        lambda rows: [Written(6, zeros(rows), like=zeros(rows)[:-1])], "the last key", found_by=()
    ),
    "a last key that the MANIFEST takes for the end of a deleted range": Way(
        lambda rows: [
            Written(
                2,
                of_sequence(rows, 1),
                like=[*of_sequence(rows, 1)[:-1], (min(rows), len(rows), RANGE_DELETE, max(rows))],
            )
        ],
        "the last key",
        found_by=(),
    ),
    "restart points at the end": Way(
        lambda rows: [Written(6, zeros(rows), restarts=lambda points: [points[-1]] * len(points))],
        "restart point",
        found_by=(),
    ),
    "a restart point that is left out": Way(
        lambda rows: [Written(6, zeros(rows), restarts=_without_one)],
    ),
}


class _Restarted(Table):
    """A table whose data blocks have other restart points than they should."""

    change: Callable[[list[int]], list[int]]

    def write(self, entries: Sequence[Entry], properties: Mapping[str, bytes] | None = None) -> bytes:
        self._in_data = True
        return super().write(entries, properties)

    def _add(self, content: bytes, compression: int = writing.NONE) -> bytes:
        # The data blocks come first, and no meta block is large.
        if self.compression == writing.SNAPPY and compression == writing.SNAPPY:
            (count,) = struct.unpack_from("<I", content, len(content) - 4)
            end = len(content) - 4 - 4 * count
            points = self.change(list(struct.unpack_from(f"<{count}I", content, end)))
            content = content[:end] + struct.pack(f"<{len(points) + 1}I", *points, len(points))
        return super()._add(content, compression)


def files_of(families: Mapping[str, Rows], way: Way) -> dict[str, bytes]:
    """The files of a database with these column families, each stored in the way."""
    files: dict[str, bytes] = {"CURRENT": b"MANIFEST-000001\n"}
    edits = [varint(1) + sized(b"leveldb.BytewiseComparator")]
    for id_, family in enumerate(families, 1):
        edits.append(varint(200) + varint(id_) + varint(201) + sized(family.encode()) + varint(2) + varint(0))
    added, largest = list[bytes](), 0
    for id_, (family, rows) in enumerate(families.items(), 1):
        for one in way.files(rows) if rows else ():
            number = 10 * id_ + one.number
            table = Table(family, block_bytes=1000)
            if one.restarts is not None:
                table = _Restarted(family, block_bytes=1000)
                table.change = one.restarts
            files[f"{number:06}.sst"] = data = table.write(one.entries)
            told = new_file(number, one.level, len(data), one.like or one.entries, one.epoch, one.sequences)
            added.append(one.edit + varint(200) + varint(id_) + told)
            largest = max(largest, *(entry[1] for entry in one.entries))
    told_numbers = numbers(way.next_file(1000), way.last(largest)) + varint(203) + varint(len(families))
    files["MANIFEST-000001"] = log([edits[0] + told_numbers, *edits[1:], *added])
    return files
