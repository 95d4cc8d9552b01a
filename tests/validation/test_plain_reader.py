"""What plain code says that the rows of a key become, and what it reads of a result."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import (
    FlinkType,
    KryoMapType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    PojoType,
    RowType,
    Scalar,
)
from flinkstate.ttl import StateTtlConfig
from flinkstate.values.hash_codes import key_group_of
from flinkstate.values.java_values import RowValue
from stateferry.changes.lazy_cut import LazyCut, Order
from stateferry.changes.rules import Contradiction, LegacyRest, Nulls, PlannedTtl, Rules, RulesBack
from stateferry.proof.expected.sampling import Row
from stateferry.proof.plain.plain_aging import PlainAgingReader
from stateferry.proof.plain.plain_blobs import PlainBlobReader
from stateferry.proof.plain.plain_maps import by_kryo
from stateferry.proof.plain.plain_pojos import without_map
from stateferry.proof.plain.plain_reader import PlainReader, group_of_key, holds_null
from stateferry.proof.plain.plain_state import KeyAccount, PlainStateReader, long_at
from tests.support.changes import back, changes_of
from tests.support.encoded import long, text
from tests.validation.test_plain_pojos import BODY
from tests.validation.test_plain_pojos import TYPE as POJOS

NOW, TTL, LATEST = 1_000, 100, 2**63 - 1
ALIVE, EXPIRED = NOW - TTL + 1, NOW - TTL
VOID, UUID = Scalar.VOID_NAMESPACE, KryoType("java.util.UUID")


KEY, GROUP = text("a") + b"\0", key_group_of(Scalar.STRING, "a", 128) or 0


def state_of(name: str, value: FlinkType, *, ttl: bool = False, key: FlinkType = Scalar.STRING) -> KeyedState:
    return KeyedState(name, StateKind.VALUE, key, VOID, None, value, ttl, False)


def rules_of(*, ttl: bool = False, value: FlinkType = Scalar.LONG, **settings: Any) -> Rules:
    legacy = state_of("old", MapType(Scalar.STRING, value), ttl=ttl)
    return replace(Rules(legacy, "new", "flag", TTL if ttl else None, NOW), **settings)


def reader_of(
    rules: Rules, *, keep: bool = False, flag: KeyedState | None = None, old_max: int = 128, new_max: int = 128
) -> PlainReader:
    flag = flag or state_of("flag", Scalar.BOOLEAN, ttl=rules.legacy.ttl)
    states = {one.name: one for one in (rules.legacy, rules.new, flag)}
    rules = replace(rules, keep_legacy=keep)
    reader = PlainBlobReader if isinstance(rules, RulesBack) else PlainReader
    return reader(rules, changes_of((rules,), states, old_max, new_max), states)


def blob(entries: Mapping[str, int | None], stamp: int | None = None, group: int = GROUP, key: bytes = KEY) -> Row:
    body = b"".join(text(name) + (b"\1" if value is None else b"\0" + long(value)) for name, value in entries.items())
    return Row("old", group, key, (b"" if stamp is None else long(stamp)) + struct.pack(">i", len(entries)) + body)


def row(name: str, value: int | None, stamp: int | None = None, group: int = GROUP, key: bytes = KEY) -> Row:
    flag = b"\1" if value is None else b"\0"
    written = b"" if value is None else long(value)
    return Row("new", group, key + text(name), flag + (b"" if stamp is None else long(stamp)) + written)


def flag_of(is_set: bool, stamp: int | None = None) -> Row:
    return Row("flag", GROUP, KEY, (b"" if stamp is None else long(stamp)) + (b"\1" if is_set else b"\0"))


def told(account: KeyAccount) -> list[tuple[Any, ...]]:
    """State, user key, null flag, value and timestamp of each line."""
    assert account.damage is None
    assert account.refusal is None
    return [(line[0], *line[3:7]) for line in account.lines]


X, Y = ("new", '"x"', 0, "5", None), ("new", '"y"', 1, "null", None)
NEWER = ("new", '"x"', 0, "7", None)


def untouched(row: Row) -> tuple[Any, ...]:
    digest = blake2b(row.value, digest_size=8).hexdigest()
    return (row.state, "", 0, f"{len(row.value)} bytes, {digest}", None)


def test_a_line_has_all_that_counts() -> None:
    reader = reader_of(rules_of(ttl=True))
    wanted = ("new", GROUP, 'key "a"', '"x"', 0, "5", ALIVE, zlib.crc32(KEY + text("x") + long(5)))
    assert reader.expected([blob({"x": 5}, ALIVE)]).lines == [wanted]
    assert reader.found([row("x", 5, ALIVE)]).lines == [wanted]
    assert reader.expected([blob({"x": 5, "z": 9}, ALIVE)]).lines[0] == wanted
    # A null counts without its bytes, which no version of Flink reads.
    null = replace(rules_of(), nulls=Nulls.KEEP)
    (line,) = reader_of(null).expected([blob({"y": None})]).lines
    assert line == ("new", GROUP, 'key "a"', '"y"', 1, "null", None, zlib.crc32(KEY + text("y")))
    (line,) = reader_of(null).found([Row("new", GROUP, KEY + text("y"), b"\1\0\0")]).lines
    assert line == ("new", GROUP, 'key "a"', '"y"', 1, "null", None, zlib.crc32(KEY + text("y")))


BLOB, OTHER_ROW, SAME_ROW = blob({"x": 5, "y": None}), row("z", 9), row("x", 7)
Z = ("new", '"z"', 0, "9", None)
SET, UNSET = flag_of(True), flag_of(False)


@pytest.mark.parametrize(
    ("settings", "rows", "lines"),
    [
        ({}, [BLOB], [X, Y]),
        ({}, [blob({})], []),
        ({}, [OTHER_ROW], [Z]),
        ({}, [OTHER_ROW, SET], [Z]),
        ({}, [BLOB, SAME_ROW, OTHER_ROW], [NEWER, Z, Y]),
        ({}, [BLOB, UNSET], [X, Y]),
        ({}, [BLOB, SET], []),
        ({"on_contradiction": Contradiction.ROWS}, [BLOB, SET, OTHER_ROW], [Z]),
        ({"on_contradiction": Contradiction.BLOB}, [BLOB, SET, OTHER_ROW], [X, Y]),
        ({"on_contradiction": Contradiction.BLOB}, [BLOB, UNSET, SAME_ROW], [NEWER, Y]),
        ({"on_contradiction": Contradiction.BLOB}, [SET, OTHER_ROW], [Z]),
        ({"nulls": Nulls.DROP}, [BLOB], [X]),
        ({"nulls": Nulls.KEEP}, [BLOB], [X, Y]),
    ],
)
def test_what_becomes_of_a_key(settings: dict[str, Any], rows: list[Row], lines: list[Any]) -> None:
    assert told(reader_of(rules_of(**settings)).expected(rows)) == lines
    kept = told(reader_of(rules_of(**settings), keep=True).expected(rows))
    others = [one for one in rows if one.state == "old"] + [one for one in rows if one.state == "flag"]
    assert kept == [*lines, *map(untouched, others)]


def stamped(line: tuple[Any, ...], stamp: int) -> tuple[Any, ...]:
    return (*line[:-1], stamp)


@pytest.mark.parametrize(
    ("settings", "rows", "lines"),
    [
        ({}, [blob({"x": 5}, ALIVE)], [stamped(X, ALIVE)]),
        ({}, [blob({"x": 5}, EXPIRED)], []),
        ({"keep_expired": True}, [blob({"x": 5}, EXPIRED)], [stamped(X, EXPIRED)]),
        ({}, [blob({"x": 5}, LATEST)], [stamped(X, LATEST)]),
        ({}, [blob({"x": 5}, LATEST - TTL + 1)], [stamped(X, LATEST - TTL + 1)]),
        ({"now": LATEST}, [blob({"x": 5}, LATEST)], []),
        ({"now": LATEST - 1}, [blob({"x": 5}, LATEST)], [stamped(X, LATEST)]),
        ({}, [blob({"x": 5}, ALIVE), row("x", 7, EXPIRED)], [stamped(X, ALIVE)]),
        ({}, [blob({"x": 5}, EXPIRED), row("x", 7, ALIVE)], [stamped(NEWER, ALIVE)]),
        ({}, [blob({"x": 5}, ALIVE), flag_of(True, EXPIRED)], [stamped(X, ALIVE)]),
        ({}, [blob({"x": 5}, ALIVE), flag_of(True, ALIVE)], []),
        ({}, [blob({"x": 5}, EXPIRED), flag_of(True, ALIVE), row("x", 7, ALIVE)], [stamped(NEWER, ALIVE)]),
        (
            {"on_contradiction": Contradiction.BLOB},
            [blob({"x": 5}, EXPIRED), flag_of(True, ALIVE), row("z", 9, ALIVE)],
            [stamped(Z, ALIVE)],
        ),
        # A long has no bytes for null.
        ({}, [blob({"x": 5, "y": None}, ALIVE)], [stamped(X, ALIVE)]),
    ],
)
def test_what_becomes_of_a_key_with_time_to_live(settings: dict[str, Any], rows: list[Row], lines: list[Any]) -> None:
    assert told(reader_of(rules_of(ttl=True, **settings)).expected(rows)) == lines


def test_a_null_under_time_to_live_is_in_the_bytes_of_the_value() -> None:
    rules = rules_of(ttl=True, value=Scalar.STRING)
    rows = [Row("old", GROUP, KEY, long(ALIVE) + struct.pack(">i", 1) + text("y") + b"\1")]
    assert told(reader_of(rules).expected(rows)) == [("new", '"y"', 0, "null", ALIVE)]


def test_a_null_of_a_type_that_is_not_known_is_left_to_others() -> None:
    rules = rules_of(ttl=True, value=Scalar.UNIT)
    rows = [Row("old", GROUP, KEY, long(ALIVE) + struct.pack(">i", 1) + text("y") + b"\1")]
    account = reader_of(rules).expected(rows)
    assert (account.lines, account.undecided) == ([], [('key "a"', '"y"')])
    dropped = reader_of(rules_of(value=Scalar.UNIT, nulls=Nulls.DROP))
    account = dropped.expected([Row("old", GROUP, KEY, struct.pack(">i", 1) + text("y") + b"\1")])
    assert account.undecided == [('key "a"', '"y"')]


def test_a_flag_of_another_type_is_set_by_being_there() -> None:
    flag = state_of("flag", Scalar.LONG)
    reader = reader_of(rules_of(), flag=flag)
    assert told(reader.expected([blob({"x": 5}), Row("flag", GROUP, KEY, long(0))])) == []


# A lazy run.

ALL, NONE_OF_THEM = 2**64 - 1, -1


def lazy(last: int, *, ttl: bool = False, flag_ttl: bool = False, **settings: Any) -> tuple[PlainReader, KeyedState]:
    flag = state_of("flag", Scalar.BOOLEAN, ttl=flag_ttl)
    rules = rules_of(ttl=ttl, lazy_cut=LazyCut(Order.HASH, last, flag), **settings)
    return reader_of(rules, flag=flag), flag


def test_keys_that_are_not_chosen_stay_as_they_are() -> None:
    reader, _ = lazy(NONE_OF_THEM)
    assert told(reader.expected([BLOB])) == [untouched(BLOB)]
    assert told(reader.expected([BLOB, UNSET, OTHER_ROW])) == [Z, untouched(BLOB), untouched(UNSET)]
    # Flags of keys without a blob stay, and a blob of a flagged key goes.
    assert told(reader.expected([SET, OTHER_ROW])) == [untouched(SET), Z]
    assert told(reader.expected([BLOB, SET, OTHER_ROW])) == [untouched(SET), Z]


def test_keys_that_are_chosen_get_their_flag() -> None:
    reader, _ = lazy(ALL)
    assert told(reader.expected([BLOB])) == [untouched(SET), X, Y]
    assert told(reader.expected([BLOB, UNSET])) == [untouched(SET), X, Y]
    assert told(reader.expected([OTHER_ROW])) == [Z]
    reader, _ = lazy(ALL, ttl=True)
    assert told(reader.expected([blob({"x": 5}, EXPIRED)])) == []


def test_the_flag_has_the_timestamp_of_the_blob() -> None:
    reader, _ = lazy(ALL, ttl=True, flag_ttl=True)
    with_stamp = Row("flag", GROUP, KEY, long(ALIVE) + b"\1")
    assert told(reader.expected([blob({"x": 5}, ALIVE)])) == [untouched(with_stamp), stamped(X, ALIVE)]
    reader, _ = lazy(ALL, flag_ttl=True)
    of_now = Row("flag", GROUP, KEY, long(NOW) + b"\1")
    (line, *_) = reader.expected([blob({"x": 5})]).lines
    assert line == ("flag", GROUP, 'key "a"', *untouched(of_now)[1:], zlib.crc32(KEY))


# In reverse.


@pytest.mark.parametrize("ttl", [False, True])
def test_rows_become_a_blob_with_their_newest_timestamp(ttl: bool) -> None:
    reader = reader_of(back(rules_of(ttl=ttl)))
    stamps = [ALIVE, NOW, EXPIRED, ALIVE] if ttl else [None] * 4
    rows = [row(name, at, stamp) for at, (name, stamp) in enumerate(zip("wxyz", stamps, strict=True))]
    names = "wxz" if ttl else "wxyz"
    wanted = [("old", f'"{name}"', 0, f"{'wxyz'.index(name)}", NOW if ttl else None) for name in names]
    assert told(reader.expected(rows)) == wanted
    assert told(reader.expected(rows[:1])) == [(*wanted[0][:-1], stamps[0])]
    made = blob({name: "wxyz".index(name) for name in names}, NOW if ttl else None)
    assert told(reader.found([made])) == wanted
    assert told(reader.found([SET])) == [untouched(SET)]


def test_nulls_of_a_blob_that_was_made() -> None:
    """Without time to live the flag says it in rows as well; with it a row's bytes do."""
    plain, with_stamps = reader_of(back(rules_of())), reader_of(back(rules_of(ttl=True)))
    assert told(plain.found([blob({"y": None})])) == [("old", '"y"', 1, "null", None)]
    assert told(with_stamps.found([blob({"y": None}, NOW)])) == [("old", '"y"', 0, "null", NOW)]


