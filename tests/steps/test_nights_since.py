"""Nights on incremental checkpoints: what is read since the night before gives what a reading of everything would."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RejectedError
from flinkstate.keyed import native_difference
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.reader import Savepoint
from stateferry.basics.durations import now_ms
from stateferry.inventory.blob_times import BlobTimes
from stateferry.runs.catalog.publications import Control
from stateferry.runs.checks.plan_check import open_source, planned, resolve
from stateferry.runs.predict.earlier_night import Counted
from stateferry.runs.predict.prediction import part_times, predicted_after
from stateferry.runs.record.run_list import find_run
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts, TablesFacts
from stateferry.runs.record.steps import Step
from stateferry.runs.report import source_check
from stateferry.runs.report.report import Report
from stateferry.steps.pipeline import Pipeline
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import InProcess
from stateferry.tables.iceberg.commits import TableHome
from tests.rocksdb.writing import NONE, Table, masked_crc32c, varint
from tests.support.facts import kept_facts
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState
from tests.support.native_nights import NightlyDatabase
from tests.support.table_nights import folding_everything
from tests.support.verified_runs import carried_out

NOW = 1_704_067_200_000
KEYS = 400


def run(source: Path | str, folder: Path, number: int, *, job: str = "nights", **options: Any) -> tuple[Report, Run]:
    with at_work(source, folder, number, job, options) as work:
        return carried_out(work), work.run


@contextmanager
def at_work(source: Path | str, folder: Path, number: int, job: str, options: dict[str, Any]) -> Iterator[RunAtWork]:
    state = {"legacy": LEGACY, "new": NEW, "flag": FLAG, **options.pop("state", {})}
    values = {
        "source": str(source),
        "home": str(folder / "home"),
        "target": str(folder / "target"),
        "job": job,
        "now": NOW + number,
        "run_id": f"{job}-{number}",
        "no_timers": True,
        "rehearse": True,
        "on_contradiction": "rows",
        "accept_expired": 1.0,
        "operators": [{"operator": "main", "states": [state]}],
    }
    plan = planned(values | options)
    resolved = resolve(plan, open_source(plan))
    run = Run.create(plan, now_ms())
    with Control(plan.catalog_uri) as control:
        lease = control.acquire(plan.job, plan.run_id)
        try:
            yield RunAtWork(InProcess(), run, resolved, control, lease)
        finally:
            control.release(lease)


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The rows that were read from RocksDB's files since the last call."""
    counted = [0]
    sections = NativeFile.sections

    def counting(self: NativeFile, *arguments: Any) -> Iterator[Any]:
        for section in sections(self, *arguments):
            counted[0] += len(section)
            yield section

    def taken() -> int:
        rows, counted[0] = counted[0], 0
        return rows

    monkeypatch.setattr(NativeFile, "sections", counting)
    return taken


def facts_of(run: Run) -> tuple[Any, ...]:
    snapshot, counted = kept_facts(run, SnapshotFacts), run.facts(Counted)
    return snapshot.states, snapshot.met, snapshot.ages, snapshot.read, counted


def went_on(run: Run) -> bool:
    facts = kept_facts(run, SnapshotFacts)
    return any("have changed since run" in note for note in facts.notes)


def walked(run: Run) -> int:
    facts = kept_facts(run, TablesFacts)
    return sum(counts.keys_walked for counts in facts.counts.values())


def totals(run: Run) -> dict[str, int]:
    """What the tables step says of all keys, however it has found that out."""
    facts = kept_facts(run, TablesFacts)
    (counts,) = facts.counts.values()
    names = [
        *("keys_new", "keys_changed", "keys_unchanged", "keys_vanished", "keys_left", "keys_left_untouched"),
        *("keys_migrated_by_job", "keys_migrated_by_ferry", "keys_moved", "rows_written", "ledger_rows_written"),
    ]
    return {name: getattr(counts, name) for name in names}


def first_state(**more: Any) -> LegacyState:
    blobs = {f"key-{number}": ({f"u{entry}": number + entry for entry in range(5)}, NOW) for number in range(KEYS)}
    return LegacyState(blobs, **more)


