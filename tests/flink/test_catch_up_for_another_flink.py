"""Catch-ups whose result is for another Flink: that finds every value, as after a conversion of everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from stateferry.cli import main
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import MigrateFacts
from tests.flink import jars
from tests.flink.harness import FlinkHarness
from tests.flink.jobs import Job, Operator, OperatorState, State, Timers
from tests.flink.judge import Change, raw_entries
from tests.flink.test_catch_up import ON_THE_HEAP, lines_of, snapshots
from tests.support.in_process import without_spark

pytestmark = [pytest.mark.flink, pytest.mark.timeout(900)]
Flink = Callable[[str], FlinkHarness]
FORTH, BACK = ("1.20.0", "2.3.0"), ("2.3.0", "1.20.0")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    without_spark(monkeypatch)
    return tmp_path / "home"


def job_of(*operators: Operator) -> Job:
    settings = {"execution.checkpointing.incremental": "true"}
    return Job(operators, parallelism=2, backend="rocksdb", settings=settings, inline_threshold=0, rounds=2)


# With Kryo in the values, the elements, the user keys and the fields of each kind of state.
VALUES = job_of(
    Operator(
        "main", key="String", keys=60, timers=Timers(event=2, far=1),
        states=(
            State("map", "HashMap<String,Long>"),
            State("hint", "HintedMap<String,Long>"),
            State("aged", "HashMap<String,Double>", ttl="stamped"),
            State("elements", "UUID", kind="LIST"),
            State("aged elements", "HashMap<String,Long>", kind="LIST", ttl="stamped"),
            State("rows", "Map<String,HashMap<String,Long>?>", kind="MAP"),
            State("by key", "Map<UUID,Long>", kind="MAP"),
            State("both", "Map<UUID,UUID?>", kind="MAP", ttl="stamped"),
            State("sum", "Object<Double>", kind="REDUCING"),
            State("windowed", "ArrayList<Double>", namespace="TimeWindow", namespaces=2),
            State("fields", "Tagged"),
            State("objects in lists", "Cart", kind="LIST"),
            State("objects in maps", "Map<String,Ids?>", kind="MAP", ttl="stamped"),
            State("own", "Long"),
        ),
        operator_states=(
            OperatorState("offsets", "Tuple2<String,UUID>", elements=11), OperatorState("ids", "Ids", elements=5),
        ),
    ),
    Operator("beside", key="Long", keys=20, states=(State("untouched", "Long"),)),
)  # fmt: skip
DECLARED = {
    "main/hint": "Map<String, Long>",
    "main/fields.counts": "Map<String, Long>",
    "main/fields.tags": "List<String>",
}
# Of keys that vary in length beside such namespaces, the lengths stand behind them.
KEYS = job_of(
    *(
        Operator(
            uid, key=key, keys=40, timers=Timers(event=2, far=1, namespace="String"),
            states=(
                State("number", "Long"),
                State("by key", "Map<UUID,Long>", kind="MAP"),
                State("in windows", "UUID", namespace="TimeWindow", namespaces=2),
                State("in texts", "Map<UUID,HashMap<String,Long>>", kind="MAP", namespace="String", namespaces=3),
            ),
        )
        for uid, key in (("main", "UUID"), ("more", "Tuple2<Object<BigDecimal>,String>"))
    )
)  # fmt: skip


# By flink-scala, beside keys whose lengths stand behind them, and maps by Kryo whose rows count together.
def scala_states(text: str, number: str, pair: str) -> tuple[State, ...]:
    """With user keys and values of Scala's, or as the new job has them."""
    return (
        State("mainState", "HashMap{0-9}<String,Long>"),
        State("pairs", f"Map<{text},{number}>", kind="MAP"),
        State("mixed", f"Map<{text},UUID>", kind="MAP", ttl="stamped"),
        State("in texts", f"Map<{text},UUID>", kind="MAP", namespace="String", namespaces=3),
        State("in windows", f"Map<UUID,{pair}>", kind="MAP", namespace="TimeWindow", namespaces=2),
    )


NEW_SCALA = scala_states("Tuple2<String,String>", "Nullable<Long>", "Tuple2<String,Long>")
SCALA = job_of(
    Operator(
        "main", key="String", keys=60, timers=Timers(event=2, far=1, namespace="String"),
        states=scala_states("ScalaTuple2<String,Option<String>>", "Option<Long>", "ScalaTuple2<String,Long>"),
    )
)  # fmt: skip
TOLD = {
    "main/pairs": "Long?",
    "main/in windows": "Tuple2<String, Long>",
    **{f"main/{name}.(key)": "Tuple2<String, String>" for name in ("pairs", "mixed", "in texts")},
}
MAPS = job_of(
    Operator(
        "main", key="String", keys=60, timers=Timers(event=2, far=1),
        states=(State("mainState", "HashMap{0-9}<String,Long>"), State("other", "HashMap<String,Double>")),
    )
)  # fmt: skip
KEPT = job_of(
    Operator("main", key="String", keys=60, timers=Timers(1), states=(State("mainState", "Map{0-9}<String,UUID>"),))
)
WIDER = ("--parallelism", "3", "--max-parallelism", "300")
MIGRATED = (
    *("--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState"),
    *("--accept-empty", "100%"),
)