# Keys, damage, and what isn't known.


def test_keys_with_equal_hashes_are_kept_apart() -> None:
    other = text("b") + b"\0"
    group = key_group_of(Scalar.STRING, "b", 128)
    assert group is not None
    rows = [blob({"x": 5}), row("x", 7, key=other, group=group), blob({"x": 6}, key=other, group=group), SET]
    lines = reader_of(rules_of()).expected(rows).lines
    assert [(line[1], line[2], line[5]) for line in lines] == [(group, 'key "b"', "7")]


@pytest.mark.parametrize(
    ("rows", "damage"),
    [
        ([Row("old", 7, KEY, b"\0\0\0")], 'key group 7: key "a": expected the size of a map, found 3 bytes'),
        ([blob({"x": 5}, group=7)._replace(value=blob({"x": 5}).value + b"zz")],
         'key group 7: key "a": expected the end of a map, found 2 more bytes'),
        ([row("x", 5, group=7)._replace(value=b"\0" + long(5) + b"z")],
         'key group 7: key "a": expected the end of a Long, found 1 more bytes'),
    ],
)  # fmt: skip
def test_damage_names_key_group_and_key(rows: list[Row], damage: str) -> None:
    account = reader_of(rules_of()).expected(rows)
    assert (account.damage, account.refusal) == (damage, None)


