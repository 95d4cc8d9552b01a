"""Plain code reads values that Kryo 2 wrote in the source, and Kryo 5 in the result, and says the same of both."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import pytest

from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import (
    CaseClassType,
    FlinkType,
    KryoCollectionType,
    KryoRegistration,
    KryoType,
    ListType,
    NullableType,
    OpaqueType,
    OptionType,
    Scalar,
    ScalaType,
    TupleType,
)
from flinkstate.ttl import StateTtlConfig
from flinkstate.values.codecs import encode
from flinkstate.values.hash_codes import key_group_of
from flinkstate.values.java_values import PojoValue, TtlValue
from flinkstate.values.kryo_references import KryoObject
from stateferry.changes.rules import PlannedTtl
from stateferry.changes.upgrade.before_upgrade import BeforeUpgrade, StateBefore
from stateferry.proof.expected.sampling import Row
from stateferry.proof.plain.plain_kryo import PlainKryoReader, _without
from stateferry.proof.plain.plain_losses import before_the_upgrade
from stateferry.proof.plain.plain_maps import by_one_kryo
from tests.support.changes import changes_of
from tests.support.encoded import long
from tests.support.kryo_writing import Boxed, kryo_map, kryo_object

NOW, TTL, LATEST = 1_000, 100, 2**63 - 1
ALIVE, EXPIRED = NOW - TTL + 1, NOW - TTL
UUID = KryoType("java.util.UUID", five=False)
MAP, OBJECT = (
    KryoType(name, registrations=(KryoRegistration(name),), five=False)
    for name in ("java.util.HashMap", "java.lang.Object")
)
# The same UUID by each Kryo: two numbers as short as they are, or eight bytes each.
BY_2, BY_5 = bytes.fromhex("54010204"), b"\x54\1" + struct.pack("<qq", 1, 2)
ONE = KryoObject("java.util.UUID", "00000000-0000-0001-0000-000000000002")
KEY = encode(Scalar.STRING, "a") + b"\0"


def reader_of(
    kind: StateKind = StateKind.VALUE, value: FlinkType = UUID, *, ttl: bool = False, drops: bool | None = None,
    user_key: FlinkType = Scalar.STRING, key: FlinkType = Scalar.STRING, new_max: int = 128,
) -> PlainKryoReader:  # fmt: skip
    of_map = user_key if kind is StateKind.MAP else None
    state = KeyedState("s", kind, key, Scalar.VOID_NAMESPACE, of_map, value, ttl, False)
    planned = None if drops is None else PlannedTtl(state, StateTtlConfig(TTL), NOW, drops)
    return PlainKryoReader(state, planned, changes_of((), {"s": state}, 128, new_max))


def row(value: bytes, user_key: bytes = b"", group: int = 5) -> Row:
    return Row("s", group, KEY + user_key, value)


def text_of(value: Any) -> str:
    return f"objects with the digest {blake2b(repr(value).encode(), digest_size=8).hexdigest()}"


def line(value: Any, user_key: Any = None, group: int = 5) -> tuple[Any, ...]:
    shown = "" if user_key is None else text_of(user_key)
    return ("s", group, 'key "a"', shown, 0, text_of(value), None, zlib.crc32(repr("a").encode()))


@pytest.mark.parametrize("new_max", [128, 300])
def test_a_value_by_either_kryo(new_max: int) -> None:
    reader, moved = reader_of(new_max=new_max), key_group_of(Scalar.STRING, "a", new_max) or 0
    assert reader.expected([row(BY_2), row(BY_2)]).lines == [line((ONE,), group=moved)] * 2
    assert reader.found([row(BY_5)]).lines == [line((ONE,))]


def test_an_entry_of_a_map_and_its_null() -> None:
    reader, group = reader_of(StateKind.MAP), key_group_of(Scalar.STRING, "a", 128) or 0
    x = encode(Scalar.STRING, "x")
    assert reader.expected([row(b"\0" + BY_2, x), row(b"\1", x)]).lines == [
        line((ONE,), "x", group), line((None,), "x", group),
    ]  # fmt: skip
    assert reader.found([row(b"\0" + BY_5, x), row(b"\1", x)]).lines == [line((ONE,), "x"), line((None,), "x")]
    by_kryo = reader_of(StateKind.MAP, Scalar.LONG, user_key=UUID)
    assert by_kryo.expected([row(b"\0" + long(7), BY_2)]).lines == [line((7,), ONE, group)]
    assert by_kryo.found([row(b"\0" + long(7), BY_5)]).lines == [line((7,), ONE)]


@pytest.mark.parametrize("drops", [None, False, True])
@pytest.mark.parametrize("kind", [StateKind.VALUE, StateKind.MAP])
def test_what_has_expired_goes_if_the_plan_says_so(kind: StateKind, drops: bool | None) -> None:
    reader, group = reader_of(kind, ttl=True, drops=drops), key_group_of(Scalar.STRING, "a", 128) or 0
    before, name = (b"\0", "x") if kind is StateKind.MAP else (b"", None)
    user_key = b"" if name is None else encode(Scalar.STRING, name)
    for stamp, stays in ((ALIVE, True), (EXPIRED, drops is not True), (LATEST, True)):
        found = reader.expected([row(before + long(stamp) + BY_2, user_key)]).lines
        assert found == ([line((TtlValue(stamp, ONE),), name, group)] if stays else [])
        assert reader.found([row(before + long(stamp) + BY_5, user_key)]).lines == [line((TtlValue(stamp, ONE),), name)]


def test_elements_of_a_list() -> None:
    """Of a list the elements are told from each other, so that none of them is by Kryo alone."""
    reader = reader_of(StateKind.LIST, Scalar.LONG, ttl=True, drops=True)
    one, two, old = (long(stamp) + long(value) for stamp, value in ((ALIVE, 1), (NOW, 2), (EXPIRED, 3)))
    values, group = [TtlValue(ALIVE, 1), TtlValue(NOW, 2)], key_group_of(Scalar.STRING, "a", 128) or 0
    assert reader.expected([row(b",".join([old, one, old, two]))]).lines == [line(values, group=group)]
    assert reader.expected([row(old)]).lines == []
    assert reader.expected([row(b"")]).lines == []
    assert reader.found([row(b",".join([one, two]))]).lines == [line(values)]
    assert reader.found([row(old)]).lines == [line([TtlValue(EXPIRED, 3)])]
    damaged = reader.found([row(one + b"x", group=7)])
    assert damaged.damage == "key group 7: expected the delimiter 2c between elements, found 78"


def test_damage_and_what_cannot_be_read_are_named() -> None:
    account = reader_of().found([row(BY_5 + b"\0", group=7), row(BY_5)])
    assert account.damage == "key group 7: expected the end of a UUID, found 1 more bytes"
    assert account.lines == []
    account = reader_of(key=OpaqueType("com.acme.Key", "why")).expected([row(BY_2)])
    assert account.refusal is not None
    assert "com.acme.Key" in account.refusal
    # The result's are by Kryo 5 alone.
    assert reader_of().found([row(BY_2)]).damage is not None
    assert reader_of().expected([row(BY_5)]).damage is not None


def test_a_collection_is_in_the_source_by_kryo_and_in_the_result_by_flink() -> None:
    made = NullableType(ListType(NullableType(Scalar.LONG, 0)), 0)
    declared = KryoCollectionType.of(KryoType("java.util.ArrayList", five=False), made)
    assert by_one_kryo(declared, True) == made
    assert by_one_kryo(declared, False) == declared
    of_either = KryoCollectionType.of(KryoType("java.util.ArrayList", five=None), made)
    assert by_one_kryo(of_either, False) == declared
    assert (by_one_kryo(UUID, True), by_one_kryo(UUID, False)) == (replace(UUID, five=True), UUID)
    opaque = OpaqueType("com.acme.Value", "why")
    assert by_one_kryo(opaque, True) == opaque


def test_where_both_kryos_have_written_each_row_is_read_by_the_one_that_has() -> None:
    unknown, group = replace(UUID, five=None), key_group_of(Scalar.STRING, "a", 128) or 0
    for written in (BY_2, BY_5):
        assert reader_of(value=unknown).expected([row(written)]).lines == [line((ONE,), group=group)]
        of_keys = reader_of(StateKind.MAP, Scalar.LONG, user_key=unknown)
        assert of_keys.expected([row(b"\0" + long(7), written)]).lines == [line((7,), ONE, group)]
    # Of the user keys it is known.
    of_values = reader_of(StateKind.MAP, unknown, user_key=replace(UUID, five=True))
    assert of_values.expected([row(b"\0" + BY_5, BY_5)]).lines == [line((ONE,), ONE, group)]
    # What Kryo writes for null is the same of both.
    assert reader_of(value=unknown).expected([row(b"\0")]).lines == [line((None,), group=group)]
    damaged = reader_of(value=unknown).expected([row(BY_2 + b"z", group=7)])
    assert damaged.damage == "key group 7: expected the end of a UUID, found 1 more bytes"
    assert reader_of(value=unknown).found([row(BY_2)]).damage is not None


def test_keys_by_kryo_keep_their_key_group() -> None:
    for five in (False, None):
        reader = reader_of(value=Scalar.LONG, key=replace(UUID, five=five))
        (before,) = reader.expected([Row("s", 5, BY_2 + b"\0", long(7))]).lines
        (after,) = reader.found([Row("s", 5, BY_5 + b"\0", long(7))]).lines
        assert before == after
        assert (before[1], before[5]) == (5, text_of((7,)))
        assert "00000000-0000-0001-0000-000000000002" in before[2]
    # Of a job that was upgraded, the key may be by Kryo 5 already.
    assert reader.expected([Row("s", 5, BY_5 + b"\0", long(7))]).lines == [after]


def test_a_row_that_both_kryos_could_have_written_is_refused() -> None:
    reader = reader_of(value=KryoType("java.lang.Double"))
    account = reader.expected([row(b"\x0a" + bytes(range(8)))])
    assert account.refusal == "Kryo 2 and Kryo 5 could both have written this row, and mean different values"
    assert len(reader.expected([row(b"\x0a" + bytes(8))]).lines) == 1


def test_timers_of_keys_by_kryo() -> None:
    reader = reader_of(StateKind.TIMERS, Scalar.LONG, key=UUID)
    before, after = (Row("s", 5, long(NOW) + key + b"\0", b"") for key in (BY_2, BY_5))
    account = reader.expected([before])
    (expected,), (found,) = account.lines, reader.found([after]).lines
    assert (account.damage, account.refusal) == (reader.found([after]).damage, None)
    assert expected == found
    assert (expected[:2], expected[3:7]) == (("s", 5), ("", 0, "a timer", None))
    later = Row("s", 5, long(NOW + 1) + BY_5 + b"\0", b"")
    assert reader.found([later]).lines != [expected]


@pytest.mark.parametrize("kind", [StateKind.MAP, StateKind.TIMERS])
def test_keys_that_were_scala_s(kind: StateKind) -> None:
    """A key is where its new hash leads, whatever key group it was in."""
    pair = TupleType((Scalar.STRING, Scalar.LONG), "org.apache.flink.api.java.tuple.Tuple2")
    source = CaseClassType((OptionType(Scalar.STRING), Scalar.LONG), "com.acme.Id")
    value = Scalar.LONG if kind is StateKind.MAP else None
    reader = reader_of(kind, value, key=ScalaType.of(source, pair))  # type: ignore[arg-type]
    before, head = encode(Scalar.STRING, "a"), long(NOW) if kind is StateKind.TIMERS else b""
    rest, stored = (b"\0", b"") if kind is StateKind.TIMERS else (b"\0" + encode(Scalar.STRING, "u"), b"\0" + long(7))
    old, new = (Row("s", 5, head + flag + before + long(3) + rest, stored) for flag in (b"\1", b""))
    account, found = reader.expected([old]), reader.found([new])
    assert (account.damage, account.refusal, found.damage, found.refusal) == (None,) * 4
    (expected,), (there,) = account.lines, found.lines
    assert (expected[1], there[1]) == (key_group_of(pair, ("a", 3), 128), 5)
    assert (expected[0], *expected[2:]) == (there[0], *there[2:])
    assert reader.expected([old._replace(key=old.key.replace(long(3), long(4)))]).lines != account.lines


def upgraded(
    kind: StateKind, value: KryoType = UUID, *, key: FlinkType = Scalar.STRING, ttl: bool = False,
    drops: bool | None = None,
) -> PlainKryoReader:  # fmt: skip
    """Of a job that was upgraded: its state was there before, and what was lost is put back."""
    reader = reader_of(kind, replace(value, five=None), user_key=UUID, key=key, ttl=ttl, drops=drops)
    before = StateBefore(replace(reader._state, value=value), TTL if ttl else None, NOW)
    savepoint: Any = None
    upgrade = BeforeUpgrade(savepoint, savepoint, {"s": before}, restores=True, restores_keys=True)
    return PlainKryoReader(reader._state, reader._planned, replace(reader._conversion, before=upgrade))


def before_it(value: bytes) -> Row:
    return Row(before_the_upgrade("s"), 5, KEY, value)


def test_an_untouched_value_of_an_upgraded_job_is_by_kryo_2_and_any_other_by_kryo_5() -> None:
    group = key_group_of(Scalar.STRING, "a", 128) or 0
    old, new = (kryo_object(Boxed("double", number), five) for number, five in ((14.3, False), (2.5, True)))
    for now, number in ((old, 14.3), (new, 2.5)):
        account = upgraded(StateKind.VALUE, OBJECT).expected([row(now), before_it(old)])
        value = KryoObject("java.lang.Double", number)
        assert (account.damage, account.refusal, account.lines) == (None, None, [line((value,), group=group)])


def test_kryo_5_has_written_all_of_a_state_that_is_newer_than_the_upgrade() -> None:
    reader, group = upgraded(StateKind.VALUE, OBJECT), key_group_of(Scalar.STRING, "a", 128) or 0
    upgrade = reader._conversion.before
    assert upgrade is not None
    newer = replace(reader._conversion, before=replace(upgrade, states={}))
    account = PlainKryoReader(reader._state, None, newer).expected([row(kryo_object(Boxed("double", 2.5), five=True))])
    assert (account.refusal, account.lines) == (None, [line((KryoObject("java.lang.Double", 2.5),), group=group)])


def test_of_a_row_that_is_gone_its_entries_are_put_back_under_the_keys_that_kryo_2_wrote() -> None:
    old = kryo_map({"a": 1, "b": 2}, five=False)
    reader = upgraded(StateKind.MAP, MAP, key=UUID)
    account = reader.expected([Row(before_the_upgrade("s"), 5, BY_2 + b"\0" + BY_2, b"\0" + old)])
    lost = KryoObject(MAP.class_name, [(KryoObject("java.lang.String", "b"), KryoObject("java.lang.Long", 2))])
    ((_, group, key, user_key, _, value, _, _),) = account.lines
    assert (account.damage, group, user_key, value) == (None, 5, text_of(ONE), text_of((lost,)))
    assert "00000000-0000-0001-0000-000000000002" in key


def test_elements_of_a_list_from_before_the_upgrade_are_by_kryo_2_and_those_behind_them_by_kryo_5() -> None:
    group = key_group_of(Scalar.STRING, "a", 128) or 0
    for now, count in ((BY_2, 1), (BY_2 + b"," + BY_5, 2), (BY_5, 1)):
        account = upgraded(StateKind.LIST).expected([row(now), before_it(BY_2)])
        assert (account.damage, account.lines) == (None, [line([ONE] * count, group=group)])


def test_elements_that_have_expired_are_left_out_wherever_they_are() -> None:
    """What has expired in the source is left out; the staged savepoint doesn't have it."""
    group = key_group_of(Scalar.STRING, "a", 128) or 0
    old, new = (tuple(long(stamp) + content for stamp in (ALIVE, EXPIRED)) for content in (BY_2, BY_5))
    alive = TtlValue(ALIVE, ONE)
    for before, added, wanted in (
        (old[0], new[0], [alive, alive]),
        (old[1], new[0], [alive]),
        (old[0], new[1], [alive]),
        (old[1], new[1], None),
    ):
        reader = upgraded(StateKind.LIST, ttl=True, drops=True)
        account = reader.expected([row(before + b"," + added), before_it(before)])
        assert (account.damage, account.lines) == (None, [line(wanted, group=group)] if wanted else [])


def test_an_object_is_left_without_its_field() -> None:
    fields, left = {"a": 1, "b": 2}, {"a": 1, "b": None}
    for whole, rest in (
        (KryoObject("a.C", fields), KryoObject("a.C", left)),
        (TtlValue(NOW, KryoObject("a.C", fields)), TtlValue(NOW, KryoObject("a.C", left))),
        (PojoValue("a.C", fields), PojoValue("a.C", left)),
        (None, None),
        (ONE, ONE),
    ):
        assert _without(whole, "b") == rest
