"""Snapshots of Flink SQL and CEP, laid out by hand: they end where they say, and their values stay unknown."""

from __future__ import annotations

import pytest

from flinkstate.keyed.header import KeyedHeader, parse_header
from flinkstate.serializers.built_snapshots import without_avro
from flinkstate.serializers.snapshot_merge import merge_snapshots, parse_snapshot
from flinkstate.serializers.snapshots import SnapshotParser
from flinkstate.serializers.types import OpaqueType, type_name
from tests.serializers.test_snapshots import BASE, LONG, RUNTIME, STRING, composite, i32, nested, pojo, snapshot, utf

TABLE = "org.apache.flink.table.runtime.typeutils."
CEP = "org.apache.flink.cep.nfa."
# As Java writes an object: this has names of classes behind which are numbers, so that snapshots seem to begin in it.
JAVA_OBJECT = (
    bytes.fromhex("aced000573720027")
    + b"org.apache.flink.table.types.logical.BigIntType"[:39]
    + bytes(9)
    + b"\2\0\0xr"
    + utf("org.apache.flink.table.types.logical.LogicalType")
    + bytes(16)
    + b"xp\1"
)
TEXT = snapshot(TABLE + "StringDataSerializer$StringDataSerializerSnapshot", 3)
DECIMAL = snapshot(TABLE + "DecimalDataSerializer$DecimalSerializerSnapshot", 3, i32(10, 2))
TIMESTAMP = snapshot(TABLE + "TimestampDataSerializer$TimestampDataSerializerSnapshot", 1, i32(3))
WINDOW = snapshot(
    "org.apache.flink.table.runtime.operators.window.TimeWindow$Serializer$TimeWindowSerializerSnapshot", 3
)


def row(*fields: bytes) -> bytes:
    body = i32(len(fields)) + len(fields) * JAVA_OBJECT + nested(*fields)
    return snapshot(TABLE + "RowDataSerializer$RowDataSerializerSnapshot", 3, body)


ROW = row(LONG, TEXT, DECIMAL, row(TIMESTAMP), row())
MAP_VIEW = composite("org.apache.flink.table.dataview.MapViewSerializerSnapshot", 1, b"", ROW, LONG)
EXTERNAL = composite(TABLE + "ExternalSerializer$ExternalSerializerSnapshot", 1, JAVA_OBJECT + b"\0", MAP_VIEW)
LINKED = composite(TABLE + "LinkedListSerializer$LinkedListSerializerSnapshot", 3, b"\1", ROW)
EVENT = snapshot(CEP + "sharedbuffer.EventId$EventIdSerializer$EventIdSerializerSnapshot", 3)
NODE = composite(CEP + "sharedbuffer.NodeId$NodeIdSerializer$NodeIdSerializerSnapshot", 1, b"", EVENT, STRING)
LOCKABLE_CLASS = CEP + "sharedbuffer.LockableTypeSerializerSnapshot"
LOCKABLE = composite(LOCKABLE_CLASS, 1, b"", NODE)
NFA = composite(CEP + "NFAStateSerializerSnapshot", 2, b"\1", EVENT, NODE)
OLD_NFA = composite(CEP + "NFAStateSerializerSnapshot", 1, b"", EVENT, NODE)
OWN = composite("com.acme.OwnSerializer$Snapshot", 5, b"", STRING, ROW)

KNOWN_ENDS = [TEXT, DECIMAL, TIMESTAMP, WINDOW, ROW, row(), MAP_VIEW, EXTERNAL, LINKED, NODE, NFA]


@pytest.mark.parametrize("raw", [*KNOWN_ENDS, OLD_NFA, OWN])
def test_it_ends_where_it_says_and_stays_unknown(raw: bytes) -> None:
    found, end = SnapshotParser(raw + b"whatever follows", "file").read(0)
    assert (found.raw, end) == (raw, len(raw))
    assert isinstance(found.type, OpaqueType)
    assert found.type.class_name == found.class_name
    whose = "not one of Flink's own" if raw is OWN else "of Flink that Stateferry doesn't read"
    assert whose in found.type.reason


