"""The facts that a run keeps in its folder, each kind in a file of its own: `steps/<name>.json`.

A step keeps its facts when it is done. Other kinds record what must be known after a kill, such as the claim on the
target. Facts that are None aren't stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter, ValidationError

from flinkstate.errors import DamagedError
from stateferry.basics.counts import Counts
from stateferry.runs.record.target_access import TargetAccess

SECONDS, ENDED_AT = "seconds", "ended_at"

_HELD_MS = 3_600_000


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
class BaseState(StagedAccount):
    """What a catch-up needs of a state of the staged savepoint; of some also what their source had."""

    of_source: Mapping[str, int] | None = None
    aging: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class BaseAccounts(RunFacts):
    """What a catch-up needs of the staged savepoint, all of which the validation has found to be right."""

    name: ClassVar[str] = "base"

    states: tuple[BaseState, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimableCopies(RunFacts):
    """The copies on S3 of the result's tables which the new job may claim: what tells each from another file."""

    name: ClassVar[str] = "claimable"

    folder: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


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
    """The changed keys that a catch-up has converted; with it, `depth` catch-ups lie above the first base.

    So many newer files of its base it has `joined`.
    """

    name: ClassVar[str] = "caught_up"

    lists: tuple[ChangedKeys, ...] = ()
    depth: int = 1
    joined: int = 0


@dataclass(frozen=True, slots=True)
class HeldFiles(RunFacts):
    """The identities of the files that a catch-up has taken over, by name; it had read them at that time (in ms)."""

    name: ClassVar[str] = "held_files"

    at: int
    files: Mapping[str, str] = field(default_factory=dict)

    def of_late(self, now: int) -> Mapping[str, str]:
        """Those by which the files needn't be read again: none once an hour has passed."""
        return self.files if now - self.at <= _HELD_MS else {}


@dataclass(frozen=True, slots=True)
class NightChoice(RunFacts):
    """What a night that may catch up has chosen: its base, or why it converts everything (`why_whole`).

    `now` and `now_from` are what the plan had before it got those of the base.
    """

    name: ClassVar[str] = "night"

    now: int
    now_from: str
    why_whole: str = ""


@dataclass(frozen=True, slots=True)
class NothingToDo(RunFacts):
    """The run had nothing to do, and why."""

    name: ClassVar[str] = "nothing_to_do"

    reason: str


@dataclass(frozen=True, slots=True)
class TablesProblem(RunFacts):
    """Why the last try to bring the tables to what was published has failed, or that the published files are others."""

    name: ClassVar[str] = "tables_problem"

    reason: str
    published_differs: bool = False


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
    """When the work on the run began, in milliseconds, if the run was planned for another time: by a DAG run.

    `flink_job` is the id of the running job whose checkpoint a rehearsal before a cut-over reads.
    """

    name: ClassVar[str] = "began"

    at: int
    dag_id: str | None = None
    dag_run_id: str | None = None
    flink_job: str | None = None


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
