"""What `--declared` says of the fields of a POJO that a case class becomes, held against the class of the POJO.

Flink refuses the savepoint if a field of the class has another serializer.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flinkstate.classfiles.class_file import PUBLIC, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.serializers.types import CaseClassType, EnumType, FlinkType, OptionType, Scalar, TraversableType
from stateferry.runs.checks.declarations import Declarations
from stateferry.runs.checks.declared_scala import declared_scala

MAIN: Any = SimpleNamespace(label="main")
LONGS = TraversableType(Scalar.LONG, "scala.collection.immutable.List.canBuildFrom[Any]")
PAIR = CaseClassType((Scalar.STRING, OptionType(Scalar.LONG)), "com.acme.Pair")
SUIT = EnumType("com.acme.Suit$", ("A",), (0,))
PAIR_FIELDS = {"zone": "Ljava/lang/String;", "age": "Ljava/lang/Long;"}


def class_of(name: str, has_type_info: bool, **fields: str) -> ClassFile:
    members = []
    for field, type_ in fields.items():
        head, bracket, _ = type_.partition("<")
        members.append(Member(field, f"{head};" if bracket else type_, PUBLIC, type_ if bracket else None))
    return ClassFile(name, "java.lang.Object", (), PUBLIC, tuple(members), None, False, for_flink=has_type_info)


def problems(source: FlinkType, told: str, field: str, *, has_type_info: bool = False) -> list[str]:
    """What is wrong with what is told of `a.Holder.one`, which is of this type in the jar."""
    holder, pair = class_of("a.Holder", has_type_info, one=field), class_of("a.Pair", False, **PAIR_FIELDS)
    declared = Declarations(
        MAIN, {"s": f"Pojo<a.Holder>(one: {told})"}, JobClasses("d", {"a.Holder": holder, "a.Pair": pair})
    )
    declared_scala(CaseClassType((source,), "com.acme.Holder"), "s", declared)
    return declared.problems


RIGHT = (
    (LONGS, "List<Long>", "Ljava/util/List<Ljava/lang/Long;>;"),
    (LONGS, "List<Long>", "Ljava/util/Collection<Ljava/lang/Long;>;"),
    (LONGS, "List<Long>", "Ljava/util/List;"),
    (LONGS, "List<Long>", "Ljava/util/List<TT;>;"),
    (PAIR, "Pojo<a.Pair>(zone, age)", "La/Pair;"),
    (PAIR, "Tuple2", "Lorg/apache/flink/api/java/tuple/Tuple2;"),
    (PAIR, "Tuple2", "Lorg/apache/flink/api/java/tuple/Tuple2<Ljava/lang/String;Ljava/lang/Long;>;"),
    (SUIT, "Enum<a.Suit>", "La/Suit;"),
)
WRONG = (
    (LONGS, "List<Long>", "Ljava/util/Set<Ljava/lang/Long;>;", "java.util.Set<java.lang.Long>"),
    (LONGS, "List<Long>", "Ljava/util/List<Ljava/lang/String;>;", "java.util.List<java.lang.String>"),
    (LONGS, "Types.LIST<Long>", "Ljava/util/ArrayList<Ljava/lang/Long;>;", "java.util.ArrayList<java.lang.Long>"),
    (PAIR, "Pojo<a.Pair>(zone, age)", "La/Other;", "a.Other"),
    (PAIR, "Tuple2", "La/Pair;", "a.Pair"),
    (SUIT, "Enum<a.Suit>", "La/Cards;", "a.Cards"),
    (Scalar.STRING, "String", "Ljava/lang/Object;", "java.lang.Object"),
)


@pytest.mark.parametrize(("source", "told", "field"), RIGHT)
def test_what_the_class_may_have_is_no_problem(source: FlinkType, told: str, field: str) -> None:
    assert problems(source, told, field) == []


@pytest.mark.parametrize(("source", "told", "field", "shown"), WRONG)
def test_a_field_of_another_type_is_a_problem(source: FlinkType, told: str, field: str, shown: str) -> None:
    (problem,) = problems(source, told, field)
    assert f"the field one of a.Holder is {shown} in the jar, and not " in problem
    assert problems(source, told, field, has_type_info=True) == []
