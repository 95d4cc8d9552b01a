"""A key that weighs much, as facts of a run keep it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key, as `stateferry dump` prints it (None if that isn't known), with the bytes of its entries in all states."""

    bytes: int
    key_group: int
    text: str | None


def heavier(one: HeavyKey | None, other: HeavyKey | None) -> HeavyKey | None:
    """The heavier one; of equals that of the smaller key group."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda key: (-key.bytes, key.key_group))
