"""The validation of a catch-up: the changed keys are read whole, all others follow from the base.

The account of the result is that of the base, without what the changed keys had before, and with what they have now: by
the source's bytes, and by the result's. That no other key has changed follows from the digests of the rows: of all that
the source has, or of all that the files have that came or went (`changed_rows.py`). Some key groups are read whole on
both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from flinkstate.hashing.key_groups import key_group_prefix_bytes
from flinkstate.keyed.row_sum import RowSum
from flinkstate.metadata.bytes_read import BytesRead
from flinkstate.rocksdb.prefixes import EVERY_KEY, Prefixes
from flinkstate.rocksdb.read_once import reading_once
from stateferry.basics.quantities import noun
from stateferry.changes.changed_keys import KeyList, in_result, that_can_be_rewritten
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.proof.above_base import AboveBase
from stateferry.proof.carried_check import CarriedResult
from stateferry.proof.changed_layout import Databases
from stateferry.proof.changed_rows import Snapshot, changed_rows, row_sums, some_keys, together
from stateferry.proof.expected.aging_content import AgingCounts
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.expected.content import Account
from stateferry.proof.expected.expected_entries import SourceCounts
from stateferry.proof.expected.sample_text import MOST_SAMPLES
from stateferry.proof.expected.sampling import SampleSpec
from stateferry.proof.keyed_check import KeyedTask
from stateferry.proof.keyed_result import KeyedResult, Side
from stateferry.proof.tally import Tally

# Entries of the key groups that are read whole.
_MOST_WHOLE = 1_000_000


@dataclass(frozen=True, slots=True)
class BaseAccount:
    """What a green validation has found of a state in a result; of a new state also what its source had.

    `aging` is what its source had of a state that isn't migrated and loses what has expired, and `whole` what a new
    state would have in the result if a lazy run had moved all keys.
    """

    account: Account
    of_source: SourceCounts | None = None
    aging: AgingCounts | None = None
    whole: Account | None = None


@dataclass(frozen=True, slots=True)
class BaseSubtask:
    """A subtask's database in the base's source.

    `changed` are the changed keys by state as the snapshot has listed them, and `lists` what the conversion says of the
    keys that it has read. `sums` are the digests of the source's rows, by key group, as the base has read them.
    """

    source: Snapshot
    lists: Mapping[str, KeyList]
    sums: Mapping[int, str]
    changed: Mapping[str, Prefixes]


@dataclass(frozen=True, slots=True)
class BaseOperator:
    """An operator in the base: the subtasks of its source, its accounts by state, and its result."""

    subtasks: Mapping[int, BaseSubtask]
    accounts: Mapping[str, BaseAccount]
    result: Databases


@dataclass(slots=True)
class ChangedResult:
    """What a task has found of the changed keys of one subtask.

    `after` are its source and its result, `before` those of the base. `read` are the digests of the source's bytes that
    follow from what the base has read, and what has changed.
    """

    operator: str
    subtask: int
    after: tuple[KeyedResult, KeyedResult]
    before: tuple[KeyedResult, KeyedResult]
    problems: list[str]
    keys: int
    files: int = 0
    others: int = 0
    read: BytesRead = field(default_factory=BytesRead)

    @property
    def size(self) -> int:
        return 0

    def changes(self) -> dict[int, RowSum]:
        """By what the digests of the source's rows have changed, as the changed keys say, by key group."""
        now, then = self.after[0].sums, self.before[0].sums
        return {key_group: now[key_group] - then[key_group] for key_group in now.keys() & then.keys()}


