"""Describes wrong entries in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flinkstate.errors import StateferryError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import FlinkType, Scalar
from flinkstate.values.codecs import decode, decode_whole
from flinkstate.values.value_json import value_json
from stateferry.proof.expected.content import Entries, hash_ranges
from stateferry.proof.expected.expected_entries import EXPIRED

MOST_SAMPLES = 10
_MOST_TEXT = 200
_MOST_BYTES = 1 << 16
_SIGN = 1 << 63
_LABELS = (
    ("timer", "timer of "),
    ("key", "key "),
    ("namespace", "namespace "),
    ("user_key", "user key "),
    ("rest", ""),
)


@dataclass(frozen=True, slots=True)
class ProbedEntry:
    """An entry as texts, and hashes of values whose text may be cut.

    `named` are the parts of its key with namespace and user key. `pair` is the hash of these, `hash` that of all of the
    entry. `why` says why the entry must not be in the new state, if it must not.
    """

    key_group: int
    named: Mapping[str, str]
    is_null: bool
    value: str
    value_hash: int
    timestamp: int | None
    pair: int
    hash: int
    why: str | None

    def has_content_of(self, other: ProbedEntry) -> bool:
        """Whether null flag, value and timestamp are the same."""
        mine, others = ((one.is_null, one.value_hash, one.timestamp) for one in (self, other))
        return mine == others

    @property
    def name(self) -> str:
        """The entry's key, namespace and user key in words."""
        return ", ".join(f"{label}{self.named[part]}" for part, label in _LABELS if part in self.named)


def describe(
    entries: Entries, index: int, hash_: int, state: KeyedState | None, is_new: bool, why: str | None
) -> ProbedEntry:
    """Describes an entry; `is_new` says that it is of a new state, whose value is split into its parts."""
    data, owner = entries.data, int(entries.owners[index])
    key = entries.key_data[entries.key_starts[owner] : entries.key_ends[owner]].tobytes()
    user_key = data[entries.user_starts[index] : entries.user_ends[index]].tobytes()
    null = int(entries.nulls[index])
    value = data[entries.value_starts[index] : entries.value_ends[index]] if null != 2 else entries.null
    value_hash = hash_ranges(value, np.array([0]), np.array([len(value)]))[0]
    return ProbedEntry(
        int(entries.groups[index]),
        _key_texts(key, user_key, state, is_new),
        null == 1,
        _value_text(value.tobytes(), state, is_new) if null != 1 else "null",
        int(value_hash),
        int(entries.stamps[index]) if len(entries.stamps) else None,
        int(entries.pairs[index]),
        hash_,
        why,
    )


def _key_texts(key: bytes, user_key: bytes, state: KeyedState | None, is_new: bool) -> dict[str, str]:
    if state is None:
        return {"key": _hex(key)}
    texts: dict[str, str] = {}
    try:
        position = 0
        if state.kind is StateKind.TIMERS:
            # The sign is flipped in the bytes, so that timers sort by their bytes.
            texts["timer"] = str(int.from_bytes(key[:8], "big") - _SIGN)
            position = 8
        value, position = decode(state.key, key, position)
        texts["key"] = value_json(state.key, value)
        if state.has_suffixes:
            return {**texts, "rest": _hex(key[position:] + user_key)}
        value, position = decode(state.namespace, key, position)
        if state.namespace is not Scalar.VOID_NAMESPACE:
            texts["namespace"] = value_json(state.namespace, value)
        if state.user_key is not None:
            texts["user_key"] = _text(state.user_key, user_key if is_new else key[position:])
    except (StateferryError, IndexError):
        return {"key": _hex(key + user_key)}
    return texts


def _value_text(value: bytes, state: KeyedState | None, is_new: bool) -> str:
    if state is None or state.stored_value is None or state.kind is StateKind.LIST:
        return _hex(value)
    if is_new and state.value is not None:
        return _text(state.value, value)
    if state.kind is StateKind.MAP:
        return "null" if value[:1] == b"\x01" else _text(state.stored_value, value[1:])
    return _text(state.stored_value, value)


def _text(type_: FlinkType, data: bytes) -> str:
    if len(data) > _MOST_BYTES:
        return f"{len(data)} bytes"
    try:
        return _cut(value_json(type_, decode_whole(type_, data)))
    except StateferryError:
        return _hex(data)


def _hex(data: bytes) -> str:
    return _cut(f"0x{data[:_MOST_TEXT].hex()}")


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."


def compare(source: Iterable[ProbedEntry], staged: Iterable[ProbedEntry]) -> list[tuple[int, str]]:
    """Up to ten samples of what is wrong, each with its key group."""
    expected: dict[int, list[ProbedEntry]] = defaultdict(list)
    left_out: dict[int, list[ProbedEntry]] = defaultdict(list)
    found: dict[int, list[ProbedEntry]] = defaultdict(list)
    for item in source:
        (left_out if item.why else expected)[item.pair].append(item)
    for item in staged:
        found[item.pair].append(item)
    samples: list[tuple[int, str]] = []
    for pair in sorted(expected.keys() | found.keys()):
        samples += _differences(expected[pair], left_out[pair], found[pair])
    return samples[:MOST_SAMPLES]


def _differences(
    expected: Sequence[ProbedEntry], left_out: Sequence[ProbedEntry], found: Sequence[ProbedEntry]
) -> list[tuple[int, str]]:
    """The differences between entries with the same key and user key."""
    missing, surplus = list(expected), []
    for item in found:
        same = next((other for other in missing if other.hash == item.hash), None)
        if same is not None:
            missing.remove(same)
        else:
            surplus.append(item)
    samples = []
    for item in surplus:
        twin = next((other for other in expected if other.hash == item.hash), None)
        here = next((other for other in missing if other.key_group == item.key_group), None)
        elsewhere = next((other for other in missing if other.has_content_of(item)), None)
        reason = next((other.why for other in left_out if other.has_content_of(item)), None)
        if twin is not None:
            what = "doubled"
        elif here is not None:
            missing.remove(here)
            what = _changed(here, item)
        elif elsewhere is not None:
            missing.remove(elsewhere)
            what = f"in a wrong key group: it belongs to {elsewhere.key_group}"
        elif any(other.has_content_of(item) for other in expected):
            what = "doubled, the second time in a wrong key group"
        elif reason == EXPIRED:
            what = "expired, and kept"
        elif reason:
            what = f"there, but should not be: {reason}"
        else:
            what = "not in the source"
        samples.append((item.key_group, f"{item.name}: {what}"))
    for item in missing:
        alive = f" (alive, of {item.timestamp})" if item.timestamp is not None else ""
        samples.append((item.key_group, f"{item.name}: missing{alive}, with the value {item.value}"))
    return samples


def _changed(expected: ProbedEntry, found: ProbedEntry) -> str:
    changes = []
    if expected.timestamp != found.timestamp:
        changes.append(f"timestamp: expected {expected.timestamp}, found {found.timestamp}")
    if expected.is_null != found.is_null or expected.value_hash != found.value_hash:
        part = "null" if expected.is_null != found.is_null else "value"
        changes.append(f"{part}: expected {expected.value}, found {found.value}")
    return "; ".join(changes)
