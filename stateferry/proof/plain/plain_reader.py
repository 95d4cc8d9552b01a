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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.state import KeyedState
from flinkstate.serializers.type_parts import (
    has_large_numbers,
    kept_by_kryo,
    kryo_map_of,
    map_of,
    object_of,
    opaque_parts,
)
from flinkstate.serializers.types import (
    ArrayType,
    EitherType,
    EnumType,
    FlinkType,
    KryoMapType,
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
)
from flinkstate.values.codecs import decode_whole, encode
from flinkstate.values.hash_codes import key_group_of
from flinkstate.values.value_json import json_text
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Contradiction, Nulls, Rules
from stateferry.proof.expected.sampling import Row
from stateferry.proof.plain.plain_lazy_cut import is_moved
from stateferry.proof.plain.plain_maps import as_objects, by_kryo, by_one_kryo, is_copied, map_reader
from stateferry.proof.plain.plain_objects import object_without_map
from stateferry.proof.plain.plain_pojos import find_field, without_map
from stateferry.proof.plain.plain_state import (
    KeyAccount,
    Line,
    PlainEntry,
    PlainKey,
    PlainStateReader,
    copied_text,
    cut_text,
    length_behind,
)

_LATEST = 2**63 - 1


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


def is_of_flink_1(state: KeyedState) -> bool:
    """Whether Kryo 2 wrote all parts by Kryo of a state, and Kryo 5 is to write them."""
    parts = (state.key, state.user_key, state.value)
    return all(one.five is False and one.for_five for part in parts if part is not None for one in kept_by_kryo(part))


