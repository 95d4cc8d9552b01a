"""A task of the validation: reads one chunk of keyed state, of the source or of the staged savepoint.

Any process may do it. Without a probe the result is an account: counts and sums of hashes by state and key group of the
new savepoint. A probe reads some key groups of one state more closely: first it counts by slices (ranges of the hash of
key and user key), then it returns the entries in the slices that differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.storage import Location
from flinkstate.hashing.java_hash import unstable_reason
from flinkstate.keyed import kernels
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.header import KeyedHeader
from flinkstate.keyed.key_group_check import Membership
from flinkstate.keyed.keyed_file import WINDOW, KeyedFile, Section
from flinkstate.keyed.keyed_files import open_keyed
from flinkstate.keyed.native_file import NativeFile
from flinkstate.keyed.row_sum import RowSum
from flinkstate.keyed.state import KeyedState, StateKind, keyed_states
from flinkstate.metadata.bytes_read import BytesRead
from flinkstate.metadata.chunks import Chunk
from flinkstate.reading.group_sections import GroupSections
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.serializers.type_parts import field_of
from flinkstate.serializers.walker import Flags, Positions
from flinkstate.ttl import expired_array
from stateferry.changes.counts import LossCounts
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Rules, RulesBack, expiry_of_rest, null_under_ttl
from stateferry.changes.upgrade.for_other_kryo import for_other_kryo
from stateferry.changes.upgrade.kryo_rows import count_entries
from stateferry.changes.upgrade.restore_lost import GroupLosses
from stateferry.proof.expected.aging_content import AgingCounts, aging_entries
from stateferry.proof.expected.content import (
    Account,
    AccountsByState,
    BlobEntries,
    Entries,
    Hashes,
    KeySpans,
    blob_entries,
    hashes_of_keys,
    map_rows,
    plain_entries,
)
from stateferry.proof.expected.expected_blobs import ExpectedBlobs, hash_blobs
from stateferry.proof.expected.expected_entries import ExpectedEntries, SourceCounts
from stateferry.proof.expected.sample_text import MOST_SAMPLES, ProbedEntry, describe
from stateferry.proof.expected.sampling import KeySample, SampleSpec
from stateferry.proof.plain.plain_aging import PlainAgingReader
from stateferry.proof.plain.plain_blobs import PlainBlobReader
from stateferry.proof.plain.plain_kryo import PlainKryoReader
from stateferry.proof.plain.plain_losses import before_the_upgrade
from stateferry.proof.plain.plain_reader import PlainReader, SampledKeys
from stateferry.proof.plain.plain_rows import PlainRows, PlainRowsResult


class Side(Enum):
    """Which of the two savepoints is read."""

    SOURCE = "source"
    STAGED = "staged"


@dataclass(frozen=True, slots=True)
class Probe:
    """A closer look at a state's entries in some key groups.

    The first `bits` of an entry's hash are its slice. If there are `slices`, their entries are returned. With `strays`,
    the entries whose key belongs to another key group are returned.
    """

    state: str
    key_groups: tuple[int, ...]
    bits: int = 0
    slices: tuple[int, ...] = ()
    strays: bool = False


@dataclass(slots=True)
class KeyedResult:
    """What a task found in its chunk.

    `damage` says why the chunk could not be read to its end. `accounts`, `counts` and `aging` are by state; `strays`
    and `expired` count wrong entries of the staged savepoint by state and key group; `samples` are the keys that were
    read a second time. `whole` are accounts of the staged savepoint by new state, as if a lazy run had moved all keys.
    `slices` and `entries` answer a probe. `read` has the digests of the source's bytes, `plain` what plain code has
    read of RocksDB's own files.
    """

    operator: str
    side: Side
    size: int
    damage: DamagedError | RefusedError | None = None
    accounts: dict[str, Account] = field(default_factory=dict)
    counts: dict[str, SourceCounts] = field(default_factory=dict)
    aging: dict[str, AgingCounts] = field(default_factory=dict)
    strays: dict[str, Counter[int]] = field(default_factory=dict)
    expired: dict[str, Counter[int]] = field(default_factory=dict)
    samples: dict[str, SampledKeys] = field(default_factory=dict)
    whole: dict[str, Account] = field(default_factory=dict)
    slices: Account | None = None
    entries: list[ProbedEntry] = field(default_factory=list)
    # Of a run in reverse: an account of the blobs, in which each counts once.
    blobs: dict[str, Account] = field(default_factory=dict)
    read: BytesRead | None = None
    plain: PlainRowsResult = field(default_factory=PlainRowsResult)
    # What an upgrade has lost, by state; how many entries these states have before any is put back, or in the result.
    losses: dict[str, LossCounts] = field(default_factory=dict)
    entries_of: Counter[str] = field(default_factory=Counter)
    # Of a task that reads only some keys: the digests of their rows, by key group.
    sums: dict[int, RowSum] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeyedTask:
    """Reads a chunk.

    With `check_keys`, the hash of every key must lead to its key group. With `sample`, some keys of migrated states,
    and some rows of RocksDB's own files, are read a second time, by plain code. With `only`, no other keys of these
    states are read, and no other states.
    """

    side: Side
    folder: Location
    operator: str
    chunk: Chunk
    conversion: OperatorChanges
    check_keys: bool
    probe: Probe | None = None
    sample: SampleSpec | None = None
    only: Mapping[str, Prefixes] | None = None

    @property
    def size(self) -> int:
        return self.chunk.size

    def do(self) -> KeyedResult:
        """Reads the chunk."""
        reading = _ChunkReading(self)
        try:
            reading.read()
        except (DamagedError, RefusedError) as error:
            # Without its traceback the error doesn't keep the buffers alive that were read.
            return reading.result(error.with_traceback(None))
        return reading.result()


class _Accounts:
    """Accounts of all entries, by state and key group."""

    def __init__(self, size: int) -> None:
        self.accounts = AccountsByState(size)

    def add(self, state: str, entries: Entries, chosen: Flags) -> None:
        self.accounts.of(state).add(entries.groups, entries.hashes(), chosen)

    def leave_out(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        pass

    def withdraw(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        self.accounts.of(state).take_off(entries.groups, entries.hashes(), chosen)

    def fill(self, result: KeyedResult) -> None:
        result.accounts = self.accounts.accounts


def slices_of(pairs: Any, bits: int) -> Positions:
    """The slice of each hash."""
    found: Positions = (pairs >> np.uint64(64 - bits)).astype(np.int64)
    return found


class _Slices:
    """The probed entries' counts and sums, by slice."""

    def __init__(self, probe: Probe) -> None:
        self._probe, self._account = probe, Account.of(1 << probe.bits)

    def _chosen(self, state: str, entries: Entries, chosen: Flags) -> Flags:
        if state != self._probe.state:
            return np.zeros(len(entries), np.bool_)
        return chosen & np.isin(entries.groups, self._probe.key_groups)

    def add(self, state: str, entries: Entries, chosen: Flags) -> None:
        chosen = self._chosen(state, entries, chosen)
        self._account.add(slices_of(entries.pairs, self._probe.bits), entries.hashes(), chosen)

    def leave_out(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        pass

    def withdraw(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        chosen = self._chosen(state, entries, chosen)
        self._account.take_off(slices_of(entries.pairs, self._probe.bits), entries.hashes(), chosen)

    def fill(self, result: KeyedResult) -> None:
        result.slices = self._account


class _Probed:
    """The probed entries themselves; those that must not be in the new state have the reason (`why`)."""

    def __init__(self, probe: Probe, conversion: OperatorChanges) -> None:
        self._probe, self._conversion = probe, conversion
        self._probed: list[ProbedEntry] = []

    def _described(self, state: str, entries: Entries, chosen: Flags, why: str | None) -> Iterator[ProbedEntry]:
        if state != self._probe.state:
            return
        if not self._probe.strays:
            chosen = chosen & np.isin(slices_of(entries.pairs, self._probe.bits), self._probe.slices)
        chosen = chosen & np.isin(entries.groups, self._probe.key_groups)
        hashes = entries.hashes() if chosen.any() else ()
        known = self._conversion.expected_states | {one.made_name: one.new for one in self._conversion.rules}
        described = known.get(state)
        for index in np.flatnonzero(chosen).tolist():
            yield describe(entries, index, int(hashes[index]), described, state in self._conversion.made, why)

    def add(self, state: str, entries: Entries, chosen: Flags) -> None:
        self._probed += self._described(state, entries, chosen, None)

    def leave_out(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        self._probed += self._described(state, entries, chosen, why)

    def withdraw(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        for gone in self._described(state, entries, chosen, why):
            self._probed.remove(replace(gone, why=None))
            self._probed.append(gone)

    def fill(self, result: KeyedResult) -> None:
        result.entries = self._probed[:MOST_SAMPLES] if self._probe.strays else self._probed


# By kind of rules: what reads what the new savepoint must hold, and the same by plain code.
_READERS: dict[type[Rules], tuple[type[ExpectedEntries], type[PlainReader]]] = {
    Rules: (ExpectedEntries, PlainReader),
    RulesBack: (ExpectedBlobs, PlainBlobReader),
}


class _ChunkReading:
    """Reads one chunk and collects what it finds."""

    def __init__(self, task: KeyedTask) -> None:
        self._task = task
        self._strays: dict[str, Counter[int]] = {}
        self._expired: dict[str, Counter[int]] = {}
        # A probe reads only a part, for the second time.
        self._read = BytesRead() if task.side is Side.SOURCE and task.probe is None else None
        self._sink: _Accounts | _Slices | _Probed
        # The staged savepoint may have another max parallelism than it should.
        size = max(task.conversion.new_max, task.chunk.max_parallelism)
        if task.probe is None:
            self._sink = _Accounts(size)
        elif task.probe.slices or task.probe.strays:
            self._sink = _Probed(task.probe, task.conversion)
        else:
            self._sink = _Slices(task.probe)
        self._plain = PlainRowsResult()
        self._losses: dict[str, LossCounts] = {}
        self._entries_of: Counter[str] = Counter()
        self._samples: dict[str, KeySample] = {}
        if task.sample is not None:
            for rules in task.conversion.rules:
                self._samples[rules.made_name] = KeySample(task.sample, rules.legacy.name, rules.legacy.ttl)
            for name in task.conversion.aging.keys() | task.conversion.by_kryo.keys():
                self._samples.setdefault(name, KeySample(task.sample, "", False))
        self._aging, self._by_kryo = task.conversion.aging, task.conversion.by_kryo
        self._sampled: dict[str, set[str | None]] = {
            rules.made_name: {rules.new_name, rules.legacy.name, rules.flag_name} for rules in task.conversion.rules
        }
        self._read_by_kryo = self._by_kryo.keys() - self._sampled.keys()
        self._sampled |= {name: {name} for name in self._aging.keys() - self._read_by_kryo}
        self._kind = next((type(rules) for rules in task.conversion.rules), Rules)
        self._expected = _READERS[self._kind][0](task.conversion, self._sink, self._samples, size)
        self._blobs = self._expected.blobs if task.side is Side.SOURCE else AccountsByState(size)
        self._whole = _Accounts(task.conversion.new_max)
        self._of_staged: ExpectedEntries | None = None
        if task.side is Side.STAGED and task.probe is None and task.conversion.flags:
            self._of_staged = ExpectedEntries(task.conversion.of_staged(), self._whole)
        self._made = task.conversion.made
        self._rules = {rules.made_name: rules for rules in task.conversion.rules}
        self._rests = {rules.legacy.name: rules for rules in task.conversion.rules if rules.keeps_rest}
        self._states: dict[str, KeyedState] = {}
        self._sums: dict[int, RowSum] = {}

    def result(self, damage: DamagedError | RefusedError | None = None) -> KeyedResult:
        result = KeyedResult(
            self._task.operator,
            self._task.side,
            self._task.size,
            damage,
            counts=self._expected.counts,
            aging=self._expected.aging,
            strays=self._strays,
            expired=self._expired,
            samples={name: self._sampled_keys(name, sample) for name, sample in self._samples.items()},
            whole=self._whole.accounts.accounts,
            blobs=self._blobs.accounts,
            read=self._read,
            plain=self._plain,
            losses=self._losses,
            entries_of=self._entries_of,
            sums=self._sums,
        )
        self._sink.fill(result)
        return result

    def _sampled_keys(self, name: str, sample: KeySample) -> SampledKeys:
        reader: PlainReader | PlainAgingReader | PlainKryoReader
        if name in self._read_by_kryo:
            rest = self._rests.get(name)
            planned = self._aging.get(name) if rest is None else expiry_of_rest(rest)
            field = None if rest is None else field_of(rest.legacy.value)
            reader = PlainKryoReader(self._by_kryo[name], planned, self._task.conversion, field)
        elif name in self._aging:
            reader = PlainAgingReader(self._aging[name], self._task.conversion)
        else:
            reader = _READERS[self._kind][1](self._rules[name], self._task.conversion, self._states)
        return SampledKeys.of(sample, reader.expected if self._task.side is Side.SOURCE else reader.found)

    def read(self) -> None:
        task, window = self._task, np.empty(WINDOW, np.uint8)
        rewrite = self._rewritten if task.side is Side.SOURCE and self._by_kryo else None
        for part in task.chunk.parts:
            width = task.chunk.max_parallelism
            with open_keyed(task.folder, part.handle, width, part.subtask, self._read, part.key_groups) as file:
                if task.side is Side.STAGED:
                    # The reader's own check of the keys is switched off, because the validation names what is wrong.
                    file.membership = _AnyMember(file.header, task.chunk.max_parallelism, file.prefix)
                if task.only is not None and isinstance(file, NativeFile):
                    there = enumerate(file.header.states)
                    file.only = {number: task.only[meta.name] for number, meta in there if meta.name in task.only}
                states = keyed_states(file.header, file.name)
                self._states.update({state.name: state for state in states})
                plain = self._plain_rows(file, part.key_groups)
                for key_group in part.key_groups:
                    see = None if plain is None else plain.see
                    group = GroupSections(file, key_group, states, window, see, rewrite)
                    if task.side is Side.SOURCE:
                        self._expected.read(group)
                    else:
                        self._staged(group)
                        if self._of_staged is not None:
                            self._of_staged.read(group, carries=False)
                if isinstance(file, NativeFile):
                    self._sums |= file.sums
                if plain is not None:
                    plain.end()
                    self._plain.add(plain.result)

    def _rewritten(
        self, key_group: int, found: Iterator[tuple[KeyedState, Section]]
    ) -> Iterator[tuple[KeyedState, Section]]:
        """The sections as a job of Flink 2 would have written them, with what an upgrade lost."""
        if (before := self._task.conversion.before) is None:
            for state, section in found:
                yield state, self._for_other_kryo(state, section)
            return
        losses = GroupLosses(before, key_group, self._losses)
        for name, section in losses.rows:
            if name in self._read_by_kryo and name in self._samples:
                self._samples[name].see(before_the_upgrade(name), section, hashes_of_keys(section))
        yield from losses.sections(self._by_kryo, found, self._for_other_kryo, self._see)

    def _for_other_kryo(self, state: KeyedState, section: Section) -> Section:
        """The section as a job of Flink 2 would have written it; a sample is taken of what is there."""
        known = self._by_kryo.get(state.name)
        if known is None:
            return section
        made = for_other_kryo(section, known)
        self._see(state, section, made)
        return made

    def _see(self, state: KeyedState, section: Section, made: Section) -> None:
        if state.name in self._read_by_kryo and state.name in self._samples:
            # By the keys that it will have, the staged savepoint has the same sample.
            self._samples[state.name].see(state.name, section, hashes_of_keys(made))
        self._count_entries(state, made)

    def _count_entries(self, state: KeyedState, section: Section) -> None:
        """Counts the entries of a state of which an upgrade has lost some; those that are left out don't count."""
        before = self._task.conversion.before
        if before is None or state.name not in before.states or before.states[state.name].why_not is not None:
            return
        living = None
        if (planned := self._aging.get(state.name)) is not None:
            living = aging_entries(section, planned, np.zeros(len(section), np.int64)).living
        self._entries_of[state.name] += count_entries(section, before.states[state.name].state, living)

    def _plain_rows(self, file: KeyedFile, key_groups: Sequence[int]) -> PlainRows | None:
        """Reads rows of RocksDB's own files by plain code as well, unless this is a closer look at a difference."""
        sample = self._task.sample
        if sample is None or self._task.only is not None or not isinstance(file, NativeFile):
            return None
        return PlainRows(self._task.folder, file, key_groups, sample.seed)

    def _staged(self, group: GroupSections) -> None:
        for state, section in group:
            with section.locating():
                self._count_entries(state, section)
                spans = self._key_spans(state.name, section)
                blobs = self._staged_blobs(state.name, section)
                if blobs is None:
                    entries, keys = self._staged_entries(state.name, section, spans)
                else:
                    entries, keys = blobs.entries, blobs.keys
                for name, sample in self._samples.items():
                    if name in self._read_by_kryo and state.name == name:
                        sample.see(name, section, hashes_of_keys(section))
                    elif state.name in self._sampled.get(name, ()):
                        sample.see(state.name, section, keys)
                if self._task.probe is None or not self._task.probe.strays:
                    self._sink.add(state.name, entries, np.ones(len(entries), np.bool_))
                if spans is not None:
                    self._check_keys(state.name, section, entries, spans, blobs)

    def _key_spans(self, name: str, section: Section) -> KeySpans | None:
        """The section's keys; None if keys are not checked, or their hashes aren't stable."""
        state = self._task.conversion.expected_states.get(name)
        if not self._task.check_keys or state is None or unstable_reason(state.key):
            return None
        return KeySpans.of(section, state)

    def _staged_entries(self, name: str, section: Section, spans: KeySpans | None) -> tuple[Entries, Hashes]:
        """The entries of a section, and the hash of each row's key."""
        groups = np.full(len(section), section.key_group, np.int64)
        if name in self._aging and (self._task.probe is None or not self._task.probe.strays):
            found = aging_entries(section, self._aging[name], groups)
            expired = int((~found.living).sum()) + found.empty
            self._expired.setdefault(name, Counter())[section.key_group] += expired
            return found.entries, found.keys
        if name not in self._made:
            entries = plain_entries(section, groups)
            return entries, entries.keys
        entries, rules = map_rows(section, self._made[name], groups, spans), self._rules[name]
        self._count_expired(name, section.key_group, entries.stamps, rules)
        return entries, entries.keys

    def _staged_blobs(self, name: str, section: Section) -> BlobEntries | None:
        """The blobs of a section of a state that a run in reverse has made; None if it is of another state."""
        if name not in self._made or self._made[name].kind is StateKind.MAP:
            return None
        rules = self._rules[name]
        groups = np.full(len(section), section.key_group, np.int64)
        blobs = blob_entries(
            section, rules.legacy.value, rules.legacy.ttl, null_under_ttl(rules.map_type.value), groups
        )
        hashes = hash_blobs(blobs.keys, groups, blobs.counts, blobs.stamps)
        self._blobs.of(name).add(groups, hashes, np.ones(len(hashes), np.bool_))
        self._count_expired(name, section.key_group, blobs.entries.stamps, rules)
        return blobs

    def _count_expired(self, name: str, key_group: int, timestamps: Positions, rules: Rules) -> None:
        if rules.ttl is not None and not rules.keep_expired:
            expired = int(expired_array(timestamps, rules.ttl, rules.now).sum())
            self._expired.setdefault(name, Counter())[key_group] += expired

    def _check_keys(
        self, name: str, section: Section, entries: Entries, spans: KeySpans, blobs: BlobEntries | None
    ) -> None:
        conversion = self._task.conversion
        groups = spans.groups(section, conversion.expected_states[name], conversion.new_max)
        if (groups == section.key_group).all():
            return
        strays = spans.per_entry(groups) != section.key_group
        self._strays.setdefault(name, Counter())[section.key_group] += int(strays.sum())
        if self._task.probe is not None and self._task.probe.strays:
            self._sink.add(name, entries, strays if blobs is None else blobs.per_entry(strays))


class _AnyMember(Membership):
    """Accepts keys of any key group."""

    def __init__(self, header: KeyedHeader, max_parallelism: int, prefix: int) -> None:
        super().__init__(header, max_parallelism, prefix)
        self.keys[:] = kernels.NO_KEY

    def check(self, state: int, key_group: int, data: Buffer, starts: Positions, key_ends: Positions) -> None:
        pass
