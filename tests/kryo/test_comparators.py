"""Sorted maps with a comparator that isn't one of the JDK's: the message names its class."""

from __future__ import annotations

import pytest

from flinkstate.errors import RefusedError
from flinkstate.serializers.type_text import parse_map_type
from tests.kryo.examples import by_compiled_code, by_plain_code, examples, find_classes

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
