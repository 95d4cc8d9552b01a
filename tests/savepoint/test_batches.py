"""A state's entries as Arrow batches, entry by entry: against single values, and damaged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.reading.batches import record_batch, schema
from flinkstate.reading.rows import RowPortion
from flinkstate.serializers.types import (
    FlinkType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    PojoField,
    PojoType,
    Scalar,
    TimerType,
    TtlType,
    TupleType,
)
from flinkstate.values import codecs
from flinkstate.values.java_values import Singleton, TimerValue, TtlValue
from tests.columns.test_columns import NotRepresentableError, expected
from tests.support.expected_columns import rows_of
from tests.support.naive import flink_types, present_values, values_of

KRYO = OpaqueType("com.acme.Reading", "written by Kryo")
PAIR = TupleType((Scalar.STRING, Scalar.INTEGER), "org.apache.flink.api.java.tuple.Tuple2")
VOID = Singleton.VOID_NAMESPACE
TIMESTAMPS = st.sampled_from((-(2**63), -1, 0, 1_700_000_000_000, 2**63 - 1))


@dataclass(frozen=True)
class Entry:
    key: Any
    namespace: Any
    user_key: Any
    value: Any
    timestamp: Any


def suffix(part: bytes, has_suffix: bool) -> bytes:
    length, out = len(part), b""
    while has_suffix and (length or not out):
        out += bytes([length & 0xFF])
        length >>= 8
    return part + out


def encoded(state: KeyedState, entry: Entry) -> tuple[bytes, bytes]:
    key = suffix(codecs.encode(state.key, entry.key), state.has_suffixes)
    key += suffix(codecs.encode(state.namespace, entry.namespace), state.has_suffixes)
    if state.kind is StateKind.TIMERS:
        return codecs.encode(TimerType(state.key, state.namespace), timer(entry)), b""
    assert state.value is not None
    assert state.stored_value is not None
    if state.kind is StateKind.LIST:
        items = zip(entry.value, entry.timestamp, strict=True)
        parts = [codecs.encode(state.stored_value, stamped(state, *item)) for item in items]
        return key, b",".join(parts)
    if state.kind is StateKind.MAP:
        key += codecs.encode(state.user_key or KRYO, entry.user_key)
        if entry.value is None and entry.timestamp is None:
            return key, b"\x01"
        return key, b"\x00" + codecs.encode(state.stored_value, stamped(state, entry.value, entry.timestamp))
    return key, codecs.encode(state.stored_value, stamped(state, entry.value, entry.timestamp))


def timer(entry: Entry) -> Any:
    return TimerValue(entry.timestamp, entry.key, entry.namespace)


def stamped(state: KeyedState, value: Any, timestamp: Any) -> Any:
    return TtlValue(timestamp, value) if state.ttl else value


def laid_out(state: KeyedState, entries: list[Entry], prefix: int) -> RowPortion:
    data, starts, key_ends, ends = bytearray(b"before"), [], [], []
    for entry in entries:
        key, value = encoded(state, entry)
        starts.append(len(data))
        data += (prefix + len(key)).to_bytes(4, "big") + bytes(prefix) + key
        key_ends.append(len(data))
        data += len(value).to_bytes(4, "big") + value
        ends.append(len(data))
    numbers = [np.array(part, np.int64) for part in (starts, key_ends, ends)]
    key_groups = np.zeros(len(entries), np.int32)
    return RowPortion(np.frombuffer(data, np.uint8), prefix, key_groups, numbers[0], numbers[1], numbers[2], ())


@st.composite
def states_and_entries(draw: st.DrawFn) -> tuple[KeyedState, list[Entry]]:
    kind = draw(st.sampled_from(StateKind))
    keys: tuple[FlinkType, ...] = (Scalar.STRING, Scalar.LONG, PAIR)
    key = draw(st.sampled_from(keys))
    namespace = draw(st.sampled_from((Scalar.VOID_NAMESPACE, Scalar.TIME_WINDOW, Scalar.STRING)))
    user_keys: tuple[FlinkType, ...] = (Scalar.STRING, Scalar.INTEGER, PAIR)
    user_key = draw(st.sampled_from(user_keys)) if kind is StateKind.MAP else None
    value = None if kind is StateKind.TIMERS else draw(flink_types())
    ttl = kind is not StateKind.TIMERS and draw(st.booleans())
    state = KeyedState("s", kind, key, namespace, user_key, value, ttl, False)
    nothing = st.none()
    plain_values = nothing if value is None else values_of(value)
    one: st.SearchStrategy[tuple[Any, Any]] = st.tuples(
        plain_values, TIMESTAMPS if ttl or kind is StateKind.TIMERS else nothing
    )
    if kind is StateKind.LIST:
        items = st.lists(one, max_size=4).map(lambda pairs: ([v for v, _ in pairs], [t for _, t in pairs]))
        one = items.filter(lambda parts: no_empty_items(state, parts))
    elif kind is StateKind.MAP:
        one |= st.just((None, None))
    parts = st.tuples(present_values(key), present_values(namespace), present_values(user_key) if user_key else nothing)
    entries = st.lists(st.tuples(parts, one), max_size=5)
    return state, [Entry(*part, *both) for part, both in draw(entries)]


def no_empty_items(state: KeyedState, parts: tuple[list[Any], list[Any]]) -> bool:
    """A list of values without bytes can't be told from a shorter one."""
    assert state.stored_value is not None
    return all(codecs.encode(state.stored_value, stamped(state, *item)) for item in zip(*parts, strict=True))


