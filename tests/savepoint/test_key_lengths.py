"""Whether lengths stand behind keys and namespaces isn't guessed where only an unknown serializer knows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.reading.entries import _entry_decoder
from flinkstate.serializers.types import FlinkType, KryoType, OpaqueType, Scalar, ScalaType, TupleType
from stateferry.changes.upgrade.for_other_kryo import expect_rewritable
from stateferry.changes.upgrade.kryo_keys import expect_rewritable_keys
from stateferry.proof.expected.sampling import Row
from stateferry.proof.plain.plain_state import PlainStateReader

# Flink writes the lengths if key and namespace vary in length; windows of the job's own may have a fixed one.
OWN = OpaqueType("com.acme.MyWindow$Serializer", "a serializer that is not one of Flink's own")
KRYO = KryoType("com.acme.Thing", "serialized by Kryo")
TUPLE = "org.apache.flink.api.java.tuple.Tuple2"


def state(key: FlinkType, namespace: FlinkType) -> KeyedState:
    return KeyedState("s", StateKind.MAP, key, namespace, KRYO, Scalar.LONG, False, False)


@pytest.mark.parametrize(
    ("key", "namespace"),
    [(Scalar.STRING, OWN), (OWN, Scalar.STRING), (OWN, OWN), (Scalar.STRING, TupleType((Scalar.LONG, OWN), TUPLE))],
)
def test_an_unknown_length_is_refused(key: FlinkType, namespace: FlinkType) -> None:
    with pytest.raises(
        RefusedError, match=r"state s: its (key|namespace) has com\.acme\.MyWindow\$Serializer, a serial"
    ):
        _ = state(key, namespace).has_suffixes


@pytest.mark.parametrize(
    ("key", "namespace", "has_suffixes"),
    [
        (Scalar.LONG, OWN, False),
        (OWN, Scalar.TIME_WINDOW, False),
        (Scalar.STRING, KRYO, True),
        (KRYO, Scalar.STRING, True),
        (TupleType((Scalar.STRING, OWN), TUPLE), KRYO, True),
    ],
)
def test_what_follows_from_the_other_is_known(key: FlinkType, namespace: FlinkType, has_suffixes: bool) -> None:
    assert state(key, namespace).has_suffixes == has_suffixes


@pytest.mark.parametrize(
    ("key", "namespace"),
    [
        (OWN, Scalar.VOID_NAMESPACE),
        (Scalar.LONG, OWN),
        (TupleType((Scalar.STRING, OWN), TUPLE), Scalar.VOID_NAMESPACE),
        (TupleType((Scalar.STRING, OWN), TUPLE), Scalar.STRING),
        (ScalaType.of(Scalar.STRING, Scalar.STRING), TupleType((Scalar.STRING, OWN), TUPLE)),
        (ScalaType.of(OWN, Scalar.STRING), Scalar.VOID_NAMESPACE),
    ],
)
def test_user_keys_that_cant_be_found_are_refused_before_the_run(key: FlinkType, namespace: FlinkType) -> None:
    user_key = ScalaType.of(Scalar.LONG, Scalar.LONG) if isinstance(key, ScalaType) else KRYO
    with pytest.raises(RefusedError, match=r"com\.acme\.MyWindow\$Serializer"):
        expect_rewritable(replace(state(key, namespace), user_key=user_key))


def test_no_row_is_called_damaged() -> None:
    in_own_windows = state(Scalar.STRING, OWN)
    row = Row("s", 0, b"\4abc" + bytes(16), b"\0" + bytes(8))
    for refused in (
        lambda: expect_rewritable_keys(in_own_windows, KRYO),
        lambda: PlainStateReader(in_own_windows).key(row),
        lambda: _entry_decoder(in_own_windows, 1),
    ):
        with pytest.raises(RefusedError, match="so where its keys end isn't known"):
            refused()