def test_a_map_of_no_bytes_but_its_size_is_whole() -> None:
    assert told(reader_of(rules_of()).expected([Row("old", GROUP, KEY, bytes(4))])) == []
    assert told(reader_of(rules_of(ttl=True)).expected([Row("old", GROUP, KEY, long(ALIVE) + bytes(4))])) == []
    account = reader_of(rules_of(ttl=True)).expected([Row("old", 7, KEY, long(ALIVE) + bytes(3))])
    assert account.damage == 'key group 7: key "a": expected the size of a map, found 11 bytes'


def test_a_key_that_cannot_be_read_is_not_named() -> None:
    account = reader_of(rules_of()).expected([blob({"x": 5}, key=b"\x09a", group=7)])
    assert account.damage is not None
    assert account.damage.startswith("key group 7: a key: expected ")


def test_a_key_of_unknown_hash_stays_where_it_is() -> None:
    opaque = OpaqueType("com.acme.Key", "Kryo")
    states: dict[str, KeyedState] = {}
    for type_, present, old_max, new_max, group in (
        (Scalar.STRING, 5, 128, 128, GROUP),
        (Scalar.STRING, 5, 128, 300, key_group_of(Scalar.STRING, "a", 300)),
        (opaque, 5, 128, 128, 5),
    ):
        conversion = changes_of((), states, old_max, new_max)
        assert group_of_key(type_, "a", present, conversion) == group
    # The names of its fields may have determined the hash of a Row.
    row_type, key = RowType((Scalar.LONG,), False), RowValue((7,))
    moved = key_group_of(row_type, key, 300)
    assert moved not in (None, 5)
    assert group_of_key(row_type, key, 5, changes_of((), states, 128, 128)) == 5
    assert group_of_key(row_type, key, 5, changes_of((), states, 128, 300)) == moved
    with pytest.raises(RefusedError, match="plain code doesn't know its hash"):
        group_of_key(opaque, "a", 5, changes_of((), states, 128, 300))
    account = KeyAccount()
    account.add(KeyAccount([], [], None, "why"))
    account.add(KeyAccount([], [], "hurt", "another"))
    assert (account.damage, account.refusal) == ("hurt", "why")


