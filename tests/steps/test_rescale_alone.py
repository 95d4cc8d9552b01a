"""Runs that migrate no state: the whole savepoint in another layout, by the same steps, without tables."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Operator, OperatorHandle
from flinkstate.reading.reader import Savepoint
from stateferry.cli import main
from stateferry.runs.catalog.publications import Control, Record
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.report.report import Report
from stateferry.runs.report.report_text import fact_lines
from tests.steps.test_steps_alone import PlanOf, control_of, plan_of, the_run
from tests.support.in_process import do_step, do_steps, without_spark
from tests.support.kill_points import Picture, watched
from tests.support.legacy_states import LegacyState

__all__ = ["plan_of"]

GOLDEN = Path(__file__).parents[1] / "savepoints"
SEVERAL = GOLDEN / "several-operators-2.3-hashmap"
STEPS = ("snapshot", "migrate", "rescale", "validate", "cut_over")


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    without_spark(monkeypatch)
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "world" / "home"))
    return tmp_path / "world" / "home"


def command(tmp_path: Path, *options: str, source: Path = SEVERAL, job: str | None = "orders") -> list[str]:
    places = ["run", "--savepoint", str(source), "--target", str(tmp_path / "world" / "target"), "--no-timers"]
    return [*places, *(("--job", job) if job else ()), *options]


def layouts(folder: Path) -> dict[str, tuple[int, int]]:
    found = Savepoint.open(str(folder)).metadata.operators
    return {operator.label: (operator.parallelism, operator.max_parallelism) for operator in found}


def standing(home: Path, job: str = "orders") -> Record:
    with Control(f"sqlite:///{home}/catalog.db") as control:
        found = control.standing(job)
    assert found is not None
    return found.record


def changed(tmp_path: Path, change: Any) -> Path:
    """The savepoint of several operators, with some of them changed in `_metadata`."""
    folder = tmp_path / "changed"
    shutil.copytree(SEVERAL, folder)
    metadata = Savepoint.open(str(folder)).metadata
    (folder / METADATA).write_bytes(
        build_metadata(replace(metadata, operators=tuple(change(one) for one in metadata.operators)))
    )
    return folder


def test_the_whole_savepoint_is_published_and_there_are_no_tables(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = command(tmp_path, "--parallelism", "5", "--max-parallelism", "300")
    assert main(wanted) == 0
    said = capsys.readouterr().out
    assert "of job orders, without a migration" in said
    assert "published: restore the job from" in said
    assert "table" not in said
    assert "migrate: nothing to do: the run migrates no state, so rescale writes the new savepoint\n" in said
    assert set(layouts(tmp_path / "world" / "target").values()) == {(5, 300)}
    record = standing(home)
    assert (record.tables, record.tables_pending) == ({}, False)
    assert not (home / "warehouse").exists()
    (summary,) = runs_of(str(home), "orders")
    kept = {path.stem for path in (Path(summary.folder.path) / "steps").iterdir()}
    assert {*STEPS} <= kept
    assert not {"tables", "written_tables", "accounts", "exchange"} & kept
    report = Report.read(summary.folder.child("report.json"))
    assert report.is_green
    assert not report.has_tables
    assert list(report.facts) == ["snapshot", "migrate", "rescale"]
    (line,) = fact_lines("migrate", report.facts["migrate"])
    assert line == "migrate: nothing to do: the run migrates no state, so rescale writes the new savepoint"
    assert report.facts["rescale"]["layout"]["wide"] == "parallelism 3 -> 5, max parallelism 512 -> 300"
    assert main(["status"]) == 0
    assert "table" not in capsys.readouterr().out
    assert main(wanted) == 0
    assert "nothing to do: run" in capsys.readouterr().out
    assert main(["rollback", "--job", "orders"]) == 0


def test_each_operator_gets_its_own_parallelism_and_the_others_keep_theirs(tmp_path: Path) -> None:
    wide = next(one for one in Savepoint.open(str(SEVERAL)).metadata.operators if one.label == "wide")
    assert main(command(tmp_path, "--parallelism", f"main=4,numbers=5,{wide.hex_id}=8")) == 0
    before, after = layouts(SEVERAL), layouts(tmp_path / "world" / "target")
    assert after == before | {"main": (4, 128), "numbers": (5, 128), "wide": (8, 512)}


def test_a_parallelism_by_operator_goes_with_a_migration(tmp_path: Path, plan_of: PlanOf) -> None:
    plan = plan_of("one", parallelism={"main": 3})
    do_steps(STEPS, "--plan", plan)
    assert layouts(tmp_path / "one")["main"][0] == 3
    assert the_run(tmp_path, "one").plan.to_json() == the_run(tmp_path, "one").plan_file.read().decode()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--parallelism", "mian=4"),
            "parallelism mian=4: no operator has the id, uid or name 'mian'. Did you mean main? There are: ",
        ),
        (("--parallelism", "main=200"), "operator main: expected a parallelism of 1 to the max parallelism 128"),
        (("--parallelism", "500"), "expected a parallelism of 1 to the max parallelism 128, found 500"),
        (("--parallelism", "gate=2"), "parallelism gate=2: operator gate has no state, so nothing in the savepoint"),
        (("--parallelism", "main=200", "--max-parallelism", "128"), "parallelism 200 of operator 'main' is above"),
        (("--max-parallelism", "2"), "expected a parallelism of 1 to the max parallelism 2, found 3"),
        ((), "--operator is missing: give it with --legacy-state and --new-state, or a plan file (--plan)"),
        (("--format", "canonical"), "operators: missing: name the operator with its legacy and new state; or, without"),
        (("--parallelism", "4", "--keep-legacy"), "--keep-legacy: given, but no state is migrated: leave it out"),
        (("--parallelism", "4", "--on-contradiction", "rows"), "--on-contradiction: given, but no state is migrated"),
        (("--parallelism", "4", "--operator", "main"), "are named together. To rescale without a migration, name none"),
    ],
)
def test_nonsense_is_refused_in_one_line_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    assert main(command(tmp_path, *options)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "world" / "target").exists()
    assert not list((tmp_path / "world").rglob("plan.json"))


def test_two_names_of_one_operator_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main_ = next(one for one in Savepoint.open(str(SEVERAL)).metadata.operators if one.label == "main")
    assert main(command(tmp_path, "--parallelism", f"main=4,{main_.hex_id}=5")) == 2
    assert "are the same operator, main: name it once" in capsys.readouterr().err


def test_without_a_name_the_job_has_that_of_the_only_keyed_operator(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path, "--parallelism", "4", job=None)) == 2
    said = capsys.readouterr().err
    assert "3 operators have keyed state, so the job can't be named after one: give the job a name (--job)" in said
    LegacyState(rows={"hot": {"a": (5, 0)}}).write(str(tmp_path / "one"))
    assert main(command(tmp_path, "--parallelism", "2", source=tmp_path / "one", job=None)) == 0
    (only,) = Savepoint.open(str(tmp_path / "one")).keyed_operators()
    assert standing(home, only.name or only.label).target == str(tmp_path / "world" / "target")


def test_a_layout_that_is_there_already_is_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    LegacyState(rows={"hot": {"a": (5, 0)}}).write(str(tmp_path / "one"))
    ((name, (parallelism, maximum)),) = layouts(tmp_path / "one").items()
    wanted = command(tmp_path, "--parallelism", f"{name}={parallelism}", source=tmp_path / "one")
    assert main(wanted) == 0
    said = capsys.readouterr().out
    assert "nothing to do: the savepoint is as wanted already" in said
    assert f"--parallelism {name}={parallelism} had no effect: it is that of {name} already" in said
    assert main(command(tmp_path, "--max-parallelism", f"{maximum}", source=tmp_path / "one")) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert not (tmp_path / "world" / "target").exists()


def test_an_operator_that_cannot_be_parallel_keeps_its_layout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def alone(one: Operator) -> Operator:
        return replace(one, parallelism=1, max_parallelism=1) if one.label == "gate" else one

    source = changed(tmp_path, alone)
    assert main(command(tmp_path, "--parallelism", "4", "--max-parallelism", "256", source=source)) == 0
    found = layouts(tmp_path / "world" / "target")
    assert found.pop("gate") == (1, 1)
    assert set(found.values()) == {(4, 256)}
    said = capsys.readouterr().out
    assert "note: --max-parallelism 256 is not for gate: its max parallelism is 1" in said
    assert "note: --parallelism 4 is not for gate, which keeps 1 subtask" in said


def test_an_operator_without_state_has_at_most_the_new_max_parallelism(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def wide(one: Operator) -> Operator:
        return replace(one, parallelism=100) if one.label == "gate" else one

    source = changed(tmp_path, wide)
    assert main(command(tmp_path, "--max-parallelism", "64", source=source)) == 0
    assert layouts(tmp_path / "world" / "target")["gate"] == (64, 64)
    said = capsys.readouterr().out
    assert "note: --max-parallelism 64 is less than the subtasks of gate, which has nothing to distribute" in said
    # With a number for all, it gets that.
    wanted = command(tmp_path, "--parallelism", "8", "--max-parallelism", "64", source=source, job="other")
    assert main([str(tmp_path / "eight") if one.endswith("target") and "/" in one else one for one in wanted]) == 0
    assert set(layouts(tmp_path / "eight").values()) == {(8, 64)}
    assert "the subtasks of gate" not in capsys.readouterr().out


def test_raw_operator_state_stays_with_its_subtasks_unless_the_operator_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def raw(one: Operator) -> Operator:
        if one.label != "numbers":
            return one
        return replace(
            one,
            subtasks=tuple(
                replace(task, managed_operator=None, raw_operator=_nameless(task.managed_operator))
                for task in one.subtasks
            ),
        )

    source = changed(tmp_path, raw)
    assert main(command(tmp_path, "--parallelism", "numbers=4", source=source)) == 3
    assert "numbers has raw operator state, which only the operator itself can distribute" in capsys.readouterr().err
    assert main(command(tmp_path, "--parallelism", "4", source=source)) == 0
    found = layouts(tmp_path / "world" / "target")
    assert found.pop("numbers") == (2, 128)
    assert {parallelism for parallelism, _ in found.values()} == {4}
    assert "--parallelism 4 is not for numbers, which keeps 2 subtasks: it has raw" in capsys.readouterr().out


def _nameless(handle: OperatorHandle | None) -> OperatorHandle | None:
    return handle and replace(handle, states=())


def test_a_rehearsal_publishes_nothing_and_has_no_tables(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path, "--max-parallelism", "300", "--rehearse")) == 0
    assert "rehearsed: the staged savepoint is" in capsys.readouterr().out
    (summary,) = runs_of(str(home), "orders")
    assert summary.plan is not None
    run = Run(summary.plan, summary.folder)
    assert run.state is RunState.VERIFIED
    assert {maximum for _, maximum in layouts(Path(run.staged.path)).values()} == {300}
    assert not (tmp_path / "world" / "target").exists()
    assert not (home / "warehouse").exists()


def test_steps_alone_leave_the_tables_out(tmp_path: Path, plan_of: PlanOf, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of("one", operators=[], parallelism=3)
    for step in ("snapshot", "migrate", "rescale", "validate", "cut_over", "tables"):
        capsys.readouterr()
        assert do_step(step, "--plan", plan) == 0
        left_out = "nothing to do: run one migrates no state, so it has no tables" in capsys.readouterr().out
        assert left_out == (step == "tables")
    assert the_run(tmp_path, "one").state is RunState.PUBLISHED
    with control_of(tmp_path) as control:
        assert not control.are_tables_pending("orders", "one")


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_any_of_its_effects_it_ends_the_same(
    tmp_path: Path, home: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "world"
    root.mkdir()
    wanted = command(tmp_path, "--parallelism", "main=2", "--max-parallelism", "300", "--now", "1")
    with watched(root) as points:
        assert main(wanted) == 0
    target = root / "target"
    files = {path.name: path.read_bytes() for path in target.iterdir()}
    digest = standing(home).metadata_digest
    for number, picture in points.chosen(1 if pytestconfig.getoption("--all") else 40):
        picture.restore(root)
        code = main(wanted)
        where = f"killed before effect {number}, {picture.effect}: {capsys.readouterr().err}"
        assert code == 0, where
        assert {path.name: path.read_bytes() for path in target.iterdir()} == files, where
        assert (standing(home).metadata_digest, standing(home).tables) == (digest, {}), where
    assert Picture.of(root).content


@pytest.mark.parametrize(("name", "made"), [("native-2.3-rocksdb", "native"), ("native-2.3-rocksdb", "canonical")])
def test_a_native_savepoint_is_rescaled_into_either_format(
    tmp_path: Path, home: Path, name: str, made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = GOLDEN / name
    wanted = command(tmp_path, "--parallelism", "2", "--max-parallelism", "300", "--format", made, source=source)
    assert main(wanted) == 0
    target = Savepoint.open(str(tmp_path / "world" / "target"))
    assert target.format == made
    assert set(layouts(tmp_path / "world" / "target").values()) == {(2, 300)}
    assert "read plainly" in capsys.readouterr().out


def test_another_format_alone_is_work_and_done_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    LegacyState(rows={"hot": {"a": (5, 0)}}).write(str(tmp_path / "one"))
    assert main(command(tmp_path, "--format", "native", source=tmp_path / "one")) == 0
    target = tmp_path / "world" / "target"
    assert Savepoint.open(str(target)).format == "native"
    again = ["run", "--savepoint", str(target), "--target", str(tmp_path / "twice"), "--format", "native"]
    capsys.readouterr()
    assert main([*again, "--no-timers"]) == 0
    assert "nothing to do: the savepoint is as wanted already" in capsys.readouterr().out


def test_the_report_says_how_even_the_state_is_and_which_key_is_too_heavy(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {f"key-{number}": {"a": (number, 0)} for number in range(3)}
    rows["hot"] = {f"{part}": (part, 0) for part in range(100)}
    LegacyState(rows=rows).write(str(tmp_path / "one"))
    assert main(command(tmp_path, "--parallelism", "8", source=tmp_path / "one")) == 0
    said = capsys.readouterr().out
    assert 'key "hot" (key group' in said
    assert "× the fair share of one of 8 subtasks: no layout can spread it" in said
    (summary,) = runs_of(str(home), "orders")
    (balance,) = Report.read(summary.folder.child("report.json")).balance
    before, after, heavy = balance.before, balance.after, balance.too_heavy_key
    assert before is not None
    assert after is not None
    assert heavy is not None
    assert before.rows is not None
    assert (before.rows.total, before.bytes.worst_over_mean, before.idle_subtasks) == (103, 1.0, 0)
    used = {one.subtask for one in keyed_files(tmp_path)}
    assert (after.parallelism, after.idle_subtasks) == (8, 8 - len(used))
    assert after.bytes.worst_over_mean > 7
    assert heavy.key == '"hot"'
    assert heavy.share == pytest.approx(100 / 103, abs=0.01)
    page = summary.folder.child("report.html").read().decode()
    assert "the fair share of one of 8 subtasks" in page
    assert f"{8 - len(used)} subtasks without state" in page


def keyed_files(tmp_path: Path) -> list[Any]:
    target = Savepoint.open(str(tmp_path / "world" / "target"))
    return [
        placed.file
        for operator in target.keyed_operators()
        for placed in target.placed(operator)
        if any(placed.file.offsets)
    ]
