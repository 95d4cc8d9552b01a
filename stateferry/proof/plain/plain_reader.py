"""Reads the rows of a sample of keys a second time, by plain code that is independent of the conversion.

The compiled check and the conversion share the walk over maps, the rule of expiry, the form of a null under time to
live, and the hashes of keys. A fault in one of these would fool both. Here, the rows of some keys are decoded one value
at a time (`flinkstate.values`). A few lines of plain Python work out what the new state must hold for a key of the
source. The key group comes from Java's hash of the decoded key.

Shared code is what finds the rows in a file (where an entry begins and ends), what parses headers, and
`flinkstate.values` itself, which no code uses that writes or compares rows in bulk.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.state import KeyedState
from flinkstate.serializers.type_parts import kryo_map_of, object_of
from flinkstate.serializers.types import (
    ArrayType,
    EitherType,
    EnumType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoMapType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TupleType,
    children,
    type_name,
)
from flinkstate.values.codec_parts import read_flag
from flinkstate.values.codecs import decoder, whole_codec
from flinkstate.values.hash_codes import key_group_of
from flinkstate.values.value_json import json_text
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Contradiction, Nulls, Rules
from stateferry.proof.expected.sampling import KeySample, Row
from stateferry.proof.plain.plain_lazy_cut import is_moved
from stateferry.proof.plain.plain_maps import by_kryo, content, copied, is_copied, map_reader
from stateferry.proof.plain.plain_objects import object_without_map
from stateferry.proof.plain.plain_pojos import find_field, without_map

_LATEST = 2**63 - 1
_MOST_TEXT = 200

# State, key group, key, user key, null flag, value, timestamp, and a checksum of all bytes. Long texts are cut.
Line = tuple[str, int, str, str, int, str, int | None, int]
# Turns the bytes of one whole value into text, and into what must be equal of it.
_Read = Callable[[bytes], tuple[str, bytes]]

_WITHOUT_NULL = (ListType, MapType, SetType, PrimitiveArrayType, ArrayType, TupleType, RowType, EitherType, EnumType)
_WITH_NULL = frozenset(
    (
        Scalar.STRING,
        Scalar.BIG_INTEGER,
        Scalar.BIG_DECIMAL,
        Scalar.DATE,
        Scalar.SQL_DATE,
        Scalar.SQL_TIME,
        Scalar.SQL_TIMESTAMP,
        Scalar.INSTANT,
        Scalar.LOCAL_DATE,
        Scalar.LOCAL_TIME,
        Scalar.LOCAL_DATE_TIME,
        Scalar.VOID,
    )
)


_UNKNOWN = frozenset((Scalar.UNIT, Scalar.NOTHING, Scalar.AVRO_NULL, Scalar.AVRO_STRING))


def holds_null(type_: FlinkType) -> bool | None:
    """Whether the type's serializer can write null itself; None if that isn't known."""
    if isinstance(type_, Scalar):
        return None if type_ in _UNKNOWN else type_ in _WITH_NULL
    if isinstance(type_, PojoType | NullableType | KryoType):
        return True
    return False if isinstance(type_, _WITHOUT_NULL) else None


@dataclass(slots=True)
class KeyAccount:
    """The rows that a key has, or must have."""

    lines: list[Line] = field(default_factory=list)
    # Key and user key of entries that may or may not be kept, because that isn't known for their type.
    undecided: list[tuple[str, str]] = field(default_factory=list)
    damage: str | None = None
    refusal: str | None = None

    def add(self, other: KeyAccount) -> None:
        """Adds what another chunk found for the same key."""
        self.lines += other.lines
        self.undecided += other.undecided
        self.damage, self.refusal = self.damage or other.damage, self.refusal or other.refusal


@dataclass(frozen=True, slots=True)
class SampledKeys:
    """What a chunk says of the sampled keys, by the keys' hashes; see `KeySample` for the other two."""

    keys: Mapping[int, KeyAccount]
    below: int
    too_large: Sequence[int]

    @classmethod
    def of(cls, sample: KeySample, account: Callable[[list[Row]], KeyAccount]) -> SampledKeys:
        """Makes the account of each key of a sample from its rows."""
        return cls({hash_: account(rows) for hash_, rows in sample.keys.items()}, sample.below, sample.too_large)


@dataclass(frozen=True, slots=True)
class PlainKey:
    """A key with its namespace: the bytes of both, both in words, and the value of the key alone."""

    raw: bytes
    text: str
    value: Any


