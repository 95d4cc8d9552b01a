"""What plain code says of rows that a run for another Flink makes of what is written anew: maps, keys, and both."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import CaseClassType, FlinkType, KryoType, MapType, OptionType, Scalar
from flinkstate.values.hash_codes import key_group_of
from stateferry.changes.lazy_cut import LazyCut, Order
from stateferry.changes.rules import Rules
from stateferry.changes.upgrade.kryo_keys import as_written
from stateferry.proof.expected.sampling import Row
from stateferry.proof.plain.plain_lazy_cut import key_hash
from stateferry.proof.plain.plain_reader import PlainReader
from stateferry.proof.plain.plain_state import Line
from stateferry.runs.checks.declared_scala import as_told
from tests.steps.test_keys_by_both_kryos import BY_2, BY_5
from tests.support.changes import changes_of
from tests.support.encoded import long, text
from tests.validation.test_plain_reader import GROUP, KEY, NOW, state_of

UUID = KryoType("java.util.UUID", five=False)
OTHER_5 = BY_5[:-1] + bytes([BY_5[-1] ^ 1])
MAPS = {
    "values": (MapType(Scalar.STRING, UUID), text("x") + b"\0" + BY_2, text("x"), (BY_5, OTHER_5)),
    "user keys": (MapType(UUID, Scalar.LONG), BY_2 + b"\0" + long(5), BY_5, (long(5), long(6))),
}


def readers(old: KeyedState, known: KeyedState, **settings: Any) -> tuple[PlainReader, PlainReader]:
    """Of the source, and of the result."""
    value = old.value if known.value is None else as_written(known.value)
    legacy = replace(old, key=as_written(known.key), value=value)
    flag = replace(state_of("flag", Scalar.BOOLEAN, key=known.key), namespace=old.namespace)
    by_kryo = {"old": known, "flag": flag} if known.key != legacy.key else {"old": known}
    rules = replace(Rules(legacy, "new", "flag", None, NOW), stored=old, by_kryo=by_kryo, **settings)
    of_source: Mapping[str, KeyedState] = {"old": old, "flag": replace(flag, key=old.key)}
    of_result = {"old": legacy, "new": rules.new, "flag": replace(flag, key=legacy.key)}
    conversion = replace(changes_of((rules,), of_source), by_kryo=by_kryo)
    return (
        PlainReader(rules, conversion, of_source, is_source=True),
        PlainReader(rules, conversion, of_result, is_source=False),
    )


def lines(reader: PlainReader, *rows: Row) -> list[Line]:
    account = (reader.expected if reader._is_source else reader.found)([*rows])
    assert (account.damage, account.refusal) == (None, None)
    return account.lines


@pytest.mark.parametrize("what", MAPS)
@pytest.mark.parametrize("keeps", [False, True])
def test_a_map_by_kryo_2_becomes_rows_by_kryo_5(what: str, keeps: bool) -> None:
    map_, entry, user_key, (value, other) = MAPS[what]
    old = state_of("old", replace(map_, **{"key" if what == "user keys" else "value": replace(UUID, five=None)}))
    source, result = readers(old, replace(old, value=map_), keep_legacy=keeps)
    whole = [Row("old", GROUP, KEY, struct.pack(">i", 1) + by) for by in (entry, user_key + b"\0" + value)]
    rows = [Row("new", GROUP, KEY + user_key, b"\0" + one) for one in (value, other)]
    stay = whole[1:] if keeps else []
    expected = lines(source, whole[0])
    assert sorted(expected) == sorted(lines(result, rows[0], *stay))
    assert sorted(expected) != sorted(lines(result, rows[1], *stay))
    if keeps:
        changed = whole[1]._replace(value=struct.pack(">i", 1) + user_key + b"\0" + other)
        assert sorted(expected) != sorted(lines(result, rows[0], changed))


PAIR = CaseClassType((Scalar.LONG, OptionType(Scalar.STRING)), "scala.Tuple2")
TOLD = as_told(PAIR, "Tuple2<Long, String>")
# Scala's key, the new job's, and that of None.
OLD_KEY, NEW_KEY, OTHER_KEY = long(7) + b"\1" + text("a"), long(7) + text("a"), long(7) + b"\0"
NEW_GROUP = key_group_of(TOLD.made, (7, "a"), 128) or 0


@pytest.mark.parametrize("namespace", [Scalar.VOID_NAMESPACE, Scalar.STRING])
def test_keys_are_written_as_the_new_job_does(namespace: FlinkType) -> None:
    """With the lengths behind them, where key and namespace both vary in length."""
    old = KeyedState("old", StateKind.VALUE, PAIR, namespace, None, MapType(Scalar.STRING, Scalar.LONG), False, False)
    source, result = readers(old, replace(old, key=TOLD, value=None))
    keys = [OLD_KEY, NEW_KEY, OTHER_KEY]
    if namespace is Scalar.STRING:
        keys = [key + bytes([len(key)]) + text("n") + bytes([len(text("n"))]) for key in keys]
    else:
        keys = [key + b"\0" for key in keys]
    body = text("x") + b"\0" + long(5)
    expected = lines(source, Row("old", 3, keys[0], struct.pack(">i", 1) + body))
    found, other = ([Row("new", NEW_GROUP, key + text("x"), b"\0" + long(5))] for key in keys[1:])
    assert expected == lines(result, *found)
    assert expected != lines(result, *other)


@pytest.mark.parametrize("moves", [False, True])
def test_a_lazy_run_goes_by_the_new_bytes_of_a_key(moves: bool) -> None:
    old = state_of("old", MapType(Scalar.STRING, Scalar.LONG), key=PAIR)
    new_key = NEW_KEY + b"\0"
    flag = state_of("flag", Scalar.BOOLEAN, key=TOLD.made)
    cut = LazyCut(Order.HASH, key_hash(new_key) - (not moves), flag)
    source, result = readers(old, replace(old, key=TOLD), lazy_cut=cut)
    blob = struct.pack(">i", 1) + text("x") + b"\0" + long(5)
    expected = lines(source, Row("old", 3, OLD_KEY + b"\0", blob))
    rows = [Row("new", NEW_GROUP, new_key + text("x"), b"\0" + long(5)), Row("flag", NEW_GROUP, new_key, b"\1")]
    assert sorted(expected) == sorted(lines(result, *(rows if moves else [Row("old", NEW_GROUP, new_key, blob)])))
