"""Keys by Kryo, for whose bytes Flink looks: those of the job's classes, and those that weren't read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flinkstate.classfiles.class_file import FINAL, PUBLIC, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.kryo.classes import registered_ids
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.serializers.built_snapshots import kryo_snapshot
from flinkstate.serializers.types import KryoRegistration, KryoType
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.kryo_values import finding_of
from stateferry.verdict.outcomes import Finding, Outcome
from stateferry.verdict.sample import Finder
from stateferry.verdict.sampled_serializer import Sampled
from stateferry.verdict.versions import Line

ROUTE = "com.acme.Route"
UPGRADE, STAYS, STAYS_2 = Journey(Line.ONE, Line.TWO), Journey(Line.ONE, Line.ONE), Journey(Line.TWO, Line.TWO)
_STRING, _STOP = "Ljava/lang/String;", "Lcom/acme/Stop;"
_TAG = b"\x57\x01"
NOTHING = Sampled(FoundClasses(), whole=False)


def text(of: str) -> bytes:
    """A String of ASCII as Kryo 2 writes it, its mark before it."""
    return b"\x01" + of[:-1].encode() + bytes([ord(of[-1]) | 0x80])


SHORT, LONG = _TAG + text("FRA") + b"\x02", _TAG + text("Z" * 40) + b"\x02"


def _class(name: str, *fields: str) -> ClassFile:
    members = tuple(Member(f"f{number}", descriptor, 2) for number, descriptor in enumerate(fields))
    return ClassFile(name, "java.lang.Object", (), PUBLIC | FINAL, members, None, False, (), PUBLIC | FINAL)


def route(*fields: str) -> KryoType:
    """The class Route of the job with fields of these types, registered, and a class Stop with a String and an int."""
    classes = {ROUTE: _class(ROUTE, *fields), "com.acme.Stop": _class("com.acme.Stop", _STRING, "I")}
    kryo = KryoType(ROUTE, "by Kryo", (KryoRegistration(ROUTE, None, b""),), ())
    return replace(kryo, classes=JobClasses("/".join(fields), classes))


def found(kryo: KryoType, place: Place, values: list[bytes]) -> Sampled:
    """What is found in such values of Flink 1."""
    ends = np.cumsum([len(value) for value in values])
    finder = Finder(kryo, False, 10_000, place.is_key)
    finder.add_whole(np.frombuffer(b"".join(values) + bytes(64), np.uint8).copy(), np.append(0, ends[:-1]), ends)
    ((_, sampled),) = finder.results(True)
    return sampled


def judged(kryo: KryoType, place: Place, journey: Journey, sampled: Sampled) -> Finding:
    finding = finding_of(Part(place, kryo), journey, ((kryo, sampled),))
    assert finding is not None
    return finding


@pytest.mark.parametrize("place", [Place.KEY, Place.USER_KEY])
@pytest.mark.parametrize("values", [[LONG], [SHORT, LONG], [LONG, SHORT], [SHORT]])
def test_a_long_string_in_a_key_has_other_bytes_whatever_the_other_keys_are(place: Place, values: list[bytes]) -> None:
    kryo = route(_STRING, "I")
    finding = judged(kryo, place, UPGRADE, found(kryo, place, values))
    assert finding.outcome is (Outcome.WRONG if LONG in values else Outcome.RESTORES)
    assert ("finds nothing" in finding.reason) == (LONG in values)


@pytest.mark.parametrize("values", [[LONG], [SHORT, LONG], [SHORT]])
def test_each_kryo_reads_the_long_strings_of_the_other(values: list[bytes]) -> None:
    kryo = route(_STRING, "I")
    assert judged(kryo, Place.VALUE, UPGRADE, found(kryo, Place.VALUE, values)).outcome is Outcome.RESTORES


@pytest.mark.parametrize("place", [Place.KEY, Place.USER_KEY])
@pytest.mark.parametrize("journey", [UPGRADE, STAYS])
@pytest.mark.parametrize(
    ("fields", "value", "expected"),
    [
        # One String object that stands twice, and two equal ones.
        ((_STRING, _STRING), text("FRA") + b"\x03", Outcome.UNKNOWN),
        ((_STRING, _STRING), text("FRA") * 2, Outcome.UNKNOWN),
        # A Stop has a String, too.
        ((_STRING, _STOP), text("FRA") + b"\x01" + text("BER") + b"\x02", Outcome.UNKNOWN),
        ((_STOP, "I"), b"\x01" + text("BER") + b"\x02\x04", Outcome.RESTORES),
        ((_STRING, "I"), text("FRA") + b"\x02", Outcome.RESTORES),
    ],
)
def test_equal_keys_may_differ_where_one_object_can_stand_twice(
    fields: tuple[str, ...], value: bytes, expected: Outcome, journey: Journey, place: Place
) -> None:
    kryo = route(*fields)
    finding = judged(kryo, place, journey, found(kryo, place, [_TAG + value]))
    assert finding.outcome is expected
    assert ("one object stands in a key twice" in finding.reason) == (expected is Outcome.UNKNOWN)


_LONG = "Ljava/lang/Long;"


@pytest.mark.parametrize(
    ("fields", "value", "is_stable"),
    [
        ((_STRING, "J"), text("FRA") + b"\x02", True),
        (("J", "D"), b"\x02" + bytes(8), True),
        (("I", "S"), b"\x02\x00\x02", True),
        # Kryo refers to no boxed number.
        ((_LONG, _LONG), b"\x01\x02\x01\x02", True),
        (("Ljava/util/Date;",), b"\x00", False),
        (("[Ljava/lang/String;",), b"\x00", False),
        # A Route in a Route.
        ((f"L{ROUTE.replace('.', '/')};",), b"\x00", False),
    ],
)
@pytest.mark.parametrize("journey", [STAYS, STAYS_2])
def test_what_no_object_can_stand_in_twice_is_found_again(
    fields: tuple[str, ...], value: bytes, is_stable: bool, journey: Journey
) -> None:
    kryo = route(*fields)
    data = np.frombuffer(_TAG + value + bytes(64), np.uint8).copy()
    finder = Finder(kryo, journey is STAYS_2, 10_000, True)
    finder.add_whole(data, np.zeros(1, np.int64), np.array([2 + len(value)]))
    finding = finding_of(Part(Place.KEY, kryo), journey, finder.results(True))
    assert finding is not None
    assert ("one object stands" not in finding.reason) == is_stable
    if journey is STAYS:
        assert finding.outcome is (Outcome.RESTORES if is_stable else Outcome.UNKNOWN)


@pytest.mark.parametrize("part", ["J", "Z", "B", _LONG])
def test_numbers_that_both_kryos_write_alike_stand_beside_long_strings(part: str) -> None:
    kryo = route(_STRING, part)
    behind = b"\x01\x02" if part == _LONG else b"\x01"
    short, long = (_TAG + text(of) + behind for of in ("FRA", "Z" * 40))
    for values in ([short], [long], [short, long]):
        assert judged(kryo, Place.VALUE, UPGRADE, found(kryo, Place.VALUE, values)).outcome is Outcome.RESTORES
        finding = judged(kryo, Place.KEY, UPGRADE, found(kryo, Place.KEY, values))
        assert finding.outcome is (Outcome.WRONG if long in values else Outcome.RESTORES)


def test_long_strings_beside_fields_that_are_not_known_say_nothing_of_these() -> None:
    """A Route in a Route may be in one that wasn't read. Where all are written alike, nothing is left to ask."""
    kryo = route(_STRING, f"L{ROUTE.replace('.', '/')};")
    short, long = (_TAG + text(of) + b"\x00" for of in ("FRA", "Z" * 40))
    for values in ([short], [long], [short, long]):
        sampled = found(kryo, Place.VALUE, values)
        finding = judged(kryo, Place.VALUE, UPGRADE, sampled)
        assert finding.outcome is (Outcome.UNKNOWN if long in values else Outcome.RESTORES)
        in_part = judged(kryo, Place.VALUE, UPGRADE, replace(sampled, whole=False))
        assert in_part.outcome is Outcome.UNKNOWN
        assert in_part.advice.startswith("give --all") == (long not in values)