@dataclass(frozen=True, slots=True)
class PlainEntry:
    user_key: bytes
    user_key_text: str
    is_null: bool
    value: bytes
    value_text: str
    stamp: int | None

    def line(self, state: str, group: int, key: PlainKey) -> Line:
        # The bytes of a null depend on the serializer, so they don't count.
        judged = key.raw + self.user_key + (b"" if self.value_text == "null" else self.value)
        texts = (key.text, self.user_key_text, int(self.is_null), self.value_text)
        return (state, group, *texts, self.stamp, zlib.crc32(judged))


class PlainStateReader:
    """Decodes the rows of one state; `copies` says that its keys and values by Kryo were copied as they are."""

    def __init__(self, state: KeyedState, *, copies: bool = False) -> None:
        self.state = state
        self._key, self._key_text = decoder(state.key), json_text(state.key)
        self._namespace, self._namespace_text = decoder(state.namespace), json_text(state.namespace)
        self._copies = copies
        self._last: PlainKey | None = None

    @cached_property
    def _of_entries(self) -> tuple[_Read, _Read]:
        """What reads the user key and the value of an entry of a map state."""
        assert self.state.user_key is not None
        assert self.state.value is not None
        return self._reader(self.state.user_key), self._reader(self.state.value)

    def _reader(self, type_: FlinkType) -> _Read:
        return _copied_reader if self._copies and is_copied(type_) else _whole_reader(type_)

    def key(self, row: Row) -> PlainKey:
        # The bytes of a key determine where it ends, so a row that begins with the same bytes has the same key.
        if self._last is None or not row.key.startswith(self._last.raw):
            self._last = self._read_key(row.key)
        return self._last

    def _read_key(self, data: bytes) -> PlainKey:
        key, position = self._key(data, 0, len(data))
        text = f"key {_cut(self._key_text(key))}"
        if self.state.has_suffixes:
            position = _behind_length(data, position, position)
        begin = position
        namespace, position = self._namespace(data, begin, len(data))
        if self.state.namespace is not Scalar.VOID_NAMESPACE:
            text += f", namespace {_cut(self._namespace_text(namespace))}"
        if self.state.has_suffixes:
            position = _behind_length(data, position, position - begin)
        return PlainKey(data[:position], text, key)

    def entry(self, row: Row) -> PlainEntry:
        """The content of a row of a map state."""
        user_key = row.key[len(self.key(row).raw) :]
        read_user_key, read_value = self._of_entries
        is_null = read_flag(row.value, 0, len(row.value), "a map entry's null flag")
        stamp = long_at(row.value, 1) if self.state.ttl else None
        value = row.value[9 if self.state.ttl else 1 :]
        text, content = ("null", b"") if is_null else read_value(value)
        return PlainEntry(user_key, read_user_key(user_key)[0], is_null, content, text, stamp)

    def stamp(self, row: Row) -> int | None:
        """The timestamp of a row of a value state; None without time to live."""
        return long_at(row.value, 0) if self.state.ttl else None


