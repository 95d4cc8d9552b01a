"""What Flink writes besides canonical savepoints: what RocksDB wrote is shown, the rest is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RefusedError
from flinkstate.reading.reader import Savepoint
from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED
from stateferry.cli import main
from stateferry.runs.checks.plan_check import lost_timers
from tests.flink.harness import FlinkError, FlinkHarness, by_state
from tests.flink.jars import VERSIONS
from tests.flink.jobs import Job, Timers
from tests.flink.judge import Make, all_dumped, inspected, keyed_names, refusal
from tests.flink.scenarios import BACKENDS, SCENARIOS

pytestmark = pytest.mark.flink

_INCREMENTAL = {"execution.checkpointing.incremental": "true"}
_FULL = {"execution.checkpointing.incremental": "false"}
WRITTEN = {
    "native savepoint": ("NATIVE", {}),
    "incremental checkpoint": ("CHECKPOINT", _INCREMENTAL),
    "full checkpoint": ("CHECKPOINT", _FULL),
}


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_refused_with_what_to_do(
    version: str, backend: str, written: str, made: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    format_, settings = WRITTEN[written]
    job = replace(SCENARIOS["legacy-string-long"], backend=backend, settings=settings)
    path = made(version, job, format_).path
    if backend == "rocksdb":
        assert main(["inspect", str(path)]) == 0
        return
    savepoint = Savepoint.open(str(path))
    (operator,) = savepoint.keyed_operators()
    with pytest.raises(RefusedError, match=r"HashMap backend's own layout.*flink savepoint --type canonical JOB DIR"):
        savepoint.keyed_states(operator)
    assert main(["inspect", str(path)]) == DAMAGED_OR_REFUSED
    assert "--type canonical" in capsys.readouterr().err


_ROUNDS = (SCENARIOS["kinds-ttl"].operators[0], SCENARIOS["legacy-string-long"].operators[0])
_COMPRESSION = "state.backend.rocksdb.compression.per.level"
SETTINGS: dict[str, dict[str, str]] = {
    "as it comes": {},
    "lz4": {_COMPRESSION: "LZ4_COMPRESSION"},
    "zstd": {_COMPRESSION: "ZSTD_COMPRESSION"},
    "zlib": {_COMPRESSION: "ZLIB_COMPRESSION"},
    "no compression": {_COMPRESSION: "NO_COMPRESSION"},
    "bloom filters": {"state.backend.rocksdb.use-bloom-filter": "true"},
    "partitioned index": {
        "state.backend.rocksdb.memory.fixed-per-slot": "64mb",
        "state.backend.rocksdb.memory.partitioned-index-filters": "true",
    },
    "small blocks": {
        "state.backend.rocksdb.block.blocksize": "128b",
        "state.backend.rocksdb.compaction.level.target-file-size-base": "4kb",
        "state.backend.rocksdb.writebuffer.size": "64kb",
    },
    "large max parallelism": {},
    "merged files": {"execution.checkpointing.file-merging.enabled": "true"},
}


def _in_rounds(settings: Mapping[str, str], rounds: int, **changes: Any) -> Job:
    operators = tuple(replace(o, timers=o.timers and Timers(event=2, far=1)) for o in _ROUNDS)
    job = Job(operators, rounds=rounds, settings={**_INCREMENTAL, **settings}, inline_threshold=0)
    return replace(job, **changes)


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("format_", ["NATIVE", "CHECKPOINT"])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_entry_of_rocksdbs_own_files_is_shown(
    version: str, settings: str, format_: str, flink: Callable[[str], FlinkHarness]
) -> None:
    wide = 300 if settings == "large max parallelism" else 128
    job = _in_rounds(SETTINGS[settings], 3, max_parallelism=wide)
    made = flink(version).make_in_place(job, format_=format_)
    assert by_state(all_dumped(made.path, job)) == by_state(made.lines)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("format_", ["NATIVE", "CHECKPOINT"])
@pytest.mark.parametrize("ingest", ["true", "false"])
@pytest.mark.parametrize("change", [(2, 3), (3, 2), (1, 4), (4, 1)], ids=str)
@pytest.mark.parametrize("version", VERSIONS)
def test_after_a_rescale(
    version: str, change: tuple[int, int], ingest: str, format_: str, flink: Callable[[str], FlinkHarness]
) -> None:
    before, after = change
    job = _in_rounds({"state.backend.rocksdb.use-ingest-db-restore-mode": ingest}, 3, parallelism=before)
    made = flink(version).make_in_place(job, format_="CHECKPOINT")
    carried = flink(version).carry(made.path, replace(job, parallelism=after), format_=format_)
    assert by_state(all_dumped(carried, job)) == by_state(made.lines)


_MERGED = {"execution.checkpointing.file-merging.enabled": "true"}


@pytest.mark.parametrize(("version", "settings"), [("2.3.0", _INCREMENTAL), ("1.20.0", {**_INCREMENTAL, **_MERGED})])
def test_timers_on_the_heap_are_states_of_a_checkpoint(
    version: str, settings: Mapping[str, str], flink: Callable[[str], FlinkHarness]
) -> None:
    job = replace(SCENARIOS["kinds-with-timers-on-the-heap"])
    job = replace(job, settings={**job.settings, **settings})
    made = flink(version).make_in_place(job, format_="CHECKPOINT")
    (facts,) = (facts for facts in inspected(made.path).values() if facts["keyed"])
    assert facts["raw_bytes"] == 0
    assert sorted(state["name"] for state in facts["keyed"]["states"]) == sorted(keyed_names(job.operators[0]))
    assert by_state(all_dumped(made.path, job)) == by_state(made.lines)
    assert not list(lost_timers(Savepoint.open(str(made.path))))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_operators_own_raw_state_is_not_timers(version: str, flink: Callable[[str], FlinkHarness]) -> None:
    job = replace(SCENARIOS["raw-state"], settings=_INCREMENTAL, inline_threshold=0)
    made = flink(version).make_in_place(job, format_="CHECKPOINT")
    savepoint = Savepoint.open(str(made.path))
    operator = savepoint.operator("keyed")
    assert all(task.raw_keyed and task.native_keyed and not task.native_keyed.timers for task in operator.subtasks)


@pytest.mark.parametrize("version", VERSIONS)
def test_timers_on_the_heap_are_not_in_a_native_savepoint(version: str, flink: Callable[[str], FlinkHarness]) -> None:
    made = flink(version).make_in_place(SCENARIOS["kinds-with-timers-on-the-heap"], format_="NATIVE")
    (problem,) = lost_timers(Savepoint.open(str(made.path)))
    assert "has no state of timers" in problem


@pytest.mark.parametrize("backend", BACKENDS)
def test_of_asynchronous_state_flink_takes_native_savepoints_only(
    backend: str, flink_2: FlinkHarness, made: Make, tmp_path: Path
) -> None:
    job = SCENARIOS["windows"]
    operators = tuple(replace(o, asynchronous=True) for o in job.operators if o.assigner == "tumbling")
    asynchronous = replace(job, operators=operators, backend=backend)
    with pytest.raises(FlinkError, match=r"UnsupportedOperationException: Not supported yet"):
        flink_2.make(asynchronous, tmp_path / "canonical")
    native = made("2.3.0", asynchronous, "NATIVE")
    assert by_state(native.lines) != {}
    if backend == "rocksdb":
        # RocksDB describes it as it describes other state, and has the same bytes.
        assert by_state(all_dumped(native.path, asynchronous)) == by_state(native.lines)
    else:
        assert "Flink can't take one of asynchronous state" in refusal("inspect", str(native.path))
