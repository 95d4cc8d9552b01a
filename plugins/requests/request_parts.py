"""What the requests for a migration and for a rollback share: types of fields, approval, the old job."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticUseDefault

from flinkstate.errors import PlanError
from stateferry.runs.plan.option_marks import Kind, Option
from stateferry.runs.plan.plan_fields import valid_milliseconds, valid_parallelism, valid_share
from stateferry.runs.plan.plan_json import plan_values
from stateferry.runs.plan.plan_problems import problem_lines

# Sections of the forms, with those of a plan's options.
JOB = "Which job is rolled back"
APPROVAL = "Approval"
PLACE = "Where the jobs live"
STOP = "When the job is stopped"
START = "Start the new job on Flink"
BACK = "Return to the old job"

APPROVAL_IS_OFF = "approval is switched off"
"""Why nobody is asked."""


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


def _parallelism_of_operators(value: object) -> object:
    """The parallelism as it was written, if it is valid, or None for an empty field of the form."""
    value = _given(value)
    if value is not None:
        valid_parallelism(value)
    return value


def _arguments(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str):
        try:
            shlex.split(value)
        except ValueError as error:
            raise ValueError(f"expected arguments as a shell takes them, found {value!r}: {error}") from None
    return value


def _people(value: object) -> object:
    """The people as a text with commas between them; a configuration may have a list of them."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = ",".join(value)
    if isinstance(value, str):
        return ", ".join(dict.fromkeys(one.strip() for one in value.split(",") if one.strip())) or None
    return value


def _default_if_empty(value: object) -> object:
    """The value; the field's default for an empty text, which names no connection."""
    if isinstance(value, str) and not value.strip():
        raise PydanticUseDefault
    return value


def list_or_none(value: object) -> object:
    """The list, or None if it is empty: the form's editor makes an empty list of an empty field."""
    if isinstance(value, str) and value.strip():
        return plan_values(f'{{"operators": {value}}}', "operators")["operators"]
    return _given(value) or None


Text = Annotated[StrictStr | None, BeforeValidator(_given)]
Connection = Annotated[StrictStr, BeforeValidator(_default_if_empty)]
Number = Annotated[StrictInt | None, Field(ge=1, le=32768), BeforeValidator(_given)]
ParallelismOfOperators = Annotated[int | str | dict[str, int] | None, PlainValidator(_parallelism_of_operators)]
Duration = Annotated[StrictStr, BeforeValidator(_duration)]
OptionalDuration = Annotated[StrictStr | None, BeforeValidator(_duration), BeforeValidator(_given)]
Share = Annotated[float | None, Field(strict=True), BeforeValidator(_share)]
Arguments = Annotated[StrictStr, BeforeValidator(_arguments)]
People = Annotated[StrictStr | None, BeforeValidator(_people)]


class Request(BaseModel):
    """The base of requests: refuses unknown fields, and reports all problems at once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="after")
    def _fits_together(self) -> Request:
        problems = list(self.problems())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def problems(self) -> Iterator[str]:
        """What is wrong with the request, one sentence each."""
        yield from ()

    def has(self, name: str) -> bool:
        """Whether the field has a value."""
        return getattr(self, name) is not None


class Program(NamedTuple):
    """A program to start as a job, without its savepoint."""

    jar: str
    entry_class: str | None
    arguments: list[str]
    parallelism: int | None


class Approval(Request):
    """Whether a person is asked, and how long."""

    approval: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Ask a person",
            "wait until a person has read the report and approved. Off: go on without asking, for automation",
            section=APPROVAL,
        ),
    ] = True
    approval_timeout: Annotated[
        Duration,
        Option(
            Kind.DURATION,
            "Wait at most",
            "how long to wait for the answer, such as 90s, 15m, 12h or 2d. Without an answer by then, the run ends as "
            "rejected",
            section=APPROVAL,
        ),
    ] = "24h"
    approvers: Annotated[
        People,
        Option(
            Kind.TEXT,
            "Who may answer",
            "ids of users as Airflow's login has them, with commas between them, such as `ada, grace`",
            section=APPROVAL,
            if_empty="everybody whom Airflow's roles allow it",
        ),
    ] = None
    four_eyes: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Four eyes",
            "who has triggered the run may reject it, but not approve it: another person must",
            section=APPROVAL,
        ),
    ] = False

    def asked(self) -> list[str]:
        """The ids of the users who may answer; empty if everybody may whom Airflow allows it."""
        return self.approvers.split(", ") if self.approvers else []

    def approval_problems(self) -> Iterator[str]:
        """What is wrong with who is asked."""
        if not self.approval and self.has("approvers"):
            yield "approvers: given, but approval is off: turn it on, or leave approvers empty"
        if not self.approval and self.four_eyes:
            yield "four_eyes: on, but approval is off: turn it on, or four_eyes off"


class OldJob(Request):
    """The program of the old job, by which it can be started again."""

    old_jar: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Old job's jar",
            "file name or id of the jar that was uploaded to Flink. Without it, the old job is not started again",
            section=BACK,
        ),
    ] = None
    old_entry_class: Annotated[
        Text, Option(Kind.TEXT, "Old entry class", "the class to start", section=BACK, if_empty="the jar's own")
    ] = None
    old_program_args: Annotated[
        Arguments, Option(Kind.TEXT, "Old arguments", "the program's arguments, as on a command line", section=BACK)
    ] = ""
    old_job_parallelism: Annotated[
        Number,
        Option(
            Kind.NUMBER,
            "Old job's parallelism",
            "the parallelism with which the old job is started",
            section=BACK,
            if_empty="as the job or Flink says",
        ),
    ] = None

    def old_program(self) -> Program:
        """The program of the old job."""
        arguments = shlex.split(self.old_program_args)
        return Program(str(self.old_jar), self.old_entry_class, arguments, self.old_job_parallelism)


_R = TypeVar("_R", bound=Request)


def checked(model: type[_R], values: Mapping[str, object], origin: str) -> _R:
    """The request with these values; raises a `PlanError` with a line for each problem, which names `origin`."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise PlanError("\n".join(f"{origin}: {line}" for line in problem_lines(error, (model,)))) from None
