"""Operators whose keys are by the serializers of flink-scala, against real Flink 2.3, which hashes them otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.basics.array_types import Positions
from flinkstate.errors import PlanError, RefusedError, RejectedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.max_parallelism_change import Destination
from stateferry.basics.durations import MAX_MILLISECONDS
from stateferry.proof.expected.check_result import Outcome as Checked
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Outcome
from stateferry.verdict.versions import Line
from tests.flink.harness import Made
from tests.flink.jobs import Job, Operator, State, Timers
from tests.flink.judge import Change, Started, check_restored, dumped, observed, upgraded
from tests.flink.scenarios import legacy
from tests.flink.test_lazy import expected as expected_of_lazy
from tests.flink.test_pipeline import expected, of_new_shape
from tests.steps.test_native_source import run
from tests.support.verified_runs import STAGED, verified

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class _Key:
    """A type of Scala, what is said of it, the type that the new job has, and how what it shows differs."""

    scala: str
    declared: str
    java: str
    shown: Callable[[Any], Any] = lambda value: value


_NESTED = _Key(
    "ScalaTuple3<Integer,Option<String>,Tuple2<Long,String>>",
    "Tuple3<Integer, String, Tuple2<Long, String>>",
    "Tuple3<Integer,String,Tuple2<Long,String>>",
    lambda key: [key[0], key[1].get("some"), key[2]],
)
_KEYS = {
    "tuple": _Key("ScalaTuple2<String,Long>", "Tuple2<String, Long>", "Tuple2<String,Long>"),
    "of one length": _Key("ScalaTuple2<Integer,Long>", "Tuple2", "Tuple2<Integer,Long>"),
    "nested": _NESTED,
    "either": _Key("ScalaEither<String,Long>", "Either<String, Long>", "Either<String,Long>"),
    "list": _Key("Traversable<String>", "Types.LIST<String>", "List<String>"),
}


def _job(
    key: _Key, *, old: bool, namespace: str | None = None, ttl: str | None = None, backend: str = "rocksdb"
) -> Job:
    """States of every kind, some with values and user keys of Scala, and timers."""
    pair = "ScalaTuple2<String,Long>" if old else "Tuple2<String,Long>"
    count = 1 if namespace is None else 3
    types = {
        "blob": ("VALUE", "Map<String,Long?>"),
        "last": ("VALUE", pair),
        "rows": ("MAP", "Map<String,Long>"),
        "pairs": ("MAP", f"Map<{pair},Long>"),
        "list": ("LIST", "String"),
        "sum": ("REDUCING", "Long"),
        "sums": ("AGGREGATING", "Tuple2<Long,String>"),
    }
    states = tuple(
        State(name, type_, kind=kind, ttl=ttl, namespace=namespace, namespaces=count)
        for name, (kind, type_) in types.items()
    )
    timers = Timers(event=2, processing=1, far=1, namespace=namespace)
    operator = Operator("main", key=key.scala if old else key.java, keys=60, states=states, timers=timers)
    return Job((operator,), parallelism=2, backend=backend)


_TOLD = {"main/last": "Tuple2<String, Long>", "main/pairs.(key)": "Tuple2<String, Long>"}


def _expected(made: Made, new: Path, key: _Key) -> Made:
    return Made(new, [{**line, "key": key.shown(line["key"])} for line in made.lines])


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("name", _KEYS)
@pytest.mark.parametrize(
    ("namespace", "ttl", "backend"),
    [
        (None, "stamped", "rocksdb"),
        pytest.param("String", None, "hashmap", marks=pytest.mark.full),
        ("TimeWindow", None, "rocksdb"),
    ],
)
def test_flink_2_finds_every_key(
    name: str, namespace: str | None, ttl: str | None, backend: str, started: Started, tmp_path: Path
) -> None:
    key = _KEYS[name]
    old, job = (_job(key, old=one, namespace=namespace, ttl=ttl, backend=backend) for one in (True, False))
    made = started("1.20.0", True).make(old, tmp_path / "old")
    told = _TOLD | {"main/(key)": key.declared}
    with pytest.raises(PlanError, match=r"such as --declared '.*/\(key\)="):
        upgraded(made.path, tmp_path)
    new = upgraded(made.path, tmp_path, True, declared=told)
    check_restored(started("2.3.0", False), new, job, _expected(made, new, key), moved=True)


_HEAP = {"state.backend.rocksdb.timer-service.factory": "HEAP"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("format_", "change", "options"),
    [
        ("CANONICAL", Change(3, 256), {"parallelism": 3, "max_parallelism": 256}),
        ("NATIVE", Change(), {"output_format": "native"}),
        pytest.param("CANONICAL", Change(5), {"parallelism": 5}, marks=pytest.mark.full),
        pytest.param("CANONICAL", Change(1, 7), {"parallelism": 1, "max_parallelism": 7}, marks=pytest.mark.full),
        pytest.param("NATIVE", Change(3), {"parallelism": 3, "output_format": "native"}, marks=pytest.mark.full),
        pytest.param("NATIVE", Change(None, 300), {"max_parallelism": 300}, marks=pytest.mark.full),
    ],
)
def test_it_goes_with_other_layouts_and_formats(
    format_: str, change: Change, options: dict[str, Any], started: Started, tmp_path: Path
) -> None:
    old, job = (_job(_NESTED, old=one) for one in (True, False))
    made = started("1.20.0", True).make(old, tmp_path / "old", format_=format_)
    told = _TOLD | {"main/(key)": _NESTED.declared}
    new = upgraded(made.path, tmp_path, True, declared=told, **options)
    check_restored(started("2.3.0", False), new, change.job(job), _expected(made, new, _NESTED), moved=True)


def test_no_catch_up_writes_them_anew(started: Started, tmp_path: Path) -> None:
    key = _KEYS["either"]
    job = legacy("Map{0-9}<String,Long>", key=key.scala, keys=4)
    made = started("1.20.0", True).make(job, tmp_path / "old", format_="NATIVE")
    states = [{"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState"}]
    told: dict[str, Any] = {"operators": [{"operator": "main", "states": states}], "to": "flink-2"}
    told |= {"declared": {"main/(key)": key.declared}, "output_format": "native", "rehearse": True, "nulls": "keep"}
    run(made.path, tmp_path, run_id="base", **told)
    with pytest.raises(RefusedError, match="its keys are by flink-scala, and become others: "):
        run(made.path, tmp_path, run_id="since", since="base", **told)


@pytest.mark.full
def test_what_has_expired_goes(started: Started, tmp_path: Path) -> None:
    """Of values, rows and elements of lists."""
    key, states, ttl = _NESTED, ("last", "rows", "list"), 3_600_000
    old, job = (_job(key, old=one, ttl="stamped") for one in (True, False))
    made = started("1.20.0", True).make(old, tmp_path / "old")
    stamps = sorted(line["timestamp"] for line in made.lines if line["state"] == "rows")
    cut = stamps[len(stamps) // 2]
    ttls = tuple(f"main/{state}={ttl}ms:drop" for state in states)
    told = _TOLD | {"main/(key)": key.declared}
    drawn = {"clock_tolerance_ms": MAX_MILLISECONDS, "accept_expired": 1.0, "now": cut + ttl}
    new = upgraded(made.path, tmp_path, declared=told, state_ttls=ttls, **drawn)
    lines = []
    for line in _expected(made, new, key).lines:
        if line["state"] == "list":
            alive = [(one, at) for one, at in zip(line["value"], line["timestamp"], strict=True) if at > cut]
            line |= {"value": [one for one, _ in alive], "timestamp": [at for _, at in alive]}
        if line["state"] not in states or (line["value"] if line["state"] == "list" else line["timestamp"] > cut):
            lines.append(line)
    assert len(lines) < len(made.lines)
    check_restored(started("2.3.0", False), new, job, Made(new, lines), moved=True)


@pytest.mark.full
@pytest.mark.parametrize("output", ["canonical", "native"])
def test_a_checkpoint_with_timers_on_the_heap(output: str, started: Started, tmp_path: Path) -> None:
    key, settings = _KEYS["tuple"], {**_HEAP, "execution.checkpointing.incremental": "true"}
    old, job = (replace(_job(key, old=one, namespace="String"), settings=settings) for one in (True, False))
    made = started("1.20.0", True).make_in_place(old, format_="CHECKPOINT")
    told = _TOLD | {"main/(key)": key.declared}
    new = upgraded(made.path, tmp_path, declared=told, output_format=output, parallelism=3)
    check_restored(started("2.3.0", False), new, Change(3).job(job), _expected(made, new, key), moved=True)


def test_a_window_operator(started: Started, tmp_path: Path) -> None:
    """Contents of windows, sets of merged ones, and their timers."""
    key = _KEYS["tuple"]

    def job(type_: str) -> Job:
        windows = (
            ("window-reduce", "reduce", "tumbling"),
            ("window-process", "process", "tumbling"),
            ("window-session", "aggregate", "session"),
        )
        operators = (
            Operator(name, type="window", key=type_, keys=15, function=function, assigner=assigner)
            for name, function, assigner in windows
        )
        return Job(tuple(operators), parallelism=2)

    old = job(key.scala)
    made = started("1.20.0", True).make(old, tmp_path / "old")
    told = {f"{one.uid}/(key)": key.declared for one in old.operators}
    new = upgraded(made.path, tmp_path, declared=told)
    check_restored(started("2.3.0", False), new, job(key.java), _expected(made, new, key), moved=True)


@pytest.mark.parametrize(
    ("name", "ttl", "options"),
    [
        ("nested", "stamped", {"max_parallelism": 300, "parallelism": 4}),
        ("list", None, {}),
        pytest.param("either", "stamped", {"max_parallelism": 300, "parallelism": 4}, marks=pytest.mark.full),
        pytest.param("either", None, {"output_format": "native", "keep_legacy": True}, marks=pytest.mark.full),
        pytest.param("nested", None, {"output_format": "native", "keep_legacy": True}, marks=pytest.mark.full),
        pytest.param("of one length", None, {}, marks=pytest.mark.full),
    ],
)
def test_maps_are_migrated_in_the_same_run(
    name: str, ttl: str | None, options: dict[str, Any], started: Started, tmp_path: Path
) -> None:
    """The tables follow, too, whose account is that of the result."""
    key = _KEYS[name]

    def job(type_: str) -> Job:
        (operator,) = legacy("Map{0-9}<String,Long>", key=type_, keys=60, ttl=ttl).operators
        states = (*operator.states, State("beside", "Long"))
        return Job((replace(operator, states=states, timers=Timers(event=1, far=1)),), parallelism=2)

    made = started("1.20.0", True).make(job(key.scala), tmp_path / "old")
    state = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState"}
    state |= {} if ttl is None else {"ttl_ms": "30d"}
    told = {"operators": [{"operator": "main", "states": [state]}], "declared": {"main/(key)": key.declared}}
    drawn = {"to": "flink-2", "keep_expired": ttl is not None, "nulls": "keep"}
    report, ran = run(made.path, tmp_path, **told, **drawn, **{"output_format": "canonical", **options})
    assert {one.outcome for one in report.checks} == {Checked.PASSED}, report
    assert {one.outcome for one in report.tables} == {Checked.PASSED}
    new = Path(ran.plan.target)
    wanted = job(key.java)
    lines = expected(made.lines)
    if options.get("keep_legacy"):
        lines += [line for line in made.lines if line["state"] in ("mainState", "isMigratedState")]
    else:
        wanted = of_new_shape(wanted)
    wanted = Change(options.get("parallelism"), options.get("max_parallelism")).job(wanted)
    check_restored(started("2.3.0", False), new, wanted, _expected(Made(new, lines), new, key), moved=True)


def test_a_lazy_run_moves_some_keys(started: Started, tmp_path: Path) -> None:
    """By their new bytes, in the snapshot, by the writers and in plain code."""
    key = _KEYS["nested"]

    def job(type_: str) -> Job:
        return legacy("Map{0-9}<String,Long>", key=type_, keys=60)

    made = started("1.20.0", True).make(job(key.scala), tmp_path / "old")
    told: dict[str, Any] = {"to": "flink-2", "declared": {"main/(key)": key.declared}, "accept_empty": 0.2}
    verified(made.path, tmp_path / "new", lazy=True, share=0.3, **told)
    lines = _expected(made, tmp_path / "new", key).lines
    left = [line["key"] for line in dumped(tmp_path / "new", "main", "mainState")]
    assert 0 < len(left) < sum(line["state"] == "mainState" for line in lines)
    found = Made(tmp_path / "new", expected_of_lazy(lines, left))
    check_restored(started("2.3.0", False), tmp_path / "new", job(key.java), found, moved=True)


@pytest.mark.full
def test_the_verdict_is_what_flink_does(started: Started, tmp_path: Path) -> None:
    key = _KEYS["tuple"]
    old, job = (_job(key, old=one) for one in (True, False))
    made = started("1.20.0", True).make(old, tmp_path / "old")
    outcome, exception = observed(started("2.3.0", False), job, made)
    before = list(verdicts(Savepoint.open(str(made.path)), Asked(Line.TWO)))
    assert {outcome, *(one.finding.outcome for one in before)} == {Outcome.REFUSED}
    assert all(f"{one.finding.exception}" in exception for one in before[:1]), exception
    new = upgraded(made.path, tmp_path, declared=_TOLD | {"main/(key)": key.declared})
    after = {one.finding.outcome for one in verdicts(Savepoint.open(str(new)), Asked(Line.TWO, everything=True))}
    assert after == {Outcome.RESTORES}
    check_restored(started("2.3.0", False), new, job, _expected(made, new, key), moved=True)


@pytest.mark.full
def test_a_key_in_a_wrong_key_group_is_red_and_flink_does_not_find_it(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = _KEYS["tuple"]
    # In one subtask, which Flink doesn't refuse for a key group that isn't its own.
    old, job = (replace(_job(key, old=one), parallelism=1) for one in (True, False))
    made, told = started("1.20.0", True).make(old, tmp_path / "old"), _TOLD | {"main/(key)": key.declared}
    hashed = Destination.key_groups

    def misplaced(self: Destination, section: Section, state: KeyedState) -> Positions:
        """The first key of a section goes to the next key group."""
        groups = hashed(self, section, state)
        groups[0] = (groups[0] + 1) % self.new_max
        return groups

    monkeypatch.setattr(Destination, "key_groups", misplaced)
    with pytest.raises(RejectedError, match="keys in the key groups of their hashes") as red:
        upgraded(made.path, tmp_path / "red", declared=told)
    assert "main/rows: sample read plainly" in re.sub("[0-9a-f]{32}", "main", f"{red.value}")
    new = upgraded(made.path, tmp_path, steps=STAGED[:-1], declared=told)
    with pytest.raises(AssertionError):
        check_restored(started("2.3.0", False), new, job, _expected(made, new, key), moved=True)