@dataclass(frozen=True)
class Case:
    """A job, and what its catch-ups are told beside the Flink that is to read the result."""

    job: Job
    options: tuple[str, ...] = ()
    change: Change = field(default_factory=Change)
    versions: tuple[str, str] = FORTH
    declared: Mapping[str, str] = field(default_factory=dict)
    becomes: tuple[State, ...] | None = None
    format_: str = "NATIVE"


ROWS = State("newMainState", "Map<String,Long>", kind="MAP")
CASES = {
    "values": Case(VALUES, declared=DECLARED),
    "values, on more subtasks": Case(VALUES, ("--parallelism", "3"), Change(3), declared=DECLARED),
    "values, with more key groups": Case(VALUES, WIDER, Change(3, 300), declared=DECLARED),
    "keys": Case(KEYS),
    "keys, with more key groups": Case(KEYS, WIDER, Change(3, 300)),
    "Scala's user keys": Case(SCALA, WIDER, Change(3, 300), declared=TOLD, becomes=NEW_SCALA),
    "Scala's user keys, with a migration": Case(
        SCALA, (*MIGRATED, "--keep-legacy"), declared=TOLD, becomes=(ROWS, *NEW_SCALA)
    ),
    "with a migration": Case(MAPS, MIGRATED, becomes=(ROWS, MAPS.operators[0].states[1])),
    "with a migration that keeps the maps": Case(
        MAPS, (*MIGRATED, "--keep-legacy", *WIDER), Change(3, 300), becomes=(ROWS, *MAPS.operators[0].states)
    ),
    "with a migration of values by Kryo": Case(KEPT, MIGRATED, becomes=(replace(ROWS, type="Map<String,UUID>"),)),
    "with a migration of values by Kryo, with more key groups": Case(
        KEPT, (*MIGRATED, "--keep-legacy", *WIDER), Change(3, 300),
        becomes=(replace(ROWS, type="Map<String,UUID>"), *KEPT.operators[0].states),
    ),
    "the way back": Case(MAPS, ("--all-by-kryo-5",), versions=BACK),
    "the way back of values": Case(VALUES, ("--all-by-kryo-5",), versions=BACK),
    "timers on the heap": Case(
        replace(VALUES, settings={**VALUES.settings, **ON_THE_HEAP}), WIDER, Change(3, 300), declared=DECLARED,
        format_="CHECKPOINT",
    ),
}  # fmt: skip
IN_A_SAMPLE = ("values",)


def ferried(source: Path, target: Path, *options: object, job: str = "orders") -> Run:
    command = ["run", "--savepoint", source, "--target", target, "--format", "native", "--no-timers", *options]
    assert main([str(part) for part in (*command, "--job", job)]) == 0
    newest = runs_of(str(target.parent / "home"), job)[0]
    assert newest.plan is not None
    return Run(newest.plan, newest.folder)


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_A_SAMPLE else pytest.mark.full) for name in CASES]
)
def test_the_other_flink_finds_every_value(name: str, flink: Flink, tmp_path: Path) -> None:
    case = CASES[name]
    old, new = map(flink, case.versions)
    to = "flink-2" if case.versions == FORTH else "flink-1.20"
    declared = (f"--declared={place}={said}" for place, said in case.declared.items())
    options = ("--to", to, "--classes", jars.classes(case.versions[0]), *declared, *case.options)
    if case.format_ == "NATIVE":
        sources = snapshots(old, case.job, (3, 8, 5), tmp_path)
    else:
        sources = []
        for seed in (3, 8, 5):
            earlier = sources[-1] if sources else None
            sources.append(old.make_in_place(replace(case.job, seed=seed), format_=case.format_, earlier=earlier).path)
    base = ferried(sources[0], tmp_path / "base", "--rehearse", *options)
    first = ferried(sources[1], tmp_path / "first", "--rehearse", "--since", base.plan.run_id, *options)
    final = ferried(sources[2], tmp_path / "final", "--since", first.plan.run_id, *options)
    newer = final.facts(MigrateFacts)
    assert newer is not None
    assert newer.newer is not None
    assert sum(one.put for one in newer.newer.values()) > 0
    ferried(sources[2], tmp_path / "whole", *options, "--now", base.plan.now, job="whole")
    assert raw_entries(tmp_path / "final") == raw_entries(tmp_path / "whole")
    job = replace(case.job, rounds=0)
    started = job if case.becomes is None else job_of(replace(job.operators[0], states=case.becomes))
    started = replace(case.change.job(started), rounds=0)
    found = lines_of(new, tmp_path / "final", started)
    assert found == lines_of(new, tmp_path / "whole", started)
    if case.becomes is None and case.change == Change():
        assert found == lines_of(old, sources[2], job)
    # The new job goes on with its own incremental checkpoints, at another parallelism too.
    path = new.carry(tmp_path / "final", Change(1).job(started), format_="CHECKPOINT")
    assert raw_entries(path) == raw_entries(tmp_path / "whole")
