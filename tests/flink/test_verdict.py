"""The verdict on a savepoint against what real Flink does with it: starts or not, and every value that it reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flinkstate.classfiles.job_classes import read_job_classes
from flinkstate.reading.reader import Savepoint
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Finding, Outcome, worst
from stateferry.verdict.versions import Line
from tests.flink import jars
from tests.flink.harness import FlinkError, FlinkHarness, Made, by_state, restored_by_state
from tests.flink.judge import declared
from tests.flink.upgrade_rows import ROWS, Row

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

Started = Callable[[str, bool], FlinkHarness]
_LINES = {"1.20.0": Line.ONE, "2.3.0": Line.TWO}
# Our own code, which shows a value that Flink has read: it is of another class, or broken.
_SHOWING = "stateferry.flink.types.Kind.show("


@pytest.fixture(scope="session")
def started() -> Iterator[Started]:
    """The harness of a version, with flink-scala and flink-avro on its class path or, as most jobs have it, without."""
    running: dict[tuple[str, bool], FlinkHarness] = {}

    def harness(version: str, whole: bool) -> FlinkHarness:
        if (version, whole) not in running:
            class_path = jars.class_path(version) if whole else jars.class_path_of_java_alone(version)
            running[version, whole] = FlinkHarness(version, class_path)
        return running[version, whole]

    yield harness
    for one in running.values():
        one.close()


@pytest.fixture(scope="session")
def savepoints(started: Started, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Made]:
    """The savepoint of a row by a version, made when it is first asked for."""
    known: dict[tuple[str, str], Made] = {}
    folder = tmp_path_factory.mktemp("rows")

    def make(version: str, name: str) -> Made:
        if (version, name) not in known:
            row = ROWS[name]
            path = folder / str(len(known))
            known[version, name] = started(version, row.whole_class_path).make(row.job, path)
        return known[version, name]

    return make


def observed(flink: FlinkHarness, row: Row, made: Made) -> tuple[Outcome, str]:
    """What real Flink does, and its exception."""
    job = declared(row.job)
    try:
        restored = flink.restore(made.path, job)
    except FlinkError as error:
        text = str(error)
        if "StateMigrationException" in text:
            return Outcome.REFUSED, text
        if _SHOWING in text and ".deserialize(" not in text:
            return Outcome.WRONG, text
        # Operator state is read whole at the start, and a list of it holds no nulls.
        reading = ".deserialize(" in text or "You cannot add null to a ListState" in text
        return (Outcome.FAILS if reading else Outcome.REFUSED), text
    equal = by_state(made.lines) == restored_by_state(restored, job) and not restored.problems
    return (Outcome.RESTORES if equal else Outcome.WRONG), ""


def said(made: Path, row: Row, target: Line) -> Finding:
    """The worst of what Stateferry says of the states."""
    classes = None
    if row.classes:
        folder = jars.class_path("1.20.0").partition(":")[0]
        classes = read_job_classes([folder])
    return worst(one.finding for one in verdicts(Savepoint.open(str(made)), Asked(target, classes, new_job=classes)))


_SAMPLE = (
    *("HintedMap<String,Long>", "HashMap<String,Long>", "UUID", "Object<Double>", "Object<Long>", "POJO Tagged"),
    *("classes Opaque", "kinds"),
)


def _rows(sample: tuple[str, ...] = ()) -> list[object]:
    return [pytest.param(name, marks=() if name in sample else pytest.mark.full) for name in ROWS]


@pytest.mark.parametrize("name", _rows(_SAMPLE))
def test_the_verdict_is_what_flink_does(name: str, started: Started, savepoints: Callable[[str, str], Made]) -> None:
    row, made = ROWS[name], savepoints("1.20.0", name)
    outcome, exception = observed(started("2.3.0", row.whole_class_path), row, made)
    assert outcome is row.becomes, exception
    finding = said(made.path, row, Line.TWO)
    if row.verdict is not None:
        assert finding.outcome is row.verdict, finding
        return
    assert outcome in finding.possible, finding
    if finding.exception is not None and outcome is Outcome.REFUSED:
        assert finding.exception.partition(":")[0] in exception, exception
        assert re.escape(finding.exception.rpartition(" ")[2].strip("()'.")) in re.escape(exception), exception


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
    outcome, exception = observed(started(version, row.whole_class_path), row, made)
    assert outcome is row.stays.get(version, Outcome.RESTORES), exception
    finding = said(made.path, row, _LINES[version])
    said_less = (row.verdict, row.verdict_if_stays if version in row.stays else None)
    assert finding.outcome in said_less or outcome in finding.possible, finding


@pytest.mark.full
@pytest.mark.parametrize("name", ["Object<Long>", "kinds", "UUID"])
def test_flink_1_refuses_what_flink_2_wrote(
    name: str, started: Started, savepoints: Callable[[str, str], Made]
) -> None:
    row, made = ROWS[name], savepoints("2.3.0", name)
    outcome, exception = observed(started("1.20.0", row.whole_class_path), row, made)
    finding = said(made.path, row, Line.ONE)
    assert (outcome, finding.outcome) == (Outcome.REFUSED, Outcome.REFUSED)
    assert finding.exception is not None
    assert finding.exception in exception
