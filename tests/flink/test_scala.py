"""States by the serializers of flink-scala, against real Flink 2.3, which has none of them: it reads every value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import PlanError
from flinkstate.reading.reader import Savepoint
from stateferry.basics.durations import MAX_MILLISECONDS
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.versions import Line
from tests.flink.harness import Made
from tests.flink.jobs import Job, Operator, OperatorState, State
from tests.flink.judge import Change, Started, check_restored, upgraded

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]


def _same(value: Any) -> Any:
    return value


def _option(value: Any) -> Any:
    return value.get("some")


def _address(value: Any) -> Any:
    street, number, code = value
    return {"street": street, "number": number, "zip": _option(code)}


@dataclass(frozen=True)
class _Case:
    """A type of Scala, what is said of it, the type that the new job has, and how what it shows differs."""

    scala: str
    declared: str
    java: str
    shown: Callable[[Any], Any] = _same


_CASES = {
    "tuple": _Case("ScalaTuple2<String,Long>", "Tuple2<String, Long>", "Tuple2<String,Long>"),
    "nested": _Case(
        "ScalaTuple3<Integer,Option<String>,Tuple2<Long,String>>",
        "Tuple3<Integer, String, Tuple2<Long, String>>",
        "Tuple3<Integer,String,Tuple2<Long,String>>",
        lambda value: [value[0], _option(value[1]), value[2]],
    ),
    "pojo": _Case(
        "ScalaTuple3<String?,Integer,Option<Long>>",
        "Pojo<stateferry.flink.pojo.Address>(street, number, zip)",
        "Address",
        _address,
    ),
    "pojos": _Case(
        "Traversable<ScalaTuple3<String,Integer,Option<Long>>>",
        "List<Pojo<stateferry.flink.pojo.Address>(street, number, zip)>",
        "HintedList<Address>",
        lambda value: [_address(one) for one in value],
    ),
    "option": _Case("Option<Long>", "Long?", "Nullable<Long>", _option),
    "text": _Case("Option<String>", "String", "String", _option),
    "either": _Case("ScalaEither<String,Long>", "Either<String, Long>", "Either<String,Long>"),
    "either of nothing": _Case("ScalaEither<Nothing,Long>", "Either", "Either<Void,Long>"),
    "enum": _Case("Suit", "Enum<stateferry.flink.pojo.Cards>", "Cards"),
    "list": _Case("Traversable<String>", "Types.LIST<String>", "List<String>"),
    "hinted list": _Case("Traversable<Option<Long>>", "List<Long>", "HintedList<Long>", lambda v: [*map(_option, v)]),
    "set": _Case("ScalaSet<String>", "Set<String>", "HintedSet<String>"),
    "map": _Case("ScalaMap<String,Long>", "Types.MAP<String, Long>", "Map<String,Long>"),
    "hinted map": _Case(
        "ScalaMap<String,Option<Long>>",
        "Map<String, Long>",
        "HintedMap<String,Long>",
        lambda value: {key: _option(one) for key, one in value.items()},
    ),
    "pairs": _Case(
        "Traversable<ScalaTuple2<String,Long>>", "Types.LIST<Tuple2<String, Long>>", "List<Tuple2<String,Long>>"
    ),
    "void": _Case("ScalaTuple2<Unit,Long>", "Tuple2<Void, Long>", "Tuple2<Void,Long>", lambda v: [None, v[1]]),
}  # fmt: skip


def _advised(made: Made) -> dict[str, str]:
    """What `check` says is to be done with each state."""
    found = verdicts(Savepoint.open(str(made.path)), Asked(Line.TWO, everything=True))
    return {one.state: one.finding.advice or "" for one in found}


_TRIPLE, _ADDRESS = "ScalaTuple3<String,Integer,Option<Long>>", "Pojo<stateferry.flink.pojo.Address>({})"
_NULLS = ("option", "text")


def _jobs(cases: dict[str, _Case], kind: str = "VALUE", **options: Any) -> tuple[Job, Job]:
    """The old job and the new one."""

    def job(of: Callable[[_Case], str]) -> Job:
        around = "Map<String,{}>" if kind == "MAP" else "{}"
        states = tuple(
            State(name, around.format(of(case)), kind=kind, ttl=options.get("ttl")) for name, case in cases.items()
        )
        operator = Operator("main", key="Long", keys=12, states=(*states, State("number", "Long")))
        return Job((operator,), parallelism=2, backend=options.get("backend", "rocksdb"))

    return job(lambda case: case.scala), job(lambda case: case.java)


def _expected(made: Made, new: Path, cases: dict[str, _Case], kind: str = "VALUE") -> Made:
    lines = []
    for line in made.lines:
        if (case := cases.get(line["state"])) is not None:
            value = line["value"]
            line = {**line, "value": [*map(case.shown, value)] if kind == "LIST" else case.shown(value)}
            # For a job, null as the whole value is like no value.
            if line["value"] is None and line["state"] in _NULLS and not {"timestamp", "user_key"} & line.keys():
                continue
        lines.append(line)
    return Made(new, lines)


def _told(cases: dict[str, _Case], operator: str = "main") -> dict[str, str]:
    return {f"{operator}/{name}": case.declared for name, case in cases.items()}


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize(
    ("kind", "ttl", "backend"),
    [
        ("VALUE", None, "rocksdb"),
        ("VALUE", "stamped", "hashmap"),
        ("LIST", "stamped", "rocksdb"),
        ("MAP", None, "rocksdb"),
        pytest.param("VALUE", "stamped", "rocksdb", marks=pytest.mark.full),
        pytest.param("LIST", None, "hashmap", marks=pytest.mark.full),
        pytest.param("MAP", "stamped", "hashmap", marks=pytest.mark.full),
        pytest.param("REDUCING", None, "rocksdb", marks=pytest.mark.full),
        pytest.param("AGGREGATING", None, "rocksdb", marks=pytest.mark.full),
    ],
)
def test_flink_2_reads_what_flink_scala_wrote(
    kind: str, ttl: str | None, backend: str, started: Started, tmp_path: Path
) -> None:
    cases = {name: case for name, case in _CASES.items() if kind in ("VALUE", "MAP") or name not in _NULLS}
    old, job = _jobs(cases, kind, ttl=ttl, backend=backend)
    made = started("1.20.0", True).make(old, tmp_path / "old")
    with pytest.raises(PlanError, match=r"say as what the new job declares it, such as --declared '.*/tuple=Tuple2<"):
        upgraded(made.path, tmp_path)
    new = upgraded(made.path, tmp_path, True, declared=_told(cases))
    check_restored(started("2.3.0", False), new, job, _expected(made, new, cases, kind), moved=False, with_nulls=_NULLS)


@pytest.mark.full
@pytest.mark.parametrize(
    ("format_", "change", "options"),
    [
        ("CANONICAL", Change(3, 256), {"parallelism": 3, "max_parallelism": 256}),
        pytest.param("NATIVE", Change(), {"output_format": "native", "no_timers": True}, marks=pytest.mark.full),
    ],
)
def test_it_goes_with_other_layouts_and_formats(
    format_: str, change: Change, options: dict[str, Any], started: Started, tmp_path: Path
) -> None:
    old, job = _jobs(_CASES)
    made = started("1.20.0", True).make(old, tmp_path / "old", format_=format_)
    new = upgraded(made.path, tmp_path, True, declared=_told(_CASES), **options)
    moved = change.max_parallelism is not None
    check_restored(
        started("2.3.0", False), new, change.job(job), _expected(made, new, _CASES), moved=moved, with_nulls=_NULLS
    )


def test_user_keys(started: Started, tmp_path: Path) -> None:
    """Beside keys and values that stay, and beside namespaces."""
    cases = {name: _CASES[name] for name in ("tuple", "pojo", "text", "enum", "list", "either")}

    def job(of: Callable[[_Case], str]) -> Job:
        states = (
            *(State(name, f"Map<{of(case)},Long>", kind="MAP") for name, case in cases.items()),
            State("aged", f"Map<{of(_CASES['nested'])},{of(_CASES['map'])}>", kind="MAP", ttl="stamped"),
            State("in texts", f"Map<{of(_CASES['tuple'])},Long>", kind="MAP", namespace="String", namespaces=2),
        )
        return Job((Operator("main", key="String", keys=12, states=states),), parallelism=2)

    made = started("1.20.0", True).make(job(lambda case: case.scala), tmp_path / "old")
    with pytest.raises(PlanError, match=r"such as --declared '.*/in texts.\(key\)=Tuple2<String, Long>'"):
        upgraded(made.path, tmp_path)
    told = {f"main/{name}.(key)": case.declared for name, case in cases.items()}
    told["main/in texts.(key)"] = _CASES["tuple"].declared
    told |= {"main/aged.(key)": _CASES["nested"].declared, "main/aged": _CASES["map"].declared}
    new = upgraded(made.path, tmp_path, True, declared=told)
    shown = {name: case.shown for name, case in cases.items()} | {"aged": _CASES["nested"].shown, "in texts": _same}
    lines = [{**line, "user_key": shown[line["state"]](line["user_key"])} for line in made.lines]
    check_restored(started("2.3.0", False), new, job(lambda case: case.java), Made(new, lines), moved=False)


@pytest.mark.parametrize(
    ("ttl", "options"), [("stamped", {}), pytest.param(None, {"keep_legacy": True}, marks=pytest.mark.full)]
)
def test_maps_are_migrated_in_the_same_run(
    ttl: str | None, options: dict[str, Any], started: Started, tmp_path: Path
) -> None:
    """Maps by Flink's own serializer with user keys, or values, of Scala."""
    by_key, by_value = (
        {name: _CASES[name] for name in names}
        for names in (("tuple", "nested", "enum"), ("tuple", "pojo", "option", "either", "list", "map", "hinted list"))
    )

    def job(of: Callable[[_Case], str], kind: str, new: str) -> Job:
        states = (
            *(State(f"{new}{name} keys", f"Map<{of(case)},Long>", kind=kind, ttl=ttl) for name, case in by_key.items()),
            *(State(f"{new}{name}", f"Map<String,{of(case)}>", kind=kind, ttl=ttl) for name, case in by_value.items()),
        )
        return Job((Operator("main", key="String", keys=12, states=states),), parallelism=2)

    old = job(lambda case: case.scala, "VALUE", "")
    made = started("1.20.0", True).make(old, tmp_path / "old")
    advised = _advised(made)
    assert all("--declared 'operator/state.(key)=...', which" in advised[f"{name} keys"] for name in by_key)
    assert all("--declared 'operator/state=...', which" in advised[name] for name in by_value)
    told = _told(by_value) | {f"main/{name} keys.(key)": case.declared for name, case in by_key.items()}
    states = [
        {"legacy": state.name, "new": f"new {state.name}"} | ({"ttl_ms": "30d"} if ttl else {})
        for state in old.operators[0].states
    ]
    drawn: dict[str, Any] = {"nulls": "keep", "keep_expired": ttl is not None, "clock_tolerance_ms": MAX_MILLISECONDS}
    new = upgraded(
        made.path, tmp_path, True, declared=told, operators=[{"operator": "main", "states": states}], **drawn, **options
    )
    shown: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}
    shown |= {f"{name} keys": (case.shown, _same) for name, case in by_key.items()}
    shown |= {name: (_same, case.shown) for name, case in by_value.items()}
    lines = []
    for line in made.lines:
        of_key, of_value = shown[line["state"]]
        shared = {name: value for name, value in line.items() if name != "value"} | {"state": f"new {line['state']}"}
        entries = line["value"].items() if isinstance(line["value"], dict) else line["value"]
        lines += [shared | {"user_key": of_key(key), "value": of_value(value)} for key, value in entries]
        if "keep_legacy" in options:
            whole = [[of_key(key), of_value(value)] for key, value in entries]
            lines.append({**line, "value": dict(whole) if isinstance(line["value"], dict) else whole})
    wanted = job(lambda case: case.java, "MAP", "new ")
    if "keep_legacy" in options:
        (operator,), (also,) = wanted.operators, job(lambda case: case.java, "VALUE", "").operators
        wanted = replace(wanted, operators=(replace(operator, states=(*operator.states, *also.states)),))
    check_restored(started("2.3.0", False), new, wanted, Made(new, lines), moved=False)