class PlainReader:
    """Works out what the new savepoint must hold for one key (`expected`), and reads what it holds (`found`).

    `states` are those that the savepoint describes, by name.
    """

    def __init__(self, rules: Rules, conversion: OperatorChanges, states: Mapping[str, KeyedState]) -> None:
        self._rules, self._conversion = rules, conversion
        names = {rules.legacy.name, rules.new_name, rules.flag_name}
        stored = rules.legacy.value
        self._copies = kryo_map_of(stored) is None
        self._states = {
            name: PlainStateReader(self._with_kryo(state), copies=self._copies)
            for name, state in states.items()
            if name in names
        }
        self._in_object = object_of(stored) is not None
        self._pojo = stored if isinstance(stored, PojoMapType) else None
        of_map = stored if self._pojo is None or self._in_object else self._pojo.map
        self._map_entries = map_reader(of_map, rules.map_type)
        map_ = rules.map_type
        self._texts = self._text(map_.key), self._text(map_.value)

    def _with_kryo(self, state: KeyedState) -> KeyedState:
        """Says what of a state that is made from maps by Kryo is by which Kryo, and may be of the job's classes.

        A value that is by Kryo as a whole ends where its bytes do, so either Kryo can have written it.
        """
        stored = kryo_map_of(self._rules.legacy.value)
        if stored is None or state.name != self._rules.new_name or state.value is None:
            return state
        five = None if isinstance(state.value, KryoType) else self._rules.for_flink_2
        return replace(state, value=by_kryo(state.value, five=five, classes=stored.kryo.classes))

    def _text(self, type_: FlinkType) -> Callable[[Any], str]:
        return _copied_text if self._copies and is_copied(type_) else json_text(type_)

    def expected(self, rows: list[Row]) -> KeyAccount:
        """What the key's rows in the source must become."""
        return self._account(rows, self._expected_lines)

    def found(self, rows: list[Row]) -> KeyAccount:
        """What the key's rows in the staged savepoint hold."""
        return self._account(rows, self._found_lines)

    def _account(
        self, rows: list[Row], lines: Callable[[PlainKey, list[Row], KeyAccount], Iterator[Line]]
    ) -> KeyAccount:
        account, by_key = KeyAccount(), dict[bytes, tuple[PlainKey, list[Row]]]()
        named = "a key"
        try:
            # Rows with equal hashes may have different keys.
            for row in rows:
                key = self._states[row.state].key(row)
                by_key.setdefault(key.raw, (key, []))[1].append(row)
            for key, own in by_key.values():
                named = key.text
                account.lines += lines(key, own, account)
        except DamagedError as error:
            place = f"key group {rows[0].key_group}: {named}"
            account.damage = f"{place}: expected {error.expected}, found {error.found}"
        except RefusedError as error:
            account.refusal = f"{named}: {error}"
        return account

    def _expected_lines(self, key: PlainKey, rows: list[Row], account: KeyAccount) -> Iterator[Line]:
        rules, new = self._rules, self._rules.new_name
        blobs = [row for row in rows if row.state == rules.legacy.name]
        flags = [row for row in rows if row.state == rules.flag_name]
        own = [self._states[new].entry(row) for row in rows if row.state == new]
        group = self._group(key, rows[0])
        standing = [entry for entry in own if self._lives(entry.stamp)]
        moved = [
            entry
            for blob in blobs
            for entry in self._entries(blob)
            if self._lives(self._states[rules.legacy.name].stamp(blob))
        ]
        living = [blob for blob in blobs if self._lives(self._states[rules.legacy.name].stamp(blob))]
        contradicts = bool(living) and any(map(self._is_set, flags))
        if rules.lazy_cut is not None:
            if living and not contradicts and not is_moved(rules.lazy_cut, key.raw, living[0].value):
                for entry in standing:
                    yield entry.line(new, group, key)
                for row in (*living, *flags):
                    yield _untouched(row, group, key)
                return
            if living and not contradicts:
                flags = [self._flag_to_set(rules.lazy_cut.flag, living[0], key)]
            for row in flags:
                yield _untouched(row, group, key)
        if contradicts:
            if rules.on_contradiction is Contradiction.BLOB:
                standing = []
            else:
                moved = []
        rows_of = {entry.user_key for entry in standing}
        for entry in standing:
            yield entry.line(new, group, key)
        for entry in moved:
            if entry.user_key not in rows_of:
                yield from self._of_blob(entry, group, key, account)
        if rules.keep_legacy:
            for row in (*blobs, *flags):
                yield _untouched(row, group, key)
        elif self._pojo is not None and rules.keeps_rest:
            for row in living:
                left_out = object_without_map if self._in_object else without_map
                value = left_out(self._pojo, row.value, 8 if rules.legacy.ttl else 0)
                yield _untouched(row._replace(value=value), group, key)

    def _flag_to_set(self, flag: KeyedState, blob: Row, key: PlainKey) -> Row:
        """The flag of a key that a lazy run moves."""
        value = b"\1"
        if flag.ttl:
            stamp = self._states[blob.state].stamp(blob)
            value = struct.pack(">q", self._rules.now if stamp is None else stamp) + value
        return Row(flag.name, blob.key_group, key.raw, value)

    def _of_blob(self, entry: PlainEntry, group: int, key: PlainKey, account: KeyAccount) -> Iterator[Line]:
        """The row of a blob's entry, if there is one.

        With time to live a null is in the value's bytes, so an entry is left out if its type can't write null. Without
        it such an entry is left out if the plan drops it.
        """
        stamped = self._rules.legacy.ttl
        if entry.is_null and (stamped or self._rules.nulls is Nulls.DROP):
            holds = holds_null(self._rules.map_type.value)
            if holds is None:
                account.undecided.append((key.text, entry.user_key_text))
            if not holds:
                return
            entry = replace(entry, is_null=not stamped)
        yield entry.line(self._rules.new_name, group, key)

    def _found_lines(self, key: PlainKey, rows: list[Row], account: KeyAccount) -> Iterator[Line]:
        for row in rows:
            if row.state == self._rules.new_name:
                yield self._states[row.state].entry(row).line(row.state, row.key_group, key)
            else:
                yield _untouched(row, row.key_group, key)

    def _lives(self, stamp: int | None) -> bool:
        """Flink's rule: an entry is alive if timestamp plus time to live (at most 2^63 - 1) is later than `now`."""
        rules = self._rules
        if stamp is None or rules.ttl is None or rules.keep_expired:
            return True
        return min(stamp + rules.ttl, _LATEST) > rules.now

    def _is_set(self, flag: Row) -> bool:
        reader = self._states[flag.state]
        stamp = reader.stamp(flag)
        value = flag.value if stamp is None else flag.value[8:]
        return self._lives(stamp) and (reader.state.value is not Scalar.BOOLEAN or value == b"\1")

    def _group(self, key: PlainKey, row: Row) -> int:
        """The key group where the key must be."""
        return group_of_key(self._rules.legacy.key, key.value, row.key_group, self._conversion)

    def _entries(self, blob: Row) -> Iterator[PlainEntry]:
        """The entries of a blob."""
        stamp = self._states[blob.state].stamp(blob)
        user_key_text, value_text = self._texts
        data, position = blob.value, 0 if stamp is None else 8
        if self._pojo is not None and not self._in_object:
            field = find_field(self._pojo, data, position)
            if field is None:
                return
            data, position = data[field.start : field.end], 0
        for entry in self._map_entries(data, position):
            key_text = _cut(user_key_text(entry.user_key))
            text = "null" if entry.is_null else _cut(value_text(entry.value))
            yield PlainEntry(entry.user_key_bytes, key_text, entry.is_null, entry.value_bytes, text, stamp)


