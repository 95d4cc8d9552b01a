"""What a task of the validation returns, and what collects it: accounts, or what a closer look (a probe) asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.row_sum import RowSum
from flinkstate.metadata.bytes_read import BytesRead
from flinkstate.serializers.walker import Flags, Positions
from stateferry.changes.counts import LossCounts
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.proof.equal_rows import EqualRows
from stateferry.proof.expected.aging_content import AgingCounts
from stateferry.proof.expected.content import (
    Account,
    AccountsByState,
    Entries,
)
from stateferry.proof.expected.expected_entries import SourceCounts
from stateferry.proof.expected.sample_text import MOST_SAMPLES, ProbedEntry, describe
from stateferry.proof.plain.plain_rows import PlainRowsResult
from stateferry.proof.plain.plain_state import SampledKeys


class Side(Enum):
    """Which of the two savepoints is read."""

    SOURCE = "source"
    STAGED = "staged"


@dataclass(frozen=True, slots=True)
class Probe:
    """A closer look at a state's entries in some key groups.

    The first `bits` of an entry's hash are its slice. If there are `slices`, their entries are returned. With `strays`,
    the entries whose key belongs to another key group are returned.
    """

    state: str
    key_groups: tuple[int, ...]
    bits: int = 0
    slices: tuple[int, ...] = ()
    strays: bool = False


@dataclass(slots=True)
class KeyedResult:
    """What a task found in its chunk.

    `damage` says why the chunk could not be read to its end. `accounts`, `counts` and `aging` are by state; `strays`
    and `expired` count wrong entries of the staged savepoint by state and key group; `samples` are the keys that were
    read a second time. `whole` are accounts of the staged savepoint by new state, as if a lazy run had moved all keys.
    `slices` and `entries` answer a probe. `read` has the digests of the source's bytes, `plain` what plain code has
    read of RocksDB's own files.
    """

    operator: str
    side: Side
    size: int
    damage: DamagedError | RefusedError | None = None
    accounts: dict[str, Account] = field(default_factory=dict)
    counts: dict[str, SourceCounts] = field(default_factory=dict)
    aging: dict[str, AgingCounts] = field(default_factory=dict)
    strays: dict[str, Counter[int]] = field(default_factory=dict)
    expired: dict[str, Counter[int]] = field(default_factory=dict)
    samples: dict[str, SampledKeys] = field(default_factory=dict)
    whole: dict[str, Account] = field(default_factory=dict)
    slices: Account | None = None
    entries: list[ProbedEntry] = field(default_factory=list)
    # Of a run in reverse: an account of the blobs, in which each counts once.
    blobs: dict[str, Account] = field(default_factory=dict)
    read: BytesRead | None = None
    plain: PlainRowsResult = field(default_factory=PlainRowsResult)
    # What an upgrade has lost, by state; how many entries these states have before any is put back, or in the result.
    losses: dict[str, LossCounts] = field(default_factory=dict)
    entries_of: Counter[str] = field(default_factory=Counter)
    # Rows of the staged savepoint of which Flink would keep only one.
    equal: EqualRows = field(default_factory=EqualRows)
    # Of a task that reads only some keys: the digests of their rows, by key group.
    sums: dict[int, RowSum] = field(default_factory=dict)


class KeyedAccounts:
    """Accounts of all entries, by state and key group."""

    def __init__(self, size: int) -> None:
        self.accounts = AccountsByState(size)

    def add(self, state: str, entries: Entries, chosen: Flags) -> None:
        self.accounts.of(state).add(entries.groups, entries.hashes(), chosen)

    def leave_out(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        pass

    def withdraw(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        self.accounts.of(state).take_off(entries.groups, entries.hashes(), chosen)

    def fill(self, result: KeyedResult) -> None:
        result.accounts = self.accounts.accounts


def slices_of(pairs: Any, bits: int) -> Positions:
    """The slice of each hash."""
    found: Positions = (pairs >> np.uint64(64 - bits)).astype(np.int64)
    return found


class ProbedSlices:
    """The probed entries' counts and sums, by slice."""

    def __init__(self, probe: Probe) -> None:
        self._probe, self._account = probe, Account.of(1 << probe.bits)

    def _chosen(self, state: str, entries: Entries, chosen: Flags) -> Flags:
        if state != self._probe.state:
            return np.zeros(len(entries), np.bool_)
        return chosen & np.isin(entries.groups, self._probe.key_groups)

    def add(self, state: str, entries: Entries, chosen: Flags) -> None:
        chosen = self._chosen(state, entries, chosen)
        self._account.add(slices_of(entries.pairs, self._probe.bits), entries.hashes(), chosen)

    def leave_out(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        pass

    def withdraw(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        chosen = self._chosen(state, entries, chosen)
        self._account.take_off(slices_of(entries.pairs, self._probe.bits), entries.hashes(), chosen)

    def fill(self, result: KeyedResult) -> None:
        result.slices = self._account


class ProbedEntries:
    """The probed entries themselves; those that must not be in the new state have the reason (`why`)."""

    def __init__(self, probe: Probe, conversion: OperatorChanges) -> None:
        self._probe, self._conversion = probe, conversion
        self._probed: list[ProbedEntry] = []

    def _described(self, state: str, entries: Entries, chosen: Flags, why: str | None) -> Iterator[ProbedEntry]:
        if state != self._probe.state:
            return
        if not self._probe.strays:
            chosen = chosen & np.isin(slices_of(entries.pairs, self._probe.bits), self._probe.slices)
        chosen = chosen & np.isin(entries.groups, self._probe.key_groups)
        hashes = entries.hashes() if chosen.any() else ()
        known = self._conversion.expected_states | {one.made_name: one.new for one in self._conversion.rules}
        described = known.get(state)
        for index in np.flatnonzero(chosen).tolist():
            yield describe(entries, index, int(hashes[index]), described, state in self._conversion.made, why)

    def add(self, state: str, entries: Entries, chosen: Flags) -> None:
        self._probed += self._described(state, entries, chosen, None)

    def leave_out(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        self._probed += self._described(state, entries, chosen, why)

    def withdraw(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        for gone in self._described(state, entries, chosen, why):
            self._probed.remove(replace(gone, why=None))
            self._probed.append(gone)

    def fill(self, result: KeyedResult) -> None:
        result.entries = self._probed[:MOST_SAMPLES] if self._probe.strays else self._probed
