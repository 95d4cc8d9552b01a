"""Values of flink-scala, written by Flink's own serializers: the kernel against plain code, damage included."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flinkstate.classfiles.class_file import PUBLIC, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import DamagedError, RefusedError, UsageError
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.scala.programs import ScalaProgram, compile_scala, compile_scala_list
from flinkstate.scala.rewriting import write_values
from flinkstate.serializers.types import (
    SCALA_EITHER,
    SCALA_TRY,
    CaseClassType,
    EitherType,
    EnumType,
    FlinkType,
    KryoType,
    ListType,
    NullableType,
    OptionType,
    PojoField,
    PojoType,
    Scalar,
    ScalaType,
    TraversableType,
    TtlType,
    TupleType,
)
from flinkstate.values.codecs import decode_whole, encode
from flinkstate.values.java_values import EitherValue, OptionValue, PojoValue, Singleton
from stateferry.runs.checks.declarations import Declarations
from stateferry.runs.checks.declared_scala import as_told, declared_scala
from stateferry.verdict.removed import suggestion

_OPERATOR: Any = SimpleNamespace(label="main")
STRING, LONG = Scalar.STRING, Scalar.LONG
PAIR = CaseClassType((STRING, LONG), "scala.Tuple2")
READING = CaseClassType((STRING, OptionType(LONG), Scalar.INTEGER), "com.acme.Reading")
LIST = "scala.collection.immutable.List.canBuildFrom[Any]"
MAP = "implicitly[scala.collection.generic.CanBuildFrom[Map[String,Long],(String, Long),Map[String,Long]]]"
SET = "implicitly[scala.collection.generic.CanBuildFrom[scala.collection.immutable.Set[Long],Long,Set[Long]]]"
NONE = OptionValue(None, False)
BY_OPTION = TraversableType(
    CaseClassType((CaseClassType((OptionType(STRING), LONG), "scala.Tuple2"), LONG), "scala.Tuple2"), MAP
)


def some(value: Any) -> OptionValue:
    return OptionValue(value, True)


NESTED = TraversableType(CaseClassType((STRING, TraversableType(OptionType(PAIR), LIST)), "scala.Tuple2"), MAP)
CASES: list[tuple[FlinkType, str, list[Any], Any]] = [
    (PAIR, "Tuple2<String, Long>", [("a", 5), ("日本", -1), (None, 2)], ("a", 5)),
    (
        READING,
        "Pojo<com.acme.R>(zone, age: Long, mid)",
        [("a", some(5), 3), ("b", NONE, 4), (None, some(0), 0)],
        PojoValue("com.acme.R", {"age": 5, "mid": 3, "zone": "a"}),
    ),
    (OptionType(LONG), "Long?", [some(1), NONE], 1),
    (OptionType(STRING), "String", [some("x"), NONE], "x"),
    (
        EitherType(STRING, PAIR, SCALA_EITHER),
        "Either<String, Tuple2>",
        [EitherValue("a", True), EitherValue(("b", 1), False)],
        EitherValue("a", True),
    ),
    (EnumType("com.acme.Suit", ("A", "B"), (3, -2)), "Enum<com.acme.Cards>", ["B", "A"], "B"),
    (TraversableType(STRING, LIST), "List<String>", [["a", None], []], ["a", None]),
    (TraversableType(OptionType(LONG), LIST), "java.util.List<Long>", [[some(1), NONE], []], [1, None]),
    (TraversableType(PAIR, LIST), "Types.LIST<Tuple2<String, Long>>", [[("a", 1), ("b", 2)], []], [("a", 1), ("b", 2)]),
    (TraversableType(PAIR, MAP), "Map<String, Long>", [[("a", 1), (None, 2)], []], [("a", 1), (None, 2)]),
    (TraversableType(PAIR, MAP), "Types.MAP<String, Long>", [[("a", 1), ("b", 2)], []], [("a", 1), ("b", 2)]),
    (
        TraversableType(
            CaseClassType((OptionType(LONG), CaseClassType((Scalar.UNIT, STRING), "U")), "scala.Tuple2"), MAP
        ),
        "Map<Long, Pojo<U>(u, s)>",
        [[(some(1), (Singleton.UNIT, "a")), (NONE, (Singleton.UNIT, None))]],
        [(1, PojoValue("U", {"s": "a", "u": None})), (None, PojoValue("U", {"s": None, "u": None}))],
    ),
    (TraversableType(LONG, SET), "Set<Long>", [[1, 2], []], [1, 2]),
    (
        NESTED,
        "Types.MAP<String, Types.LIST<Pojo<X>(b, a)?>>",
        [[("a", [some(("q", 1)), NONE]), ("b", [])]],
        [("a", [PojoValue("X", {"a": 1, "b": "q"}), None]), ("b", [])],
    ),
    # A list keeps both None and Some(null).
    (TraversableType(OptionType(STRING), SET), "Types.LIST<String>", [[NONE, some(None)]], [None, None]),
    (
        BY_OPTION,
        "Types.LIST<Tuple2<Tuple2<String, Long>, Long>>",
        [[((NONE, 1), 2), ((some(None), 1), 3)]],
        [((None, 1), 2), ((None, 1), 3)],
    ),
    (OptionType(TraversableType(LONG, LIST)), "List<Long>", [some([1]), NONE], [1]),
    (CaseClassType((Scalar.UNIT, LONG), "scala.Tuple2"), "Tuple2<Void, Long>", [(Singleton.UNIT, 1)], (None, 1)),
    (EitherType(Scalar.NOTHING, LONG, SCALA_EITHER), "Either", [EitherValue(1, False)], EitherValue(1, False)),
]


def written(program: ScalaProgram, *values: bytes, kept: bool = False) -> list[bytes]:
    data = np.frombuffer(b"".join(values) + bytes(64), np.uint8).copy()
    ends = np.cumsum([len(one) for one in values])
    starts = ends - [len(one) for one in values]
    heads = np.zeros(len(values), np.int64)
    out, new_ends = write_values(program, data, starts, ends, heads, np.full(len(values), kept))
    begins = [0, *new_ends.tolist()]
    return [out[begin:end].tobytes() for begin, end in pairwise(begins)]


def plainly(type_: ScalaType, data: bytes) -> bytes:
    return encode(type_.made, decode_whole(type_, data))


@pytest.mark.parametrize(("source", "text", "values", "first"), CASES, ids=[text for _, text, _, _ in CASES])
def test_the_kernel_writes_what_plain_code_does(source: FlinkType, text: str, values: list[Any], first: Any) -> None:
    type_ = as_told(source, text)
    raw = [encode(source, value) for value in values]
    assert written(compile_scala(type_), *raw) == [plainly(type_, one) for one in raw]
    assert decode_whole(type_, raw[0]) == first
    assert decode_whole(type_.made, plainly(type_, raw[0])) == first
    many = raw * 3000
    assert b"".join(written(compile_scala(type_), *many)) == b"".join(plainly(type_, one) for one in raw) * 3000


@pytest.mark.parametrize("seed", range(3))
def test_damaged_values_are_refused_or_are_values(seed: int) -> None:
    """What is written of a damaged value, if it isn't refused, is what plain code writes."""
    chosen, told = random.Random(seed), 0
    # The kernel copies the byte of a Unit, whatever it is.
    cases = [case for case in CASES if "UNIT" not in repr(case[0])]
    for source, text, values, _ in chosen.choices(cases, k=2000):
        type_, raw = as_told(source, text), bytearray(encode(source, chosen.choice(values)))
        for _ in range(chosen.choice((1, 1, 2, 3))):
            place = chosen.randrange(len(raw) or 1)
            match chosen.randrange(3) if raw else 2:
                case 0:
                    raw[place] ^= 1 << chosen.randrange(8)
                case 1:
                    del raw[place : place + chosen.randrange(1, 4)]
                case _:
                    raw[place:place] = bytes([chosen.choice((0, 1, 2, 0x7F, 0x80, 0xFF))]) * chosen.randrange(1, 4)
        try:
            (made,) = written(compile_scala(type_), bytes(raw))
        except RefusedValueError:
            continue
        except (DamagedError, RefusedError):
            told += 1
            with pytest.raises((DamagedError, RefusedError, UsageError)):
                plainly(type_, bytes(raw))
            continue
        # Plain code refuses what Flink doesn't write, such as an element that is there and null.
        with suppress(DamagedError, RefusedError, UsageError):
            assert made == plainly(type_, bytes(raw)), (text, raw.hex())
    assert 1000 < told < 2000


