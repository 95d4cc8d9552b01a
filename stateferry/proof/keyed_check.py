"""A task of the validation: reads one chunk of keyed state, of the source or of the staged savepoint.

Any process may do it. Without a probe the result is an account: counts and sums of hashes by state and key group of the
new savepoint. A probe reads some key groups of one state more closely: first it counts by slices (ranges of the hash of
key and user key), then it returns the entries in the slices that differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.storage import Location
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
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.reading.group_sections import GroupSections
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.serializers.type_parts import field_of
from flinkstate.serializers.walker import Positions
from flinkstate.ttl import expired_array
from flinkstate.values.key_hashes import why_no_hash
from stateferry.changes.counts import LossCounts
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Rules, RulesBack, expiry_of_rest, null_under_ttl
from stateferry.changes.upgrade.for_other_kryo import for_other_kryo
from stateferry.changes.upgrade.kryo_rows import count_entries
from stateferry.changes.upgrade.restore_lost import GroupLosses
from stateferry.proof.equal_rows import EqualRows
from stateferry.proof.expected.aging_content import aging_entries
from stateferry.proof.expected.content import (
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
from stateferry.proof.expected.expected_entries import ExpectedEntries
from stateferry.proof.expected.sampling import KeySample, SampleSpec
from stateferry.proof.keyed_result import KeyedAccounts, KeyedResult, Probe, ProbedEntries, ProbedSlices, Side
from stateferry.proof.plain.plain_aging import PlainAgingReader
from stateferry.proof.plain.plain_blobs import PlainBlobReader
from stateferry.proof.plain.plain_kryo import PlainKryoReader
from stateferry.proof.plain.plain_losses import before_the_upgrade
from stateferry.proof.plain.plain_reader import PlainReader, is_of_flink_1
from stateferry.proof.plain.plain_rows import PlainRows, PlainRowsResult
from stateferry.proof.plain.plain_state import SampledKeys


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


# By kind of rules: what reads what the new savepoint must hold, and the same by plain code.
_READERS: dict[type[Rules], tuple[type[ExpectedEntries], type[PlainReader]]] = {
    Rules: (ExpectedEntries, PlainReader),
    RulesBack: (ExpectedBlobs, PlainBlobReader),
}


def _runs(key_groups: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yields the key groups that lie side by side, together."""
    first = 0
    for number, group in enumerate(key_groups, 1):
        if number == len(key_groups) or key_groups[number] != group + 1:
            yield key_groups[first:number]
            first = number


