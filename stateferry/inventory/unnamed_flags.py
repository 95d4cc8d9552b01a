"""Finds Boolean states that look like the flag of a migration that the job itself has begun, if the plan names none.

Without the flag, a map that the job has moved and not cleared would be merged into the key's rows. A flag is recognized
by the keys for which it is true: they have rows in the new state and no blob. A key that has neither (its map was
empty, or its rows have expired) doesn't count.
"""

from __future__ import annotations

from collections.abc import Mapping

from flinkstate.errors import RejectedError
from stateferry.changes.counts import StateSigns
from stateferry.changes.rules import Rules


class UnnamedFlagError(RejectedError):
    """A state looks like the flag, and the plan doesn't say whether it is."""


def looks_like_flag(counts: StateSigns) -> bool:
    """Whether more of the flag's keys look moved than not."""
    return counts.moved > counts.not_moved


def _rank(name: str, counts: StateSigns) -> tuple[int, int, str]:
    """The state that is true for most moved keys comes first, of several the one with fewest keys that aren't moved."""
    return -counts.moved, counts.keys - counts.moved, name


def unnamed_flag(
    rules: Rules, operator: str, signs: Mapping[str, StateSigns], *, is_there: bool = False
) -> UnnamedFlagError | None:
    """Returns the error that asks about states that look like a flag, or None if there are none.

    `signs` are those of the whole savepoint by possible flag; `operator` is the operator's name in messages. `is_there`
    says that the savepoint has the plan's flag state, which is set for no key with rows.
    """
    alike = {name: signs[name] for name in sorted(signs, key=lambda name: _rank(name, signs[name]))}
    alike = {name: counts for name, counts in alike.items() if looks_like_flag(counts)}
    if not alike:
        return None
    named = "the plan names no flag state"
    if rules.flag_name is not None:
        named = f"the savepoint has no flag state {rules.flag_name}"
    if is_there:
        named = f"{rules.flag_name} is set for no key with rows in {rules.new_name}"
    found = ". ".join(_found(name, counts, rules) for name, counts in alike.items())
    first, *others = (f"--flag-state {name}" for name in alike)
    answers = f"{first}, the likeliest, or {' or '.join(others)}" if others else first
    return UnnamedFlagError(
        f"state {rules.legacy.name} of operator {operator}: {named}, but the job seems to mark the keys that it has "
        f"moved to {rules.new_name}. {found}. {rules.of_an_unnamed_flag}. Plan again with {answers} if this state "
        "marks the moved keys, or with --no-flag-state if no state does"
    )


def _found(name: str, counts: StateSigns, rules: Rules) -> str:
    neither = counts.keys - counts.moved - counts.not_moved
    return (
        f"{name} (ValueState<Boolean>) is true for {counts.keys:,} keys: {counts.moved:,} have rows in "
        f"{rules.new_name} and no blob in {rules.legacy.name}, {counts.not_moved:,} have a blob, {neither:,} have "
        "neither"
    )
