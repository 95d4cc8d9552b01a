"""The results of the tasks of one operator, added up, and what tables and snapshots say beside them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from flinkstate.errors import DamagedError, RefusedError
from stateferry.changes.counts import InventoryCounts, LossCounts
from stateferry.proof.carried_check import CarriedResult
from stateferry.proof.equal_rows import EqualRows
from stateferry.proof.expected.aging_content import AgingCounts
from stateferry.proof.expected.content import Account, AccountsByState
from stateferry.proof.expected.expected_entries import SourceCounts
from stateferry.proof.keyed_result import KeyedResult, Side
from stateferry.proof.plain.plain_check import PlainTally
from stateferry.proof.plain.plain_elements import PlainElements
from stateferry.proof.plain.plain_rows import PlainRowsResult


@dataclass(slots=True)
class TableAccount:
    """The account of a migrated state's living rows according to the tables.

    It uses the same hashes as `content.Entries`. `problems` say why it is incomplete, if it is. `rows_read` is the
    number of rows that were read for it, as the ledger didn't have their sums.
    """

    operator: str
    state: str
    account: Account
    problems: list[str] = field(default_factory=list)
    rows_read: int = 0

    def add(self, other: TableAccount) -> None:
        """Adds what another chunk of the same tables holds."""
        self.account.take(other.account)
        self.problems += other.problems
        self.rows_read += other.rows_read


@dataclass(slots=True)
class Tally:
    """The results of one operator's tasks, added up; `size` is the largest possible number of key groups."""

    size: int
    expected: AccountsByState = field(init=False)
    found: AccountsByState = field(init=False)
    whole: AccountsByState = field(init=False)
    counts: dict[str, SourceCounts] = field(default_factory=dict)
    aging: dict[str, AgingCounts] = field(default_factory=dict)
    strays: dict[str, Counter[int]] = field(default_factory=dict)
    expired: dict[str, Counter[int]] = field(default_factory=dict)
    carried: list[tuple[str, str]] = field(default_factory=list)
    damage: list[tuple[int | None, str]] = field(default_factory=list)
    plain: dict[str, PlainTally] = field(default_factory=dict)
    plain_rows: dict[Side, PlainRowsResult] = field(default_factory=dict)
    blobs: dict[Side, AccountsByState] = field(init=False)
    carried_is_damaged: bool = False
    plain_elements: dict[str, PlainElements] = field(default_factory=dict)
    losses: dict[str, LossCounts] = field(default_factory=dict)
    equal: EqualRows = field(default_factory=EqualRows)
    entries_of: dict[Side, Counter[str]] = field(default_factory=lambda: {side: Counter() for side in Side})

    def __post_init__(self) -> None:
        self.expected, self.found, self.whole = (AccountsByState(self.size) for _ in range(3))
        self.blobs = {side: AccountsByState(self.size) for side in Side}

    def of_all_keys(self, state: str, *, is_lazy: bool) -> Account:
        """What a new state amounts to in the staged savepoint, with the keys that a lazy run has not moved."""
        return (self.whole if is_lazy else self.found).of(state)

    def take(self, result: KeyedResult | CarriedResult) -> None:
        """Adds the result of one task; raises an error if the source is damaged."""
        is_source = result.side is Side.SOURCE
        if result.damage is not None:
            if is_source:
                raise result.damage
            self.note_damage(result.damage)
        if isinstance(result, CarriedResult):
            self.carried += result.differences
            self.carried_is_damaged |= result.damage is not None
            self.plain_elements |= result.plain
            return
        (self.expected if is_source else self.found).take(result.accounts)
        self.whole.take(result.whole)
        self.blobs[result.side].take(result.blobs)
        if result.plain.rows:
            self.plain_rows.setdefault(result.side, PlainRowsResult()).add(result.plain)
        for state, lost in result.losses.items():
            self.losses.setdefault(state, LossCounts()).add(lost)
        self.entries_of[result.side].update(result.entries_of)
        self.equal.take(result.equal)
        for state, sampled in result.samples.items():
            self.plain.setdefault(state, PlainTally()).take(is_source, sampled)
        for state, counts in result.counts.items():
            self.counts.setdefault(state, SourceCounts()).add(counts)
        for state, aged in result.aging.items():
            self.aging.setdefault(state, AgingCounts()).add(aged)
        for mine, theirs in ((self.strays, result.strays), (self.expired, result.expired)):
            for state, groups in theirs.items():
                mine.setdefault(state, Counter()).update(groups)

    def note_damage(self, error: DamagedError | RefusedError) -> None:
        """Notes why a part of the staged savepoint can't be read."""
        self.damage.append((error.key_group if isinstance(error, DamagedError) else None, f"{error}"))

    def differing(self) -> dict[str, list[int]]:
        """The key groups in which the two accounts differ, by state."""
        states = self.expected.accounts.keys() | self.found.accounts.keys()
        found = {state: self.expected.of(state).differences(self.found.of(state)).tolist() for state in sorted(states)}
        return {state: groups for state, groups in found.items() if groups}


@dataclass(frozen=True, slots=True)
class Derived:
    """What a snapshot says of a legacy state of which it has read only what had changed since an earlier night.

    `blob_sum` is that of the timestamps by which it counted blobs; None without time to live.
    """

    counts: InventoryCounts
    blob_sum: int | None
