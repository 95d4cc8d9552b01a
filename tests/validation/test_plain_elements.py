"""Plain code reads elements of operator state that Kryo 2 wrote, and what is written of them by Kryo 5."""

from __future__ import annotations

import struct

import pytest

from flinkstate.serializers.types import FlinkType, KryoCollectionType, KryoType, ListType, NullableType
from stateferry.proof.expected.check_result import Outcome
from stateferry.proof.plain import plain_elements
from stateferry.proof.plain.plain_elements import PlainElements

UUID = KryoType("java.util.UUID", five=False)
OF_UUIDS = KryoCollectionType.of(
    KryoType("java.util.ArrayList", five=False), NullableType(ListType(NullableType(UUID, 0)), 0)
)
# The same UUID by each Kryo, and another one.
BY_2, BY_5, OTHER = (
    bytes.fromhex("54010204"),
    b"\x54\1" + struct.pack("<qq", 1, 2),
    b"\x54\1" + struct.pack("<qq", 1, 3),
)
# A list of it and of null: by Kryo 2 with the name of its class, and by Flink's own serializer.
NAME = b"java.util.ArrayLis" + bytes([ord("t") | 0x80])
OLD_LIST = b"\1\0" + NAME + b"\1\2" + BY_2 + b"\0"
NEW_LIST = b"\0\0\0\0\2\0" + BY_5 + b"\1"


def seen(type_: FlinkType, *pairs: tuple[bytes, bytes]) -> PlainElements:
    found = PlainElements()
    for old, new in pairs:
        found.see(type_, old, new)
    return found


def test_the_same_objects_by_either_kryo() -> None:
    assert not PlainElements().seen
    for type_, pair in ((UUID, (BY_2, BY_5)), (OF_UUIDS, (OLD_LIST, NEW_LIST))):
        check = seen(type_, pair, pair).check("n")
        assert (check.outcome, check.actual) == (Outcome.PASSED, "the objects of 2 elements")


@pytest.mark.parametrize(
    ("type_", "old", "new"),
    [
        (UUID, BY_2, OTHER),
        (UUID, BY_2, BY_5[:-1]),
        (OF_UUIDS, OLD_LIST, NEW_LIST.replace(BY_5, OTHER)),
        (OF_UUIDS, OLD_LIST, b"\1"),
        (OF_UUIDS, OLD_LIST, bytes(5)),
    ],
)
def test_other_objects_and_what_cannot_be_read_are_differences(type_: FlinkType, old: bytes, new: bytes) -> None:
    check = seen(type_, (old, new)).check("n")
    assert (check.outcome, check.actual) == (Outcome.FAILED, "other objects in 1 element")
    assert check.samples[0].startswith("element 1: expected ")


def test_what_plain_code_cannot_read_of_the_source_says_nothing() -> None:
    check = seen(UUID, (BY_2, BY_5), (b"\x7f", BY_5)).check("n")
    assert check.outcome is Outcome.COULD_NOT_TELL
    assert check.actual.startswith("1 element can't be decoded, among them in the source: ")


def test_elements_beyond_the_bytes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_elements, "_MOST_BYTES", 2 * len(BY_2))
    check = seen(UUID, *3 * [(BY_2, BY_5)]).check("n")
    assert (check.outcome, check.actual) == (
        Outcome.PASSED,
        "the objects of 2 elements, and 1 more that were not read",
    )
    monkeypatch.setattr(plain_elements, "_MOST_BYTES", 1)
    found = seen(UUID, (BY_2, BY_5))
    assert found.seen
    assert found.check("n").outcome is Outcome.COULD_NOT_TELL
