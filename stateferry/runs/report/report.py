"""The report of a run (`report.json`): its checks, the bytes for which they hold, facts, and predictions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.predict.estimates import Prediction
from stateferry.runs.record.steps import Step
from stateferry.runs.report.balance_facts import OperatorBalance

MOST_SAMPLES = 10
PUBLISHED_FILES = "published files"
"""The check, after the publication of a catch-up, that reads its files once more."""


@dataclass(frozen=True, slots=True)
class FileDigest:
    """A file's size, and the digest of its content: 16 hexadecimal digits."""

    size: int
    digest: Annotated[str, Field(alias="checksum")]


@dataclass(frozen=True, slots=True)
class SavepointDigests:
    """Identifies a savepoint by its content; `path` says where it was read."""

    path: str
    checkpoint_id: int
    files: dict[str, FileDigest]

    def is_same_content(self, other: SavepointDigests) -> bool:
        """Whether both have the same checkpoint id and the same files; paths don't count."""
        return (self.checkpoint_id, self.files) == (other.checkpoint_id, other.files)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of the validation.

    `facts` are by step. `prediction` is what was predicted for the run. The tables are `tables_pending` until
    `tables`, the checks that are made of them last, are green. `balance` says for each operator how evenly its state
    is spread.
    """

    # What the report says in fields that aren't known would be left out of the page, so it is refused.
    __pydantic_config__ = ConfigDict(extra="forbid")

    job: str
    run_id: str
    plan_fingerprint: str
    made_at: int
    source: SavepointDigests
    staged: SavepointDigests
    checks: tuple[Check, ...]
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: tuple[Check, ...] = ()
    tables_pending: bool = False
    prediction: Prediction | None = None
    balance: tuple[OperatorBalance, ...] = ()

    def __post_init__(self) -> None:
        for check in (*self.checks, *self.tables):
            if len(check.samples) > MOST_SAMPLES:
                raise ValueError(f"check {check.name} has {len(check.samples)} samples, at most {MOST_SAMPLES} fit")

    @property
    def is_green(self) -> bool:
        """Whether the report allows a cut-over: at least one check passed, and none failed.

        A check that could not tell (for example where the hash of a key is computed by a class of the job) doesn't stop
        the run. The person who approves the run decides.
        """
        return self.count(Outcome.PASSED) > 0 and self.count(Outcome.FAILED) == 0

    def count(self, outcome: Outcome) -> int:
        """The number of checks with this outcome."""
        return sum(check.outcome is outcome for check in self.checks)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on options that had no effect, which the snapshot found; none if there is no snapshot yet."""
        return tuple(self.facts.get(Step.SNAPSHOT, {}).get("notes", ()))

    @property
    def has_tables(self) -> bool:
        """Whether there are tables that follow the state: not if no state is migrated."""
        return self.tables_pending or Step.TABLES in self.facts

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.outcome is Outcome.FAILED)

    def with_tables(self, checks: tuple[Check, ...], facts: dict[str, Any]) -> Report:
        """The report with the checks and facts of the tables, which are pending as long as a check fails."""
        red = any(check.outcome is Outcome.FAILED for check in checks)
        return replace(self, tables=checks, tables_pending=red, facts=self.facts | {Step.TABLES.value: facts})

    def without_tables(self) -> Report:
        """The report as the validation has made it."""
        facts = {step: of_step for step, of_step in self.facts.items() if step != Step.TABLES}
        return replace(self, tables=(), tables_pending=self.has_tables, facts=facts)

    def holds_for(self, staged: SavepointDigests, plan_fingerprint: str) -> bool:
        """Whether the report is about exactly these bytes, made by exactly this plan."""
        return self.plan_fingerprint == plan_fingerprint and self.staged.is_same_content(staged)

    def to_json(self) -> str:
        checks, tables = (tuple(map(_writable, of)) for of in (self.checks, self.tables))
        content = _REPORT.dump_python(replace(self, checks=checks, tables=tables), mode="json", by_alias=True)
        return json.dumps(content, indent=2, allow_nan=False) + "\n"

    def write(self, file: Location) -> None:
        file.parent.make_folder()
        file.write_atomically(self.to_json().encode())

    @classmethod
    def of_json(cls, text: str | bytes, file: str = "report.json") -> Report:
        try:
            return _REPORT.validate_python(json.loads(text))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise DamagedError("a report", f"{place}: {first['msg']}", file=file) from None
        except ValueError as error:
            raise DamagedError("a report in JSON", f"{error}", file=file) from None

    @classmethod
    def read(cls, file: Location) -> Report:
        return cls.of_json(file.read(), file.shown)


_REPORT = TypeAdapter(Report)


def _writable(check: Check) -> Check:
    """Replaces what UTF-8 can't encode: text of keys may have unpaired surrogates."""

    def text(value: str) -> str:
        return value.encode("utf-8", "backslashreplace").decode()

    return replace(
        check,
        name=text(check.name),
        expected=text(check.expected),
        actual=text(check.actual),
        samples=tuple(text(sample) for sample in check.samples),
    )
