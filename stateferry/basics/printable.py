"""Makes text safe for terminals.

Names, keys and messages come from savepoints, whose authors may be strangers, and a terminal obeys control sequences in
what it prints. So all output goes through this module.
"""

from __future__ import annotations

import sys
from typing import TextIO


def printable(text: str) -> str:
    """Returns the text on one line, and escapes what is invisible or steers a terminal.

    That is control characters (also those beyond ASCII), changes of direction, line ends and lone surrogates. Letters
    and signs of all scripts stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """Returns the text with each of its lines made printable."""
    return "\n".join(map(printable, text.split("\n")))


def say(line: str, file: TextIO | None = None) -> None:
    """Prints a line at once."""
    out = sys.stdout if file is None else file
    out.write(f"{printable(line)}\n")
    out.flush()
