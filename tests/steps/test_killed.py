"""A run that is killed at any of its effects, and given again: the end is the same, and meanwhile nobody saw half."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from flinkstate.errors import UsageError
from flinkstate.metadata.file_names import METADATA
from flinkstate.reading.reader import Savepoint
from stateferry.cli import main
from stateferry.runs.catalog.publications import Control
from stateferry.runs.checks.plan_check import resolve
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.run_list import RunSummary, runs_of
from stateferry.runs.report.report import Report
from stateferry.tables.iceberg.commits import TableHome
from stateferry.tables.iceberg.reads import read_current
from stateferry.tables.iceberg.schemas import KEY_LEDGER, MAP_ENTRY, StateTables
from stateferry.tables.versions import chunk_files
from tests.kryo.kept import kept
from tests.steps import test_catch_up, test_kept_values
from tests.support.in_process import without_spark
from tests.support.kill_points import KillPoints, Picture, watched

NOW = 1_700_000_000_000
DAY = 24 * 3600 * 1000
NAMES = ("mainState", "newMainState", "isMigratedState")
SAVEPOINTS = Path(__file__).parents[1] / "savepoints"
STATES = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState", "ttl_ms": 30 * DAY}

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_spark(monkeypatch)
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "world" / "home"))


@dataclass(frozen=True, slots=True)
class World:
    """The folder with everything that runs change, and a night's command; the sources lie beside it."""

    folder: Path
    root: Path
    source: str
    target: str
    further: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: Path, further: tuple[str, ...] = ()) -> World:
        (folder / "world").mkdir()
        world = cls(folder, folder / "world", "monday", "first", further)
        world.make_source(NOW, keys=8)
        return world

    def night(self, source: str, target: str, *further: str) -> World:
        return replace(self, source=source, target=target, further=further)

    def make_source(self, now: int, keys: int) -> None:
        sizes = ["--keys", str(keys), "--entries", "2", "--migrated", "0.4", "--parallelism", "2"]
        written = [*sizes, "--max-parallelism", "4", "--ttl", "30d", "--now", str(now)]
        assert main(["demo-savepoint", str(self.folder / self.source), *written]) == 0

    @property
    def command(self) -> list[str]:
        places = ["--savepoint", str(self.folder / self.source), "--target", str(self.root / self.target)]
        states = ["--legacy-state", "mainState", "--new-state", "newMainState", "--flag-state", "isMigratedState"]
        rest = ["--operator", "main", "--job", "clicks", "--ttl", "30d", "--now", str(NOW)]
        return ["run", *places, *states, *rest, *self.further]

    @property
    def home(self) -> TableHome:
        home = self.root / "home"
        return TableHome(f"sqlite:///{home}/catalog.db", f"{home}/warehouse")

    @property
    def has_catalog(self) -> bool:
        return (self.root / "home" / "catalog.db").exists()

    def savepoint(self) -> dict[str, bytes]:
        target = self.root / self.target
        return {path.name: path.read_bytes() for path in target.iterdir()} if target.exists() else {}

    def current_rows(self) -> list[str]:
        """As the new state has them, by the tables' main."""
        values = {"source": str(self.folder / self.source), "target": str(self.root / self.target), "job": "clicks"}
        plan = plan_of({**values, "now": NOW, "operators": [{"operator": "main", "states": [STATES]}]})
        rules = resolve(plan, Savepoint.open(plan.source)).operators[0].rules[0]
        if not self.has_catalog:
            return []
        try:
            files = chunk_files(self.home, StateTables("clicks", "main", "newMainState"))
        except (NoSuchTableError, NoSuchNamespaceError):
            return []
        except UsageError as error:
            # Created a moment ago, and nothing was written yet.
            if "has no branch 'main'. There are: " not in str(error):
                raise
            return []
        rows = (row for chunk in files for batch in read_current(chunk, rules) for row in batch.to_pylist())
        return sorted(map(repr, rows))

    def all_rows(self) -> dict[str, list[str]]:
        """Of both tables, with what is not current any more."""
        catalog = self.home.catalog()
        tables = StateTables("clicks", "main", "newMainState")
        return {
            name: sorted(map(repr, catalog.load_table(tables.identifier(name)).scan().to_arrow().to_pylist()))
            for name in (MAP_ENTRY, KEY_LEDGER)
        }

    def published(self) -> tuple[int, str, str] | None:
        if not self.has_catalog:
            return None
        with Control(self.home.catalog_uri) as control:
            standing = control.standing("clicks")
        if standing is None:
            return None
        return standing.sequence, standing.record.target, standing.record.metadata_digest

    def newest_report(self) -> Report:
        return Report.read(runs_of(str(self.root / "home"), "clicks")[0].folder.child("report.json"))

    def result(self) -> dict[str, Any]:
        return {"savepoint": self.savepoint(), "rows": self.all_rows(), "published": self.published()}