class PlainReader:
    """Works out what the new savepoint must hold for one key (`expected`), and reads what it holds (`found`).

    `states` are those that the savepoint describes, by name: those of the source, or as a run writes them. Unless keys
    are what their bytes are (`are_bytes`), as those of RocksDB's own files, equal ones may have others.
    """

    def __init__(
        self,
        rules: Rules,
        conversion: OperatorChanges,
        states: Mapping[str, KeyedState],
        *,
        are_bytes: bool = True,
        is_source: bool = False,
    ) -> None:
        self._rules, self._conversion, self._is_source = rules, conversion, is_source
        names = {rules.legacy.name, rules.new_name, rules.flag_name}
        stored = rules.in_source.value
        self._in_object = object_of(stored) is not None
        self._pojo = stored if isinstance(stored, PojoMapType) else None
        of_map = stored if self._pojo is None or self._in_object else self._pojo.map
        # What is written anew, of all that a run rewrites for another Flink: states, and the maps in the legacy state.
        self._anew = {name: one for name, one in conversion.by_kryo.items() if name in names and is_of_flink_1(one)}
        self._rewrites = rules.legacy.name in self._anew and self._anew[rules.legacy.name].value is not None
        map_, self._objects = rules.map_type, (False, False)
        if self._rewrites:
            of_map = self._as_rewritten(of_map)
            map_ = map_of(of_map) or map_
            self._objects = bool(opaque_parts(map_.key)), bool(opaque_parts(map_.value))
        self._copies = kryo_map_of(stored) is None and not self._rewrites
        self._states = {
            name: PlainStateReader(self._typed(state), copies=self._copies, objects=self._objects)
            for name, state in states.items()
            if name in names
        }
        self._map_entries = map_reader(of_map, map_, told=self._rewrites)
        map_ = rules.map_type
        self._texts = self._text(map_.key), self._text(map_.value)
        self._notes_forms = not are_bytes and has_large_numbers(rules.legacy.key)
        self._by_value = has_large_numbers(map_.key)

    def _as_rewritten(self, stored: FlinkType | None) -> FlinkType | None:
        """The type of the maps in the source, with what is known of those that are written anew."""
        value = self._anew[self._rules.legacy.name].value
        if isinstance(stored, KryoMapType) or self._in_object:
            return stored
        if self._pojo is not None and isinstance(value, PojoType):
            value = next(one.type for one in value.fields if one.name == self._pojo.field)
        return None if value is None else by_one_kryo(value, False)

    def _typed(self, state: KeyedState) -> KeyedState:
        """Says what of a state is by which Kryo, and may be of the job's classes.

        A value that is by Kryo as a whole ends where its bytes do, so either Kryo can have written it.
        """
        if kept_by_kryo(self._rules.legacy.key) and not self._anew:
            # They are copied, and the savepoint's header doesn't say which Kryo wrote them.
            state = replace(state, key=self._rules.legacy.key)
        five = not self._is_source
        if (known := self._anew.get(state.name)) is not None:
            user_key, value = (
                None if one is None else by_one_kryo(one, five) for one in (known.user_key, known.value or state.value)
            )
            return replace(state, key=by_one_kryo(known.key, five), user_key=user_key, value=value)
        stored = kryo_map_of(self._rules.in_source.value)
        if state.name != self._rules.new_name or state.value is None:
            return state
        if self._rewrites:
            return replace(state, user_key=self._rules.map_type.key, value=self._rules.map_type.value)
        if stored is None:
            return state
        by = None if isinstance(state.value, KryoType) else self._rules.for_flink_2
        return replace(state, value=by_kryo(state.value, five=by, classes=stored.kryo.classes))

    def _as_written(self, key: PlainKey) -> PlainKey:
        """Returns a key of the source as the job of the other Flink writes it."""
        legacy = self._rules.legacy
        if legacy.key == self._rules.in_source.key:
            return key
        raw = encode(legacy.key, key.value)
        suffixes = (length_behind(len(one)) if legacy.has_suffixes else b"" for one in (raw, key.namespace))
        return replace(key, raw=raw + next(suffixes) + key.namespace + next(suffixes))

    def _text(self, type_: FlinkType) -> Callable[[Any], str]:
        return copied_text if self._copies and is_copied(type_) else json_text(type_)

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
        rules, new, key = self._rules, self._rules.new_name, self._as_written(key)
        blobs = [row for row in rows if row.state == rules.legacy.name]
        flags = [row for row in rows if row.state == rules.flag_name]
        own = [self._states[new].entry(row) for row in rows if row.state == new]
        group = self._group(key, rows[0])
        if self._notes_forms:
            account.forms.update((key.text, row.state == rules.legacy.name, key.raw) for row in rows)
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
                    yield self._untouched(row, group, key)
                return
            if living and not contradicts:
                flags = [self._flag_to_set(rules.lazy_cut.flag, living[0], key)]
            for row in flags:
                yield self._untouched(row, group, key)
        if contradicts:
            if rules.on_contradiction is Contradiction.BLOB:
                standing = []
            else:
                moved = []
        # Equal user keys with large numbers may have other bytes.
        rows_of = {entry.user_key_text if self._by_value else entry.user_key for entry in standing}
        for entry in standing:
            yield entry.line(new, group, key)
        for entry in moved:
            if (entry.user_key_text if self._by_value else entry.user_key) not in rows_of:
                yield from self._of_blob(entry, group, key, account)
        if rules.keep_legacy:
            for row in (*blobs, *flags):
                yield self._untouched(row, group, key)
        elif self._pojo is not None and rules.keeps_rest and not self._rewrites:
            for row in living:
                left_out = object_without_map if self._in_object else without_map
                value = left_out(self._pojo, row.value, 8 if rules.legacy.ttl else 0)
                yield self._untouched(row._replace(value=value), group, key)

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
            elif not (self._rules.keeps_rest and self._rewrites):
                # Objects without their maps are read as those of any other state that is written anew.
                yield self._untouched(row, row.key_group, key)

    def _untouched(self, row: Row, group: int, key: PlainKey) -> Line:
        known, data = self._anew.get(row.state), row.value
        if known is not None and known.stored_value is not None:
            data = as_objects(decode_whole(by_one_kryo(known.stored_value, not self._is_source), data))
        digest = blake2b(data, digest_size=8).hexdigest()
        return (row.state, group, key.text, "", 0, f"{len(data)} bytes, {digest}", None, zlib.crc32(key.raw))

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
            key_text = cut_text(user_key_text(entry.user_key))
            text = "null" if entry.is_null else cut_text(value_text(entry.value))
            of_key, of_value = self._objects
            user_key = as_objects(entry.user_key) if of_key else entry.user_key_bytes
            value = as_objects(entry.value) if of_value else entry.value_bytes
            yield PlainEntry(user_key, key_text, entry.is_null, value, text, stamp)


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


def _has_row(type_: FlinkType) -> bool:
    return isinstance(type_, RowType) or any(map(_has_row, children(type_)))
