"""What `--declared` says of a field in a POJO, held against the class of the POJO.

Where the values show nothing, as a map that is empty, real Flink refuses a savepoint with another serializer.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkstate.classfiles.class_file import ENUM, PUBLIC, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.metadata.metadata import Operator
from flinkstate.serializers.type_parts import with_kryo
from flinkstate.serializers.types import (
    FlinkType,
    KryoRegistration,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoField,
    PojoType,
    Scalar,
)
from stateferry.runs.checks.declarations import Declarations
from stateferry.runs.checks.declared_collections import declared_type
from stateferry.runs.checks.way_back import WayBack

OBJECT = "java.lang.Object"
MAIN = Operator(bytes(16), 1, 128, "main")
MAP, LIST = (
    KryoType(name, registrations=(KryoRegistration(name),), five=False) for name in ("java.util.Map", "java.util.List")
)


def class_of(name: str, *fields: Member, access: int = 0) -> ClassFile:
    constructor = (Member("<init>", "()V", PUBLIC),)
    return ClassFile(name, OBJECT, (), PUBLIC | access, fields, None, False, constructor, PUBLIC | access)


def job_with(field: str, *, has_type_info: bool = False) -> JobClasses:
    """A job of which the class `a.Cart` has one field of this type."""
    descriptor = field.partition("<")[0].removesuffix(";") + ";"
    cart = class_of("a.Cart", Member("field", descriptor, PUBLIC, field if "<" in field else None))
    color = class_of("a.Color", Member("RED", "La/Color;", PUBLIC | ENUM), access=ENUM)
    classes = (replace(cart, for_flink=has_type_info), class_of("a.Item", Member("price", "J", PUBLIC)), color)
    return JobClasses("digest", {one.name: one for one in classes})


def problems(told: str, field: str, *, has_type_info: bool = False) -> list[str]:
    """What is wrong with a declaration of `a.Cart.field`, which is of this type in the jar."""
    job = job_with(field, has_type_info=has_type_info)
    kryo = MAP if "Map<" in told or told == "Map" else LIST
    pojo = with_kryo(PojoType("a.Cart", (PojoField("field", kryo, "a.Cart"),)), lambda one: replace(one, classes=job))
    declared = Declarations(MAIN, {"s.field": told}, job)
    declared_type(pojo, "s", declared)
    return declared.problems


@pytest.mark.parametrize(
    ("told", "instead"),
    [
        ("List<Kryo<java.lang.Long>>", "Long"),
        ("Map<String, Kryo<java.util.Date>>", "Date"),
        ("List<Kryo<a.Color>>", "Enum<a.Color>"),
    ],
)
def test_what_flink_has_a_serializer_for_is_not_kryos(told: str, instead: str) -> None:
    """So it is also where no class says how the collection is declared."""
    kryo = replace(MAP if "Map<" in told else LIST, classes=job_with(MAP_OF_LONGS))
    declared = Declarations(MAIN, {"s": told}, kryo.classes)
    declared_type(kryo, "s", declared)
    (problem,) = declared.problems
    assert problem.endswith(f"but Flink has a serializer for it: say {instead}")


@pytest.mark.parametrize("has_pojos", [False, True])
def test_a_pojo_is_not_kryos_unless_the_job_gives_all_of_them_to_kryo(has_pojos: bool) -> None:
    """A job can have Kryo write all of its POJOs. Then the savepoint has none by Flink's own serializer."""
    kryo = replace(LIST, classes=job_with(MAP_OF_LONGS))
    declared = Declarations(MAIN, {"s": "List<Kryo<a.Item>>"}, kryo.classes, has_pojos=has_pojos)
    declared_type(kryo, "s", declared)
    assert len(declared.problems) == has_pojos
    assert all(one.endswith("say Pojo<a.Item>") for one in declared.problems)


MAP_OF_LONGS = "Ljava/util/Map<Ljava/lang/String;Ljava/lang/Long;>;"
LIST_OF = "Ljava/util/List<{}>;"


