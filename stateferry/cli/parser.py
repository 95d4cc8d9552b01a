"""The parser of the command line: options that are declared late, and errors that say what was probably meant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from flinkstate.basics.did_you_mean import nearest, there_are
from flinkstate.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class Parser(argparse.ArgumentParser):
    """A parser that may get its options when it is first used."""

    def __init__(self, add_options: Callable[[argparse.ArgumentParser], None] | None = None, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)
        self._add_options = add_options
        self._is_complete = False
        self._commands: dict[str, Parser] = {}
        # Argparse's own error would be "invalid int value".
        self.register("type", int, _whole_number)

    def add_subparsers(self, **settings: Any) -> Any:
        commands = super().add_subparsers(parser_class=Parser, **settings)
        self._commands = commands.choices
        return commands

    @property
    def commands(self) -> Mapping[str, Parser]:
        """The parsers of the commands, by their names; a command has none."""
        return self._commands

    def complete(self) -> None:
        """Declares the options that are declared late."""
        if not self._is_complete:
            self._is_complete = True
            if self._add_options is not None:
                self._add_options(self)
            self.add_argument("--debug", action="store_true", help="on an error show where in the code it arose")

    def parse_known_args(self, args: Sequence[str], *more: Any) -> Any:  # type: ignore[override]  # argparse gives both
        self.complete()
        self._check_options(args)
        found, rest = super().parse_known_args(args, *more)
        if rest and not self.commands:
            self.error(f"unexpected: {' '.join(rest)}. Is the name of an option missing in front of it?")
        return found, rest

    def _check_options(self, args: Sequence[str]) -> None:
        """Refuses an unknown option before argparse misses one that the misspelt one was meant to be."""
        for argument in args:
            if argument == "--" or (self.commands and not argument.startswith("-")):
                return
            name = argument.partition("=")[0]
            if name.startswith("--") and " " not in name and name not in self._option_string_actions:
                near = nearest(name, self._option_string_actions)
                self.error(f"unknown option {name}{f': did you mean {near}?' if near else ''}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = f"argument {'/'.join(action.option_strings)}: unknown value" if action.option_strings else "unknown"
            kind = "" if action.option_strings else f" {str(action.metavar or action.dest).lower()}"
            self.error(f"{what}{kind} {value!r}. {there_are(str(value), list(map(str, action.choices)))}")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        # Argparse would keep silent about a pipe that nobody reads any more.
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """A type for an option: checks the text and keeps it. Errors then name the option."""

    def text_of(text: str) -> str:
        try:
            check(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return text_of


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}") from None
