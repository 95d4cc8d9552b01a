"""Tables and coloured lines for people, on a terminal, in a file or through a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.text import Text

from stateferry.basics.printable import printable

# Files and pipes have no width; this is wide enough for any table.
_WIDTH_OF_A_FILE = 240


@contextmanager
def console_on(file: TextIO, width: int | None = None) -> Iterator[Console]:
    """Yields a console whose output is written to the file at the end, by us; without a `width`, as wide as the file.

    If the console wrote to a closed pipe, it would end the process with an exit code of its own.
    """
    console = Console(file=file, width=width or (None if file.isatty() else _WIDTH_OF_A_FILE), highlight=False)
    with console.capture() as captured:
        yield console
    file.write(captured.get())


def plain(text: str, style: str = "") -> Text:
    """Returns text without markup and control sequences; names in a savepoint may contain both."""
    return Text(printable(text), style)


def print_line(console: Console, text: str, style: str = "") -> None:
    """Prints plain text as one line, which only a terminal breaks."""
    console.print(plain(text, style), soft_wrap=True)
