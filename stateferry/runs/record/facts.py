"""The facts that a run keeps in its folder, each kind in a file of its own: `steps/<name>.json`.

A step keeps its facts when it is done. Other kinds record what must be known after a kill, such as the claim on the
target. Facts that are None aren't stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter, ValidationError

from flinkstate.errors import DamagedError
from flinkstate.kryo.counted import FoundClasses
from stateferry.basics.counts import Counts
from stateferry.basics.quantities import noun, percent
from stateferry.changes.counts import ConversionCounts, InventoryCounts, LossCounts
from stateferry.look.kryo_maps import maps_line
from stateferry.runs.record.state_ages import FoundAges
from stateferry.runs.record.target_access import TargetAccess
from stateferry.tables.counts import TableCounts

SECONDS, ENDED_AT = "seconds", "ended_at"


class Step(StrEnum):
    """The steps of a run, in their order.

    `migrate` writes the new savepoint, `rescale` puts key groups into new ranges where `migrate` can't do that itself,
    and `tables` writes the tables when the state is safe.
    """

    SNAPSHOT = "snapshot"
    MIGRATE = "migrate"
    RESCALE = "rescale"
    VALIDATE = "validate"
    CUT_OVER = "cut_over"
    TABLES = "tables"

    def earlier(self, *, rehearses: bool, rescales_only: bool = False) -> tuple[Step, ...]:
        """The steps that must be done before this one, in a rehearsal or in a cut-over."""
        before = tuple(Step)[: tuple(Step).index(self)]
        return tuple(step for step in steps_of(rehearses=rehearses, rescales_only=rescales_only) if step in before)


def steps_of(*, rehearses: bool, rescales_only: bool = False) -> tuple[Step, ...]:
    """The steps of a run: a rehearsal publishes nothing, and a run that migrates no state has no tables."""
    left_out = {Step.CUT_OVER} if rehearses else set()
    return tuple(step for step in Step if step not in left_out and not (rescales_only and step is Step.TABLES))


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts of one kind; `name` is the name of their file."""

    name: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """The facts as they are stored."""
        values = {field.name: _stored(getattr(self, field.name)) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def of_json(cls, values: Mapping[str, Any], file: str) -> Self:
        """The stored facts; messages name the file."""
        try:
            facts: Self = cls._adapter().validate_python(cls._fields(values))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise DamagedError(f"the facts of {cls.name}", f"{place}: {first['msg']}", file=file) from None
        return facts

    @staticmethod
    def _fields(values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The fields of the facts in what is stored."""
        return values

    @classmethod
    def _adapter(cls) -> TypeAdapter[Any]:
        if cls.name not in _ADAPTERS:
            _ADAPTERS[cls.name] = TypeAdapter(cls)
        return _ADAPTERS[cls.name]


_ADAPTERS: dict[str, TypeAdapter[Any]] = {}


def _stored(value: Any) -> Any:
    """A value as it is stored; counts have keys of their own."""
    if isinstance(value, Counts):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: _stored(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(_stored(one) for one in value)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@dataclass(frozen=True, slots=True)
class TimedFacts(RunFacts):
    """Facts of a part of a cut-over, with the seconds that it took.

    `ended_at` is the time in milliseconds at which it was done. Both are None until the step is done.
    """

    seconds: float | None = field(default=None, kw_only=True)
    ended_at: int | None = field(default=None, kw_only=True)

    def to_json(self) -> dict[str, Any]:
        """The facts as they are stored, the times last."""
        facts = RunFacts.to_json(self)
        return facts | {name: facts.pop(name) for name in (SECONDS, ENDED_AT) if name in facts}

    @property
    def rows(self) -> int:
        """The entries that the step read or the rows that it wrote; 0 if it counts none."""
        return 0

    @property
    def size(self) -> int:
        """The bytes that the step read or wrote; 0 if it counts none."""
        return 0


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


@dataclass(frozen=True, slots=True)
class ShownTimers(RunFacts):
    """Whether native savepoints of the job hold all its timers, as the run's source shows it; not all sources do."""

    name: ClassVar[str] = "timers"

    in_native_savepoints: bool


@dataclass(frozen=True, slots=True)
class Claim(RunFacts):
    """This run writes into the target, whose parts get the `access` in the end."""

    name: ClassVar[str] = "claim"

    target: str
    access: TargetAccess | None = None


@dataclass(frozen=True, slots=True)
class StagedDigests(RunFacts):
    """The size and digest of each staged file as it was written, by its name."""

    name: ClassVar[str] = "digests"

    files: Mapping[str, tuple[int, str]]

    def to_json(self) -> dict[str, Any]:
        return dict(self.files)

    @staticmethod
    def _fields(values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"files": values}


@dataclass(frozen=True, slots=True)
class SentEntries:
    """The files by which the entries of one operator go from the migrate step to the rescale step.

    `driver` is in their names, and `sizes` are those of the senders' files.
    """

    operator: str
    driver: str
    receivers: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SentFiles(RunFacts):
    """The files of the exchange, and the digest of each directory and of the `_metadata` of what is written already."""

    name: ClassVar[str] = "exchange"

    operators: tuple[SentEntries, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StagedAccount:
    """What the validation counted of a new state in the staged savepoint: for each key group, entries and hashes."""

    operator: str
    state: str
    counts: tuple[int, ...]
    sums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StagedAccounts(RunFacts):
    """The accounts of the staged savepoint, with which the tables are compared."""

    name: ClassVar[str] = "accounts"

    states: tuple[StagedAccount, ...] = ()


@dataclass(frozen=True, slots=True)
class BaseState:
    """What a catch-up needs of a state of the staged savepoint: entries and hashes by key group.

    Of a new state also what its source had.
    """

    operator: str
    state: str
    counts: tuple[int, ...]
    sums: tuple[int, ...]
    of_source: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class BaseAccounts(RunFacts):
    """What a catch-up needs of the staged savepoint, all of which the validation has found to be right."""

    name: ClassVar[str] = "base"

    states: tuple[BaseState, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """The changed keys of a state in one subtask as they were converted: how many, and their digest."""

    operator: str
    subtask: int
    state: str
    keys: int
    digest: str


@dataclass(frozen=True, slots=True)
class CaughtUp(RunFacts):
    """The changed keys that a catch-up has converted."""

    name: ClassVar[str] = "caught_up"

    lists: tuple[ChangedKeys, ...] = ()


@dataclass(frozen=True, slots=True)
class NothingToDo(RunFacts):
    """The run had nothing to do, and why."""

    name: ClassVar[str] = "nothing_to_do"

    reason: str


@dataclass(frozen=True, slots=True)
class TablesProblem(RunFacts):
    """Why the last try to bring the tables to what was published has failed."""

    name: ClassVar[str] = "tables_problem"

    reason: str


@dataclass(frozen=True, slots=True)
class SavepointTaken(TimedFacts):
    """The savepoint that Flink took for this run, which was first asked for at `requested_at` (in milliseconds).

    `checkpoint_interval` is that of a job that runs on, in milliseconds, if it is known.
    """

    name: ClassVar[str] = "take_savepoint"

    savepoint: str | None = None
    job_id: str | None = None
    checkpoint_id: int | None = None
    requested_at: int | None = None
    checkpoint_interval: int | None = None


@dataclass(frozen=True, slots=True)
class Began(RunFacts):
    """When the work on the run began, in milliseconds, if the run was planned for another time: by a DAG run."""

    name: ClassVar[str] = "began"

    at: int
    dag_id: str | None = None
    dag_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class NewJob(RunFacts):
    """The job that is started from this run's publication, and its program; kept before it is started."""

    name: ClassVar[str] = "new_job"

    job_id: str | None = None
    jar: str | None = None
    entry_class: str | None = None
    program_args: str = ""
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class JobStarted(TimedFacts):
    """The new job has completed a checkpoint."""

    name: ClassVar[str] = "start_job"

    job_id: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Returned(RunFacts):
    """The old job is started again, so this run's savepoint is out of date; it runs since `ended_at` (milliseconds)."""

    name: ClassVar[str] = "returned"

    reason: str
    savepoint: str
    ended_at: int | None = None
