"""What is said of a Map, List, Set or Collection, of which no savepoint says how it is declared."""

from __future__ import annotations

from flinkstate.serializers.types import KryoType
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
