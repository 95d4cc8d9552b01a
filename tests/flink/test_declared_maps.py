"""Maps as people declare them go through a whole run; real Flink restores them as `MapState`, in 1.20 and in 2.3.

The new job declares its states by the lines of Java that a run prints. Nothing of the savepoint may be left over that
it doesn't declare, and every entry and timestamp must be what the generator of the old job's contents knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.keyed.state import StateKind
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import MapType
from stateferry.basics.durations import MAX_MILLISECONDS
from stateferry.look.declaration import map_state_declaration
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.runs import Run
from tests.flink.harness import FlinkHarness, Line, Made
from tests.flink.jobs import Job, Operator, State
from tests.flink.judge import Change, Make, check_restored
from tests.support.verified_runs import STAGED, do_steps

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

Flink = Callable[[str], FlinkHarness]

# Each on either version. Where nulls are drawn, those of types that have no null are left out under time to live.
DECLARATIONS = (
    *(f"{name}{{0-9}}<String,Long?>" for name in ("HintedMap", "MapClass", "HashMap", "HashMapClass", "AnyMap")),
    *(f"{name}{{0-9}}<String,Long?>" for name in ("LinkedHashMap", "TreeMap", "SortedMap", "ReverseTreeMap")),
    *(f"{name}{{0-9}}<String,Long>" for name in ("ConcurrentHashMap", "ConcurrentMap", "ConcurrentSkipListMap")),
    *(f"{name}{{0-9}}<String,Long>" for name in ("Hashtable", "UtilMap")),
    "AnyHashMap<String,AnyHashMap<String,Long?>>",
)
SCALARS = (
    *("String", "Integer", "Short", "Byte", "Boolean", "Character", "Float", "Double", "BigInteger", "BigDecimal"),
    *("Date", "SqlDate", "SqlTime", "SqlTimestamp", "LocalDate", "LocalTime", "LocalDateTime", "Instant"),
)
ARRAYS = (
    *("byte[]", "short[]", "int[]", "long[]", "float[]", "double[]", "boolean[]", "char[]"),
    *("String[]", "Long?[]", "Integer[]", "Short[]", "Byte[]", "Boolean?[]", "Character[]", "Float[]", "Double?[]"),
)
COMPOSITES = (
    *("List<String>", "AnyList<Long>", "List<Double>", "List<Date>", "List<Tuple2<Long,String>>"),
    *("List<AnyList<Short>>", "HashMap<Integer,List<BigDecimal>>", "TreeMap<Long,Instant?>", "UtilMap<String,Byte>"),
    "List<HashMap<Long,Float>>",
    *("Tuple2<Long,Long>", "Tuple3<Integer,Boolean,Double>", "Tuple1<LocalDateTime>", "Tuple2<List<String>,long[]>"),
    "Tuple2<Tuple2<Long,Character>,HashMap<String,Long?>>",
)
OF_VALUES = (
    *(f"HashMap<String,{type_}?>" for type_ in (*SCALARS, *ARRAYS, *COMPOSITES)),
    *(f"HintedMap<String,{type_}?>" for type_ in ("Integer", "Double", "Date", "SqlTime", "Instant", "double[]")),
    *(
        f"HintedMap<String,{type_}?>"
        for type_ in ("Long[]", "List<String>", "Tuple2<Long,Long>", "HintedMap<String,Long?>")
    ),
    *("LinkedHashMap<Integer,Boolean?>", "TreeMap<Long,Float?>", "MapClass<Short,LocalDate?>"),
    "HashMap<String,String{300-700}>",
)
OF_KEYS = (
    *(f"HashMap<{type_},Long>" for type_ in SCALARS if type_ != "String"),
    *("HintedMap<Integer,Long>", "HintedMap<Character,String?>", "TreeMap<BigDecimal,Byte>", "TreeMap<Instant,Long?>"),
    *("HashMap<Tuple2<Integer,String>,Long>", "HashMap<List<String>,Double>", "LinkedHashMap<Tuple1<LocalDate>,Date>"),
)
TYPES = (*DECLARATIONS, *OF_VALUES, *OF_KEYS)
CHANGES = {"same": Change(), "parallelism": Change(parallelism=3), "max": Change(max_parallelism=300)}
FORMATS = ("rocksdb", "hashmap", "native")
TTLS = {"plain": None, "ttl": "stamped"}
# The Flink of the source, and those that restore what becomes of it.
VERSIONS = {"1.20.0": ("1.20.0", "2.3.0"), "2.3.0": ("2.3.0",)}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))


def old_job(types: Sequence[str], ttl: str | None, backend: str) -> Job:
    """Under time to live some of the maps are null."""
    states = tuple(State(f"old-{i}", type_ + ("?" if ttl else ""), ttl=ttl) for i, type_ in enumerate(types))
    return Job((Operator("main", key="Long", keys=12, states=states),), parallelism=2, backend=backend)


def of_flink(type_: str) -> str:
    """The type as the new job has it, whose maps and lists are Flink's own."""
    return re.sub(r"\b\w*List<", "List<", re.sub(r"\b\w*(Map|MapClass|Hashtable)(?=[<{])", "Map", type_)).rstrip("?")


