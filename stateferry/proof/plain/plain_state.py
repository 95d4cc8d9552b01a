"""Decodes the rows of one state by plain code, one value at a time."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.state import KeyedState
from flinkstate.serializers.types import FlinkType, Scalar, type_name
from flinkstate.values.codec_parts import read_flag
from flinkstate.values.codecs import decoder, whole_codec
from flinkstate.values.value_json import json_text
from stateferry.proof.expected.sampling import KeySample, Row
from stateferry.proof.plain.plain_maps import as_objects, content, copied, is_copied

_MOST_TEXT = 200
# State, key group, key, user key, null flag, value, timestamp, and a checksum of all bytes. Long texts are cut.
Line = tuple[str, int, str, str, int, str, int | None, int]
# Turns the bytes of one whole value into text, and into what must be equal of it.
_Read = Callable[[bytes], tuple[str, bytes]]


@dataclass(slots=True)
class KeyAccount:
    """The rows that a key has, or must have."""

    lines: list[Line] = field(default_factory=list)
    # Key and user key of entries that may or may not be kept, because that isn't known for their type.
    undecided: list[tuple[str, str]] = field(default_factory=list)
    damage: str | None = None
    refusal: str | None = None
    # The key in words, whether a map has it, and its bytes: for keys of which equal ones may have other bytes.
    forms: set[tuple[str, bool, bytes]] = field(default_factory=set)

    @classmethod
    def of_rows(cls, rows: list[Row], lines: Callable[[Row], Iterable[Line]]) -> KeyAccount:
        """Makes the account of a key whose rows say something each by itself."""
        account = cls()
        try:
            for row in rows:
                account.lines += lines(row)
        except DamagedError as error:
            account.damage = f"key group {rows[0].key_group}: expected {error.expected}, found {error.found}"
        except RefusedError as error:
            account.refusal = f"{error}"
        return account

    def add(self, other: KeyAccount) -> None:
        """Adds what another chunk found for the same key."""
        self.lines += other.lines
        self.undecided += other.undecided
        self.forms |= other.forms
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
    namespace: bytes = b""


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
    """Decodes the rows of one state; `copies` says that its keys and values by Kryo were copied as they are.

    Where user keys, or values, count as `objects`, their bytes don't count.
    """

    def __init__(self, state: KeyedState, *, copies: bool = False, objects: tuple[bool, bool] = (False, False)) -> None:
        self.state, self._objects = state, objects
        self._key, self._key_text = decoder(state.key), json_text(state.key)
        self._namespace, self._namespace_text = decoder(state.namespace), json_text(state.namespace)
        self._copies = copies
        self._last: PlainKey | None = None

    @cached_property
    def _of_entries(self) -> tuple[_Read, _Read]:
        """What reads the user key and the value of an entry of a map state."""
        assert self.state.user_key is not None
        assert self.state.value is not None
        of_key, of_value = self._objects
        return self._reader(self.state.user_key, of_key), self._reader(self.state.value, of_value)

    def _reader(self, type_: FlinkType, are_objects: bool) -> _Read:
        if self._copies and is_copied(type_):
            return _copied_reader(type_)
        return _whole_reader(type_, are_objects=are_objects)

    def key(self, row: Row) -> PlainKey:
        # The bytes of a key determine where it ends, so a row that begins with the same bytes has the same key.
        if self._last is None or not row.key.startswith(self._last.raw):
            self._last = self._read_key(row.key)
        return self._last

    def _read_key(self, data: bytes) -> PlainKey:
        key, position = self._key(data, 0, len(data))
        text = f"key {cut_text(self._key_text(key))}"
        if self.state.has_suffixes:
            position = _behind_length(data, position, position)
        begin = position
        namespace, position = self._namespace(data, begin, len(data))
        end = position
        if self.state.namespace is not Scalar.VOID_NAMESPACE:
            text += f", namespace {cut_text(self._namespace_text(namespace))}"
        if self.state.has_suffixes:
            position = _behind_length(data, position, position - begin)
        return PlainKey(data[:position], text, key, data[begin:end])

    def entry(self, row: Row) -> PlainEntry:
        """The content of a row of a map state."""
        user_key = row.key[len(self.key(row).raw) :]
        read_user_key, read_value = self._of_entries
        user_key_text, objects = read_user_key(user_key)
        is_null = read_flag(row.value, 0, len(row.value), "a map entry's null flag")
        stamp = long_at(row.value, 1) if self.state.ttl else None
        value = row.value[9 if self.state.ttl else 1 :]
        text, content = ("null", b"") if is_null else read_value(value)
        return PlainEntry(objects if self._objects[0] else user_key, user_key_text, is_null, content, text, stamp)

    def stamp(self, row: Row) -> int | None:
        """The timestamp of a row of a value state; None without time to live."""
        return long_at(row.value, 0) if self.state.ttl else None


def long_at(data: bytes, position: int) -> int:
    if len(data) < position + 8:
        raise DamagedError("a timestamp of 8 bytes", f"{max(len(data) - position, 0)} bytes")
    return int(struct.unpack_from(">q", data, position)[0])


def _behind_length(data: bytes, position: int, length: int) -> int:
    """Checks the length that follows a part, and returns the position behind it."""
    expected = length_behind(length)
    found = data[position : position + len(expected)]
    if found != expected:
        raise DamagedError(f"the length {length} behind a key or namespace", found.hex() or "the end")
    return position + len(expected)


def length_behind(length: int) -> bytes:
    """The length that follows a part, the least significant byte first."""
    return length.to_bytes(max((length.bit_length() + 7) // 8, 1), "little")


def _whole_reader(type_: FlinkType, *, are_objects: bool) -> _Read:
    read, text = whole_codec(type_).decode, json_text(type_)

    def whole(data: bytes) -> tuple[str, bytes]:
        value, end = read(data, 0, len(data))
        if end != len(data):
            raise DamagedError(f"the end of a {type_name(type_)}", f"{len(data) - end} more bytes")
        return cut_text(text(value)), as_objects(value) if are_objects else content(type_, value, data)

    return whole


def copied_text(value: bytes | None) -> str:
    return "null" if value is None else value.hex()


def _copied_reader(type_: FlinkType) -> _Read:
    return lambda data: (cut_text(copied_text(copied(type_, data))), data)


def cut_text(text: str) -> str:
    if len(text) <= _MOST_TEXT:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[:_MOST_TEXT]}... ({len(text)} characters, {digest})"
