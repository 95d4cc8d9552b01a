"""What cleaning removes, and above all what it leaves."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.metadata.file_names import METADATA, claim_name
from flinkstate.reading.reader import Savepoint
from stateferry.basics.durations import now_ms
from stateferry.cli import main
from stateferry.runs.catalog.publications import Control, Record
from stateferry.runs.control.cleaning import Cleaning, Retention
from stateferry.runs.control.outage_limit import StopAsked
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.facts import Began
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.report.decision import Answer, Decision
from stateferry.tables.iceberg.commits import branch_of
from stateferry.tables.iceberg.schemas import KEY_LEDGER, MAP_ENTRY, StateTables
from tests.steps.test_killed import NOW, World
from tests.support.in_process import without_spark
from tests.support.kill_points import Picture, watched

DAY = 86_400_000
EVERYTHING_OLD = ["clean", "--keep", "0", "--older-than", "0s"]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    without_spark(monkeypatch)
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "world" / "home"))
    return World.of(tmp_path)


def runs(world: World) -> list[str]:
    folder = world.root / "home" / "runs" / "clicks"
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


def published_nights(world: World, count: int) -> list[World]:
    """Each of more keys than the one before."""
    nights = []
    for number in range(count):
        night = world.night(f"night-{number}", f"target-{number}")
        night.make_source(NOW, keys=8 + number)
        assert main(night.command) == 0
        nights.append(night)
    return nights


def lease_runs_out(world: World) -> None:
    """As it does a minute after its holder was killed."""
    with Control(world.home.catalog_uri) as control:
        if (held := control.lease_of("clicks")) is not None:
            control.release(held)


def killed_before(world: World, effect: str) -> None:
    """Leaves what a run does that was killed before an effect of this kind."""
    with watched(world.root) as points:
        assert main(world.command) == 0
    next(picture for picture in points.pictures if re.search(effect, picture.effect)).restore(world.root)
    lease_runs_out(world)


def planned(home: Path, run_id: str, at: int = NOW, **more: object) -> Run:
    state = {"legacy": "mainState", "new": "newMainState"}
    values = {"job": "clicks", "source": "/in", "target": f"{home}/out", "home": str(home), "run_id": run_id}
    return Run.create(plan_of({**values, "operators": [{"operator": "main", "states": [state]}], **more}), at)


def left_by_cleaning(home: Path, older_than: int = 0, *, days_later: int = 0) -> list[str]:
    """The runs that stay."""
    catalog = f"sqlite:///{home}/catalog.db"
    with Control(catalog) as control:
        rule = Retention(newest=0, younger_than_ms=older_than)
        list(Cleaning(str(home), "clicks", control, catalog, rule, now_ms() + 1 + days_later * DAY).clean())
    return sorted(run.run_id for run in runs_of(str(home), "clicks"))


def test_a_day_of_long_ago_is_as_old_as_its_run(tmp_path: Path) -> None:
    planned(tmp_path, "backfill__1", now_ms() - 100 * DAY)
    assert left_by_cleaning(tmp_path, 14 * DAY) == ["backfill__1"]
    assert left_by_cleaning(tmp_path, 14 * DAY, days_later=13) == ["backfill__1"]
    assert left_by_cleaning(tmp_path, 14 * DAY, days_later=15) == []


@pytest.mark.parametrize("answer", [Answer.ASKED, Answer.APPROVED])
def test_the_rehearsal_of_a_cut_over_stays_with_its_catch_ups(tmp_path: Path, answer: Answer) -> None:
    """The cut-over waits with them for its time, and only the rehearsal knows the way back once the job was stopped."""
    # The cut-over builds on the rehearsal that was made again. A catch-up by hand is of no DAG run.
    kept = [
        "manual__1.rehearsal-0a1b2c", "manual__1.rehearsal-0a1b2c.catch_up_1", "manual__1.rehearsal_again-4e5f6a",
        "manual__1.rehearsal_again-4e5f6a.catch_up_1-3d4e5f",
    ]  # fmt: skip
    for run_id in (*kept, "manual__2.rehearsal"):
        run = planned(tmp_path, run_id, rehearse=True)
        if not run_id.endswith("catch_up_1"):
            run.keep(Began(NOW, "state_migration", run_id[:9]))
    rehearsal, *_, other = (Run.open(run.folder) for run in reversed(runs_of(str(tmp_path), "clicks")))
    rehearsal.keep(Decision(rehearsal.plan.run_id, answer))
    other.keep(Decision(other.plan.run_id, Answer.REJECTED, "rejected by ada"))
    assert left_by_cleaning(tmp_path) == kept
    assert left_by_cleaning(tmp_path, days_later=13) == kept
    # Nobody knows of a cut-over that was given up.
    assert left_by_cleaning(tmp_path, days_later=15) == []


def test_a_try_of_the_schedule_is_not_forgotten(tmp_path: Path) -> None:
    """The next night would stop the job again."""
    for run_id, rehearse in (("scheduled__1", False), ("scheduled__2", True), ("scheduled__3", True)):
        planned(tmp_path, run_id, rehearse=rehearse, catalog_uri=f"sqlite:///{tmp_path}/catalog.db")
    stopped = Run.open(next(run.folder for run in runs_of(str(tmp_path), "clicks") if run.run_id == "scheduled__2"))
    stopped.keep(StopAsked(NOW))
    assert left_by_cleaning(tmp_path, days_later=90) == ["scheduled__1", "scheduled__2"]
    record = Record(
        run_id="scheduled__1", plan_fingerprint="", source="/in", checkpoint_id=1, target=f"{tmp_path}/out",
        metadata_digest="", tables={},
    )  # fmt: skip
    with Control(stopped.plan.catalog_uri) as control:
        lease = control.acquire("clicks", "scheduled__1")
        control.rollback(lease, undo=control.publish(lease, record, replaces=None).sequence)
        control.release(lease)
    # Now the catalog says so.
    assert left_by_cleaning(tmp_path, days_later=90) == []


@pytest.mark.slow
def test_what_is_published_stays_and_what_a_rollback_brings_back(world: World) -> None:
    nights = published_nights(world, 3)
    savepoints = [night.savepoint() for night in nights]
    rows, published = nights[2].current_rows(), world.published()
    all_runs = runs(world)
    with Control(world.home.catalog_uri) as control:
        protected = sorted(control.protected_runs("clicks"))
        history = control.history("clicks")
    assert main(EVERYTHING_OLD) == 0
    assert runs(world) == protected
    assert len(all_runs) == 3
    assert len(protected) == 2
    assert [night.savepoint() for night in nights] == savepoints
    assert nights[2].current_rows() == rows
    assert world.published() == published
    catalog = world.home.catalog()
    for one in history[1:]:
        for name, snapshot in one.record.tables.items():
            table = catalog.load_table(tuple(name.split(".")))
            assert table.scan(snapshot_id=snapshot).to_arrow().num_rows > 0
    for name in history[0].record.tables:
        assert branch_of(history[0].record.run_id) not in catalog.load_table(tuple(name.split("."))).refs()


@pytest.mark.slow
def test_rollback_and_the_next_night_work_after_cleaning(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    nights = published_nights(world, 2)
    assert main(EVERYTHING_OLD) == 0
    capsys.readouterr()
    assert main(["rollback", "--job", "clicks"]) == 0
    assert capsys.readouterr().out.endswith(f"restore the job from {world.folder}/{nights[1].source}\n")
    wednesday = world.night("wednesday", "wednesday-target")
    wednesday.make_source(NOW, keys=12)
    assert main(wednesday.command) == 0
    assert len(wednesday.current_rows()) == 24
    Savepoint.open(str(world.root / "wednesday-target"))


@pytest.mark.slow
def test_state_files_of_a_run_that_never_published_go(world: World) -> None:
    killed_before(world, r"^open to write .*to-publish")
    assert world.savepoint() != {}
    assert METADATA not in world.savepoint()
    assert main(EVERYTHING_OLD) == 0
    assert not (world.root / world.target).exists()
    assert runs(world) == []
    assert main(world.command) == 0
    assert METADATA in world.savepoint()


@pytest.mark.slow
def test_state_files_that_are_another_runs_by_now_stay(world: World) -> None:
    killed_before(world, r"^open to write .*to-publish")
    # Another command, which may not go on there, but names the same target.
    other = replace(world, further=("--keep-legacy",))
    assert main(other.command) == 2
    assert world.savepoint() != {}
    assert main([*EVERYTHING_OLD, "--dry-run"]) == 0
    assert world.savepoint() != {}
    assert main(["clean", "--keep", "1", "--older-than", "0s"]) == 0
    assert world.savepoint() != {}


@pytest.mark.full
@pytest.mark.slow
def test_state_files_that_another_jobs_run_has_claimed_since_stay(world: World) -> None:
    """Somebody has removed the files of the run that failed, and another job's run writes there now."""
    killed_before(world, r"^open to write .*to-publish")
    target = world.root / world.target
    (claim,) = target.glob("*.claim")
    claim.rename(target / claim_name("run-of-another-job"))
    files = world.savepoint()
    assert main(EVERYTHING_OLD) == 0
    assert runs(world) == []
    assert world.savepoint() == files