def test_events_of_a_pattern_are_read() -> None:
    row_of_events = composite(BASE + "MapSerializerSnapshot", 1, b"", EVENT, composite(LOCKABLE_CLASS, 1, b"", LONG))
    found = parse_snapshot(row_of_events).type
    assert type_name(found) == "Map<EventId<Integer,Long>,Lockable<Integer,Long>>"
    of_unknown = parse_snapshot(LOCKABLE).type
    assert type_name(of_unknown) == "Lockable<Integer,NodeIdSerializerSnapshot>"


def state(name: str, kind: int, *serializers: tuple[str, bytes]) -> bytes:
    described = b"".join(utf(key) + i32(2) + raw for key, raw in serializers)
    return utf(name) + i32(kind, 0, len(serializers)) + described


def header(key: bytes, *states: bytes) -> KeyedHeader:
    data = i32(6) + b"\0" + i32(2) + key + len(states).to_bytes(2, "big") + b"".join(states)
    found, _ = parse_header(data, "file", end=len(data))
    return found


VALUE, NAMESPACE = "VALUE_SERIALIZER", "NAMESPACE_SERIALIZER"


@pytest.mark.parametrize(("key", "namespace"), [(ROW, WINDOW), (STRING, NODE), (OWN, OWN)])
def test_a_header_with_timers_lists_and_maps_has_one_reading(key: bytes, namespace: bytes) -> None:
    timers = composite("org.apache.flink.streaming.api.operators.TimerSerializerSnapshot", 2, b"", key, namespace)
    ttl = composite("org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot", 2, b"", LONG, LINKED)
    map_ = composite(BASE + "MapSerializerSnapshot", 1, b"", LOCKABLE, ttl)
    parts = ((VALUE, map_), (NAMESPACE, namespace))
    states = [state(f"s{n}", 0, *parts) for n in range(4)]
    found = header(key, state("timers", 1, (VALUE, timers)), *states)
    assert found.key_serializer.raw == key
    assert [one.name for one in found.states] == ["timers", "s0", "s1", "s2", "s3"]
    assert [raw.raw for _, raw in found.states[4].serializers] == [map_, namespace]


@pytest.mark.parametrize(
    "raw",
    [
        row(LONG, LONG).replace(i32(1333245, 1, 2), i32(1333245, 1, 3)),  # another number than of types
        snapshot(TABLE + "RowDataSerializer$RowDataSerializerSnapshot", 4, i32(0) + nested()),
        composite(TABLE + "ArrayDataSerializer$ArrayDataSerializerSnapshot", 1, b"body", STRING),
        composite("com.acme.OwnSerializer$Snapshot", 1, b"of its own", STRING),
    ],
)
def test_another_layout_is_searched_for_as_before(raw: bytes) -> None:
    found, end = SnapshotParser(raw, "file").read(0)
    assert (found.raw, found.nested, end) == (raw, (), len(raw))


def test_subtasks_that_met_other_subclasses_have_one_description() -> None:
    """Of events that are POJOs, say."""
    one, other = (
        composite(LOCKABLE_CLASS, 1, b"", pojo("A", [("a", LONG)], [], [sub])) for sub in (("B", STRING), ("C", STRING))
    )
    merged = merge_snapshots(parse_snapshot(one), parse_snapshot(other))
    assert merged is not None
    assert b"B" in merged.raw
    assert b"C" in merged.raw


def test_what_is_inside_isnt_written_anew() -> None:
    kryo = snapshot(RUNTIME + "kryo.KryoSerializerSnapshot", 2, utf("com.acme.Event"))
    avro = "org.apache.avro.generic.GenericData$Array"
    framed = utf(avro) + i32(1) + utf("com.acme.OfAvro")
    key = utf(avro)
    magic = (0x4F2C69A3D70).to_bytes(8, "big")
    registered = utf(avro) + b"\1" + i32(len(key)) + key + b"\1" + i32(len(framed)) + framed
    kryo += magic + i32(1) + registered + 2 * (magic + i32(0))
    assert without_avro(parse_snapshot(kryo)).raw != kryo
    inside = parse_snapshot(composite("com.acme.OwnSerializer$Snapshot", 1, b"", kryo))
    assert without_avro(inside) is inside
