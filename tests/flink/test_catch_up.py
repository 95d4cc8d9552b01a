"""Catch-ups on what real Flink writes: the result is, entry by entry, that of a conversion of everything."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED
from stateferry.cli import main
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import MigrateFacts
from stateferry.runs.report.report import Report
from tests.flink import jars
from tests.flink.harness import FlinkHarness, restored_by_state
from tests.flink.jars import VERSIONS
from tests.flink.jobs import Job, Operator, OperatorState, State, Timers
from tests.flink.judge import Change, raw_entries
from tests.flink.scenarios import legacy
from tests.support.in_process import without_spark
from tests.support.lazy_choices import choosing_as

pytestmark = [pytest.mark.flink, pytest.mark.timeout(900)]
Flink = Callable[[str], FlinkHarness]
NAMES = (
    *("--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState"),
    *("--flag-state", "isMigratedState"),
)
OPTIONS = ("--job", "orders", "--accept-empty", "100%", "--no-timers")
TTL = ("--ttl", "3650d", "--clock-tolerance", "106751991000d", "--accept-expired", "100%")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    without_spark(monkeypatch)
    return tmp_path / "home"


def job_of(type_: str, *, ttl: str | None = None, migrated: float = 0.3, ttl_of_others: str | None = None) -> Job:
    """A job with states of every kind, timers and operator state beside its maps."""
    (main_,) = legacy(type_, new_type="Map{0-9}<String,Long>", keys=60, ttl=ttl, migrated=migrated).operators
    beside = (
        State("other", "Person", ttl=ttl_of_others),
        State("list", "Long", kind="LIST", ttl=ttl_of_others),
        State("sum", "Long", kind="REDUCING"),
        State("windowed", "Map<String,Long>", namespace="TimeWindow", namespaces=2),
    )
    offsets = (OperatorState("offsets", "Tuple2<String,Long>", elements=11),)
    # What is due would fire when the job is started again.
    main_ = replace(main_, states=(*main_.states, *beside), timers=Timers(event=2, far=1), operator_states=offsets)
    other = Operator("beside", key="Tuple2<String,Long>", keys=20, states=(State("untouched", "Long"),))
    settings = {"execution.checkpointing.incremental": "true"}
    return Job((main_, other), parallelism=2, backend="rocksdb", settings=settings, inline_threshold=0, rounds=2)


def snapshots(flink: FlinkHarness, job: Job, seeds: Sequence[int], folder: Path) -> list[Path]:
    """Snapshots of a job that goes on: each time it writes, deletes and clears by another seed, and RocksDB flushes."""
    found: list[Path] = []
    for number, seed in enumerate(seeds):
        earlier = found[-1] if found else None
        found.append(flink.make(replace(job, seed=seed), folder / f"{number}", format_="NATIVE", earlier=earlier).path)
    return found


def ferried(source: Path, target: Path, *options: object) -> Run:
    names = () if "--plan" in options else NAMES
    command = ["run", "--savepoint", source, "--target", target, "--format", "native", *OPTIONS, *names, *options]
    assert main([str(part) for part in command]) == 0
    newest = runs_of(str(target.parent / "home"), "orders")[0]
    assert newest.plan is not None
    return Run(newest.plan, newest.folder)


def entries(folder: str | Path) -> Counter[Any]:
    return raw_entries(Path(folder))


def lines_of(flink: FlinkHarness, path: Path, job: Job) -> Mapping[Any, Any]:
    restored = flink.restore(path, job)
    assert restored.problems == []
    assert restored.timers_missed == 0
    fired = Counter(json.dumps(line, sort_keys=True) for line in restored.fired)
    return {**restored_by_state(restored, job), "fired": fired}


def of_new_shape(job: Job, options: Sequence[str] = ()) -> Job:
    gone = () if "--lazy" in options else ("mainState", "isMigratedState")
    operators = (replace(o, states=tuple(one for one in o.states if one.name not in gone)) for o in job.operators)
    return replace(job, operators=tuple(operators), rounds=0)


ROWS, LAZY = ("--on-contradiction", "rows"), ("--lazy", "--share", "30%")
CASES: dict[str, tuple[Job, tuple[str, ...], Change]] = {
    "by Flink's serializer, half migrated": (job_of("Map{0-9}<String,Long>"), ROWS, Change()),
    "keeping the old maps": (job_of("Map{0-9}<String,Long>", migrated=0.0), ("--keep-legacy",), Change()),
    "by Kryo": (job_of("HashMap{0-9}<String,Long>", migrated=0.0), (), Change()),
    "under time to live": (job_of("Map{0-9}<String,Long>", ttl="stamped", migrated=0.0), TTL, Change()),
    "by Kryo, under time to live": (job_of("HintedMap{0-9}<String,Long>", ttl="stamped", migrated=0.0), TTL, Change()),
    "on more subtasks": (job_of("Map{0-9}<String,Long>"), (*ROWS, "--parallelism", "3"), Change(3)),
    "on one subtask, under time to live": (
        job_of("Map{0-9}<String,Long>", ttl="stamped", migrated=0.0), (*TTL, "--parallelism", "1"), Change(1),
    ),
    "with more key groups": (
        job_of("Map{0-9}<String,Long>"), (*ROWS, "--parallelism", "3", "--max-parallelism", "300"), Change(3, 300),
    ),
    "by Kryo, with fewer key groups": (
        job_of("HashMap{0-9}<String,Long>", migrated=0.0), ("--max-parallelism", "48"), Change(None, 48),
    ),
    "half migrated, under time to live, as are others": (
        job_of("Map{0-9}<String,Long>", ttl="stamped", ttl_of_others="stamped"),
        (*TTL, *ROWS, "--state-ttl", "main/other=3650d:drop; main/list=3650d:drop"), Change(),
    ),
    "keeping what has expired": (
        job_of("Map{0-9}<String,Long>", ttl="stamped"), (*TTL, *ROWS, "--keep-expired"), Change(),
    ),
    "a part of the keys": (job_of("Map{0-9}<String,Long>"), (*ROWS, *LAZY), Change()),
    "a part of the keys, under time to live, with more key groups": (
        job_of("HintedMap{0-9}<String,Long>", ttl="stamped"),
        (*TTL, *ROWS, *LAZY, "--largest-first", "--parallelism", "3", "--max-parallelism", "300"), Change(3, 300),
    ),
}  # fmt: skip


# tests/steps/test_catch_up.py has their like without Flink.
LEFT_TO_STEPS = (
    "by Flink's serializer, half migrated",
    "keeping the old maps",
    "on more subtasks",
    "on one subtask, under time to live",
    "keeping what has expired",
)


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.full) if case in LEFT_TO_STEPS else case for case in CASES]
)
def test_flink_finds_what_a_conversion_of_everything_gives(
    case: str, version: str, flink: Flink, tmp_path: Path
) -> None:
    job, options, _ = CASES[case]
    chosen = random.Random(f"{case} {version}")
    sources = snapshots(flink(version), job, [chosen.randrange(1000) for _ in range(3)], tmp_path)
    base = ferried(sources[0], tmp_path / "base", "--rehearse", *options)
    caught_up = ferried(sources[1], tmp_path / "first", "--rehearse", "--since", base.plan.run_id, *options)
    ferried(sources[2], tmp_path / "final", "--since", caught_up.plan.run_id, *options)
    newest = runs_of(str(tmp_path / "home"), "orders")[0]
    assert newest.plan is not None
    newer = Run(newest.plan, newest.folder).facts(MigrateFacts)
    assert newer is not None
    assert newer.newer is not None
    (of_new,) = (one for name, one in newer.newer.items() if name.endswith("/newMainState"))
    assert min(of_new.put, of_new.deleted) > 0
    check_final(flink(version), tmp_path, sources[2], base, case)


# tests/flink/test_random_catch_ups.py has chains of other kinds, which RocksDB opens.
@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", ["half migrated, under time to live, as are others", "with more key groups"])
def test_flink_finds_it_in_a_newer_file_that_took_the_place_of_others(
    case: str, version: str, flink: Flink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flinkstate.writing.newer_files.JOINED_FROM", 2)
    job, options, _ = CASES[case]
    sources = snapshots(flink(version), job, range(5), tmp_path)
    run = base = ferried(sources[0], tmp_path / "base", "--rehearse", *options)
    for number, source in enumerate(sources[1:4]):
        run = ferried(source, tmp_path / f"joined-{number}", "--rehearse", "--since", run.plan.run_id, *options)
    joined = next(one.actual for one in Report.read(run.report).checks if one.name.endswith(": above the base"))
    assert re.search(r"with all that \d+ newer files of the base had", joined)
    ferried(sources[4], tmp_path / "final", "--since", run.plan.run_id, *options)
    check_final(flink(version), tmp_path, sources[4], base, case)


def check_final(flink: FlinkHarness, folder: Path, source: Path, base: Run, case: str) -> None:
    """What is published has what a conversion of everything gives, and Flink goes on from it."""
    job, options, change = CASES[case]
    now = ("--now", base.plan.now, "--job", "whole")
    with choosing_as(base):
        ferried_whole(source, folder / "whole", *options, *now)
    assert entries(folder / "final") == entries(folder / "whole")
    started = change.job(of_new_shape(job, options))
    found, expected = (lines_of(flink, folder / name, started) for name in ("final", "whole"))
    assert found == expected
    # The new job goes on with its own incremental checkpoints, at another parallelism too.
    path, content = folder / "final", Counter[Any]()
    for parallelism in (started.parallelism, 3, 1):
        operators = tuple(replace(o, parallelism=None) for o in started.operators)
        path = flink.carry(path, replace(started, operators=operators, parallelism=parallelism), format_="CHECKPOINT")
        content = content or entries(path)
        assert entries(path) == content
    assert content == entries(folder / "whole")


# The jobs of test_random_catch_ups.py have several operators, too.
@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_maps_of_two_operators_are_caught_up_with(version: str, flink: Flink, tmp_path: Path) -> None:
    job = job_of("Map{0-9}<String,Long>")
    (of_more,) = legacy("HashMap{0-9}<String,Long>", new_type="Map{0-9}<String,Long>", keys=40, migrated=0.0).operators
    job = replace(job, operators=(*job.operators, replace(of_more, uid="more", parallelism=1)))
    states = [{"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState"}]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"operators": [{"operator": uid, "states": states} for uid in ("main", "more")]}))
    options = ("--plan", plan, "--on-contradiction", "rows")
    sources = snapshots(flink(version), job, (3, 8, 5), tmp_path)
    base = ferried(sources[0], tmp_path / "base", "--rehearse", *options)
    caught_up = ferried(sources[1], tmp_path / "first", "--rehearse", "--since", base.plan.run_id, *options)
    ferried(sources[2], tmp_path / "final", "--since", caught_up.plan.run_id, *options)
    ferried_whole(sources[2], tmp_path / "whole", *options, "--now", base.plan.now, "--job", "whole")
    assert entries(tmp_path / "final") == entries(tmp_path / "whole")
    started = of_new_shape(job)
    found, expected = (lines_of(flink(version), tmp_path / name, started) for name in ("final", "whole"))
    assert found == expected
    operators = tuple(replace(one, parallelism=None) for one in started.operators)
    path = tmp_path / "final"
    for parallelism in (2, 3):
        wider = replace(started, operators=operators, parallelism=parallelism)
        path = flink(version).carry(path, wider, format_="CHECKPOINT")
        assert entries(path) == entries(tmp_path / "whole")


@dataclass(frozen=True)
class InField:
    """A job with a map in a field, or with objects of its classes in its maps; what it becomes, and how."""

    type_: str
    map_: str
    state: Mapping[str, str]
    keeps: bool = False
    ttl: str | None = None

    def job(self, *, old: bool) -> Job:
        legacy, new = State("mainState", self.type_, ttl=self.ttl), State("newMainState", self.map_, "MAP", self.ttl)
        states = (legacy,) if old else (legacy, new) if self.keeps else (new,)
        operator = Operator("main", key="String", keys=60, states=(*states, State("other", "Person")))
        settings = {"execution.checkpointing.incremental": "true"}
        rounds = 2 if old else 0
        return Job((operator,), parallelism=2, backend="rocksdb", settings=settings, inline_threshold=0, rounds=rounds)


IN_FIELDS = {
    "of a POJO": InField("TypedTotals", "Map<String,Long>", {"field": "counts", "rest": "keep"}, keeps=True),
    "of an object by Kryo": InField(
        "Generic<KryoTotals>?", "Map<String,Long>", {"field": "counts", "rest": "drop"}, ttl="stamped"
    ),
    "objects that become POJOs": InField(
        "HashMap{0-9}<String,Address?>", "Map<String,Address>",
        {"map_type": "Map<String,Pojo<stateferry.flink.pojo.Address>>"}, ttl="stamped",
    ),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("version", [pytest.param(VERSIONS[0], marks=pytest.mark.full), VERSIONS[1]])
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case == "of an object by Kryo" else pytest.mark.full) for case in IN_FIELDS]
)
def test_maps_in_fields_and_of_objects_are_caught_up_with(
    case: str, version: str, flink: Flink, tmp_path: Path
) -> None:
    of_job = IN_FIELDS[case]
    ttl = {} if of_job.ttl is None else {"ttl_ms": 10 * 365 * 86_400_000}
    plan = tmp_path / "plan.json"
    state = {"legacy": "mainState", "new": "newMainState", **of_job.state, **ttl}
    plan.write_text(json.dumps({"operators": [{"operator": "main", "states": [state]}]}))
    options = ("--plan", plan, "--nulls", "drop", "--classes", jars.classes(version), *(TTL[2:] if ttl else ()))
    sources = snapshots(flink(version), of_job.job(old=True), (3, 8, 5), tmp_path)
    base = ferried(sources[0], tmp_path / "base", "--rehearse", *options)
    caught_up = ferried(sources[1], tmp_path / "first", "--rehearse", "--since", base.plan.run_id, *options)
    ferried(sources[2], tmp_path / "final", "--since", caught_up.plan.run_id, *options)
    ferried_whole(sources[2], tmp_path / "whole", *options, "--now", base.plan.now, "--job", "whole")
    assert entries(tmp_path / "final") == entries(tmp_path / "whole")
    started = of_job.job(old=False)
    found, expected = (lines_of(flink(version), tmp_path / name, started) for name in ("final", "whole"))
    assert found == expected
    path = flink(version).carry(tmp_path / "final", replace(started, parallelism=3), format_="CHECKPOINT")
    assert entries(path) == entries(tmp_path / "whole")


@pytest.mark.parametrize(
    "inlined",
    [
        pytest.param(0, id="each file by itself", marks=pytest.mark.full),
        pytest.param(1 << 16, id="small files in _metadata"),
    ],
)
def test_incremental_checkpoints_are_caught_up_with(inlined: int, flink: Flink, tmp_path: Path) -> None:
    job = replace(job_of("Map{0-9}<String,Long>", migrated=0.0), inline_threshold=inlined)
    first = flink("2.3.0").make_in_place(job, format_="CHECKPOINT").path
    later = replace(job, seed=7)
    second = flink("2.3.0").make_in_place(later, format_="CHECKPOINT", earlier=first).path
    base = ferried(first, tmp_path / "base", "--rehearse")
    ferried(second, tmp_path / "final", "--since", base.plan.run_id[:16])
    ferried_whole(second, tmp_path / "whole", "--now", base.plan.now, "--job", "whole")
    assert entries(tmp_path / "final") == entries(tmp_path / "whole")
    found, expected = (lines_of(flink("2.3.0"), tmp_path / name, of_new_shape(job)) for name in ("final", "whole"))
    assert found == expected


ON_THE_HEAP = {"state.backend.rocksdb.timer-service.factory": "HEAP"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("version", "change", "options"),
    [
        pytest.param("2.3.0", Change(), (), marks=pytest.mark.full),
        ("2.3.0", Change(3, 300), ("--parallelism", "3", "--max-parallelism", "300")),
        pytest.param("1.20.0", Change(3), ("--parallelism", "3"), marks=pytest.mark.full),
    ],
    ids=["the same layout", "more key groups", "more subtasks"],
)
def test_timers_on_the_heap_are_carried_whole(
    version: str, change: Change, options: tuple[str, ...], flink: Flink, tmp_path: Path
) -> None:
    """Flink leaves them out of its own native savepoints, and restores them from ours."""
    job = job_of("Map{0-9}<String,Long>", migrated=0.0)
    job = replace(job, settings={**job.settings, **ON_THE_HEAP})
    first = flink(version).make_in_place(job, format_="CHECKPOINT").path
    second = flink(version).make_in_place(replace(job, seed=7), format_="CHECKPOINT", earlier=first).path
    base = ferried(first, tmp_path / "base", "--rehearse", *options)
    ferried(second, tmp_path / "final", "--since", base.plan.run_id, *options)
    ferried_whole(second, tmp_path / "whole", "--now", base.plan.now, "--job", "whole", *options)
    assert entries(tmp_path / "final") == entries(tmp_path / "whole")
    assert any("_timer_state" in state for _, state, _, _ in entries(tmp_path / "final"))
    started = change.job(of_new_shape(job))
    found, expected = (lines_of(flink(version), tmp_path / name, started) for name in ("final", "whole"))
    assert found == expected
    assert found["fired"]
    # The job may as well keep them in RocksDB from now on.
    in_rocksdb = replace(started, settings={**started.settings, **dict.fromkeys(ON_THE_HEAP, "ROCKSDB")})
    assert lines_of(flink(version), tmp_path / "final", in_rocksdb) == found
    path, content = tmp_path / "final", entries(tmp_path / "final")
    for parallelism in (started.parallelism, 1):
        operators = tuple(replace(one, parallelism=None) for one in started.operators)
        wider = replace(started, operators=operators, parallelism=parallelism)
        path = flink(version).carry(path, wider, format_="CHECKPOINT")
        assert entries(path) == content


@pytest.mark.full
@pytest.mark.parametrize(
    ("version", "change"),
    [
        ("2.3.0", (2, 3)),
        *(pytest.param(*one, marks=pytest.mark.full) for one in (("1.20.0", (3, 2)), ("2.3.0", (3, 1)))),
    ],
)
def test_an_old_job_that_was_rescaled_is_caught_up_with(
    version: str, change: tuple[int, int], flink: Flink, tmp_path: Path
) -> None:
    """Its files have key groups of other subtasks, which Flink has deleted by ranges or cut off."""
    job = job_of("Map{0-9}<String,Long>", migrated=0.0)
    before, after = (Change(parallelism).job(job) for parallelism in change)
    earlier = flink(version).make_in_place(before, format_="CHECKPOINT").path
    first = flink(version).carry(earlier, after, format_="CHECKPOINT")
    second = flink(version).make_in_place(replace(after, seed=7), format_="CHECKPOINT", earlier=first).path
    base = ferried(first, tmp_path / "base", "--rehearse")
    ferried(second, tmp_path / "final", "--since", base.plan.run_id)
    ferried_whole(second, tmp_path / "whole", "--now", base.plan.now, "--job", "whole")
    assert entries(tmp_path / "final") == entries(tmp_path / "whole")
    started = of_new_shape(after)
    found, expected = (lines_of(flink(version), tmp_path / name, started) for name in ("final", "whole"))
    assert found == expected
    path = flink(version).carry(tmp_path / "final", Change(2).job(started), format_="CHECKPOINT")
    assert entries(path) == entries(tmp_path / "whole")
    # A job that was rescaled since the base has another database in each subtask.
    again = flink(version).carry(second, before, format_="CHECKPOINT")
    command = ["run", "--savepoint", again, "--target", tmp_path / "no", "--format", "native", *OPTIONS, *NAMES]
    assert main([str(part) for part in (*command, "--since", base.plan.run_id)]) == DAMAGED_OR_REFUSED


def ferried_whole(source: Path, target: Path, *options: object) -> None:
    names = () if "--plan" in options else NAMES
    wanted = [part for part in (*OPTIONS, *names) if part not in ("--job", "orders")]
    command = ["run", "--savepoint", source, "--target", target, "--format", "native", *wanted, *options]
    assert main([str(part) for part in command]) == 0
