"""What each step has found out or done: the facts that mark it as done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from flinkstate.kryo.found_classes import FoundClasses
from stateferry.basics.quantities import noun, percent
from stateferry.changes.counts import ConversionCounts, InventoryCounts, LossCounts
from stateferry.look.kryo_maps import maps_line
from stateferry.runs.record.facts import RunFacts, TimedFacts
from stateferry.runs.record.state_ages import FoundAges
from stateferry.runs.record.steps import Step
from stateferry.tables.counts import TableCounts


@dataclass(frozen=True, slots=True)
class StateSize:
    """The entries of a state of the source, and their bytes."""

    entries: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class LazyChoice:
    """What a lazy run moves of one legacy state of an operator (its id in hexadecimal digits).

    `keys` are all keys of the state. Of `migrated` no blob was left before, `left` have one, and of these the run moves
    `moved`: those with a rank of at most `last` in the order; all if it is None.
    """

    operator: str
    state: str
    order: str
    last: int | None
    migrated: int
    left: int
    moved: int
    bytes_left: int
    bytes_moved: int

    @property
    def keys(self) -> int:
        return self.migrated + self.left

    @property
    def line(self) -> str:
        """What the run moves, in words."""
        stay = self.left - self.moved
        return (
            f"{self.state}: {self.moved:,} of {self.left:,} {noun(self.left, 'key')} with a blob "
            f"{noun(self.moved, 'is', 'are')} moved ({self.bytes_moved:,} of {self.bytes_left:,} bytes), {stay:,} "
            f"{noun(stay, 'stays', 'stay')}; {self.migrated:,} {noun(self.migrated, 'was', 'were')} moved before; then "
            f"{percent((self.keys - stay) / self.keys if self.keys else 1.0)} of the keys are moved"
        )


@dataclass(frozen=True, slots=True)
class KryoMaps:
    """The maps of a legacy state by Kryo: their type, and the classes in all of them."""

    operator: str
    state: str
    type: str
    classes: FoundClasses

    @property
    def line(self) -> str:
        """The type and the counts in words."""
        return f"{self.state}: {maps_line(self.type, self.classes)}"


@dataclass(frozen=True, slots=True)
class FlaggedKeys:
    """The keys that the job has moved itself, by the flag state that the plan names for a legacy state.

    Of the `flagged` keys, some have rows in the new state, expired or not, and some have none, nor a blob that becomes
    rows; these may be `for_another` state that shares the flag. Other keys have rows `without_flag` and without a blob.
    Some keys of both kinds are named.
    """

    operator: str
    state: str
    new: str
    flag: str
    flagged: int
    with_rows: int
    without_rows: int
    for_another: int
    without_flag: int
    named_without_rows: tuple[str, ...] = ()
    named_without_flag: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The counts in words."""
        rows, have = noun(self.without_flag, "key"), noun(self.without_flag, "has", "have")
        shared = f", {self.for_another:,} of them with rows in another state of this flag" if self.for_another else ""
        return (
            f"{self.state}: {self.flagged:,} {noun(self.flagged, 'key is', 'keys are')} flagged by {self.flag}: "
            f"{self.with_rows:,} with rows in {self.new}, {self.without_rows:,} with "
            f"none{shared}{_such_as(self.named_without_rows)}; {self.without_flag:,} {rows} with rows {have} "
            f"neither flag nor blob{_such_as(self.named_without_flag)}"
        )


def _such_as(names: tuple[str, ...]) -> str:
    return f" (such as {', '.join(names)})" if names else ""


@dataclass(frozen=True, slots=True)
class SnapshotFacts(TimedFacts):
    """What the source holds.

    `states` and `met` are by operator and state. `read` has the digests of the bytes that were read, as `BytesRead`
    writes them. `lazy` says what a lazy run moves of each legacy state, `flags` what the job has moved by each flag,
    `kryo` what the maps by Kryo are. `nullable` are the operators and legacy states whose maps are nullable.
    `declarations` are the lines of Java by which the new job declares its states. `losses` are those of an upgrade, by
    operator and state.

    `source` is the folder that was read, if the plan's source is a link to it. By `first_expiry` something that wins
    may give way to something younger.

    If only what has changed since another night was read, `of_all` are the seconds that reading everything would have
    taken, by the newest night that did.
    """

    name: ClassVar[str] = Step.SNAPSHOT.value

    states: Mapping[str, StateSize] = field(default_factory=dict)
    met: Mapping[str, InventoryCounts] = field(default_factory=dict)
    ages: FoundAges | None = None
    notes: tuple[str, ...] = ()
    read: Mapping[str, str] = field(default_factory=dict)
    lazy: tuple[LazyChoice, ...] | None = None
    flags: tuple[FlaggedKeys, ...] | None = None
    kryo: tuple[KryoMaps, ...] | None = None
    nullable: tuple[tuple[str, str], ...] | None = None
    declarations: tuple[str, ...] | None = None
    losses: Mapping[str, LossCounts] | None = None
    source: str | None = None
    first_expiry: int | None = None
    of_all: float | None = None

    @property
    def declared_otherwise(self) -> set[tuple[str, str]]:
        """The operators and legacy states that the old job doesn't declare by Types.MAP."""
        return {(one.operator, one.state) for one in self.kryo or ()} | set(self.nullable or ())

    @property
    def rows(self) -> int:
        return sum(state.entries for state in self.states.values())

    @property
    def size(self) -> int:
        return sum(state.bytes for state in self.states.values())


