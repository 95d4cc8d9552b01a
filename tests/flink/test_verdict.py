"""The verdict on a savepoint against what real Flink does with it: starts or not, and every value that it reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from flinkstate.classfiles.job_classes import read_job_classes
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar, TupleType
from stateferry.verdict import new_classes
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Finding, Outcome, worst
from stateferry.verdict.versions import Line
from tests.flink import jars
from tests.flink.harness import Made
from tests.flink.judge import Started, observed
from tests.flink.upgrade_rows import ROWS, Row

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

_UPGRADE = Journey(Line.ONE, Line.TWO)
_LINES = {"1.20.0": Line.ONE, "2.3.0": Line.TWO}


def said(made: Path, row: Row, target: Line, *, all_by_kryo_5: bool = False) -> Finding:
    """The worst of what Stateferry says of the states."""
    classes = None
    if row.classes:
        folder = jars.class_path("1.20.0").partition(":")[0]
        classes = read_job_classes([folder])
    asked = Asked(target, classes, new_job=classes, all_by_kryo_5=all_by_kryo_5)
    return worst(one.finding for one in verdicts(Savepoint.open(str(made)), asked))


_SAMPLE = (
    *("HintedMap<String,Long>", "HashMap<String,Long>", "UUID", "Object<Double>", "Object<Long>", "POJO Tagged"),
    *("classes Opaque", "kinds", "native HashMap<String,Long>", "HashMap<String,Ticket<Long>>"),
)


def _rows(sample: tuple[str, ...] = ()) -> list[object]:
    return [pytest.param(name, marks=() if name in sample else pytest.mark.full) for name in ROWS]


@pytest.mark.parametrize("name", _rows(_SAMPLE))
def test_the_verdict_is_what_flink_does(name: str, started: Started, savepoints: Callable[[str, str], Made]) -> None:
    row, made = ROWS[name], savepoints("1.20.0", name)
    outcome, exception = observed(started("2.3.0", row.whole_class_path), row.job, made)
    assert outcome is row.becomes, exception
    finding = said(made.path, row, Line.TWO)
    if row.verdict is not None:
        assert finding.outcome is row.verdict, finding
        return
    assert outcome in finding.possible, finding
    if row.by_field:
        assert finding.possible == (outcome,) or Outcome.REFUSED not in finding.possible, finding
    if finding.exception is not None and outcome is Outcome.REFUSED:
        assert finding.exception.partition(":")[0] in exception, exception
        assert re.escape(finding.exception.rpartition(" ")[2].strip("()'.")) in re.escape(exception), exception


def test_a_tuple_of_the_job_may_have_fields_of_its_own_now() -> None:
    job = read_job_classes([jars.class_path("1.20.0").partition(":")[0]])
    pair, labelled, gone = (
        new_classes.finding_of(Part(Place.VALUE, TupleType((Scalar.LONG,) * 2, name)), _UPGRADE, job)
        for name in ("stateferry.flink.pojo.Pair", "stateferry.flink.pojo.Labelled", "com.acme.Gone")
    )
    assert pair is None
    assert labelled is not None
    assert gone is not None
    assert "is a tuple with fields of its own now" in labelled.reason
    assert "com.acme.Gone, which is not in the jars" in gone.reason
    assert (labelled.outcome, gone.outcome) == (Outcome.UNKNOWN, Outcome.UNKNOWN)


@pytest.mark.full
@pytest.mark.parametrize("version", _LINES)
@pytest.mark.parametrize("name", ROWS)
def test_the_same_flink_restores_what_it_wrote(
    name: str, version: str, started: Started, savepoints: Callable[[str, str], Made]
) -> None:
    row = ROWS[name]
    if version == "2.3.0" and name.startswith("Scala"):
        pytest.skip("Flink 2 has no Scala")
    made = savepoints(version, name)
    outcome, exception = observed(started(version, row.whole_class_path), row.job, made)
    assert outcome is row.stays.get(version, Outcome.RESTORES), exception
    finding = said(made.path, row, _LINES[version])
    said_less = (row.verdict, row.verdict_if_stays if version in row.stays else None)
    if version == "2.3.0":
        never_upgraded = said(made.path, row, Line.TWO, all_by_kryo_5=True)
        if finding != never_upgraded:
            # The same bytes may be from before an upgrade.
            assert finding.outcome is Outcome.UNKNOWN
            assert row.becomes.breaks or not row.classes
            finding = never_upgraded
    assert finding.outcome in said_less or outcome in finding.possible, finding


@pytest.mark.full
@pytest.mark.parametrize("name", ["Object<Long>", "kinds", "UUID"])
def test_flink_1_refuses_what_flink_2_wrote(
    name: str, started: Started, savepoints: Callable[[str, str], Made]
) -> None:
    row, made = ROWS[name], savepoints("2.3.0", name)
    outcome, exception = observed(started("1.20.0", row.whole_class_path), row.job, made)
    finding = said(made.path, row, Line.ONE)
    assert (outcome, finding.outcome) == (Outcome.REFUSED, Outcome.REFUSED)
    assert finding.exception is not None
    assert finding.exception in exception
