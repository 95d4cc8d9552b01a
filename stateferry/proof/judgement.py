"""Adds up what the tasks found in source and staged savepoint, and makes checks of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flinkstate.serializers.type_parts import has_row
from flinkstate.serializers.types import FlinkType, type_name
from flinkstate.values.key_hashes import why_no_hash
from stateferry.basics.quantities import noun
from stateferry.basics.state_ref import StateRef
from stateferry.changes.counts import LossCounts
from stateferry.changes.lazy_cut import LazyCut
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Contradiction, Nulls, PlannedTtl, Rules, RulesBack
from stateferry.changes.upgrade.kryo_keys import has_scala_parts
from stateferry.inventory.blob_times import SUMS
from stateferry.proof.expected.aging_content import AgingCounts
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.expected.content import Account
from stateferry.proof.expected.expected_entries import SourceCounts
from stateferry.proof.expected.sample_text import MOST_SAMPLES
from stateferry.proof.keyed_result import Side
from stateferry.proof.plain.plain_check import PlainTally
from stateferry.proof.tally import Derived, TableAccount, Tally

_SIDES = {Side.SOURCE: "source", Side.STAGED: "result"}

# By operator and state: key groups, and what is wrong in each.
Samples = Mapping[StateRef, Sequence[tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class OperatorJudge:
    """Makes the checks of one operator from what its tasks found.

    `hex_id` and `label` name the operator. `seed` chose the keys that were read a second time. `derived` are by
    operator and legacy state.
    """

    hex_id: str
    label: str
    conversion: OperatorChanges
    checks_keys: bool
    seed: int
    tally: Tally
    samples: Samples
    derived: Mapping[str, Derived] = field(default_factory=dict)

    def checks(self) -> Iterator[Check]:
        """The checks of keyed state."""
        states = self.conversion.expected_states
        for rules in self.conversion.rules:
            yield from self._migrated(rules)
        for planned in self.conversion.aging.values():
            yield from self._aged(planned)
        own = self.conversion.touched - self.conversion.pojos_without_maps | self.conversion.aging.keys()
        for state in sorted(states.keys() - own):
            what = "POJOs without their maps" if state in self.conversion.pojos_without_maps else "carried over"
            if state in self.conversion.by_kryo:
                by = f"Kryo {5 if self.conversion.by_kryo[state].for_kryo_5 else 2}"
                by = "Flink's own serializers" if has_scala_parts(self.conversion.by_kryo[state]) else by
                what = f"carried over, written by {by}"
            yield self._content(state, f"{self.label}/{state}: {what}")
            if state in self.conversion.by_kryo:
                yield self._plain(state)
        if self.conversion.before is not None and self.conversion.before.restores:
            for state, before in sorted(self.conversion.before.states.items()):
                if before.why_not is None:
                    yield self._put_back(state)
        yield from self._surplus(states.keys())
        if self.checks_keys and states:
            yield self._keys()
        if states:
            yield self._equal_rows()
        for side, rows in self.tally.plain_rows.items():
            name = f"{self.label}: RocksDB's files of the {_SIDES[side]} read plainly"
            yield rows.check(name, side is Side.SOURCE or not self.tally.damage)

    def carried(self) -> Iterator[Check]:
        """The checks of operator state and raw state: one for each state that differs, else one for all of them."""
        names = list(dict.fromkeys(name for name, _ in self.tally.carried))
        if not names:
            name, expected = f"{self.label}: operator state carried over", "as in the source"
            if self.tally.carried_is_damaged:
                yield Check(name, Outcome.COULD_NOT_TELL, expected, "only a part could be read")
            else:
                yield Check(name, Outcome.PASSED, expected, expected)
        for name in names:
            texts = tuple(text for of, text in self.tally.carried if of == name)
            yield Check(
                f"{self.label}/{name}: carried over",
                Outcome.FAILED,
                "the source's elements, distributed as Flink does it",
                f"{len(texts)} {noun(len(texts), 'difference')}",
                samples=texts[:MOST_SAMPLES],
            )
        for state, plain in sorted(self.tally.plain_elements.items()):
            if plain.seen:
                yield plain.check(f"{self.label}/{state}: elements read plainly")

    def readable(self) -> Check:
        """The check that all of the staged operator could be read."""
        damage = self.tally.damage
        groups = tuple(sorted({group for group, _ in damage if group is not None}))
        texts = tuple(text for _, text in damage)
        return Check(
            f"{self.label}: readable",
            Outcome.FAILED if damage else Outcome.PASSED,
            "every entry",
            texts[0] if texts else "every entry",
            groups,
            texts[:MOST_SAMPLES],
        )

    def _migrated(self, rules: Rules) -> Iterator[Check]:
        state = rules.made_name
        name, counts = f"{self.label}/{state}", self.tally.counts.get(rules.made_name, SourceCounts())
        if isinstance(rules, RulesBack):
            yield self._rows(state, f"{name}: entries", counts)
            yield self._content(state, f"{name}: content")
            yield from self._reversed(rules, name, counts)
            return
        yield self._rows(state, f"{name}: rows", counts)
        yield self._content(state, f"{name}: content")
        if rules.lazy_cut is not None:
            yield from self._divided(rules, rules.lazy_cut, counts)
        if rules.drops_expired:
            yield self._expired(state, name)
        stops = rules.on_contradiction is Contradiction.STOP
        yield self._counted(f"{name}: no unsettled contradiction", counts.contradictions if stops else 0, state)
        nulls = 0 if rules.nulls is Nulls.DROP else counts.nulls_left_out
        yield self._counted(f"{name}: no null that can't be kept", nulls, state)
        yield self._plain(state)
        if (derived := self.derived.get(f"{self.label}/{rules.legacy.name}")) is not None:
            yield self._as_derived(derived, f"{self.label}/{rules.legacy.name}: as the snapshot derived it", counts)

    @staticmethod
    def _as_derived(derived: Derived, name: str, counts: SourceCounts) -> Check:
        """Compares what the snapshot says, which has not read everything, with what is there."""
        met = derived.counts
        says = (met.blob_entries, met.blob_entries_expired, met.rows_read, met.rows_expired)
        is_there = (counts.blob_entries, counts.blob_entries_expired, counts.rows, counts.rows_expired)
        expected, actual = (
            f"{entries} blob entries, {old} of them expired; {rows} rows, {old_rows} of them expired"
            for entries, old, rows, old_rows in (says, is_there)
        )
        if derived.blob_sum is not None:
            expected += f"; timestamps with the sum {derived.blob_sum:x}"
            actual += f"; timestamps with the sum {counts.blob_sum % SUMS:x}"
        return Check(name, Outcome.PASSED if expected == actual else Outcome.FAILED, expected, actual)

    def _divided(self, rules: Rules, cut: LazyCut, counts: SourceCounts) -> Iterator[Check]:
        """The checks of what a lazy run leaves, and of the flags that it sets."""
        for state, what, terms in (
            (
                rules.legacy.name,
                "blobs of the keys that are not moved",
                (
                    ("+", counts.blobs, "blobs"),
                    ("-", counts.blobs_moved, "moved"),
                    ("-", counts.blobs_expired, "expired"),
                ),
            ),
            (
                cut.flag.name,
                "flags",
                (
                    ("+", counts.flags, "flags"),
                    ("-", counts.flags_replaced, "replaced"),
                    ("+", counts.flags_set, "set"),
                ),
            ),
        ):
            name = f"{self.label}/{state}: {what}"
            one, other = self.tally.expected.of(state), self.tally.found.of(state)
            groups = tuple(one.differences(other).tolist())
            expected = f"{int(one.counts.sum())} = {_sum_in_words(terms)}; {_in_words(one)}"
            yield self._compared(name, state, expected, _in_words(other), groups)

    def _reversed(self, rules: RulesBack, name: str, counts: SourceCounts) -> Iterator[Check]:
        """The further checks of a state whose rows became blobs."""
        state = rules.made_name
        one, other = (self.tally.blobs[side].of(state) for side in (Side.SOURCE, Side.STAGED))
        groups = tuple(one.differences(other).tolist())
        expected, found = (_in_words(account, ("blob", "blobs")) for account in (one, other))
        yield self._compared(f"{name}: one blob for each key", state, expected, found, groups)
        if rules.drops_expired:
            expired = self.tally.expired.get(state, Counter())
            gone = tuple(sorted(group for group, count in expired.items() if count))
            yield self._counted(f"{name}: no expired entry", sum(expired.values()), state, gone)
        if not rules.drop_legacy_blobs:
            yield self._counted(f"{name}: no blob left over in the source", counts.leftover_blobs, state)
        yield self._plain(state)

    def _aged(self, planned: PlannedTtl) -> Iterator[Check]:
        """The checks of a state that isn't migrated and loses what has expired."""
        state = planned.state.name
        name, counts = f"{self.label}/{state}", self.tally.aging.get(state, AgingCounts())
        one, other = self.tally.expected.of(state).counts, self.tally.found.of(state).counts
        sums = f"{counts.entries}" + (f" - {counts.expired} expired" if counts.expired else "")
        expected, groups = f"{int(one.sum())} = {sums}", tuple(np.flatnonzero(one != other).tolist())
        yield self._compared(f"{name}: living entries", state, expected, f"{int(other.sum())}", groups)
        yield self._content(state, f"{name}: content")
        yield self._expired(state, name)
        yield self._plain(state)

    def _put_back(self, state: str) -> Check:
        """The check that a state has the source's entries and those that were put back."""
        lost, entries = self.tally.losses.get(state, LossCounts()), self.tally.entries_of
        source, found = entries[Side.SOURCE][state], entries[Side.STAGED][state]
        expected = source + lost.put_back
        words = f"{expected} = {source} in the source + {lost.put_back} put back"
        others = (
            (lost.corrected, "corrected"),
            (lost.lost + lost.gone - lost.put_back - lost.corrected, "lost with rows that are gone"),
            (lost.overwritten, "overwritten since"),
            (lost.removed, "removed later"),
            (lost.expired, "expired"),
        )
        not_put_back = ", ".join(f"{count} {what}" for count, what in others if count)
        words += f" (of the others before the upgrade {not_put_back})" if not_put_back else ""
        name = f"{self.label}/{state}: entries with those that the upgrade lost"
        if self.tally.damage and found != expected:
            return Check(name, Outcome.COULD_NOT_TELL, words, f"{found}, as far as it could be read")
        return Check(name, Outcome.PASSED if found == expected else Outcome.FAILED, words, f"{found}")

    def _plain(self, state: str) -> Check:
        """The check of the keys that plain code has read in both savepoints."""
        plain = self.tally.plain.get(state, PlainTally())
        return plain.check(f"{self.label}/{state}: sample read plainly", self.seed, not self.tally.damage)

    def _expired(self, state: str, name: str) -> Check:
        expired = self.tally.expired.get(state, Counter())
        groups = tuple(sorted(group for group, count in expired.items() if count))
        return self._counted(f"{name}: no expired row", sum(expired.values()), state, groups)

    def _counted(self, name: str, count: int, state: str, key_groups: tuple[int, ...] = ()) -> Check:
        """A check that passes if the count is 0."""
        outcome = Outcome.FAILED if count else Outcome.PASSED
        samples = self._samples(state) if key_groups else ()
        return Check(name, outcome, "0", f"{count}", key_groups, samples)

    def _samples(self, state: str) -> tuple[str, ...]:
        found = self.samples.get(StateRef(self.hex_id, state), ())
        return tuple(f"key group {group}: {text}" for group, text in found)[:MOST_SAMPLES]

    def _rows(self, state: str, name: str, counts: SourceCounts) -> Check:
        one, other = self.tally.expected.of(state).counts, self.tally.found.of(state).counts
        groups = tuple(np.flatnonzero(one != other).tolist())
        terms = (
            ("+", counts.blob_entries, "blob entries"),
            ("+", counts.rows, "rows"),
            ("-", counts.blob_entries_superseded, "blob entries superseded"),
            ("-", counts.blob_entries_of_flagged_keys, "blob entries of flagged keys"),
            ("-", counts.rows_replaced, "rows replaced"),
            ("-", counts.blob_entries_expired, "blob entries expired"),
            ("-", counts.rows_expired, "rows expired"),
            ("-", counts.nulls_left_out, "nulls left out"),
            ("-", counts.blob_entries_left, "blob entries of keys that are not moved"),
        )
        expected = f"{int(one.sum())} = {_sum_in_words(terms)}"
        return self._compared(name, state, expected, f"{int(other.sum())}", groups)

    def _content(self, state: str, name: str) -> Check:
        one, other = self.tally.expected.of(state), self.tally.found.of(state)
        return self._compared(name, state, _in_words(one), _in_words(other), tuple(one.differences(other).tolist()))

    def _compared(self, name: str, state: str, expected: str, actual: str, groups: tuple[int, ...]) -> Check:
        if groups and self.tally.damage:
            return Check(name, Outcome.COULD_NOT_TELL, expected, f"{actual}, as far as it could be read", groups)
        outcome = Outcome.FAILED if groups else Outcome.PASSED
        return Check(name, outcome, expected, actual, groups, self._samples(state) if groups else ())

    def _surplus(self, states: Iterable[str]) -> Iterator[Check]:
        for state in sorted(self.tally.found.accounts.keys() - set(states)):
            counts = self.tally.found.of(state).counts
            if counts.any():
                groups = tuple(np.flatnonzero(counts).tolist())
                name, actual = f"{self.label}/{state}: gone", _entries(int(counts.sum()))
                yield Check(name, Outcome.FAILED, "no entries", actual, groups, self._samples(state))

    def _keys(self) -> Check:
        name, key = f"{self.label}: keys in the key groups of their hashes", next(iter(self._key_types()))
        if reason := why_no_hash(key):
            return Check(name, Outcome.COULD_NOT_TELL, f"each {type_name(key)} in its key group", reason)
        strays = {state: groups for state, groups in self.tally.strays.items() if groups}
        groups = tuple(sorted({group for groups in strays.values() for group in groups}))
        count = sum(sum(groups.values()) for groups in strays.values())
        if not count:
            return Check(name, Outcome.PASSED, "each in its key group", "each in its key group")
        actual = f"{_entries(count)} elsewhere"
        differing = self.tally.differing()
        if has_row(key) and not any(set(differing.get(state, ())) & set(strays[state]) for state in strays):
            actual += ", as in the source: a Row that a job fills by field names hashes by them, not by its bytes"
            return Check(name, Outcome.COULD_NOT_TELL, "each in its key group", actual, groups)
        samples = tuple(text for state in strays for text in self._samples(state))[:MOST_SAMPLES]
        return Check(name, Outcome.FAILED, "each in its key group", actual, groups, samples)

    def _equal_rows(self) -> Check:
        """The check that no row has the key of another one."""
        name, expected, equal = f"{self.label}: each key once in a state", "each once", self.tally.equal
        groups = tuple(sorted({group for counts in equal.counts.values() for group in counts}))
        if not groups:
            return Check(name, Outcome.COULD_NOT_TELL if self.tally.damage else Outcome.PASSED, expected, expected)
        count = sum(sum(counts.values()) for counts in equal.counts.values())
        actual = f"{count} {noun(count, 'row')} with the key of another one, of which Flink would keep one"
        samples = tuple(f"key group {group}: {text}" for group, text in equal.samples)
        return Check(name, Outcome.FAILED, expected, actual, groups, samples)

    def _key_types(self) -> list[FlinkType]:
        return [state.key for state in self.conversion.expected_states.values()]


def table_check(operator: str, table: TableAccount, found: Account) -> Check:
    """Compares the account of a state's tables with what was found in the staged savepoint."""
    name = f"{operator}/{table.state}: as the tables say"
    if table.problems:
        samples = tuple(table.problems[:MOST_SAMPLES])
        return Check(name, Outcome.FAILED, "tables that can be read", table.problems[0], samples=samples)
    groups = tuple(found.differences(table.account.resized(len(found.counts))).tolist())
    outcome = Outcome.FAILED if groups else Outcome.PASSED
    return Check(name, outcome, _in_words(table.account), _in_words(found), groups)


def _sum_in_words(terms: Iterable[tuple[str, int, str]]) -> str:
    return " ".join(f"{sign} {count} {what}" for sign, count, what in terms if count).removeprefix("+ ") or "0"


def _in_words(account: Account, what: tuple[str, str] = ("entry", "entries")) -> str:
    number = int(account.counts.sum())
    return f"{number} {noun(number, *what)}, checksum {account.sums.sum():016x}"


def _entries(number: int) -> str:
    return f"{number} {noun(number, 'entry', 'entries')}"
