"""The verdict on a savepoint whose job has changed its classes, against what real Flink does with them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flinkstate.classfiles.job_classes import JobClasses, read_job_classes
from flinkstate.reading.reader import Savepoint
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Finding, Outcome
from stateferry.verdict.versions import Line
from tests.flink import jars
from tests.flink.harness import FlinkError, FlinkHarness, Made
from tests.flink.harness import Line as Entry
from tests.flink.jobs import Job, Operator, OperatorState, State

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

RESTORES, WRONG, REFUSED = Outcome.RESTORES, Outcome.WRONG, Outcome.REFUSED


@dataclass(frozen=True)
class Evolved:
    """A state whose class is another one in the new job, what Flink makes of it, and of which fields.

    `lost` are fields whose values the new class has by another name, or in another class; `new` what fields that the
    old class lacks begin with, `names` the new names of fields. `said` is the verdict where Stateferry says less.
    """

    state: State
    becomes: Outcome
    new: Mapping[str, object] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    lost: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    said: Outcome | None = None


def _of(type_: str, becomes: Outcome, kind: str = "VALUE", ttl: str | None = None, **more: object) -> Evolved:
    return Evolved(State(f"{kind}-{type_}-{ttl}", type_, kind=kind, ttl=ttl), becomes, **more)  # type: ignore[arg-type]


_GROWN = {"count": 0, "note": None}
CASES = {
    one.state.name: one
    for one in (
        _of("Stays", RESTORES),
        _of("Grows", RESTORES, new=_GROWN),
        _of("Grows", RESTORES, "LIST", new=_GROWN),
        _of("Grows", RESTORES, "REDUCING", new=_GROWN),
        _of("Map<String,Grows>", RESTORES, "MAP", new=_GROWN),
        _of("Map<Grows,String>", REFUSED, "MAP"),
        _of("Grows", RESTORES, ttl="stamped", new=_GROWN),
        _of("Tuple2<Long,Grows>", RESTORES, new=_GROWN),
        _of("List<Grows>", RESTORES, new=_GROWN),
        _of("Shrinks", RESTORES, gone=("name",)),
        _of("Renames", WRONG, new={"sum": 0}, gone=("total",), lost=True),
        _of("Widens", REFUSED),
        _of("Widens", REFUSED, "LIST"),
        _of("Boxes", RESTORES),
        _of("Dates", REFUSED),
        _of("Lists", REFUSED),
        _of("Arrays", REFUSED),
        _of("Hides", REFUSED),
        _of("Beans", RESTORES),
        _of("Builds", REFUSED),
        _of("Lifts", RESTORES, new={"other": 0}),
        _of("Sinks", WRONG, new={"total": 0}, gone=("total",), lost=True),
        _of("Forgets", REFUSED),
        _of("Around", RESTORES, new=_GROWN),
        _of("Swaps", REFUSED),
        _of("Shaded", RESTORES),
        _of("Shade", RESTORES),
        _of("Kept", REFUSED),
        _of("Family", RESTORES, new={"nick": None}, said=Outcome.UNKNOWN),
        # The job starts, and fails at the first read.
        _of("Clan", REFUSED, said=Outcome.UNKNOWN),
        _of("Rebases", WRONG, new={"name": None}, lost=True),
        _of("Leaves", REFUSED),
        _of("Drops", REFUSED),
        _of("Pairs", REFUSED),
        _of("Ranks", REFUSED),
        _of("Counts", REFUSED),
        _of("Empties", REFUSED),
        _of("Piles", REFUSED),
        _of("Doubles", REFUSED),
        _of("Links", RESTORES),
        _of("Knot", RESTORES),
        _of("Freezes", RESTORES),
    )
}
# Of Flink 2 alone: Flink 1 gives a collection in a field to Kryo.
COLLECTIONS = {
    one.state.name: one
    for one in (
        _of("Collects", RESTORES),
        _of("Items", REFUSED),
        _of("Charts", REFUSED),
        _of("Concrete", REFUSED),
    )
}
_BROKEN = {
    one.state.name: one
    for one in (
        _of("Tone", REFUSED),
        _of("Gone", REFUSED, said=Outcome.UNKNOWN),
        _of("Sheds", REFUSED, said=Outcome.UNKNOWN),
        _of("Mutes", REFUSED),
        _of("Dulls", REFUSED),
    )
}
# With flink-avro on the class path.
AVRO = {
    one.state.name: one
    for one in (
        _of("AvroStays", RESTORES),
        _of("AvroGrows", RESTORES, new={"count": 0}),
        _of("AvroGrows", RESTORES, "LIST", new={"count": 0}),
        _of("AvroGrows", RESTORES, ttl="stamped", new={"count": 0}),
        _of("List<AvroGrows>", RESTORES, new={"count": 0}),
        _of("Carries", RESTORES, new={"count": 0}),
        _of("AvroNeeds", REFUSED),
        _of("AvroShrinks", RESTORES, gone=("note",)),
        _of("AvroRenames", WRONG, new={"sum": 0}, gone=("total",), lost=True),
        _of("AvroAliases", RESTORES, names={"total": "sum"}),
        _of("AvroWidens", RESTORES),
        _of("AvroNarrows", REFUSED),
        _of("Holds", REFUSED),
        _of("AvroNulls", RESTORES),
        _of("AvroFills", REFUSED),
        _of("AvroSuits", REFUSED),
        _of("AvroFolds", WRONG, new={"suit": "CLUB"}, lost=True),
        _of("AvroSorts", RESTORES),
        _of("AvroTexts", RESTORES),
        _of("AvroReading", RESTORES),
        _of("Map<AvroStays,String>", RESTORES, "MAP"),
        _of("Map<AvroTexts,String>", REFUSED, "MAP"),
    )
}
_BROKEN_BY_AVRO = {
    one.state.name: one
    for one in (
        _of("AvroGone", REFUSED, said=Outcome.UNKNOWN),
        _of("Discards", REFUSED, said=Outcome.UNKNOWN),
    )
}


def job_of(*states: State, key: str = "Long") -> Job:
    return Job((Operator("main", key=key, keys=8, states=states),), parallelism=1)


@dataclass(frozen=True)
class Sides:
    """Real Flink with the job's old classes and with its new ones, by version, and the folder of the new ones."""

    old: FlinkHarness
    new: Mapping[str, FlinkHarness]
    classes: JobClasses


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    with both_sides(jars.class_path_of_java_alone) as both:
        yield both


