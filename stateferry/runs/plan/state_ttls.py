"""The times to live that a plan tells of states that it doesn't migrate.

As text each is `OPERATOR/STATE=30d`, with words behind colons:

| word | means |
|---|---|
| `keep` | expired entries are counted and stay (as without a word) |
| `drop` | expired entries are counted and left out |
| `drop-visible` | the same where the job may still read what has expired (`ReturnExpiredIfNotCleanedUp`) |
| `OnReadAndWrite`, `ReturnExpiredIfNotCleanedUp`, `cleanupFullSnapshot`, ... | the job's settings, by Flink's names |

Several are in several lines, or have a semicolon between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, model_validator

from stateferry.basics.durations import MAX_MILLISECONDS
from stateferry.runs.plan.plan_fields import Name, PlanModel, valid_milliseconds

if TYPE_CHECKING:
    from flinkstate.ttl import StateTtlConfig

_FORM = "OPERATOR/STATE=DURATION, such as main/sessions=30d or main/sessions=30d:drop"
_RETURNS_EXPIRED = "ReturnExpiredIfNotCleanedUp"
_WORDS: dict[str, tuple[str, object]] = {
    word.lower(): setting
    for word, setting in {
        **{word: ("expired", word) for word in ("keep", "drop", "drop-visible")},
        **{word: ("update", word) for word in ("OnCreateAndWrite", "OnReadAndWrite")},
        **{word: ("visibility", word) for word in ("NeverReturnExpired", _RETURNS_EXPIRED)},
        "cleanupFullSnapshot": ("cleanup_full_snapshot", True),
    }.items()
}
_SHOWN_WORDS = (
    "keep, drop, drop-visible, OnCreateAndWrite, OnReadAndWrite, NeverReturnExpired, ReturnExpiredIfNotCleanedUp or "
    "cleanupFullSnapshot"
)


class StateTtlPlan(PlanModel):
    """The time to live of one state that isn't migrated, and what becomes of its expired entries."""

    operator: Name
    state: Name
    ttl_ms: Annotated[Annotated[StrictInt, Field(ge=1, le=MAX_MILLISECONDS)], BeforeValidator(valid_milliseconds)]
    expired: Literal["keep", "drop", "drop-visible"] = "keep"
    update: Literal["OnCreateAndWrite", "OnReadAndWrite"] = "OnCreateAndWrite"
    visibility: Literal["NeverReturnExpired", "ReturnExpiredIfNotCleanedUp"] = "NeverReturnExpired"
    cleanup_full_snapshot: StrictBool = False

    @model_validator(mode="after")
    def _says_so_if_the_job_can_see_it(self) -> StateTtlPlan:
        if self.expired == "drop" and self.visibility == _RETURNS_EXPIRED:
            raise ValueError(
                f"state {self.state!r} of operator {self.operator!r}: under {_RETURNS_EXPIRED} the job may still read "
                "what has expired, so it can notice that it is gone: say drop-visible if that is meant, or keep"
            )
        if self.expired == "drop-visible" and self.visibility != _RETURNS_EXPIRED:
            raise ValueError(
                f"state {self.state!r} of operator {self.operator!r}: drop-visible is for a job that may still read "
                f"what has expired: say {_RETURNS_EXPIRED} as well, or drop"
            )
        return self

    @property
    def drops(self) -> bool:
        """Whether expired entries are left out."""
        return self.expired != "keep"

    @property
    def text(self) -> str:
        """The same as text."""
        words = [self.expired, self.update, self.visibility, *["cleanupFullSnapshot"] * self.cleanup_full_snapshot]
        return f"{self.operator}/{self.state}={self.ttl_ms}ms:{':'.join(words)}"

    @property
    def config(self) -> StateTtlConfig:
        """The settings as they were given."""
        from flinkstate.ttl import StateTtlConfig, StateVisibility, UpdateType

        return StateTtlConfig(
            self.ttl_ms, UpdateType(self.update), StateVisibility(self.visibility), self.cleanup_full_snapshot
        )


def valid_state_ttls(value: object) -> object:
    """The parts of times to live that are given as text; leaves other values to the field's type."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    return tuple(part for one in value for part in ([one] if not isinstance(one, str) else parts_of_text(one)))


def parts_of_text(text: str) -> Iterable[dict[str, Any]]:
    """The values of each `OPERATOR/STATE=DURATION` in a text."""
    return [_parts(one.strip()) for one in re.split(r"[\n;]", text) if one.strip()]


def _parts(text: str) -> dict[str, Any]:
    named, equals, settings = text.rpartition("=")
    operator, slash, state = named.strip().rpartition("/")
    if not (equals and slash and operator.strip() and state.strip()):
        raise ValueError(f"expected {_FORM}, found {text!r}")
    duration, *words = (word.strip() for word in settings.split(":"))
    if "disabled" in (duration.lower(), *map(str.lower, words)):
        raise ValueError(
            f"under UpdateType.Disabled {state.strip()} has no time to live, so none can be given: leave {text!r} out"
        )
    if valid_milliseconds(duration) == 0:
        raise ValueError(f"expected a time to live above 0, found {text!r}")
    parts: dict[str, Any] = {
        "operator": operator.strip(),
        "state": state.strip(),
        "ttl_ms": valid_milliseconds(duration),
    }
    for word in words:
        if word.lower() not in _WORDS:
            raise ValueError(f"expected {_SHOWN_WORDS} behind a colon, found {word!r} in {text!r}")
        name, value = _WORDS[word.lower()]
        if name in parts:
            raise ValueError(f"expected one word about {_ABOUT[name]}, found another, {word!r}, in {text!r}")
        parts[name] = value
    return parts


_ABOUT = {
    "expired": "what becomes of expired entries",
    "update": "which accesses renew a timestamp",
    "visibility": "whether a job sees expired values",
    "cleanup_full_snapshot": "full snapshots",
}

StateTtls = Annotated[tuple[StateTtlPlan, ...], BeforeValidator(valid_state_ttls)]


def state_ttls_of(texts: Iterable[str]) -> tuple[StateTtlPlan, ...]:
    """The times to live in texts of the command line; raises a `PlanError` for anything else."""
    from pydantic import TypeAdapter, ValidationError

    from flinkstate.errors import PlanError

    try:
        found: tuple[StateTtlPlan, ...] = TypeAdapter(StateTtls).validate_python(list(texts))
    except ValidationError as error:
        raise PlanError("; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())) from None
    return found