def test_zeros_in_objects_of_the_job_say_nothing_of_other_numbers() -> None:
    kryo = route("D")
    for number, whole, expected in (
        (bytes(8), True, Outcome.RESTORES),
        (bytes(8), False, Outcome.UNKNOWN),
        (b"\x3f\xf8" + bytes(6), False, Outcome.WRONG),
    ):
        sampled = replace(found(kryo, Place.VALUE, [_TAG + number]), whole=whole)
        assert judged(kryo, Place.VALUE, UPGRADE, sampled).outcome is expected


def test_namespaces_of_flink_2_are_not_read_so_kryo_2_may_have_written_some() -> None:
    for name, journey, expected in (
        ("java.util.HashMap", STAYS_2, Outcome.UNKNOWN),
        ("java.util.HashMap", STAYS, Outcome.RESTORES),
        ("java.util.HashMap", replace(STAYS_2, all_by_kryo_5=True), Outcome.RESTORES),
        ("java.lang.Long", STAYS_2, Outcome.RESTORES),
    ):
        finding = finding_of(Part(Place.NAMESPACE, _kryo(name)), journey, None)
        assert finding is not None
        assert finding.outcome is expected


@pytest.mark.parametrize("place", [Place.KEY, Place.USER_KEY])
@pytest.mark.parametrize("name", ["java.net.URI", "java.lang.String"])
def test_keys_that_may_have_long_strings_are_read_or_are_not_known(place: Place, name: str) -> None:
    kryo = _kryo(name)
    finding = judged(kryo, place, UPGRADE, NOTHING)
    assert finding.outcome is Outcome.UNKNOWN
    assert finding.advice.startswith("give --all")
    unread = finding_of(Part(place, kryo), UPGRADE, None)
    assert unread is not None
    assert unread.outcome is Outcome.UNKNOWN
    tag = next(bytes([number + 2]) for number, registered in registered_ids(kryo).items() if registered == name)
    tag += b"" if name == "java.lang.String" else b"\x01"
    short, long = (tag + text(of) for of in ("http://a.b", "http://" + "a" * 36))
    finding = judged(kryo, place, UPGRADE, found(kryo, place, [short]))
    assert finding.outcome is Outcome.RESTORES
    assert "in all" in finding.reason
    assert judged(kryo, place, UPGRADE, found(kryo, place, [short, long])).outcome is Outcome.WRONG
    # As values they are read, whatever they are.
    assert judged(kryo, Place.VALUE, UPGRADE, NOTHING).outcome is Outcome.RESTORES