@pytest.mark.parametrize("namespace", ["w", "a longer window"])
def test_a_key_with_its_namespace_and_their_lengths(namespace: str) -> None:
    state = replace(state_of("s", Scalar.LONG), namespace=Scalar.STRING)
    raw = text("a") + bytes([len(text("a"))]) + text(namespace) + bytes([len(text(namespace))])
    reader = PlainStateReader(state)
    key = reader.key(Row("s", 5, raw + b"rest", b""))
    assert (key.raw, key.text, key.value) == (raw, f'key "a", namespace "{namespace}"', "a")
    assert reader.key(Row("s", 5, raw + b"other", b"")) is key
    for at in (2, len(raw) - 1):
        wrong = raw[:at] + bytes([raw[at] + 1]) + raw[at + 1 :]
        with pytest.raises(DamagedError, match="behind a key or namespace"):
            PlainStateReader(state).key(Row("s", 5, wrong, b""))
    with pytest.raises(DamagedError, match="the end"):
        PlainStateReader(state).key(Row("s", 5, raw[:-1], b""))


def test_the_length_of_a_long_key_takes_two_bytes() -> None:
    state = replace(state_of("s", Scalar.LONG), namespace=Scalar.STRING)
    for size in (253, 254, 255, 300):
        key = text("k" * size)
        raw = key + len(key).to_bytes(2 if len(key) > 255 else 1, "little") + text("") + b"\1"
        assert PlainStateReader(state).key(Row("s", 5, raw + b"z", b"")).raw == raw


