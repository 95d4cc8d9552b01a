"""A job's state in the midst of its own migration, as plain Python: written as a savepoint, migrated the naive way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flinkstate.hashing.java_hash import hash_codes
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.hashing.key_groups import KeyGroupRange, key_group_prefix_bytes
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.built_snapshots import kryo_snapshot, map_snapshot, simple_snapshot, ttl_snapshot
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import MapType, Scalar
from flinkstate.ttl import expired
from flinkstate.values.codecs import encode
from flinkstate.writing.writer import SavepointWriter
from stateferry.changes.rules import Contradiction, Rules
from tests.support.kryo_writing import kryo_map

LEGACY, NEW, FLAG = "mainState", "newMainState", "isMigratedState"
UserMap = Mapping[Any, object]


@dataclass(frozen=True)
class LegacyState:
    """Blobs are (map, timestamp) by key; rows (value, timestamp) by key and user key; flags timestamps by key, true
    ones and false ones. Without TTL no timestamp is written. Blobs by Kryo, whose number `kryo` is, may be null."""

    blobs: Mapping[str, tuple[UserMap, int]] = field(default_factory=dict)
    rows: Mapping[str, Mapping[str, tuple[object, int]]] = field(default_factory=dict)
    flags: Mapping[str, int] = field(default_factory=dict)
    ttl: bool = False
    value: Scalar = Scalar.LONG
    kryo: int | None = None
    # Keys whose blob the other Kryo wrote.
    other_kryo: frozenset[str] = frozenset()
    max_parallelism: int = 128
    checkpoint_id: int = 1
    # Of `_metadata`: Flink 1.20 writes 4, without names of operators.
    version: int = 6
    false_flags: Mapping[str, int] = field(default_factory=dict)
    has_flag_state: bool = True
    flag_ttl: bool | None = None
    # Further states by name, with contents as above; states that aren't there; and other names for those above.
    more_blobs: Mapping[str, Mapping[str, tuple[UserMap, int]]] = field(default_factory=dict)
    more_rows: Mapping[str, Mapping[str, Mapping[str, tuple[object, int]]]] = field(default_factory=dict)
    more_flags: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lacks: frozenset[str] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)
    # Other serializers of values than follow from the above, of states without entries.
    serializers: Mapping[str, SerializerSnapshot] = field(default_factory=dict)

    def with_changes(self, **changes: object) -> LegacyState:
        return replace(self, **changes)  # type: ignore[arg-type]

    def write(self, target: str, **others: LegacyState) -> Savepoint:
        """Writes a savepoint in which the operator `main` has these states, and `others` by their names have theirs."""
        writer = SavepointWriter(target)
        operators = tuple(one._write(writer, name) for name, one in {"main": self, **others}.items())
        writer.commit(Metadata(self.version, self.checkpoint_id, operators, properties=b"\xac\xed\x00\x05\x70"))
        return Savepoint.open(target)

    def _write(self, writer: SavepointWriter, name: str) -> Operator:
        whole, id_ = KeyGroupRange(0, self.max_parallelism - 1), operator_id(name)
        with writer.keyed_file(id_.hex(), 0, self._header(), whole) as file:
            for key_group, states in sorted(self._entries().items()):
                for number, entries in sorted(states.items()):
                    data = np.frombuffer(b"".join(entries), np.uint8).copy()
                    file.entries(key_group, number, data, len(data) - len(entries[-1]))
            subtask = Subtask(0, managed_keyed=file.close())
        return Operator(id_, 1, self.max_parallelism, name, name, subtasks=(subtask,))

    def _header(self) -> KeyedHeader:
        text, value, boolean = map(simple_snapshot, (Scalar.STRING, self.value, Scalar.BOOLEAN))
        namespace = (NAMESPACE_SERIALIZER, simple_snapshot(Scalar.VOID_NAMESPACE))

        def meta(name: str, kind: str, snapshot: SerializerSnapshot) -> StateMeta:
            options = ((KEYED_STATE_TYPE, kind),)
            return StateMeta(name, BackendKind.KEY_VALUE, options, ((VALUE_SERIALIZER, snapshot), namespace))

        def stamped(snapshot: SerializerSnapshot) -> SerializerSnapshot:
            return ttl_snapshot(snapshot) if self.ttl else snapshot

        map_ = map_snapshot(text, value) if self.kryo is None else kryo_snapshot("java.util.HashMap")
        blobs, rows = stamped(map_), map_snapshot(text, stamped(value))
        flags = ttl_snapshot(boolean) if self._flags_are_stamped else boolean
        kinds = {LEGACY: ("VALUE", blobs), NEW: ("MAP", rows), FLAG: ("VALUE", flags)}
        kinds |= dict.fromkeys(self.more_blobs, ("VALUE", blobs))
        kinds |= dict.fromkeys(self.more_rows, ("MAP", rows))
        kinds |= dict.fromkeys(self.more_flags, ("VALUE", flags))
        kinds |= {name: (kinds[name][0], snapshot) for name, snapshot in self.serializers.items()}
        return KeyedHeader(False, text, tuple(meta(self.names.get(one, one), *kinds[one]) for one in self._states))

    @property
    def _states(self) -> list[str]:
        """The states in the order of their numbers."""
        flag = [FLAG] if self.has_flag_state else []
        every = [LEGACY, NEW, *flag, *self.more_blobs, *self.more_rows, *self.more_flags]
        return [name for name in every if name not in self.lacks]

    @property
    def _flags_are_stamped(self) -> bool:
        return self.ttl if self.flag_ttl is None else self.flag_ttl

    def _entries(self) -> dict[int, dict[int, list[bytes]]]:
        found: dict[int, dict[int, list[bytes]]] = {}

        def add(state: str, key: str, user_key: bytes, value: bytes) -> None:
            number = self._states.index(state)
            group = key_group_of(key, self.max_parallelism)
            prefix = group.to_bytes(key_group_prefix_bytes(self.max_parallelism), "big")
            whole = prefix + encode(Scalar.STRING, key) + b"\0" + user_key
            entry = len(whole).to_bytes(4, "big") + whole + len(value).to_bytes(4, "big") + value
            found.setdefault(group, {}).setdefault(number, []).append(entry)

        def stamp(timestamp: int) -> bytes:
            return timestamp.to_bytes(8, "big", signed=True) if self.ttl else b""

        map_type = MapType(Scalar.STRING, self.value)
        for state, blobs in {LEGACY: self.blobs, **self.more_blobs}.items():
            for key, (content, timestamp) in blobs.items():
                if self.kryo is not None:
                    map_ = kryo_map(content, (self.kryo == 5) != (key in self.other_kryo))
                else:
                    map_ = encode(map_type, list((content or {}).items()))
                add(state, key, b"", stamp(timestamp) + map_)
        for state, keys in {NEW: self.rows, **self.more_rows}.items():
            for key, rows in keys.items():
                for user_key, (value, timestamp) in rows.items():
                    if value is None and not self.ttl:
                        add(state, key, encode(Scalar.STRING, user_key), b"\1")
                    else:
                        whole = b"\0" + stamp(timestamp) + encode(self.value, value)
                        add(state, key, encode(Scalar.STRING, user_key), whole)
        true = {FLAG: self.flags, **self.more_flags}
        for state, flags, value in [*((name, of, b"\1") for name, of in true.items()), (FLAG, self.false_flags, b"\0")]:
            for key, timestamp in flags.items():
                stamped = timestamp.to_bytes(8, "big", signed=True) if self._flags_are_stamped else b""
                add(state, key, b"", stamped + value)
        return found

    def migrated(self, rules: Rules) -> dict[tuple[str, str], tuple[object, int | None]]:
        """What the new state holds at the rules' time, key by key as the rule of who wins reads."""

        def live(timestamp: int) -> bool:
            return not rules.drops_expired or rules.ttl is None or not expired(timestamp, rules.ttl, rules.now)

        found: dict[tuple[str, str], tuple[object, int | None]] = {}
        for key in self.blobs.keys() | self.rows.keys():
            rows = {name: row for name, row in self.rows.get(key, {}).items() if live(row[1])}
            content, timestamp = self.blobs.get(key, ({}, 0))
            blob = {name: (value, timestamp) for name, value in (content or {}).items()} if live(timestamp) else {}
            if key in self.flags and live(self.flags[key]) and key in self.blobs and live(timestamp):
                merged = blob if rules.on_contradiction is Contradiction.BLOB else rows
            else:
                merged = {**blob, **rows}
            for name, (value, stamp) in merged.items():
                found[key, name] = (value, stamp if self.ttl else None)
        return found


def key_group_of(key: str, max_parallelism: int) -> int:
    data = np.frombuffer(encode(Scalar.STRING, key), np.uint8).copy()
    codes = hash_codes(Scalar.STRING, data, np.zeros(1, np.int64), np.array([len(data)]))
    return int(assign_to_key_groups(codes, max_parallelism)[0])