@pytest.mark.parametrize(
    ("told", "field", "shown"),
    [
        ("Map<String, Integer>", MAP_OF_LONGS, "java.util.Map<java.lang.String, java.lang.Long>"),
        ("Map<Long, Long>", MAP_OF_LONGS, "java.util.Map<java.lang.String, java.lang.Long>"),
        ("Map", MAP_OF_LONGS, "java.util.Map<java.lang.String, java.lang.Long>"),
        ("Map<String, List<Long>>", MAP_OF_LONGS, "java.util.Map<java.lang.String, java.lang.Long>"),
        ("List<String>", LIST_OF.format(LIST_OF.format("Ljava/lang/String;")), "List<java.util.List<java.lang.String>"),
        ("List<Kryo<a.Item>>", LIST_OF.format("La/Item;"), "java.util.List<a.Item>"),
        ("List<Enum<a.Color>>", LIST_OF.format("La/Item;"), "java.util.List<a.Item>"),
        ("List<Kryo<java.lang.Object>>", LIST_OF.format("Ljava/util/UUID;"), "java.util.List<java.util.UUID>"),
        ("List<String>", LIST_OF.format("Ljava/lang/Object;"), "java.util.List<java.lang.Object>"),
    ],
)
def test_a_declaration_that_the_class_contradicts_is_a_problem(told: str, field: str, shown: str) -> None:
    (problem,) = problems(told, field)
    assert problem.startswith(
        f"state s.field of operator main: --declared says {told}, and the class a.Cart in the jar"
    )
    assert f"{shown}" in problem


@pytest.mark.parametrize(
    ("told", "field"),
    [
        ("Map<String, Long>", MAP_OF_LONGS),
        ("java.util.Map<String,Long>", MAP_OF_LONGS),
        ("List<Pojo<a.Item>>", LIST_OF.format("La/Item;")),
        ("List<Enum<a.Color>>", LIST_OF.format("La/Color;")),
        ("List<Kryo<java.util.UUID>>", LIST_OF.format("Ljava/util/UUID;")),
        ("List<Kryo<java.lang.Object>>", LIST_OF.format("Ljava/lang/Object;")),
        ("List<byte[]>", LIST_OF.format("[B")),
        # Flink 2 gives both to Kryo.
        ("List<List<String>>", LIST_OF.format(LIST_OF.format("Ljava/lang/String;"))),
        ("List", LIST_OF.format(LIST_OF.format("Ljava/lang/String;"))),
        # A new job may say more than the old one.
        ("Map", "Ljava/util/Map;"),
        ("Map<String, Long>", "Ljava/util/Map;"),
        # The class doesn't say which they are.
        ("List<String>", "Ljava/util/List<TT;>;"),
        ("List", "Ljava/util/List<*>;"),
        ("List<String>", "Ljava/util/List<+Ljava/lang/Object;>;"),
        ("List<Kryo<org.other.Part>>", LIST_OF.format("Lorg/other/Part;")),
    ],
)
def test_what_may_be_right_is_none(told: str, field: str) -> None:
    assert problems(told, field) == []


def test_a_class_with_type_infos_of_its_own_says_nothing() -> None:
    assert problems("Map", MAP_OF_LONGS, has_type_info=True) == []


def test_no_class_says_nothing() -> None:
    declared = Declarations(MAIN, {"s.field": "Map"}, None)
    declared_type(PojoType("a.Cart", (PojoField("field", MAP, "a.Cart"),)), "s", declared)
    assert declared.problems == []


OF_FLINK_2: dict[str, FlinkType] = {
    "Map": NullableType(MapType(NullableType(Scalar.STRING, 0), Scalar.LONG), 0),
    "List": NullableType(ListType(NullableType(Scalar.STRING, 0)), 0),
}


@pytest.mark.parametrize(
    ("told", "field", "is_refused"),
    [
        ("Collection", LIST_OF.format("Ljava/lang/String;"), True),
        ("List<String>", "Ljava/util/Collection<Ljava/lang/String;>;", True),
        ("List", LIST_OF.format("Ljava/lang/String;"), False),
        ("Collection<String>", "Ljava/util/Collection<Ljava/lang/String;>;", False),
        ("Map<String, Long>", MAP_OF_LONGS, False),
    ],
)
def test_the_way_back(told: str, field: str, is_refused: bool) -> None:
    """Flink 1 has a serializer for each of both, and refuses that of the other."""
    job = job_with(field)
    type_ = OF_FLINK_2["Map" if told.startswith("Map") else "List"]
    declared = Declarations(MAIN, {"s.field": told}, job)
    back = WayBack(MAP, job, all_by_5=True)
    back.type(PojoType("a.Cart", (PojoField("field", type_, "a.Cart"),)), "s", declared)
    assert len(declared.problems) == is_refused
    assert all("the class a.Cart in the jar has java.util." in one for one in declared.problems)
