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
from pathlib import Path

from stateferry.savepoint.header import KeyedHeader, build_header, parse_header
from stateferry.savepoint.metadata import (
    KeyedHandle,
    Metadata,
    Operator,
    RelativeFile,
    Subtask,
    build_metadata,
    parse_metadata,
)
from stateferry.savepoint.reader import operator_id

_END = 0xFFFF


@dataclass(frozen=True)
class Row:
    """One entry; `key` begins with the key group."""

    state: str
    key: bytes
    value: bytes


Groups = dict[int, list[Row]]


class Saboteur:
    """Works on a copy of a savepoint whose keyed state is in files of its own and not compressed."""

    def __init__(self, savepoint: Path, copy: Path) -> None:
        shutil.copytree(savepoint, copy)
        self.folder = copy

    @property
    def metadata(self) -> Metadata:
        return parse_metadata((self.folder / "_metadata").read_bytes(), "_metadata")

    def write_metadata(self, metadata: Metadata) -> None:
        (self.folder / "_metadata").write_bytes(build_metadata(metadata))

    def operator(self, uid: str) -> Operator:
        return next(one for one in self.metadata.operators if one.id == operator_id(uid))

    def change_operator(self, uid: str, change: Callable[[Operator], Operator]) -> None:
        metadata = self.metadata
        operators = (change(one) if one.id == operator_id(uid) else one for one in metadata.operators)
        self.write_metadata(replace(metadata, operators=tuple(operators)))

    def change_handles(self, uid: str, change: Callable[[dict[int, KeyedHandle]], None]) -> None:
        """`change` works on the handles of keyed state by subtask."""

        def changed(operator: Operator) -> Operator:
            handles = {one.index: one.managed_keyed for one in operator.subtasks if one.managed_keyed is not None}
            change(handles)
            subtasks = (replace(one, managed_keyed=handles.get(one.index)) for one in operator.subtasks)
            return replace(operator, subtasks=tuple(subtasks))

        self.change_operator(uid, changed)

    def rows(self, uid: str) -> Groups:
        groups: Groups = {}
        operator = self.operator(uid)
        for subtask in _keyed(operator):
            groups.update(self._read(operator, subtask)[1])
        return groups

    def change_rows(self, uid: str, change: Callable[[Groups], None]) -> None:
        """`change` works on all key groups of the operator; a state's rows are put together afterwards."""
        groups = self.rows(uid)
        change(groups)
        self._write_all(uid, groups, lambda header: header)

    def change_headers(self, uid: str, change: Callable[[KeyedHeader], KeyedHeader]) -> None:
        self._write_all(uid, self.rows(uid), change)

    def flip(self, file: str, offset: int) -> None:
        path = self.folder / file
        data = bytearray(path.read_bytes())
        data[offset] ^= 1
        path.write_bytes(data)

    def _read(self, operator: Operator, subtask: Subtask) -> tuple[KeyedHeader, Groups]:
        handle, data = _handle(subtask), self.bytes_of(subtask)
        starts = sorted(offset for offset in handle.offsets if offset)
        header, _ = parse_header(data, "a file", end=starts[0] if starts else len(data))
        assert not header.compressed
        groups = {}
        for key_group, offset in zip(handle.range, handle.offsets, strict=True):
            groups[key_group] = list(_rows(data, offset, header)) if offset else []
        return header, groups

    def bytes_of(self, subtask: Subtask) -> bytes:
        return (self.folder / _file(_handle(subtask)).path).read_bytes()

    def _write_all(self, uid: str, groups: Groups, change: Callable[[KeyedHeader], KeyedHeader]) -> None:
        operator = self.operator(uid)
        handles = {}
        for subtask in _keyed(operator):
            handle = _handle(subtask)
            header = change(self._read(operator, subtask)[0])
            data, offsets = build_header(header), []
            for key_group in handle.range:
                rows = groups[key_group]
                offsets.append(len(data) if rows else 0)
                data += _encoded(rows, [state.name for state in header.states]) if rows else b""
            name = _file(handle).path
            (self.folder / name).write_bytes(data)
            handles[subtask.index] = KeyedHandle(handle.range, tuple(offsets), RelativeFile(name, len(data)))
        self.change_handles(uid, lambda old: old.update(handles))


def _keyed(operator: Operator) -> list[Subtask]:
    return [one for one in operator.subtasks if one.managed_keyed is not None]


def _handle(subtask: Subtask) -> KeyedHandle:
    assert subtask.managed_keyed is not None
    return subtask.managed_keyed


def _file(handle: KeyedHandle) -> RelativeFile:
    assert isinstance(handle.stream, RelativeFile)
    return handle.stream


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
    for state in sorted({row.state for row in rows}, key=states.index):
        own = [row for row in rows if row.state == state]
        data += struct.pack(">H", states.index(state))
        for row in own:
            key = bytes([row.key[0] | 0x80]) + row.key[1:] if row is own[-1] else row.key
            data += struct.pack(">i", len(key)) + key + struct.pack(">i", len(row.value)) + row.value
    return bytes(data) + struct.pack(">H", _END)
