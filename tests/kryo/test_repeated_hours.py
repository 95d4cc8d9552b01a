"""A `ZonedDateTime` in an hour that a clock change repeats: Kryo 5 doesn't say which of the two it was.

Kryo 2.24.0 and Kryo 5.6.2 wrote the bytes.
"""

from __future__ import annotations

import numpy as np
import pytest

from flinkstate.errors import RefusedError
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.kryo.to_other_kryo import Recoder
from flinkstate.serializers.programs import compile_type
from flinkstate.serializers.types import KryoRegistration, KryoType, ListType
from tests.kryo.test_to_other_kryo import recoded

KRYO = KryoType("T", registrations=(KryoRegistration("T"), KryoRegistration("java.time.ZonedDateTime")), five=False)
AUTUMN_2, AUTUMN_5 = bytes.fromhex("001b000ad01f01021e0000"), bytes.fromhex("e80f0a1b02e1")
SPRING_2 = bytes.fromhex("001f0003d01f01021e0000")
BEFORE_0_2, BEFORE_0_5 = bytes.fromhex("001c00020901021e0000"), bytes.fromhex("fbffffff0f021c02e1")
LATE_2, LATE_5 = bytes.fromhex("001b0007f0bb0101021e0000"), bytes.fromhex("f85d071b02e1")
SUMMER, WINTER, MEAN_SUN = b"\xc0\x70", b"\xa0\x38", b"\x90\x32"
BERLIN, FIXED, NOWHERE = b"Europe/Berli\xee", b"UTC+01:0\xb0", b"Mars/Olympu\xf3"


def by_2(local: bytes, offset: bytes, zone: bytes) -> bytes:
    return b"\x58\1\1\1" + local + b"\1" + offset + b"\1\0java.time.ZoneRegio\xee\1\1" + zone


@pytest.mark.parametrize(
    ("two", "five"),
    [
        (by_2(AUTUMN_2, SUMMER, BERLIN), AUTUMN_5 + BERLIN),
        (by_2(AUTUMN_2, WINTER, FIXED), AUTUMN_5 + FIXED),
        (by_2(BEFORE_0_2, MEAN_SUN, BERLIN), BEFORE_0_5 + BERLIN),
        (by_2(LATE_2, SUMMER, BERLIN), LATE_5 + BERLIN),
    ],
)
def test_what_kryo_5_reads_with_the_same_offset_is_written(two: bytes, five: bytes) -> None:
    assert recoded(KRYO, two) == b"\x58\1" + five


@pytest.mark.parametrize(
    ("two", "problem"),
    [
        (by_2(AUTUMN_2, WINTER, BERLIN), "2024-10-27T02:30:00 in Europe/Berlin is 3600 seconds.*one that is 7200"),
        (by_2(SPRING_2, WINTER, BERLIN), "2024-03-31T02:30:00 in Europe/Berlin is 3600 seconds"),
        (by_2(AUTUMN_2, WINTER, NOWHERE), "Mars/Olympus: .*this machine has no data of that time zone"),
    ],
)
def test_what_kryo_5_would_read_with_another_offset_is_refused(two: bytes, problem: str) -> None:
    with pytest.raises(RefusedError, match=problem):
        recoded(KRYO, two)


def test_each_of_many_is_looked_at() -> None:
    """In one value, and in many: there is room for all of them, and one of the last ones is refused."""
    good, bad = by_2(AUTUMN_2, SUMMER, BERLIN), by_2(AUTUMN_2, WINTER, BERLIN)
    made = b"\x58\1" + AUTUMN_5 + BERLIN
    listed = ListType(KRYO)
    size = (3000).to_bytes(4)
    assert recoded(listed, size + good * 3000) == size + made * 3000
    with pytest.raises(RefusedError, match="is 3600 seconds"):
        recoded(listed, size + good * 2999 + bad)
    for values in ([good] * 3000, [good] * 2999 + [bad]):
        data = np.frombuffer(b"".join(values) + bytes(64), np.uint8).copy()
        ends = np.cumsum([len(one) for one in values])
        starts = np.append(0, ends[:-1])
        recoder = Recoder(compile_type(KRYO))
        if bad in values:
            with pytest.raises(RefusedValueError, match="is 3600 seconds") as refused:
                recoder.recode(data, starts, ends, np.zeros(3000, np.int64))
            assert starts[-1] < refused.value.offset < ends[-1]
        else:
            assert recoder.recode(data, starts, ends, np.zeros(3000, np.int64)).data.tobytes() == made * 3000