@pytest.mark.parametrize("snappy", [False, True])
def test_operator_state(snappy: bool, started: Started, tmp_path: Path) -> None:
    cases = {name: _CASES[name] for name in ("tuple", "pojo", "hinted list", "map")}
    listener = Operator("keyed", key="Long", keys=2, states=(State("s", "Long"),))

    def job(of: Callable[[_Case], str]) -> Job:
        states = (
            *(OperatorState(name, of(case), "SPLIT", elements=6) for name, case in cases.items()),
            OperatorState("broadcast", f"Map<String,{of(_CASES['pojo'])}>", "BROADCAST", elements=6),
            OperatorState("keys", f"Map<{of(_CASES['tuple'])},Long>", "BROADCAST", elements=6),
        )
        return Job((Operator("plain", type="plain", operator_states=states), listener), parallelism=1, snappy=snappy)

    made = started("1.20.0", True).make(job(lambda case: case.scala), tmp_path / "old")
    advised = _advised(made)
    assert "--declared 'operator/state.(key)=...', which" in advised["keys"]
    assert all("--declared 'operator/state=...', which" in advised[name] for name in (*cases, "broadcast"))
    told = _told({**cases, "broadcast": _CASES["pojo"]}, "plain") | {"plain/keys.(key)": _CASES["tuple"].declared}
    new = upgraded(made.path, tmp_path, True, declared=told)
    expected = _expected(made, new, {**cases, "broadcast": _CASES["pojo"]})
    check_restored(started("2.3.0", False), new, job(lambda case: case.java), expected, moved=False)