def group_of_key(type_: FlinkType, key: Any, present: int, conversion: OperatorChanges) -> int:
    """The key group where a key must be.

    It comes from the key's hash. If the hash is uncertain and no key moves, it is the present key group.
    """
    group = key_group_of(type_, key, conversion.new_max)
    changes = conversion.changes_key_groups
    if group is None and changes:
        raise RefusedError("plain code doesn't know its hash")
    # A job may fill a Row by field names; then the names determine its hash.
    return present if group is None or (_has_row(type_) and not changes) else group


def _untouched(row: Row, group: int, key: PlainKey) -> Line:
    digest = blake2b(row.value, digest_size=8).hexdigest()
    return (row.state, group, key.text, "", 0, f"{len(row.value)} bytes, {digest}", None, zlib.crc32(key.raw))


def long_at(data: bytes, position: int) -> int:
    if len(data) < position + 8:
        raise DamagedError("a timestamp of 8 bytes", f"{max(len(data) - position, 0)} bytes")
    return int(struct.unpack_from(">q", data, position)[0])


def _behind_length(data: bytes, position: int, length: int) -> int:
    """Checks the length that follows a part (least significant byte first), and returns the position behind it."""
    size = max((length.bit_length() + 7) // 8, 1)
    found = data[position : position + size]
    if found != length.to_bytes(size, "little"):
        raise DamagedError(f"the length {length} behind a key or namespace", found.hex() or "the end")
    return position + size


def _whole_reader(type_: FlinkType) -> _Read:
    read, text = whole_codec(type_).decode, json_text(type_)

    def whole(data: bytes) -> tuple[str, bytes]:
        value, end = read(data, 0, len(data))
        if end != len(data):
            raise DamagedError(f"the end of a {type_name(type_)}", f"{len(data) - end} more bytes")
        return _cut(text(value)), content(type_, value, data)

    return whole


def _copied_text(value: bytes | None) -> str:
    return "null" if value is None else value.hex()


def _copied_reader(data: bytes) -> tuple[str, bytes]:
    return _cut(_copied_text(copied(data))), data


def _cut(text: str) -> str:
    if len(text) <= _MOST_TEXT:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[:_MOST_TEXT]}... ({len(text)} characters, {digest})"


def _has_row(type_: FlinkType) -> bool:
    return isinstance(type_, RowType) or any(map(_has_row, children(type_)))