def test_a_long_text_is_cut_and_told_apart() -> None:
    reader = reader_of(rules_of(value=Scalar.STRING))

    def value_of(size: int) -> str:
        (line,) = reader.found([Row("new", GROUP, KEY + text("x"), b"\0" + text("v" * size))]).lines
        return line[5]

    assert value_of(198) == '"' + "v" * 198 + '"'
    digest = blake2b(b'"' + b"v" * 199 + b'"', digest_size=8).hexdigest()
    assert value_of(199) == '"' + "v" * 199 + f"... (201 characters, {digest})"


def test_a_timestamp_of_plain_code_has_eight_bytes() -> None:
    assert long_at(b"x" + long(-3), 1) == -3
    for data, position, found in ((long(3), 1, "7 bytes"), (b"", 1, "0 bytes"), (b"abc", 9, "0 bytes")):
        with pytest.raises(DamagedError) as caught:
            long_at(data, position)
        assert (caught.value.expected, caught.value.found) == ("a timestamp of 8 bytes", found)


# States that lose what has expired.


def aging_of(
    kind: StateKind, key: FlinkType = Scalar.STRING, value: FlinkType = Scalar.LONG, new_max: int = 128
) -> PlainAgingReader:
    user_key = Scalar.STRING if kind is StateKind.MAP else None
    state = KeyedState("state", kind, key, VOID, user_key, value, True, False)
    conversion = changes_of((), {"state": state}, 128, new_max)
    return PlainAgingReader(PlannedTtl(state, StateTtlConfig(TTL), NOW), conversion)


