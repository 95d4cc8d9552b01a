"""Collections in POJOs that are in other POJOs: Flink 2 begins anew with the class of their elements.

Flink 2.3's TypeExtractor said these types of these classes, and its stack was full where none is said.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkstate.classfiles.class_file import PUBLIC, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError
from flinkstate.kryo.job_pojos import pojo_type
from flinkstate.metadata.metadata import Operator
from flinkstate.serializers.type_parts import with_kryo, with_opaque
from flinkstate.serializers.types import (
    FlinkType,
    KryoCollectionType,
    KryoRegistration,
    KryoType,
    ListType,
    NullableType,
    OpaqueType,
    PojoField,
    PojoType,
    Scalar,
)
from stateferry.runs.checks.declarations import Declarations
from stateferry.runs.checks.declared_collections import declared_type
from tests.kryo.examples import without_subclasses

LIST = KryoType("java.util.List", registrations=(KryoRegistration("java.util.List"),), five=False)
OBJECT = "java.lang.Object"


def class_of(name: str, above: str = OBJECT, **fields: str) -> ClassFile:
    """A class with fields of numbers, of classes, and of lists: `List a.Visit`."""
    members = []
    for field, type_ in fields.items():
        kind, _, element = type_.partition(" ")
        signature = f"Ljava/util/List<L{element.replace('.', '/')};>;" if element else None
        descriptor = "Ljava/util/List;" if element else kind if kind == "J" else f"L{kind.replace('.', '/')};"
        members.append(Member(field, descriptor, PUBLIC, signature))
    made = (Member("<init>", "()V", PUBLIC),)
    return ClassFile(name, above, (), PUBLIC, tuple(members), None, False, made, PUBLIC)


def job_of(*classes: ClassFile) -> JobClasses:
    return JobClasses("digest", {one.name: one for one in classes})


def plain(type_: FlinkType) -> FlinkType:
    """The type with the collections that Flink 2 writes itself, and with nothing but the names of what is by Kryo."""

    def made(one: OpaqueType) -> FlinkType:
        return one.made if isinstance(one, KryoCollectionType) else one

    return with_kryo(with_opaque(type_, made), lambda one: KryoType(one.class_name))


def declared_order(job: JobClasses, field: str, **texts: str) -> tuple[FlinkType, list[str]]:
    """What becomes of an order with a list by Kryo in this field of its customer, and the problems."""
    customer = PojoType("a.Customer", (PojoField(field, LIST, "a.Customer"),))
    fields = [PojoField("customer", customer, "a.Order")]
    if job.classes["a.Order"].superclass != OBJECT:
        paper = KryoType("a.Paper", five=False)
        fields += [PojoField("next", paper, "a.Paper"), PojoField("no", Scalar.LONG, "a.Paper")]
    operator = Operator(bytes(16), 1, 128, "main")
    declared = Declarations(operator, {f"s.customer.{field}": text for field, text in texts.items()}, job)
    found = declared_type(
        with_kryo(PojoType("a.Order", tuple(fields)), lambda one: replace(one, classes=job)), "s", declared
    )
    return plain(found), declared.problems


def test_a_class_around_a_collection_is_not_known_inside_of_it() -> None:
    job = job_of(
        class_of("a.Paper", no="J", next="a.Paper"),
        class_of("a.Order", "a.Paper", customer="a.Customer"),
        class_of("a.Customer", visits="List a.Visit"),
        class_of("a.Visit", at="J", paper="a.Paper"),
    )
    paper = PojoType(
        "a.Paper", (PojoField("next", KryoType("a.Paper"), "a.Paper"), PojoField("no", Scalar.LONG, "a.Paper"))
    )
    visit = PojoType("a.Visit", (PojoField("at", Scalar.LONG, "a.Visit"), PojoField("paper", paper, "a.Visit")))
    visits = NullableType(ListType(NullableType(visit, 0)), 0)
    customer = PojoType("a.Customer", (PojoField("visits", visits, "a.Customer"),))
    expected = PojoType("a.Order", (PojoField("customer", customer, "a.Order"), *paper.fields))
    found = plain(pojo_type("a.Order", replace(LIST, classes=job), of_flink_2=True))
    assert without_subclasses(found) == expected
    for texts in ({}, {"visits": "List<Pojo<a.Visit>>"}):
        declared, problems = declared_order(job, "visits", **texts)
        assert (without_subclasses(declared), problems) == (expected, [])


@pytest.mark.parametrize("element", ["a.Order", "a.Visit"])
def test_a_collection_that_is_in_its_own_elements_is_refused(element: str) -> None:
    job = job_of(
        class_of("a.Order", customer="a.Customer"),
        class_of("a.Customer", visits=f"List {element}"),
        class_of("a.Visit", at="J", order="a.Order"),
    )
    reason = f"its field visits has elements of {element}, which Flink 2 can't analyse"
    with pytest.raises(RefusedError, match=reason):
        pojo_type("a.Order", replace(LIST, classes=job), of_flink_2=True)
    for texts in ({}, {"visits": f"List<Pojo<{element}>>"}):
        _, (problem,) = declared_order(job, "visits", **texts)
        assert problem.startswith("state s.customer.visits of operator main: ")
        assert reason in problem
