"""Measures the keyed state of an operator: rows, bytes and keys of each key group, and of each key.

All rows of a key are in one key group. So the keys of a key group are complete when it has been read, and the heaviest
keys are exact. Memory is bounded: a key group of many keys is read several times, each time for a part of its keys,
chosen by a hash. Of more than `MOST_KEYS` keys a sample is kept, also chosen by the hash, and the heaviest ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from flinkstate.basics.array_types import Codes, Hashes
from flinkstate.hashing.java_hash import hash_codes, unstable_reason
from flinkstate.hashing.key_group_arrays import murmur
from flinkstate.keyed.key_group_check import key_offset, why_not_shown
from flinkstate.keyed.keyed_file import WINDOW, KeyedFile, Section
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import opaque_parts
from flinkstate.serializers.types import FlinkType, type_name
from flinkstate.serializers.walker import skip_runs
from flinkstate.values.codecs import decode_whole
from flinkstate.values.value_json import json_text
from stateferry.changes.key_hashes import hash_each, key_lanes
from stateferry.look.balance.kernels import Weights

MOST_KEYS = 6_000_000
# Runs of rows of one key that are held while a key group is read.
_MOST_RUNS = 1 << 21
_MOST_HEAVY = 4096
MEASURES = ("bytes", "rows", "keys")


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Keys, or runs of rows of one key each: a hash that tells keys apart, the murmur hash, rows and bytes.

    `contents` is a hash of the rows that doesn't depend on their order, `traffic` the work that the key makes. Both
    are 0 if nobody asked for the traffic.
    """

    identities: Hashes
    hashes: Codes
    rows: Weights
    bytes: Weights
    contents: Hashes
    traffic: Weights

    @classmethod
    def none(cls) -> Keys:
        hashes, numbers = np.empty(0, np.uint64), np.empty(0, np.int64)
        return cls(hashes, np.empty(0, np.int32), numbers, numbers, hashes, numbers)

    @classmethod
    def joined(cls, parts: list[Keys]) -> Keys:
        if len(parts) == 1:
            return parts[0]
        columns = [part._columns for part in [cls.none(), *parts]]
        return cls(*(np.concatenate(column) for column in zip(*columns, strict=True)))

    @property
    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self.identities, self.hashes, self.rows, self.bytes, self.contents, self.traffic

    def some(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Keys:
        return Keys(*(column[chosen] for column in self._columns))

    def summed(self) -> Keys:
        """Returns each key once, with the sums of its rows and bytes."""
        if not len(self):
            return self
        order = np.argsort(self.identities, kind="stable")
        sorted_ = self.some(order)
        firsts = np.flatnonzero(np.append(True, sorted_.identities[1:] != sorted_.identities[:-1]))
        sums = [np.add.reduceat(weights, firsts) for weights in sorted_._columns[2:]]
        return Keys(sorted_.identities[firsts], sorted_.hashes[firsts], *sums)

    def weights(self, measure: str) -> Weights:
        """Returns the keys' rows or bytes, 1 for each key, or in any other measure their traffic."""
        if measure == "keys":
            return np.ones(len(self), np.int64)
        return {"rows": self.rows, "bytes": self.bytes}.get(measure, self.traffic)

    def __len__(self) -> int:
        return len(self.identities)


@dataclass(frozen=True, slots=True)
class WeighedKey:
    """One of the heaviest keys; the text is as `stateferry dump` prints it, or None if it can't be decoded."""

    key_group: int
    rows: int
    bytes: int
    weight: int
    identity: int
    text: str | None


@dataclass(frozen=True, slots=True, eq=False)
class KeyWeights:
    """What an operator's keyed state weighs.

    `groups` has rows, bytes and keys of each key group, and its traffic if that is the measure. `keys` has all keys, or
    a sample of them: those that weigh more than `heavy_above`, and a share `sampled` of the others. `why_no_keys` says
    why keys can't be told apart, `why_fixed` why their key groups at another max parallelism aren't known.
    """

    operator: Operator
    key: FlinkType
    measure: str
    groups: dict[str, Weights]
    keys: Keys
    heavy_above: int
    sampled: float
    heaviest: tuple[WeighedKey, ...]
    why_no_keys: str | None
    why_fixed: str | None

    @property
    def total(self) -> int:
        return int(self.groups[self.measure].sum())

    @property
    def key_weights(self) -> Weights:
        """The weight of each of `keys`; those of a sample are scaled, so that all together weigh what all keys do."""
        weights = self.keys.weights(self.measure)
        if self.sampled == 1:
            return weights
        is_heavy = weights > self.heavy_above
        rest, found = self.total - int(weights[is_heavy].sum()), int(weights[~is_heavy].sum())
        scaled: Weights = np.where(is_heavy, weights, np.rint(weights * (rest / max(found, 1))).astype(np.int64))
        return scaled


class Traffic(Protocol):
    """How much work each key makes, by a measure of this name."""

    @property
    def name(self) -> str: ...

    def of(self, key_group: int, keys: Keys) -> Weights:
        """Returns the traffic of complete keys of a key group."""


def measure_keys(
    savepoint: Savepoint,
    operator: Operator,
    measure: str,
    *,
    traffic: Traffic | None = None,
    heaviest: int = 10,
    most_keys: int = MOST_KEYS,
    most_runs: int = _MOST_RUNS,
    bytes_read: Callable[[int], None] = lambda count: None,
) -> KeyWeights | None:
    """Reads all keyed state of the operator once, and key groups with some of the heaviest keys again.

    With `traffic` that is the measure. Returns None if the operator has no keyed state.
    """
    found: _Measured | None = None
    for file in savepoint.open_files(operator):
        if found is None:
            named = measure if traffic is None else traffic.name
            found = _Measured(file.header.key_serializer.type, operator.max_parallelism, named, most_keys, traffic)
        reader = _FileReader(file, found, most_runs)
        for key_group, extent in file.extents.items():
            reader.read(key_group)
            bytes_read(extent.end - extent.start)
    return None if found is None else found.finish(savepoint, operator, heaviest)


@dataclass(slots=True)
class _Measured:
    key: FlinkType
    max_parallelism: int
    measure: str
    most_keys: int
    traffic: Traffic | None = None
    groups: dict[str, Weights] = field(init=False)
    heavy: Keys = field(default_factory=Keys.none)
    heavy_groups: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    sample: list[Keys] = field(default_factory=list)
    sample_size: int = 0
    # Keys whose identity is at most this are in the sample.
    sample_below: int = 2**64 - 1
    why_no_keys: str | None = None
    why_fixed: str | None = None

    def __post_init__(self) -> None:
        measures = dict.fromkeys([*MEASURES, self.measure])
        self.groups = {measure: np.zeros(self.max_parallelism, np.int64) for measure in measures}
        if opaque := opaque_parts(self.key):
            self.why_no_keys = f"the end of a {type_name(self.key)} can't be found: {opaque[0].reason}"
        unknown = self.why_no_keys or unstable_reason(self.key)
        self.why_fixed = unknown or why_not_shown(self.key, self.max_parallelism)

    def add(self, key_group: int, keys: Keys) -> None:
        """Adds complete keys of a key group."""
        self.groups["keys"][key_group] += len(keys)
        if self.traffic is not None:
            keys = replace(keys, traffic=self.traffic.of(key_group, keys))
            self.groups[self.measure][key_group] += int(keys.traffic.sum())
        self._add_heavy(key_group, keys)
        self.sample.append(keys.some(keys.identities <= np.uint64(self.sample_below)))
        self.sample_size += len(self.sample[-1])
        while self.sample_size > self.most_keys:
            self.sample_below >>= 1
            kept = [part.some(part.identities <= np.uint64(self.sample_below)) for part in self.sample]
            self.sample, self.sample_size = kept, sum(map(len, kept))

    def _add_heavy(self, key_group: int, keys: Keys) -> None:
        full = len(self.heavy) >= _MOST_HEAVY
        least = int(self.heavy.weights(self.measure).min()) if full else -1
        heavier = keys.some(keys.weights(self.measure) > least)
        heavy = Keys.joined([self.heavy, heavier])
        groups = np.append(self.heavy_groups, np.full(len(heavier), key_group))
        order = np.argsort(-heavy.weights(self.measure), kind="stable")[:_MOST_HEAVY]
        self.heavy, self.heavy_groups = heavy.some(order), groups[order]

    def finish(self, savepoint: Savepoint, operator: Operator, count: int) -> KeyWeights:
        keys, sampled, above = Keys.joined([Keys.none(), *self.sample]), (self.sample_below + 1) / 2**64, -1
        if sampled < 1:
            # The lightest of the heavy keys may be as heavy as others that were left out.
            above = int(self.heavy.weights(self.measure).min())
            heavier = self.heavy.some(self.heavy.weights(self.measure) > above)
            keys = Keys.joined([heavier, keys.some(keys.weights(self.measure) <= above)])
        shown = self.heavy.identities[:count]
        texts = _texts(savepoint, operator, self.key, shown, set(self.heavy_groups[:count].tolist()))
        found = tuple(
            WeighedKey(group, rows, size, weight, identity, texts.get(identity))
            for group, rows, size, weight, identity in zip(
                self.heavy_groups[:count].tolist(),
                self.heavy.rows[:count].tolist(),
                self.heavy.bytes[:count].tolist(),
                self.heavy.weights(self.measure)[:count].tolist(),
                shown.tolist(),
                strict=True,
            )
        )
        return KeyWeights(
            operator, self.key, self.measure, self.groups, keys, above, sampled, found, self.why_no_keys, self.why_fixed
        )


class _TooManyRunsError(Exception):
    """The keys of a key group take more memory than they may."""


class _FileReader:
    """Reads the keys of one file's key groups."""

    def __init__(self, file: KeyedFile, measured: _Measured, most_runs: int) -> None:
        self._file, self._measured, self._most = file, measured, most_runs
        states = range(len(file.header.states))
        self._offsets = [key_offset(file.header, state, file.prefix) for state in states]
        self._window = np.empty(WINDOW, np.uint8)

    def read(self, key_group: int) -> None:
        self._read_part(key_group, 1, 0)

    def _read_part(self, key_group: int, parts: int, part: int) -> None:
        """Adds the keys of a part, in two halves if they are too many."""
        try:
            keys = self._part(key_group, parts, part)
        except _TooManyRunsError:
            self._read_part(key_group, 2 * parts, part)
            self._read_part(key_group, 2 * parts, part + parts)
        else:
            self._measured.add(key_group, keys)

    def _part(self, key_group: int, parts: int, part: int) -> Keys:
        """Returns the keys whose identity modulo `parts` is `part`; part 0 also counts rows and bytes."""
        found: list[Keys] = []
        runs = rows = size = 0
        for section in self._file.sections(key_group, self._window):
            rows, size = rows + len(section), size + len(section.raw)
            offset = self._offsets[section.state]
            if offset is None or self._measured.why_no_keys is not None:
                continue
            keys = self._runs(section, offset)
            if parts > 1:
                keys = keys.some(keys.identities % np.uint64(parts) == part)
            found, runs = [*found, keys], runs + len(keys)
            if runs > self._most:
                found = [Keys.joined(found).summed()]
                if (runs := len(found[0])) > self._most // 2:
                    raise _TooManyRunsError
        if part == 0:
            self._measured.groups["rows"][key_group] = rows
            self._measured.groups["bytes"][key_group] = size
        return Keys.joined(found).summed() if found else Keys.none()

    def _runs(self, section: Section, offset: int) -> Keys:
        measured, key = self._measured, self._measured.key
        starts = section.starts + offset
        with section.locating():
            firsts, ends = skip_runs(key, section.data, starts, section.key_ends)
            places = np.searchsorted(starts, firsts)
            rows = np.diff(np.append(places, len(starts)))
            begins = np.append(section.starts[places], section.ends[-1])
            identities, _ = key_lanes(section.data, firsts, ends)
            hashes = np.zeros(len(firsts), np.int32)
            if measured.why_fixed is None:
                hashes = murmur(hash_codes(key, section.data, firsts, ends))
                if (hashes % np.int32(measured.max_parallelism) != section.key_group).any():
                    measured.why_fixed = (
                        f"a {type_name(key)} isn't where its hash by position leads: the job sets its fields by name, "
                        "or Flink 1.12 wrote this"
                    )
        contents = np.zeros(len(firsts), np.uint64)
        if measured.traffic is not None:
            contents = np.add.reduceat(self._content(section), places)
        return Keys(identities, hashes, rows, np.diff(begins), contents, np.zeros(len(firsts), np.int64))

    def _content(self, section: Section) -> Hashes:
        """Returns a hash of each row, which is another one in another state."""
        # Ids of states differ between savepoints, names don't.
        name = self._file.header.states[section.state].name.encode(errors="surrogatepass")
        seed = np.frombuffer(blake2b(name, digest_size=8).digest(), np.uint64)
        return hash_each(section.data, section.starts, section.ends, np.repeat(seed, len(section)))


def _texts(
    savepoint: Savepoint, operator: Operator, key: FlinkType, identities: Hashes, key_groups: set[int]
) -> dict[int, str | None]:
    """Returns the keys with these identities as text, by identity."""
    texts: dict[int, str | None] = {}
    if not len(identities):
        return texts
    text = json_text(key)
    for file in savepoint.open_files(operator):
        offsets = [key_offset(file.header, state, file.prefix) for state in range(len(file.header.states))]
        for key_group in sorted(key_groups.intersection(file.extents)):
            for section in file.sections(key_group):
                if (offset := offsets[section.state]) is None:
                    continue
                firsts, ends = skip_runs(key, section.data, section.starts + offset, section.key_ends)
                found, _ = key_lanes(section.data, firsts, ends)
                for place in np.flatnonzero(np.isin(found, identities)):
                    data = section.data[firsts[place] : ends[place]].tobytes()
                    texts.setdefault(int(found[place]), text(decode_whole(key, data)))
    return texts
