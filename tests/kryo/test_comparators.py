"""Sorted maps with a comparator that isn't one of the JDK's: the job's jar says that it has no fields."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkstate.classfiles.class_file import FINAL, PUBLIC, SYNTHETIC, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.kryo.class_finder import map_type_of
from flinkstate.serializers.type_text import parse_map_type
from flinkstate.serializers.types import KryoType
from flinkstate.values.codecs import encode
from flinkstate.values.kryo_values import read_kryo_part
from stateferry.changes.upgrade.for_other_kryo import element_for_other_kryo
from stateferry.changes.upgrade.lost_entries import text_of
from tests.kryo.examples import by_compiled_code, by_plain_code, examples, find_classes

_B = b"\x03\x01\x82b"
_OF_THE_JDK, _OF_THE_JOB = b"java.util.Collections$ReverseComparato\xf2", b"com.acme.ByLengt\xe8"


@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
@pytest.mark.parametrize("declared", ["as Map", "as its class"])
def test_the_class_of_a_comparator_is_named(version: str, declared: str) -> None:
    """Kryo 5 takes what Kryo 2 wrote of it for a map without entries, and most of the bytes for too many."""
    example = examples(version)[f"TreeMap reverse {declared}"]
    value = example.written.replace(_OF_THE_JDK, _OF_THE_JOB)
    assert value != example.written
    map_ = parse_map_type("Map<String, Long>")
    for found in (by_compiled_code(example.kryo, map_, value), by_plain_code(example.kryo, map_, value)):
        assert isinstance(found, RefusedError)
        assert "com.acme.ByLength" in str(found)
    assert find_classes(example.kryo, value).foreign == {"com.acme.ByLength": 1}


def _by_length(*fields: Member) -> JobClasses:
    """The job's class, with these fields."""
    name, interfaces = "com.acme.ByLength", ("java.util.Comparator",)
    found = ClassFile(name, "java.lang.Object", interfaces, PUBLIC, fields, None, False)
    return JobClasses(f"fields {fields}", {name: found})


@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
@pytest.mark.parametrize("declared", ["as Map", "as its class"])
def test_a_comparator_of_the_job_without_fields_is_read(version: str, declared: str) -> None:
    example = examples(version)[f"TreeMap reverse {declared}"]
    value, map_ = example.written.replace(_OF_THE_JDK, _OF_THE_JOB), parse_map_type("Map<String, Long>")
    expected = by_compiled_code(example.kryo, map_, example.written)
    assert isinstance(expected, bytes)
    kryo = replace(example.kryo, classes=_by_length())
    for found in (by_compiled_code(kryo, map_, value), by_plain_code(kryo, map_, value)):
        assert found == expected
    assert map_type_of(find_classes(kryo, value)) == map_
    # The other field is one that a compiler made.
    for field in (Member("length", "I", PUBLIC), Member("this$0", "Lcom/acme/Job;", FINAL | SYNTHETIC)):
        unlike = replace(kryo, classes=_by_length(field))
        for refused in (by_compiled_code(unlike, map_, value), by_plain_code(unlike, map_, value)):
            assert isinstance(refused, RefusedError)
            assert "comparator" in str(refused)


@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
@pytest.mark.parametrize("declared", ["as Map", "as its class"])
def test_a_comparator_of_the_job_may_take_a_null_key(version: str, declared: str) -> None:
    """Those of the JDK take none: with one of them such a value is damaged."""
    example = examples(version)[f"TreeMap reverse {declared}"]
    map_, kryo = parse_map_type("Map<String, Long>"), replace(example.kryo, classes=_by_length())
    of_the_jdk = example.written.replace(_B, b"\0")
    value = of_the_jdk.replace(_OF_THE_JDK, _OF_THE_JOB)
    for read in (by_compiled_code, by_plain_code):
        assert read(kryo, map_, value) == encode(map_, [(None, 2), ("a", 1)])
        assert isinstance(read(kryo, map_, of_the_jdk), DamagedError)
    with pytest.raises(DamagedError):
        _for_the_other(kryo, of_the_jdk, five=version == "2.3.0")
    written = _for_the_other(kryo, value, five=version == "2.3.0")
    before, after = (
        text_of(read_kryo_part(kryo, data, 0, len(data), five=five)[0])
        for data, five in ((value, version == "2.3.0"), (written, version == "1.20.0"))
    )
    assert before == after
    assert "(None, java.lang.Long(2))" in before


def _for_the_other(kryo: KryoType, value: bytes, *, five: bool) -> bytes:
    return element_for_other_kryo(replace(kryo, five=five, for_five=not five), value)
