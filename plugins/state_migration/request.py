"""The request for a migration or a rollback, from the form or the nightly configuration: all fields of the form."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from stateferry.errors import PlanError
from stateferry.runs.plan import plan_values, valid_milliseconds, valid_share
from stateferry.runs.plan_problems import problem_lines

DEMO_STATE = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState", "ttl_ms": "30d"}
DEMO_OPERATORS = [{"operator": "main", "states": [DEMO_STATE]}]


def _given(value: object) -> object:
    """The value, or None for an empty field of the form."""
    return None if isinstance(value, str) and not value.strip() else value


def _duration(value: object) -> object:
    """The duration as it was written, if it is valid."""
    if isinstance(value, str):
        valid_milliseconds(value)
    return value


def _share(value: object) -> object:
    """The share as a number, or None for an empty field of the form."""
    return valid_share(_given(value))


def _arguments(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str):
        try:
            shlex.split(value)
        except ValueError as error:
            raise ValueError(f"expected arguments as a shell takes them, found {value!r}: {error}") from None
    return value


def _list(value: object) -> object:
    """The list, or None if it is empty: the form's editor makes an empty list of an empty field."""
    if isinstance(value, str) and value.strip():
        return plan_values(f'{{"operators": {value}}}', "operators")["operators"]
    return _given(value) or None


Text = Annotated[StrictStr | None, BeforeValidator(_given)]
Number = Annotated[StrictInt | None, Field(ge=1, le=32768), BeforeValidator(_given)]
Duration = Annotated[StrictStr, BeforeValidator(_duration)]
Share = Annotated[float | None, Field(strict=True), BeforeValidator(_share)]
Arguments = Annotated[StrictStr, BeforeValidator(_arguments)]

SOURCE_FIELDS = {
    "demo": (),
    "path": ("savepoint",),
    "folder": ("savepoint_folder",),
    "flink": ("flink_job", "savepoint_directory"),
}
_STATE_FIELDS = ("operator", "legacy_state", "new_state")


