"""What Kryo 2 wrote is found in a state of Flink 2, whatever stands before and behind it."""

from __future__ import annotations

import struct
from functools import partial

import numpy as np
import pytest

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.serializers.built_snapshots import kryo_snapshot
from flinkstate.serializers.types import FlinkType, KryoType, Scalar, TupleType
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.kryo_values import finding_of
from stateferry.verdict.outcomes import Outcome
from stateferry.verdict.sample import Finder, _ends_an_element
from stateferry.verdict.versions import Line

_KRYO = kryo_snapshot("java.lang.Object").type
assert isinstance(_KRYO, KryoType)
OBJECT: KryoType = _KRYO
PAIR = TupleType((Scalar.LONG, OBJECT), "org.apache.flink.api.java.tuple.Tuple2")
_CLASS, _ENTRY = b"\x01\x00java.util.HashMa\xf0\x01", b"\x03\x01a\xe2\x09\x02"
MAP_BY_2, MAP_BY_5 = _CLASS + b"\x01" + _ENTRY, _CLASS + b"\x02" + _ENTRY
LARGE_MAP_BY_2 = _CLASS + b"\x02" + _ENTRY + b"\x03\x01b\xe2\x09\x02"
# Either Kryo reads it, as another number.
DOUBLE = b"\x0a" + struct.pack("<d", 14.3)


def _finder(type_: FlinkType) -> Finder:
    return Finder(type_, True, 10_000)


def _judged(finder: Finder) -> tuple[Outcome, dict[str, int]]:
    found = finder.results(True)
    ((_, sampled),) = found
    finding = finding_of(Part(Place.VALUE, OBJECT), Journey(Line.TWO, Line.TWO), found)
    assert finding is not None
    return finding.outcome, dict(sampled.found.kryo)


def _data(values: list[bytes], between: bytes = b"") -> tuple[Bytes, Positions, Positions]:
    ends = np.cumsum([len(value) + len(between) for value in values]) - len(between)
    starts = np.append(0, ends[:-1] + len(between))
    return np.frombuffer(between.join(values) + bytes(64), np.uint8).copy(), starts, ends


@pytest.mark.parametrize(
    "sections",
    [[[DOUBLE, MAP_BY_2]], [[MAP_BY_2, DOUBLE]], [[DOUBLE], [MAP_BY_2]], [[MAP_BY_5], [DOUBLE, MAP_BY_5, MAP_BY_2]]],
)
def test_a_value_that_both_could_have_written_hides_no_other(sections: list[list[bytes]]) -> None:
    finder = _finder(OBJECT)
    for values in sections:
        finder.add_whole(*_data(values))
    outcome, kryo = _judged(finder)
    assert (outcome, kryo["2"]) == (Outcome.WRONG, 1)


@pytest.mark.parametrize("values", [[DOUBLE], [MAP_BY_5, DOUBLE], [DOUBLE, MAP_BY_2]])
def test_of_a_job_that_was_never_upgraded_kryo_5_wrote_what_both_could_have(values: list[bytes]) -> None:
    """A value that Kryo 5 can't have written shows that the job was upgraded all the same."""
    for never_upgraded, said in ((False, Outcome.UNKNOWN), (True, Outcome.RESTORES)):
        finder = Finder(OBJECT, True, 10_000, all_by_kryo_5=never_upgraded)
        finder.add_whole(*_data(values))
        journey = Journey(Line.TWO, Line.TWO, never_upgraded)
        finding = finding_of(Part(Place.VALUE, OBJECT), journey, finder.results(True))
        assert finding is not None
        assert finding.outcome is (Outcome.WRONG if MAP_BY_2 in values else said)


@pytest.mark.parametrize("map_", [MAP_BY_2, LARGE_MAP_BY_2])
def test_a_map_at_the_end_of_a_value(map_: bytes) -> None:
    finder = _finder(PAIR)
    finder.add_whole(*_data([bytes(8) + map_, bytes(8) + MAP_BY_5]))
    assert _judged(finder) == (Outcome.WRONG, {"2": 1, "5": 1})


@pytest.mark.parametrize("map_", [MAP_BY_2, LARGE_MAP_BY_2])
@pytest.mark.parametrize("behind", [[], [MAP_BY_5]])
def test_a_map_in_a_list(map_: bytes, behind: list[bytes]) -> None:
    finder = _finder(OBJECT)
    data, starts, ends = _data([b",".join([map_, *behind])])
    stops = finder.add(data, starts, ends, partial(_ends_an_element, data=data, limits=ends))
    assert stops.tolist() == [len(map_)]
    assert _judged(finder) == (Outcome.WRONG, {"2": 1})


# A map with an object of the job that nothing is known of.
UNREAD = _CLASS + b"\x01" + b"\x03\x01a\xe2" + b"\x01\x00com.acme.Readin\xe7\x01\x08"
# One of ten thousand UUIDs: both of its numbers have seven bytes for Kryo 2, with the first byte of the second.
EITHER_UUID = b"\x54\x01" + b"\x80" * 6 + b"\x01" + b"\x80" * 8 + b"\x01"
IN_TUPLE = b"\x01\x00org.apache.flink.api.java.tuple.Tuple\xb2\x01" + DOUBLE + b"\x03\x01a\xe2"
UUID_BY_5 = b"\x54\x01" + bytes(range(1, 17))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([DOUBLE], "both Kryos can read its values of Double"),
        ([MAP_BY_5, DOUBLE], "both Kryos can read its values of Double"),
        ([UNREAD], "can't be read"),
        ([EITHER_UUID], "both Kryos can read its values of UUID: "),
        # What makes the difference is in it, and no String does.
        ([IN_TUPLE], "both Kryos can read its values of Tuple2 (they hold Double too): "),
    ],
)
def test_of_values_that_nobody_can_tell_apart_it_says_so(values: list[bytes], why: str) -> None:
    finder = _finder(OBJECT)
    finder.add_whole(*_data(values))
    finding = finding_of(Part(Place.VALUE, OBJECT), Journey(Line.TWO, Line.TWO), finder.results(True))
    assert finding is not None
    assert finding.outcome is Outcome.UNKNOWN
    assert why in finding.reason
    same = finding_of(Part(Place.VALUE, OBJECT), Journey(Line.ONE, Line.ONE), finder.results(True))
    assert same is not None
    assert same.outcome is Outcome.RESTORES


def test_a_uuid_of_many_may_mean_another_by_chance() -> None:
    finder = _finder(OBJECT)
    finder.add_whole(*_data([UUID_BY_5, EITHER_UUID, UUID_BY_5]))
    assert _judged(finder)[0] is Outcome.RESTORES