def changed(state: LegacyState, chosen: random.Random, count: int) -> LegacyState:
    """Some keys get other maps, some are new, some are gone, some were moved by the job."""
    blobs, rows, flags = dict(state.blobs), dict(state.rows), dict(state.flags)
    for key in chosen.sample(sorted(blobs), count):
        kind = chosen.randrange(4)
        if kind == 0:
            del blobs[key]
        elif kind == 1:
            rows[key] = {name: (value, NOW) for name, value in blobs.pop(key)[0].items()}
            flags[key] = NOW
        else:
            blobs[key] = ({**blobs[key][0], "u0": chosen.randrange(10**6), f"new{count}": 7}, NOW)
    for key in chosen.sample(sorted(rows), min(len(rows), count // 2)):
        rows[key] = {**rows[key], "u1": (chosen.randrange(10**6), NOW)}
    blobs[f"new-{chosen.randrange(10**6)}"] = ({"u": 1}, NOW)
    return state.with_changes(blobs=blobs, rows=rows, flags=flags)


@pytest.mark.matrix(most=1)
@pytest.mark.slow
@pytest.mark.parametrize("max_parallelism", [128, pytest.param(300, marks=pytest.mark.full)])
@pytest.mark.parametrize("ttl", [False, True], ids=["without time to live", "under time to live"])
def test_each_night_finds_what_a_first_night_would(
    ttl: bool,
    max_parallelism: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    monkeypatch.setattr(native_difference, "_MOST_CHANGED", 10.0)
    chosen, database = random.Random(max_parallelism), NightlyDatabase(tmp_path / "job")
    database.flush(first_state(ttl=ttl, max_parallelism=max_parallelism))
    of_state = {"ttl_ms": 10**9} if ttl else {}
    state = database.state
    # The files of the second night are compacted, and two nights follow.
    for night in range(6 if pytestconfig.getoption("--all") else 4):
        source = database.checkpoint(night)
        report, since = run(source, tmp_path, night, state=of_state)
        everything = run_on_everything(source, tmp_path, night, monkeypatch, state=of_state)
        assert report.is_green
        assert facts_of(since) == facts_of(everything)
        assert totals(since) == totals(everything)
        # Who wins between blobs and rows depends on the time.
        assert went_on(since) is (night > 0 and not (ttl and state.rows))
        state = changed(state, chosen, 6)
        database.flush(state)
        if night % 2:
            database.compact(chosen.randrange(3))


@pytest.mark.matrix(most=1)
@pytest.mark.slow
@pytest.mark.parametrize("ttl", [False, True], ids=["without time to live", "under time to live"])
def test_states_that_could_be_meant_are_counted_as_on_a_first_night(
    ttl: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has a key in one of them, its signs depend on the key's flag, rows and blob."""
    monkeypatch.setattr(native_difference, "_MOST_CHANGED", 10.0)
    chosen = random.Random(7)
    state = replace(with_rivals(first_state(), chosen), ttl=ttl)
    database = NightlyDatabase(
        tmp_path / "job",
        replace(state, blobs={}, more_blobs={"second": {}}, more_rows={"other": {}}, more_flags={"vip": {}}),
    )
    of_state = {"ttl_ms": 10**9} if ttl else {}
    for night in range(4):
        database.flush(state)
        source = database.checkpoint(night)
        report, since = run(source, tmp_path, night, state=of_state, accept_empty=1.0)
        everything = counted_from_everything(source, tmp_path, night, monkeypatch, state=of_state, accept_empty=1.0)
        assert report.is_green
        assert facts_of(since) == facts_of(everything)
        assert went_on(since) is (night > 0 and not ttl)
        state = with_rivals(changed(state, chosen, 6), chosen)


def with_rivals(state: LegacyState, chosen: random.Random) -> LegacyState:
    """Some keys have entries in states of the same types as the legacy state, the new state and the flag."""
    every = sorted({*state.blobs, *state.rows, *state.flags})
    other = chosen.sample(every, 40)
    return state.with_changes(
        more_blobs={"second": {key: ({"u": 1}, NOW) for key in other[:20]}},
        more_rows={"other": {key: {"u": (2, NOW)} for key in other[10:30]}},
        more_flags={"vip": dict.fromkeys(other[20:], NOW)},
    )


def test_a_night_that_reads_changed_keys_finds_that_a_name_is_wrong(
    tmp_path: Path, rows_read: Callable[[], int]
) -> None:
    moved = {f"moved-{number}": {"u": (number, NOW)} for number in range(40)}
    state = first_state(rows=moved, flags=dict.fromkeys(moved, NOW), more_rows={"other": {}})
    database = NightlyDatabase(tmp_path / "job", LegacyState(more_rows={"other": {}}))
    database.flush(state)
    assert run(database.checkpoint(1), tmp_path, 1)[0].is_green
    rows_read()
    # The job moves on, to a state of another name.
    database.flush(
        state.with_changes(flags={**state.flags, "late": NOW}, more_rows={"other": {"late": {"u": (1, NOW)}}})
    )
    with pytest.raises(RejectedError, match="other, a MapState of the same types, has rows of 1 of the keys"):
        run(database.checkpoint(2), tmp_path, 2)
    assert rows_read() < KEYS


def run_on_everything(source: Path, folder: Path, night: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Run:
    with monkeypatch.context() as patch:
        patch.setattr("stateferry.steps.snapshot.earlier_night", lambda _: None)
        return run(source, folder, night, job="everything", **options)[1]


def counted_from_everything(
    source: Path, folder: Path, night: int, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Run:
    """A run that is over after its snapshot."""
    with monkeypatch.context() as patch, at_work(source, folder, night, "everything", options) as work:
        patch.setattr("stateferry.steps.snapshot.earlier_night", lambda _: None)
        Pipeline(work).carry_out(Step.SNAPSHOT)
        return work.run


def nights(folder: Path, *, keys: int = 4, **of_first: Any) -> tuple[NightlyDatabase, list[Path]]:
    """A database, and its checkpoints of two nights, between which some keys were changed."""
    database = NightlyDatabase(folder / "job")
    database.flush(first_state(**of_first))
    first = database.checkpoint(1)
    blobs = dict(database.state.blobs)
    for number in range(keys):
        blobs[f"key-{number}"] = ({"u0": -number}, NOW)
    database.flush(database.state.with_changes(blobs=blobs))
    return database, [first, database.checkpoint(2)]


def test_only_changed_keys_are_read(tmp_path: Path, rows_read: Callable[[], int]) -> None:
    _, (first, second) = nights(tmp_path)
    run(first, tmp_path, 1)
    of_first = rows_read()
    _, since = run(second, tmp_path, 2)
    assert (went_on(since), walked(since)) == (True, 4)
    # Rescale and validation read all rows. The snapshot reads four keys twice, the tables step once.
    assert of_first - rows_read() == 2 * KEYS - 3 * 4


def test_what_is_predicted_for_a_cut_over_counts_with_reading_everything(tmp_path: Path) -> None:
    database, (first, second) = nights(tmp_path)
    _, one = run(first, tmp_path, 1)
    facts = kept_facts(one, SnapshotFacts)
    one.keep(replace(facts, seconds=1000.0))
    _, two = run(second, tmp_path, 2)
    database.flush(database.state.with_changes(blobs={**database.state.blobs, "key-9": ({"u": 1}, NOW)}))
    _, three = run(database.checkpoint(3), tmp_path, 3)
    for night in (two, three):
        assert went_on(night)
        assert part_times(night)[0].seconds < 100
        assert predicted_after(night).seconds["snapshot"] == pytest.approx(1000, rel=0.1)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("ttl", [False, True])
def test_the_tables_need_no_second_reading_under_time_to_live(ttl: bool, tmp_path: Path) -> None:
    _, (first, second) = nights(tmp_path, ttl=ttl)
    state = {"ttl_ms": 10**9} if ttl else {}
    run(first, tmp_path, 1, state=state)
    _, since = run(second, tmp_path, 2, state=state)
    assert (went_on(since), walked(since)) == (True, 4)


def test_who_wins_may_depend_on_the_time(tmp_path: Path) -> None:
    rows = {"key-7": {"u0": (1, NOW)}}
    _, (first, second) = nights(tmp_path, ttl=True, rows=rows)
    state = {"ttl_ms": 10**9}
    run(first, tmp_path, 1, state=state)
    report, since = run(second, tmp_path, 2, state=state)
    assert (report.is_green, went_on(since), walked(since)) == (True, False, KEYS)


TTL = 20


def aging(chosen: random.Random, keys: Sequence[str]) -> dict[str, tuple[dict[str, int], int]]:
    """Blobs of which some expire on each of the next nights, some have expired, and some are in the future."""
    sizes = {key: chosen.randrange(4) for key in keys}
    return {
        key: ({f"u{entry}": entry for entry in range(size)}, NOW - TTL + chosen.randrange(-4, 40))
        for key, size in sizes.items()
    }


@pytest.mark.full
@pytest.mark.slow
def test_ages_follow_from_what_has_changed_whatever_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_difference, "_MOST_CHANGED", 10.0)
    chosen, database = random.Random(1), NightlyDatabase(tmp_path / "job")
    keys = [f"key-{number}" for number in range(KEYS)]
    state = LegacyState(aging(chosen, keys), ttl=True)
    expired = set()
    for night in range(5):
        database.flush(state)
        source = database.checkpoint(night)
        # It goes back once, as a night may be made up for.
        hours: dict[str, Any] = {"now": NOW + [0, 3, 9, 1, 12][night], "state": {"ttl_ms": TTL}}
        report, since = run(source, tmp_path, night, **hours)
        everything = run_on_everything(source, tmp_path, night, monkeypatch, **hours)
        assert report.is_green
        assert facts_of(since) == facts_of(everything)
        assert totals(since) == totals(everything)
        assert went_on(since) is (night > 0)
        facts = kept_facts(since, SnapshotFacts)
        (met,) = facts.met.values()
        expired.add(met.blob_entries_expired)
        assert min(met.blobs_expired, met.empty_maps, met.timestamps_in_the_future) > 0
        blobs = {key: blob for key, blob in state.blobs.items() if chosen.randrange(50)}
        state = state.with_changes(blobs=blobs | aging(chosen, [*chosen.sample(keys, 6), f"new-{night}"]))
    assert len(expired) == 5


def test_a_null_counts_only_as_long_as_its_blob_is_alive(tmp_path: Path) -> None:
    database = NightlyDatabase(tmp_path / "job")
    blobs = dict(first_state().blobs) | {"key-7": ({"u0": None}, NOW)}
    database.flush(first_state(ttl=True).with_changes(blobs=blobs))
    for night in (1, 2):
        source = database.checkpoint(night)
        report, since = run(source, tmp_path, night, state={"ttl_ms": 10**9}, nulls="drop")
    assert (report.is_green, went_on(since)) == (True, False)


def damaged(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-200] ^= 1
    file.write_bytes(data)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("harm", [damaged, Path.unlink])
def test_without_the_timestamps_of_the_night_before_everything_is_read(
    harm: Callable[[Path], None], tmp_path: Path
) -> None:
    _, (first, second) = nights(tmp_path, ttl=True)
    _, before = run(first, tmp_path, 1, state={"ttl_ms": 10**9})
    harm(Path(before.blob_times.path))
    report, since = run(second, tmp_path, 2, state={"ttl_ms": 10**9})
    assert (report.is_green, went_on(since), walked(since)) == (True, False, 4)


def test_a_wrong_timestamp_is_found_by_the_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, (first, second) = nights(tmp_path, ttl=True)
    run(first, tmp_path, 1, state={"ttl_ms": 10**9})

    def a_millisecond_late(times: BlobTimes, gone: BlobTimes) -> BlobTimes:
        timestamps, entries = times.joined()
        timestamps[0] += 1
        found = without(BlobTimes([(timestamps, entries)]), gone)
        assert found is not None
        return found

    without = BlobTimes.without
    monkeypatch.setattr(BlobTimes, "without", a_millisecond_late)
    with pytest.raises(RejectedError, match="failed its checks"):
        run(second, tmp_path, 2, state={"ttl_ms": 10**9})
    failed = find_run(str(tmp_path / "home"), "nights", "nights-2")
    (check,) = Report.read(failed.report).failed
    assert check.name == f"main/{LEGACY}: as the snapshot derived it"


def replaced(database: NightlyDatabase) -> None:
    """The first file is another one, with another number in each map: of the same size, under the same name."""
    file = database.files[0]
    path, size = database.path_of(file), database.path_of(file).stat().st_size
    entries = [(key, sequence, kind, flipped(value)) for key, sequence, kind, value in file.entries]
    properties = {"rocksdb.creating.session.identity": b"ANOTHER", "rocksdb.creation.time": varint(file.number)}
    path.write_bytes(Table(LEGACY, NONE).write(entries, properties))
    assert path.stat().st_size == size


def altered(database: NightlyDatabase) -> None:
    """One map in a block is another one, and the block has a new checksum: the file says the same of itself."""
    file = database.files[0]
    *_, value = file.entries[200]
    data = bytearray(database.path_of(file).read_bytes())
    position = data.index(value)
    savepoint = Savepoint.open(str(database.folder / "chk-1"))
    for opened in savepoint.open_files(savepoint.operator("main")):
        assert isinstance(opened, NativeFile)
        for table in opened.tables(0):
            (index,) = table.indexes(b"", b"\xff")
    block = int((index.offsets <= position).sum()) - 1
    begin, end = int(index.offsets[block]), int(index.offsets[block] + index.sizes[block])
    data[position : position + len(value)] = flipped(value)
    data[end + 1 : end + 5] = masked_crc32c(bytes(data[begin : end + 1]))
    database.path_of(file).write_bytes(data)


def flipped(value: bytes) -> bytes:
    """A map with another number for its last user key."""
    return value[:-1] + bytes([value[-1] ^ 1])


def test_a_file_of_the_same_name_and_size_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, (first, second) = nights(tmp_path)
    run(first, tmp_path, 1)
    replaced(database)
    report, since = run(second, tmp_path, 2)
    everything = run_on_everything(second, tmp_path, 2, monkeypatch)
    assert report.is_green
    assert facts_of(since) == facts_of(everything)
    assert (went_on(since), walked(since), totals(since)["keys_changed"]) == (False, KEYS, KEYS)


def test_a_block_that_was_altered_is_found_by_the_validation(tmp_path: Path) -> None:
    database, (first, second) = nights(tmp_path)
    run(first, tmp_path, 1)
    altered(database)
    with pytest.raises(RejectedError, match="is not what the snapshot read"):
        run(second, tmp_path, 2)
    failed = find_run(str(tmp_path / "home"), "nights", "nights-2")
    names = {check.name for check in Report.read(failed.report).failed}
    # Its tables are not written.
    assert names == {source_check.NAME}
    # After that everything is read.
    report, again = run(second, tmp_path, 3)
    assert (report.is_green, went_on(again), walked(again)) == (True, False, KEYS)
    assert totals(again)["keys_changed"] == 5


def gone(database: NightlyDatabase, _: Path) -> None:
    shutil.rmtree(database.folder / "chk-1")


def written_again(database: NightlyDatabase, _: Path) -> None:
    file = database.folder / "chk-1" / METADATA
    metadata = parse_metadata(file.read_bytes(), "_metadata")
    file.write_bytes(build_metadata(replace(metadata, checkpoint_id=7)))


def by_another_version(_: NightlyDatabase, home: Path) -> None:
    first = find_run(str(home), "nights", "nights-1")
    counted = kept_facts(first, Counted)
    first.keep(replace(counted, by="0.0"))


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("changed_since", [gone, written_again])
def test_without_the_night_before_everything_is_read(
    changed_since: Callable[[NightlyDatabase, Path], None], tmp_path: Path
) -> None:
    database, (first, second) = nights(tmp_path)
    run(first, tmp_path, 1)
    changed_since(database, tmp_path / "home")
    report, since = run(second, tmp_path, 2)
    assert (report.is_green, went_on(since), walked(since), totals(since)["keys_changed"]) == (True, False, KEYS, 4)


def test_what_another_version_counted_is_counted_again(tmp_path: Path) -> None:
    database, (first, second) = nights(tmp_path)
    run(first, tmp_path, 1)
    by_another_version(database, tmp_path / "home")
    assert not went_on(run(second, tmp_path, 2)[1])


@pytest.mark.parametrize(
    "options",
    [{"on_contradiction": "blob"}, {"keep_legacy": True}, {"parallelism": 2}, {"rehearse": False}],
    ids=lambda options: next(iter(options)),
)
def test_another_plan_reads_everything(options: dict[str, Any], tmp_path: Path) -> None:
    _, (first, second) = nights(tmp_path)
    run(first, tmp_path, 1)
    _, since = run(second, tmp_path, 2, **options)
    assert not went_on(since)


def test_a_large_change_is_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_difference, "_MOST_CHANGED", 0.01)
    _, (first, second) = nights(tmp_path)
    run(first, tmp_path, 1)
    report, since = run(second, tmp_path, 2)
    assert (report.is_green, went_on(since), walked(since)) == (True, False, KEYS)


def test_tables_that_another_writer_has_changed_are_compared_as_a_whole(tmp_path: Path) -> None:
    _, (first, second) = nights(tmp_path)
    _, before = run(first, tmp_path, 1)
    facts = kept_facts(before, TablesFacts)
    for name in facts.snapshots:
        table = TableHome(before.plan.catalog_uri, before.plan.warehouse).catalog().load_table(name)
        table.append(table.scan().to_arrow().slice(0, 0))
    report, since = run(second, tmp_path, 2)
    assert (report.is_green, went_on(since), walked(since)) == (True, True, KEYS)


def test_chunks_that_are_folded_are_read_as_a_whole(tmp_path: Path) -> None:
    _, (first, second) = nights(tmp_path)
    run(first, tmp_path, 1)
    with folding_everything():
        report, since = run(second, tmp_path, 2)
    assert (report.is_green, went_on(since), walked(since)) == (True, True, KEYS)
