"""Runs whose savepoints, run folders, staging and warehouse are on S3 or HDFS alone; only the catalog is a database."""

from __future__ import annotations

import json
import threading

import pytest

from flinkstate.errors import RefusedError, StateferryError, TransientError
from flinkstate.files import stores
from flinkstate.files.storage import Location
from flinkstate.files.unfinished_uploads import unfinished_uploads
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.write_behind import WriteBehind
from stateferry.cli import main
from stateferry.runs.catalog.publications import Control
from stateferry.runs.record.run_list import find_run, runs_of
from stateferry.runs.record.run_states import RunState, StateChange
from stateferry.runs.record.runs import Run
from stateferry.show import run_rows
from stateferry.show.run_rows import RunRow, RunRows
from stateferry.show.run_view import RunView
from tests.stores.area import BEGUN, STATES, Area, on_s3
from tests.support.legacy_states import NEW
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.slow


def rows_of(savepoint: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert main(["dump", savepoint, "--operator", "main", "--state", NEW]) == 0
    return sorted(capsys.readouterr().out.splitlines())


@pytest.mark.matrix(most=1)
def test_a_run_on_a_store_does_what_one_on_disk_does(
    area: Area, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    area.source()
    assert main(area.run()) == 0
    said = capsys.readouterr()
    assert f"published: restore the new job from {area.at('target')}" in said.out
    (summary,) = runs_of(area.at("home"))
    assert summary.state is RunState.PUBLISHED
    assert main(["report", summary.run_id, "--job", "main"]) == 0
    assert main(["status"]) == 0
    assert area.at("target") in capsys.readouterr().out
    # No credentials in what is kept, and none in what is said.
    kept = [
        entry.location.read()
        for folder in ("home", "target")
        for entry in Location.of(area.at(folder)).listed(recursive=True)
        if not entry.is_folder
    ]
    for secret in (S3Server.secret, S3Server.key):
        assert not any(secret.encode() in content for content in (*kept, (area.folder / "catalog.db").read_bytes()))
        assert secret not in said.out + said.err
    on_store = rows_of(area.at("target"), capsys)

    local = area.folder / "local"
    BEGUN.write(str(local / "source"))
    monkeypatch.setenv("STATEFERRY_HOME", str(local / "home"))
    monkeypatch.delenv("STATEFERRY_CATALOG")
    assert main(["run", "--savepoint", str(local / "source"), "--target", str(local / "target"), *STATES]) == 0
    assert rows_of(str(local / "target"), capsys) == on_store
    assert len(on_store) == 2 + sum(n % 5 for n in range(300))


@pytest.mark.full
@pytest.mark.parametrize(
    "more", [("--format", "native"), ("--max-parallelism", "200", "--parallelism", "3"), ("--lazy", "--share", "50%")]
)
def test_other_ways_to_write_on_a_store(area: Area, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    area.source()
    assert main(area.run(*more)) == 0, capsys.readouterr().err
    Savepoint.open(area.at("target"))
    # A second night, which follows the first one's tables, and goes back.
    BEGUN.with_changes(checkpoint_id=2).write(area.at("next"))
    command = ["run", "--savepoint", area.at("next"), "--target", area.at("target 2"), *STATES, *more]
    assert main(command) == 0, capsys.readouterr().err
    assert main(["rollback", "--job", "main"]) == 0
    assert f"restore the job from {area.at('next')}\n" in capsys.readouterr().out


@on_s3
def test_a_file_that_is_too_large_for_the_store_is_refused(
    area: Area, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    area.source()
    with monkeypatch.context() as patch:
        patch.setattr(stores, "_S3_FILE_BYTES", 4_000)
        assert main(area.run()) == 2
        assert "may have at most 4,000 bytes, and that of a subtask of main would have" in capsys.readouterr().err
        assert not Location.of(area.at("target")).exists()
        # The estimate may be wrong.
        with pytest.raises(RefusedError, match="the store takes at most 4,000 bytes in a file"):
            Location.of(area.at("file")).write_atomically(bytes(4_001))
    assert main(area.run()) == 0


def test_a_home_on_a_store_needs_a_catalog_elsewhere(
    area: Area, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    area.source()
    monkeypatch.delenv("STATEFERRY_CATALOG")
    for command in (area.run(), ("status",), ("clean",)):
        assert main(command) == 2
        assert "can't hold a catalog in SQLite: name a Postgres database in STATEFERRY_CATALOG" in (
            capsys.readouterr().err
        )
    assert Location.of(area.at("home")).entries() == []


@on_s3
@pytest.mark.parametrize("what", ["target", "home", "next_in"])
def test_a_bucket_that_is_missing_is_found_before_anything_is_done(
    area: Area, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    area.source(name="savepoints/source")
    missing = "s3://no-such-bucket-at-all/folder"
    if what == "home":
        monkeypatch.setenv("STATEFERRY_HOME", missing)
    target = area.at("target") if what == "home" else missing
    savepoint = ["--savepoint", area.at("savepoints/source")]
    begin = ["--next-in", area.at("savepoints"), "--job", "orders"] if what == "next_in" else savepoint
    assert main(["run", *begin, "--target", target, *STATES]) == 2
    said = capsys.readouterr()
    assert f"{missing}: there is no bucket no-such-bucket-at-all" in said.err.replace("/warehouse", "")
    assert "now stop the job" not in said.out
    assert not Location.of(area.at("home")).entries()


@on_s3
def test_the_target_is_no_part_of_the_source_by_another_name(area: Area, capsys: pytest.CaptureFixture[str]) -> None:
    source = area.source()
    inside = f"s3a:{source.removeprefix('s3:')}/target"
    assert main(["run", "--savepoint", source, "--target", inside, *STATES]) == 2
    assert "contain the other" in capsys.readouterr().err


@pytest.mark.matrix(most=1)
def test_two_who_change_a_run_at_once_lose_nothing(area: Area) -> None:
    """On a store a file can't be locked, so they wait for the job's lease in the catalog."""
    area.source()
    assert main(area.run("--rehearse")) == 0
    (summary,) = runs_of(area.at("home"))
    run = Run.open(summary.folder)
    second = threading.Thread(target=lambda: Run.open(summary.folder).note(RunState.REJECTED, 2, "by a person"))
    read = Run.changes

    def slowly(self: Run) -> tuple[StateChange, ...]:
        found = read(self)
        if not second.ident:
            second.start()
            second.join(1.0)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "changes", slowly)
        run.note(RunState.FAILED, 1, "lost")
    second.join()
    assert [(one.state, one.reason) for one in run.changes()][-2:] == [
        (RunState.FAILED, "lost"),
        (RunState.REJECTED, "by a person"),
    ]


@pytest.mark.matrix(most=1)
def test_the_metadata_is_the_last_put_and_what_came_before_counts_for_nothing(
    area: Area, monkeypatch: pytest.MonkeyPatch
) -> None:
    area.source()
    put: list[str] = []
    create = Location.create

    def noted(self: Location) -> object:
        put.append(self.shown)
        if self.shown == f"{area.at('target')}/_metadata":
            raise StateferryError("killed")
        return create(self)

    with monkeypatch.context() as patch:
        patch.setattr(Location, "create", noted)
        assert main(area.run()) != 0
    to_target = [name for name in put if name.startswith(area.at("target"))]
    assert to_target[-1].endswith("/_metadata")
    with pytest.raises(StateferryError):
        Savepoint.open(area.at("target"))
    assert main(area.run()) == 0
    Savepoint.open(area.at("target"))


@pytest.mark.full
@on_s3
def test_cleaning_aborts_uploads_that_were_never_completed(area: Area, capsys: pytest.CaptureFixture[str]) -> None:
    area.source()
    assert main(area.run()) == 0
    target = Location.of(area.at("target"))
    before = {entry.name for entry in target.entries()}
    for file in (target.child("half of it"), Location.of(area.at("elsewhere")).child("another's")):
        stream = WriteBehind(file)
        stream.write(bytes(20 << 20))
        stream.close()
    half = f"unfinished upload {target.child('half of it').shown}"
    capsys.readouterr()
    assert main(["clean", "--older-than", "1h"]) == 0
    assert "unfinished" not in capsys.readouterr().out
    assert main(["clean", "--older-than", "0s", "--dry-run"]) == 0
    assert f"would remove {half}\n" in capsys.readouterr().out
    assert main(["clean", "--older-than", "0s"]) == 0
    assert f"removed {half}\n" in capsys.readouterr().out
    assert {entry.name for entry in target.entries()} == before
    (left,) = unfinished_uploads(Location.of(area.name))
    assert left.shown == area.at("elsewhere/another's")
    left.abort()


@pytest.mark.full
def test_cleaning_removes_runs_and_what_they_left(area: Area, capsys: pytest.CaptureFixture[str]) -> None:
    area.source()
    for night in range(3):
        assert main(area.run("--rehearse", "--now", f"{1_000 + night}")) == 0
    newest = runs_of(area.at("home"))[0].run_id
    capsys.readouterr()
    assert main(["clean", "--keep", "1", "--older-than", "0s"]) == 0
    assert capsys.readouterr().out.count("removed run") == 2
    assert [run.run_id for run in runs_of(area.at("home"))] == [newest]
    with Control(area.catalog) as control:
        assert control.lease_of("main") is None
    json.loads(runs_of(area.at("home"))[0].report.read())


@pytest.mark.full
def test_a_page_does_not_go_on_asking_a_store_that_is_away(area: Area, monkeypatch: pytest.MonkeyPatch) -> None:
    area.source()
    assert main(area.run("--rehearse")) == 0
    run = find_run(area.at("home"), "main", runs_of(area.at("home"))[0].run_id)
    asked = 0

    def away(*_: object, **__: object) -> object:
        nonlocal asked
        asked += 1
        raise TransientError("the store is silent")

    for name in ("listed", "open_if_there"):
        monkeypatch.setattr(Location, name, away)
    assert RunView.of(run, nights=True).problems == ("the store is silent",)
    assert asked == 1


@pytest.mark.full
def test_pages_read_a_run_again_only_when_its_folder_has_changed(area: Area, monkeypatch: pytest.MonkeyPatch) -> None:
    area.source()
    for moment in range(2):
        assert main(area.run("--rehearse", "--now", f"{1_000 + moment}")) == 0
    rows = RunRows(area.at("home"))
    monkeypatch.setattr(run_rows, "_REMOTE_SECONDS", -1.0)
    first = rows.rows()
    assert [row.state for row in first] == [RunState.VERIFIED] * 2
    read: list[str] = []
    look = run_rows.row_of

    def noted(run: Run) -> RunRow:
        read.append(run.plan.run_id)
        return look(run)

    monkeypatch.setattr(run_rows, "row_of", noted)
    assert rows.rows() == first
    assert read == []
    changed = runs_of(area.at("home"))[1]
    Run.open(changed.folder).note(RunState.REJECTED, 2, "by a person")
    assert [row.state for row in rows.rows()] == [RunState.VERIFIED, RunState.REJECTED]
    assert read == [changed.run_id]
