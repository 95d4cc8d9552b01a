"""Chooses a noun by its number in messages: one key, several keys."""

from __future__ import annotations


def noun(number: int, one: str, several: str | None = None) -> str:
    """Returns `one` if the number is 1, else `several`, by default `one` with an s."""
    return one if number == 1 else f"{one}s" if several is None else several