def new_job(old: Job, target: Path) -> Job:
    """The job that declares the states of the new savepoint, each by the line that a run prints for it."""
    (operator,) = old.operators
    opened = Savepoint.open(str(target))
    found = {state.name: state for state in opened.keyed_states(opened.operator(operator.uid))}
    assert {state.kind for state in found.values()} == {StateKind.MAP}
    states = []
    for state in operator.states:
        name = state.name.replace("old", "new")
        meta = found.pop(name)
        assert meta.user_key is not None
        assert meta.value is not None
        line = map_state_declaration(name, MapType(meta.user_key, meta.value))
        states.append(replace(state, name=name, kind="MAP", type=of_flink(state.type), java=line))
    assert found == {}
    return replace(old, operators=(replace(operator, states=tuple(states)),))


# Of these, Flink's own serializers write null by themselves.
_HAVE_A_NULL = (
    *("String", "BigInteger", "BigDecimal", "Date", "SqlDate", "SqlTime", "SqlTimestamp", "LocalDate", "LocalTime"),
    *("LocalDateTime", "Instant"),
)


def expected(old: Job, lines: Sequence[Line]) -> list[Line]:
    """What the new job is to find."""
    types = {state.name: of_flink(state.type).rpartition(",")[2].rstrip(">?") for state in old.operators[0].states}
    found = []
    for line in lines:
        if line["value"] is None:
            continue
        shared = {name: value for name, value in line.items() if name != "value"}
        shared["state"] = line["state"].replace("old", "new")
        entries = line["value"].items() if isinstance(line["value"], dict) else line["value"]
        kept = "timestamp" not in line or types[line["state"]] in _HAVE_A_NULL
        found += [shared | {"user_key": key, "value": value} for key, value in entries if kept or value is not None]
    return found


def ferried(source: Path, target: Path, old: Job, change: Change, format_: str) -> None:
    """A run that moves all states of the job."""
    (operator,) = old.operators
    ttl = operator.states[0].ttl is not None
    states = [
        {"legacy": state.name, "new": state.name.replace("old", "new"), **({"ttl_ms": state.ttl_millis} if ttl else {})}
        for state in operator.states
    ]
    options = {
        "source": str(source),
        "target": str(target),
        "job": "declared",
        "operators": [{"operator": operator.uid, "states": states}],
        "nulls": "drop" if ttl else "keep",
        "keep_expired": ttl,
        "clock_tolerance_ms": MAX_MILLISECONDS,
        "output_format": "native" if format_ == "native" else "canonical",
        "parallelism": change.parallelism,
        "max_parallelism": change.max_parallelism,
    }
    plan = plan_of({name: value for name, value in options.items() if value is not None})
    do_steps(Run.create(plan, plan.now), STAGED)


@pytest.mark.matrix
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ttl", TTLS)
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_job_finds_every_entry(
    version: str, format_: str, ttl: str, change: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    backend = "hashmap" if format_ == "hashmap" else "rocksdb"
    old = old_job(TYPES, TTLS[ttl], backend)
    source = made(version, old, "NATIVE" if format_ == "native" else "CANONICAL")
    target = tmp_path / "new"
    ferried(source.path, target, old, CHANGES[change], format_)
    found = Made(target, expected(old, source.lines))
    new = CHANGES[change].job(new_job(old, target))
    for by in VERSIONS[version]:
        check_restored(flink(by), target, new, found, moved=CHANGES[change].max_parallelism is not None)
