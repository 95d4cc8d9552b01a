"""The publication needs only what the run has staged: the source may be gone by then, and the tables follow later."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA
from flinkstate.reading.reader import Savepoint
from stateferry.basics.exit_codes import INTERRUPTED
from stateferry.changes.rules import Rules
from stateferry.cli import main
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.catalog.publications import Control, Record
from stateferry.runs.record.facts import TablesProblem
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import FACTS_OF, TablesFacts, WrittenTables
from stateferry.runs.record.steps import Step
from stateferry.runs.report.report import Report
from stateferry.steps import tables
from stateferry.tables.iceberg.commits import TableHome
from stateferry.tables.iceberg.reads import read_current
from stateferry.tables.iceberg.schemas import StateTables
from stateferry.tables.versions import chunk_files
from tests.steps.test_steps_alone import PlanOf, control_of, plan_of, the_run
from tests.support.facts import kept_facts
from tests.support.in_process import do_step, do_steps, interrupted, without_spark
from tests.support.kill_points import Picture, watched
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

__all__ = ["plan_of"]

BEFORE_PUBLICATION = ("snapshot", "migrate", "rescale", "validate")
OF_REHEARSAL = (*BEFORE_PUBLICATION, "tables")


def published_target(tmp_path: Path) -> str | None:
    with control_of(tmp_path) as control:
        standing = control.standing("orders")
    return None if standing is None else standing.record.target


def test_a_verified_run_is_published_without_its_source(tmp_path: Path, plan_of: PlanOf) -> None:
    plan = plan_of("one")
    do_steps(BEFORE_PUBLICATION, "--plan", plan)
    shutil.rmtree(tmp_path / "source")
    assert do_step("cut_over", "--plan", plan) == 0
    assert the_run(tmp_path, "one").state is RunState.PUBLISHED
    assert published_target(tmp_path) == str(tmp_path / "one")
    assert (tmp_path / "one" / METADATA).exists()


def test_a_report_goes_with_what_was_validated(
    tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    plan = plan_of("one")
    do_steps(BEFORE_PUBLICATION, "--plan", plan)
    assert main(["report", "one"]) == 0
    run = the_run(tmp_path, "one")
    assert run.report_page.is_file()
    written = next((tmp_path / "one").glob("*-keyed-*"))
    content = written.read_bytes()
    written.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert do_step("cut_over", "--plan", plan) == 1
    capsys.readouterr()
    assert main(["report", "one"]) == 1
    assert "no report yet; it is failed: run one: the staged savepoint's files are not" in capsys.readouterr().out
    assert not run.report_page.exists()

    # A try that was killed after the step migrate has no report of what an earlier one has written.
    for step in ("migrate", "rescale", "validate", "migrate"):
        run.forget(*(FACTS_OF[Step.MIGRATE], FACTS_OF[Step.RESCALE]) if run.report.exists() else ())
        assert do_step(step, "--plan", plan) == 0
    capsys.readouterr()
    assert main(["report", "one"]) == 1
    assert "no report yet; it is staged" in capsys.readouterr().out


def test_a_report_says_how_its_run_has_ended_and_whether_it_holds(
    tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    plan = plan_of("one")
    do_steps(BEFORE_PUBLICATION, "--plan", plan)
    run = the_run(tmp_path, "one")
    run.enter(RunState.REJECTED, 0, "by me")
    capsys.readouterr()
    assert main(["report", "one"]) == 0
    assert capsys.readouterr().out.endswith("run one is rejected: by me\n")
    run.forget(FACTS_OF[Step.VALIDATE])
    assert main(["report", "one"]) == 1
    assert "the validation that wrote this report no longer stands" in capsys.readouterr().out
    assert main(["report", "one", "--json"]) == 1
    said = capsys.readouterr()
    assert Report.of_json(said.out).is_green
    assert "no longer stands" in said.err


@pytest.mark.full
@pytest.mark.slow
def test_a_run_that_was_killed_after_its_validation_needs_no_source(
    tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_spark(monkeypatch)
    root = tmp_path / "world"
    plan = plan_of("one", home=str(root / "home"), target=str(root / "target"))
    do_steps(BEFORE_PUBLICATION, "--plan", plan)
    with watched(root) as points:
        assert main(["run", "--plan", plan]) == 0
    assert len(points.pictures) > 5
    after = published(root)
    assert after[1].tables
    shutil.rmtree(tmp_path / "source")
    for number, picture in enumerate(points.pictures):
        picture.restore(root)
        free_the_lease(root)
        code, said = main(["run", "--plan", plan]), capsys.readouterr().err
        sequence, record, state, target = published(root)
        assert (sequence, state, target) == (after[0], after[2], after[3]), f"killed before {number}, {picture.effect}"
        # The tables need the source; as long as they are pending, the command says so.
        assert record in (after[1], after[1].model_copy(update={"tables": {}, "tables_pending": True}))
        assert (code == 0) == (record == after[1])
        assert code == 0 or "is published, and a job may run from" in said


def published(root: Path) -> tuple[int, Record, RunState, dict[str, bytes | None]]:
    with Control(f"sqlite:///{root}/home/catalog.db") as control:
        standing = control.standing("orders")
    assert standing is not None
    run = Run.open(Location.of(str(root / "home" / "runs" / "orders" / "one")))
    target = {name: data for name, data in Picture.of(root).content.items() if name.startswith("target/")}
    return standing.sequence, standing.record, run.state, target


def free_the_lease(root: Path) -> None:
    with Control(f"sqlite:///{root}/home/catalog.db") as control:
        if (held := control.lease_of("orders")) is not None:
            control.release(held)


@pytest.mark.slow
def test_keys_that_have_vanished_stop_a_cut_over_before_anything_is_written(
    tmp_path: Path, plan_of: PlanOf, capsys: pytest.CaptureFixture[str]
) -> None:
    known = LegacyState({f"key-{number}": ({"a": number}, 0) for number in range(20)})
    known.write(str(tmp_path / "known"))
    before = plan_of("before", source=str(tmp_path / "known"), rehearse=True)
    do_steps(OF_REHEARSAL, "--plan", before)
    other = known.with_changes(blobs={f"key-{number}": ({"a": 1}, 0) for number in range(11, 31)})
    other.write(str(tmp_path / "other"))
    wrong = plan_of("wrong", source=str(tmp_path / "other"))
    assert do_step("snapshot", "--plan", wrong) == 0
    capsys.readouterr()
    assert do_step("migrate", "--plan", wrong) == 1
    assert "11 of the 20 keys that the last run knew are gone, more than the 50%" in capsys.readouterr().err
    assert the_run(tmp_path, "wrong").state is RunState.FAILED
    assert not (tmp_path / "wrong").exists()
    meant = plan_of("meant", source=str(tmp_path / "other"), accept_vanished=0.55)
    do_steps((*BEFORE_PUBLICATION, "cut_over", "tables"), "--plan", meant)
    with control_of(tmp_path) as control:
        assert not control.are_tables_pending("orders", "meant")


@pytest.mark.slow
def test_tables_that_fail_after_the_publication_are_told_and_go_on_later(
    tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    plan = plan_of("one")
    do_steps((*BEFORE_PUBLICATION, "cut_over"), "--plan", plan)
    (tmp_path / "source").rename(tmp_path / "away")
    assert do_step("tables", "--plan", plan) == 1
    shutil.copytree(tmp_path / "away", tmp_path / "source", ignore=shutil.ignore_patterns("*-keyed-*"))
    assert do_step("tables", "--plan", plan) == 1
    problem = kept_facts(the_run(tmp_path, "one"), TablesProblem)
    assert "-keyed-" in problem.reason
    shutil.rmtree(tmp_path / "source")
    for step, code in (("tables", 1), ("cut_over", 0)):
        assert do_step(step, "--plan", plan) == code
    said = capsys.readouterr()
    assert f"run one is published, and a job may run from {tmp_path}/one. The tables are pending: " in said.err
    assert "nothing to do: run one is published" in said.out
    run = the_run(tmp_path, "one")
    assert (run.state, run.facts(TablesFacts)) == (RunState.PUBLISHED, None)
    assert main(["status"]) == 0
    assert f"tables pending: there is no savepoint at {tmp_path}/source" in capsys.readouterr().out
    assert main(["report", "one"]) == 0
    assert f"tables pending: there is no savepoint at {tmp_path}/source" in capsys.readouterr().out
    (tmp_path / "away").rename(tmp_path / "source")
    assert do_step("tables", "--plan", plan) == 0
    assert main(["status"]) == 0
    assert "pending" not in capsys.readouterr().out
    assert has_moved(run)
    with control_of(tmp_path) as control:
        standing = control.standing("orders")
    assert standing is not None
    assert len(standing.record.tables) == 2
    assert do_step("tables", "--plan", plan) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.slow
def test_tables_of_a_publication_that_was_replaced_stay_as_they_are(
    tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    first, second = plan_of("one"), plan_of("two")
    do_steps((*BEFORE_PUBLICATION, "cut_over"), "--plan", first)
    do_steps((*BEFORE_PUBLICATION, "cut_over", "tables"), "--plan", second)
    capsys.readouterr()
    assert do_step("tables", "--plan", first) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert the_run(tmp_path, "one").facts(TablesFacts) is None
    # After a rollback the first publication stands again, and its tables are due.
    assert main(["rollback", "--job", "orders"]) == 0
    assert do_step("tables", "--plan", first) == 0
    assert has_moved(the_run(tmp_path, "one"))


def state_of(tmp_path: Path) -> RunState:
    return the_run(tmp_path, "one").state


def has_moved(run: Run) -> bool:
    """Whether the tables' main has moved to the run."""
    facts = run.facts(TablesFacts)
    return facts is not None and facts.moved


