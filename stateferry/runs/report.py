"""What a run found out: its checks, for exactly which bytes they hold, facts, and what the next run may expect. As JSON
in `report.json` and back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from stateferry.errors import DamagedError
from stateferry.savepoint.storage import Location
from stateferry.validation.check_result import Check, Outcome

MOST_SAMPLES = 10


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """`checksum` is 16 hexadecimal digits."""

    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class SavepointFingerprint:
    """A savepoint by its content; `path` says where it was read."""

    path: str
    checkpoint_id: int
    files: dict[str, FileFingerprint]

    def is_same_content(self, other: SavepointFingerprint) -> bool:
        return (self.checkpoint_id, self.files) == (other.checkpoint_id, other.files)


@dataclass(frozen=True, slots=True)
class Report:
    """`facts` are by step, `predictions` say how long each part of a cut-over may take, in seconds."""

    # A report of a later version says more than this one knows.
    __pydantic_config__ = ConfigDict(extra="forbid")

    job: str
    run_id: str
    plan_fingerprint: str
    made_at: int
    source: SavepointFingerprint
    staged: SavepointFingerprint
    checks: tuple[Check, ...]
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    predictions: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for check in self.checks:
            if len(check.samples) > MOST_SAMPLES:
                raise ValueError(f"check {check.name} has {len(check.samples)} samples, at most {MOST_SAMPLES} fit")

    @property
    def is_green(self) -> bool:
        """Whether it may lead to a cut-over: something was checked, and nothing failed. What can't be told (where a
        key's hash is its class's own code, say) is for the person who approves to know."""
        return self.count(Outcome.PASSED) > 0 and self.count(Outcome.FAILED) == 0

    def count(self, outcome: Outcome) -> int:
        return sum(check.outcome is outcome for check in self.checks)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is good to know and no check: options that had no effect. The snapshot finds out; before it did, there
        were none."""
        return tuple(self.facts.get("snapshot", {}).get("notes", ()))

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.outcome is Outcome.FAILED)

    def holds_for(self, staged: SavepointFingerprint, plan_fingerprint: str) -> bool:
        """Whether it is about exactly these bytes, made by exactly this plan."""
        return self.plan_fingerprint == plan_fingerprint and self.staged.is_same_content(staged)

    def to_json(self) -> str:
        checks = tuple(_writable(check) for check in self.checks)
        content = _REPORT.dump_python(replace(self, checks=checks), mode="json")
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
    """Keys may have surrogates without their twins, which no UTF-8 has."""

    def text(value: str) -> str:
        return value.encode("utf-8", "backslashreplace").decode()

    return replace(
        check,
        name=text(check.name),
        expected=text(check.expected),
        actual=text(check.actual),
        samples=tuple(text(sample) for sample in check.samples),
    )
