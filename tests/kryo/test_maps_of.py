"""`Map.of` in fields whose type arguments are final classes: Kryo 5 has no marks before the numbers and enums in it.

Kryo 2.24.0 wrote `BY_2`, and Kryo 5.6.2 `BY_5` of the same object. Its fields, by name:

    Map<Color, Integer> colors = Map.of(BLUE, 3);
    List<Map<String, Long>> inner = new ArrayList<>(List.of(Map.of("gh", 2L)));
    Map<String, Long> longs = Map.of("ab", 1L);
    Map<String, String> texts = Map.of("cd", "ef");
    Map<Long, Double> two = Map.of(7L, 0.5, 8L, 0.25);
    int z = 7;
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flinkstate.classfiles.class_file import ENUM, FINAL, PUBLIC, STATIC, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.kryo.reading import kryo_reading
from flinkstate.kryo.to_flink_maps import of_the_job
from flinkstate.serializers.type_text import parse_map_type
from flinkstate.serializers.types import KryoMapType, KryoRegistration, KryoType
from flinkstate.values.codecs import decode_whole
from flinkstate.values.kryo_values import read_kryo_map
from stateferry.proof.plain.plain_maps import by_kryo
from tests.kryo.examples import by_compiled_code
from tests.kryo.test_to_other_kryo import recoded

_NAME = b"java.util.ImmutableCollections$Map"
_MAP_1, _MAP_N = _NAME + b"\xb1", _NAME + b"\xce"
_LIST = b"\1\1java.util.ArrayLis\xf4\1"
_HALF, _QUARTER = b"\x3f\xe0" + bytes(6), b"\x3f\xd0" + bytes(6)
BY_2 = (
    *(b"\x57\1", b"\1\0" + _MAP_1 + b"\1\1" + b"\1\2" + b"\1\6"),
    *(_LIST + b"\1" + b"\1\0\1\1" + b"\3\1g\xe8" + b"\x09\4", b"\1\0\1\1" + b"\1a\xe2" + b"\1\2"),
    *(b"\1\0\1\1" + b"\1c\xe4" + b"\1e\xe6", b"\1\2" + _MAP_N + b"\1\2"),
    *(b"\1\x0e" + b"\1" + _HALF + b"\1\x10" + b"\1" + _QUARTER, b"\x0e"),
)
BY_5 = (
    *(b"\x57\1", b"\1\0" + _MAP_1 + b"\1\2" + b"\2" + b"\6"),
    *(_LIST + b"\x82" + b"\1\0\0" + b"\1\2" + b"\1g\xe8" + b"\4", b"\1\0\1\2" + b"\1a\xe2" + b"\2"),
    *(b"\1\0\1\2" + b"\1c\xe4" + b"\1e\xe6", b"\1\2" + _MAP_N + b"\1\3"),
    *(b"\x0e" + _HALF[::-1] + b"\x10" + _QUARTER[::-1], b"\x0e"),
)


def _map(key: str, value: str) -> str:
    return f"Ljava/util/Map<{key}{value}>;"


def _kryo() -> KryoType:
    text, long, double, number = (f"Ljava/lang/{one};" for one in ("String", "Long", "Double", "Integer"))
    color = "Ljob/Held$Color;"
    fields = {
        "colors": _map(color, number),
        "longs": _map(text, long),
        "texts": _map(text, text),
        "two": _map(long, double),
        "inner": f"Ljava/util/List<{_map(text, long)}>;",
    }
    members = [
        Member(name, f"Ljava/util/{'List' if name == 'inner' else 'Map'};", PUBLIC, signature)
        for name, signature in fields.items()
    ]
    held = ClassFile(
        *("job.Held", "java.lang.Object", (), PUBLIC, (*members, Member("z", "I", PUBLIC)), None, False),
        *((Member("<init>", "()V", PUBLIC),), PUBLIC),
    )
    constants = tuple(Member(one, color, PUBLIC | STATIC | FINAL | ENUM) for one in ("RED", "BLUE"))
    access = PUBLIC | FINAL | ENUM
    enum = ClassFile("job.Held$Color", "java.lang.Enum", (), access, constants, None, False, (), access)
    job = JobClasses("maps of", {one.name: one for one in (held, enum)})
    return KryoType("job.Held", registrations=(KryoRegistration("job.Held"),), classes=job, five=False)


KRYO = _kryo()
TWO, FIVE = b"".join(BY_2), b"".join(BY_5)
BACK = replace(KRYO, five=True, for_five=False)


def test_it_is_what_kryo_5_writes() -> None:
    assert recoded(KRYO, TWO) == FIVE
    # What doesn't say which Kryo wrote it.
    assert recoded(replace(KRYO, five=None), TWO) == recoded(replace(KRYO, five=None), FIVE) == FIVE


def test_kryo_2_cannot_read_it() -> None:
    with pytest.raises(RefusedError, match="the Kryo of the other Flink can't read such an object"):
        recoded(BACK, FIVE)


def test_plain_code_reads_the_same_objects() -> None:
    found = decode_whole(replace(KRYO, five=True), FIVE)
    assert found == decode_whole(KRYO, TWO)
    assert found.value["longs"].value[0][1].value == 1
    with pytest.raises(DamagedError):
        decode_whole(replace(KRYO, five=True), FIVE.replace(b"\1a\xe2\2", b"\1a\xe2\1\2"))


@pytest.mark.parametrize("five", [False, True])
def test_its_end_is_found(five: bool) -> None:
    value = FIVE if five else TWO
    data, start = np.frombuffer(value + bytes(64), np.uint8).copy(), np.array([0])
    reading = kryo_reading(replace(KRYO, five=five))
    ends = reading.find_ends(data, start, start + len(value) + 9, five=five, strict=False)
    assert ends.tolist() == [len(value)]


def test_it_is_copied_out_of_a_field() -> None:
    """A map by Kryo of its own has no type arguments, so its parts get tags."""
    registered = (*KRYO.registrations, KryoRegistration("java.util.HashMap"))
    kryo = replace(KRYO, class_name="java.util.Map", registrations=registered, five=None)
    type_ = of_the_job(parse_map_type("Map<String, Pojo<job.Held>>"), kryo, of_flink_2=False)
    for value, five in ((b"\x58\1\1" + b"\3\1k\xeb" + TWO, False), (b"\x58\1\2" + b"\3\1k\xeb" + FIVE, True)):
        made = by_compiled_code(kryo, type_, value)
        assert isinstance(made, bytes), made
        assert made.count(b"\3\1a\xe2\x09\2") == 1
        plain = read_kryo_map(KryoMapType(kryo.class_name, kryo.reason, kryo, type_), value, 0)
        assert repr(plain) == repr(decode_whole(by_kryo(type_, five=five, classes=kryo.classes), made))
