"""Reads the subtasks in `_metadata` that look like most of a large job, several times as fast as field by field."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.metadata.metadata import (
    AbsoluteFile,
    KeyedHandle,
    Operator,
    OperatorHandle,
    PartitionedState,
    RelativeFile,
    Subtask,
)
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.metadata.type_numbers import (
    ABSOLUTE,
    KEYED_SAVEPOINT,
    MAX_PARALLELISM_LIMIT,
    OPERATOR_STATE,
    RELATIVE,
)
from flinkstate.serializers.binary import ByteReader

# What most subtasks of a large job look like; see `usual_subtask`.
_INDEX_AND_PRESENCE = struct.Struct(">ii")
_TYPE_AND_COUNT = struct.Struct(">bi")
_TYPE_AND_RANGE = struct.Struct(">bii")
_RELATIVE_FILE = struct.Struct(">bH")
_ABSOLUTE_FILE = struct.Struct(">bqH")
_I64, _U16 = struct.Struct(">q"), struct.Struct(">H")
_NO_RAW_STATE = bytes(4)
# No raw keyed state, no state of channels.
_NOTHING_ELSE = bytes(1 + 4 + 4)
_MODES = tuple(DistributionMode(number) for number in range(3))


@dataclass(slots=True)
class LastStates:
    """The operator states that were read last, and their bytes; those of the next subtask are often the same."""

    data: bytes = b"\xff"
    states: tuple[PartitionedState, ...] = ()


def usual_subtask(reader: ByteReader, operator: Operator, last: LastStates) -> Subtask | None:
    """Reads a subtask with canonical keyed state and operator state in files of their own, one of them or none.

    Whatever is otherwise, or wrong, is left to the parser, which reads it field by field and says what is wrong. A
    large job has hundreds of thousands of subtasks, and to read each of their fields takes three times as long.
    """
    data = reader.data
    try:
        index, has_state = _INDEX_AND_PRESENCE.unpack_from(data, reader.position)
        operator_handle, keyed, at = None, None, reader.position + _INDEX_AND_PRESENCE.size
        if has_state == 1:
            operator_handle, at = _usual_operator_handle(data, at, last)
        if data[at : at + 4] != _NO_RAW_STATE:
            return None
        at += 4
        if data[at]:
            keyed, at = _usual_keyed_handle(data, at, operator.max_parallelism)
        else:
            at += 1
    except (struct.error, IndexError, UnusualError):
        return None
    if has_state not in (0, 1) or not 0 <= index < operator.parallelism:
        return None
    if data[at : at + len(_NOTHING_ELSE)] != _NOTHING_ELSE:
        return None
    reader.position = at + len(_NOTHING_ELSE)
    return Subtask(index, False, operator_handle, None, keyed)


class UnusualError(Exception):
    """What is read isn't as in most savepoints."""


def _usual_operator_handle(data: bytes, at: int, last: LastStates) -> tuple[OperatorHandle, int]:
    if data.startswith(last.data, at):
        at += len(last.data)
    else:
        began, (kind, count) = at, _TYPE_AND_COUNT.unpack_from(data, at)
        if kind != OPERATOR_STATE or count < 0:
            raise UnusualError
        at += _TYPE_AND_COUNT.size
        states = []
        for _ in range(count):
            state, at = _usual_operator_state(data, at)
            states.append(state)
        last.data, last.states = data[began:at], tuple(states)
    stream, at = usual_file(data, at)
    return OperatorHandle(last.states, stream), at


def _usual_operator_state(data: bytes, at: int) -> tuple[PartitionedState, int]:
    end = at + 2 + _U16.unpack_from(data, at)[0]
    name = data[at + 2 : end]
    mode, elements = _TYPE_AND_COUNT.unpack_from(data, end)
    at = end + _TYPE_AND_COUNT.size
    if elements < 0 or not 0 <= mode < len(_MODES) or not _is_plain(name):
        raise UnusualError
    offsets = struct.unpack_from(f">{elements}q", data, at)
    return PartitionedState(name.decode("ascii"), _MODES[mode], offsets), at + 8 * elements


def _usual_keyed_handle(data: bytes, at: int, max_parallelism: int) -> tuple[KeyedHandle, int]:
    kind, start, count = _TYPE_AND_RANGE.unpack_from(data, at)
    if kind != KEYED_SAVEPOINT or start < 0 or count < 1 or start + count > max_parallelism:
        raise UnusualError
    at += _TYPE_AND_RANGE.size
    offsets = struct.unpack_from(f">{count}q", data, at)
    stream, at = usual_file(data, at + 8 * count)
    return KeyedHandle(_range(start, count), offsets, stream), at


@lru_cache(MAX_PARALLELISM_LIMIT)
def _range(start: int, count: int) -> KeyGroupRange:
    """The range of so many key groups; the operators of a job have the same ones."""
    return KeyGroupRange(start, start + count - 1)


def usual_file(data: bytes, at: int) -> tuple[RelativeFile | AbsoluteFile, int]:
    """Returns the file that is described at this place, and the place behind it."""
    kind = data[at]
    if kind == RELATIVE:
        _, length = _RELATIVE_FILE.unpack_from(data, at)
        start = at + _RELATIVE_FILE.size
        end = start + length
        (size,) = _I64.unpack_from(data, end)
        path = data[start:end]
        if size < 0 or not path.isascii() or 0 in path or b".." in path or path[:1] == b"/":
            raise UnusualError
        return RelativeFile(path.decode("ascii"), size), end + _I64.size
    if kind == ABSOLUTE:
        _, size, length = _ABSOLUTE_FILE.unpack_from(data, at)
        start = at + _ABSOLUTE_FILE.size
        end = start + length
        uri = data[start:end]
        if size < 0 or not _is_plain(uri) or len(uri) < length:
            raise UnusualError
        return AbsoluteFile(uri.decode("ascii"), size), end
    raise UnusualError


def _is_plain(text: bytes) -> bool:
    """Whether the text is the same in ASCII and in Java's modified UTF-8."""
    return text.isascii() and 0 not in text
