"""Finds Boolean states that look like the flag of a migration that the job itself has begun, if the plan names none.

Without the flag, a map that the job has moved and not cleared would be merged into the key's rows. A flag is recognized
by the keys for which it is true, see `looks_like_flag`. A key that has neither rows nor a blob (its map was empty, or
its rows have expired) doesn't count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flinkstate.errors import RejectedError
from stateferry.changes.counts import StateSigns
from stateferry.changes.rules import Rules

# For so many keys with a blob and rows a flag may be false: the old job, run again, may have written their maps later.
_FEW = 0.05
# So likely it may be, at most, that a state that isn't a flag is true for so many of the keys with a blob and rows.
_BY_CHANCE = 0.01


class UnnamedFlagError(RejectedError):
    """A state looks like the flag, and the plan doesn't say whether it is."""


def looks_like_flag(name: str, rules: Rules, signs: Mapping[str, StateSigns]) -> bool:
    """Whether a Boolean state marks the keys that the job has moved, and more of them than the named flag does.

    A flag is true for keys that have rows. A blob beside them is no sign against it, because the job may clear none,
    but then it is true for nearly all such keys; if a state is true for some of them, these count against it. A blob
    alone is a sign against it, unless the job has emptied the map since, and left the blob. So more of its keys have
    rows than a blob alone, or it is true for more of the keys with both than chance explains, by its share of those
    with a blob alone. Keys with a blob count without those of the named flag. `signs` are of the whole savepoint.
    """
    counts, named = signs.get(name, StateSigns()), signs.get(rules.flag_name or "", StateSigns())
    merged = signs.get(rules.new_name, StateSigns()).not_moved
    more = counts.moved - named.moved
    if merged - counts.lacking > max(1, _FEW * merged):
        return more - counts.lacking > counts.not_moved + counts.lacking
    legacy = signs.get(rules.legacy.name, StateSigns())
    share = counts.not_moved / max(legacy.keys - legacy.not_moved, 1)
    return more > counts.not_moved or (more > 0 and _chance(counts.lacking, merged, share) <= _BY_CHANCE)


def _chance(true: int, of: int, share: float) -> float:
    """How likely it is, at most, that a state is true for so many of some keys if it is for this share of all.

    It is Chernoff's bound. If the state is true for all of them, it is the likelihood itself.
    """
    found = true / max(of, 1)
    if found <= share:
        return 1
    of_each = (share / found) ** found
    if found < 1:
        of_each *= ((1 - share) / (1 - found)) ** (1 - found)
    return float(of_each**of)


def _rank(name: str, counts: StateSigns) -> tuple[int, int, str]:
    """The state that is true for most moved keys comes first, of several the one with fewest keys that aren't moved."""
    return -counts.moved, counts.keys - counts.moved, name


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
        if looks_like_flag(name, rules, signs)
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
    # No key of a flag that is named has rows, if this is asked at all.
    neither = counts.keys - counts.moved - counts.not_moved - counts.flagged
    left = f" ({counts.lacking:,} of them have rows, too)" if counts.lacking else ""
    also = f", {counts.flagged:,} are keys of {rules.flag_name}" if counts.flagged else ""
    moved, with_blob = counts.moved - counts.lacking, counts.not_moved + counts.lacking
    return (
        f"{name} (ValueState<Boolean>) is true for {counts.keys:,} keys: {moved:,} have rows in {rules.new_name} and "
        f"no blob in {rules.legacy.name}, {with_blob:,} have a blob{left}, {neither:,} have neither{also}"
    )
