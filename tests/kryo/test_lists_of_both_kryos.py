"""A list to which an upgraded job has added elements without reading it holds elements of both Kryos."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.kryo.to_other_kryo import recoder
from flinkstate.serializers.built_snapshots import kryo_snapshot
from flinkstate.serializers.programs import compile_list_state
from flinkstate.serializers.types import KryoType

# Only Kryo 2 writes an empty map of an Object like this, and only Kryo 5 like that.
MAP_BY_2, MAP_BY_5 = (b"\x01\x00java.util.HashMa\xf0\x01" + end for end in (b"\x00", b"\x01"))
# Either reads both, and each the other's as another number.
DOUBLE_BY_2, DOUBLE_BY_5 = (b"\x0a" + struct.pack(order + "d", 14.3) for order in "><")
LONG = b"\x09\x02"


def recoded(elements: list[bytes], *, for_five: bool) -> bytes:
    type_ = kryo_snapshot("java.lang.Object").type
    assert isinstance(type_, KryoType)
    program = compile_list_state(replace(type_, five=None, for_five=for_five), marks=False)
    data = b",".join(elements)
    raw, start = np.frombuffer(data + bytes(64), np.uint8).copy(), np.zeros(1, np.int64)
    return recoder(program, of_lists=True).recode(raw, start, start + len(data), start).data.tobytes()


@pytest.mark.parametrize("for_five", [True, False])
@pytest.mark.parametrize(
    "elements",
    [
        [MAP_BY_2, DOUBLE_BY_5],
        [DOUBLE_BY_2, MAP_BY_5],
        [MAP_BY_2, LONG, DOUBLE_BY_2],
        [MAP_BY_5, DOUBLE_BY_5, MAP_BY_5],
    ],
)
def test_an_element_that_both_could_have_written_stops_the_run(elements: list[bytes], for_five: bool) -> None:
    with pytest.raises(RefusedValueError, match="Kryo 2 and Kryo 5 could both have written"):
        recoded(elements, for_five=for_five)


@pytest.mark.parametrize(("mine", "other"), [(MAP_BY_2, MAP_BY_5), (MAP_BY_5, MAP_BY_2)])
def test_elements_that_mean_the_same_by_both_stop_nothing(mine: bytes, other: bytes) -> None:
    for_five = mine is MAP_BY_2
    assert recoded([mine, LONG, mine], for_five=for_five) == b",".join([other, LONG, other])
    assert recoded([other, LONG], for_five=for_five) == b",".join([other, LONG])
