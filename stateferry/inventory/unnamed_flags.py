"""Finds Boolean states that look like the flag of a migration that the job itself has begun, if the plan names none.

Without the flag, a map that the job has moved and not cleared would be merged into the key's rows. A flag is recognized
by the keys for which it is true: they have rows in the new state. A blob beside the rows is no sign against it, because
the job may clear none. A key that has neither (its map was empty, or its rows have expired) doesn't count. A blob alone
is a sign against it, unless the job has emptied the map since, and left the blob. So a state is asked about, too, if it
is true for every key with a blob and rows, and for fewer of the keys with a blob alone than chance explains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flinkstate.errors import RejectedError
from stateferry.changes.counts import StateSigns
from stateferry.changes.rules import Rules

# By chance a Boolean state is true for all keys with a blob and rows in one of 100 cases at most.
_BY_CHANCE = 0.01


class UnnamedFlagError(RejectedError):
    """A state looks like the flag, and the plan doesn't say whether it is."""


def looks_like_flag(counts: StateSigns) -> bool:
    """Whether more of the flag's keys look moved than not. The blobs of keys that have rows may have been left."""
    return counts.moved + counts.lacking > counts.not_moved - counts.lacking


def marks_all_merged(name: str, rules: Rules, signs: Mapping[str, StateSigns]) -> bool:
    """Whether a Boolean state is true for all keys with a blob and rows that would be merged, and hardly by chance.

    `signs` are those of the whole savepoint by state.
    """
    counts, merged = signs.get(name, StateSigns()), signs.get(rules.new_name, StateSigns()).not_moved
    if not merged or counts.lacking != merged:
        return False
    with_blob_alone = signs.get(rules.legacy.name, StateSigns()).keys - merged
    share = (counts.not_moved - counts.lacking) / max(with_blob_alone, 1)
    return bool(share**merged <= _BY_CHANCE)


def _rank(name: str, counts: StateSigns) -> tuple[int, int, str]:
    """The state that is true for most moved keys comes first, of several the one with fewest keys that aren't moved."""
    moved = counts.moved + counts.lacking
    return -moved, counts.keys - moved, name


def unnamed_flag(
    rules: Rules, operator: str, signs: Mapping[str, StateSigns], flags: Collection[str], *, is_there: bool = False
) -> UnnamedFlagError | None:
    """Returns the error that asks about states that look like a flag, or None if there are none.

    `signs` are those of the whole savepoint by state, `flags` are the possible flags; `operator` is the operator's name
    in messages. `is_there` says that the savepoint has the plan's flag state, which is set for no key with rows.
    """
    met = (name for name in flags if name in signs)
    alike = {
        name: signs[name]
        for name in sorted(met, key=lambda name: _rank(name, signs[name]))
        if looks_like_flag(signs[name]) or marks_all_merged(name, rules, signs)
    }
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
    left = f" ({counts.lacking:,} of them have rows, too)" if counts.lacking else ""
    return (
        f"{name} (ValueState<Boolean>) is true for {counts.keys:,} keys: {counts.moved:,} have rows in "
        f"{rules.new_name} and no blob in {rules.legacy.name}, {counts.not_moved:,} have a blob{left}, "
        f"{neither:,} have neither"
    )