def rehearsed(tmp_path: Path, plan_of: PlanOf, run_id: str, state: LegacyState) -> None:
    """Does a rehearsal on another savepoint of the job."""
    state.write(str(tmp_path / f"source of {run_id}"))
    plan = plan_of(run_id, source=str(tmp_path / f"source of {run_id}"), rehearse=True, accept_vanished=1)
    do_steps(OF_REHEARSAL, "--plan", plan)


def shown_keys(tmp_path: Path) -> set[str]:
    """The keys whose entries a reader of the tables' main sees."""
    home = TableHome(f"sqlite:///{tmp_path}/home/catalog.db", str(tmp_path / "home" / "warehouse"))
    source = Savepoint.open(str(tmp_path / "source"))
    legacy = source.state(source.metadata.operators[0], LEGACY)
    return {
        row["key"]
        for files in chunk_files(home, StateTables("orders", "main", NEW))
        for batch in read_current(files, Rules(legacy, NEW, FLAG, ttl=None, now=0))
        for row in batch.to_pylist()
    }


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [pytest.param(1, id="as old"), pytest.param(9, id="newer")])
def test_tables_that_another_run_moved_after_ours_wrote_its_rows_are_brought_all_the_same(
    tmp_path: Path, plan_of: PlanOf, checkpoint: int, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of("one", accept_vanished=1)
    do_steps((*BEFORE_PUBLICATION, "cut_over"), "--plan", plan)
    # It is killed when it has written its rows; another run comes in between.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "check", interrupted)
        assert do_step("tables", "--plan", plan) == INTERRUPTED
    before = the_run(tmp_path, "one").facts(WrittenTables)
    free_the_lease(tmp_path)
    other = LegacyState(blobs={"other": ({"x": 1}, 0)}, checkpoint_id=checkpoint)
    rehearsed(tmp_path, plan_of, "two", other)
    assert shown_keys(tmp_path) == {"other"}
    capsys.readouterr()
    assert do_step("tables", "--plan", plan) == 0
    after = the_run(tmp_path, "one").facts(WrittenTables)
    facts = the_run(tmp_path, "one").facts(TablesFacts)
    assert before is not None
    assert after is not None
    assert facts is not None
    newer = checkpoint > 1
    assert shown_keys(tmp_path) == ({"other"} if newer else {"cold", "hot"})
    assert (before.tables == after.tables) == newer
    assert ("the tables' main shows a newer savepoint" in capsys.readouterr().out) == newer
    with control_of(tmp_path) as control:
        standing = control.standing("orders")
    assert standing is not None
    assert standing.record.tables == facts.snapshots
    assert not standing.record.tables_pending
    assert do_step("tables", "--plan", plan) == 0


@pytest.mark.slow
def test_a_rehearsal_whose_tables_fail_has_failed_and_goes_on_later(
    tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_spark(monkeypatch)
    plan = plan_of("one", rehearse=True)
    do_steps(BEFORE_PUBLICATION, "--plan", plan)
    run, failing = the_run(tmp_path, "one"), Check("as the tables say", Outcome.FAILED, "3 entries", "2 entries")
    found = {("main", NEW): failing, ("main", "other"): replace(failing, outcome=Outcome.PASSED)}
    assert state_of(tmp_path) is RunState.STAGED
    with monkeypatch.context() as patched:
        patched.setattr(tables, "check", lambda *_: found)
        assert do_step("tables", "--plan", plan) == 1
        assert "the tables failed their checks, so their branch main stays where it was" in capsys.readouterr().err
    report = Report.read(run.report)
    assert (report.is_green, report.tables_pending, report.tables) == (True, True, tuple(found.values()))
    assert state_of(tmp_path) is RunState.FAILED
    assert shown_keys(tmp_path) == set()
    # The same command goes on, and has no need to write the savepoint again.
    before = {step: run.stored(FACTS_OF[step]) for step in Step if run.has_done(step)}
    assert main(["run", "--plan", plan]) == 0
    assert "tables: they hold what the new savepoint does" in capsys.readouterr().out
    assert {step: run.stored(FACTS_OF[step]) for step in before} == before
    report = Report.read(run.report)
    assert (report.tables_pending, [one.outcome for one in report.tables]) == (False, [Outcome.PASSED])
    assert state_of(tmp_path) is RunState.VERIFIED
    assert shown_keys(tmp_path) == {"cold", "hot"}
    # The report of the validation is still what it has written.
    assert main(["run", "--plan", plan]) == 0
    assert state_of(tmp_path) is RunState.VERIFIED


@pytest.mark.slow
def test_a_rehearsal_whose_tables_another_run_moved_writes_its_rows_again(tmp_path: Path, plan_of: PlanOf) -> None:
    plan = plan_of("one", rehearse=True, accept_vanished=1)
    do_steps(BEFORE_PUBLICATION, "--plan", plan)
    # It is killed when it has written its rows; another run comes in between.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "check", interrupted)
        assert do_step("tables", "--plan", plan) == INTERRUPTED
    assert the_run(tmp_path, "one").state is not RunState.VERIFIED
    free_the_lease(tmp_path)
    rehearsed(tmp_path, plan_of, "two", LegacyState(blobs={"other": ({"x": 1}, 0)}))
    assert do_step("tables", "--plan", plan) == 0
    assert the_run(tmp_path, "one").state is RunState.VERIFIED
    assert shown_keys(tmp_path) == {"cold", "hot"}


@pytest.mark.slow
def test_a_run_that_goes_on_late_leaves_the_view_to_the_later_run(tmp_path: Path, plan_of: PlanOf) -> None:
    plan = plan_of("one", rehearse=True)
    do_steps(BEFORE_PUBLICATION, "--plan", plan)
    # It is killed when it has moved `main`, before the view follows.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "put_current_view", interrupted)
        assert do_step("tables", "--plan", plan) == INTERRUPTED
    assert shown_keys(tmp_path) == {"cold", "hot"}
    free_the_lease(tmp_path)
    rehearsed(tmp_path, plan_of, "two", LegacyState(blobs={"other": ({"x": 1}, 0)}, checkpoint_id=9))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "put_current_view", interrupted)
        assert do_step("tables", "--plan", plan) == 0
    assert has_moved(the_run(tmp_path, "one"))
    assert shown_keys(tmp_path) == {"other"}


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("healing", ["two", "three"])
def test_tables_without_any_file_fail_and_the_same_command_or_the_next_run_writes_all_rows_anew(
    tmp_path: Path, plan_of: PlanOf, healing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = LegacyState(blobs={"cold": ({"a": 1}, 0), "other": ({"x": 1}, 0)})
    rehearsed(tmp_path, plan_of, "one", state)
    state.write(str(tmp_path / "again"))
    plan = plan_of("two", source=str(tmp_path / "again"), rehearse=True)
    do_steps(BEFORE_PUBLICATION, "--plan", plan)
    with monkeypatch.context() as patched:
        patched.setattr(tables, "accounts", lambda _: [])
        assert do_step("tables", "--plan", plan) == 1
    assert "anew" in capsys.readouterr().err
    (check,) = Report.read(the_run(tmp_path, "two").report).tables
    assert (check.outcome, check.expected) == (Outcome.FAILED, "0 entries, checksum 0000000000000000")
    if healing == "two":
        assert do_step("tables", "--plan", plan) == 0
    else:
        rehearsed(tmp_path, plan_of, "three", state)
    facts = kept_facts(the_run(tmp_path, healing), TablesFacts)
    assert facts.moved
    assert facts.rebuilt == {"main/newMainState": "the tables of an earlier run failed their checks"}


@pytest.mark.matrix(most=1)
@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_failed_run_is_written_again_and_casts_no_doubt_on_what_another_has_mended(
    tmp_path: Path,
    plan_of: PlanOf,
    is_killed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A newer run moves `main` when the checks have failed, or before they do in a later try."""
    state = LegacyState(blobs={"cold": ({"a": 1}, 0), "other": ({"x": 1}, 0)})
    rehearsed(tmp_path, plan_of, "one", state)
    state.write(str(tmp_path / "again"))
    plan = plan_of("two", source=str(tmp_path / "again"), rehearse=True)
    do_steps(BEFORE_PUBLICATION, "--plan", plan)

    def fails() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(tables, "accounts", lambda _: [])
            assert do_step("tables", "--plan", plan) == 1

    if is_killed:
        with monkeypatch.context() as patched:
            patched.setattr(tables, "check", interrupted)
            assert do_step("tables", "--plan", plan) == INTERRUPTED
        free_the_lease(tmp_path)
    else:
        fails()
    rehearsed(tmp_path, plan_of, "three", state.with_changes(checkpoint_id=9))
    if is_killed:
        fails()
    failed = kept_facts(the_run(tmp_path, "two"), WrittenTables)
    assert do_step("tables", "--plan", plan) == 0
    assert the_run(tmp_path, "two").facts(WrittenTables) != failed
    assert "the tables' main shows a newer savepoint" in capsys.readouterr().out
    rehearsed(tmp_path, plan_of, "four", state.with_changes(checkpoint_id=10))
    facts = kept_facts(the_run(tmp_path, "four"), TablesFacts)
    assert facts.moved
    assert facts.rebuilt == {}


@pytest.mark.slow
def test_keys_that_have_vanished_stop_a_rehearsal_that_writes_all_rows_anew(
    tmp_path: Path, plan_of: PlanOf, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearsed(tmp_path, plan_of, "one", LegacyState({f"key-{number}": ({"a": number}, 0) for number in range(20)}))
    few = LegacyState({f"key-{number}": ({"a": number}, 0) for number in range(3)}, max_parallelism=300)
    few.write(str(tmp_path / "few"))
    plan = plan_of("two", source=str(tmp_path / "few"), rehearse=True)
    do_steps(BEFORE_PUBLICATION, "--plan", plan)
    assert do_step("tables", "--plan", plan) == 1
    assert "17 of the 20 keys that the last run knew are gone" in capsys.readouterr().err
