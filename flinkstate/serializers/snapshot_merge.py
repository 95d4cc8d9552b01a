"""Merges the serializer snapshots that several subtasks have of one state into one that describes all values.

They differ if a POJO serializer met subclasses that were not registered: each subtask describes those that it has met.
A value names its subclass, so all these descriptions together describe every value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flinkstate.serializers.binary import ByteReader, ByteWriter
from flinkstate.serializers.snapshot_classes import POJO_SNAPSHOT
from flinkstate.serializers.snapshots import OPTIONAL_MAP_MAGIC, SerializerSnapshot, SnapshotParser, optional_map


def merge_snapshots(one: SerializerSnapshot, other: SerializerSnapshot) -> SerializerSnapshot | None:
    """Returns the merged snapshot, or None if the two describe different values."""
    if one.raw == other.raw:
        return one
    if (one.class_name, one.version) != (other.class_name, other.version):
        return None
    if one.class_name == POJO_SNAPSHOT:
        raw = _merge_pojo(one.raw, other.raw)
    elif one.nested:
        raw = _merge_composite(one, other)
    else:
        return None
    return None if raw is None else parse_snapshot(raw)


def parse_snapshot(raw: bytes) -> SerializerSnapshot:
    """Returns the snapshot that fills the bytes."""
    snapshot, _ = SnapshotParser(raw, "a serializer snapshot").read(0)
    return snapshot


def _merge_composite(one: SerializerSnapshot, other: SerializerSnapshot) -> bytes | None:
    """Merges composite snapshots, of which the nested ones are the last part."""
    head = _head(one)
    if head != _head(other) or len(one.nested) != len(other.nested):
        return None
    merged = [merge_snapshots(*pair) for pair in zip(one.nested, other.nested, strict=True)]
    parts = [snapshot.raw for snapshot in merged if snapshot is not None]
    return b"".join((head, *parts)) if len(parts) == len(merged) else None


def _head(composite: SerializerSnapshot) -> bytes:
    return composite.raw[: len(composite.raw) - sum(len(nested.raw) for nested in composite.nested)]


# A name, its framed key and its framed value.
_Item = tuple[str, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class _PojoParts:
    head: bytes
    fields: list[_Item]
    registered: list[_Item]
    others: list[_Item]


def _pojo_parts(raw: bytes) -> _PojoParts:
    reader = ByteReader(raw, "a serializer snapshot")
    reader.utf("the snapshot class")
    reader.i32("its version")
    reader.utf("the POJO class")
    head = raw[: reader.position]
    fields, registered, others = (
        [(name, key and raw[slice(*key)], value and raw[slice(*value)]) for name, key, value in optional_map(reader)]
        for _ in range(3)
    )
    return _PojoParts(head, fields, registered, others)


def with_nested(snapshot: SerializerSnapshot, nested: Sequence[SerializerSnapshot]) -> SerializerSnapshot:
    """Returns the snapshot with these in the place of those that are nested in it."""
    if not nested:
        return snapshot
    if snapshot.class_name != POJO_SNAPSHOT:
        return parse_snapshot(b"".join((_head(snapshot), *(one.raw for one in nested))))
    parts, rest = _pojo_parts(snapshot.raw), iter(nested)
    lists = [
        [(name, key, None if value is None else next(rest).raw) for name, key, value in items]
        for items in (parts.fields, parts.registered, parts.others)
    ]
    return parse_snapshot(_built_pojo(parts.head, *lists))


def _merge_pojo(one: bytes, other: bytes) -> bytes | None:
    mine, theirs = _pojo_parts(one), _pojo_parts(other)
    if mine.head != theirs.head:
        return None
    fields = _merge_items(mine.fields, theirs.fields)
    # The values' tags are positions among the registered subclasses, so their order must be the same.
    registered = _merge_items(mine.registered, theirs.registered)
    known = [item for item in theirs.others if item[0] in {name for name, *_ in mine.others}]
    shared = [item for item in mine.others if item[0] in {name for name, *_ in known}]
    merged = _merge_items(shared, sorted(known, key=lambda item: [name for name, *_ in shared].index(item[0])))
    if fields is None or registered is None or merged is None:
        return None
    by_name = {item[0]: item for item in (*mine.others, *theirs.others, *merged)}
    return _built_pojo(mine.head, fields, registered, list(by_name.values()))


def _built_pojo(head: bytes, *parts: list[_Item]) -> bytes:
    writer = ByteWriter().raw(head)
    for items in parts:
        writer.i64(OPTIONAL_MAP_MAGIC).i32(len(items))
        for name, key, value in items:
            writer.utf(name)
            for frame in (key, value):
                writer.boolean(frame is not None)
                if frame is not None:
                    writer.i32(len(frame)).raw(frame)
    return writer.bytes()


def _merge_items(mine: list[_Item], theirs: list[_Item]) -> list[_Item] | None:
    """Merges two maps with the same names in the same order; returns None for others."""
    merged: list[_Item] = []
    for (name, key, value), (other_name, other_key, other_value) in zip(mine, theirs, strict=False):
        if name != other_name or key != other_key:
            return None
        if value == other_value:
            merged.append((name, key, value))
            continue
        if value is None or other_value is None:
            return None
        snapshot = merge_snapshots(parse_snapshot(value), parse_snapshot(other_value))
        if snapshot is None:
            return None
        merged.append((name, key, snapshot.raw))
    return merged if len(mine) == len(theirs) else None