def test_a_state_of_flink_2_of_which_nothing_was_read_may_hold_values_by_kryo_2() -> None:
    for name, expected in (("java.util.HashMap", Outcome.UNKNOWN), ("java.net.URI", Outcome.RESTORES)):
        assert judged(_kryo(name), Place.VALUE, STAYS_2, NOTHING).outcome is expected
        for journey, sampled in ((STAYS_2, replace(NOTHING, whole=True)), (STAYS, NOTHING)):
            assert judged(_kryo(name), Place.VALUE, journey, sampled).outcome is Outcome.RESTORES


def _kryo(name: str) -> KryoType:
    kryo = kryo_snapshot(name).type
    assert isinstance(kryo, KryoType)
    return kryo


@pytest.mark.parametrize(
    ("fields", "content", "outcome"),
    [
        ((_STRING, "I"), text("FRA") + b"\x02", Outcome.RESTORES),
        # One of both Strings may be the other.
        ((_STRING, _STRING), text("FRA") + text("JFK"), Outcome.UNKNOWN),
    ],
)
@pytest.mark.parametrize("place", [Place.KEY, Place.USER_KEY])
def test_an_optional_is_as_stable_as_what_is_in_it(
    fields: tuple[str, ...], content: bytes, outcome: Outcome, place: Place
) -> None:
    kryo = route(*fields)
    optional = KryoRegistration("java.util.Optional", None, b"")
    kryo = replace(kryo, class_name="java.util.Optional", registrations=(*kryo.registrations, optional))
    value = b"\x58\x01" + _TAG + content
    for journey in (UPGRADE, STAYS):
        assert judged(kryo, place, journey, found(kryo, place, [value])).outcome is outcome
        assert judged(kryo, place, journey, NOTHING).outcome is Outcome.UNKNOWN
