"""What is said of a Map, List, Set or Collection, of which no savepoint says how it is declared."""

from __future__ import annotations

import pytest

from flinkstate.classfiles.class_file import PUBLIC, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.serializers.types import FlinkType, KryoType, ListType, PojoField, PojoType, RowType
from stateferry.verdict.declarations import finding_of
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.outcomes import Finding, Outcome
from stateferry.verdict.versions import Line

_MAP, _UPGRADE = Part(Place.VALUE, KryoType("java.util.Map")), Journey(Line.ONE, Line.TWO)


def test_the_reason_says_what_else_becomes_of_one_that_stays_kryos() -> None:
    """A `Map<String, Map<String, Long>>` is by Kryo 5 however it is declared, and what Flink reads of it varies."""
    found = finding_of(_MAP, _UPGRADE, Finding(Outcome.WRONG, "it loses an entry", or_else=Outcome.FAILS))
    assert found is not None
    assert (found.outcome, found.or_else) == (Outcome.REFUSED, Outcome.WRONG)
    assert found.reason.endswith("it is by Kryo 5: then it loses an entry. Or it restores and fails at the first read")


def test_nothing_is_added_where_one_outcome_is_certain() -> None:
    found = finding_of(_MAP, _UPGRADE, Finding(Outcome.WRONG, "it loses an entry"))
    assert found is not None
    assert found.reason.endswith("it is by Kryo 5: then it loses an entry")


_CERTAIN, _OPEN = (Outcome.REFUSED,), (Outcome.REFUSED, Outcome.WRONG)
_CART = PojoType("com.acme.Cart", (PojoField("byName", KryoType("java.util.Map"), declared_in="com.acme.Cart"),))
_OF_LONGS = "Ljava/util/Map<Ljava/lang/String;Ljava/lang/Long;>;"


def _possible(
    type_: FlinkType, signature: str | None, *, annotated: bool = False, at_once: bool = False
) -> tuple[Outcome, ...] | None:
    """What is said of values of the type if the field of a Cart has this signature, and Kryo 5 would misread them."""
    field = Member("byName", "Ljava/util/Map;", PUBLIC, signature)
    cart = ClassFile("com.acme.Cart", "java.lang.Object", (), PUBLIC, (field,), None, False, for_flink=annotated)
    job = JobClasses(f"{signature} {annotated}", {"com.acme.Cart": cart})
    wrong = Finding(Outcome.WRONG, "it loses an entry")
    found = finding_of(Part(Place.VALUE, type_), _UPGRADE, wrong, job, at_once=at_once)
    return None if found is None else found.possible


@pytest.mark.parametrize(
    ("signature", "annotated", "expected"),
    [
        (_OF_LONGS, False, _CERTAIN),
        # Kryo 5 writes these: nothing is said beside what becomes of the values.
        ("Ljava/util/Map<Ljava/lang/String;Ljava/util/List<Ljava/lang/Long;>;>;", False, None),
        (None, False, None),
        ("Ljava/util/Map<Ljava/lang/String;*>;", False, _OPEN),
        (_OF_LONGS, True, _OPEN),
    ],
)
def test_the_class_says_how_a_field_is_declared(
    signature: str | None, annotated: bool, expected: tuple[Outcome, ...] | None
) -> None:
    assert _possible(ListType(_CART), signature, annotated=annotated) == expected


def test_of_several_collections_the_one_that_is_refused_decides() -> None:
    both = RowType((KryoType("java.util.List"), _CART), has_kind=True)
    assert _possible(both, _OF_LONGS) == _CERTAIN
    assert _possible(both, None) == _OPEN


def test_flink_reads_operator_state_before_it_refuses_it() -> None:
    assert _possible(_CART, _OF_LONGS, at_once=True) == (Outcome.REFUSED, Outcome.FAILS)


def test_flink_compares_no_subclass_that_is_not_registered() -> None:
    base = PojoType("com.acme.Base", (), other_subclasses=(("com.acme.Cart", _CART),))
    assert _possible(base, _OF_LONGS) == _OPEN
    assert _possible(PojoType("com.acme.Base", (), (_CART,)), _OF_LONGS) == _CERTAIN