@pytest.fixture(scope="module")
def sides_with_avro() -> Iterator[Sides]:
    with both_sides(jars.class_path) as both:
        yield both


@contextmanager
def both_sides(class_path: Callable[[str], str]) -> Iterator[Sides]:
    def with_classes(version: str, side: str) -> tuple[FlinkHarness, Path]:
        folder = jars.evolved(version, side)
        return FlinkHarness(version, os.pathsep.join((str(folder), class_path(version)))), folder

    old, _ = with_classes("1.20.0", "old")
    made = {version: with_classes(version, "new") for version in ("1.20.0", "2.3.0")}
    new = {version: harness for version, (harness, _) in made.items()}
    # The class that all tests have, as it is, too.
    folders = [str(made["1.20.0"][1]), str(jars.classes("1.20.0"))]
    yield Sides(old, new, read_job_classes(folders))
    for one in (old, *new.values()):
        one.close()


@pytest.fixture(scope="module")
def savepoint(sides: Sides, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """All states of the old job, in one operator."""
    return sides.old.make(job_of(*(one.state for one in CASES.values())), tmp_path_factory.mktemp("old") / "made")


@pytest.fixture(scope="module")
def savepoint_with_avro(sides_with_avro: Sides, tmp_path_factory: pytest.TempPathFactory) -> Made:
    job = job_of(*(one.state for one in AVRO.values()))
    return sides_with_avro.old.make(job, tmp_path_factory.mktemp("old-avro") / "made")


@pytest.fixture(scope="module")
def savepoint_of_flink_2(sides: Sides, tmp_path_factory: pytest.TempPathFactory) -> Made:
    class_path = os.pathsep.join((str(jars.evolved("2.3.0", "old")), jars.class_path_of_java_alone("2.3.0")))
    with FlinkHarness("2.3.0", class_path) as flink:
        states = (one.state for one in COLLECTIONS.values())
        return flink.make(job_of(*states), tmp_path_factory.mktemp("old-2") / "made")


def said_of(made: Made, state: str, target: Line, classes: JobClasses | None) -> Finding:
    found = verdicts(Savepoint.open(str(made.path)), Asked(target, classes, new_job=classes))
    return next(one.finding for one in found if one.state == state)


def observed(flink: FlinkHarness, made: Made, one: Evolved) -> tuple[Outcome, str]:
    """What Flink does with the state, if the new job has this one alone."""
    try:
        restored = flink.restore(made.path, job_of(one.state))
    except FlinkError as error:
        return REFUSED, str(error)
    wanted = sorted(str(_evolved(line, one)) for line in made.lines if line["state"] == one.state.name)
    found = sorted(str(_plain(line)) for line in restored.lines)
    assert found == wanted
    return (WRONG if one.lost else RESTORES), ""


def _evolved(line: Entry, one: Evolved) -> object:
    """The entry with what the new class has, as Flink's rules say it."""

    def of(value: object, here: bool) -> object:
        if isinstance(value, list):
            return [of(part, here) for part in value]
        if not isinstance(value, dict):
            return value
        out = {one.names.get(name, name): of(part, True) for name, part in value.items() if name not in one.gone}
        is_the_class = "total" in value or "total" in one.new or "age" in value
        inner = one.state.type == "Around" and "inner" in value
        return out | (dict(one.new) if is_the_class and not inner else {})

    return _plain(line | {"value": of(line["value"], False)})


def _plain(line: Entry) -> object:
    return {name: _sorted(value) for name, value in sorted(line.items()) if name not in ("operator", "subtask")}


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {name: _sorted(part) for name, part in sorted(value.items())}
    return [_sorted(part) for part in value] if isinstance(value, list) else value


_SAMPLE = ("VALUE-Grows-None", "VALUE-Widens-None")
_SAMPLE_OF_AVRO = ("VALUE-AvroGrows-None", "VALUE-AvroNarrows-None")


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _SAMPLE else pytest.mark.full) for name in CASES]
)
def test_the_verdict_on_new_classes_is_what_flink_does(name: str, version: str, sides: Sides, savepoint: Made) -> None:
    hold(CASES[name], version, sides, savepoint)