@dataclass(frozen=True, slots=True)
class WritingFacts(TimedFacts):
    """The state files of the new savepoint that a step has written, their bytes, and what was converted, by state.

    `layout` says by operator from which layout to which it was brought, where that changed. `sent` are the bytes of the
    files of the exchange.
    """

    files: int = 0
    bytes: int = 0
    counts: Mapping[str, ConversionCounts] = field(default_factory=dict)
    layout: Mapping[str, str] | None = None
    sent: int | None = None

    @property
    def rows(self) -> int:
        return sum(of_state.rows_written + of_state.rows_kept for of_state in self.counts.values())

    @property
    def size(self) -> int:
        return self.bytes + (self.sent or 0)


@dataclass(frozen=True, slots=True)
class NewerRows:
    """What a catch-up wrote of a state above its base: rows that are new or other, and deletions."""

    put: int
    deleted: int


@dataclass(frozen=True, slots=True)
class MigrateFacts(WritingFacts):
    """What the migrate step has written; nothing if the run migrates no state.

    Of a catch-up, `newer` says by operator and state what it wrote above its base.
    """

    name: ClassVar[str] = Step.MIGRATE.value
    nothing_to_do: ClassVar[str] = "nothing to do: the run migrates no state, so rescale writes the new savepoint"

    newer: Mapping[str, NewerRows] | None = None


@dataclass(frozen=True, slots=True)
class RescaleFacts(WritingFacts):
    """What the rescale step has written; nothing if the migrate step has written into the new ranges itself."""

    name: ClassVar[str] = Step.RESCALE.value
    nothing_to_do: ClassVar[str] = "nothing to do: migrate has written into the new ranges itself"


@dataclass(frozen=True, slots=True)
class ValidateFacts(TimedFacts):
    """Whether the report is green, and the digest of its file."""

    name: ClassVar[str] = Step.VALIDATE.value

    green: bool = False
    report: str | None = None


@dataclass(frozen=True, slots=True)
class CutOverFacts(TimedFacts):
    """The time of the cut-over; the publication is in the catalog."""

    name: ClassVar[str] = Step.CUT_OVER.value


@dataclass(frozen=True, slots=True)
class TablesOfState:
    """The tables `of` a job, operator and state; `snapshots` are the Iceberg snapshots that the run made, by table."""

    of: tuple[str, str, str]
    snapshots: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TablesFacts(TimedFacts):
    """What was written into the tables, which hold what the new savepoint does.

    `rebuilt` says why the tables of a state were written anew. The tables' `main` has `moved` to this run, unless it is
    of a newer savepoint.
    """

    name: ClassVar[str] = Step.TABLES.value

    tables: tuple[TablesOfState, ...] = ()
    counts: Mapping[str, TableCounts] = field(default_factory=dict)
    rebuilt: Mapping[str, str] = field(default_factory=dict)
    moved: bool = False

    @property
    def rows(self) -> int:
        return sum(of_state.rows_written + of_state.rows_folded for of_state in self.counts.values())

    @property
    def snapshots(self) -> dict[str, int]:
        """The snapshots of all tables, by table."""
        return {name: snapshot for one in self.tables for name, snapshot in one.snapshots.items()}


@dataclass(frozen=True, slots=True)
class WrittenTables(RunFacts):
    """What the tables step has written, before the tables are compared with the new savepoint."""

    name: ClassVar[str] = "written_tables"

    tables: tuple[TablesOfState, ...] = ()
    counts: Mapping[str, TableCounts] = field(default_factory=dict)
    rebuilt: Mapping[str, str] = field(default_factory=dict)


FACTS_OF: Mapping[Step, type[TimedFacts]] = {
    Step.SNAPSHOT: SnapshotFacts,
    Step.MIGRATE: MigrateFacts,
    Step.RESCALE: RescaleFacts,
    Step.VALIDATE: ValidateFacts,
    Step.CUT_OVER: CutOverFacts,
    Step.TABLES: TablesFacts,
}
