"""Maps by Kryo whose values stay Kryo's are held against what the new state has of them."""

from __future__ import annotations

import pytest

from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import KryoMapType, KryoType, MapType, Scalar
from flinkstate.values.codecs import encode
from stateferry.proof.expected.sampling import Row
from stateferry.proof.plain.plain_maps import map_reader
from stateferry.proof.plain.plain_reader import PlainStateReader
from tests.kryo.examples import VERSIONS, examples

UUID = KryoType("java.util.UUID")
STATE = KeyedState("new", StateKind.MAP, Scalar.STRING, Scalar.VOID_NAMESPACE, Scalar.STRING, UUID, False, False)
KEY = encode(Scalar.STRING, "key") + b"\0"
# Class tag, mark, and the UUID 00000000-0000-0001-0000-000000000002.
WRITTEN = {
    "1.20.0": b"\x54\x01\x02\x04",
    "2.3.0": b"\x54\x01" + (1).to_bytes(8, "little") + (2).to_bytes(8, "little"),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_value_that_stays_kryos(version: str) -> None:
    one = examples(version)["UUID"]
    stored = KryoMapType(one.kryo.class_name, one.kryo.reason, one.kryo, MapType(Scalar.STRING, UUID))
    (expected,) = map_reader(stored, stored.map)(one.written, 0)
    reader = PlainStateReader(STATE)

    def found(value: bytes) -> bytes:
        row = Row("new", 0, KEY + encode(Scalar.STRING, "a"), b"\0" + value)
        return reader.entry(row).value

    assert found(WRITTEN[version]) == expected.value_bytes
    assert found(bytes([*WRITTEN[version][:2], 4, *WRITTEN[version][3:]])) != expected.value_bytes


def test_a_value_of_a_class_of_the_job_cant_be_read() -> None:
    one = examples("2.3.0")["Thing"]
    map_ = MapType(Scalar.STRING, KryoType("stateferry.kryo.KryoExamples$Thing"))
    with pytest.raises(RefusedError, match=r"KryoExamples\$Thing"):
        list(map_reader(KryoMapType("java.util.HashMap", "by Kryo", one.kryo, map_), map_)(one.written, 0))