@pytest.mark.full
@pytest.mark.parametrize("name", COLLECTIONS)
def test_collections_that_flink_2_has_serializers_for(name: str, sides: Sides, savepoint_of_flink_2: Made) -> None:
    hold(COLLECTIONS[name], "2.3.0", sides, savepoint_of_flink_2)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _SAMPLE_OF_AVRO else pytest.mark.full) for name in AVRO]
)
def test_the_verdict_on_new_schemas_of_avro(
    name: str, version: str, sides_with_avro: Sides, savepoint_with_avro: Made
) -> None:
    hold(AVRO[name], version, sides_with_avro, savepoint_with_avro)


def hold(one: Evolved, version: str, sides: Sides, made: Made) -> None:
    """Holds the verdict against what Flink does with the state."""
    name = one.state.name
    outcome, exception = observed(sides.new[version], made, one)
    finding = said_of(made, name, _LINES[version], sides.classes)
    if one.said is not None:
        assert (outcome, finding.outcome) == (one.becomes, one.said), (exception, finding)
        return
    if outcome is not one.becomes or finding.outcome is not one.becomes:
        raise AssertionError((name, outcome, exception, finding))
    agree(finding, exception)


_LINES = {"1.20.0": Line.ONE, "2.3.0": Line.TWO}


def agree(finding: Finding, exception: str) -> None:
    """Holds the exception that Stateferry names against Flink's, as far as it says it."""
    if finding.outcome is REFUSED:
        assert finding.exception is not None
        said = re.escape(finding.exception.partition(": ")[2]).replace(r"Serializer\)", r"Serializer[^)]*\)")
        # Some serializers have brackets in their own text.
        said = said.replace(r"\(", r"\(.*").replace(r"\.\.\.", "")
        assert finding.exception.partition(":")[0] in exception, exception
        assert re.search(said, exception) is not None, (said, exception)


