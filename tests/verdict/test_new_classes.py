"""What class files say about types of a header. `tests/flink/test_new_classes.py` holds the same against real Flink."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkstate.classfiles.class_file import ABSTRACT, ENUM, PUBLIC, STATIC, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.serializers.types import (
    ArrayType,
    EnumType,
    FlinkType,
    KryoRegistration,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoField,
    PojoType,
    Scalar,
    SetType,
    TupleType,
)
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.new_classes import finding_of
from stateferry.verdict.outcomes import Finding, Outcome
from stateferry.verdict.versions import Line

READING, BASE, NODE = "com.acme.Reading", "com.acme.Base", "com.acme.Node"
TUPLE = "org.apache.flink.api.java.tuple.Tuple2"
LONG, STRING = Scalar.LONG, Scalar.STRING
_PLAIN = (Member("<init>", "()V", PUBLIC),)


def class_of(name: str, *fields: Member, extends: str = "java.lang.Object", access: int = PUBLIC) -> ClassFile:
    return ClassFile(name, extends, (), access, fields, None, False, _PLAIN, access)


def field(name: str, descriptor: str, signature: str | None = None, access: int = PUBLIC) -> Member:
    return Member(name, descriptor, access, signature)


def old(*fields: tuple[str, FlinkType, str], name: str = READING) -> PojoType:
    """A POJO of the header; a field is its name, its type, and the class that had it."""
    return PojoType(name, tuple(PojoField(one, type_, described_in=where) for one, type_, where in fields))


def job_of(*classes: ClassFile) -> JobClasses:
    return JobClasses("", {one.name: one for one in classes})


def said(type_: FlinkType, *classes: ClassFile) -> Finding | None:
    return finding_of(Part(Place.VALUE, type_), Journey(Line.TWO, Line.TWO), job_of(*classes))


def outcome(type_: FlinkType, *classes: ClassFile) -> Outcome | None:
    found = said(type_, *classes)
    return None if found is None else found.outcome


NAME, ID = field("name", "Ljava/lang/String;"), field("id", "J")
IN_BASE = old(("id", LONG, BASE), ("name", STRING, READING))


def test_a_superclass_with_another_name_loses_values() -> None:
    new = class_of(READING, NAME, extends="com.acme.Base2")
    finding = said(IN_BASE, new, class_of("com.acme.Base2", ID))
    assert finding is not None
    assert (finding.outcome, finding.or_else) == (Outcome.WRONG, Outcome.RESTORES)
    assert "not in com.acme.Base, which is not in the jars that were given" in finding.reason


@pytest.mark.parametrize("fields", [(NAME, ID), (NAME,)])
def test_flink_finds_a_field_in_a_class_that_is_no_superclass_any_more(fields: tuple[Member, ...]) -> None:
    finding = said(IN_BASE, class_of(READING, *fields), class_of(BASE, ID))
    assert finding is not None
    assert finding.outcome is Outcome.REFUSED
    assert finding.exception is not None
    assert "a present field should have its associated new field serializer" in finding.exception


def test_a_removed_field_that_is_static_now_is_found_in_a_superclass() -> None:
    new = class_of(READING, NAME, extends=BASE)
    assert outcome(IN_BASE, new, class_of(BASE, field("id", "J", access=PUBLIC | STATIC))) is Outcome.REFUSED


def test_fields_of_a_tuple_that_the_class_extends_no_more() -> None:
    type_ = old(("f0", LONG, TUPLE), ("name", STRING, READING))
    assert outcome(type_, class_of(READING, NAME)) is Outcome.REFUSED
    assert outcome(type_, class_of(READING, NAME, extends=TUPLE)) is None
    assert outcome(type_, class_of(READING, extends=TUPLE)) is Outcome.REFUSED
    assert outcome(old(("name", STRING, READING)), class_of(READING, NAME, extends=TUPLE)) is Outcome.UNKNOWN


@pytest.mark.parametrize("superclass", [BASE, "com.google.acme.Base", "java.util.LinkedList"])
def test_a_superclass_that_is_not_known(superclass: str) -> None:
    assert outcome(IN_BASE, class_of(READING, NAME, extends=superclass)) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (class_of(READING, extends="java.lang.Enum", access=PUBLIC | ENUM), "it is an enum"),
        (class_of(READING), "it has no fields"),
        (class_of(READING, NAME, extends="java.util.ArrayList"), "it extends java.util.ArrayList"),
        (class_of(READING, ID, extends=BASE), "it and its superclass have a field id each"),
    ],
)
def test_a_class_that_is_no_pojo_any_more(new: ClassFile, why: str) -> None:
    finding = said(old(("id", LONG, READING)), new, class_of(BASE, ID))
    assert finding is not None
    assert finding.outcome is Outcome.REFUSED
    assert why in finding.reason


def test_a_class_inside_of_itself_stays_with_kryo() -> None:
    node, own = f"L{NODE.replace('.', '/')};", field("id", "J")
    type_ = old(("next", KryoType(NODE), NODE), ("all", ArrayType(KryoType(NODE), NODE), NODE), name=NODE)
    fields = (field("next", node), field("all", f"[{node}"))
    assert outcome(type_, class_of(NODE, *fields)) is None
    up = old(("up", KryoType(BASE), NODE), ("id", LONG, BASE), name=NODE)
    assert outcome(up, class_of(NODE, field("up", "Lcom/acme/Base;"), extends=BASE), class_of(BASE, own)) is None
    other = old(("other", KryoType(BASE), NODE), name=NODE)
    refused = outcome(other, class_of(NODE, field("other", "Lcom/acme/Base;")), class_of(BASE, own))
    assert refused is Outcome.REFUSED


A = old(("id", LONG, "com.acme.A"), name="com.acme.A")
TONE = EnumType("com.acme.Tone", ("SOFT", "LOUD"))
SOFT = class_of("com.acme.Tone", field("SOFT", "Lcom/acme/Tone;", access=ENUM | STATIC), access=PUBLIC | ENUM)


@pytest.mark.parametrize("type_", [A, KryoType("com.acme.A"), ArrayType(A, "com.acme.A"), TupleType((A, LONG), TUPLE)])
def test_a_field_that_is_removed_together_with_its_class(type_: FlinkType) -> None:
    header = old(("a", type_, READING), ("name", STRING, READING))
    assert outcome(header, class_of(READING, NAME)) is Outcome.UNKNOWN
    assert outcome(header, class_of(READING, NAME), class_of("com.acme.A", ID)) is Outcome.RESTORES


@pytest.mark.parametrize("fields", [(NAME,), (NAME, field("tone", "Lcom/acme/Tone;"))])
def test_an_enum_in_a_field_lacks_a_constant(fields: tuple[Member, ...]) -> None:
    finding = said(old(("tone", TONE, READING), ("name", STRING, READING)), class_of(READING, *fields), SOFT)
    assert finding is not None
    assert finding.outcome is Outcome.REFUSED
    assert finding.exception == "IllegalStateException: field serializer snapshots should be present."


def _signed(name: str, *arguments: str) -> str:
    return f"L{name};" if not arguments else f"L{name}<{''.join(arguments)}>;"


_L, _S, _I = "Ljava/lang/Long;", "Ljava/lang/String;", "Ljava/lang/Integer;"
_T2 = "org/apache/flink/api/java/tuple/Tuple2"
PAIR = TupleType((LONG, STRING), TUPLE)
TEXTS = NullableType(ListType(NullableType(STRING, 0)), 0)
IDS = NullableType(SetType(LONG), 0)
COUNTS = NullableType(MapType(NullableType(STRING, 0), LONG), 0)
FITS, REFUSED, UNKNOWN = None, Outcome.REFUSED, Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("type_", "signature", "expected"),
    [
        (PAIR, _signed(_T2, _L, _S), FITS),
        (PAIR, _signed(_T2, _L, _I), REFUSED),
        (PAIR, _signed(_T2), UNKNOWN),
        (PAIR, _signed(_T2, _L, "*"), FITS),
        (PAIR, "Lcom/acme/A;", REFUSED),
        (PAIR, "Ljava/util/UUID;", REFUSED),
        (PAIR, _L, REFUSED),
        (ArrayType(A, "com.acme.A"), "[Lcom/acme/A;", FITS),
        (ArrayType(A, "com.acme.A"), "[[Lcom/acme/A;", REFUSED),
        (ArrayType(A, "com.acme.A"), "[Lcom/acme/B;", REFUSED),
        (ArrayType(A, "com.acme.A"), "Lcom/acme/A;", REFUSED),
        (ArrayType(ArrayType(A, "com.acme.A"), "[Lcom.acme.A;"), "[[Lcom/acme/A;", FITS),
        (TEXTS, _signed("java/util/List", _S), FITS),
        (TEXTS, _signed("java/util/Collection", _S), FITS),
        (TEXTS, _signed("java/util/List", _L), REFUSED),
        (TEXTS, _signed("java/util/List"), REFUSED),
        (TEXTS, _signed("java/util/List", _signed("java/util/List", _S)), REFUSED),
        (TEXTS, _signed("java/util/Map", _L, _L), REFUSED),
        (TEXTS, _signed("java/util/ArrayList", _S), REFUSED),
        (ListType(STRING), _signed("java/util/List"), UNKNOWN),
        (ListType(ListType(LONG)), _signed("java/util/List", _signed("java/util/List", _L)), UNKNOWN),
        (ListType(ListType(LONG)), _signed("java/util/List", _signed("java/util/List", _S)), REFUSED),
        (MapType(STRING, LONG), _signed("java/util/Map", _S, _L), FITS),
        (IDS, _signed("java/util/Set", _L), FITS),
        (IDS, _signed("java/util/Set", _S), REFUSED),
        (COUNTS, _signed("java/util/Map", _S, _L), FITS),
        (COUNTS, _signed("java/util/Map", _S, _I), REFUSED),
    ],
)
def test_types_of_fields_that_are_no_scalars(type_: FlinkType, signature: str, expected: Outcome | None) -> None:
    descriptor = signature.partition("<")[0].removesuffix(";") + (";" if "L" in signature else "")
    new = class_of(READING, field("x", descriptor, signature))
    others = (class_of("com.acme.A", ID), class_of("com.acme.B", ID))
    assert outcome(old(("x", type_, READING)), new, *others) is expected


def test_a_type_variable_is_known_only_in_the_class_of_the_state() -> None:
    """The state is declared as before, and so is what its class has for the variable."""
    box = class_of(BASE, field("x", "Ljava/lang/Object;", "TT;"))
    assert outcome(old(("x", LONG, BASE), name=BASE), box) is None
    assert outcome(old(("x", LONG, BASE)), class_of(READING, extends=BASE), box) is Outcome.UNKNOWN
    around = class_of(READING, field("box", "Lcom/acme/Base;", "Lcom/acme/Base<Ljava/lang/Long;>;"))
    inner = old(("box", old(("x", LONG, BASE), name=BASE), READING))
    assert outcome(inner, around, box) is Outcome.UNKNOWN


def test_an_abstract_class_stays_a_pojo() -> None:
    assert outcome(old(("id", LONG, READING)), class_of(READING, ID, access=PUBLIC | ABSTRACT)) is None


def test_flink_compares_registered_subclasses_alone() -> None:
    kid = old(("id", LONG, "com.acme.A"), name="com.acme.A")
    parent, base = old(("name", STRING, READING)), class_of(READING, NAME)
    classes = base, class_of("com.acme.A", field("id", "I"))
    assert outcome(replace(parent, registered_subclasses=(kid,)), *classes) is Outcome.REFUSED
    assert outcome(replace(parent, other_subclasses=(("com.acme.A", kid),)), *classes) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("registered", "defaults", "lacks"),
    [
        ("com.acme.Old", (), "com.acme.Old"),
        (READING, (("com.acme.Old", "com.acme.Serializer"),), "com.acme.Old"),
        (READING, ((READING, "com.acme.Serializer"),), "com.acme.Serializer"),
        (READING, (), None),
        # Libraries are not read from the jars.
        ("com.google.protobuf.Message", (), None),
    ],
)
def test_flink_finds_each_class_that_kryo_was_told_of(
    registered: str, defaults: tuple[tuple[str, str], ...], lacks: str | None
) -> None:
    kryo = KryoType("java.util.UUID", "by Kryo", (KryoRegistration(registered, None, b""),), defaults)
    for type_ in (kryo, ListType(kryo), old(("id", kryo, READING)), old(("gone", kryo, BASE))):
        new = class_of(READING, field("id", "Ljava/util/UUID;"))
        finding = said(type_, new, class_of(BASE))
        told = finding is not None and f"there is {lacks}, which is not in the jars" in finding.reason
        assert told == (lacks is not None)
        assert not told or (finding is not None and finding.outcome is Outcome.UNKNOWN)


def test_a_class_that_kryo_wrote_and_the_new_job_lacks() -> None:
    assert outcome(KryoType("com.acme.Gone", "by Kryo", (), ()), class_of(READING)) is Outcome.UNKNOWN
