"""The command line `stateferry`: finds the subcommand, and turns errors into one line and an exit code.

Each subcommand is a module with the texts of its help, with `add_options`, and with `run`, which carries it out and
returns the exit code. `run` imports what it needs, so that a small command answers quickly. For the same reason, a
command declares its options only when it is called: those of a plan come from the plan's model.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from stateferry.basics.exit_codes import INTERRUPTED, TERMINATED, exit_code_of
from stateferry.basics.private_files import private_files
from stateferry.cli.commands import (
    advise,
    ages,
    catch_up,
    check,
    clean,
    completion,
    demo_savepoint,
    dump,
    inspect,
    report,
    rollback,
    run,
    runs,
    status,
    verify,
    where,
    worth_it,
)
from stateferry.cli.parser import Parser

_COMMANDS = (
    inspect,
    dump,
    where,
    advise,
    ages,
    worth_it,
    check,
    demo_savepoint,
    run,
    catch_up,
    verify,
    report,
    rollback,
    status,
    runs,
    clean,
    completion,
)
_EPILOG = """\
examples:
  stateferry demo-savepoint /tmp/demo --ttl 30d
  stateferry inspect /tmp/demo
  stateferry dump /tmp/demo --operator main --state mainState --limit 3

A savepoint is named by its folder or its _metadata, as a path or a URI (file:, s3:, hdfs:, ...). An operator is named
by its 32-digit id, its uid, or its name if only one has it. Durations: 90s, 11.5s, 15m, 12h, 30d, or
plain milliseconds of four digits or more.

exit codes: 0 fine; 1 the answer is no; 2 wrong usage, no savepoint at that place, or one whose headers contradict the
options; 3 the input is damaged, refused or can't be read; 69 something that is needed is missing here, such as Java 17;
70 an internal error of stateferry; 75 something that is needed was lost or can't be reached: give the same command
again when it is back; 130 and 143 ended by Ctrl-C and SIGTERM; 141 the output's reader, such as head, has closed it.
"""


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        sys.stdout.write(f"stateferry {version('stateferry')}\n")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    _open_what_is_closed()
    if argv is None:
        _collect_rarely()
    code = exit_code_of(lambda: _run(arguments), debug="--debug" in arguments)
    if argv is None and code in (INTERRUPTED, TERMINATED):
        # All messages are printed. A second Ctrl-C while the process ends must not print a stack trace.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


def _collect_rarely() -> None:
    """Importing creates hundreds of thousands of objects, none of which is garbage.

    Without this, the garbage collector would add a tenth to the time of the imports, and half a second at the end.
    """
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


def _open_what_is_closed() -> None:
    """Opens closed outputs as the null device, so that the command does its work without them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 it stays open until the process ends


def _run(arguments: list[str]) -> int:
    with contextlib.suppress(AttributeError, io.UnsupportedOperation):
        # A character that the terminal can't show must not end the output half way.
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        options = _parser().parse_args(arguments)
        with private_files():
            code: int = options.run(options)
    finally:
        # Output from before an error comes before the error's line. What --help and --version print is also written
        # here: if it were left to Python's end, a closed pipe would cause a traceback there.
        sys.stdout.flush()
    return code


def _parser() -> Parser:
    parser = Parser(
        prog="stateferry",
        description="Move the state of Apache Flink jobs from savepoint to savepoint, and look into it on the way.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="say the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in _COMMANDS:
        as_it_is = "\n" in command.DESCRIPTION
        added = commands.add_parser(
            command.__name__.rpartition(".")[2].replace("_", "-"),
            help=command.HELP,
            usage=getattr(command, "USAGE", None),
            description=command.DESCRIPTION,
            epilog=getattr(command, "EPILOG", None),
            formatter_class=argparse.RawDescriptionHelpFormatter if as_it_is else argparse.HelpFormatter,
            add_options=command.add_options,
        )
        added.set_defaults(run=command.run, parser=parser)
    return parser