def test_what_is_around_a_value_stays() -> None:
    inner = as_told(READING, "Pojo<com.acme.R>(zone, age, mid)")
    old, new = encode(READING, ("a", NONE, 1)), plainly(inner, encode(READING, ("a", NONE, 1)))
    stamp = (7).to_bytes(8, "big")
    assert written(compile_scala(TtlType(inner)), stamp + old) == [stamp + new]
    assert written(compile_scala(NullableType(inner, 0)), b"\0" + old) == [b"\0" + new]
    assert written(compile_scala(NullableType(inner, 0)), b"\1" + old, kept=True) == [b"\1" + old]
    assert written(compile_scala_list(inner), old + b"," + old) == [new + b"," + new]
    of_broadcast = ListType(TupleType((LONG, inner), "an entry"))
    assert written(compile_scala(of_broadcast), b"\0\0\0\1" + stamp + old) == [b"\0\0\0\1" + stamp + new]
    with pytest.raises(DamagedError, match="the delimiter 44"):
        written(compile_scala_list(inner), old + b";" + old)
    with pytest.raises(RefusedError, match=r"inside of a .* is not rewritten"):
        compile_scala(OptionType(inner))


def test_null_where_there_is_none_is_refused() -> None:
    type_ = TraversableType(LONG, LIST)
    with pytest.raises(RefusedValueError, match="null as an element"):
        written(compile_scala(as_told(type_, "Types.LIST<Long>")), encode(type_, [1, None]))


