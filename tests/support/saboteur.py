"""Damage done to savepoints on purpose, by code that is slow and plain and shares nothing with what writes them but the
codecs of `_metadata` and headers.

A savepoint is taken apart into rows (state, key with its key group, value), changed, and put together again so that
Flink would restore it without a word.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import cramjam

from flinkstate.keyed.header import KeyedHeader, build_header, parse_header
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import (
    InlineBytes,
    KeyedHandle,
    Metadata,
    Operator,
    RelativeFile,
    StreamHandle,
    Subtask,
)
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.reader import operator_id

_END = 0xFFFF


@dataclass(frozen=True)
class Row:
    """One entry; `key` begins with the key group."""

    state: str
    key: bytes
    value: bytes


Groups = dict[int, list[Row]]
# An operator, or its uid.
Named = str | Operator


class Saboteur:
    """Works on a copy of a savepoint; what was inlined or compressed is written so again."""

    def __init__(self, savepoint: Path, copy: Path) -> None:
        shutil.copytree(savepoint, copy)
        self.folder = copy

    @property
    def metadata(self) -> Metadata:
        return parse_metadata((self.folder / "_metadata").read_bytes(), "_metadata")

    def write_metadata(self, metadata: Metadata) -> None:
        (self.folder / "_metadata").write_bytes(build_metadata(metadata))

    def operator(self, uid: Named) -> Operator:
        return next(one for one in self.metadata.operators if one.id == _id_of(uid))

    def change_operator(self, uid: Named, change: Callable[[Operator], Operator]) -> None:
        metadata = self.metadata
        operators = (change(one) if one.id == _id_of(uid) else one for one in metadata.operators)
        self.write_metadata(replace(metadata, operators=tuple(operators)))

    def change_handles(self, uid: Named, change: Callable[[dict[int, KeyedHandle]], None]) -> None:
        """`change` works on the handles of keyed state by subtask."""

        def changed(operator: Operator) -> Operator:
            handles = {one.index: one.managed_keyed for one in operator.subtasks if one.managed_keyed is not None}
            change(handles)
            subtasks = (replace(one, managed_keyed=handles.get(one.index)) for one in operator.subtasks)
            return replace(operator, subtasks=tuple(subtasks))

        self.change_operator(uid, changed)

    def rows(self, uid: Named) -> Groups:
        groups: Groups = {}
        operator = self.operator(uid)
        for subtask in _keyed(operator):
            groups.update(self._read(operator, subtask)[1])
        return groups

    def change_rows(self, uid: Named, change: Callable[[Groups], None]) -> None:
        """`change` works on all key groups of the operator; a state's rows are put together afterwards."""
        groups = self.rows(uid)
        change(groups)
        self._write_all(uid, groups, lambda header, _: header)

    def change_headers(self, uid: Named, change: Callable[[KeyedHeader], KeyedHeader]) -> None:
        self.change_headers_of_subtasks(uid, lambda header, _: change(header))

    def change_headers_of_subtasks(self, uid: Named, change: Callable[[KeyedHeader, int], KeyedHeader]) -> None:
        """The rows are written anew, with the ids that their states then have."""
        self._write_all(uid, self.rows(uid), change)

    def header(self, uid: Named, index: int) -> KeyedHeader:
        operator = self.operator(uid)
        return self._read(operator, next(one for one in operator.subtasks if one.index == index))[0]

    def replace_header(self, uid: Named, index: int, change: Callable[[KeyedHeader], KeyedHeader]) -> None:
        """The rows stay as they are, to the byte."""
        operator = self.operator(uid)
        subtask = next(one for one in operator.subtasks if one.index == index)
        handle, header = _handle(subtask), self.header(uid, index)
        old, new = build_header(header), build_header(change(header))
        stream = self.stored(new + self.bytes_of(subtask)[len(old) :], handle.stream)
        offsets = tuple(offset and offset + len(new) - len(old) for offset in handle.offsets)
        self.change_handles(uid, lambda handles: handles.update({index: KeyedHandle(handle.range, offsets, stream)}))

    def flip(self, file: str, offset: int) -> None:
        path = self.folder / file
        data = bytearray(path.read_bytes())
        data[offset] ^= 1
        path.write_bytes(data)

    def _read(self, operator: Operator, subtask: Subtask) -> tuple[KeyedHeader, Groups]:
        handle, data = _handle(subtask), self.bytes_of(subtask)
        starts = sorted(offset for offset in handle.offsets if offset)
        header, _ = parse_header(data, "a file", end=starts[0] if starts else len(data))
        ends = dict(pairwise([*starts, len(data)]))
        groups = {}
        for key_group, offset in zip(handle.range, handle.offsets, strict=True):
            content = data[offset : ends[offset]] if offset else b""
            if offset and header.compressed:
                content = bytes(cramjam.snappy.decompress(content))
            groups[key_group] = list(_rows(content, 0, header)) if offset else []
        return header, groups

    def bytes_of(self, subtask: Subtask) -> bytes:
        return self.content(_handle(subtask).stream)

    def content(self, stream: StreamHandle) -> bytes:
        if isinstance(stream, InlineBytes):
            return stream.data
        assert isinstance(stream, RelativeFile)
        return (self.folder / stream.path).read_bytes()

    def stored(self, data: bytes, like: StreamHandle) -> StreamHandle:
        """Other bytes in the place of a stream's."""
        if isinstance(like, InlineBytes):
            return InlineBytes(like.name, data)
        assert isinstance(like, RelativeFile)
        (self.folder / like.path).write_bytes(data)
        return RelativeFile(like.path, len(data))

    def _write_all(self, uid: Named, groups: Groups, change: Callable[[KeyedHeader, int], KeyedHeader]) -> None:
        operator = self.operator(uid)
        handles = {}
        for subtask in _keyed(operator):
            handle = _handle(subtask)
            header = change(self._read(operator, subtask)[0], subtask.index)
            data, offsets = build_header(header), []
            for key_group in handle.range:
                rows = groups[key_group]
                offsets.append(len(data) if rows else 0)
                content = _encoded(rows, [state.name for state in header.states]) if rows else b""
                data += bytes(cramjam.snappy.compress(content)) if rows and header.compressed else content
            stream = self.stored(data, handle.stream)
            handles[subtask.index] = KeyedHandle(handle.range, tuple(offsets), stream)
        self.change_handles(uid, lambda old: old.update(handles))


