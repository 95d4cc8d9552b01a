"""Flink's own serializers judge the snapshots and single values that the library reads, writes and shows."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.snapshots import SerializerSnapshot, SnapshotParser
from flinkstate.serializers.type_parts import fixed_length, opaque_parts
from flinkstate.serializers.types import FlinkType, Scalar, children
from flinkstate.values.codecs import decode, decode_whole, encode
from flinkstate.values.value_json import value_json
from tests.flink.harness import FlinkHarness

pytestmark = [pytest.mark.flink, pytest.mark.timeout(900)]
Flink = Callable[[str], FlinkHarness]

VERSIONS = ["2.3.0", "1.20.0"]
COUNT = 200
# The longest value that is cut short at each of its bytes.
MOST_CUT = 1500

TYPES = [
    *("String", "String{0-300}", "Long", "Integer", "Short", "Byte", "Boolean", "Double", "Float", "Character", "Void"),
    *("BigInteger", "BigDecimal", "Date", "SqlDate", "SqlTime", "SqlTimestamp"),
    *("Instant", "LocalDate", "LocalTime", "LocalDateTime", "TimeWindow"),
    *("byte[]", "short[]", "int[]", "long[]", "float[]", "double[]", "boolean[]", "char[]", "String[]"),
    *("Long[]", "BigDecimal[]", "List<Float>", "Map<String,Long?>", "Map<Long,String?>"),
    *("Map<Tuple2<Long,String>,List<Double>>", "Tuple1<Void>", "Tuple3<String,BigInteger,SqlDate>"),
    *("Row<Long?,String?,Double?>", "Row<Long?,String?,Double?,Long,Long,Long,Long?>", "Either<Long,String>"),
    *("Nullable<Long?>", "PaddedNullable<Long?>", "Nullable<Map<String,Long?>?>"),
    *("Address", "Person", "Animal", "List<Animal>", "Color", "Map<Color,Person?>", "Map<String,Row<Color?,Person?>>"),
]
AVRO = ["AvroOrder", "AvroReading", "Map<String,AvroOrder?>", "List<AvroReading>"]
ONLY_FLINK_1 = [
    *("ScalaTuple2<String?,Long>", "ScalaTuple3<Integer,Option<String>,Tuple2<Long,String>>", "Option<Long>"),
    *("Option<Nothing>", "ScalaEither<String,Option<Double>>", "ScalaEither<Nothing,Long>", "Try<Long>", "Unit"),
    *("Traversable<String?>", "Traversable<ScalaTuple2<String,Long>>", "Suit", "Map<String,Option<Long>?>"),
    *(
        "Map<Suit,Traversable<ScalaTuple3<Long,Unit,Suit>>>",
        "Tuple2<Suit,Unit>",
        "ScalaTuple2<Long,Unit>",
        "Rank",
        "Map<Rank,Rank>",
    ),
]
ONLY_FLINK_2 = ["Set<String>", "Tagged"]


def parse(raw: bytes) -> SerializerSnapshot:
    snapshot, end = SnapshotParser(raw, "sample").read(0)
    assert end == len(raw)
    return snapshot


def has_big_integers(type_: FlinkType) -> bool:
    return type_ in (Scalar.BIG_INTEGER, Scalar.BIG_DECIMAL) or any(map(has_big_integers, children(type_)))


def judge(flink: FlinkHarness, expression: str, *, registered: tuple[str, ...] = ()) -> None:
    samples = flink.samples(expression, COUNT, registered=registered)
    snapshot = parse(samples.snapshot)
    assert snapshot.raw == samples.snapshot
    assert (fixed_length(snapshot.type) or -1) == samples.length
    assert len(samples.values) >= COUNT
    for raw, meaning in samples.values:
        value = decode_whole(snapshot.type, raw)
        assert json.loads(value_json(snapshot.type, value)) == meaning
        again = encode(snapshot.type, value)
        if again != raw:
            # A zero, one or ten that isn't Java's own object is written in full.
            assert has_big_integers(snapshot.type)
            assert len(again) < len(raw)
            assert decode_whole(snapshot.type, again) == value
    raw = max((raw for raw, _ in samples.values[:50] if len(raw) <= MOST_CUT), key=len)
    for end in range(len(raw)):
        with pytest.raises(DamagedError):
            decode(snapshot.type, raw, 0, end)


@pytest.mark.parametrize("expression", TYPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_values_mean_what_flink_says(version: str, expression: str, flink: Flink) -> None:
    judge(flink(version), expression)


@pytest.mark.parametrize("expression", AVRO)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_avro_wrote_means_what_avro_says(version: str, expression: str, flink: Flink) -> None:
    judge(flink(version), expression)


@pytest.mark.matrix(most=6)
@pytest.mark.parametrize("expression", ONLY_FLINK_1)
def test_what_scala_wrote_means_what_scala_says(expression: str, flink: Flink) -> None:
    judge(flink("1.20.0"), expression)


@pytest.mark.parametrize("expression", ONLY_FLINK_2)
def test_values_that_flink_1_has_no_serializer_of_its_own_for(expression: str, flink: Flink) -> None:
    judge(flink("2.3.0"), expression)


@pytest.mark.parametrize("version", VERSIONS)
def test_registered_subclasses_go_by_their_tags(version: str, flink: Flink) -> None:
    judge(flink(version), "List<Animal>", registered=("Dog", "Cat"))
    tagged = parse(flink(version).samples("Animal", COUNT, registered=("Dog", "Cat")).snapshot).type
    names = {getattr(child, "class_name", "").rsplit(".", 1)[-1] for child in children(tagged)}
    assert {"Dog", "Cat"} <= names


def test_what_kryo_wrote_is_refused_by_name(flink: Flink) -> None:
    samples = flink("1.20.0").samples("Tagged", 20)
    type_ = parse(samples.snapshot).type
    assert {part.reason for part in opaque_parts(type_)} == {"serialized by Kryo"}
    fullest, _ = max(samples.values, key=lambda sample: len(sample[0]))
    with pytest.raises(RefusedError, match="serialized by Kryo"):
        decode(type_, fullest)