class _Asked(BaseModel):
    """The base of requests: refuses unknown fields, and reports all problems at once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="after")
    def _fits_together(self) -> _Asked:
        problems = list(self.problems())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def problems(self) -> Iterator[str]:
        """What is wrong with the request, one sentence each."""
        yield from ()

    def _given(self, name: str) -> bool:
        return getattr(self, name) is not None


class Program(NamedTuple):
    """A program to start as a job, without its savepoint."""

    jar: str
    entry_class: str | None
    arguments: list[str]
    parallelism: int | None


class _MayStartOldJob(_Asked):
    """The fields by which the old job can be started again."""

    flink_conn_id: StrictStr = "flink_default"
    flink_job: Text = None
    old_jar: Text = None
    old_entry_class: Text = None
    old_program_args: Arguments = ""
    old_job_parallelism: Number = None

    def old_program(self) -> Program:
        """The program of the old job."""
        arguments = shlex.split(self.old_program_args)
        return Program(str(self.old_jar), self.old_entry_class, arguments, self.old_job_parallelism)


class MigrationRequest(_MayStartOldJob):
    """The request for a migration."""

    source: Literal["demo", "path", "folder", "flink"] = "demo"
    savepoint: Text = None
    savepoint_folder: Text = None
    savepoint_directory: Text = None

    job: Text = None
    operator: Text = None
    legacy_state: Text = None
    new_state: Text = None
    flag_state: Text = None
    no_flag_state: StrictBool = False
    ttl: Text = None
    operators: Annotated[list[dict[str, Any]] | None, BeforeValidator(_list)] = None
    keep_expired: StrictBool = False
    accept_expired: Share = None
    clock_tolerance: Duration = "10m"
    keep_legacy: StrictBool = False
    drop_unrepresentable_nulls: StrictBool = False
    on_contradiction: Literal["stop", "blob", "rows"] = "stop"
    parallelism: Number = None
    max_parallelism: Number = None
    target: Text = None

    mode: Literal["cut over", "rehearse"] = "cut over"
    approval: StrictBool = True
    approval_timeout: Duration = "24h"

    start_job: StrictBool = False
    jar: Text = None
    entry_class: Text = None
    program_args: Arguments = ""
    job_parallelism: Number = None
    start_timeout: Duration = "10m"

    @property
    def rehearses(self) -> bool:
        """Whether nothing is published."""
        return self.mode == "rehearse"

    @property
    def stops_job(self) -> bool:
        """Whether the job is stopped with the savepoint."""
        return self.source == "flink" and not self.rehearses

    def rehearsal(self) -> MigrationRequest:
        """The same request as a rehearsal, without approval and without a job to start."""
        return self.model_copy(update={"mode": "rehearse", "start_job": False, "approval": False})

    def new_program(self) -> Program:
        """The program of the new job."""
        return Program(str(self.jar), self.entry_class, shlex.split(self.program_args), self.job_parallelism)

    def operator_plans(self) -> list[dict[str, Any]]:
        """The operators and states to migrate, as a plan has them."""
        if self.operators is not None:
            return self.operators
        if self.operator is None:
            return DEMO_OPERATORS
        state = {"legacy": self.legacy_state, "new": self.new_state, "flag": self.flag_state, "ttl_ms": self.ttl}
        given: dict[str, Any] = {name: value for name, value in state.items() if value is not None}
        if self.no_flag_state:
            given["no_flag"] = True
        return [{"operator": self.operator, "states": [given]}]

    def job_name(self) -> str:
        """The name of the job to which the run belongs."""
        return self.job or ("demo" if self.source == "demo" else str(self.operator_plans()[0].get("operator")))

    def problems(self) -> Iterator[str]:
        yield from self._source_problems()
        yield from self._state_problems()
        if self.start_job and self.rehearses:
            yield "start_job: a rehearsal starts no job: choose mode 'cut over', or leave start_job off"
        if self.start_job and self.jar is None:
            yield "jar: missing, and start_job needs it: name the jar that was uploaded to Flink"
        if not self.start_job and self.jar is not None:
            yield "jar: given, but start_job is off: turn it on, or leave jar empty"

    def _source_problems(self) -> Iterator[str]:
        for name in SOURCE_FIELDS[self.source]:
            if not self._given(name):
                yield f"{name}: missing, and source '{self.source}' needs it"
        for source, names in SOURCE_FIELDS.items():
            for name in names:
                if source != self.source and self._given(name):
                    yield f"{name}: given, but source is '{self.source}': choose '{source}', or leave {name} empty"

    def _state_problems(self) -> Iterator[str]:
        named = [name for name in (*_STATE_FIELDS, "flag_state", "ttl") if self._given(name)]
        named += ["no_flag_state"] if self.no_flag_state else []
        if self.no_flag_state and self.flag_state is not None:
            yield "no_flag_state: on, but flag_state is given: turn it off, or leave flag_state empty"
        if self.operators is not None:
            yield from (f"{name}: given beside operators: say it there" for name in named)
        elif named or self.source != "demo":
            missing = [name for name in _STATE_FIELDS if not self._given(name)]
            yield from (f"{name}: missing: operator, legacy_state and new_state are named together" for name in missing)


class RollbackRequest(_MayStartOldJob):
    """The request for a rollback."""

    job: Text = None
    approval: StrictBool = True
    approval_timeout: Duration = "24h"
    restart_job: StrictBool = False

    def problems(self) -> Iterator[str]:
        if self.job is None:
            yield "job: missing: name the job whose publication is to be undone"
        if self.restart_job and self.old_jar is None:
            yield "old_jar: missing, and restart_job needs it: name the jar that was uploaded to Flink"
        for name in ("flink_job", "old_jar"):
            if not self.restart_job and self._given(name):
                yield f"{name}: given, but restart_job is off: turn it on, or leave {name} empty"


def migration_request(values: Mapping[str, object], origin: str) -> MigrationRequest:
    """The request with these values; raises a `PlanError` with a line for each problem, which names `origin`."""
    try:
        return MigrationRequest.model_validate(dict(values))
    except ValidationError as error:
        raise _in_words(error, MigrationRequest, origin) from None


def rollback_request(values: Mapping[str, object], origin: str) -> RollbackRequest:
    """The request with these values; raises a `PlanError` with a line for each problem, which names `origin`."""
    try:
        return RollbackRequest.model_validate(dict(values))
    except ValidationError as error:
        raise _in_words(error, RollbackRequest, origin) from None


def _in_words(error: ValidationError, model: type[BaseModel], origin: str) -> PlanError:
    return PlanError("\n".join(f"{origin}: {line}" for line in problem_lines(error, (model,))))
