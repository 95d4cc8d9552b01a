"""A number's noun in messages for people: one key, several keys."""

from __future__ import annotations


def noun(number: int, one: str, several: str | None = None) -> str:
    """`several` is by default the first with an s."""
    return one if number == 1 else f"{one}s" if several is None else several
