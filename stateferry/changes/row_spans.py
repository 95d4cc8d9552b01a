"""Rows of a map state in a buffer, and their way into blobs: all rows of a key and namespace become one blob.

A blob has the timestamp of its newest entry. Its entries have the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.compression import Buffer
from flinkstate.kryo.write_kernels import MORE, MORE_OF_MAP, write_maps
from flinkstate.kryo.writing import KryoForm
from flinkstate.serializers.walker import Flags, Positions
from flinkstate.writing.max_parallelism_change import GroupedEntries, grouped
from stateferry.changes import kernels
from stateferry.changes.counts import ConversionCounts
from stateferry.changes.key_hashes import hashed_keys
from stateferry.changes.sections import STAMP, MapRows, first_of_each

NULLABLE: Literal["nullable"] = "nullable"
# By Flink's map serializer, by its nullable one, or by Kryo.
BlobForm = KryoForm | Literal["nullable"] | None
# Flink writes the size of a value as a Java int.
LARGEST_BLOB = 2**31 - 1
_COUNT = 4
# Between the end of a row and the next row's key are the key's length and the key group.
_MOST_BETWEEN = 6


@dataclass(frozen=True, slots=True)
class RowSpans:
    """Where the parts of some rows are in `data`, their timestamps if they have any, and the key groups they go to.

    A row's key with its namespace is `data[starts:key_ends]`, its user key ends at `user_ends`, its value at `ends`.
    `nulls` says which values are null: by the flag before the value or, under time to live, by the value's own bytes.
    """

    data: Buffer
    starts: Positions
    key_ends: Positions
    user_ends: Positions
    ends: Positions
    nulls: Flags
    timestamps: Positions
    targets: Positions

    @classmethod
    def of(cls, rows: MapRows, kept: Positions, targets: Positions, null: bytes | None) -> RowSpans:
        """Returns the kept rows of a section; `targets` are those of the kept rows.

        `null` is what the value's serializer writes for null under time to live, if it can.
        """
        section = rows.section
        values = section.value_starts[kept]
        with section.locating():
            for empty in np.flatnonzero(section.ends[kept] <= values)[:1]:
                raise DamagedError("a null flag", "the end of the entry", offset=int(values[empty]))
            for wrong in np.flatnonzero(section.data[values] > 1)[:1]:
                found = f"{section.data[values[wrong]]}"
                raise DamagedError("a map entry's null flag 0 or 1", found, offset=int(values[wrong]))
        nulls = section.data[values] == 1
        if len(rows.timestamps) and null is not None:
            own = np.zeros(len(kept), np.bool_)
            wanted = np.array(bytearray(null), np.uint8)
            kernels.find_equal(section.data, values + 1 + STAMP, section.ends[kept], wanted, own)
            nulls |= own
        return cls(
            section.data,
            rows.key_starts[kept],
            rows.key_ends[kept],
            section.key_ends[kept],
            section.ends[kept],
            nulls,
            rows.timestamps[kept] if len(rows.timestamps) else rows.timestamps,
            targets,
        )

    def __len__(self) -> int:
        return len(self.starts)

    def runs(self) -> tuple[Positions, pa.Array]:
        """Returns where each run of neighbours with the same key begins, and 16 bytes for the key of each run."""
        firsts = first_of_each(self.data, self.starts, self.key_ends)
        return firsts, hashed_keys(self.data, self.starts[firsts], self.key_ends[firsts])

    def where(self, which: Flags) -> RowSpans:
        """Returns some of the rows, in the same buffer."""
        stamps = self.timestamps[which] if len(self.timestamps) else self.timestamps
        parts = (self.starts, self.key_ends, self.user_ends, self.ends)
        starts, key_ends, user_ends, ends = (part[which] for part in parts)
        return RowSpans(self.data, starts, key_ends, user_ends, ends, self.nulls[which], stamps, self.targets[which])

    def copied(self) -> RowSpans:
        """Returns the rows in a buffer of their own, which stays valid when the next section is read."""
        if not len(self):
            return replace(self, data=np.empty(0, np.uint8))
        # Rows that are neighbours in the section are copied at once, with what is between them.
        begins = np.flatnonzero(np.append(True, self.starts[1:] - self.ends[:-1] > _MOST_BETWEEN))
        lasts = np.append(begins[1:], len(self)) - 1
        firsts, afters = self.starts[begins], self.ends[lasts]
        moved = firsts - (np.cumsum(afters - firsts) - (afters - firsts))
        shift = np.repeat(moved, lasts - begins + 1)
        spans = zip(firsts.tolist(), afters.tolist(), strict=True)
        data = np.concatenate([self.data[start:end] for start, end in spans])
        parts = (self.starts, self.key_ends, self.user_ends, self.ends)
        starts, key_ends, user_ends, ends = (part - shift for part in parts)
        return RowSpans(data, starts, key_ends, user_ends, ends, self.nulls, self.timestamps, self.targets)


def together(parts: Sequence[RowSpans]) -> RowSpans:
    """Returns the rows of several buffers in one."""
    if len(parts) == 1:
        return parts[0]
    sizes = np.array([len(part.data) for part in parts], np.int64)
    begins = np.cumsum(sizes) - sizes

    def shifted(name: str) -> Positions:
        found: Positions = np.concatenate(
            [getattr(part, name) + begin for part, begin in zip(parts, begins, strict=True)]
        )
        return found

    return RowSpans(
        np.concatenate([part.data for part in parts]),
        shifted("starts"),
        shifted("key_ends"),
        shifted("user_ends"),
        shifted("ends"),
        np.concatenate([part.nulls for part in parts]),
        np.concatenate([part.timestamps for part in parts]),
        np.concatenate([part.targets for part in parts]),
    )


def blobs_of(
    rows: RowSpans, state: int, prefix: int, stamped: bool, counts: ConversionCounts, form: BlobForm = None
) -> GroupedEntries:
    """Returns the blobs that the rows become, in this form; all rows of a key must be among them."""
    order, sizes_in_rows, targets = _by_blob(rows)
    firsts = np.cumsum(sizes_in_rows) - sizes_in_rows
    newest = np.empty(0, np.int64)
    if stamped:
        newest = np.maximum.reduceat(rows.timestamps[order], firsts) if len(firsts) else newest
        _count_longer(rows.timestamps[order], np.repeat(newest, sizes_in_rows), counts)
    counts.blobs_written += len(firsts)
    counts.entries_written += len(order)
    if isinstance(form, KryoForm):
        return _by_kryo(rows, _Blobs(order, sizes_in_rows, targets, newest), state, prefix, stamped, form)
    nullable = form is NULLABLE
    sizes = _sizes(rows, order, firsts, stamped) + (sizes_in_rows + 1 if nullable else 0)
    key_sizes = (rows.key_ends - rows.starts)[order[firsts]]
    starts_of_blobs = np.cumsum(8 + prefix + key_sizes + sizes) - (8 + prefix + key_sizes + sizes)
    total = int((8 + prefix + key_sizes + sizes).sum())
    out, ends = np.empty(total + kernels.SLACK, np.uint8), np.empty(len(firsts), np.int64)
    kernels.write_blobs(
        rows.data, rows.starts, rows.key_ends, rows.user_ends, rows.ends, rows.nulls, order, sizes_in_rows, targets,
        sizes, newest, prefix, stamped, nullable, out, ends,
    )  # fmt: skip
    return grouped(state, out[:total], targets, ends, starts_of_blobs)


@dataclass(frozen=True, slots=True)
class _Blobs:
    """The order of the rows by blob, the number of rows of each blob, its key group and its timestamp."""

    order: Positions
    rows: Positions
    targets: Positions
    stamps: Positions


def _by_kryo(rows: RowSpans, blobs: _Blobs, state: int, prefix: int, stamped: bool, form: KryoForm) -> GroupedEntries:
    most = 2 * int((rows.ends - rows.starts).sum()) + 2 * MORE * len(rows)
    most += len(blobs.rows) * (MORE_OF_MAP + len(form.head))
    out, ends = np.empty(most, np.uint8), np.empty(len(blobs.rows), np.int64)
    wrong = write_maps(
        rows.data, rows.starts, rows.key_ends, rows.user_ends, rows.ends, rows.nulls, blobs.order, blobs.rows,
        blobs.targets, blobs.stamps, prefix, stamped, form.head, form.five, form.key, form.value, out, ends,
    )  # fmt: skip
    if wrong >= 0:
        entry = bytes(rows.data[rows.starts[wrong] : rows.ends[wrong]][:80]).hex()
        raise DamagedError("a row with a user key and a value of the state's types", f"one that begins with {entry}")
    starts = np.append(0, ends)[:-1]
    for large in np.flatnonzero(ends - starts > LARGEST_BLOB)[:1]:
        raise RefusedError(f"one map by Kryo takes {ends[large] - starts[large]:,} bytes, more than Flink writes")
    return grouped(state, out[: int(ends[-1]) if len(ends) else 0], blobs.targets, ends, starts)


def _by_blob(rows: RowSpans) -> tuple[Positions, Positions, Positions]:
    """Returns the rows' order by blob, the number of rows of each blob, and the blobs' key groups, which ascend."""
    firsts, hashes = rows.runs()
    lengths = np.diff(firsts, append=len(rows))
    keys = hashes.dictionary_encode()
    blob_of_run = keys.indices.to_numpy().astype(np.int64)
    count = len(keys.dictionary)
    targets = np.empty(count, np.int64)
    targets[blob_of_run] = rows.targets[firsts]
    blobs = np.argsort(targets, kind="stable")
    rank = np.empty(count, np.int64)
    rank[blobs] = np.arange(count)
    rank_of_row = np.repeat(rank[blob_of_run], lengths)
    order = np.argsort(rank_of_row, kind="stable")
    return order, np.bincount(rank_of_row, minlength=count).astype(np.int64), targets[blobs]


def _sizes(rows: RowSpans, order: Positions, firsts: Positions, stamped: bool) -> Positions:
    """Returns the sizes of the blobs' values."""
    if not len(firsts):
        return np.empty(0, np.int64)
    flags = rows.user_ends + 4
    values = np.where(rows.nulls, 1, rows.ends - flags - (STAMP if stamped else 0))
    sizes = np.add.reduceat((rows.user_ends - rows.key_ends + values)[order], firsts)
    sizes += _COUNT + (STAMP if stamped else 0)
    for large in np.flatnonzero(sizes > LARGEST_BLOB)[:1]:
        row = order[firsts[large]]
        key = bytes(rows.data[rows.starts[row] : rows.key_ends[row]][:40]).hex()
        raise RefusedError(
            f"the rows of one key (its bytes begin with {key}) take {sizes[large]:,} bytes as one blob, and Flink "
            f"writes no value of more than {LARGEST_BLOB:,} bytes: this state can't go back to a ValueState"
        )
    found: Positions = sizes
    return found


def _count_longer(timestamps: Positions, newest: Positions, counts: ConversionCounts) -> None:
    older = newest > timestamps
    counts.entries_that_live_longer += int(older.sum())
    # Timestamps may be anywhere between the least and the greatest long. Their sum is made in two halves.
    longer = (newest[older] - timestamps[older]).view(np.uint64)
    high, low = longer >> np.uint64(32), longer & np.uint64(0xFFFFFFFF)
    counts.milliseconds_longer += (int(high.sum()) << 32) + int(low.sum())
