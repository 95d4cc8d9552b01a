"""A map in a field of a POJO becomes a MapState; real Flink restores it, and the POJO without it, in a new job.

Flink runs without Avro and Scala: with Avro on its class path, Flink 1 describes each Kryo serializer in a way that
Flink 2 can't read. The new job declares the MapState and, if the rest is kept, the POJO's state as before. Nothing of
the savepoint may be left over that it doesn't declare. Every entry, field and timestamp must be what the generator of
the old job's contents knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stateferry.basics.durations import MAX_MILLISECONDS
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.steps import Step
from tests.flink import jars
from tests.flink.harness import FlinkError, FlinkHarness, Line, Made
from tests.flink.jobs import Job, State
from tests.flink.judge import Change, check_restored
from tests.flink.scenarios import TOTALS, beside_parts, in_objects, in_pojos
from tests.support.verified_runs import do_steps

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

Flink = Callable[[str], FlinkHarness]
_STEPS = (Step.SNAPSHOT, Step.MIGRATE, Step.RESCALE, Step.VALIDATE)
# What Flink 2 can read of POJOs that Flink 1 has written: those without anything by Kryo.
_OF_BOTH = ("typed", "moved")


# What is in the maps of a state, if not Long.
_VALUES = {"inside": "Visit"}

AS_IT_IS = Change()


@dataclass(frozen=True)
class Case:
    """Which Flink makes the source and on which backend, which restores the result, and what a run changes."""

    version: str
    by: str
    backend: str
    ttl: str | None = None
    source: str = "CANONICAL"
    into: str = "canonical"
    change: Change = AS_IT_IS
    keep: bool = True
    whole: bool = False
    beside: bool = False
    to: str | None = None

    @property
    def old(self) -> Job:
        """With `whole` Kryo writes the objects. With `beside` there are other POJOs in the fields of the POJOs."""
        if self.beside:
            return beside_parts(self.backend, self.ttl)
        return (in_objects if self.whole else in_pojos)(self.version, self.backend, self.ttl)

    @property
    def rests(self) -> Mapping[str, str]:
        """What becomes of the POJOs, by state."""
        names = [state.name for state in self.old.operators[0].states]
        kept = names if self.version == self.by or self.to else [name for name in names if name in _OF_BOTH]
        return {name: "keep" if self.keep and name in kept else "drop" for name in names}


CASES = {
    "1.20": Case("1.20.0", "1.20.0", "rocksdb"),
    "1.20 to 2.3, TTL": Case("1.20.0", "2.3.0", "rocksdb", "stamped"),
    "2.3, TTL, max parallelism": Case("2.3.0", "2.3.0", "rocksdb", "stamped", change=Change(max_parallelism=300)),
    "1.20, TTL, hashmap, parallelism": Case("1.20.0", "1.20.0", "hashmap", "stamped", change=Change(parallelism=3)),
    "1.20, native, TTL": Case("1.20.0", "1.20.0", "rocksdb", "stamped", "NATIVE", "native"),
    "1.20 to 2.3, native, max parallelism": Case(
        "1.20.0", "2.3.0", "rocksdb", None, "NATIVE", "native", Change(max_parallelism=64)
    ),
    "1.20, dropping the rest": Case("1.20.0", "1.20.0", "rocksdb", "stamped", keep=False),
    "2.3": Case("2.3.0", "2.3.0", "rocksdb"),
    "2.3, hashmap, parallelism, native": Case(
        "2.3.0", "2.3.0", "hashmap", None, "CANONICAL", "native", Change(parallelism=1)
    ),
    "2.3, native, dropping the rest": Case("2.3.0", "2.3.0", "rocksdb", "stamped", "NATIVE", keep=False),
    "1.20 to 2.3, dropping the rest": Case("1.20.0", "2.3.0", "hashmap", keep=False),
}
CASES |= {
    f"by Kryo, {name}": replace(case, whole=True)
    for name, case in {
        **CASES,
        "1.20, TTL, max parallelism": Case("1.20.0", "1.20.0", "rocksdb", "stamped", change=Change(max_parallelism=64)),
    }.items()
}
CASES |= {
    f"beside POJOs, {name}": replace(CASES[name], beside=True)
    for name in (
        *("1.20", "1.20, TTL, hashmap, parallelism", "1.20, native, TTL", "1.20, dropping the rest"),
        *("2.3", "2.3, TTL, max parallelism", "2.3, hashmap, parallelism, native"),
    )
}
CASES["by Kryo, 1.20 for 2.3"] = Case("1.20.0", "2.3.0", "rocksdb", "stamped", whole=True, to="flink-2")
CASES["by Kryo, 1.20 for 2.3, native"] = Case(
    "1.20.0", "2.3.0", "rocksdb", None, "NATIVE", "native", Change(max_parallelism=64), whole=True, to="flink-2"
)
CASES["beside POJOs, 1.20 for 2.3"] = replace(CASES["1.20 to 2.3, TTL"], beside=True, to="flink-2")
CASES["beside POJOs, 1.20 for 2.3, native, dropping the rest"] = Case(
    "1.20.0", "2.3.0", "rocksdb", None, "NATIVE", "native", keep=False, beside=True, to="flink-2"
)
_TRIED = (
    *("by Kryo, 1.20 for 2.3", "beside POJOs, 1.20 for 2.3"),
    *("1.20", "1.20 to 2.3, TTL", "2.3, TTL, max parallelism"),
    *("beside POJOs, 1.20", "beside POJOs, 2.3, TTL, max parallelism"),
    *("by Kryo, 1.20, TTL, max parallelism", "by Kryo, 2.3, TTL, max parallelism"),
)


@pytest.fixture(scope="module")
def flink() -> Iterator[Flink]:
    """The harness of a version of Flink, by its name."""
    running: dict[str, FlinkHarness] = {}

    def harness(version: str) -> FlinkHarness:
        if version not in running:
            running[version] = FlinkHarness(version, jars.class_path_of_java_alone(version))
        return running[version]

    yield harness
    for started in running.values():
        started.close()


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))


def ferried(source: Path, target: Path, case: Case) -> None:
    """A run that moves the maps of all POJOs."""
    ttl = {"ttl_ms": 30 * 86_400_000} if case.ttl else {}
    states = [
        {"legacy": name, "new": f"{name}Counts", "field": "counts", "rest": rest, **ttl}
        for name, rest in case.rests.items()
    ]
    options = {
        "source": str(source),
        "target": str(target),
        "job": "pojos",
        "operators": [{"operator": "main", "states": states}],
        "keep_expired": case.ttl is not None,
        "clock_tolerance_ms": MAX_MILLISECONDS,
        "output_format": case.into,
        "no_timers": case.source == "NATIVE",
        "parallelism": case.change.parallelism,
        "max_parallelism": case.change.max_parallelism,
        "classes": [str(jars.classes(case.version))] if case.whole or case.beside else [],
        "to": case.to,
    }
    plan = plan_of({name: value for name, value in options.items() if value})
    do_steps(Run.create(plan, plan.now), _STEPS)


def new_job(case: Case) -> Job:
    (operator,) = case.old.operators
    kept = tuple(state for state in operator.states if case.rests[state.name] == "keep")
    maps = tuple(
        State(f"{state.name}Counts", f"Map<String,{_VALUES.get(state.name, 'Long')}>", kind="MAP", ttl=state.ttl)
        for state in operator.states
    )
    backend = "rocksdb" if case.into == "native" else case.backend
    return case.change.job(replace(case.old, operators=(replace(operator, states=(*kept, *maps)),), backend=backend))


def expected(lines: Sequence[Line], case: Case) -> list[Line]:
    """What the new job is to find."""
    found = []
    for line in lines:
        pojo, name = line["value"], line["state"]
        shared = {part: value for part, value in line.items() if part != "value"}
        entries = (pojo or {}).get("counts") or {}
        found += [
            shared | {"state": f"{name}Counts", "user_key": key, "value": value} for key, value in entries.items()
        ]
        if case.rests[name] == "keep":
            # In Flink 2 that class has the field no more.
            without = {} if (name, case.by) == ("moved", "2.3.0") else {"counts": None}
            fields = {field: value for field, value in (pojo or {}).items() if field != "counts"}
            found.append(shared | {"state": name, "value": None if pojo is None else fields | without})
    return found


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _TRIED else pytest.mark.full) for name in CASES]
)
def test_a_new_job_finds_every_entry_and_field(name: str, flink: Flink, tmp_path: Path) -> None:
    case = CASES[name]
    source = flink(case.version).make(case.old, tmp_path / "old", format_=case.source)
    target = tmp_path / "new"
    ferried(source.path, target, case)
    found = Made(target, expected(source.lines, case))
    kinds = {(line["state"], (line["value"] or {}).get("@class")) for line in source.lines}
    state, shop = ("raw", "ShopKryoTotals") if case.whole else ("typed", "ShopTotals")
    assert case.backend != "rocksdb" or case.beside or (state, f"stateferry.flink.pojo.{shop}") in kinds
    assert any((line["value"] or {}).get("counts", ...) is None for line in source.lines)
    check_restored(flink(case.by), target, new_job(case), found, moved=case.change.max_parallelism is not None)


@pytest.mark.full
def test_flink_2_refuses_a_pojo_whose_map_was_by_kryo_until_its_class_has_no_such_field(
    flink: Flink, tmp_path: Path
) -> None:
    case = CASES["1.20"]
    source = flink(case.version).make(case.old, tmp_path / "old")
    ferried(source.path, tmp_path / "new", case)
    (operator,) = case.old.operators
    totals = tuple(state for state in operator.states if state.name == "totals")
    assert TOTALS["totals"] == totals[0].type
    with pytest.raises(FlinkError, match="must not be incompatible"):
        flink("2.3.0").restore(tmp_path / "new", replace(case.old, operators=(replace(operator, states=totals),)))