@dataclass(frozen=True, slots=True)
class ChangedTask:
    """Reads the changed keys of one subtask: in its source, in its result, and in both of the base.

    The key groups `whole` of the source are read by other tasks. It is one of `of` tasks.
    """

    operator: str
    subtask: int
    conversion: OperatorChanges
    check_keys: bool
    seed: int
    source: Snapshot
    staged: Databases
    base: BaseSubtask
    base_result: Databases
    whole: frozenset[int]
    of: int = 1
    is_first: bool = True

    def do(self) -> ChangedResult:
        """Reads the changed keys, and finds out whether they are all."""
        with reading_once():
            return self._found()

    def _found(self) -> ChangedResult:
        listed, groups = self.base.changed, together(self.conversion, self.base.changed.keys())
        only = listed if self.whole else self._with_others(listed)
        # What the base had of them was sampled when it was validated.
        spec = SampleSpec(self.seed, 1.0 / max(self.of, 1))
        keys = in_result(only, self.conversion)
        if self.conversion.changes_key_groups and not self.is_first:
            # Every subtask's timers on the heap may be in any database of the result, so one task reads all of them.
            keys = {state: one for state, one in keys.items() if not one.has_every_key}

        def read(side: Side, of: Databases, sample: SampleSpec | None = None) -> KeyedResult:
            if side is Side.SOURCE:
                wanted, chunk = only, of.chunk(self.conversion.old_max, [EVERY_KEY])
            else:
                wanted, chunk = keys, of.chunk(self.conversion.new_max, keys.values())
            return KeyedTask(
                side, of.folder, self.operator, chunk, self.conversion, self.check_keys, sample=sample, only=wanted
            ).do()

        source, base = (Databases(one.folder, {self.subtask: one.handle}) for one in (self.source, self.base.source))
        after = read(Side.SOURCE, source, spec), read(Side.STAGED, self.staged, spec)
        before = read(Side.SOURCE, base), read(Side.STAGED, self.base_result)
        # What a key has in the states of a group counts together.
        count, read_keys = (
            sum(max(len(of[name]) for name in group) for group in groups if not _has_every_key(of, group))
            for of in (listed, only)
        )
        result = ChangedResult(
            self.operator, self.subtask, after, before, list(self._other_lists()), count, others=read_keys - count
        )
        if after[0].read is not None:
            result.read.take(after[0].read)
        self._look_for_others(result)
        return result

    def _with_others(self, listed: Mapping[str, Prefixes]) -> Mapping[str, Prefixes]:
        """The keys, and some that aren't listed, which must be in both results as they are in both sources."""
        some = some_keys(self.source, self.conversion, self.conversion.old_max, self.subtask, self.seed)
        width = key_group_prefix_bytes(self.conversion.old_max)
        for state, known in self.conversion.by_kryo.items():
            if state in some:
                some[state] = that_can_be_rewritten(some[state], known, width)
        return {state: keys.and_of(some[state]) if state in some else keys for state, keys in listed.items()}

    def _look_for_others(self, result: ChangedResult) -> None:
        """Finds out whether rows of other keys came, went or changed, and notes the digests of all rows.

        If the files that came or went are few, only keys that they have are read, of both sources.
        """
        source, before, width = self.source, self.base.source, self.conversion.old_max
        found = changed_rows(source, before, self.conversion, width, self.subtask)
        result.problems += found.problems
        result.files = found.files
        known = {key_group: RowSum.of_text(text) for key_group, text in self.base.sums.items()}
        then: Mapping[int, RowSum | None] = known
        now = row_sums(source, width, self.subtask, found.keys, result.read)
        if found.keys is not None:
            then = row_sums(before, width, self.subtask, found.keys)
        changes = result.changes()
        for key_group in source.handle.range:
            one, other, change, whole = (of.get(key_group) for of in (now, then, changes, known))
            if one is None or other is None or change is None or one != other + change:
                result.problems.append(
                    f"subtask {self.subtask}, key group {key_group}: rows of other keys than those that are listed "
                    "came, went or changed"
                )
            elif found.keys is not None and whole is not None and key_group not in self.whole:
                result.read.add(source.handle.meta.name, key_group, (whole + change).text)

    def _other_lists(self) -> Iterator[str]:
        mine = {state: KeyList.of(keys) for state, keys in self.base.changed.items()}
        for state in sorted(mine.keys() | self.base.lists.keys()):
            one, other = mine.get(state), self.base.lists.get(state)
            if one != other:
                found = "none" if other is None else f"{other.keys} keys (digest {other.digest})"
                expected = "none" if one is None else f"{one.keys} keys (digest {one.digest})"
                yield f"subtask {self.subtask}, {state}: changed are {expected}, converted were {found}"


