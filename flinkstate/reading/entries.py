"""Reads a keyed state's entries one at a time, as Python values. This is for looking at a savepoint, not for bulk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.hashing.key_groups import key_group_prefix_bytes
from flinkstate.keyed.keyed_file import WINDOW, KeyedFile, Section
from flinkstate.keyed.native_file import NativeFile
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType, TimerType
from flinkstate.values.codec_parts import Decode, present, read_flag
from flinkstate.values.codecs import decoder, whole_codec
from flinkstate.values.java_values import TtlValue
from flinkstate.values.value_json import json_text

_LENGTH_BYTES = 4
_DELIMITER = 0x2C
_LARGEST_LOOKED_AT = 1 << 16


@dataclass(frozen=True, slots=True)
class Entry:
    """What one row of a state holds; the state's kind determines which of the fields are set.

    With time to live `timestamp` is that of the last access (of a ListState a list, with one for each element). Of a
    timer it is the time at which the timer fires.
    """

    key_group: int
    key: Any
    namespace: Any
    user_key: Any = None
    value: Any = None
    timestamp: int | list[int] | None = None


def read_entries(
    savepoint: Savepoint, operator: Operator, state: KeyedState, key_group: int | None = None
) -> Iterator[Entry]:
    """Yields the entries in the order of the files. Reads no further than the caller consumes."""
    if state.asynchronous:
        raise RefusedError(
            f"state {state.name} of operator {operator.label} is asynchronous (V2) state, which can't be read"
        )
    decode = _entry_decoder(state, key_group_prefix_bytes(operator.max_parallelism))
    window = np.empty(WINDOW, np.uint8)
    for file in savepoint.open_files(operator):
        names = [meta.name for meta in file.header.states]
        if state.name in names:
            wanted = names.index(state.name)
            for group in file.handle.range if key_group is None else [key_group]:
                for section in file.sections_of(group, {wanted}, window):
                    try:
                        yield from _section_entries(section, decode)
                    except RefusedError as error:
                        raise RefusedError(f"state {state.name} of operator {operator.label}: {error}") from None


class FirstRows:
    """Looks into the first row of each section of a file, because the number of the state before it has no checksum.

    With another number there the rows would be those of another state. Rows of more than 64 KiB aren't looked at, nor
    values that can't be read outside of the job, such as objects by Kryo: of these the key alone is.
    """

    def __init__(self, file: KeyedFile, states: Sequence[KeyedState]) -> None:
        # In RocksDB's own files, which have checksums, no such number is before the rows.
        self._states = () if isinstance(file, NativeFile) else states
        self._decoders: dict[int, _DecodeEntry] = {}

    @property
    def numbers(self) -> set[int]:
        """The numbers of the states that are looked at."""
        return {number for number, state in enumerate(self._states) if not state.asynchronous}

    def expect(self, section: Section) -> None:
        """Raises an error if the section's first row can't be one of its state."""
        number = section.state
        if number >= len(self._states) or self._states[number].asynchronous:
            return
        row = np.flatnonzero(section.ends - section.starts <= _LARGEST_LOOKED_AT)[:1]
        first = replace(section, starts=section.starts[row], key_ends=section.key_ends[row], ends=section.ends[row])
        with suppress(RefusedError):
            if number not in self._decoders:
                self._decoders[number] = _entry_decoder(self._states[number], section.file.prefix)
            for _ in _section_entries(first, self._decoders[number]) if len(row) else ():
                pass


# Parameters: the bytes, where a row's key (with its key group) begins and ends, where the row ends, its key group.
_DecodeEntry = Callable[[bytes, int, int, int, int], Entry]


def _section_entries(section: Section, decode: _DecodeEntry) -> Iterator[Entry]:
    data, first = section.raw.tobytes(), int(section.starts[0])
    columns = ((part - first).tolist() for part in (section.key_starts, section.key_ends, section.ends))
    for key_start, key_end, end in zip(*columns, strict=True):
        try:
            entry = decode(data, key_start, key_end, end, section.key_group)
        except DamagedError as error:
            with section.locating():
                raise error.located(offset=first + (error.offset or 0)) from None
        yield entry


def _entry_decoder(state: KeyedState, prefix: int) -> _DecodeEntry:
    if state.kind is StateKind.TIMERS:
        return _timer_decoder(TimerType(state.key, state.namespace), prefix)
    return _row_decoder(state, prefix)


def _timer_decoder(type_: TimerType, prefix: int) -> _DecodeEntry:
    read_timer = _whole(decoder(type_), "a timer")

    def decode(data: bytes, start: int, key_end: int, end: int, key_group: int) -> Entry:
        timer = read_timer(data, start + prefix, key_end)
        if end != key_end + _LENGTH_BYTES:
            found = f"{end - key_end - _LENGTH_BYTES} bytes"
            raise DamagedError("no value behind a timer", found, offset=key_end)
        return Entry(key_group, timer.key, timer.namespace, timestamp=timer.timestamp)

    return decode


def _row_decoder(state: KeyedState, prefix: int) -> _DecodeEntry:
    read_key, read_namespace = (suffixed(part, state.has_suffixes) for part in (state.key, state.namespace))
    read_user_key = _user_key_reader(state)
    read_value = _value_reader(state)
    key_text = json_text(state.key)

    def decode(data: bytes, start: int, key_end: int, end: int, key_group: int) -> Entry:
        key, position = read_key(data, start + prefix, key_end)
        namespace, position = read_namespace(data, position, key_end)
        user_key = read_user_key(data, position, key_end)
        try:
            value, timestamp = read_value(data, key_end + _LENGTH_BYTES, end)
        except RefusedError as error:
            raise RefusedError(f"key {key_text(key)}: {error}") from None
        return Entry(key_group, key, namespace, user_key, value, timestamp)

    return decode


def suffixed(type_: FlinkType, has_suffix: bool) -> Decode:
    """Returns a decoder of a part of a key, followed by its length if `has_suffix`.

    The length is little-endian, in as few bytes as it needs.
    """
    read = decoder(type_)
    if not has_suffix:
        return read

    def decode(data: bytes, start: int, limit: int) -> tuple[Any, int]:
        value, end = read(data, start, limit)
        length = end - start
        suffix = length.to_bytes(max((length.bit_length() + 7) // 8, 1), "little")
        found = data[end : min(end + len(suffix), limit)]
        if found != suffix:
            raise DamagedError(f"the length {length} behind a key or namespace", found.hex() or "the end", offset=end)
        return value, end + len(suffix)

    return decode


_ReadWhole = Callable[[bytes, int, int], Any]


def _whole(read: Decode, what: str) -> _ReadWhole:
    def decode(data: bytes, start: int, end: int) -> Any:
        value, stop = read(data, start, end)
        if stop != end:
            raise DamagedError(f"the end of {what}", f"{end - stop} more bytes", offset=stop)
        return value

    return decode


def _user_key_reader(state: KeyedState) -> _ReadWhole:
    if state.user_key is not None:
        return _whole(whole_codec(state.user_key).decode, "a user key")
    return _whole(lambda data, start, end: (None, start), "a key")


_ReadValue = Callable[[bytes, int, int], tuple[Any, int | list[int] | None]]


def _value_reader(state: KeyedState) -> _ReadValue:
    stored = state.stored_value
    if stored is None:
        raise ValueError(f"state {state.name} has no values")
    match state.kind:
        case StateKind.LIST:
            return _list_reader(decoder(stored), state.ttl)
        case StateKind.MAP:
            return _nullable_reader(_whole(present(whole_codec(stored)).decode, "a map entry's value"), state.ttl)
        case _:
            return _stamped(_whole(whole_codec(stored).decode, "a value"), state.ttl)


def _stamped(read: _ReadWhole, ttl: bool) -> _ReadValue:
    def decode(data: bytes, start: int, end: int) -> tuple[Any, int | None]:
        value = read(data, start, end)
        return (value.value, value.timestamp) if ttl else (value, None)

    return decode


def _nullable_reader(read: _ReadWhole, ttl: bool) -> _ReadValue:
    read_present = _stamped(read, ttl)

    def decode(data: bytes, start: int, end: int) -> tuple[Any, int | list[int] | None]:
        # Flink 1.20 writes the serializer's own null behind the flag. Flink doesn't read it.
        if read_flag(data, start, end, "a map entry's isNull"):
            return None, None
        return read_present(data, start + 1, end)

    return decode


def _list_reader(read: Decode, ttl: bool) -> _ReadValue:
    def decode(data: bytes, start: int, end: int) -> tuple[list[Any], list[int] | None]:
        elements: list[Any] = []
        position = start
        while position < end:
            if elements:
                if data[position] != _DELIMITER:
                    raise DamagedError("the delimiter 2c between elements", f"{data[position]:02x}", offset=position)
                position += 1
            element, position = read(data, position, end)
            elements.append(element)
        if not ttl:
            return elements, None
        stamped: list[TtlValue] = elements
        return [element.value for element in stamped], [element.timestamp for element in stamped]

    return decode