@pytest.mark.parametrize("value", [EitherValue(None, True), EitherValue(None, False)])
def test_a_side_of_an_either_that_is_null_is_refused(value: EitherValue) -> None:
    """Flink's `Either` throws an exception for it when the job reads the value."""
    source = EitherType(STRING, Scalar.BIG_INTEGER, SCALA_EITHER)
    type_ = as_told(source, "Either<String, BigInteger>")
    with pytest.raises(RefusedValueError, match=r"null .* as a side of an Either") as refused:
        written(compile_scala(type_), encode(source, EitherValue("a", True)), encode(source, value))
    assert refused.value.offset == 4
    with pytest.raises(RefusedError, match="null as a side"):
        plainly(type_, encode(source, value))


@pytest.mark.parametrize(
    ("source", "text", "why"),
    [
        (PAIR, "Tuple3", "expected Tuple2, or Pojo<com.acme.Reading>"),
        (PAIR, "Tuple2<String>", "expected 2 types in Tuple2<String>"),
        (PAIR, "Tuple2<String, Integer>", "expected Long, which stays as it is, found Integer"),
        (PAIR, "Pojo<X>(a)", "the names of 2 fields in the order"),
        (PAIR, "Pojo<X>(a, a)", "expected 2 different names"),
        (PAIR, "Pojo<X>(a, b", r"expected \), found 'the end'"),
        (PAIR, "Tuple2 more", "expected the end behind the type"),
        (PAIR, "", "expected a type, found 'the end'"),
        (OptionType(LONG), "Long", r"expected Long\?, which has a null for None"),
        (TraversableType(PAIR, LIST), "Map<String, Long>", "a Map is made of a Map of Scala alone, not of a List"),
        (TraversableType(LONG, SET), "Map<String, Long>", "made of a Map of Scala alone, not of a Set"),
        (TraversableType(LONG, "Map.canBuildFrom"), "Map<String, Long>", "for a collection of pairs"),
        (TraversableType(PAIR, LIST), "List<Tuple2<String, Long>>", "to Kryo: declare it by Types.LIST"),
        (TraversableType(LONG, LIST), "Long", "expected List<...>, Set<...> or Map<...>"),
        (EitherType(STRING, OptionType(LONG), SCALA_EITHER), "Either", "Flink's Either holds no null"),
        (EitherType(STRING, LONG, SCALA_EITHER), "Either<String>", "expected Either<...> with two types"),
        (EitherType(STRING, KryoType("java.lang.Throwable"), SCALA_TRY), "String", "is not rewritten"),
        (EnumType("com.acme.Suit", ("A",), (0,)), "Suit", "expected Enum<com.acme.Suit>"),
        (EnumType("com.acme.Suit", ("A",), (0,)), "Enum<com.acme.Cards>?", "expected Enum<com.acme.Suit>"),
        (CaseClassType((EnumType("a.Suit", ("A",), (0,)),), "B"), "Tuple1<Enum<a.C>?>", "expected Enum<com.acme.Suit>"),
        (Scalar.UNIT, "Long", "expected Void"),
        (Scalar.UNIT, "Void?", "expected Void"),
        (OptionType(OptionType(LONG)), "Long?", "an Option of an Option is not rewritten"),
        (CaseClassType((OptionType(OptionType(LONG)),), "B"), "Pojo<B>(a)", "an Option of an Option is not rewritten"),
        (OptionType(OptionType(STRING)), "String", "an Option of an Option is not rewritten"),
        (OptionType(Scalar.UNIT), "Void?", "an Option of a Unit is not rewritten"),
        (TraversableType(OptionType(STRING), SET), "Set<String>", r"a Set of Option<String> .* say Types.LIST"),
        (BY_OPTION, "Types.MAP<Tuple2<String, Long>, Long>", r"a Map with keys of Tuple2<.* say Types.LIST"),
        (OptionType(KryoType("java.util.UUID")), "Kryo<java.util.UUID>?", "is java.util.UUID, serialized by Kryo"),
        (ListType(PAIR), "Types.LIST<Tuple2>", "is not rewritten"),
        (OptionType(PojoType("P", (PojoField("a", LONG),))), "Pojo<P>?", "can't be described"),
        (CaseClassType((), "com.acme.Nothing"), "Tuple0", "the names of 0 fields"),
    ],
)
def test_what_people_say_is_held_against_what_there_is(source: FlinkType, text: str, why: str) -> None:
    with pytest.raises((RefusedError, UsageError), match=why):
        as_told(source, text)