def digest_of(value: bytes) -> str:
    return f"{len(value)} bytes, {blake2b(value, digest_size=8).hexdigest()}"


def kept(kind: StateKind, value: bytes, new_max: int = 128) -> list[Any]:
    account = aging_of(kind, new_max=new_max).expected([Row("state", 5, KEY + b"uk", value)])
    assert account.damage is None
    return account.lines


def line_of(value: bytes, group: int) -> tuple[Any, ...]:
    return ("state", group, 'key "a"', b"uk".hex(), 0, digest_of(value), None, zlib.crc32(KEY + b"uk"))


@pytest.mark.parametrize(
    ("kind", "before"), [(StateKind.VALUE, b""), (StateKind.MAP, b"\0"), (StateKind.REDUCING, b"")]
)
def test_values_that_are_alive_stay(kind: StateKind, before: bytes) -> None:
    for stamp in (ALIVE, LATEST):
        value = before + long(stamp) + long(5)
        assert kept(kind, value) == [line_of(value, GROUP)]
        assert kept(kind, value, 300) == [line_of(value, key_group_of(Scalar.STRING, "a", 300) or 0)]
        assert aging_of(kind).found([Row("state", 5, KEY + b"uk", value)]).lines == [line_of(value, 5)]
    old = before + long(EXPIRED) + long(5)
    assert kept(kind, old) == []
    assert aging_of(kind).found([Row("state", 5, KEY + b"uk", old)]).lines == [line_of(old, 5)]


def test_elements_that_are_alive_stay() -> None:
    one, two, old = (long(stamp) + long(value) for stamp, value in ((ALIVE, 1), (NOW, 2), (EXPIRED, 3)))
    for value, rest in (
        (one, one),
        (b",".join([old, one, old, two]), b",".join([one, two])),
        (b",".join([two, one]), b",".join([two, one])),
    ):
        assert kept(StateKind.LIST, value) == [line_of(rest, GROUP)]
    assert kept(StateKind.LIST, b",".join([old, old])) == []
    assert kept(StateKind.LIST, b"") == []


@pytest.mark.parametrize(
    ("value", "damage"),
    [
        (long(NOW) + long(1) + b"x", "key group 5: expected the delimiter 2c between elements, found 78"),
        (long(NOW)[:3], "key group 5: expected "),
    ],
)
def test_damage_of_such_a_state_names_the_key_group(value: bytes, damage: str) -> None:
    account = aging_of(StateKind.LIST).expected([Row("state", 5, KEY, value)])
    assert account.damage is not None
    assert account.damage.startswith(damage)


def test_a_key_that_cannot_be_decoded_is_refused_by_its_name() -> None:
    opaque = OpaqueType("com.acme.Value", "Kryo")
    account = reader_of(rules_of(value=opaque)).expected([blob({"x": 5})])
    assert account.damage is None
    assert account.refusal is not None
    assert account.refusal.startswith('key "a": ')
    assert "com.acme.Value" in account.refusal


