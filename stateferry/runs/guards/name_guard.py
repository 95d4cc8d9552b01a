"""Stops a run whose names of states contradict the keys in the savepoint, in the snapshot step.

A wrong name would lose keys under a green report: all that the plan says would be done, with another state.

| what the keys show | the run |
|---|---|
| keys are flagged, and the new state isn't in the savepoint, or has rows of none of them | stops |
| more than 5 % of the flagged keys have no rows in the new state (one key alone may) | stops |
| a map state of the same types has rows of flagged keys that have none in the new state | stops |
| the new state is missing, has no rows, or those of keys that were not moved; another one looks like it | stops |
| the legacy state has no blobs, or those of keys that were moved; another one looks like it | stops |
| the flags of two states fit each other's new states better | stops |
| no key with a flag has rows, and another Boolean state looks like the flag | stops |
| another Boolean state looks like it, for more keys, and is true for keys with a blob and rows and no flag | stops |
| one that looks so is true for all flagged keys and none with a blob alone (without TTL), and there are blobs | stops |

With an accepted share (`accept_empty`) so many flagged keys may have no rows, in whatever state they have some. A share
of 100 % says that all names are right. Expired rows count as rows here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from flinkstate.basics.did_you_mean import is_alike
from flinkstate.errors import RejectedError
from stateferry.basics.quantities import noun, percent, percent_at_least
from stateferry.changes.counts import InventoryCounts, StateSigns
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Rules
from stateferry.inventory.inventory import Inventory
from stateferry.inventory.unnamed_flags import looks_like_flag, unnamed_flag
from stateferry.inventory.wrong_name_signs import WITHOUT_FLAG, WITHOUT_ROWS, Rivals, rivals_of
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.record.step_facts import FlaggedKeys

_USUAL_SHARE = 0.05
_MEANT = "If the names are right all the same, say so: --accept-empty 100%"


class WrongStateError(RejectedError):
    """The keys in the savepoint show that the plan names a wrong state."""


def name_errors(resolved: ResolvedPlan, inventory: Inventory) -> Iterator[RejectedError]:
    """Yields what the keys say against the names in the plan."""
    for one in resolved.operators:
        yield from errors_of(one, inventory, resolved.plan.accept_empty)


def errors_of(one: OperatorChanges, inventory: Inventory, accepted: float | None) -> Iterator[RejectedError]:
    """Yields what the keys of one operator say against its names, with this accepted share."""
    found = [_Evidence.of(one, rules, inventory) for rules in one.rules]
    wrong: list[str] = []
    for evidence in found:
        wrong += list(evidence.without_rows(accepted)) or list(evidence.alike() if accepted != 1 else ())
        wrong += evidence.better_flags() if accepted != 1 else ()
    if accepted != 1:
        wrong += [reason for pair in combinations(found, 2) if (reason := pair[0].exchanged_with(pair[1]))]
    if wrong:
        yield WrongStateError("\n".join(wrong))
    yield from (unnamed for evidence in found if (unnamed := evidence.unnamed_flag()) is not None)


def flagged_keys(resolved: ResolvedPlan, inventory: Inventory) -> tuple[FlaggedKeys, ...]:
    """What the snapshot counted of each flag that the savepoint has."""
    return tuple(
        _Evidence.of(one, rules, inventory).facts()
        for one, rules in resolved.migrations
        if rules.flag_name in one.states
    )


def needs_accepted_share(resolved: ResolvedPlan, inventory: Inventory) -> bool:
    """Whether the run would have stopped without an accepted share."""
    return any(True for one in resolved.operators for _ in errors_of(one, inventory, None))


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What was counted for one rule; `signs` are by state. `planned` are all states that the plan names."""

    one: OperatorChanges
    rules: Rules
    met: InventoryCounts
    signs: Mapping[str, StateSigns]
    named: Mapping[str, Sequence[str]]
    rivals: Rivals
    planned: frozenset[str]

    @classmethod
    def of(cls, one: OperatorChanges, rules: Rules, inventory: Inventory) -> _Evidence:
        of = one.ref(rules.legacy.name)
        return cls(
            one,
            rules,
            inventory.met.get(of, InventoryCounts()),
            {state: counts for (*place, state), counts in inventory.signs.items() if tuple(place) == of},
            {what: texts for (*place, what), texts in inventory.named.items() if tuple(place) == of},
            rivals_of(rules, one.states),
            frozenset(name for each in one.rules for name in each.names),
        )

    @property
    def where(self) -> str:
        return f"{self.rules.legacy.name} of operator {self.one.operator.label}"

    def sign(self, state: str) -> StateSigns:
        """The counts of a state; all are 0 if it has no entries."""
        return self.signs.get(state, StateSigns())

    def facts(self) -> FlaggedKeys:
        """The counts of flagged keys as facts of the run."""
        return FlaggedKeys(
            self.one.operator.label,
            self.rules.legacy.name,
            self.rules.new_name,
            self.rules.flag_name or "",
            self.met.flagged,
            self.met.flagged_with_rows,
            self.met.flagged_without_rows,
            self.met.flagged_for_another,
            self.met.rows_without_flag,
            tuple(self.named.get(WITHOUT_ROWS, ())),
            tuple(self.named.get(WITHOUT_FLAG, ())),
        )

    def without_rows(self, accepted: float | None) -> Iterator[str]:
        """Yields why so many flagged keys without rows can't be right."""
        met, new = self.met, self.rules.new_name
        flagged = met.flagged
        # A flag that several states share is set for the keys of each of them.
        lacking = met.flagged_without_rows - (met.flagged_for_another if met.flagged_with_rows else 0)
        if not lacking or (accepted is not None and lacking <= accepted * flagged):
            return
        others = [name for name in self.rivals.maps - self.planned if self.sign(name).lacking]
        allowed = _USUAL_SHARE if accepted is None else accepted
        is_missing = new not in self.one.states
        if not (is_missing or others or (lacking > 1 and lacking > allowed * flagged)):
            return
        of_them = f"no rows of {lacking:,} of them ({percent(lacking / flagged)})"
        has = f"{new} isn't in the savepoint" if is_missing else f"{new} has {of_them}"
        if lacking == flagged and not is_missing:
            has = f"{new} has rows of none of them"
        such_as = f", such as {', '.join(texts)}" if (texts := self.named.get(WITHOUT_ROWS, ())) else ""
        of_flagged, of_lacking = (such_as, "") if is_missing or lacking == flagged else ("", such_as)
        yield (
            f"state {self.where}: {flagged:,} {noun(flagged, 'key is', 'keys are')} flagged as moved by "
            f"{self.rules.flag_name}{of_flagged}, but {has}{of_lacking}. {self._suggested(others)}"
            "Nothing has been written. Correct the names (--new-state, --flag-state). If the job has emptied these "
            f"maps, or their rows have expired, allow it: --accept-empty {percent_at_least(lacking / flagged)}"
        )

    def _suggested(self, others: Sequence[str]) -> str:
        ranked = sorted(others, key=lambda name: (-self.sign(name).lacking, name))
        found = [
            f"{name}, a MapState of the same types, has rows of {self.sign(name).lacking:,} of the keys that lack them"
            for name in ranked
        ]
        return f"{'; '.join(found)}: did you mean --new-state {ranked[0]}? " if ranked else ""

    def alike(self) -> Iterator[str]:
        """Yields which other state looks like the one that the plan means."""
        new, legacy = self.rules.new_name, self.rules.legacy.name
        for name in sorted(self.rivals.maps - self.planned):
            if self._is_rather_new(name):
                yield (
                    f"state {self.where}: {name}, a MapState of the same types, looks like the state to which the job "
                    f"moves its maps: it "
                    f"{_keys_of(self.sign(name))}. {new} {self._as_it_is(new)}. Did you mean --new-state {name}? "
                    f"{_MEANT}"
                )
        for name in sorted(self.rivals.legacies - self.planned):
            if self._is_rather_legacy(name):
                yield (
                    f"state {self.where}: {name}, a ValueState of such maps, looks like the state that is migrated: it "
                    f"has {_number(self.sign(name).keys, 'blob')}, {self.sign(name).not_moved:,} of them of keys that "
                    f"the job has moved to {new}. {legacy} {self._as_it_is(legacy)}. Did you mean --legacy-state "
                    f"{name}? {_MEANT}"
                )

    def _is_rather_new(self, name: str) -> bool:
        mine, other, new = self.sign(self.rules.new_name), self.sign(name), self.rules.new_name
        if new not in self.one.states:
            return other.moved > other.not_moved or not other.keys or is_alike(name, new)
        if not other.keys:
            # A state that is there without rows is what a job declares before it begins to move keys.
            return mine.keys > 0 and not mine.moved
        return other.moved > other.not_moved and mine.moved <= mine.not_moved and not self._has_not_begun

    @property
    def _has_not_begun(self) -> bool:
        """Whether the flag, which can't expire, says that the job has moved no key yet."""
        flag = self.one.states.get(self.rules.flag_name or "")
        return flag is not None and not flag.ttl and not self.met.flagged

    def _is_rather_legacy(self, name: str) -> bool:
        mine, other, legacy = self.sign(self.rules.legacy.name), self.sign(name), self.rules.legacy.name
        if self.rules.made_name == legacy:
            # The state that is made: a state that is there without blobs is what a job declares, and one with blobs of
            # other keys than have rows is what the job is about to move.
            has_the_others = other.keys > 0 and other.moved > 0 and not other.not_moved
            return legacy not in self.one.states and (not other.keys or has_the_others or is_alike(name, legacy))
        if not other.keys:
            return False
        if not mine.keys:
            return other.moved >= other.not_moved
        return other.moved > other.not_moved and mine.moved < mine.not_moved

    def _as_it_is(self, name: str) -> str:
        if name not in self.one.states:
            return "isn't in the savepoint"
        found = self.sign(name)
        if not found.keys:
            return "has no entry"
        if name == self.rules.legacy.name:
            return f"has {_number(found.keys, 'blob')}, {found.not_moved:,} of them of keys with a flag or rows"
        return _keys_of(found)

    def unnamed_flag(self) -> RejectedError | None:
        """Asks about Boolean states that look like the flag, if the plan names none that is set for moved keys."""
        if self.rules.flag_name in self.one.states and self.met.flagged_with_rows:
            return None
        is_there = self.rules.flag_name in self.one.states
        return unnamed_flag(self.rules, self.one.operator.label, self.signs, self.rivals.flags, is_there=is_there)

    def better_flags(self) -> Iterator[str]:
        """Yields which Boolean states mark the moved keys better than the named flag does, which some of them have."""
        flag, new, legacy = self.rules.flag_name, self.rules.new_name, self.rules.legacy.name
        if flag is None or flag not in self.one.states or not self.met.flagged_with_rows:
            return
        mine = self.sign(flag)
        for name in sorted(self.rivals.flags - self.planned):
            other = self.sign(name)
            # Flags with a time to live may have expired for the others.
            has_all = other.flagged == self.met.flagged and not other.not_moved and not self.one.states[flag].ttl
            is_better = other.lacking or (has_all and self.sign(legacy).keys)
            if is_better and looks_like_flag(name, self.rules, self.signs):
                yield (
                    f"state {self.where}: {name}, a Boolean state, looks like the flag: it is true for "
                    f"{_number(other.moved, 'key')} with rows in {new}, {other.lacking:,} of them with a blob and "
                    f"without {flag}, which would be merged. {flag} is true for {_number(mine.moved, 'key')} with "
                    f"rows. Did you mean --flag-state {name}? {_MEANT}"
                )

    def exchanged_with(self, other: _Evidence) -> str:
        """Says why the flags of two states fit each other's new states better; empty if they don't."""
        mine, others = self.rules, other.rules
        if others.new_name not in self.rivals.maps or None in (mine.flag_name, others.flag_name):
            return ""
        as_planned = self.sign(mine.new_name).flagged + other.sign(others.new_name).flagged
        exchanged = self.sign(others.new_name).flagged + other.sign(mine.new_name).flagged
        if exchanged <= as_planned:
            return ""
        return (
            f"operator {self.one.operator.label}: {mine.legacy.name} and {others.legacy.name} seem to be exchanged: of "
            f"their flagged keys {as_planned:,} have rows in {mine.new_name} and {others.new_name}, as the plan names "
            f"them, and {exchanged:,} the other way round. Exchange the new states or the flags. {_MEANT}"
        )


def _keys_of(found: StateSigns) -> str:
    if not found.keys:
        return "has no rows yet"
    return (
        f"has rows of {_number(found.keys, 'key')}, {found.moved:,} of them with a flag or without a blob, as keys are "
        "that the job has moved"
    )


def _number(count: int, one: str) -> str:
    return f"{count:,} {noun(count, one)}"