@pytest.mark.parametrize(("source", "text", "values", "first"), CASES, ids=[text for _, text, _, _ in CASES])
def test_what_is_suggested_is_understood(source: FlinkType, text: str, values: list[Any], first: Any) -> None:
    suggested = suggestion(source)
    assert suggested is not None
    as_told(source, suggested)


def test_nothing_is_suggested_for_what_is_not_rewritten() -> None:
    for type_ in (LONG, EitherType(LONG, LONG, SCALA_TRY), OptionType(KryoType("X")), CaseClassType((), "E")):
        assert suggestion(type_) is None
    assert suggestion(EitherType(STRING, OptionType(LONG), SCALA_EITHER)) is None
    for inner in (OptionType(LONG), OptionType(STRING), OptionType(PAIR), Scalar.UNIT):
        assert suggestion(OptionType(inner)) is None
        assert suggestion(CaseClassType((LONG, OptionType(inner)), "A")) is None
    for without_order in (
        TraversableType(LONG, SET),
        TraversableType(PAIR, MAP),
        OptionType(TraversableType(LONG, SET)),
    ):
        assert suggestion(without_order) is not None
        assert suggestion(without_order, is_user_key=True) is None
    assert suggestion(TraversableType(LONG, LIST), is_user_key=True) == "Types.LIST<Long>"
    wide = suggestion(CaseClassType((LONG,) * 26, "com.acme.Wide"))
    assert wide is not None
    assert wide.startswith("Pojo<com.acme.Reading>(f0, f1")


def test_a_field_that_none_makes_null_is_not_primitive() -> None:
    """Flink reads null into a field `long` with an exception, and no savepoint says which of both a field is."""

    def told(source: FlinkType, text: str, **descriptors: str) -> list[str]:
        fields = tuple(Member(name, descriptor, PUBLIC) for name, descriptor in descriptors.items())
        reading = ClassFile("com.acme.R", "java.lang.Object", (), PUBLIC, fields, None, False)
        declared = Declarations(_OPERATOR, {"s": text}, JobClasses("d", {"com.acme.R": reading}))
        declared_scala(source, "s", declared)
        return declared.problems

    pojo = "Pojo<com.acme.R>(zone, age, mid)"
    string, boxed = "Ljava/lang/String;", "Ljava/lang/Long;"
    around = CaseClassType((READING, OptionType(READING), TraversableType(READING, LIST)), "com.acme.Around")
    by_reading = TraversableType(CaseClassType((STRING, EitherType(STRING, READING, SCALA_EITHER)), "P"), MAP)
    for source, text in (
        (READING, pojo),
        (around, f"Tuple3<Tuple3<String, Long?, Integer>, {pojo}?, Types.LIST<Tuple3<String, Long?, Integer>>>"),
        (around, f"Tuple3<Tuple3<String, Long?, Integer>, Tuple3<String, Long?, Integer>?, Types.LIST<{pojo}>>"),
        (by_reading, f"Types.MAP<String, Either<String, {pojo}>>"),
        (OptionType(TraversableType(READING, LIST)), f"List<{pojo}>?"),
    ):
        assert told(source, text, zone=string, age=boxed, mid="I") == []
        (problem,) = told(source, text, zone=string, age="J", mid="I")
        assert "the field age of com.acme.R is of a primitive type, which can't be null" in problem
        assert problem.endswith("declare it as Long")
    assert "is Integer, and not Long" in told(READING, pojo, zone=string, age="I", mid="I")[0]
