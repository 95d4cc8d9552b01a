"""Plain code works out what a row holds when what an upgrade lost of it is put back."""

from __future__ import annotations

from typing import Any

import pytest

from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import FlinkType, KryoRegistration, KryoType, Scalar
from flinkstate.values.java_values import TtlValue
from flinkstate.values.kryo_references import KryoObject
from stateferry.changes.upgrade.before_upgrade import StateBefore
from stateferry.proof.plain.plain_losses import PlainLosses, _read_by_flink_2, before_the_upgrade, in_no_order
from tests.support.kryo_writing import Boxed, kryo_map, kryo_object

NOW, TTL = 1_000, 100
KEY = b"key"
HASH_MAP = "java.util.HashMap"


def by_kryo(class_name: str) -> KryoType:
    return KryoType(class_name, registrations=(KryoRegistration(class_name),), five=False)


IN_MAP, IN_OBJECT = by_kryo(HASH_MAP), by_kryo("java.lang.Object")


def object_of(value: Any) -> KryoObject | None:
    """Of a text a String, of a whole number a Long, of a fraction a Double, of a dict a HashMap."""
    if value is None or isinstance(value, KryoObject):
        return value
    if isinstance(value, dict):
        return KryoObject(HASH_MAP, [(object_of(key), object_of(one)) for key, one in value.items()])
    return KryoObject({str: "java.lang.String", int: "java.lang.Long", float: "java.lang.Double"}[type(value)], value)


def losses_of(
    old: bytes, value: FlinkType = IN_MAP, kind: StateKind = StateKind.VALUE, *, namespace: FlinkType | None = None,
    ttl: int | None = None, restores: bool = True, restores_keys: bool = True,
) -> PlainLosses:  # fmt: skip
    of_map = Scalar.STRING if kind is StateKind.MAP else None
    where = namespace or Scalar.VOID_NAMESPACE
    state = KeyedState("s", kind, Scalar.STRING, where, of_map, value, ttl is not None, False)
    return PlainLosses(StateBefore(state, ttl, NOW), {KEY: old}, restores, restores_keys)


def stamped(timestamp: int, content: bytes, kind: StateKind = StateKind.VALUE) -> bytes:
    flag = b"\0" if kind is StateKind.MAP else b""
    return flag + timestamp.to_bytes(8, "big") + content


OLD: dict[object, object] = {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        ({"a": 1, "b": 2}, OLD),
        ({"a": 1, "b": 9}, {"a": 1, "b": 9, "c": 3}),
        ({"b": 2}, {"b": 2, "c": 3}),
        ({"a": 1, "b": 2, "c": 9}, {"a": 1, "b": 2, "c": 9}),
        ({"d": 4}, {"d": 4, "c": 3}),
        ({}, {"c": 3}),
    ],
)
def test_the_last_entry_of_a_map_is_put_back_unless_there_is_a_newer_one(
    now: dict[object, object], wanted: dict[object, object]
) -> None:
    losses = losses_of(kryo_map(OLD, five=False))
    made = losses.restored(KEY, kryo_map(now, five=True), object_of(now))
    assert in_no_order(made) == in_no_order(object_of(wanted))


def test_what_was_not_there_or_is_untouched_or_is_not_to_be_restored_stays() -> None:
    old, now = kryo_map(OLD, five=False), object_of({"a": 1})
    assert losses_of(old).restored(b"another", b"", now) == now
    assert losses_of(old).restored(KEY, old, now) == now
    assert losses_of(old, restores=False).restored(KEY, b"", now) == now
    assert losses_of(old).is_untouched(KEY, old)
    assert not losses_of(old).is_untouched(KEY, old[:-1])
    assert not losses_of(old).is_untouched(b"another", old)


def test_a_number_that_was_read_wrongly_is_put_right_unless_it_was_written_since() -> None:
    losses = losses_of(kryo_map({"x": Boxed("double", 14.3), "y": 1}, five=False))
    wrong = _read_by_flink_2(object_of(14.3))
    for now, wanted in ((wrong, 14.3), (object_of(2.5), 2.5)):
        map_ = object_of({"x": now})
        made = losses.restored(KEY, b"", map_)
        assert in_no_order(made) == in_no_order(object_of({"x": wanted, "y": 1}))


def test_a_map_that_is_null_now() -> None:
    # Flink 2 reads null of a TreeMap and of an empty map.
    losses = losses_of(kryo_map({}, five=False))
    assert losses.restored(KEY, b"", None) == object_of({})
    assert losses.restored(KEY, b"", object_of({"a": 1})) == object_of({"a": 1})
    tree = b"\x57\1\0\1" + kryo_object("k", five=False) + kryo_object(5, five=False)
    of_tree = losses_of(tree, by_kryo("java.util.TreeMap"))
    made = of_tree.restored(KEY, b"", None)
    assert made == KryoObject("java.util.TreeMap", [(object_of("k"), object_of(5))])
    # Of a HashMap with entries Flink 2 reads no null: the job has written it.
    assert losses_of(kryo_map(OLD, five=False)).restored(KEY, b"", None) is None


def test_a_value_that_is_no_map() -> None:
    losses = losses_of(kryo_object(Boxed("double", 14.3), five=False), IN_OBJECT)
    wrong = _read_by_flink_2(object_of(14.3))
    assert wrong != object_of(14.3)
    assert losses.restored(KEY, b"", wrong) == object_of(14.3)
    assert losses.restored(KEY, b"", object_of(2.5)) == object_of(2.5)
    # Both byte orders are the same of it, and it is no loss of the upgrade.
    text = losses_of(kryo_object("as before", five=False), IN_OBJECT)
    assert text.restored(KEY, b"", object_of("newer")) == object_of("newer")


