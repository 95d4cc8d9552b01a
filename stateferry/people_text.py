"""Tables and coloured lines for people, on a terminal, in a file or through a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.text import Text

from stateferry.printable import printable

# A file or a pipe has no width: wide enough for any table.
_WIDTH_OF_A_FILE = 240


@contextmanager
def console_on(file: TextIO) -> Iterator[Console]:
    """What is printed there is written when all of it is known, and by ourselves: where nobody reads any more, the
    console would end the process with an exit code of its own."""
    console = Console(file=file, width=None if file.isatty() else _WIDTH_OF_A_FILE, highlight=False)
    with console.capture() as captured:
        yield console
    file.write(captured.get())


def plain(text: str, style: str = "") -> Text:
    """Names come from the savepoint: what they contain is neither markup nor control sequences."""
    return Text(printable(text), style)