def sampled_groups(divisor: int, seed: int, base: BaseOperator) -> frozenset[int]:
    """The key groups that are read whole: one of 128, others for each source, of those that have any in the base.

    They are named by their remainders: with the max parallelism as divisor, that is by their numbers. They are fewer
    if they have very many entries: the job stands still meanwhile. If there are none, some keys are read instead.
    """
    entries: Counter[int] = Counter()
    for one in base.accounts.values():
        for group in np.flatnonzero(one.account.counts).tolist():
            entries[group % divisor] += int(one.account.counts[group])
    groups = sorted(entries) or list(range(divisor))
    count = max(len(groups) // 128, 1)
    chosen = [groups[(seed + number * len(groups) // count) % len(groups)] for number in range(count)]
    while chosen and sum(entries[group] for group in chosen) > _MOST_WHOLE:
        chosen.pop()
    return frozenset(chosen)


def _has_every_key(keys: Mapping[str, Prefixes], group: Iterable[str]) -> bool:
    return any(keys[name].has_every_key for name in group)


class CatchUpTally:
    """The results of one operator's tasks, added up: of changed keys, and of key groups that were read whole."""

    def __init__(self, size: int, base: BaseOperator, whole: frozenset[int]) -> None:
        self._size, self._base, self._whole = size, base, whole
        self._after, self._before, self._sampled = Tally(size), Tally(size), Tally(size)
        self._problems: list[str] = []
        self._unread, self._unseen = set(base.subtasks), set(base.result.handles)
        self._keys = self._files = self._others = 0
        self._above: list[AboveBase] = []

    def take(self, result: ChangedResult | KeyedResult | CarriedResult | AboveBase) -> None:
        """Adds the result of one task."""
        if isinstance(result, AboveBase):
            self._above.append(result)
            self._unseen.discard(result.subtask)
        elif isinstance(result, KeyedResult):
            self._sampled.take(result)
        elif isinstance(result, CarriedResult):
            self._after.take(result)
        else:
            for tally, results in ((self._after, result.after), (self._before, result.before)):
                for one in results:
                    tally.take(one)
            self._problems += result.problems
            self._unread.discard(result.subtask)
            self._keys += result.keys
            self._files += result.files
            self._others += result.others

    def total(self) -> Tally:
        """What all keys amount to: the base, without the changed keys as they were, and with them as they are."""
        tally, after, before = Tally(self._size), self._after, self._before
        for state, known in self._base.accounts.items():
            for of in (tally.expected, tally.found):
                of.of(state).take(known.account)
            if known.whole is not None:
                tally.whole.of(state).take(known.whole)
            if known.of_source is not None:
                tally.counts[state] = replace(known.of_source)
            if known.aging is not None:
                tally.aging[state] = replace(known.aging)
        for mine, gone, came in (
            (tally.expected, before.expected, after.expected), (tally.found, before.found, after.found),
            (tally.whole, before.whole, after.whole),
        ):  # fmt: skip
            for state, account in gone.accounts.items():
                mine.of(state).take_away(account)
            mine.take(came.accounts)
        for state, counts in before.counts.items():
            tally.counts.setdefault(state, SourceCounts()).take_off(counts)
        for state, counts in after.counts.items():
            tally.counts.setdefault(state, SourceCounts()).add(counts)
        for state, aged in before.aging.items():
            tally.aging.setdefault(state, AgingCounts()).take_off(aged)
        for state, aged in after.aging.items():
            tally.aging.setdefault(state, AgingCounts()).add(aged)
        tally.strays, tally.expired, tally.plain = after.strays, after.expired, after.plain
        tally.carried, tally.carried_is_damaged = after.carried, after.carried_is_damaged
        tally.plain_elements = after.plain_elements
        tally.damage = [*after.damage, *before.damage, *self._sampled.damage]
        tally.plain_rows, tally.equal = self._sampled.plain_rows, self._sampled.equal
        return tally

    def checks(self, label: str) -> Iterator[Check]:
        """The checks that only a catch-up has."""
        problems = [*self._problems, *(f"subtask {one} wasn't read" for one in sorted(self._unread))]
        yield Check(
            f"{label}: changed keys listed",
            Outcome.FAILED if problems else Outcome.PASSED,
            "every row that came, went or changed",
            problems[0]
            if problems
            else f"{self._keys} {noun(self._keys, 'key')}, as {self._files} {noun(self._files, 'file')} came or went"
            f"{f', and {self._others} others that are read with them' if self._others else ''}",
            samples=tuple(problems[:MOST_SAMPLES]),
        )
        yield _compared(f"{label}: changed keys as they were", self._before)
        yield _compared(f"{label}: changed keys as they are", self._after)
        if self._whole:
            yield self._read_whole(label)
        yield self._above_base(label)

    def _above_base(self, label: str) -> Check:
        problems = [problem for one in self._above for problem in one.problems]
        problems += [f"subtask {one} of the result wasn't looked at" for one in sorted(self._unseen)]
        rows, files, joined = (
            sum(of) for of in zip(*((one.rows, one.files, one.joined) for one in self._above), (0, 0, 0), strict=True)
        )
        found = f"{rows} {noun(rows, 'row')} in {files} {noun(files, 'file')}"
        if joined:
            found += f", with all that {joined} newer {noun(joined, 'file')} of the base had"
        return Check(
            f"{label}: above the base",
            Outcome.FAILED if problems else Outcome.PASSED,
            f"the base's files as they were{' or joined' if joined else ''}, and rows of listed keys alone",
            problems[0] if problems else found,
            samples=tuple(problems[:MOST_SAMPLES]),
        )

    def _read_whole(self, label: str) -> Check:
        total, sampled = self.total(), self._sampled
        groups = sorted(self._whole)
        states = {*total.expected.accounts, *total.found.accounts, *sampled.expected.accounts, *sampled.found.accounts}
        wrong, entries = list[str](), 0
        for state in sorted(states):
            for side, whole, derived in (
                ("source", sampled.expected, total.expected), ("result", sampled.found, total.found),
            ):  # fmt: skip
                one, other = (_at(of.of(state), groups) for of in (whole, derived))
                entries += int(one.counts.sum())
                if len(one.differences(other)):
                    wrong.append(f"{state}: the {side} has others than follow from the base and the changed keys")
        named = f"{noun(len(groups), 'key group')} {', '.join(map(str, groups[:10]))}"
        return Check(
            f"{label}: {named} read whole", Outcome.FAILED if wrong else Outcome.PASSED,
            "what follows from the base and the changed keys", wrong[0] if wrong else f"{entries // 2} entries",
            tuple(groups) if wrong else (), tuple(wrong[:MOST_SAMPLES]),
        )  # fmt: skip


def _at(account: Account, groups: list[int]) -> Account:
    return Account(account.counts[groups], account.sums[groups])


def _compared(name: str, tally: Tally) -> Check:
    differing = tally.differing()
    count = sum(int(account.counts.sum()) for account in tally.expected.accounts.values())
    found = sum(int(account.counts.sum()) for account in tally.found.accounts.values())
    groups = tuple(sorted({group for groups in differing.values() for group in groups}))
    outcome = Outcome.FAILED if differing else Outcome.PASSED
    if differing and tally.damage:
        outcome = Outcome.COULD_NOT_TELL
    sums = [
        sum(int(account.sums.sum(dtype=np.uint64)) for account in of.accounts.values()) % 2**64
        for of in (tally.expected, tally.found)
    ]
    texts = tuple(f"{state}: key groups {', '.join(map(str, groups[:10]))}" for state, groups in differing.items())
    return Check(
        name, outcome, f"{count} {noun(count, 'entry', 'entries')}, checksum {sums[0]:016x}",
        f"{found} {noun(found, 'entry', 'entries')}, checksum {sums[1]:016x}", groups, texts[:MOST_SAMPLES],
    )  # fmt: skip
