"""A piece of work of the validation: reads one chunk of keyed state, of the source or of the staged savepoint.

Any process may do it. The result is a small dict of facts. Without a probe the facts are an account: counts and sums of
hashes by state and key group of the new savepoint. A probe reads some key groups of one state more closely: first it
counts by slices (ranges of the hash of key and user key), then it returns the entries in the slices that differ.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from stateferry.errors import DamagedError, RefusedError, StateferryError
from stateferry.hashing.java_hash import unstable_reason
from stateferry.savepoint import kernels
from stateferry.savepoint.bytes_read import BytesRead
from stateferry.savepoint.chunks import Chunk
from stateferry.savepoint.compression import Buffer
from stateferry.savepoint.group_sections import GroupSections
from stateferry.savepoint.header import KeyedHeader
from stateferry.savepoint.key_group_file import WINDOW, KeyGroupFile, Section
from stateferry.savepoint.membership import Membership
from stateferry.savepoint.state import KeyedState, keyed_states
from stateferry.savepoint.storage import Location
from stateferry.serializers.walker import Flags, Positions
from stateferry.ttl import expired_array
from stateferry.validation.content import Account, Book, Entries, KeyRuns, map_rows, plain_entries
from stateferry.validation.expectation import Expectation
from stateferry.validation.plain_reader import PlainReader, plain_facts
from stateferry.validation.promise import OperatorPromise
from stateferry.validation.sample_text import MOST_SAMPLES, describe
from stateferry.validation.sampling import KeySample, SampleSpec

Facts = dict[str, Any]
# The key of the facts that say which bytes of the source were read.
READ = "read"


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


@dataclass(frozen=True, slots=True)
class KeyedSpec:
    """A piece of work: a chunk to read.

    With `check_keys`, the hash of every key must lead to its key group. With `sample`, some keys of migrated states are
    read a second time, by plain code.
    """

    side: Side
    folder: Location
    operator: str
    chunk: Chunk
    promise: OperatorPromise
    check_keys: bool
    probe: Probe | None = None
    sample: SampleSpec | None = None

    @property
    def size(self) -> int:
        return self.chunk.size

    def run(self) -> Facts:
        """Reads the chunk and returns the facts."""
        began = time.monotonic()
        reading = _Reading(self)
        facts: Facts = {"side": self.side.value, "operator": self.operator, "size": self.size, "damage": None}
        try:
            reading.read()
        except (DamagedError, RefusedError) as error:
            facts["damage"] = damage(error)
        return {**facts, **reading.facts(), "seconds": time.monotonic() - began}


def damage(error: StateferryError) -> dict[str, Any]:
    """An error as facts."""
    if not isinstance(error, DamagedError):
        return {"text": str(error), "key_group": None}
    parts = {name: getattr(error, name) for name in ("expected", "found", "file", "offset", "key_group")}
    return {"text": str(error), **parts}


def as_error(found: dict[str, Any]) -> StateferryError:
    """The error in facts that `damage` has written."""
    if "expected" not in found:
        return RefusedError(found["text"])
    return DamagedError(
        found["expected"],
        found["found"],
        file=found["file"],
        offset=found["offset"],
        key_group=found["key_group"],
    )


class _Accounts:
    """Accounts of all entries, by state and key group."""

    def __init__(self, size: int) -> None:
        self.book = Book(size)

    def add(self, state: str, entries: Entries, chosen: Flags) -> None:
        self.book.of(state).add(entries.groups, entries.hashes(), chosen)

    def leave_out(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        pass

    def withdraw(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        self.book.of(state).take_off(entries.groups, entries.hashes(), chosen)

    def facts(self) -> Facts:
        return {"accounts": self.book.to_facts()}


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

    def facts(self) -> Facts:
        return {"slices": self._account.to_facts()}


class _Items:
    """The probed entries themselves; those that must not be in the new state have the reason (`why`)."""

    def __init__(self, probe: Probe, promise: OperatorPromise) -> None:
        self._probe, self._promise = probe, promise
        self._items: list[dict[str, Any]] = []

    def _described(self, state: str, entries: Entries, chosen: Flags, why: str | None) -> Iterator[dict[str, Any]]:
        if state != self._probe.state:
            return
        if not self._probe.strays:
            chosen = chosen & np.isin(slices_of(entries.pairs, self._probe.bits), self._probe.slices)
        chosen = chosen & np.isin(entries.groups, self._probe.key_groups)
        hashes = entries.hashes() if chosen.any() else ()
        described = self._promise.expected_states.get(state)
        for index in np.flatnonzero(chosen).tolist():
            yield {
                **describe(entries, index, described, state in self._promise.new_states),
                "group": int(entries.groups[index]),
                "pair": int(entries.pairs[index]),
                "hash": int(hashes[index]),
                "why": why,
            }

    def add(self, state: str, entries: Entries, chosen: Flags) -> None:
        self._items += self._described(state, entries, chosen, None)

    def leave_out(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        self._items += self._described(state, entries, chosen, why)

    def withdraw(self, state: str, entries: Entries, chosen: Flags, why: str) -> None:
        for gone in self._described(state, entries, chosen, why):
            self._items.remove({**gone, "why": None})
            self._items.append(gone)

    def facts(self) -> Facts:
        return {"items": self._items[:MOST_SAMPLES] if self._probe.strays else self._items}


@dataclass(slots=True)
class _Found:
    """Wrong entries of the staged savepoint, counted by state and key group."""

    strays: dict[str, Counter[int]] = field(default_factory=dict)
    expired: dict[str, Counter[int]] = field(default_factory=dict)

    def facts(self) -> Facts:
        return {
            name: {state: sorted(groups.items()) for state, groups in found.items() if groups}
            for name, found in (("strays", self.strays), ("expired", self.expired))
        }


class _Reading:
    """Reads one chunk and collects the facts."""

    def __init__(self, spec: KeyedSpec) -> None:
        self._spec, self._found, self._entries = spec, _Found(), 0
        # A probe reads only a part, for the second time.
        self._read = BytesRead() if spec.side is Side.SOURCE and spec.probe is None else None
        self._sink: _Accounts | _Slices | _Items
        if spec.probe is None:
            # The staged savepoint may have another max parallelism than promised.
            self._sink = _Accounts(max(spec.promise.new_max, spec.chunk.max_parallelism))
        elif spec.probe.slices or spec.probe.strays:
            self._sink = _Items(spec.probe, spec.promise)
        else:
            self._sink = _Slices(spec.probe)
        self._samples: dict[str, KeySample] = {}
        if spec.sample is not None:
            for rules in spec.promise.rules:
                self._samples[rules.new_name] = KeySample(spec.sample, rules.legacy.name, rules.legacy.ttl)
        self._sampled = {
            rules.new_name: {rules.new_name, rules.legacy.name, rules.flag_name} for rules in spec.promise.rules
        }
        self._expectation = Expectation(spec.promise, self._sink, self._samples)
        self._new_states = spec.promise.new_states
        self._rules = {rules.new_name: rules for rules in spec.promise.rules}
        self._states: dict[str, KeyedState] = {}

    def facts(self) -> Facts:
        counts = {state: dict(counts) for state, counts in self._expectation.counts.items()}
        return {
            **self._sink.facts(),
            **self._found.facts(),
            "counts": counts,
            "entries": self._entries,
            "plain": {name: self._plain(name, sample) for name, sample in self._samples.items()},
            READ: None if self._read is None else self._read.to_facts(),
        }

    def _plain(self, name: str, sample: KeySample) -> Facts:
        reader = PlainReader(self._rules[name], self._spec.promise, self._states)
        return plain_facts(sample, reader.expected if self._spec.side is Side.SOURCE else reader.found)

    def read(self) -> None:
        spec, window = self._spec, np.empty(WINDOW, np.uint8)
        for part in spec.chunk.parts:
            width = spec.chunk.max_parallelism
            with KeyGroupFile(spec.folder, part.handle, width, part.subtask, self._read) as file:
                if spec.side is Side.STAGED:
                    # The reader's own check of the keys is switched off, because the validation names what is wrong.
                    file.membership = _AnyMember(file.header, spec.chunk.max_parallelism, file.prefix)
                states = keyed_states(file.header, file.name)
                self._states.update({state.name: state for state in states})
                for key_group in part.key_groups:
                    group = GroupSections(file, key_group, states, window)
                    if spec.side is Side.SOURCE:
                        self._expectation.read(group)
                    else:
                        self._staged(group)

    def _staged(self, group: GroupSections) -> None:
        for state, section in group:
            self._entries += len(section)
            with section.locating():
                runs = self._key_runs(state.name, section)
                entries = self._staged_entries(state.name, section, runs)
                for name, sample in self._samples.items():
                    if state.name in self._sampled[name]:
                        sample.see(state.name, section, entries.keys)
                if self._spec.probe is None or not self._spec.probe.strays:
                    self._sink.add(state.name, entries, np.ones(len(entries), np.bool_))
                if runs is not None:
                    self._check_keys(state.name, section, entries, runs)

    def _key_runs(self, name: str, section: Section) -> KeyRuns | None:
        """The runs of equal keys; None if keys are not checked, or their hashes aren't stable."""
        state = self._spec.promise.expected_states.get(name)
        if not self._spec.check_keys or state is None or unstable_reason(state.key):
            return None
        return KeyRuns.of(section, state)

    def _staged_entries(self, name: str, section: Section, runs: KeyRuns | None) -> Entries:
        groups = np.full(len(section), section.key_group, np.int64)
        if name not in self._new_states:
            return plain_entries(section, groups)
        entries, rules = map_rows(section, self._new_states[name], groups, runs), self._rules[name]
        if rules.ttl is not None and rules.drops_expired:
            expired = int(expired_array(entries.stamps, rules.ttl, rules.now).sum())
            self._found.expired.setdefault(name, Counter())[section.key_group] += expired
        return entries

    def _check_keys(self, name: str, section: Section, entries: Entries, runs: KeyRuns) -> None:
        promise = self._spec.promise
        groups = runs.groups(section, promise.expected_states[name], promise.new_max)
        if (groups == section.key_group).all():
            return
        strays = runs.per_entry(groups) != section.key_group
        self._found.strays.setdefault(name, Counter())[section.key_group] += int(strays.sum())
        if self._spec.probe is not None and self._spec.probe.strays:
            self._sink.add(name, entries, strays)


class _AnyMember(Membership):
    """Accepts keys of any key group."""

    def __init__(self, header: KeyedHeader, max_parallelism: int, prefix: int) -> None:
        super().__init__(header, max_parallelism, prefix)
        self.keys[:] = kernels.NO_KEY

    def check(self, state: int, key_group: int, data: Buffer, starts: Positions, key_ends: Positions) -> None:
        pass
