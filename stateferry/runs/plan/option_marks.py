"""The mark `Option`: it makes a field one that people fill in on the command line, in the form, or in a request.

A field of a model is an option if its type has an `Option` among its marks. The mark says all that people need to know
of it. The command line's arguments and the form's fields are made from the marks, so they need no change for a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from stateferry.basics.durations import format_duration

if TYPE_CHECKING:
    from pydantic import BaseModel

# Sections of the form.
SOURCE = "Which savepoint"
STATES = "Which state becomes which"
RUN = "Rehearse or cut over"


class Kind(Enum):
    """What people write for an option. Lines of text are several options on the command line."""

    TEXT = auto()
    NUMBER = auto()
    PARALLELISM = auto()
    SWITCH = auto()
    CHOICE = auto()
    DURATION = auto()
    SHARE = auto()
    LIST = auto()
    LINES = auto()


@dataclass(frozen=True, slots=True)
class Option:
    """The mark of a field that people give.

    `name` is its name, if that isn't the field's. `help` begins without a capital and ends without a full stop.
    `if_empty` says what holds without it, if the default doesn't. Options of a section come in the order of `row`.
    """

    kind: Kind
    title: str
    help: str
    _: KW_ONLY
    row: int = 0
    section: str = STATES
    name: str = ""
    metavar: str = ""
    if_empty: str = ""
    in_form: bool = True


@dataclass(frozen=True, slots=True)
class OptionField:
    """An option with what its field says: default, choices, and whether it must be given."""

    option: Option
    field: str
    default: object
    choices: tuple[str, ...]
    required: bool

    @property
    def name(self) -> str:
        """The option's name in the form and in a request."""
        return self.option.name or self.field

    @property
    def flag(self) -> str:
        """The option's name on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def default_shown(self) -> object:
        """The default as people write it."""
        is_duration = self.option.kind is Kind.DURATION and isinstance(self.default, int)
        return format_duration(int(str(self.default))) if is_duration else self.default

    @property
    def if_not_given(self) -> str:
        """What holds if the option isn't given; empty if there is nothing to say."""
        if self.option.if_empty or self.option.kind is Kind.SWITCH or self.default is None:
            return self.option.if_empty
        return str(self.default_shown)


def option_fields(model: type[BaseModel]) -> Iterator[OptionField]:
    """The options among the model's fields, in the order of the fields."""
    for name, field in model.model_fields.items():
        for mark in field.metadata:
            if isinstance(mark, Option):
                choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
                has_default = not field.is_required() and field.default_factory is None
                default = field.default if has_default and mark.kind is not Kind.LINES else None
                yield OptionField(mark, name, default, choices, field.is_required())