@pytest.mark.parametrize("kind", [StateKind.VALUE, StateKind.MAP])
@pytest.mark.parametrize(("timestamp", "is_put_back"), [(NOW - TTL + 1, True), (NOW - TTL, False), (2**63 - 1, True)])
def test_what_has_expired_is_not_put_back(kind: StateKind, timestamp: int, is_put_back: bool) -> None:
    losses = losses_of(stamped(timestamp, kryo_map(OLD, five=False), kind), kind=kind, ttl=TTL)
    now = TtlValue(7, object_of({"a": 1, "b": 2}))
    wanted = TtlValue(7, object_of(OLD)) if is_put_back else now
    assert in_no_order(losses.restored(KEY, b"", now)) == in_no_order(wanted)
    gone = losses.of_gone(KEY)
    assert gone == (TtlValue(timestamp, object_of({"c": 3})) if is_put_back else None)


def test_of_a_row_that_is_gone_the_lost_entries_alone() -> None:
    old = kryo_map(OLD, five=False)
    assert losses_of(old).of_gone(KEY) == object_of({"c": 3})
    assert losses_of(old, restores_keys=False).of_gone(KEY) is None
    assert losses_of(old, namespace=Scalar.STRING).of_gone(KEY) is None
    assert losses_of(kryo_map({}, five=False)).of_gone(KEY) is None
    assert losses_of(b"\0").of_gone(KEY) is None
    number = losses_of(kryo_object(Boxed("double", 14.3), five=False), IN_OBJECT)
    assert number.of_gone(KEY) is None
    # A row of a MapState has a flag before its value; what is null there has no map.
    row = losses_of(b"\0" + old, kind=StateKind.MAP)
    assert row.of_gone(KEY) == object_of({"c": 3})
    assert losses_of(b"\1", kind=StateKind.MAP).of_gone(KEY) is None


def test_elements_of_a_list_from_before_the_upgrade() -> None:
    losses = losses_of(b"old", kind=StateKind.LIST)
    assert losses.parts_of_list(KEY, b"old") == (b"old", b"")
    assert losses.parts_of_list(KEY, b"old,new,newer") == (b"old", b"new,newer")
    assert losses.parts_of_list(KEY, b"older") == (None, b"older")
    assert losses.parts_of_list(KEY, b"new,old") == (None, b"new,old")
    assert losses.parts_of_list(b"another", b"old") == (None, b"old")


@pytest.mark.parametrize(
    ("old", "read"),
    [
        (None, None),
        ("text", "text"),
        (5, 5),
        (KryoObject("java.lang.Boolean", value=True), KryoObject("java.lang.Boolean", value=True)),
        (KryoObject("java.lang.Short", 1), KryoObject("java.lang.Short", 256)),
        (KryoObject("java.lang.Character", "a"), KryoObject("java.lang.Character", "\u6100")),
        ({}, None),
        ({"a": 1}, {}),
        ({"a": KryoObject("java.lang.Short", 1), "b": 2}, {"a": KryoObject("java.lang.Short", 256)}),
        (KryoObject("java.util.TreeMap", [(None, None)]), None),
        (KryoObject("java.util.LinkedHashMap", [(None, None)]), KryoObject("java.util.LinkedHashMap", [])),
    ],
)
def test_what_flink_2_reads(old: Any, read: Any) -> None:
    assert _read_by_flink_2(object_of(old)) == object_of(read)


def test_of_other_classes_plain_code_does_not_know_what_flink_2_reads() -> None:
    with pytest.raises(RefusedError, match=r"what Flink 2 reads of a java\.util\.UUID that Kryo 2 wrote isn't known"):
        _read_by_flink_2(KryoObject("java.util.UUID", ""))


def test_a_value_that_is_as_it_was_stays_whatever_it_is() -> None:
    uuid = losses_of(bytes.fromhex("54010204"), KryoType("java.util.UUID", five=False))
    value = KryoObject("java.util.UUID", "00000000-0000-0001-0000-000000000002")
    assert uuid.restored(KEY, b"", value) == value
    with pytest.raises(RefusedError, match=r"java\.util\.UUID"):
        uuid.restored(KEY, b"", None)
    with pytest.raises(RefusedError, match="parts by Kryo"):
        _read_by_flink_2((value, 1))


def test_the_order_of_entries_does_not_count() -> None:
    one, other = object_of({"a": 1, "b": 2}), object_of({"b": 2, "a": 1})
    assert one != other
    for wrapped in (lambda value: value, lambda value: TtlValue(3, value), lambda value: (value, None)):
        assert in_no_order(wrapped(one)) == in_no_order(wrapped(other))
    assert in_no_order(TtlValue(3, one)) != in_no_order(TtlValue(4, one))
    for inside in (lambda value: {"u": value}, lambda value: KryoObject("com.acme.Both", {"f": [value]})):
        assert in_no_order(object_of(inside(one))) == in_no_order(object_of(inside(other)))
    sets = (KryoObject("java.util.HashSet", [object_of(text) for text in texts]) for texts in ("ab", "ba"))
    assert in_no_order(next(sets)) == in_no_order(next(sets))
    list_ = KryoObject("java.util.ArrayList", [object_of("b"), object_of("a")])
    assert in_no_order(list_) == list_
    assert in_no_order(5) == 5


def test_rows_from_before_the_upgrade_have_a_name_of_their_own() -> None:
    assert before_the_upgrade("totals") == "totals before the upgrade"