@pytest.mark.full
@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
@pytest.mark.parametrize("name", _BROKEN)
def test_a_header_that_the_new_classes_cant_read(name: str, version: str, sides: Sides, tmp_path: Path) -> None:
    hold_broken(_BROKEN[name], version, sides, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
@pytest.mark.parametrize("name", _BROKEN_BY_AVRO)
def test_a_header_of_avro_that_the_new_classes_cant_read(
    name: str, version: str, sides_with_avro: Sides, tmp_path: Path
) -> None:
    hold_broken(_BROKEN_BY_AVRO[name], version, sides_with_avro, tmp_path)


def hold_broken(one: Evolved, version: str, sides: Sides, folder: Path) -> None:
    """Holds that even a job without the state doesn't start, and what is said of the state."""
    made = sides.old.make(job_of(one.state), folder / "made")
    with pytest.raises(FlinkError) as error:
        sides.new[version].restore(made.path, job_of(State("other", "Long")))
    finding = said_of(made, one.state.name, _LINES[version], sides.classes)
    assert finding.outcome is (one.said or REFUSED)
    agree(finding, str(error.value))


@pytest.mark.full
@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
@pytest.mark.parametrize(("key", "refused"), [("Stays", False), ("Grows", True), ("Widens", True)])
def test_keys_of_new_classes(key: str, refused: bool, version: str, sides: Sides, tmp_path: Path) -> None:
    hold_key(key, refused, version, sides, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
@pytest.mark.parametrize(("key", "refused"), [("AvroStays", False), ("AvroGrows", True), ("AvroTexts", True)])
def test_keys_of_new_schemas(key: str, refused: bool, version: str, sides_with_avro: Sides, tmp_path: Path) -> None:
    hold_key(key, refused, version, sides_with_avro, tmp_path)


def hold_key(key: str, refused: bool, version: str, sides: Sides, tmp_path: Path) -> None:
    """Holds what is said of a state under keys of a class."""
    job = job_of(State("s", "Long"), key=key)
    made = sides.old.make(job, tmp_path / "made")
    finding = said_of(made, "s", _LINES[version], sides.classes)
    assert (finding.outcome is REFUSED) is refused
    if refused:
        with pytest.raises(FlinkError) as error:
            sides.new[version].restore(made.path, job)
        agree(finding, str(error.value))


@pytest.mark.full
@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
@pytest.mark.parametrize(("type_", "refused"), [("Stays", False), ("Grows", False), ("Widens", True)])
def test_operator_state_of_new_classes(type_: str, refused: bool, version: str, sides: Sides, tmp_path: Path) -> None:
    plain = Operator("plain", type="plain", operator_states=(OperatorState("o", type_, "SPLIT", elements=6),))
    job = Job((plain, *job_of(State("s", "Long")).operators), parallelism=1)
    made = sides.old.make(job, tmp_path / "made")
    finding = said_of(made, "o", _LINES[version], sides.classes)
    assert (finding.outcome is REFUSED) is refused
    if refused:
        with pytest.raises(FlinkError) as error:
            sides.new[version].restore(made.path, job)
        agree(finding, str(error.value))
    else:
        sides.new[version].restore(made.path, job)


def test_without_the_classes_nothing_is_said_of_them(savepoint: Made) -> None:
    assert said_of(savepoint, "VALUE-Widens-None", Line.TWO, None).outcome is RESTORES