def expected_row(state: KeyedState, entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {"key_group": 0, "key": expected(state.key, entry.key)}
    if state.namespace is not Scalar.VOID_NAMESPACE:
        row["namespace"] = expected(state.namespace, entry.namespace)
    if state.user_key is not None:
        row["user_key"] = expected(state.user_key, entry.user_key)
    if state.value is not None:
        type_: FlinkType = ListType(state.value) if state.kind is StateKind.LIST else state.value
        row["value"] = expected(type_, entry.value)
    if state.ttl or state.kind is StateKind.TIMERS:
        row["timestamp"] = entry.timestamp
    return row


@pytest.mark.slow
@given(states_and_entries(), st.sampled_from((1, 2)))
def test_batches_hold_what_single_entries_are(drawn: tuple[KeyedState, list[Entry]], prefix: int) -> None:
    state, entries = drawn
    rows = laid_out(state, entries, prefix)
    try:
        wanted = [expected_row(state, entry) for entry in entries]
    except NotRepresentableError:
        with pytest.raises(StateferryError):
            record_batch(state, rows)
    else:
        assert rows_of(record_batch(state, rows)) == wanted
    raw = rows_of(record_batch(state, rows, raw=True))
    for row, entry in zip(raw, entries, strict=True):
        key, value = encoded(state, entry)
        assert row["key"] == codecs.encode(state.key, entry.key)
        assert row.get("value", b"") == value
        if state.kind is StateKind.MAP:
            assert key.endswith(row["user_key"])
            assert row["user_key"] == codecs.encode(state.user_key or KRYO, entry.user_key)
        if state.kind is not StateKind.LIST:
            assert row.get("timestamp") == entry.timestamp


@pytest.mark.slow
@given(states_and_entries().filter(lambda drawn: bool(drawn[1])), st.data())
def test_a_key_or_value_that_is_cut_short_is_damage(drawn: tuple[KeyedState, list[Entry]], data: st.DataObject) -> None:
    state, entries = drawn
    entry = data.draw(st.sampled_from(entries))
    rows = laid_out(state, [entry], 1)
    key_end, end = int(rows.key_ends[0]), int(rows.ends[0])
    cut_key = data.draw(st.booleans()) or end == key_end + 4
    if cut_key:
        changed = replace(rows, key_ends=rows.key_ends - data.draw(st.integers(1, key_end - int(rows.key_starts[0]))))
    else:
        changed = replace(rows, ends=rows.ends - data.draw(st.integers(1, end - key_end - 4)))
    for raw in (False, True):
        try:
            found = rows_of(record_batch(state, changed, raw=raw))
        except (DamagedError, RefusedError):
            continue
        # Some beginnings of a value are values: a shorter list, a null. Never the same.
        assert found != rows_of(record_batch(state, rows, raw=raw))


def test_what_flink_1_20_leaves_behind_a_null_is_not_read() -> None:
    state = map_state()
    rows = laid_out(state, [Entry("k", VOID, 1, None, None), Entry("k", VOID, 2, 7, None)], 1)
    data = rows.data.tobytes()[: int(rows.ends[0])] + b"\x00\x01" + rows.data.tobytes()[int(rows.ends[0]) :]
    shift = np.array([0, 2])
    moved = replace(
        rows,
        data=np.frombuffer(data, np.uint8),
        starts=rows.starts + shift,
        key_ends=rows.key_ends + shift,
        ends=rows.ends + 2,
    )
    assert record_batch(state, moved).to_pydict()["value"] == [None, 7]
    behind_value = replace(moved, ends=moved.ends + np.array([0, -1]))
    with pytest.raises(DamagedError):
        record_batch(state, behind_value)


def lengthened(state: KeyedState, entry: Entry, *, key: bytes = b"", value: bytes = b"") -> RowPortion:
    rows = laid_out(state, [entry], 1)
    data, key_end, end = rows.data.tobytes(), int(rows.key_ends[0]), int(rows.ends[0])
    return replace(
        rows,
        data=np.frombuffer(data[:key_end] + key + data[key_end:end] + value, np.uint8),
        key_ends=rows.key_ends + len(key),
        ends=rows.ends + len(key) + len(value),
    )


@pytest.mark.parametrize("kind", StateKind)
@pytest.mark.parametrize("namespace", [Scalar.VOID_NAMESPACE, Scalar.STRING])
def test_bytes_behind_a_key_are_damage(kind: StateKind, namespace: Scalar) -> None:
    is_map, is_timer = kind is StateKind.MAP, kind is StateKind.TIMERS
    user_key, value = (Scalar.STRING if is_map else None), (None if is_timer else Scalar.LONG)
    state = KeyedState("s", kind, Scalar.STRING, namespace, user_key, value, False, False)
    within = VOID if namespace is Scalar.VOID_NAMESPACE else "n"
    entry = Entry("k", within, "u", [1] if kind is StateKind.LIST else 1, [None] if kind is StateKind.LIST else None)
    if is_timer:
        entry = replace(entry, timestamp=5)
    longer = lengthened(state, entry, key=b"x")
    with pytest.raises(DamagedError, match="the end of the key, found 1 more bytes") as caught:
        record_batch(state, longer)
    assert caught.value.offset == int(longer.key_ends[0]) - 1
    # Of a map's key the rest is the user key, whatever its bytes mean.
    if is_map:
        assert rows_of(record_batch(state, longer, raw=True))[0]["user_key"] == b"\x02ux"
    else:
        with pytest.raises(DamagedError, match="the end of the key"):
            record_batch(state, longer, raw=True)


@pytest.mark.parametrize("kind", [StateKind.VALUE, StateKind.MAP, StateKind.REDUCING, StateKind.AGGREGATING])
@pytest.mark.parametrize("ttl", [False, True])
def test_bytes_behind_a_value_are_damage(kind: StateKind, ttl: bool) -> None:
    user_key = Scalar.STRING if kind is StateKind.MAP else None
    state = KeyedState("s", kind, Scalar.STRING, Scalar.VOID_NAMESPACE, user_key, Scalar.LONG, ttl, False)
    longer = lengthened(state, Entry("k", VOID, "u", 1, 9 if ttl else None), value=b"xy")
    with pytest.raises(DamagedError, match="the end of the value, found 2 more bytes") as caught:
        record_batch(state, longer)
    assert caught.value.offset == int(longer.ends[0]) - 2


def test_a_list_without_bytes_is_an_empty_list() -> None:
    state = KeyedState("s", StateKind.LIST, Scalar.STRING, Scalar.VOID_NAMESPACE, None, Scalar.LONG, True, False)
    entries = [Entry(key, VOID, None, items, items) for key, items in (("a", []), ("b", [1, 2]), ("c", []))]
    found = record_batch(state, laid_out(state, entries, 1)).to_pydict()
    assert found["value"] == found["timestamp"] == [[], [1, 2], []]


def map_state(value: FlinkType = Scalar.LONG, key: FlinkType = Scalar.STRING) -> KeyedState:
    return KeyedState("counts", StateKind.MAP, key, Scalar.VOID_NAMESPACE, Scalar.INTEGER, value, False, False)


def test_what_has_no_columns_is_refused_by_name_but_not_as_bytes() -> None:
    state = map_state(MapType(Scalar.STRING, KRYO))
    with pytest.raises(
        RefusedError, match=r"state counts: its value Map<String,Reading>: com\.acme\.Reading.*raw=true"
    ):
        schema(state)
    assert schema(state, raw=True).field("value").type == pa.binary()


def test_keys_that_have_no_end_are_refused_always() -> None:
    for raw in (False, True):
        with pytest.raises(
            RefusedError, match=r"state counts: its key Reading .* com\.acme\.Reading is written by Kryo"
        ):
            schema(map_state(key=KRYO), raw=raw)
        nested = TupleType((Scalar.LONG, KRYO), "Tuple2")
        with pytest.raises(RefusedError, match=r"state counts: its key Tuple2<Long,Reading> .* com\.acme\.Reading"):
            schema(map_state(key=nested), raw=raw)


def test_a_key_may_have_subclasses_that_have_no_columns() -> None:
    pojo = PojoType("com.acme.Key", (PojoField("id", Scalar.LONG),), other_subclasses=(("com.acme.Odd", KRYO),))
    nullable = map_state(NullableType(TtlType(Scalar.LONG), 0), key=pojo)
    assert schema(nullable).field("key").type == pa.struct([("id", pa.int64())])
    assert schema(nullable, raw=True).field("key").type == pa.binary()


def test_asynchronous_state_is_refused() -> None:
    with pytest.raises(RefusedError, match="counts is asynchronous"):
        schema(replace(map_state(), asynchronous=True))