@pytest.mark.matrix(most=8)
@pytest.mark.parametrize(
    ("key", "type_", "declared", "why"),
    [
        ("Suit", "Long", {}, "the key of .* not rewritten. Let the job, under Flink 1.20"),
        ("Suit", "Long", {"main/(key)": "Enum<stateferry.flink.pojo.Cards>"}, "hashes by identity"),
        ("Option<Long>", "Long", {"main/(key)": "Long?"}, "null can't be a key"),
        ("ScalaSet<String>", "Long", {"main/(key)": "Set<String>"}, "whose entries have no order"),
        (_TRIPLE, "Long", {"main/(key)": _ADDRESS.format("street, number, zip")}, "Address is that class's own code"),
        ("ScalaTuple2<Unit,byte[]>", "Long", {"main/(key)": "Tuple2"}, "hashes by identity"),
        ("ScalaTuple2<Row<Long>,Long>", "Long", {"main/(key)": "Tuple2"}, "how the job has filled it"),
        ("Long", "Try<Long>", {}, "not rewritten. Let the job, under Flink 1.20"),
        ("Long", "Try<Long>", {"main/s": "Long"}, "a Try<Long> is not rewritten"),
        ("Long", "Traversable<ScalaTuple2<String,Long>>", {"main/s": "Map<String, Long>"}, "is made of a Map of Scala"),
        ("Long", "ScalaEither<String,Option<Long>>", {"main/s": "Either"}, "Flink's Either holds no null"),
        ("Long", "Option<Long>", {"main/s": "Long"}, r"expected Long\?"),
        ("Long", "Option<UUID>", {"main/s": "Kryo<java.util.UUID>?"}, "a value of flink-scala is java.util.UUID"),
        ("Long", "ScalaTuple2<String,Long>", {"main/s": "Tuple2<String, Integer>"}, "expected Long, which stays"),
        ("Long", "ScalaTuple2<String,Long>", {"main/s": "Tuple3"}, "expected Tuple2, or Pojo<"),
        ("Long", _TRIPLE, {"main/s": _ADDRESS.format("street, numbr, zip")}, "has other fields: street, number, zip"),
        ("Long", _TRIPLE, {"main/s": _ADDRESS.format("number, street, zip")}, "number of .* is Integer"),
        ("Long", _TRIPLE, {"main/s": "Pojo<com.acme.A>(street, number, zip)"}, "which fields .* --classes new-job.jar"),
        ("Long", "Map<ScalaSet<String>,Long>", {"main/s.(key)": "Set<String>"}, "whose entries have no order"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_by_name(
    key: str, type_: str, declared: dict[str, str], why: str, started: Started, tmp_path: Path
) -> None:
    state = State("s", type_, kind="MAP" if type_.startswith("Map<") else "VALUE")
    job = Job((Operator("main", key=key, keys=4, states=(state,)),), parallelism=1)
    made = started("1.20.0", True).make(job, tmp_path / "old")
    with pytest.raises(PlanError, match=why):
        upgraded(made.path, tmp_path, True, declared=declared)
    assert not (tmp_path / "new").exists()