class _ChunkReading:
    """Reads one chunk and collects what it finds."""

    def __init__(self, task: KeyedTask) -> None:
        self._task = task
        self._strays: dict[str, Counter[int]] = {}
        self._expired: dict[str, Counter[int]] = {}
        # A probe reads only a part, for the second time.
        self._read = BytesRead() if task.side is Side.SOURCE and task.probe is None else None
        self._sink: KeyedAccounts | ProbedSlices | ProbedEntries
        # The staged savepoint may have another max parallelism than it should.
        size = max(task.conversion.new_max, task.chunk.max_parallelism)
        if task.probe is None:
            self._sink = KeyedAccounts(size)
        elif task.probe.slices or task.probe.strays:
            self._sink = ProbedEntries(task.probe, task.conversion)
        else:
            self._sink = ProbedSlices(task.probe)
        self._plain = PlainRowsResult()
        self._losses: dict[str, LossCounts] = {}
        self._entries_of: Counter[str] = Counter()
        self._samples: dict[str, KeySample] = {}
        if task.sample is not None:
            for rules in task.conversion.rules:
                self._samples[rules.made_name] = KeySample(task.sample, rules.legacy.name, rules.legacy.ttl)
            for name in task.conversion.aging.keys() | task.conversion.by_kryo.keys() - task.conversion.left_behind:
                self._samples.setdefault(name, KeySample(task.sample, "", False))
        self._aging, self._by_kryo = task.conversion.aging, task.conversion.by_kryo
        self._sampled: dict[str, set[str | None]] = {
            rules.made_name: {rules.new_name, rules.legacy.name, rules.flag_name} for rules in task.conversion.rules
        }
        self._read_by_kryo = self._by_kryo.keys() - self._sampled.keys() - task.conversion.left_behind
        self._sampled |= {name: {name} for name in self._aging.keys() - self._read_by_kryo}
        self._kind = next((type(rules) for rules in task.conversion.rules), Rules)
        self._expected = _READERS[self._kind][0](task.conversion, self._sink, self._samples, size)
        self._blobs = self._expected.blobs if task.side is Side.SOURCE else AccountsByState(size)
        self._whole = KeyedAccounts(size if task.side is Side.STAGED else task.conversion.new_max)
        self._of_staged: ExpectedEntries | None = None
        if task.side is Side.STAGED and task.probe is None and task.conversion.flags:
            self._of_staged = ExpectedEntries(task.conversion.of_staged(), self._whole)
        self._made = task.conversion.made
        self._rules = {rules.made_name: rules for rules in task.conversion.rules}
        self._rests = {rules.legacy.name: rules for rules in task.conversion.rules if rules.keeps_rest}
        self._states: dict[str, KeyedState] = {}
        self._sums: dict[int, RowSum] = {}
        self._equal = EqualRows()
        # A key group in which it isn't clear who wins is read again.
        self._seen_group = -1

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
            equal=self._equal,
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
            native = any(isinstance(part.handle, NativeHandle) for part in self._task.chunk.parts)
            plain = _READERS[self._kind][1]
            is_source = self._task.side is Side.SOURCE
            reader = plain(
                self._rules[name], self._task.conversion, self._states, are_bytes=native, is_source=is_source
            )
        return SampledKeys.of(sample, reader.expected if self._task.side is Side.SOURCE else reader.found)

    def read(self) -> None:
        task, window = self._task, np.empty(WINDOW, np.uint8)
        knows_more = bool(self._by_kryo) or task.conversion.keys is not None
        rewrite = self._rewritten if task.side is Side.SOURCE and knows_more else None
        for part in task.chunk.parts:
            width = task.chunk.max_parallelism
            with open_keyed(task.folder, part.handle, width, part.subtask, self._read, part.key_groups) as file:
                if task.side is Side.STAGED:
                    # The reader's own check of the keys is switched off, because the validation names what is wrong.
                    file.membership = _AnyMember(file.header, task.chunk.max_parallelism, file.prefix)
                if task.only is not None and isinstance(file, NativeFile):
                    file.read_only(task.only)
                states = keyed_states(file.header, file.name)
                self._states.update({state.name: state for state in states})
                for neighbours in _runs(part.key_groups):
                    plain = self._plain_rows(file, neighbours)
                    for key_group in neighbours:
                        see = None if plain is None else plain.see
                        self._read_group(GroupSections(file, key_group, states, window, see, rewrite))
                    if plain is not None:
                        plain.end()
                        self._plain.add(plain.result)
                if isinstance(file, NativeFile):
                    self._sums |= file.sums

    def _read_group(self, group: GroupSections) -> None:
        if self._task.side is Side.SOURCE:
            self._expected.read(group)
            return
        self._staged(group)
        self._equal.settle(group, self._hashes_of_rows)
        if self._of_staged is not None:
            self._of_staged.read(group, carries=False)

    def _rewritten(
        self, key_group: int, found: Iterator[tuple[KeyedState, Section]]
    ) -> Iterator[tuple[KeyedState, Section]]:
        """The sections as a job of Flink 2 would have written them, with what an upgrade lost."""
        if (before := self._task.conversion.before) is None:
            for state, section in found:
                made = self._for_other_kryo(state, section)
                # A sample is of what is there: of what plain code turns into what it must become by itself.
                known = self._by_kryo.get(state.name)
                self._expected.in_source = section if known is not None and is_of_flink_1(known) else None
                yield self._task.conversion.written(state), made
        else:
            is_again = key_group == self._seen_group
            losses = GroupLosses(before, key_group, {} if is_again else self._losses)
            for name, section in () if is_again else losses.rows:
                if name in self._read_by_kryo and name in self._samples:
                    self._samples[name].see(before_the_upgrade(name), section, hashes_of_keys(section))
            yield from losses.sections(self._by_kryo, found, self._for_other_kryo, self._see)
        self._seen_group = key_group

    def _for_other_kryo(self, state: KeyedState, section: Section) -> Section:
        """The section as a job of Flink 2 would have written it; a sample is taken of what is there."""
        known = self._by_kryo.get(state.name)
        if known is None:
            return section
        made = for_other_kryo(section, known)
        self._see(state, section, made)
        return made

    def _see(self, state: KeyedState, section: Section, made: Section) -> None:
        if section.key_group == self._seen_group:
            return
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
                if self._task.probe is None and not isinstance(section.file, NativeFile):
                    self._equal.meet(state.name, entries.pairs if self._is_made_map(state.name) else keys)
                for name, sample in self._samples.items():
                    if name in self._read_by_kryo and state.name == name:
                        sample.see(name, section, hashes_of_keys(section))
                    elif state.name in self._sampled.get(name, ()):
                        sample.see(state.name, section, keys)
                if self._task.probe is None or not self._task.probe.strays:
                    self._sink.add(state.name, entries, np.ones(len(entries), np.bool_))
                if spans is not None:
                    self._check_keys(state.name, section, entries, spans, blobs)

    def _is_made_map(self, name: str) -> bool:
        return name in self._made and self._made[name].kind is StateKind.MAP

    def _hashes_of_rows(self, name: str, section: Section) -> Hashes:
        if not self._is_made_map(name):
            return hashes_of_keys(section)
        return map_rows(section, self._made[name], np.full(len(section), section.key_group, np.int64)).pairs

    def _key_spans(self, name: str, section: Section) -> KeySpans | None:
        """The section's keys; None if keys are not checked, or their hashes aren't stable."""
        state = self._task.conversion.expected_states.get(name)
        if not self._task.check_keys or state is None or why_no_hash(state.key):
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
