"""What the migration counts in a legacy state, its flags and the rows of its new state."""

from __future__ import annotations

from dataclasses import dataclass

from stateferry.basics.counts import Counts


@dataclass(slots=True)
class StateCounts(Counts):
    """What was met, and what was decided, in the blobs and rows of one state.

    `empty_maps` are blobs that are alive and have no entries. `blobs_left` are those that a lazy run doesn't move.
    """

    blobs: int = 0
    blobs_expired: int = 0
    blobs_left: int = 0
    blob_entries: int = 0
    blob_entries_left: int = 0
    blob_entries_expired: int = 0
    blob_entries_superseded: int = 0
    blob_entries_dropped_for_rows: int = 0
    empty_maps: int = 0
    contradictions: int = 0
    rows_read: int = 0
    rows_expired: int = 0
    rows_replaced_by_a_blob: int = 0
    rows_kept: int = 0
    timestamps_in_the_future: int = 0


@dataclass(slots=True)
class InventoryCounts(StateCounts):
    """The counts of a state before anything is written.

    `flagged` keys are those whose flag is set and alive. Of these, some have rows in the new state, expired or not, and
    some have none, nor a blob that becomes rows. These may be `flagged_for_another` state that shares the flag, and has
    rows of them. `rows_without_flag` are keys with rows and with neither flag nor blob. All of these are counted only
    if the savepoint has the flag state. `flags_not_set` are false or have expired.

    `unwritable_nulls` are null values that the value's serializer can't write, of entries that would become rows.
    `outlived` are living entries that would give way to what has expired and stays, though the job doesn't see it.
    `older_rows_that_win` are rows to which younger living entries of a blob give way, without a flag.
    `merged_keys` have a blob and rows, and no flag that is set. `empty_contradictions` are those whose blob has no
    entry.
    """

    unwritable_nulls: int = 0
    outlived: int = 0
    older_rows_that_win: int = 0
    merged_keys: int = 0
    empty_contradictions: int = 0
    flagged: int = 0
    flagged_with_rows: int = 0
    flagged_without_rows: int = 0
    flagged_for_another: int = 0
    rows_without_flag: int = 0
    flags_not_set: int = 0


@dataclass(slots=True)
class ConversionCounts(StateCounts):
    """The counts of a state whose blobs were written as rows, or in reverse whose rows were written as blobs.

    `entries_that_live_longer` are those that are older than the newest entry of their blob, whose timestamp the blob
    has; `milliseconds_longer` is the sum of the times by which they are older.
    """

    rows_written: int = 0
    flags_written: int = 0
    nulls_dropped: int = 0
    blobs_written: int = 0
    entries_written: int = 0
    entries_that_live_longer: int = 0
    milliseconds_longer: int = 0


@dataclass(slots=True)
class StateSigns(Counts):
    """The living keys of a state, and how it would fit in the place of a state that the plan names.

    `moved` keys are as if the job had moved them, `not_moved` as if it had not. `flagged` are the keys with a flag.
    `lacking` are, of a map state, those of them that have no rows in the plan's new state. Of a Boolean state, `moved`
    keys have rows, `not_moved` ones a blob alone and no flag, and `lacking` ones rows and a blob and no flag.
    """

    keys: int = 0
    moved: int = 0
    not_moved: int = 0
    flagged: int = 0
    lacking: int = 0


@dataclass(slots=True)
class LossCounts(Counts):
    """What an upgrade lost of one state: its rows before the upgrade, and what became of them.

    `found` rows are there still, `equal` ones with the same bytes; `agreeing` others have an entry as it was. `untold`
    are rows of which nobody can tell what Flink 2 has read. `misread` rows show that Flink 2 has read what Kryo 2
    wrote: they have those bytes still, or a wrong value. `unread` rows have something as it was that it can't have read
    from there. All other counts are of entries; of those that are lost, some are `put_back`, and some, which have a
    wrong value, `corrected`.
    """

    rows: int = 0
    found: int = 0
    equal: int = 0
    agreeing: int = 0
    lost: int = 0
    overwritten: int = 0
    removed: int = 0
    gone: int = 0
    expired: int = 0
    untold: int = 0
    misread: int = 0
    unread: int = 0
    put_back: int = 0
    corrected: int = 0
    rows_put_back: int = 0