def _id_of(operator: Named) -> bytes:
    return operator_id(operator) if isinstance(operator, str) else operator.id


def _keyed(operator: Operator) -> list[Subtask]:
    return [one for one in operator.subtasks if one.managed_keyed is not None]


def _handle(subtask: Subtask) -> KeyedHandle:
    assert subtask.managed_keyed is not None
    return subtask.managed_keyed


def _rows(data: bytes, position: int, header: KeyedHeader) -> Iterator[Row]:
    (state,) = struct.unpack_from(">H", data, position)
    position += 2
    while state != _END:
        parts = []
        for _ in range(2):
            (length,) = struct.unpack_from(">i", data, position)
            parts.append(data[position + 4 : position + 4 + length])
            position += 4 + length
        key, value = parts
        yield Row(header.states[state].name, bytes([key[0] & 0x7F]) + key[1:], value)
        if key[0] & 0x80:
            (state,) = struct.unpack_from(">H", data, position)
            position += 2


def _encoded(rows: list[Row], states: list[str]) -> bytes:
    data = bytearray()
    # Of a state that is described twice, the second one.
    ids = {state: number for number, state in enumerate(states)}
    for state in sorted({row.state for row in rows}, key=ids.__getitem__):
        own = [row for row in rows if row.state == state]
        data += struct.pack(">H", ids[state])
        for row in own:
            key = bytes([row.key[0] | 0x80]) + row.key[1:] if row is own[-1] else row.key
            data += struct.pack(">i", len(key)) + key + struct.pack(">i", len(row.value)) + row.value
    return bytes(data) + struct.pack(">H", _END)
