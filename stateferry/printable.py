"""Text for people: names, keys and messages come from savepoints, whose authors may be strangers. A terminal obeys what
it is sent, so everything goes through here before it gets to one.
"""

from __future__ import annotations

import sys
from typing import TextIO


def printable(text: str) -> str:
    """The text on one line, with everything escaped that isn't to be seen or steers what is: control characters, also
    those beyond ASCII, changes of direction, line ends, lone surrogates. Letters and signs of all scripts stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """The same for several lines."""
    return "\n".join(map(printable, text.split("\n")))


def say(line: str, file: TextIO | None = None) -> None:
    """Prints it at once."""
    out = sys.stdout if file is None else file
    out.write(f"{printable(line)}\n")
    out.flush()
