"""Text for Airflow's pages, which render Markdown: names from a savepoint must not act as markup."""

from __future__ import annotations

from stateferry.basics.printable import printable


def cell(text: str) -> str:
    """Escapes text for a line or a table's cell."""
    return "".join(f"\\{c}" if c in "|\\`*_<>[]&" else c for c in printable(text))


def code(text: str) -> str:
    """Escapes text for use between backquotes, where only a backquote has a meaning."""
    return printable(text).replace("`", "'")
