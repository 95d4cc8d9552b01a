"""A job's savepoint goes through the whole pipeline; real Flink restores what comes out, in a job of the new shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.files.storage import Location
from flinkstate.keyed.compression import Compression
from flinkstate.metadata.metadata import Operator as FlinkOperator
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.writing.operator_rewrite import Layout
from flinkstate.writing.writer import SavepointWriter
from stateferry.changes.staging import with_absolute_files
from stateferry.cli import main
from stateferry.runs.record.run_list import runs_of
from stateferry.spark_jobs.session import session
from tests.flink.harness import FlinkHarness, Line, Made
from tests.flink.jars import VERSIONS
from tests.flink.jobs import Job, Operator, OperatorState, State, Timers
from tests.flink.judge import Change, Make, check_restored, inspected, with_parallelism
from tests.flink.scenarios import BACKENDS, SCENARIOS, legacy
from tests.support.in_process import without_spark
from tests.support.legacy_states import LegacyState, UserMap
from tests.support.rewriting import rewrite

# Making, migrating and restoring a savepoint takes ten seconds, on a busy machine several times as long.
pytestmark = [pytest.mark.flink, pytest.mark.spark, pytest.mark.timeout(600)]

Flink = Callable[[str], FlinkHarness]
DAY = 86_400_000
LEGACY, NEW, FLAG = "mainState", "newMainState", "isMigratedState"
OPTIONS = ("--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG)


@pytest.fixture(scope="module", autouse=True)
def workers(pytestconfig: pytest.Config) -> Iterator[None]:
    """With `--all` one Spark session for all runs, which each finds and uses; else this process.

    That both make the same is tested in `tests/spark/test_classes.py`.
    """
    if pytestconfig.getoption("--all"):
        with session("pipeline and Flink"):
            yield
        return
    with pytest.MonkeyPatch.context() as patch:
        without_spark(patch)
        yield


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def whole(max_parallelism: int, *, ttl: str | None) -> Job:
    """A job in the midst of its own migration, with all that must come through untouched beside it."""
    (main_,) = legacy("Map{0-9}<String,Long>", keys=60, ttl=ttl).operators
    timers = Timers(event=1, processing=1, far=1)
    offsets = (
        OperatorState("offsets", "Tuple2<String,Long>", elements=11),
        OperatorState("rules", "Map{2-4}<String,Long>", mode="BROADCAST", elements=2),
    )
    states = (*main_.states, State("other", "Person"), State("list", "Long", kind="LIST"))
    beside = State("windowed", "Map<String,Long>", namespace="TimeWindow", namespaces=2)
    operators = (
        replace(main_, states=states, timers=timers, operator_states=offsets),
        Operator("beside", key="Tuple2<String,Long>", keys=20, states=(beside,), timers=Timers(event=1)),
        Operator("plain", type="plain", operator_states=offsets),
    )
    return Job(operators, parallelism=3, max_parallelism=max_parallelism)


def ferried(source: Path, target: Path, *options: object) -> None:
    command = ["run", "--savepoint", source, "--target", target, *OPTIONS, *options]
    assert main([str(part) for part in command]) == 0


def inspected_format(savepoint: Path) -> str:
    return Savepoint.open(str(savepoint)).format


def expected(lines: Sequence[Line], *, live: Callable[[Line], bool] = lambda _: True) -> list[Line]:
    """What the job of the new shape is to find."""
    found = []
    for line in lines:
        if line["state"] == LEGACY:
            shared = {name: value for name, value in line.items() if name != "value"} | {"state": NEW}
            entries = line["value"].items() if isinstance(line["value"], dict) else line["value"]
            found += [shared | {"user_key": key, "value": value} for key, value in entries]
        elif line["state"] != FLAG:
            found.append(line)
    return [line for line in found if line["state"] != NEW or live(line)]


def of_new_shape(job: Job) -> Job:
    """The job, with what was migrated and the flag no longer in its code."""
    operators = (
        replace(operator, states=tuple(state for state in operator.states if state.name not in (LEGACY, FLAG)))
        for operator in job.operators
    )
    return replace(job, operators=tuple(operators))


# Timestamps are drawn to the end of time, as no clock would tell them.
ANY_TIME = ("--clock-tolerance", "106751991000d")


def ttl_options(job: Job) -> tuple[object, ...]:
    return ("--ttl", "30d", "--keep-expired", *ANY_TIME) if job.operators[0].states[0].ttl else ("--nulls", "keep")


# From max parallelism, parallelism wanted, max parallelism wanted.
LAYOUTS = {
    "same": (128, None, None),
    "smaller": (128, 2, None),
    "larger": (128, 5, None),
    "128-to-256": (128, None, 256),
    "300-to-128": (300, None, 128),
    "4096-to-100": (4096, 4, 100),
}
CASES = [
    pytest.param(version, BACKENDS[(i + j) % 2], name, id=f"{name}-{version}-{BACKENDS[(i + j) % 2]}")
    for i, name in enumerate(LAYOUTS)
    for j, version in enumerate(VERSIONS)
]


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(("version", "backend", "layout"), CASES)
def test_the_new_job_finds_every_entry_and_all_else_untouched(
    version: str, backend: str, layout: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    from_max, parallelism, to_max = LAYOUTS[layout]
    # Versions and backends see both, in turn.
    ttl = "stamped" if backend == "rocksdb" else None
    job = replace(whole(from_max, ttl=ttl), backend=backend)
    source = made(version, job)
    wanted: tuple[object, ...] = () if parallelism is None else ("--parallelism", parallelism)
    wanted += () if to_max is None else ("--max-parallelism", to_max)
    ferried(source.path, tmp_path / "new", *wanted, *ttl_options(job))
    started = of_new_shape(job) if to_max is None else Change(max_parallelism=to_max).job(of_new_shape(job))
    if parallelism is not None:
        # Only the migrated operator was asked to change; the job may start as it likes.
        started = with_parallelism(started, parallelism)
    found = Made(tmp_path / "new", expected(source.lines))
    check_restored(flink(version), tmp_path / "new", started, found, moved=to_max is not None)


# The compression that is asked for, whether the source has snappy, and what the result has then.
COMPRESSIONS = {
    "auto-of-plain": ("auto", False, "stored"),
    "auto-of-snappy": ("auto", True, "snappy"),
    "snappy-of-plain": ("snappy", False, "snappy"),
    "stored-of-snappy": ("stored", True, "stored"),
    "none-of-snappy": ("none", True, "none"),
    "source-of-plain": ("source", False, "none"),
    "source-of-snappy": ("source", True, "snappy"),
}


@pytest.mark.full
@pytest.mark.parametrize("max_parallelism", [None, 300], ids=["same", "max-300"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_flink_restores_every_compression(
    version: str,
    backend: str,
    compression: str,
    max_parallelism: int | None,
    made: Make,
    flink: Flink,
    tmp_path: Path,
) -> None:
    asked, snappy, found_then = COMPRESSIONS[compression]
    job = replace(whole(128, ttl=None), backend=backend, snappy=snappy)
    source = made(version, job)
    wanted = () if max_parallelism is None else ("--max-parallelism", max_parallelism)
    ferried(source.path, tmp_path / "new", "--compression", asked, *wanted)
    operators = [operator["keyed"] for operator in inspected(tmp_path / "new").values()]
    for keyed in filter(None, operators):
        # Snappy stores what it can't compress, such as the small key groups of some subtasks here.
        also = {"stored"} if found_then == "snappy" and max_parallelism is not None else set()
        assert found_then in keyed["compression"]
        assert set(keyed["compression"]) - also == {found_then}
    started = Change(max_parallelism=max_parallelism).job(of_new_shape(job))
    found = Made(tmp_path / "new", expected(source.lines))
    check_restored(flink(version), tmp_path / "new", started, found, moved=max_parallelism is not None)


@pytest.mark.full
@pytest.mark.parametrize("version", [pytest.param(VERSIONS[0]), pytest.param(VERSIONS[1], marks=pytest.mark.full)])
def test_subtasks_of_either_kind_become_one(version: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    """The operator `beside` has no framed file, and so its result is stored; `main` has one, and stays compressed."""
    job = whole(128, ttl=None)
    source = made(version, job)
    opened = Savepoint.open(str(source.path))
    packed = rewrite(opened, str(tmp_path / "packed"), Layout(compression=Compression.SNAPPY))
    described = with_absolute_files(packed.metadata, Location.of(str(tmp_path / "packed")))
    SavepointWriter(str(tmp_path / "mixed")).commit(
        replace(described, operators=tuple(map(_mixed, opened_absolute(opened), described.operators)))
    )
    ferried(tmp_path / "mixed", tmp_path / "new")
    found = inspected(tmp_path / "new")
    assert "snappy" in found[operator_id("main").hex()]["keyed"]["compression"]
    assert found[operator_id("beside").hex()]["keyed"]["compression"] == ["stored"]
    lines = Made(tmp_path / "new", expected(source.lines))
    check_restored(flink(version), tmp_path / "new", of_new_shape(job), lines, moved=False)


def opened_absolute(savepoint: Savepoint) -> tuple[FlinkOperator, ...]:
    return with_absolute_files(savepoint.metadata, savepoint.folder).operators


def _mixed(plain: FlinkOperator, packed: FlinkOperator) -> FlinkOperator:
    if plain.id != operator_id("main"):
        return plain
    return replace(plain, subtasks=tuple(packed.subtasks[i] if i else task for i, task in enumerate(plain.subtasks)))


AGED_NOW, AGED_TTL = 1_703_000_000_000, 20 * DAY


def without_expired(line: Line) -> Line | None:
    """What of a line is alive under the time to live that the run is told."""
    stamps = line["timestamp"]
    if not isinstance(stamps, list):
        return line if stamps + AGED_TTL > AGED_NOW else None
    kept = [one for one in zip(line["value"], stamps, strict=True) if one[1] + AGED_TTL > AGED_NOW]
    return line | {"value": [value for value, _ in kept], "timestamp": [stamp for _, stamp in kept]} if kept else None


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(
    ("version", "backend", "format_", "into", "max_parallelism"),
    [
        ("1.20.0", "hashmap", "CANONICAL", "canonical", 300),
        ("2.3.0", "rocksdb", "NATIVE", "native", None),
        pytest.param("2.3.0", "hashmap", "CANONICAL", "canonical", None, marks=pytest.mark.full),
        pytest.param("1.20.0", "rocksdb", "CHECKPOINT", "canonical", 100, marks=pytest.mark.full),
    ],
)
def test_flink_finds_what_is_alive_of_states_that_are_not_migrated(
    version: str, backend: str, format_: str, into: str, max_parallelism: int | None, flink: Flink, tmp_path: Path
) -> None:
    (main_,) = legacy("Map{0-9}<String,Long>", keys=60, ttl="stamped").operators
    aged = (
        State("aged-value", "Person", ttl="stamped"),
        State("aged-list", "Tuple2<String,Integer>", kind="LIST", ttl="stamped"),
        State("aged-map", "Map<String,Long>", kind="MAP", ttl="stamped"),
        State("aged-sum", "Long", kind="REDUCING", ttl="stamped"),
    )
    main_ = replace(main_, states=(*main_.states, *aged), timers=Timers(event=1, processing=1, far=1))
    job = Job((main_,), parallelism=3, max_parallelism=128)
    job = replace(job, backend=backend, settings={"execution.checkpointing.incremental": "true"}, inline_threshold=0)
    source = flink(version).make_in_place(job, format_=format_)
    told = [part for state in aged for part in ("--state-ttl", f"main/{state.name}=20d:drop")]
    wanted = () if max_parallelism is None else ("--max-parallelism", max_parallelism)
    # Some keys that the job has moved had empty maps.
    accepted = ("--accept-expired", "100%", "--accept-empty", "20%")
    options = (*ttl_options(job), "--now", AGED_NOW, *accepted, "--format", into)
    ferried(source.path, tmp_path / "new", *options, *told, *wanted)
    names = {state.name for state in aged}
    lines = [without_expired(line) if line["state"] in names else line for line in expected(source.lines)]
    left = [line for line in lines if line is not None]
    for name in names:
        counts = [sum(line["state"] == name for line in of) for of in (source.lines, left)]
        assert 0 < counts[1] < counts[0]
    started = of_new_shape(job)
    if max_parallelism is not None:
        started = Change(max_parallelism=max_parallelism).job(started)
    check_restored(flink(version), tmp_path / "new", started, Made(tmp_path / "new", left), moved=bool(max_parallelism))


_MERGED_FILES = {"execution.checkpointing.file-merging.enabled": "true"}
_TIMERS_ON_THE_HEAP = {"state.backend.rocksdb.timer-service.factory": "HEAP"}


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("into", ["canonical", pytest.param("native", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("version", "format_", "more", "max_parallelism"),
    [
        ("2.3.0", "CHECKPOINT", {}, None),
        ("1.20.0", "NATIVE", {}, None),
        ("2.3.0", "CHECKPOINT", {**_MERGED_FILES, **_TIMERS_ON_THE_HEAP}, 256),
        ("1.20.0", "CHECKPOINT", _TIMERS_ON_THE_HEAP, None),
    ],
    ids=["checkpoint", "native savepoint", "merged files, timers on the heap, rehashed", "timers on the heap"],
)
def test_rocksdbs_own_files_give_a_savepoint_that_flink_restores(
    version: str,
    format_: str,
    into: str,
    more: dict[str, str],
    max_parallelism: int | None,
    flink: Flink,
    tmp_path: Path,
) -> None:
    settings = {"execution.checkpointing.incremental": "true", **more}
    job = replace(whole(128, ttl="stamped"), backend="rocksdb", settings=settings, inline_threshold=0)
    source = flink(version).make_in_place(job, format_=format_)
    wanted = () if max_parallelism is None else ("--max-parallelism", max_parallelism)
    ferried(source.path, tmp_path / "new", "--parallelism", 2, "--format", into, *wanted, *ttl_options(job))
    # Timers on the heap are beside RocksDB's files.
    assert inspected_format(tmp_path / "new") == into
    found = Made(tmp_path / "new", expected(source.lines))
    started = of_new_shape(job)
    if max_parallelism is not None:
        started = Change(max_parallelism=max_parallelism).job(started)
    check_restored(flink(version), tmp_path / "new", with_parallelism(started, 2), found, moved=bool(max_parallelism))


@pytest.mark.full
@pytest.mark.parametrize(
    ("version", "change", "format_", "options"),
    [
        ("2.3.0", (2, 3), "CHECKPOINT", ("--max-parallelism", 300)),
        ("1.20.0", (3, 2), "CHECKPOINT", ("--parallelism", 4)),
        ("2.3.0", (3, 2), "NATIVE", ()),
        ("1.20.0", (2, 3), "NATIVE", ("--max-parallelism", 64)),
    ],
    ids=str,
)
def test_rocksdbs_own_files_after_a_rescale(
    version: str, change: tuple[int, int], format_: str, options: tuple[object, ...], flink: Flink, tmp_path: Path
) -> None:
    """They have key groups of other subtasks, which Flink has deleted."""
    settings = {"execution.checkpointing.incremental": "true"}
    job = replace(whole(128, ttl="stamped"), backend="rocksdb", settings=settings, inline_threshold=0)
    # A job that goes on fires timers of processing time, and adds to lists of operator state.
    keyed = (replace(one, timers=Timers(event=1, far=1), operator_states=()) for one in job.operators if one.key)
    job = replace(job, operators=tuple(keyed))
    before, after = (with_parallelism(job, parallelism) for parallelism in change)
    source = flink(version).make_in_place(before, format_="CHECKPOINT")
    carried = flink(version).carry(source.path, after, format_=format_)
    ferried(carried, tmp_path / "new", *options, *ttl_options(job))
    to_max = options[1] if "--max-parallelism" in options else None
    started = (
        of_new_shape(after) if to_max is None else Change(max_parallelism=int(f"{to_max}")).job(of_new_shape(after))
    )
    found = Made(tmp_path / "new", expected(source.lines))
    check_restored(flink(version), tmp_path / "new", started, found, moved=to_max is not None)


TYPES = {
    "legacy-untouched": ("2.3.0", "hashmap"),
    "legacy-string-long": ("1.20.0", "rocksdb"),
    "legacy-integer-row-ttl": ("1.20.0", "hashmap"),
    "legacy-tuple-pojo": ("2.3.0", "rocksdb"),
    "legacy-long-string-nulls-ttl": ("1.20.0", "rocksdb"),
    "legacy-pojo-list-ttl": ("2.3.0", "hashmap"),
    "scala-legacy": ("1.20.0", "rocksdb"),
    "avro-legacy-ttl": ("2.3.0", "rocksdb"),
}


# Of these, other tests have the same kinds of types.
_FULL_TYPES = ("legacy-untouched", "legacy-string-long", "legacy-tuple-pojo", "scala-legacy")


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=pytest.mark.full if name in _FULL_TYPES else ()) for name in TYPES]
)
def test_types_and_nulls_come_through(scenario: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    version, backend = TYPES[scenario]
    job = replace(SCENARIOS[scenario], backend=backend)
    source = made(version, job)
    ferried(source.path, tmp_path / "new", *ttl_options(job))
    found = Made(tmp_path / "new", expected(source.lines))
    check_restored(flink(version), tmp_path / "new", of_new_shape(job), found, moved=False)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(("version", "backend"), list(zip(VERSIONS, BACKENDS, strict=True)))
def test_exactly_what_has_expired_is_gone(version: str, backend: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    job = replace(whole(128, ttl="stamped"), backend=backend)
    source = made(version, job)
    stamps = sorted(line["timestamp"] for line in source.lines if line["state"] in (LEGACY, NEW))
    # On the very millisecond: what was last touched then has expired, what was touched one later hasn't.
    now = stamps[len(stamps) // 2] + 30 * DAY
    ferried(source.path, tmp_path / "new", "--ttl", "30d", "--now", now, "--accept-expired", "100%", *ANY_TIME)
    left = expected(source.lines, live=lambda line: int(line["timestamp"]) + 30 * DAY > now)
    gone = len(expected(source.lines)) - len(left)
    assert 0 < gone < len(left)
    check_restored(flink(version), tmp_path / "new", of_new_shape(job), Made(tmp_path / "new", left), moved=False)


@pytest.mark.full
def test_a_second_night_publishes_what_a_first_one_would(flink: Flink, tmp_path: Path, home: Path) -> None:
    first = LegacyState({f"key-{i:03}": ({f"u{j}": i + j for j in range(4)}, 0) for i in range(300)})
    changed: dict[str, tuple[UserMap, int]] = {"key-007": ({"u0": -1, "new": None}, 0), "key-100": ({}, 0)}
    changed["more"] = ({"u": 1}, 0)
    second = first.with_changes(
        blobs={key: blob for key, blob in {**first.blobs, **changed}.items() if key != "key-200"},
        rows={"key-200": {"u0": (5, 0)}},
        flags={"key-200": 0},
        checkpoint_id=2,
    )
    nights = [tmp_path / "first", tmp_path / "second"]
    for night, state in zip(nights, (first, second), strict=True):
        state.write(str(night))
        ferried(night, tmp_path / f"{night.name}-new", "--nulls", "keep")
    written = [counts["rows written"] for counts in tables_counts(home)]
    # Of the keys changed: two entries, none, one, and one row of the job's own.
    assert written == [4, 1200]
    ferried(nights[1], tmp_path / "afresh", "--job", "afresh", "--nulls", "keep")
    assert content(tmp_path / "second-new") == content(tmp_path / "afresh")
    job = Job((Operator("main", key="String", states=(State(NEW, "Map<String,Long>", kind="MAP"),)),), parallelism=1)
    restored = flink("2.3.0").restore(tmp_path / "second-new", job)
    assert restored.problems == []
    entries = {(line["key"], line["user_key"]): line["value"] for line in restored.lines}
    assert len(restored.lines) == len(entries)
    assert entries == second_content(second)


def second_content(state: LegacyState) -> dict[tuple[str, str], object]:
    rows = {(key, name): row[0] for key, of_key in state.rows.items() for name, row in of_key.items()}
    blobs = {(key, name): value for key, blob in state.blobs.items() for name, value in blob[0].items()}
    return blobs | rows


def tables_counts(home: Path) -> list[dict[str, int]]:
    """Of each run, the newest first."""
    facts = [json.loads(one.folder.child("steps").child("tables.json").read())["facts"] for one in runs_of(str(home))]
    return [one["counts"]["main/newMainState"] for one in facts]


def content(savepoint: Path) -> list[bytes]:
    """To the byte: files are named by what they hold and where they belong."""
    return [file.read_bytes() for file in sorted(savepoint.iterdir())]