@pytest.mark.slow
def test_runs_of_another_catalog_stay(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    published_nights(world, 1)
    before = Picture.of(world.root).content
    assert main([*EVERYTHING_OLD, "--catalog", f"sqlite:///{world.root}/other.db"]) == 0
    after = Picture.of(world.root).content
    assert {name for name, data in after.items() if data != before.get(name)} == {"other.db"}
    assert before.keys() <= after.keys()
    assert f"because only {world.home.catalog_uri} knows what is published" in capsys.readouterr().err


@pytest.mark.slow
def test_files_that_no_snapshot_names_go(world: World) -> None:
    killed_before(world, r"^create .*key_ledger/metadata/00002")
    data = world.root / "home" / "warehouse"
    orphans = set(data.rglob("*.parquet"))
    assert orphans
    assert main(world.command) == 0
    rows = world.all_rows()
    assert orphans < set(data.rglob("*.parquet"))
    assert main(EVERYTHING_OLD) == 0
    assert world.all_rows() == rows
    catalog, tables = world.home.catalog(), StateTables("clicks", "main", "newMainState")
    named = {
        task.file.file_path.removeprefix("file://")
        for name in (MAP_ENTRY, KEY_LEDGER)
        for task in catalog.load_table(tables.identifier(name)).scan().plan_files()
    }
    assert {str(path) for path in data.rglob("*.parquet")} == named


@pytest.mark.slow
def test_rehearsals_go_with_their_staged_savepoints(world: World) -> None:
    rehearsal = replace(world, further=("--rehearse",))
    assert main(rehearsal.command) == 0
    assert list((world.root / "home" / "runs").rglob(METADATA))
    assert main(EVERYTHING_OLD) == 0
    assert runs(world) == []
    assert main(rehearsal.command) == 0


@pytest.mark.full
@pytest.mark.slow
def test_what_is_young_stays(world: World) -> None:
    published_nights(world, 3)
    before = Picture.of(world.root).content
    assert main(["clean", "--keep", "0"]) == 0
    after = Picture.of(world.root).content
    assert {name for name, data in after.items() if data != before.get(name)} == {"home/catalog.db"}


@pytest.mark.slow
def test_the_newest_runs_stay(world: World) -> None:
    published_nights(world, 4)
    newest = [one.run_id for one in runs_of(str(world.root / "home"), "clicks")][:3]
    assert main(["clean", "--keep", "3", "--older-than", "0s"]) == 0
    assert runs(world) == sorted(newest)


@pytest.mark.full
@pytest.mark.slow
def test_dry_run_says_all_and_removes_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    published_nights(world, 3)
    before = Picture.of(world.root).content
    capsys.readouterr()
    assert main([*EVERYTHING_OLD, "--dry-run"]) == 0
    would = capsys.readouterr().out
    assert Picture.of(world.root).content == before
    assert main(EVERYTHING_OLD) == 0
    assert capsys.readouterr().out.count("removed run") == would.count("would remove run") == 1


@pytest.mark.slow
def test_nothing_is_removed_while_a_run_is_at_work(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    published_nights(world, 3)
    with Control(world.home.catalog_uri) as control:
        control.acquire("clicks", "at-work")
        before = Picture.of(world.root).content
        assert main(EVERYTHING_OLD) == 1
        assert "run at-work" in capsys.readouterr().err
    assert Picture.of(world.root).content == before


@pytest.mark.full
@pytest.mark.slow
def test_another_jobs_tables_and_runs_stay(world: World) -> None:
    assert main(world.command) == 0
    other = [*world.night("monday", "other").command, "--job", "clicks-of-others"]
    assert main(other) == 0
    assert main([*other, "--target", str(world.root / "more"), "--keep-legacy"]) == 0
    before = {name: data for name, data in Picture.of(world.root).content.items() if "clicks-of-others" in name}
    assert main([*EVERYTHING_OLD, "--job", "clicks"]) == 0
    after = {name: data for name, data in Picture.of(world.root).content.items() if "clicks-of-others" in name}
    assert after == before


@pytest.mark.full
@pytest.mark.slow
def test_cleaning_killed_before_any_of_its_effects(world: World, pytestconfig: pytest.Config) -> None:
    nights = published_nights(world, 3)
    killed_before(world.night("night-2", "left-behind", "--keep-legacy"), r"^open to write .*to-publish")
    rows, savepoints = nights[2].current_rows(), [night.savepoint() for night in nights]
    with watched(world.root) as points:
        assert main(EVERYTHING_OLD) == 0
    left = runs(world)
    assert points.effects["remove"] > 10
    for _, picture in points.chosen(1 if pytestconfig.getoption("--all") else 5):
        picture.restore(world.root)
        lease_runs_out(world)
        assert main(EVERYTHING_OLD) == 0
        assert runs(world) == left
        assert nights[2].current_rows() == rows
        assert [night.savepoint() for night in nights] == savepoints
