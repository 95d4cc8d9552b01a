"""Finds Boolean states that look like the flag of a migration that the job itself has begun, if the plan names none.

Without the flag, a map that the job has moved and not cleared would be merged into the key's rows. A flag is recognized
by the keys for which it is true: they have rows in the new state and no blob. A key that has neither (its map was
empty, or its rows have expired) doesn't count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from stateferry.errors import RejectedError
from stateferry.migration.counts import FlagCounts
from stateferry.migration.key_hashes import NO_HASHES, members
from stateferry.migration.rules import Rules
from stateferry.migration.sections import live_blob_keys, parse_rows, set_flag_keys
from stateferry.savepoint.keyed_file import Section
from stateferry.savepoint.state import KeyedState, StateKind
from stateferry.serializers.types import Scalar


class UnnamedFlagError(RejectedError):
    """A state looks like the flag, and the plan doesn't say whether it is."""


def flags_to_watch(rules: Rules, states: Mapping[str, KeyedState]) -> frozenset[str]:
    """Returns the names of the possible flags to look at.

    There are none if the plan's flag exists, if the plan says that there is no flag, or if the new state doesn't exist
    yet, so that the job can't have moved any keys.
    """
    if rules.no_flag or rules.flag_name in states or rules.new_name not in states:
        return frozenset()
    return possible_flags(rules.legacy, states)


def possible_flags(legacy: KeyedState, states: Mapping[str, KeyedState]) -> frozenset[str]:
    """Returns the names of the Boolean states that have the namespace type of the legacy state."""
    return frozenset(
        state.name
        for state in states.values()
        if state.kind is StateKind.VALUE and state.value is Scalar.BOOLEAN and state.namespace == legacy.namespace
    )


@dataclass(slots=True)
class FlagSigns:
    """What one key group shows about the possible flags of one legacy state; it keeps 16 bytes for each live key."""

    rules: Rules
    flags: frozenset[str]
    _rows: list[pa.Array] = field(default_factory=lambda: [NO_HASHES])
    _blobs: list[pa.Array] = field(default_factory=lambda: [NO_HASHES])
    _true: dict[str, list[pa.Array]] = field(default_factory=dict)

    def meet(self, state: KeyedState, section: Section) -> None:
        """Notes a section of a state."""
        if state.name == self.rules.new_name:
            self._rows.append(parse_rows(section, self.rules).live_keys())
        elif state.name == self.rules.legacy.name:
            self._blobs.append(live_blob_keys(section, self.rules))
        elif state.name in self.flags:
            self._true.setdefault(state.name, []).append(set_flag_keys(section, state, self.rules))

    def counts(self) -> dict[str, FlagCounts]:
        """Returns the counts of each possible flag that is true for any key of the group, by its name."""
        rows, blobs = pa.concat_arrays(self._rows), pa.concat_arrays(self._blobs)
        found: dict[str, FlagCounts] = {}
        for name, parts in self._true.items():
            keys = pa.concat_arrays(parts)
            with_blob = members(keys, blobs)
            moved = members(keys, rows) & ~with_blob
            found[name] = FlagCounts(len(keys), int(moved.sum()), int(with_blob.sum()))
        return found


def looks_like_flag(counts: FlagCounts) -> bool:
    """Whether more of the flag's keys look moved than not."""
    return counts.moved > counts.not_moved


def unnamed_flag(rules: Rules, operator: str, signs: Mapping[str, FlagCounts]) -> UnnamedFlagError | None:
    """Returns the error that asks about states that look like a flag, or None if there are none.

    `signs` are those of the whole savepoint by possible flag; `operator` is the operator's name in messages.
    """
    alike = {name: counts for name, counts in signs.items() if looks_like_flag(counts)}
    if not alike:
        return None
    named = "the plan names no flag state"
    if rules.flag_name is not None:
        named = f"the savepoint has no flag state {rules.flag_name}"
    found = ". ".join(_found(name, counts, rules) for name, counts in alike.items())
    answers = " or ".join(f"--flag-state {name}" for name in alike)
    why = "Without the flag, a blob that the job left behind when it moved a key would be merged into the key's rows"
    if rules.reverse:
        why = "The flag would stay, and say of keys that have a blob again that they are moved"
    return UnnamedFlagError(
        f"state {rules.legacy.name} of operator {operator}: {named}, but the job seems to mark the keys that it has "
        f"moved to {rules.new_name}. {found}. {why}. Plan again with {answers} if this state marks the moved keys, or "
        "with --no-flag-state if no state does"
    )


def _found(name: str, counts: FlagCounts, rules: Rules) -> str:
    neither = counts.true - counts.moved - counts.not_moved
    return (
        f"{name} (ValueState<Boolean>) is true for {counts.true:,} keys: {counts.moved:,} have rows in "
        f"{rules.new_name} and no blob in {rules.legacy.name}, {counts.not_moved:,} have a blob, {neither:,} have "
        "neither"
    )