@dataclass(frozen=True, slots=True)
class Night:
    """What stood before a run and after it, undisturbed."""

    world: World
    rows_before: list[str]
    rows_after: list[str]
    published_before: tuple[int, str, str] | None
    after: dict[str, Any]
    points: KillPoints

    @classmethod
    def undisturbed(cls, world: World) -> Night:
        rows_before, published_before = world.current_rows(), world.published()
        with watched(world.root) as points:
            assert main(world.command) == 0
        return cls(world, rows_before, world.current_rows(), published_before, world.result(), points)

    def has_folded(self) -> bool:
        """Whether there is nothing left of the nights before."""
        (migrated,) = self.world.newest_report().facts["tables"]["counts"].values()
        return len(self.after["rows"][KEY_LEDGER]) == int(migrated["keys walked"])

    def check_what_readers_see(self) -> None:
        """All as before, or all as after; a savepoint only once its publication stands, rows once a report is green."""
        found = self.world.savepoint()
        published = self.world.published()
        assert published in (self.published_before, self.after["published"])
        if METADATA in found:
            assert published is not None
            assert published == self.after["published"]
            assert {name: data for name, data in found.items() if name in self.after["savepoint"]} == (
                self.after["savepoint"]
            )
            assert hashlib.sha256(found[METADATA]).hexdigest() == published[2]
        rows = self.world.current_rows()
        assert rows in (self.rows_before, self.rows_after)
        if rows == self.rows_after != self.rows_before:
            assert self.world.newest_report().is_green

    def check_again(self, killed: Picture, number: int, capsys: pytest.CaptureFixture[str]) -> None:
        code = main(self.world.command)
        said = capsys.readouterr()
        assert code == 0, f"killed before effect {number}, {killed.effect}: {said.err}"
        assert self.world.result() == self.after, f"killed before effect {number}, {killed.effect}"

    def check_killed_at(self, killed: Picture, number: int, capsys: pytest.CaptureFixture[str]) -> None:
        killed.restore(self.world.root)
        self.check_what_readers_see()
        self.check_again(killed, number, capsys)


def in_the_middle_of_a_file(picture: Picture) -> bool:
    return picture.effect.startswith("write") and picture.effect.endswith((".parquet", ".avro"))


@pytest.fixture
def every(pytestconfig: pytest.Config) -> int:
    """Of so many moments to be killed at, one is tried."""
    return 1 if pytestconfig.getoption("--all") else 45


@pytest.fixture
def first_night(tmp_path: Path) -> Night:
    return Night.undisturbed(World.of(tmp_path, ("--parallelism", "3")))