def test_of_other_parts_than_the_key_nothing_need_be_known() -> None:
    opaque = OpaqueType("com.acme.Value", "Kryo")
    state = KeyedState("state", StateKind.MAP, Scalar.STRING, VOID, opaque, opaque, True, False)
    reader = PlainAgingReader(PlannedTtl(state, StateTtlConfig(TTL), NOW), changes_of((), {"state": state}, 128, 128))
    value = b"\0" + long(NOW) + b"anything"
    assert reader.expected([Row("state", 5, KEY + b"uk", value)]).lines == [line_of(value, GROUP)]


def test_a_key_that_cannot_be_decoded_is_refused() -> None:
    account = aging_of(StateKind.VALUE, OpaqueType("com.acme.Key", "Kryo")).found([Row("state", 5, KEY, long(NOW))])
    assert account.refusal is not None
    assert "com.acme.Key" in account.refusal
    assert account.lines == []


# What serializers can write.


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (Scalar.STRING, True), (Scalar.INSTANT, True), (Scalar.LONG, False), (Scalar.UNIT, None),
        (PojoType("com.acme.Pojo", ()), True), (NullableType(Scalar.LONG, 8), True), (UUID, True),
        (MapType(Scalar.STRING, Scalar.LONG), False), (RowType((Scalar.LONG,), False), False),
        (OpaqueType("com.acme.Value", "why"), None),
    ],
)  # fmt: skip
def test_who_can_write_null_itself(type_: FlinkType, expected: bool | None) -> None:
    assert holds_null(type_) is expected


def test_parts_that_were_copied_are_shown_as_they_are() -> None:
    state = KeyedState("new", StateKind.MAP, Scalar.STRING, VOID, UUID, UUID, False, False)
    reader = PlainStateReader(state, copies=True)
    for data, shown in ((b"\x54\1\2\4", "54010204"), (b"\0", "null"), (b"\1" * 150, None)):
        found = reader.entry(Row("new", 5, KEY + data, b"\0" + data))
        assert (found.user_key, found.value, found.is_null) == (data, data, False)
        assert found.user_key_text == found.value_text
        assert found.value_text == shown or (
            shown is None
            and found.value_text.endswith(
                f"(300 characters, {blake2b(data.hex().encode(), digest_size=8).hexdigest()})"
            )
        )
    # Other than those that were not: these are objects.
    assert PlainStateReader(state).entry(Row("new", 5, KEY + b"\x54\1\2\4", b"\0\x54\1\2\4")).value != b"\x54\1\2\4"


def test_what_a_map_by_kryo_leaves_to_kryo_is_read_with_the_job_s_classes() -> None:
    classes: Any = object()
    kryo, value = KryoType("java.util.HashMap", classes=classes), KryoType("a.Value")
    for part, five in ((value, None), (ListType(value), False)):
        map_ = MapType(Scalar.STRING, part)
        legacy = state_of("old", KryoMapType(kryo.class_name, kryo.reason, kryo, map_))
        rules = replace(rules_of(), legacy=legacy)
        reader, made = reader_of(rules), rules.made
        assert reader._typed(made).value == by_kryo(part, five=five, classes=classes)
        assert reader._typed(legacy) == legacy
        assert reader_of(rules_of())._typed(made) == made


# A map in a field of a POJO.


@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize("rest", list(LegacyRest))
def test_a_map_in_a_field_and_what_is_left_of_its_pojo(ttl: bool, rest: LegacyRest) -> None:
    rules = replace(rules_of(ttl=ttl, rest=rest), legacy=state_of("old", POJOS, ttl=ttl))
    reader = reader_of(rules)
    before, stamp = (long(ALIVE), ALIVE) if ttl else (b"", None)
    for pojo, lines in (("01", []), ("02 01 00 07", []), (f"02 {BODY}", [("new", "5", 0, "6", stamp)])):
        stored = Row("old", GROUP, KEY, before + bytes.fromhex(pojo))
        left = stored._replace(value=without_map(POJOS, stored.value, len(before)))
        stays = [untouched(left)] if rest is LegacyRest.KEEP else []
        assert told(reader.expected([stored])) == [*lines, *stays]
    if ttl:
        assert told(reader.expected([Row("old", GROUP, KEY, long(EXPIRED) + bytes.fromhex(f"02 {BODY}"))])) == []