@pytest.mark.timeout(600)
def test_first_run_killed_before_any_of_its_effects(
    first_night: Night, every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    points = first_night.points
    kinds = {"create", "write", "close", "open to write", "os.rename", "make folder", "commit"}
    assert kinds <= points.effects.keys()
    assert first_night.rows_before != first_night.rows_after
    for number, picture in points.chosen(every):
        first_night.check_killed_at(picture, number, capsys)


@pytest.mark.timeout(600)
def test_run_with_a_native_result_killed_before_any_of_its_effects(
    tmp_path: Path, every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    night = Night.undisturbed(World.of(tmp_path, ("--parallelism", "3", "--format", "native")))
    assert any(name.endswith(".sst") for name in night.after["savepoint"])
    for number, picture in night.points.chosen(every * 2):
        if not in_the_middle_of_a_file(picture):
            night.check_killed_at(picture, number, capsys)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("version", "to"), [("2.3.0", "same"), ("1.20.0", "flink-2")])
def test_run_with_values_that_stay_kryos_killed_before_any_of_its_effects(
    version: str, to: str, tmp_path: Path, every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    root, source, one = tmp_path / "world", tmp_path / "source", kept(version)["things of keys"]
    root.mkdir()
    test_kept_values.write(source, one)
    states = ["--operator", "main", "--legacy-state", "totals", "--new-state", "entries"]
    command = ["run", "--savepoint", str(source), "--target", str(root / "target"), *states, "--now", str(NOW)]
    command += ["--job", "clicks", "--classes", str(test_kept_values.JAR), "--parallelism", "3", "--to", to]
    check_killed(command, root, every, capsys)
    if to == "same":
        test_kept_values.assert_rows(root / "target", one)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("golden", "to", "version"),
    [
        ("hint-hash-map-ttl-1.20-rocksdb", "flink-2", 6),
        pytest.param("hint-map-ttl-2.3-hashmap", "flink-1.20", 4, marks=pytest.mark.full),
    ],
)
def test_run_for_another_flink_killed_before_any_of_its_effects(
    golden: str, to: str, version: int, tmp_path: Path, every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    root, source = tmp_path / "world", SAVEPOINTS / golden
    root.mkdir()
    command = ["run", "--savepoint", str(source), "--target", str(root / "target"), "--to", to]
    check_killed([*command, "--job", "clicks", "--max-parallelism", "64", "--now", str(NOW)], root, every, capsys)
    assert Savepoint.open(str(root / "target")).metadata.version == version


REPAIRED = ["--before", str(SAVEPOINTS / "hint-hash-map-1.20-rocksdb"), "--restore-lost"]
REHASHED = ["--declared", "kinds/(key)=Tuple3<Integer, String, Tuple2<Long, String>>", "--parallelism", "3"]
COLLECTIONS = ["--classes", str(SAVEPOINTS.parent / "kryo" / "collection-classes.jar"), "--parallelism", "3"]


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("golden", "options", "said"),
    [
        ("upgraded-hint-hash-map-2.3-rocksdb", REPAIRED, "mainState: entries with those that the upgrade lost"),
        ("scala-keys-1.20-rocksdb", REHASHED, "map-state: carried over, written by Flink's own serializers"),
        ("in-collections-1.20-rocksdb", COLLECTIONS, "split: elements read plainly"),
    ],
    ids=["repair", "keys by flink-scala", "operator state"],
)
def test_other_run_for_flink_2_killed_before_any_of_its_effects(
    golden: str, options: list[str], said: str, tmp_path: Path, every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "world"
    root.mkdir()
    command = ["run", "--savepoint", str(SAVEPOINTS / golden), "--target", str(root / "target"), "--to", "flink-2"]
    check_killed([*command, *options, "--job", "clicks", "--now", str(NOW)], root, every, capsys)
    # It was the run that it is meant to be.
    checks = Report.read(runs_of(str(root / "home"), "clicks")[0].folder.child("report.json")).checks
    assert [check for check in checks if check.name.endswith(said)]


def check_killed(
    command: list[str],
    root: Path,
    every: int,
    capsys: pytest.CaptureFixture[str],
    result: Callable[[], Path] | None = None,
) -> None:
    """After a kill before any of its effects the command makes the same savepoint as undisturbed."""
    with watched(root) as points:
        assert main(command) == 0

    def found() -> dict[str, bytes]:
        folder = root / "target" if result is None else result()
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    undisturbed = found()
    for number, picture in points.chosen(every * 2):
        if not in_the_middle_of_a_file(picture):
            picture.restore(root)
            capsys.readouterr()
            assert main(command) == 0, f"killed before effect {number}, {picture.effect}: {capsys.readouterr().err}"
            assert found() == undisturbed, f"killed before effect {number}, {picture.effect}"


@pytest.mark.full
@pytest.mark.timeout(600)
def test_catch_up_killed_before_any_of_its_effects(
    tmp_path: Path, every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = test_catch_up.two(tmp_path)
    root, command = catching_up(tmp_path)
    assert main([*command, "--savepoint", str(first), "--rehearse"]) == 0
    (base,) = runs_of(str(root / "home"), "clicks")
    check_killed([*command, "--savepoint", str(second), "--since", base.run_id], root, every, capsys)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_catch_up_that_joins_newer_files_killed_before_any_of_its_effects(
    tmp_path: Path, every: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flinkstate.writing.newer_files.JOINED_FROM", 1)
    first, second = test_catch_up.two(tmp_path)
    root, command = catching_up(tmp_path)
    assert main([*command, "--savepoint", str(first), "--rehearse"]) == 0

    def newest() -> RunSummary:
        return runs_of(str(root / "home"), "clicks")[0]

    assert main([*command, "--savepoint", str(second), "--since", newest().run_id, "--rehearse"]) == 0
    # Nothing has changed since, but for what is in the newer file.
    again = [*command, "--savepoint", str(second), "--since", newest().run_id, "--rehearse"]
    check_killed(again, root, every, capsys, lambda: Path(newest().staged.path))
    said = Report.read(newest().report).checks
    assert any("newer file" in check.actual for check in said if check.name == "main: above the base")


def catching_up(folder: Path) -> tuple[Path, list[str]]:
    """The folder in which runs are, and what their commands have in common."""
    root = folder / "world"
    root.mkdir()
    states = ["--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState"]
    command = ["run", "--target", str(root / "target"), *states, "--flag-state", "isMigratedState", "--job", "clicks"]
    return root, [*command, "--format", "native", "--no-timers", "--now", str(NOW)]


@pytest.mark.full
@pytest.mark.timeout(600)
def test_lazy_run_killed_before_any_of_its_effects_moves_the_same_keys(
    tmp_path: Path, every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    night = Night.undisturbed(World.of(tmp_path, ("--lazy", "--share", "40%")))
    target = Savepoint.open(str(night.world.root / night.world.target))
    assert {one.name for one in target.keyed_states(target.operator("main"))} == set(NAMES)
    (choice,) = night.world.newest_report().facts["snapshot"]["lazy"]
    assert 0 < choice["moved"] < choice["left"]
    for number, picture in night.points.chosen(every * 2):
        if not in_the_middle_of_a_file(picture):
            night.check_killed_at(picture, number, capsys)
            (again,) = night.world.newest_report().facts["snapshot"]["lazy"]
            assert again == choice


def _second_nights(tmp_path: Path) -> Iterator[World]:
    world = World.of(tmp_path)
    assert main(world.command) == 0
    tuesday = world.night("tuesday", "second")
    tuesday.make_source(NOW, keys=11)
    yield tuesday
    yield world.night("tuesday", "third", "--max-parallelism", "300")
    # Now there is enough of a past to fold.
    # All nights have one time as now, by which the later savepoints are of the future.
    ahead = ("--clock-tolerance", "3d")
    wednesday, thursday = world.night("wednesday", "fourth", *ahead), world.night("thursday", "fifth", *ahead)
    for days, night in enumerate((wednesday, thursday), 1):
        night.make_source(NOW + days * DAY, keys=11)
    assert main(wednesday.command) == 0
    yield thursday


@pytest.mark.full
@pytest.mark.timeout(600)
def test_run_after_another_killed_before_any_of_its_effects(
    tmp_path: Path, every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    # Other nights differ from one that goes on in little: a part of their effects will do.
    for world, times, folds in zip(_second_nights(tmp_path), (2, 4, 3), (False, False, True), strict=True):
        night = Night.undisturbed(world)
        assert night.has_folded() == folds
        undisturbed = Picture.of(world.root)
        assert night.published_before is not None
        for number, picture in night.points.chosen(every * times):
            if not in_the_middle_of_a_file(picture):
                night.check_killed_at(picture, number, capsys)
        undisturbed.restore(world.root)


@pytest.mark.full
def test_run_killed_twice(first_night: Night, every: int, capsys: pytest.CaptureFixture[str]) -> None:
    first = first_night.points.pictures
    for number in range(5, len(first), len(first) // (6 if every == 1 else 2)):
        first[number].restore(first_night.world.root)
        with watched(first_night.world.root) as again:
            assert main(first_night.world.command) == 0
        step = max(1, len(again.pictures) // 4)
        for second in range(step // 2, len(again.pictures), step):
            first_night.check_killed_at(again.pictures[second], second, capsys)


def test_nothing_is_left_to_do_for_the_same_command(first_night: Night) -> None:
    before = Picture.of(first_night.world.root).content
    assert main(first_night.world.command) == 0
    assert Picture.of(first_night.world.root).content == before


def _standing_target(world: World) -> str:
    published = world.published()
    return Path(published[1]).name if published else ""


def _free_the_lease(world: World) -> None:
    """As a minute does after its holder was killed."""
    with Control(world.home.catalog_uri) as control:
        if (held := control.lease_of("clicks")) is not None:
            control.release(held)


def test_rollback_killed_before_any_of_its_effects(
    tmp_path: Path, every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    first = World.of(tmp_path)
    second = first.night("monday", "second")
    for night in (first, second):
        assert main(night.command) == 0
    with watched(first.root) as points:
        assert main(["rollback", "--job", "clicks"]) == 0
    # When its run is said to be rolled back, the rollback is over: the next one is another.
    last = max(number for number, one in enumerate(points.pictures) if one.effect.startswith("os.rename"))
    for number, picture in points.chosen(every):
        if number > last:
            break
        picture.restore(first.root)
        assert _standing_target(first) in ("first", "second")
        _free_the_lease(first)
        capsys.readouterr()
        assert main(["rollback", "--job", "clicks"]) == 0
        assert capsys.readouterr().out.endswith(f"restore the job from {first.folder}/monday\n")
        assert _standing_target(first) == "first", f"killed before {picture.effect}"


def test_publication_that_was_killed_as_it_stood_can_be_rolled_back_and_back_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Night.undisturbed(World.of(tmp_path))
    killed = next(one for one in first.points.pictures if one.effect.startswith("open to write first/_metadata"))
    killed.restore(first.world.root)
    assert _standing_target(first.world) == "first"
    _free_the_lease(first.world)
    assert main(["rollback", "--job", "clicks"]) == 0
    assert first.world.published() is None
    assert METADATA not in first.world.savepoint()

    killed.restore(first.world.root)
    _free_the_lease(first.world)
    assert main(first.world.night("monday", "second").command) == 0
    assert main(["rollback", "--job", "clicks"]) == 0
    assert capsys.readouterr().out.endswith(f"restore the job from {first.world.folder}/monday\n")
    assert first.world.savepoint() == first.after["savepoint"]


def test_another_file_in_the_earlier_target_keeps_no_job_from_going_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = World.of(tmp_path)
    second = first.night("monday", "second")
    for night in (first, second):
        assert main(night.command) == 0
    (first.root / "first" / METADATA).write_bytes(b"other")
    assert main(["rollback", "--job", "clicks"]) == 0
    told = capsys.readouterr().out
    assert "note: of what stands again: " in told
    assert told.endswith(f"restore the job from {first.folder}/monday\n")
    assert _standing_target(first) == "first"


@pytest.mark.full
def test_rehearsal_killed_before_any_of_its_effects(
    tmp_path: Path, every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World.of(tmp_path, ("--rehearse",))
    with watched(world.root) as points:
        assert main(world.command) == 0
    rows = world.current_rows()
    for _, picture in points.chosen(every):
        if in_the_middle_of_a_file(picture):
            continue
        picture.restore(world.root)
        code = main(world.command)
        assert code == 0, f"killed before {picture.effect}: {capsys.readouterr().err}"
        assert world.current_rows() == rows
        assert world.published() is None
        assert world.savepoint() == {}
